//! `tracewise jobs train`

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::SystemTime;

use files::Limits;
use jobs::generators::{TrainedGenerator, TrainingConfig};
use learn::artifact::{Artifact, Provenance};
use report::text::{show_count, show_duration};
use serde_json::json;

use super::with_hint;
use crate::args::TrainGeneratorArgs;
use crate::output::{eprint_note, print, print_json};
use crate::signals::stop_on_signals;

pub fn run(args: &TrainGeneratorArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let n_epochs = args.epochs.map(NonZeroUsize::try_from).transpose();
    let n_epochs = n_epochs.map_err(|_| anyhow::anyhow!("--epochs has to be at least 1"))?;
    let stop = stop_on_signals(None)?;
    let trace = args.reading.read(&args.input, limits)?;
    let config = TrainingConfig { n_epochs, seed: args.seed };
    let report = |progress: jobs::generators::TrainingProgress| {
        eprint_note(&format!(
            "epoch {:4} of {}  loss {:.4}  {} left",
            progress.epoch,
            progress.n_epochs,
            progress.loss,
            show_duration(progress.remaining.as_secs_f64())
        ));
    };
    let trained = TrainedGenerator::fit(&trace, args.generator, config, &stop, report).map_err(with_hint)?;
    let provenance = Provenance {
        created: Some(SystemTime::now().into()),
        data: Some(trace.data_origin(&args.input)?),
        // The model that this one replaces, if there is one.
        parent: Artifact::manifest(&args.out).ok().map(|manifest| manifest.weights_sha256),
    };
    trained.write(&args.out, &provenance)?;
    let origin = trained.origin();
    if args.json {
        print_json(&json!({ "out": args.out, "generator": trained.kind(), "origin": origin }))?;
    } else {
        print(&format!(
            "{}: {} trained on {} jobs ({}), seed {}, in {:.1} s",
            args.out.display(),
            trained.kind(),
            show_count(origin.n_jobs as u64),
            show_duration(origin.span_seconds),
            args.seed,
            origin.training_seconds
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
