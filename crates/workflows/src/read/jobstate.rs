//! `jobstate.log`, which the monitor of Pegasus writes while a workflow runs.
//!
//! A line is `<epoch> <job> <EVENT> <batch job | exit code | -> <site> <wall time | -> <sequence>`.

use super::events::{EventKind, TaskEvent};
use super::run_builder::RunBuilder;
use super::values;

pub fn is_line(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let has_time = words.next().is_some_and(|word| word.parse::<u64>().is_ok());
    has_time && (line.contains(" INTERNAL *** ") || words.count() >= 4)
}

/// Applies one line, or returns why it cannot be one.
pub fn apply(line: &str, builder: &mut RunBuilder) -> Result<(), String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let at = values::parse_time(words.first().copied().unwrap_or_default())?;
    if words.get(1) == Some(&"INTERNAL") {
        match words.get(3) {
            Some(&"MONITORD_STARTED") => builder.watch(),
            Some(&"DAGMAN_STARTED") => builder.start(at),
            Some(&"DAGMAN_FINISHED") => builder.finish(),
            _ => {}
        }
        return Ok(());
    }
    let [task, event, detail] = [1, 2, 3].map(|index| words.get(index).copied());
    let (Some(task), Some(event), Some(detail)) = (task, event, detail) else {
        return Err("it is cut off".into());
    };
    let attempt = words.get(6).filter(|number| **number != "-").map(|number| (*number).to_owned());
    // Some lines have the status that `wait` returned: the exit code is its second byte.
    let code = || detail.parse().map_or(0, |code: i32| if code > 255 { code >> 8 } else { code });
    if let Some(kind) = event_kind(event, code) {
        builder.apply(TaskEvent { at, task: task.to_owned(), attempt, kind });
    }
    Ok(())
}

/// What a state of Pegasus means for a task; `None` if it has no effect on delays, such as image sizes, reasons of a
/// hold and grid events.
pub fn event_kind(state: &str, code: impl Fn() -> i32) -> Option<EventKind> {
    Some(match state {
        "PRE_SCRIPT_STARTED" => EventKind::PreScriptStarted,
        "PRE_SCRIPT_TERMINATED" => EventKind::PreScriptEnded,
        "PRE_SCRIPT_FAILURE" | "PRE_SCRIPT_FAILED" => EventKind::PreScriptFailed(code()),
        "SUBMIT" => EventKind::Submitted,
        "EXECUTE" => EventKind::Executing(None),
        "JOB_TERMINATED" => EventKind::Terminated(None),
        "JOB_SUCCESS" | "JOB_FAILURE" => EventKind::Exited(code()),
        "POST_SCRIPT_STARTED" => EventKind::PostScriptStarted,
        "POST_SCRIPT_TERMINATED" => EventKind::PostScriptEnded,
        "POST_SCRIPT_SUCCESS" | "POST_SCRIPT_FAILURE" => EventKind::PostScriptExit(code()),
        "JOB_HELD" => EventKind::Held,
        "JOB_RELEASED" => EventKind::Released,
        "JOB_EVICTED" | "SHADOW_EXCEPTION" => EventKind::Evicted,
        "JOB_ABORTED" => EventKind::Aborted,
        _ => return None,
    })
}
