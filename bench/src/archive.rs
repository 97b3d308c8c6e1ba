//! Measures the archive: `bench-archive ingest|generate|read|openmetrics`, each as one JSON line,
//! so that `bench/archive.py` can run them in turn with their peers.

#![allow(clippy::print_stdout, reason = "the result is what it prints")]

#[path = "../../crates/cli/src/memory.rs"]
mod memory;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use archive::{Archive, Selection, Settings, WriterSettings};
use rayon::prelude::*;
use serde_json::json;
use workload::{
    Cpu, Derivation, JobId, Measure, Millis, Mode, ModeSet, NodeName, NodeReading, Owner, Source,
    ThreadReading, Ticks, Timestamp, Trace,
};

const START: i64 = 1_767_225_600;
const WINDOW: usize = 100;

fn main() -> anyhow::Result<()> {
    memory::reuse_memory();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["ingest", folder, nodes, threads, seconds] => {
            ingest(folder, nodes.parse()?, threads.parse()?, seconds.parse()?)?
        }
        ["read", folder] => read(folder)?,
        ["openmetrics", csv, out] => openmetrics(Path::new(csv), Path::new(out))?,
        _ => bail!(
            "usage: bench-archive ingest FOLDER NODES THREADS SECONDS | read FOLDER | openmetrics CSV OUT"
        ),
    };
    println!("{result}");
    Ok(())
}

fn open(folder: &str) -> anyhow::Result<Archive> {
    Ok(Archive::open_or_create(folder, &Settings::default())?)
}

/// Numbers that look like those of a cluster: a third of the threads idle, a third busy, the rest
/// in between, with a little noise. From a fixed seed.
struct Cluster {
    readings: Vec<NodeReading>,
    state: u64,
}

impl Cluster {
    fn new(n_nodes: usize, n_threads: u16) -> anyhow::Result<Self> {
        let owner = |cpu: u16| match cpu % 4 {
            0 => Ok(Owner::Nobody),
            quarter => JobId::new(format!("{}", 4_000 + quarter)).map(Owner::Job),
        };
        let mut readings = Vec::new();
        for node in 0..n_nodes {
            let thread = |cpu| {
                Ok::<_, anyhow::Error>(ThreadReading {
                    cpu: Cpu(cpu),
                    ticks: Ticks::default(),
                    owner: owner(cpu)?,
                })
            };
            readings.push(NodeReading {
                node: NodeName::new(format!("n{node:04}"))?,
                time: Timestamp(0),
                threads: (0..n_threads).map(thread).collect::<Result<_, _>>()?,
                jobs: Vec::new(),
            });
        }
        Ok(Self { readings, state: 0x9e37_79b9_7f4a_7c15 })
    }

    fn tick(&mut self, second: i64) {
        for reading in &mut self.readings {
            reading.time = Timestamp::from_seconds(START + second);
            for thread in &mut reading.threads {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                let noise = self.state >> 60;
                let user = match thread.cpu.0 % 3 {
                    0 => noise / 15,
                    1 => 100 - noise / 4,
                    _ => noise * 6,
                };
                let system = (noise / 5).min(100 - user);
                let iowait = if noise == 7 { (100 - user - system) / 2 } else { 0 };
                thread.ticks[Mode::User] += user;
                thread.ticks[Mode::System] += system;
                thread.ticks[Mode::Iowait] += iowait;
                thread.ticks[Mode::Idle] += 100 - user - system - iowait;
                thread.ticks[Mode::Softirq] += u64::from(noise == 3);
            }
        }
    }
}

