//! `tracewise jobs sample`

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use jobs::generators::{Ask, Fitted};
use jobs::sink;
use report::text::show_count;
use serde_json::json;

use crate::args::SampleArgs;
use crate::output::{eprint_note, print, print_json};

pub fn run(args: &SampleArgs) -> anyhow::Result<ExitCode> {
    if args.jobs == Some(0) {
        bail!("--jobs is at least one");
    }
    let span = args.from.zip(args.to).map(|(from, to)| (from.0 as f64 / 1e3, to.0 as f64 / 1e3));
    if span.is_some_and(|(from, to)| to <= from) {
        bail!("--to is after --from");
    }
    let begun = Instant::now();
    let fitted = Fitted::read(&args.model)?;
    let ask = Ask {
        n_jobs: args.jobs,
        span,
        scale: args.scale,
        condition: args.condition.clone(),
        seed: args.seed,
    };
    if span.is_some() && !fitted.has_calendar() {
        eprint_note(
            "the trace learnt from does not say when it was: hours of the day and of the week are not known",
        );
    }
    let table = fitted.sample(&ask)?;
    sink::write(&args.out, &table, &fitted.schema)?;
    let seconds = begun.elapsed().as_secs_f64();
    if args.json {
        say_json(
            &json!({ "out": args.out, "generator": fitted.model, "jobs": table.n_rows(), "seconds": seconds }),
        )?;
    } else {
        print(&format!(
            "{}: {} jobs made by {} in {seconds:.1} s",
            args.out.display(),
            show_count(table.n_rows() as u64),
            fitted.model.name()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
