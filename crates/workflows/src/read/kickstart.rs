//! What Pegasus kickstart and PegasusLite say of a single execution: `<task>.out.NNN` and `<task>.err.NNN`.

use serde::Deserialize;
use workload::workflow::{Span, TaskAttempt};

#[derive(Debug, Deserialize)]
struct Record {
    hostname: Option<String>,
    mainjob: Option<MainJob>,
}

#[derive(Debug, Deserialize)]
struct MainJob {
    usage: Option<Usage>,
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    utime: f64,
    stime: f64,
}

#[derive(Debug, Deserialize)]
struct Status {
    regular_exitcode: Option<i32>,
}

/// Adds what a kickstart record (YAML, Pegasus 5) knows.
pub fn add_record(text: &str, attempt: &mut TaskAttempt) -> Result<(), String> {
    let Some(start) = text.find("- invocation:") else { return Ok(()) };
    let records: Vec<Record> = serde_saphyr::from_str(&text[start..])
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
    let main = |record: &Record| {
        let usage = record.mainjob.as_ref()?.usage.as_ref()?;
        Some(usage.utime + usage.stime)
    };
    let cpu: Vec<f64> = records.iter().filter_map(main).collect();
    if !cpu.is_empty() {
        attempt.cpu_seconds = Some(cpu.iter().sum());
    }
    if let Some(host) = records.iter().find_map(|record| record.hostname.clone()) {
        attempt.host = Some(host);
    }
    let code = |record: &Record| record.mainjob.as_ref()?.status.as_ref()?.regular_exitcode;
    if let Some(bad) = records.iter().filter_map(code).find(|code| *code != 0) {
        attempt.exit_code = Some(bad);
    }
    Ok(())
}

/// Adds the transfers that PegasusLite made before and after the task of the user.
pub fn add_transfers(text: &str, attempt: &mut TaskAttempt) {
    let Some(execution) = attempt.execution else { return };
    let (before, after) = text.split_once("Executing the user task").unwrap_or((text, ""));
    let (came, went) = (transferred(before), transferred(after));
    if let Some((bytes, seconds)) = came {
        let end = (execution.start() + seconds).min(execution.end());
        attempt.stage_in = Span::new(execution.start(), end).ok();
        attempt.stage_in_bytes = Some(bytes);
    }
    if let Some((bytes, seconds)) = went {
        let start = (execution.end() - seconds).max(execution.start());
        attempt.stage_out = Span::new(start, execution.end()).ok();
        attempt.stage_out_bytes = Some(bytes);
    }
}

/// Bytes and seconds of `Stats: Total 2 transfers, 1.7 KB transferred in 2 seconds.`
fn transferred(text: &str) -> Option<(f64, f64)> {
    let mut total = None;
    for line in text.lines().filter_map(|line| line.split_once("Stats: Total ")).map(|(_, rest)| rest) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = words.iter().position(|word| word.starts_with("transfers")).and_then(|at| {
            let amount: f64 = words.get(at + 1)?.parse().ok()?;
            let factor = match *words.get(at + 2)? {
                "B" => 1.0,
                "KB" => 1024.0,
                "MB" => 1024.0 * 1024.0,
                "GB" => 1024.0 * 1024.0 * 1024.0,
                "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
                _ => return None,
            };
            let seconds: f64 = words.get(at + 5)?.parse().ok()?;
            Some((amount * factor, seconds))
        });
        if let Some((bytes, seconds)) = found {
            let (all, long) = total.unwrap_or((0.0, 0.0));
            total = Some((all + bytes, long + seconds));
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_those_before_and_after_the_task() {
        let text = "x INFO:  Stats: Total 2 transfers, 1.5 MB transferred in 4 seconds. Rate: 1 B/s\n\
            ###[Pegasus Lite] Executing the user task ###\n\
            x INFO:  Stats: Total 1 transfers, 2.0 KB transferred in 1 seconds. Rate: 2 KB/s\n";
        let mut attempt = TaskAttempt::new("a", workload::workflow::TaskRole::Compute, "a", 1);
        attempt.execution = Span::new(100.0, 130.0).ok();
        add_transfers(text, &mut attempt);
        assert_eq!(attempt.stage_in_bytes, Some(1.5 * 1024.0 * 1024.0));
        assert_eq!(attempt.stage_in.map(Span::seconds), Some(4.0));
        assert_eq!(attempt.stage_out, Span::new(129.0, 130.0).ok());
    }
}
