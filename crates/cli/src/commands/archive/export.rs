//! `tracewise archive export`

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use archive::Snapshot;
use files::AtomicFile;
use report::text::show_count;
use serde_json::json;
use workload::{Coverage, Derivation, JobReading, NodeName, Timestamp, Trace};

use crate::args::{ExportArgs, ExportFormat, ExportTable};
use crate::config::Config;
use crate::output::{eprint_note, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &ExportArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let to_stdout = args.out == Path::new("-");
    if args.json && to_stdout {
        bail!("--json and --out - both want stdout");
    }
    let stop = stop_on_signals(None)?;
    let snapshot = args.data.open(config)?.with_stop(&stop).snapshot(args.which.selection())?;
    let progress = Progress::new("exporting");
    let n_rows = if to_stdout {
        let mut sink = BufWriter::new(std::io::stdout().lock());
        let n_rows = export(&snapshot, args, &progress, &mut sink)?;
        sink.flush()?;
        n_rows
    } else if args.out.exists() && !args.out.is_file() {
        // A device or a pipe is written to, not replaced.
        let out = std::fs::File::options().write(true).open(&args.out);
        let mut sink = BufWriter::new(out.with_context(|| args.out.display().to_string())?);
        let n_rows = export(&snapshot, args, &progress, &mut sink)?;
        sink.flush()?;
        n_rows
    } else {
        let mut file = AtomicFile::create(&args.out)?;
        let n_rows = export(&snapshot, args, &progress, &mut file)?;
        file.commit()?;
        n_rows
    };
    drop(progress);
    if n_rows == 0 {
        eprint_note("warning: no reading matches; `tracewise archive list` shows what there is");
    }
    if args.json {
        print_json(&json!({ "out": args.out, "rows": n_rows }))?;
    } else {
        eprint_note(&format!("{} rows in {}", show_count(n_rows), args.out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn export(
    snapshot: &Snapshot,
    args: &ExportArgs,
    progress: &Progress,
    sink: &mut impl Write,
) -> anyhow::Result<u64> {
    let nodes = snapshot.nodes();
    let mut n_rows = 0;
    if let ExportFormat::Csv = args.format {
        match args.table {
            ExportTable::Cpu => writeln!(sink, "time,node,cpu,job,user,system,iowait,other")?,
            ExportTable::Cgroup => {
                writeln!(sink, "time,node,job,{}", JobReading::COUNTS.join(","))?;
            }
        }
    }
    for (done, node) in nodes.iter().enumerate() {
        progress.update(done as u64, nodes.len() as u64);
        n_rows += match args.table {
            ExportTable::Cpu => export_threads(snapshot, node, args, sink)?,
            ExportTable::Cgroup => export_jobs(snapshot, node, args.format, sink)?,
        };
    }
    progress.update(nodes.len() as u64, nodes.len() as u64);
    Ok(n_rows)
}

fn export_threads(
    snapshot: &Snapshot,
    node: &NodeName,
    args: &ExportArgs,
    sink: &mut impl Write,
) -> anyhow::Result<u64> {
    let derivation = Derivation { period: snapshot.period(node), ..Derivation::default() };
    let mut n_rows = 0;
    for traces in snapshot.traces_by_hour(node, &derivation)? {
        let traces = traces?;
        let n_steps = traces.iter().map(Trace::len).max().unwrap_or(0);
        for step in 0..n_steps {
            for trace in traces.iter().filter(|trace| trace.coverage(step) == Coverage::Read) {
                let job = trace.owner(step).job();
                if args.which.job.as_ref().is_some_and(|wanted| job != Some(wanted)) {
                    continue;
                }
                write_thread(trace, step, args.format, sink)?;
                n_rows += 1;
            }
        }
    }
    Ok(n_rows)
}

fn write_thread(
    trace: &Trace,
    step: usize,
    format: ExportFormat,
    sink: &mut impl Write,
) -> anyhow::Result<()> {
    let Some(rates) = trace.rates(step) else { return Ok(()) };
    let (time, thread) = (trace.time(step).as_epoch_seconds(), trace.thread());
    let job = trace.owner(step).job();
    let [user, system, iowait, other] = rates.as_array();
    match format {
        ExportFormat::Csv => {
            let job = job.map_or("", |job| job.as_str());
            let (node, job) = (cell(thread.node.as_str()), cell(job));
            writeln!(sink, "{time},{node},{},{job},{user},{system},{iowait},{other}", thread.cpu)?;
        }
        ExportFormat::Jsonl => {
            let line = json!({
                "time": trace.time(step), "node": thread.node, "cpu": thread.cpu, "job": job,
                "owner": trace.owner(step).state(), "user": user, "system": system, "iowait": iowait, "other": other,
            });
            writeln!(sink, "{line}")?;
        }
    }
    Ok(())
}

fn export_jobs(
    snapshot: &Snapshot,
    node: &NodeName,
    format: ExportFormat,
    sink: &mut impl Write,
) -> anyhow::Result<u64> {
    let readings: Vec<(Timestamp, JobReading)> = snapshot.job_readings(node)?;
    for (time, reading) in &readings {
        match format {
            ExportFormat::Csv => {
                let counts = reading.counts().map(|count| count.map(|count| count.to_string()));
                let counts = counts.map(Option::unwrap_or_default);
                let (node, job) = (cell(node.as_str()), cell(reading.job.as_str()));
                writeln!(sink, "{},{node},{job},{}", time.as_epoch_seconds(), counts.join(","))?;
            }
            ExportFormat::Jsonl => {
                let mut line = json!({ "time": time, "node": node, "job": reading.job });
                for (name, count) in JobReading::COUNTS.iter().zip(reading.counts()) {
                    line[*name] = json!(count);
                }
                writeln!(sink, "{line}")?;
            }
        }
    }
    Ok(readings.len() as u64)
}

/// A name as a CSV cell: guarded against spreadsheets, and quoted if it has to be.
fn cell(name: &str) -> Cow<'_, str> {
    let name = files::guarded(name);
    if name.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", name.replace('"', "\"\"")).into()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_cell_and_is_no_formula() {
        let shown = ["n1", "a,b", "say \"x\"", "=1+1", "=A1,B1"].map(|name| cell(name).into_owned());
        assert_eq!(shown, ["n1", "\"a,b\"", "\"say \"\"x\"\"\"", "'=1+1", "\"'=A1,B1\""]);
    }
}
