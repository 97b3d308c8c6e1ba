//! `tracewise detect watch`

use std::collections::BTreeMap;
use std::process::ExitCode;

use detect::explain::explain;
use detect::{Trained, latest_moment};
use report::text::show_duration;
use serde_json::json;
use workload::{JobId, NodeName, Timestamp};

use super::open;
use crate::args::WatchArgs;
use crate::commands::stop_on_ctrl_c;
use crate::config::Config;
use crate::output::{eprint_note, print};
use crate::times::show_time;

/// A job that is strange now.
struct Alarm {
    n_threads: usize,
    /// Of its strangest thread.
    score: f64,
    words: String,
}

pub fn run(args: &WatchArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let trained = Trained::read(&args.model)?;
    let archive = open(args.data.as_deref(), config)?;
    trained.check_period(&archive)?;
    let cut = trained.config.cut(trained.period, 1);
    let threshold = trained.thresholds.for_all.score;
    let stop = stop_on_ctrl_c(args.duration)?;
    let mut last: Option<Timestamp> = None;
    let mut has_waited = false;
    loop {
        if let Some(moment) = latest_moment(&archive, &cut)?
            && last.replace(moment.start) != Some(moment.start)
        {
            let mut alarms: BTreeMap<(JobId, NodeName), Alarm> = BTreeMap::new();
            for (thread, finding) in moment.threads.iter().zip(trained.examine(&moment)) {
                if finding.score < threshold {
                    continue;
                }
                let key = (thread.job.clone(), thread.node.clone());
                let alarm =
                    alarms.entry(key).or_insert(Alarm { n_threads: 0, score: 0.0, words: String::new() });
                alarm.n_threads += 1;
                if finding.score > alarm.score {
                    let why = explain(
                        &thread.values,
                        &finding.expected,
                        &trained.channels(),
                        moment.start,
                        trained.period,
                    );
                    (alarm.score, alarm.words) = (finding.score, why.words);
                }
            }
            tell(args.json, moment.start + cut.length(), moment.threads.len(), threshold, &alarms)?;
        } else if !has_waited && last.is_none() {
            let length = show_duration(cut.length().as_seconds());
            eprint_note(&format!("nothing to judge yet: a job is judged when it has run for {length}"));
            has_waited = true;
        }
        if stop.wait(args.every) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn tell(
    as_json: bool,
    time: Timestamp,
    n_windows: usize,
    threshold: f64,
    alarms: &BTreeMap<(JobId, NodeName), Alarm>,
) -> anyhow::Result<()> {
    if as_json {
        let alarms: Vec<_> = alarms
            .iter()
            .map(|((job, node), alarm)| {
                json!({ "job": job, "node": node, "threads": alarm.n_threads, "score": alarm.score, "words": alarm.words })
            })
            .collect();
        let line = json!({ "time": time, "windows": n_windows, "threshold": threshold, "alarms": alarms });
        return print(&line.to_string());
    }
    let verdict = match alarms.len() {
        0 => "all as usual".to_owned(),
        1 => "one job is strange".to_owned(),
        count => format!("{count} jobs are strange"),
    };
    print(&format!("{}  {n_windows} threads at work, {verdict}", show_time(time)))?;
    for ((job, node), alarm) in alarms {
        let times = alarm.score / threshold;
        print(&format!(
            "  job {job} on {node}, {} threads, {times:.1} × the threshold: {}",
            alarm.n_threads, alarm.words
        ))?;
    }
    Ok(())
}
