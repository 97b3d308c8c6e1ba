//! `tracewise jobs train`

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::bail;
use jobs::generators::{FitSettings, Fitted};
use learn::artifact::Provenance;
use report::text::{show_count, show_duration};
use serde_json::json;

use crate::args::TrainGeneratorArgs;
use crate::output::{complain, say, say_json};

pub fn run(args: &TrainGeneratorArgs) -> anyhow::Result<ExitCode> {
    if args.epochs == Some(0) {
        bail!("--epochs is at least one");
    }
    let trace = args.reading.read(&args.input)?;
    let settings = FitSettings { n_epochs: args.epochs, seed: args.seed };
    let fitted = Fitted::fit(&trace, args.generator, settings, |step| {
        let loss = step.loss.map_or(String::new(), |loss| format!("  loss {loss:.4}"));
        eprint_note(&format!(
            "{:4} of {}{loss}  {} left",
            step.done,
            step.total,
            show_duration(step.left.as_secs_f64())
        ));
    })?;
    fitted.write(&args.out, &Provenance::at(SystemTime::now().into()))?;
    let origin = &fitted.origin;
    if args.json {
        say_json(&json!({ "out": args.out, "generator": fitted.model, "origin": origin }))?;
    } else {
        print(&format!(
            "{}: {} learnt from {} jobs in {}, seed {}, in {:.1} s",
            args.out.display(),
            fitted.model.name(),
            show_count(origin.n_jobs as u64),
            show_duration(origin.span_seconds),
            args.seed,
            origin.fit_seconds
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
