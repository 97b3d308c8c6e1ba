//! `tracewise workflows train`

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use files::Limits;
use learn::artifact::{DataOrigin, Provenance};
use report::text::show_count;
use serde_json::json;
use workflows::Split;
use workflows::classify::TrainedClassifier;

use super::{missing_runs_warning, read_run, read_runs, training_plan, warn, with_hint};
use crate::args::TrainRunsArgs;
use crate::output::{eprint_note, print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &TrainRunsArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let mut data = read_runs(&args.runs, limits)?;
    let (mut train, mut validation) = ((0..data.runs.len()).collect::<Vec<_>>(), Vec::new());
    if let Some(path) = &args.split {
        let split = Split::read(path, &data, limits)?;
        let conflicting = split.conflicting.iter();
        let conflicting =
            conflicting.map(|run| format!("{run} is skipped: the split and the data have different labels"));
        warn(path, &conflicting.chain(missing_runs_warning(&split.missing)).collect::<Vec<_>>());
        (train, validation) = (split.train, split.validation);
    }
    for (label, path) in &args.add {
        data.warnings.clear();
        let at = data.label(read_run(path, limits)?, label);
        warn(path, &data.warnings);
        validation.retain(|known| *known != at);
        if !train.contains(&at) {
            train.push(at);
        }
    }
    let plan = training_plan(args.classifier, &args.training, &data)?;
    let name = plan.kind().name();
    let stop = stop_on_signals(None)?;
    let progress = Progress::new(format!("training {name}"));
    let mut curve = Vec::new();
    let trained =
        TrainedClassifier::train(&plan, &data.select(&train), &data.select(&validation), &stop, |epoch| {
            progress.update(epoch.epoch as u64, epoch.n_epochs as u64);
            curve.push(*epoch);
        });
    drop(progress);
    let classifier = trained.map_err(with_hint)?;
    let (from, to) = data.span(&train).unzip();
    let address = args.runs.display().to_string();
    let provenance = Provenance {
        data: Some(DataOrigin { address, from, to, sha256: None }),
        ..Provenance::at(SystemTime::now().into())
    };
    classifier.write(&args.out, &provenance)?;
    let origin = &classifier.origin;
    if args.json {
        print_json(&json!({ "out": args.out, "classifier": plan.kind(), "classes": classifier.classes,
            "runs": origin.n_runs, "by_class": origin.by_class, "seconds": origin.train_seconds, "curve": curve }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(best) = curve.iter().max_by(|a, b| a.validation_accuracy.total_cmp(&b.validation_accuracy)) {
        let (accuracy, epoch) = (best.validation_accuracy, best.epoch);
        eprint_note(&format!("best validation accuracy: {accuracy:.3} after epoch {epoch}"));
    }
    let classes: Vec<String> =
        origin.by_class.iter().map(|(class, count)| format!("{count} {class}")).collect();
    print(&format!(
        "{}: {name} trained on {} runs ({}) in {}",
        args.out.display(),
        show_count(origin.n_runs as u64),
        classes.join(", "),
        humantime::format_duration(Duration::from_millis((origin.train_seconds * 1e3) as u64))
    ))?;
    Ok(ExitCode::SUCCESS)
}
