//! Measures the agent on a made-up node: `bench-agent node|cost|day`. `node` keeps such a node
//! changing for programs that read it; the others print one JSON line, for `bench/agent.py`.

#![allow(clippy::print_stdout, reason = "the result is what it prints")]

use std::path::Path;
use std::time::{Duration, Instant};

use agent::cgroup::CgroupCollector;
use agent::cpu::CpuCollector;
use agent::exposition::{Format, Page};
use agent::node::{Collector, Node, NodeSettings};
use agent::owner::Ownership;
use agent::ring::Keep;
use agent::service::Shared;
use anyhow::bail;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use testbed::fake_node::FakeNode;
use workload::{Millis, NodeName, Timestamp};

const START: i64 = 1_767_225_600;
const ROUNDS: usize = 100;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["node", folder, threads, jobs, seconds] => {
            keep_changing(Path::new(folder), threads.parse()?, jobs.parse()?, seconds.parse()?)?;
        }
        ["cost", folder, threads, jobs] => {
            println!("{}", cost(Path::new(folder), threads.parse()?, jobs.parse()?)?)
        }
        ["day", folder, jobs] => println!("{}", day(Path::new(folder), jobs.parse()?)?),
        _ => bail!(
            "usage: bench-agent node FOLDER THREADS JOBS SECONDS_A_TICK | cost FOLDER THREADS JOBS | day FOLDER JOBS"
        ),
    }
    Ok(())
}

/// A second passes every `tick` seconds, until the process is killed.
fn keep_changing(folder: &Path, n_threads: usize, n_jobs: usize, tick: f64) -> anyhow::Result<()> {
    let mut node = FakeNode::create(folder, n_threads);
    node.start_jobs(n_jobs);
    println!("ready");
    let mut job = 0;
    loop {
        let begun = Instant::now();
        node.tick();
        if n_jobs > 0 {
            job = (job + 1) % n_jobs;
            node.touch_job(1_000 + job as u64);
        }
        std::thread::sleep(Duration::from_secs_f64(tick).saturating_sub(begun.elapsed()));
    }
}

/// CPU time of this thread, in milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// What some work costs.
fn repeated(mut work: impl FnMut(usize)) -> Value {
    let mut costs: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let begun = cpu_ms();
            work(round);
            cpu_ms() - begun
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    let mean = costs.iter().sum::<f64>() / ROUNDS as f64;
    json!({ "mean_ms": mean, "median_ms": costs[ROUNDS / 2], "p95_ms": costs[ROUNDS * 95 / 100], "most_ms": costs[ROUNDS - 1] })
}

fn settings(node: &FakeNode) -> anyhow::Result<NodeSettings> {
    Ok(NodeSettings {
        name: NodeName::new("n1")?,
        procfs: node.proc(),
        cgroupfs: node.cgroup(),
        collectors: Collector::ALL.to_vec(),
        interval: Duration::from_secs(1),
        job_interval: Duration::from_secs(10),
        has_steps: false,
        most_jobs: agent::cgroup::MOST_JOBS,
    })
}

fn cost(folder: &Path, n_threads: usize, n_jobs: usize) -> anyhow::Result<Value> {
    let mut fake = FakeNode::create(folder, n_threads);
    fake.start_jobs(n_jobs);
    let second = |second: usize| Timestamp::from_seconds(START + second as i64);

    let mut cpu = CpuCollector::new(&fake.proc());
    let mut cgroup = CgroupCollector::new(&fake.cgroup(), &fake.proc());
    // Jobs settle in their first seconds.
    (0..20).try_for_each(|at| cgroup.look(second(at)))?;
    let mut ownership = Ownership::default();
    let mut generation = None;
    let sample = repeated(|round| {
        let mut threads = cpu.read().unwrap_or_default();
        let _ = cgroup.look(second(20 + round));
        if generation != Some(cgroup.generation()) {
            ownership = Ownership::of(cgroup.jobs().map(|job| &**job));
            generation = Some(cgroup.generation());
        }
        ownership.flag(&mut threads);
        assert_eq!(threads.len(), n_threads);
    });
    let job_files = repeated(|round| {
        let read = cgroup.read_usage(second(1_000 + round * 2), Millis::SECOND, Duration::MAX);
        assert_eq!(read.len(), n_jobs);
    });

    let mut node = Node::new(settings(&fake)?);
    let shared = Shared::new(&node, Keep { time: Millis::HOUR, bytes: usize::MAX }, false);
    let whole = repeated(|round| shared.publish(node.sample(second(round)), 0));
    let mut page = String::new();
    let text = repeated(|_| page = shared.page(Format::Text));
    let n_series = page.lines().filter(|line| !line.starts_with('#')).count();
    let openmetrics = repeated(|_| page = shared.page(Format::OpenMetrics));
    Ok(json!({ "sample": sample, "job_files": job_files, "whole": whole, "text": text,
        "openmetrics": openmetrics, "page_bytes": page.len(), "series": n_series }))
}

fn resident_bytes() -> u64 {
    agent::own::OwnCollector::new().read().map_or(0, |own| own.resident_bytes)
}

/// A day of so many jobs, second by second, with the hour's ring. Jobs run for a minute to an hour.
fn day(folder: &Path, n_jobs: usize) -> anyhow::Result<Value> {
    let mut fake = FakeNode::create(folder, 64);
    let mut node = Node::new(settings(&fake)?);
    let shared = Shared::new(&node, Keep { time: Millis::HOUR, bytes: usize::MAX }, false);
    let every = 86_400 / n_jobs;
    let mut running: Vec<(u64, usize)> = Vec::new();
    let mut hours = Vec::new();
    let mut n_started = 0u64;
    for second in 0..86_400 {
        if second % every == 0 {
            n_started += 1;
            let cpu = fake.random() % 64;
            fake.start_job(n_started, &cpu.to_string());
            let length = 60 + fake.random() as usize % 3_540;
            running.push((n_started, second + length));
        }
        running.retain(|(job, end)| {
            let goes_on = *end > second;
            if !goes_on {
                fake.end_job(*job);
            }
            goes_on
        });
        fake.tick();
        shared.publish(node.sample(Timestamp::from_seconds(START + second as i64)), 0);
        if second % 3_600 == 3_599 {
            let mut page = Page::new(Format::Text, 0);
            shared.latest().into_iter().for_each(|sample| sample.expose(&mut page));
            let n_series = page.finish().lines().filter(|line| !line.starts_with('#')).count();
            let n_shown = shared.latest().map_or(0, |sample| sample.jobs.len());
            hours.push(json!({ "hour": second / 3_600 + 1, "resident_bytes": resident_bytes(),
                "ring_bytes": shared.ring().n_bytes(), "series": n_series, "jobs": n_shown,
                "running": running.len() }));
        }
    }
    Ok(json!({ "started": n_started, "hours": hours }))
}
