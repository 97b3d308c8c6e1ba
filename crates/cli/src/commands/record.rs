//! `tracewise record`

use std::collections::BTreeMap;
use std::process::ExitCode;

use agent::node::{Collector, Node, NodeSettings};
use agent::sampler::Sampler;
use anyhow::bail;
use archive::WriterSettings;
use serde_json::json;
use workload::derive::Scale;
use workload::{Cpu, Derivation, Deriver, Millis, NodeName, NodeReading, Rates, ThreadId, Trace};

use crate::args::RecordArgs;
use crate::commands::{node_name, open_or_create};
use crate::config::Config;
use crate::live_view::LiveView;
use crate::output::{eprint_note, print, print_json_line};
use crate::signals::stop_on_signals;

/// Characters of a bar.
const BAR: usize = 40;
/// Threads that a terminal has lines for.
const MOST_THREADS: usize = 32;

pub fn run(args: &RecordArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let address = args.into.as_deref().unwrap_or(&config.archive.address);
    let interval = args.interval.unwrap_or(config.record.interval.value);
    let period = Millis::from(interval);
    if period.0 < 10 {
        bail!("the interval {interval:?} is shorter than a clock tick of the kernel; use at least 10ms");
    }
    let name = node_name(args.node.as_ref())?;
    let (procfs, cgroupfs) = (args.roots.procfs.clone(), args.roots.cgroupfs.clone());
    let mut node = Node::new(NodeSettings::for_recording(name.clone(), procfs, cgroupfs, interval));
    let source = node.source();
    let archive = open_or_create(address, config)?;
    let segment_length = config.record.segment.value;
    let settings = WriterSettings { segment_length, ..WriterSettings::default() };
    let mut writer = archive.writer(source.clone(), settings)?;

    let stop = stop_on_signals(args.duration)?;
    eprint_note(&format!("recording {name} into {address} every {interval:?}; Ctrl-C ends"));

    let mut sampler = Sampler::new(interval);
    let mut view = View::new(name.clone(), period, Scale::from(&source), args.json);
    let (mut n_refused, mut has_warned) = (0u64, false);
    while let Some(time) = sampler.wait(&stop) {
        let sample = node.sample(time);
        if let Some(error) = sample.error_of(Collector::Cpu) {
            bail!("{error}");
        }
        // Recording continues with unknown owners.
        if let (Some(error), false) = (sample.error_of(Collector::Cgroup), has_warned) {
            eprint_note(&format!("warning: {error}"));
            has_warned = true;
        }
        let reading = sample.reading(&name);
        match writer.append(std::slice::from_ref(&reading)) {
            Ok(()) => view.show(&reading),
            // There may be room again later: recording continues, and lost readings are counted.
            Err(error @ archive::Error::NoSpace { .. }) => {
                n_refused += 1;
                if n_refused.is_power_of_two() {
                    eprint_note(&lost_warning(&error, n_refused));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    writer.close()?;
    view.end(sampler.missed(), n_refused);
    Ok(ExitCode::SUCCESS)
}

/// What is printed while recording.
struct View {
    json: bool,
    live: LiveView,
    derivers: BTreeMap<Cpu, Deriver>,
    node: NodeName,
    period: Millis,
    scale: Scale,
    n_kept: u64,
    /// Whether somebody still reads what is printed.
    is_watched: bool,
}

impl View {
    fn new(node: NodeName, period: Millis, scale: Scale, json: bool) -> Self {
        let live = LiveView::new();
        Self { json, live, derivers: BTreeMap::new(), node, period, scale, n_kept: 0, is_watched: true }
    }

    /// Prints a reading. If stdout is closed, recording continues without output.
    fn show(&mut self, reading: &NodeReading) {
        self.n_kept += 1;
        if self.is_watched {
            self.is_watched = self.try_to_show(reading).is_ok();
        }
    }

    fn try_to_show(&mut self, reading: &NodeReading) -> anyhow::Result<()> {
        let rates = self.rates(reading);
        if self.json {
            let threads: Vec<_> = rates
                .iter()
                .map(|(cpu, rates)| json!({ "cpu": cpu, "rates": rates.map(|rates| *rates.as_array()) }))
                .collect();
            return print_json_line(&json!({ "time": reading.time, "node": self.node, "threads": threads }));
        }
        let known: Vec<Rates> = rates.iter().filter_map(|(_, rates)| *rates).collect();
        if known.is_empty() {
            return Ok(());
        }
        let mean = |rate: fn(Rates) -> f32| known.iter().copied().map(rate).sum::<f32>() / known.len() as f32;
        let summary = format!(
            "{}  {} threads  user {:5.1} %  system {:5.1} %  iowait {:5.1} %",
            crate::times::show_time(reading.time),
            known.len(),
            mean(Rates::user) * 100.0,
            mean(Rates::system) * 100.0,
            mean(Rates::iowait) * 100.0,
        );
        if !self.live.is_drawn() {
            return if self.n_kept % 10 == 2 { print(&summary) } else { Ok(()) };
        }
        let thread = |(cpu, rates): &(u16, Option<Rates>)| {
            format!("cpu{cpu:<4} {}", rates.map_or_else(String::new, bar))
        };
        let lines: Vec<String> =
            std::iter::once(summary).chain(rates.iter().take(MOST_THREADS).map(thread)).collect();
        self.live.draw(&lines);
        Ok(())
    }

    /// The rates of this reading, derived as for an archive.
    fn rates(&mut self, reading: &NodeReading) -> Vec<(u16, Option<Rates>)> {
        let derivation = Derivation { period: self.period, ..Derivation::default() };
        let mut found = Vec::with_capacity(reading.threads.len());
        for thread in &reading.threads {
            let id = ThreadId { node: self.node.clone(), cpu: thread.cpu };
            let mut step = Trace::new(id, reading.time, self.period, 1);
            let deriver = self.derivers.entry(thread.cpu).or_insert_with(|| Deriver::new(&derivation));
            let owner = step.owner_number(&thread.owner);
            deriver.push(&mut step, reading.time, &thread.ticks, owner, self.scale);
            found.push((thread.cpu.0, step.rates(0)));
        }
        found
    }

    fn end(&self, n_missed: u64, n_refused: u64) {
        eprint_note(&format!(
            "{} readings kept, {n_refused} lost because they could not be written, {n_missed} ticks missed",
            self.n_kept
        ));
    }
}

fn lost_warning(error: &archive::Error, n_lost: u64) -> String {
    format!("warning: {error}; {n_lost} readings were lost so far")
}

fn bar(rates: Rates) -> String {
    let cells = |rate: f32| (rate * BAR as f32).round() as usize;
    let (user, system, iowait) = (cells(rates.user()), cells(rates.system()), cells(rates.iowait()));
    let rest = BAR.saturating_sub(user + system + iowait);
    format!("{}{}{}{}", "█".repeat(user), "▒".repeat(system), "░".repeat(iowait), "·".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_reported_with_what_was_lost() {
        let error = archive::Error::NoSpace { path: "traces/.spool".into() };
        let warning = lost_warning(&error, 4);
        assert!(warning.ends_with("; 4 readings were lost so far"), "{warning}");
        assert!(!warning.contains("nothing"), "{warning}");
    }
}
