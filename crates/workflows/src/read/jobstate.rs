//! Pegasus: `jobstate.log`, which its monitor writes as a workflow runs. A line is
//! `<epoch> <job> <EVENT> <batch job | exit code | -> <site> <wall time | -> <sequence>`.

use super::events::{Assembly, Happening, What};

pub fn is_line(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let is_time = words.next().is_some_and(|word| word.parse::<u64>().is_ok());
    is_time && (line.contains(" INTERNAL *** ") || words.count() >= 4)
}

/// Takes one line. What it cannot be is said.
pub fn take(line: &str, into: &mut Assembly) -> Result<(), String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let at: f64 = words.first().and_then(|word| word.parse().ok()).ok_or("it does not start with a time")?;
    if words.get(1) == Some(&"INTERNAL") {
        match words.get(3) {
            Some(&"DAGMAN_STARTED") => into.begin(at),
            Some(&"DAGMAN_FINISHED") => into.finish(),
            _ => {}
        }
        return Ok(());
    }
    let [task, event, detail] = [1, 2, 3].map(|index| words.get(index).copied());
    let (Some(task), Some(event), Some(detail)) = (task, event, detail) else {
        return Err("it is cut off".into());
    };
    // Some lines have what `wait` returned, in which the exit code is the second byte.
    let code = || detail.parse().map_or(0, |code: i32| if code > 255 { code >> 8 } else { code });
    let what = match event {
        "PRE_SCRIPT_STARTED" => What::PreScriptStarted,
        "PRE_SCRIPT_TERMINATED" => What::PreScriptEnded,
        "PRE_SCRIPT_FAILURE" | "PRE_SCRIPT_FAILED" => What::PreScriptFailed(code()),
        "SUBMIT" => What::Submitted,
        "EXECUTE" => What::Executing(None),
        "JOB_TERMINATED" => What::Terminated(None),
        "JOB_SUCCESS" | "JOB_FAILURE" => What::Exited(code()),
        "POST_SCRIPT_STARTED" => What::PostScriptStarted,
        "POST_SCRIPT_TERMINATED" => What::PostScriptEnded,
        "POST_SCRIPT_SUCCESS" | "POST_SCRIPT_FAILURE" => What::Judged(code()),
        "JOB_HELD" => What::Held,
        "JOB_RELEASED" => What::Released,
        "JOB_EVICTED" | "SHADOW_EXCEPTION" => What::Evicted,
        "JOB_ABORTED" => What::Aborted,
        // Sizes, reasons and what only grids know say nothing of time.
        _ => return Ok(()),
    };
    let attempt = words.get(6).filter(|number| **number != "-").map(|number| (*number).to_owned());
    into.take(Happening { at, task: task.to_owned(), attempt, what });
    Ok(())
}
