//! `tracewise detect watch`

use std::process::ExitCode;

use ::detect::{
    Alarm, ArchiveFollower, ClockDifference, KindClassifier, KnownJobs, Monitor, TrainedDetector, WindowBatch,
};
use report::text::show_duration;
use serde_json::json;
use workload::Timestamp;

use super::explain::kinds_text;
use super::{labelled_points, with_hint};
use crate::args::WatchArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json_line};
use crate::signals::stop_on_signals;
use crate::times::show_time;

pub fn run(args: &WatchArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let detector = TrainedDetector::read(&args.model)?;
    let archive = args.data.open(config)?;
    detector.check_period(&archive).map_err(with_hint)?;
    let stop = stop_on_signals(None)?;
    let known = KnownJobs::new(&archive.labels()?);
    let classifier = KindClassifier::fit(&labelled_points(&detector, &archive, &stop)?);
    let monitor = Monitor { detector: &detector, known: &known, classifier: classifier.as_ref() };
    let stop = stop.with_deadline(args.duration);
    let spec = detector.window_spec(1);
    let mut follower = ArchiveFollower::new(&archive, &spec);
    let mut reported: Vec<ClockDifference> = Vec::new();
    let (mut has_batch, mut has_waited) = (false, false);
    loop {
        let new = follower.poll()?;
        note_differences(&new.differences, &mut reported);
        for batch in &new.batches {
            has_batch = true;
            print_alarms(args.json, batch.start() + spec.length(), batch, &monitor.alarms(batch))?;
        }
        if !has_batch && !has_waited {
            let length = show_duration(spec.length().as_seconds());
            eprint_note(&format!("no complete window yet: a job is scored once it has run for {length}"));
            has_waited = true;
        }
        if stop.wait(args.every) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Notes nodes whose readings end at another time than most, once each.
fn note_differences(differences: &[ClockDifference], reported: &mut Vec<ClockDifference>) {
    for difference in differences {
        if reported.iter().any(|known| known.node == difference.node) {
            continue;
        }
        let seconds = difference.ahead_seconds;
        let relation = if seconds > 0.0 { "ahead of" } else { "behind" };
        eprint_note(&format!(
            "warning: the readings of {} are {} {relation} those of most nodes; it is scored by its own clock",
            difference.node,
            show_duration(seconds.abs())
        ));
        reported.push(difference.clone());
    }
    reported.retain(|known| differences.iter().any(|difference| difference.node == known.node));
}

fn print_alarms(as_json: bool, time: Timestamp, batch: &WindowBatch, alarms: &[Alarm]) -> anyhow::Result<()> {
    let n_windows = batch.threads().len();
    if as_json {
        return print_json_line(&json!({ "time": time, "windows": n_windows, "alarms": alarms }));
    }
    let summary = match alarms.len() {
        0 => "no alarms".to_owned(),
        1 => "1 job above its threshold".to_owned(),
        count => format!("{count} jobs above their threshold"),
    };
    print(&format!("{}  {n_windows} threads scored, {summary}", show_time(time)))?;
    for alarm in alarms {
        print(&format!(
            "  job {} on {}, {} threads, score {:.4} (threshold {:.4}): {}",
            alarm.job,
            alarm.node,
            alarm.threads.len(),
            alarm.score,
            alarm.threshold,
            alarm.explanation.text
        ))?;
        if !alarm.kinds.is_empty() {
            print(&format!("    {}", kinds_text(&alarm.kinds)))?;
        }
    }
    Ok(())
}
