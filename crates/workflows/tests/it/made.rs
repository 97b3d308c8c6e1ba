//! Runs of a small workflow, made with and without fault.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workflows::inject::{Fault, Machine, inject};
use workflows::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};
use workflows::{Dataset, LabelledRun, Recording};

/// A healthy run: eight tasks that stage in and compute, one that gathers them.
pub fn run(name: &str, seed: u64) -> WorkflowRun {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut attempts = Vec::new();
    let mut jitter = || rng.random_range(0.9..1.1);
    for at in 0..8 {
        let (came, ran, went) = (20.0 * jitter(), 60.0 * jitter(), 5.0 * jitter());
        let start = 4.0 + f64::from(at) * 0.1;
        let end = start + came + ran + went;
        attempts.push(TaskAttempt {
            host: Some(format!("worker-{}", at % 2)),
            ready: Some(0.0),
            submitted: Some(1.0),
            execution: Span::new(start, end).ok(),
            stage_in: Span::new(start, start + came).ok(),
            stage_out: Span::new(end - went, end).ok(),
            post_script: Span::new(end, end + 2.0).ok(),
            cpu_seconds: Some(ran * 0.8),
            stage_in_bytes: Some(2e8),
            stage_out_bytes: Some(1e7),
            exit_code: Some(0),
            ..TaskAttempt::new(format!("count_ID000000{at}"), TaskRole::Compute, "count", 1)
        });
    }
    let ready = attempts.iter().filter_map(TaskAttempt::end).fold(0.0, f64::max);
    let ran = 30.0 * jitter();
    attempts.push(TaskAttempt {
        host: Some("worker-0".into()),
        ready: Some(ready),
        submitted: Some(ready + 1.0),
        execution: Span::new(ready + 3.0, ready + 3.0 + ran).ok(),
        cpu_seconds: Some(ran * 0.7),
        exit_code: Some(0),
        ..TaskAttempt::new("gather_ID0000009", TaskRole::Compute, "gather", 1)
    });
    WorkflowRun { name: name.into(), attempts, ..WorkflowRun::default() }
}

/// Runs of every class in two batches each.
pub fn dataset(n_each: usize) -> Dataset {
    let mut runs = Vec::new();
    for (class, label) in ["normal", "cpu_3", "hdd_20", "loss_3"].into_iter().enumerate() {
        for at in 0..n_each {
            let batch = format!("2026010{}T00000{}Z", 1 + class, at % 2);
            let healthy = run(&format!("made-{batch}-run{at:04}"), (class * 1_000 + at) as u64);
            let run = match label {
                "normal" => healthy,
                fault => {
                    inject(&healthy, Fault::parse(fault).unwrap(), &Machine::default(), at as u64).unwrap()
                }
            };
            runs.push(LabelledRun::new(Recording { run, ..Recording::default() }, label));
        }
    }
    Dataset { runs, warnings: Vec::new() }
}
