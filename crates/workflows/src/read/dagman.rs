//! DAGMan's own log, `*.dagman.out`, and its graphs, `*.dag`.
//! `MM/DD/YY HH:MM:SS Event: ULOG_EXECUTE for HTCondor Node X (2.0.0) {MM/DD/YY HH:MM:SS}`: the time in braces is
//! that of the event, the first that of the writing. Neither has a zone: they are read as universal time.

use chrono::NaiveDateTime;

use super::events::{Assembly, Happening, What};

pub fn is_line(line: &str) -> bool {
    moment(line).is_some()
}

fn moment(text: &str) -> Option<f64> {
    let text = text.get(..17)?;
    let parsed = NaiveDateTime::parse_from_str(text, "%m/%d/%y %H:%M:%S").ok()?;
    Some(parsed.and_utc().timestamp() as f64)
}

pub fn take(line: &str, into: &mut Assembly) -> Result<(), String> {
    let Some(written) = moment(line) else { return Ok(()) };
    let Some(rest) = line.get(18..) else { return Ok(()) };
    if rest.contains("(CONDOR_DAGMAN) STARTING UP") {
        into.begin(written);
    }
    if rest.contains("EXITING WITH STATUS") {
        into.finish();
    }
    for (prefix, what) in [
        ("Running PRE script of Node ", What::PreScriptStarted),
        ("Running POST script of Node ", What::PostScriptStarted),
    ] {
        if let Some(task) = rest.trim_start().strip_prefix(prefix) {
            into.take(Happening {
                at: written,
                task: task.trim_end_matches('.').to_owned(),
                attempt: None,
                what,
            });
            return Ok(());
        }
    }
    // `POST Script of node X completed successfully.`, `PRE Script of Job X failed with status 2`
    if let Some((is_before, rest)) = script(rest)
        && let Some((task, verdict)) = rest.split_once(' ')
    {
        let status =
            verdict.rsplit_once("status ").and_then(|(_, code)| code.trim_end_matches('.').parse().ok());
        let code = if verdict.contains("success") { 0 } else { status.unwrap_or(1) };
        let what = match (is_before, code) {
            (true, 0) => What::PreScriptEnded,
            (true, code) => What::PreScriptFailed(code),
            (false, code) => What::Judged(code),
        };
        into.take(Happening { at: written, task: task.to_owned(), attempt: None, what });
        return Ok(());
    }
    let Some(event) = rest.strip_prefix("Event: ULOG_") else { return Ok(()) };
    let (name, rest) = event.split_once(" for ").ok_or("an event is cut off")?;
    let rest = rest.split_once("Node ").ok_or("an event names no node")?.1;
    let (task, rest) = rest.split_once(' ').ok_or("an event is cut off")?;
    let at = rest.split_once('{').and_then(|(_, time)| moment(time)).unwrap_or(written);
    let what = match name {
        "SUBMIT" => What::Submitted,
        "EXECUTE" => What::Executing(None),
        "JOB_TERMINATED" => What::Terminated(None),
        "JOB_EVICTED" | "SHADOW_EXCEPTION" => What::Evicted,
        "JOB_HELD" => What::Held,
        "JOB_RELEASED" => What::Released,
        "JOB_ABORTED" => What::Aborted,
        "POST_SCRIPT_TERMINATED" => What::PostScriptEnded,
        _ => return Ok(()),
    };
    into.take(Happening { at, task: task.to_owned(), attempt: None, what });
    Ok(())
}

/// Whether a line is of a pre-script, and what follows the word that names its task.
fn script(line: &str) -> Option<(bool, &str)> {
    let lower = line.get(..24)?.to_ascii_lowercase();
    for (start, is_before) in [("pre script of ", true), ("post script of ", false)] {
        if lower.starts_with(start) {
            let rest = &line[start.len()..];
            return rest.split_once(' ').map(|(_, rest)| (is_before, rest));
        }
    }
    None
}

/// The edges of a `.dag`: `PARENT a b CHILD c d`.
pub fn edges(text: &str) -> Vec<(String, String)> {
    let mut edges = Vec::new();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_parent = words.first().is_some_and(|word| word.eq_ignore_ascii_case("PARENT"));
        let Some(middle) = words.iter().position(|word| word.eq_ignore_ascii_case("CHILD")) else { continue };
        if !is_parent {
            continue;
        }
        for parent in &words[1..middle] {
            edges.extend(words[middle + 1..].iter().map(|child| ((*parent).to_owned(), (*child).to_owned())));
        }
    }
    edges
}
