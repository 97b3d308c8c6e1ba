//! `tracewise jobs sample`

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Instant;

use jobs::generators::{Condition, LoadFactor, SampleExtent, SampleRequest, TimeSpan, TrainedGenerator};
use jobs::sink;
use report::text::show_count;
use serde_json::json;

use super::with_hint;
use crate::args::SampleArgs;
use crate::output::{eprint_note, print, print_json};
use crate::signals::stop_on_signals;

pub fn run(args: &SampleArgs) -> anyhow::Result<ExitCode> {
    let request = request(args)?;
    let stop = stop_on_signals(None)?;
    let started = Instant::now();
    let trained = TrainedGenerator::read(&args.model)?;
    if matches!(request.extent, SampleExtent::Span(_)) && !trained.has_calendar() {
        eprint_note(
            "the training trace has no calendar time, so hours of the day and days of the week are not aligned",
        );
    }
    let table = trained.sample(&request, &stop).map_err(with_hint)?;
    sink::write(&args.out, &table, trained.schema())?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        print_json(
            &json!({ "out": args.out, "generator": trained.kind(), "jobs": table.n_rows(), "seconds": seconds }),
        )?;
    } else {
        print(&format!(
            "{}: {} jobs sampled from {} in {seconds:.1} s",
            args.out.display(),
            show_count(table.n_rows() as u64),
            trained.kind()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: &SampleArgs) -> anyhow::Result<SampleRequest> {
    let extent = match (args.jobs, args.from.zip(args.to)) {
        (Some(n_jobs), _) => {
            let n_jobs = NonZeroUsize::new(n_jobs);
            SampleExtent::Jobs(n_jobs.ok_or_else(|| anyhow::anyhow!("--jobs has to be at least 1"))?)
        }
        (None, Some((from, to))) => {
            let span = TimeSpan::new(from.0 as f64 / 1e3, to.0 as f64 / 1e3);
            SampleExtent::Span(span.map_err(|_| anyhow::anyhow!("--to has to be after --from"))?)
        }
        (None, None) => SampleExtent::LikeTraining,
    };
    let load = args.scale.map_or(Ok(LoadFactor::default()), LoadFactor::new)?;
    let condition =
        |(column, value): &(String, String)| Condition { column: column.clone(), value: value.clone() };
    let conditions = args.condition.iter().map(condition).collect();
    Ok(SampleRequest { extent, load, conditions, seed: args.seed })
}