fn ingest(folder: &str, n_nodes: usize, n_threads: u16, seconds: i64) -> anyhow::Result<serde_json::Value> {
    let source = Source {
        origin: "bench".into(),
        measure: Measure::Counter,
        ticks_per_second: 100,
        modes: ModeSet::ALL,
        period: Millis::SECOND,
    };
    let mut cluster = Cluster::new(n_nodes, n_threads)?;
    let mut writer = open(folder)?.writer(source, WriterSettings::default())?;
    let begun = Instant::now();
    for second in 0..seconds {
        cluster.tick(second);
        writer.append(&cluster.readings)?;
    }
    let acknowledged = begun.elapsed().as_secs_f64();
    writer.close()?;
    let elapsed = begun.elapsed().as_secs_f64();
    let n_samples = n_nodes as f64 * f64::from(n_threads) * seconds as f64;
    Ok(json!({
        "samples": n_samples, "seconds": elapsed, "samples_per_second": n_samples / elapsed,
        "acknowledged_per_second": n_samples / acknowledged, "peak_rss_mb": peak_rss_mb()?,
    }))
}

fn windows_of(trace: &Trace) -> Vec<f32> {
    let mut flat = Vec::with_capacity(trace.len() * 4);
    for window in trace.windows(WINDOW, WINDOW) {
        window.rates().iter().for_each(|rates| flat.extend_from_slice(rates.as_array()));
    }
    flat
}

/// Reads everything into windows of 100 steps, one flat buffer of f32 a thread.
fn read(folder: &str) -> anyhow::Result<serde_json::Value> {
    let begun = Instant::now();
    let archive = open(folder)?;
    let snapshot = archive.snapshot(Selection::default())?;
    let (mut n_windows, mut checksum) = (0, 0.0);
    for node in snapshot.nodes() {
        let traces = snapshot.traces(&node, &Derivation::default())?;
        let windows: Vec<Vec<f32>> = traces.par_iter().map(windows_of).collect();
        n_windows += windows.iter().map(|windows| windows.len() / (WINDOW * 4)).sum::<usize>();
        checksum +=
            windows.iter().filter_map(|windows| windows.last()).map(|rate| f64::from(*rate)).sum::<f64>();
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(
        json!({ "seconds": seconds, "windows": n_windows, "checksum": checksum, "peak_rss_mb": peak_rss_mb()? }),
    )
}

/// The percentages of an Exathlon file as counters of seconds, as Prometheus would have scraped them.
fn openmetrics(csv: &Path, out: &Path) -> anyhow::Result<serde_json::Value> {
    let bytes = zstd::Decoder::new(std::fs::File::open(csv).with_context(|| csv.display().to_string())?)?;
    let mut reader = csv::Reader::from_reader(bytes);
    let header: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let mut times: Vec<i64> = Vec::new();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); header.len()];
    for record in reader.records() {
        let record = record?;
        let time: i64 = record[0].parse()?;
        if times.last().is_some_and(|last| *last >= time) {
            continue;
        }
        times.push(time);
        for (column, cell) in columns.iter_mut().zip(record.iter()).skip(1) {
            column.push(cell.parse()?);
        }
    }
    let mut sink = BufWriter::new(std::fs::File::create(out)?);
    writeln!(sink, "# TYPE node_cpu_seconds counter")?;
    let mut n_samples = 0;
    for (name, column) in header.iter().zip(&columns).skip(1) {
        let parts: Vec<&str> = name.trim_end_matches('%').split('_').collect();
        let [node, cpu, mode] = parts[..] else { bail!("{name} is no column of Exathlon") };
        let labels =
            format!("instance=\"{node}:9100\",cpu=\"{}\",mode=\"{mode}\"", cpu.trim_start_matches("CPU"));
        let mut thousandths = 0;
        for (time, percent) in times.iter().zip(column).filter(|(_, percent)| **percent >= 0.0) {
            thousandths += (percent * 10.0).round() as u64;
            let seconds = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
            writeln!(sink, "node_cpu_seconds_total{{{labels}}} {seconds} {time}")?;
            n_samples += 1;
        }
    }
    writeln!(sink, "# EOF")?;
    sink.flush()?;
    Ok(json!({ "samples": n_samples }))
}

fn peak_rss_mb() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("no VmHWM")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kilobytes / 1e3)
}
