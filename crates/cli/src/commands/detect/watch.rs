//! `tracewise detect watch`

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::detect::{
    ArchiveFollower, BufferStatus, ClockDifference, EventChange, KnownJobs, Monitor, TrainedDetector,
};
use report::text::show_duration;
use serde_json::json;
use workload::{NodeName, Timestamp};

use super::events::{headline, library, print_event};
use super::with_hint;
use crate::args::WatchArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json_line};
use crate::signals::stop_on_signals;
use crate::times::show_time;

/// How often a line says that all is well.
const QUIET_LINE_EVERY: Duration = Duration::from_secs(60);

pub fn run(args: &WatchArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let detector = TrainedDetector::read(&args.model)?;
    let archive = args.data.open(config)?;
    detector.check_period(&archive).map_err(with_hint)?;
    let stop = stop_on_signals(None)?;
    let known = KnownJobs::new(&archive.labels()?);
    let library = library(&detector, &archive, args.reference.as_deref(), config, &stop)?;
    let mut monitor = Monitor::new(&detector, &known, library).map_err(with_hint)?;
    let stop = stop.with_deadline(args.duration);
    let (spec, confirmation) = (detector.event_spec(), detector.confirmation());
    let mut follower = ArchiveFollower::new(&archive, spec.clone(), confirmation);
    let mut notes = Notes::default();
    let mut last_line: Option<Instant> = None;
    let mut has_waited = false;
    loop {
        let batches = follower.poll()?;
        notes.update(&follower.status());
        let mut newest: Option<(Timestamp, usize)> = None;
        for batch in &batches {
            let time = batch.start() + spec.length();
            newest = newest.max(Some((time, batch.threads().len())));
            for change in monitor.observe(batch) {
                print_change(args.json, time, &change)?;
            }
        }
        if newest.is_none() && last_line.is_none() && !has_waited {
            let length = show_duration(spec.length().as_seconds());
            eprint_note(&format!("no complete window yet: a job is scored once it has run for {length}"));
            has_waited = true;
        }
        if let Some((time, n_threads)) = newest.filter(|_| !args.json)
            && last_line.is_none_or(|last| last.elapsed() >= QUIET_LINE_EVERY)
        {
            let n_open = monitor.open_events().count();
            print(&format!("{}  {n_threads} threads scored, {n_open} events open", show_time(time)))?;
            last_line = Some(Instant::now());
        }
        if stop.wait(args.every) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn print_change(as_json: bool, time: Timestamp, change: &EventChange) -> anyhow::Result<()> {
    if as_json {
        return print_json_line(&json!({ "time": time, "change": change.name(), "event": change.event() }));
    }
    match change {
        EventChange::Opened(event) => print_event(event),
        EventChange::Reopened(event) => {
            print(&format!("{}  deviates again: {}", show_time(time), headline(event)))
        }
        EventChange::Closed(event) => {
            let length = event.end.map_or(0.0, |end| (end - event.start).as_seconds());
            print(&format!("{}  over after {}: {}", show_time(time), show_duration(length), headline(event)))
        }
    }
}

/// Nodes that are late, missing or have another clock are noted once each.
#[derive(Default)]
struct Notes {
    noted: BTreeSet<NodeName>,
    counted: [u64; 3],
}

impl Notes {
    fn update(&mut self, status: &BufferStatus) {
        for ClockDifference { node, ahead_seconds } in &status.off_clock {
            if self.noted.insert(node.clone()) {
                let relation = if *ahead_seconds > 0.0 { "ahead of" } else { "behind" };
                eprint_note(&format!(
                    "warning: the readings of {node} are {} {relation} those of most nodes; it is scored by its own clock",
                    show_duration(ahead_seconds.abs())
                ));
            }
        }
        for ClockDifference { node, .. } in &status.missing {
            if self.noted.insert(node.clone()) {
                eprint_note(&format!("warning: {node} has stopped sending readings"));
            }
        }
        let counts = [status.n_out_of_order, status.n_clock_jumps, status.n_slow];
        let texts = [
            "readings came out of order and were ignored",
            "times a clock was set back",
            "readings of nodes that are read less often than the model needs were ignored",
        ];
        for ((count, before), text) in counts.iter().zip(self.counted).zip(texts) {
            if *count > 0 && before == 0 {
                eprint_note(&format!("warning: {count} {text}"));
            }
        }
        self.counted = counts;
        let is_off = |node: &NodeName| {
            status.off_clock.iter().chain(&status.missing).any(|difference| difference.node == *node)
        };
        self.noted.retain(is_off);
    }
}
