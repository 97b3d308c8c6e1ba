//! Times of drawing charts and judging runs: `bench-workflows <runs> <model>`; JSON on stdout.

#[path = "../../crates/cli/src/memory.rs"]
mod memory;

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use rayon::prelude::*;
use serde_json::json;
use workflows::Dataset;
use workflows::classify::TrainedClassifier;
use workflows::draw::{Gantt, pixels};

/// Repetitions of drawing all runs.
const ROUNDS: usize = 5;
const SIDE: usize = 224;

fn main() -> anyhow::Result<()> {
    memory::reuse_memory();
    let mut arguments = std::env::args().skip(1);
    let (runs, model) = arguments.next().zip(arguments.next()).context("bench-workflows <runs> <model>")?;
    let begun = Instant::now();
    let data = Dataset::read(Path::new(&runs), &files::Limits::default())?;
    let read = begun.elapsed().as_secs_f64();
    let draw =
        |run: &workflows::LabelledRun| pixels::draw(&Gantt::new(&run.recording.run), SIDE, SIDE).bytes[0];
    let begun = Instant::now();
    let mut n_drawn = 0;
    for _ in 0..ROUNDS {
        n_drawn += data.runs.iter().map(draw).map(|byte| usize::from(byte.max(1) > 0)).sum::<usize>();
    }
    let on_one = n_drawn as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let n_drawn: usize =
        (0..ROUNDS).map(|_| data.runs.par_iter().map(draw).filter(|byte| byte.max(&1) > &0).count()).sum();
    let on_all = n_drawn as f64 / begun.elapsed().as_secs_f64();
    let classifier = TrainedClassifier::read(Path::new(&model))?;
    let begun = Instant::now();
    let few = &data.runs[..data.runs.len().min(200)];
    let n_healthy = few
        .iter()
        .filter(|run| classifier.judge(&run.recording.run).is_ok_and(|verdict| verdict.class == "normal"))
        .count();
    let classify = begun.elapsed().as_secs_f64() / few.len() as f64;
    let found = json!({ "runs": data.runs.len(), "read_seconds": read, "drawn_a_second": on_one,
        "drawn_a_second_all_threads": on_all, "classify_seconds": classify, "n_healthy": n_healthy });
    #[allow(clippy::print_stdout, reason = "this is what it is for")]
    {
        println!("{found}");
    }
    Ok(())
}
