//! DAGMan's log, `*.dagman.out`.
//!
//! A line is `MM/DD/YY HH:MM:SS Event: ULOG_EXECUTE for HTCondor Node X (2.0.0) {MM/DD/YY HH:MM:SS}`. The time in
//! braces is that of the event, the first one that of the log line. Neither has a time zone: both are read as UTC.

use chrono::NaiveDateTime;

use super::events::{EventKind, TaskEvent};
use super::run_builder::RunBuilder;
use super::values;

pub fn is_line(line: &str) -> bool {
    parse_time(line).is_some()
}

fn parse_time(text: &str) -> Option<f64> {
    let text = text.get(..17)?;
    let parsed = NaiveDateTime::parse_from_str(text, "%m/%d/%y %H:%M:%S").ok()?;
    values::time(parsed.and_utc().timestamp() as f64)
}

/// Applies one line. Lines that are not about tasks are skipped.
pub fn apply(line: &str, builder: &mut RunBuilder) -> Result<(), String> {
    let Some(logged_at) = parse_time(line) else { return Ok(()) };
    let Some(rest) = line.get(18..) else { return Ok(()) };
    if rest.contains("(CONDOR_DAGMAN) STARTING UP") {
        builder.start(logged_at);
    }
    if rest.contains("EXITING WITH STATUS") {
        builder.finish();
    }
    for (prefix, kind) in [
        ("Running PRE script of Node ", EventKind::PreScriptStarted),
        ("Running POST script of Node ", EventKind::PostScriptStarted),
    ] {
        if let Some(task) = rest.trim_start().strip_prefix(prefix) {
            let task = task.trim_end_matches('.').to_owned();
            builder.apply(TaskEvent { at: logged_at, task, attempt: None, kind });
            return Ok(());
        }
    }
    // `POST Script of node X completed successfully.`, `PRE Script of Job X failed with status 2`
    if let Some((is_pre_script, rest)) = script(rest)
        && let Some((task, outcome)) = rest.split_once(' ')
    {
        let status =
            outcome.rsplit_once("status ").and_then(|(_, code)| code.trim_end_matches('.').parse().ok());
        let code = if outcome.contains("success") { 0 } else { status.unwrap_or(1) };
        let kind = match (is_pre_script, code) {
            (true, 0) => EventKind::PreScriptEnded,
            (true, code) => EventKind::PreScriptFailed(code),
            (false, code) => EventKind::PostScriptExit(code),
        };
        builder.apply(TaskEvent { at: logged_at, task: task.to_owned(), attempt: None, kind });
        return Ok(());
    }
    let Some(event) = rest.strip_prefix("Event: ULOG_") else { return Ok(()) };
    let (name, rest) = event.split_once(" for ").ok_or("the event is cut off")?;
    let rest = rest.split_once("Node ").ok_or("the event has no node")?.1;
    let (task, rest) = rest.split_once(' ').ok_or("the event is cut off")?;
    let at = rest.split_once('{').and_then(|(_, time)| parse_time(time)).unwrap_or(logged_at);
    let kind = match name {
        "SUBMIT" => EventKind::Submitted,
        "EXECUTE" => EventKind::Executing(None),
        "JOB_TERMINATED" => EventKind::Terminated(None),
        "JOB_EVICTED" | "SHADOW_EXCEPTION" => EventKind::Evicted,
        "JOB_HELD" => EventKind::Held,
        "JOB_RELEASED" => EventKind::Released,
        "JOB_ABORTED" => EventKind::Aborted,
        "POST_SCRIPT_TERMINATED" => EventKind::PostScriptEnded,
        _ => return Ok(()),
    };
    builder.apply(TaskEvent { at, task: task.to_owned(), attempt: None, kind });
    Ok(())
}

/// Whether a line is about a pre-script, and what follows the word `node` or `Job`.
fn script(line: &str) -> Option<(bool, &str)> {
    for (start, is_pre_script) in [("pre script of ", true), ("post script of ", false)] {
        let head = line.get(..start.len()).unwrap_or_default();
        if head.eq_ignore_ascii_case(start) {
            let rest = &line[start.len()..];
            return rest.split_once(' ').map(|(_, rest)| (is_pre_script, rest));
        }
    }
    None
}
