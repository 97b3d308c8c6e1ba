//! HTCondor's user log and event log. An event is a line `NNN (cluster.proc.subproc) <time> <text>`, further lines,
//! and a line of three dots.

use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, Utc};

use super::events::{EventKind, TaskEvent};
use super::run_builder::RunBuilder;
use super::values;

pub const END: &str = "...";

pub fn is_line(line: &str) -> bool {
    header(line).is_some()
}

struct Header<'a> {
    code: u32,
    job: (&'a str, &'a str),
    at: f64,
    rest: &'a str,
}

fn header(line: &str) -> Option<Header<'_>> {
    let (code, rest) = line.split_once(" (")?;
    let code = (code.len() == 3).then(|| code.parse().ok())??;
    let (job, rest) = rest.split_once(") ")?;
    let mut numbers = job.split('.');
    let (cluster, proc) = (numbers.next()?, numbers.next()?);
    let (at, length) = parse_time(rest)?;
    let at = values::time(at)?;
    Some(Header { code, job: (cluster, proc), at, rest: rest.get(length..)?.trim_start() })
}

/// The time and its length in bytes: `2023-03-03 22:24:19[.123][+00:00|Z]`, `2023-03-03T22:24:19`, or the old
/// `03/03 22:24:19`, which has no year: the latest year that does not lie in the future is taken.
fn parse_time(text: &str) -> Option<(f64, usize)> {
    if let Some(old) = text.get(..14).filter(|old| old.as_bytes()[2] == b'/') {
        let now = DateTime::<Utc>::from(std::time::SystemTime::now());
        let of =
            |year: i32| NaiveDateTime::parse_from_str(&format!("{year}/{old}"), "%Y/%m/%d %H:%M:%S").ok();
        // Leap days are up to eight years apart.
        let mut years = (now.year() - 8..=now.year()).rev().filter_map(of);
        // The local clock may be ahead of UTC.
        let parsed = years.find(|time| *time <= now.naive_utc() + TimeDelta::days(1))?;
        return Some((parsed.and_utc().timestamp() as f64, 14));
    }
    let plain = text.get(..19)?.replace('T', " ");
    let parsed = NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S").ok()?;
    let mut at = parsed.and_utc().timestamp() as f64;
    let mut length = 19;
    let fraction: String = text[length..].chars().take_while(|c| *c == '.' || c.is_ascii_digit()).collect();
    if fraction.len() > 1 {
        at += fraction.parse::<f64>().unwrap_or(0.0);
        length += fraction.len();
    }
    let zone = &text[length..];
    if zone.starts_with('Z') {
        length += 1;
    } else if let (Some(sign), Some(hours), Some(minutes)) = (
        zone.get(..1).filter(|sign| matches!(*sign, "+" | "-")),
        zone.get(1..3).and_then(|hours| hours.parse::<f64>().ok()),
        zone.get(4..6).and_then(|minutes| minutes.parse::<f64>().ok()),
    ) {
        let seconds = hours * 3_600.0 + minutes * 60.0;
        at -= if sign == "-" { -seconds } else { seconds };
        length += 6;
    }
    Some((at, length))
}

/// Applies the lines of one event, without the dots.
pub fn apply(lines: &[String], names: &mut NodeNames, builder: &mut RunBuilder) -> Result<(), String> {
    let first = lines.iter().find(|line| !line.trim().is_empty()).ok_or("the event is empty")?;
    let Header { code, job, at, rest } = header(first).ok_or("it is not an event of HTCondor")?;
    let attempt = format!("{}.{}", job.0, job.1);
    // DAGMan adds `DAG Node: <name>` to every submission.
    if let Some(node) = lines.iter().find_map(|line| line.trim().strip_prefix("DAG Node: ")) {
        // Events before the submission did not have the name.
        builder.rename(&unnamed(&attempt), &attempt, node.trim());
        names.0.insert(attempt.clone(), node.trim().to_owned());
    }
    let task = names.0.get(&attempt).cloned().unwrap_or_else(|| unnamed(&attempt));
    let value = |key: &str| lines.iter().find_map(|line| line.split_once(key)).map(|(_, rest)| rest);
    let exit = || -> Option<i32> {
        let normal = value("(return value ").and_then(|rest| rest.split(')').next()?.parse().ok());
        normal.or_else(|| {
            value("(signal ").and_then(|rest| rest.split(')').next()?.parse().ok()).map(|signal: i32| -signal)
        })
    };
    let kind = match code {
        0 => EventKind::Submitted,
        1 => EventKind::Executing(host(rest, lines)),
        4 | 7 | 24 => EventKind::Evicted,
        5 => EventKind::Terminated(exit()),
        9 => EventKind::Aborted,
        12 => EventKind::Held,
        13 => EventKind::Released,
        16 => EventKind::PostScriptExit(exit().unwrap_or(0)),
        40 => match rest {
            _ if rest.starts_with("Started transferring input") => EventKind::StageInStarted,
            _ if rest.starts_with("Finished transferring input") => EventKind::StageInEnded,
            _ if rest.starts_with("Started transferring output") => EventKind::StageOutStarted,
            _ if rest.starts_with("Finished transferring output") => EventKind::StageOutEnded,
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let remote = (code == 5).then(|| usage(lines)).flatten();
    builder.apply(TaskEvent { at, task: task.clone(), attempt: Some(attempt), kind });
    if let Some(cpu_seconds) = remote
        && let Some(attempt) = builder.newest(&task)
    {
        attempt.cpu_seconds = Some(cpu_seconds);
    }
    Ok(())
}

/// The task name of a batch job whose node is unknown.
fn unnamed(attempt: &str) -> String {
    format!("job {attempt}")
}

/// The node of each batch job.
#[derive(Debug, Clone, Default)]
pub struct NodeNames(std::collections::HashMap<String, String>);

fn host(rest: &str, lines: &[String]) -> Option<String> {
    let slot = lines.iter().find_map(|line| line.trim().strip_prefix("SlotName: "));
    let slot = slot.and_then(|slot| slot.trim().split_once('@')).map(|(_, host)| host.to_owned());
    slot.or_else(|| {
        let address = rest.split_once("host: <")?.1.split(['>', '?', ':']).next()?;
        Some(address.to_owned())
    })
}

/// `Usr 0 00:01:02, Sys 0 00:00:03  -  Run Remote Usage`
fn usage(lines: &[String]) -> Option<f64> {
    let line = lines.iter().find(|line| line.contains("Run Remote Usage"))?;
    let seconds = |name: &str| -> Option<f64> {
        let rest = line.split_once(name)?.1.trim_start();
        let (days, rest) = rest.split_once(' ')?;
        let clock: Vec<f64> = rest.get(..8)?.split(':').filter_map(|part| part.parse().ok()).collect();
        let [hours, minutes, seconds] = clock[..] else { return None };
        Some(days.parse::<f64>().ok()? * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds)
    };
    Some(seconds("Usr")? + seconds("Sys")?)
}
