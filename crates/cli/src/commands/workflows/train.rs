//! `tracewise workflows train`

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use learn::artifact::Provenance;
use report::text::show_count;
use serde_json::json;
use workflows::Split;
use workflows::classify::Fitted;

use super::{missing_in_words, read_run, read_runs, warn};
use crate::args::TrainRunsArgs;
use crate::output::{eprint_note, print, print_json};
use crate::progress::Progress;

pub fn run(args: &TrainRunsArgs) -> anyhow::Result<ExitCode> {
    let mut data = read_runs(&args.runs)?;
    let split = args.split.as_deref().map(|path| Split::read(path, &data)).transpose()?;
    let (mut train, mut validation) = match &split {
        Some(split) => {
            let conflicting = split
                .conflicting
                .iter()
                .map(|run| format!("{run} is left out: it is filed under another label than the split says"));
            let warnings: Vec<String> = conflicting.chain(missing_in_words(&split.missing)).collect();
            warn(args.split.as_deref().unwrap_or(&args.runs), &warnings);
            (split.train.clone(), split.validation.clone())
        }
        None => ((0..data.runs.len()).collect(), Vec::new()),
    };
    for (label, path) in &args.add {
        data.warnings.clear();
        let at = data.label(read_run(path)?, label);
        warn(path, &data.warnings);
        validation.retain(|known| *known != at);
        if !train.contains(&at) {
            train.push(at);
        }
    }
    let model = args.model.for_runs(&data);
    let settings = args.learning.settings(model)?;
    let progress = Progress::new(format!("training {}", model.name()));
    let mut curve = Vec::new();
    let fitted = Fitted::fit(model, &data.select(&train), &data.select(&validation), &settings, |step| {
        progress.update(step.epoch as u64, step.n_epochs as u64);
        curve.push(*step);
    })?;
    drop(progress);
    fitted.write(&args.out, &Provenance::at(SystemTime::now().into()))?;
    let origin = &fitted.origin;
    if args.json {
        let epochs: Vec<_> = curve.iter().map(|step| json!(step)).collect();
        print_json(
            &json!({ "out": args.out, "model": model, "classes": fitted.classes, "runs": origin.n_runs,
            "by_class": origin.by_class, "seconds": origin.fit_seconds, "curve": epochs }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(last) = curve.iter().max_by(|a, b| a.validation_accuracy.total_cmp(&b.validation_accuracy)) {
        eprint_note(&format!(
            "best on what was held out: accuracy {:.3} after epoch {}",
            last.validation_accuracy, last.epoch
        ));
    }
    let classes: Vec<String> =
        origin.by_class.iter().map(|(class, count)| format!("{count} {class}")).collect();
    print(&format!(
        "{}: {} learnt from {} runs ({}) in {}",
        args.out.display(),
        model.name(),
        show_count(origin.n_runs as u64),
        classes.join(", "),
        humantime::format_duration(Duration::from_millis((origin.fit_seconds * 1e3) as u64))
    ))?;
    Ok(ExitCode::SUCCESS)
}
