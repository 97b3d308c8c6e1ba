//! Nextflow's `trace.txt`: one row per task, separated by tabs, with columns chosen by the user.

use std::collections::HashMap;

use crate::workflow::{Span, TaskAttempt, TaskRole};
use chrono::NaiveDateTime;

use super::{Recording, values};

pub fn is_header(line: &str) -> bool {
    let names: Vec<&str> = line.split('\t').map(str::trim).collect();
    names.contains(&"name")
        && names.contains(&"submit")
        && (names.contains(&"duration") || names.contains(&"complete"))
}

/// `1h 2m 3.5s`, `250ms`, or raw milliseconds.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(raw) = text.parse::<f64>() {
        return values::duration(raw / 1e3);
    }
    let mut total = 0.0;
    for part in text.split_ascii_whitespace() {
        let digits = part.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match &part[digits.len()..] {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += digits.parse::<f64>().ok()? * factor;
    }
    values::duration(total)
}

/// `2026-11-15 08:00:00.123`, or raw milliseconds.
fn parse_time(text: &str) -> Option<f64> {
    if let Ok(raw) = text.parse::<f64>() {
        return values::time(raw / 1e3);
    }
    let parsed = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").ok()?;
    values::time(parsed.and_utc().timestamp_millis() as f64 / 1e3)
}

/// A trace as far as it has been read. Nextflow writes a row when a task has ended, so tasks that wait or run are unknown,
/// and so is the end of the workflow.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    columns: HashMap<String, usize>,
    recording: Recording,
}

impl Trace {
    /// Begins with the header.
    pub fn new(header: &str) -> Self {
        let columns = header.split('\t').enumerate().map(|(at, name)| (name.trim().to_owned(), at)).collect();
        Self { columns, recording: Recording::default() }
    }

    pub fn n_attempts(&self) -> usize {
        self.recording.run.attempts.len()
    }

    /// Whether a line has a cell for every column.
    pub fn is_whole(&self, line: &str) -> bool {
        line.split('\t').count() >= self.columns.len()
    }

    pub fn warn(&mut self, warning: String) {
        self.recording.warn(warning);
    }

    /// Reads the row in a line.
    pub fn push(&mut self, line: &str, number: u64) {
        let Self { columns, recording } = self;
        let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
        let cell = |name: &str| {
            let text = columns.get(name).and_then(|at| cells.get(*at)).copied();
            text.filter(|cell| !cell.is_empty() && *cell != "-")
        };
        let (Some(task), Some(submit)) = (cell("name"), cell("submit").and_then(parse_time)) else {
            recording.warn(format!("line {number} is skipped: it has no name or no submission time"));
            return;
        };
        type Parse = fn(&str) -> Option<f64>;
        let numbers: [(&str, Parse); 4] =
            [("start", parse_time), ("complete", parse_time), ("duration", seconds), ("realtime", seconds)];
        for (name, parse) in numbers {
            if let Some(text) = cell(name).filter(|text| parse(text).is_none()) {
                recording.warn(format!("line {number}: {name} is {text}, which is not a time"));
            }
        }
        let complete = cell("complete").and_then(parse_time);
        let end = complete.or_else(|| Some(submit + seconds(cell("duration")?)?));
        let start = cell("start").and_then(parse_time).or_else(|| Some(end? - seconds(cell("realtime")?)?));
        let execution =
            start.zip(end).and_then(|(start, end)| values::span(start.max(submit), end.max(start)));
        let cpu = cell("%cpu").and_then(|cell| cell.trim_end_matches('%').parse::<f64>().ok());
        let ran = cell("realtime").and_then(seconds).or(execution.map(Span::seconds));
        // `NAME (sample)` is a task of the process NAME.
        let process = cell("process").unwrap_or_else(|| task.split(" (").next().unwrap_or(task));
        // A task that was stopped before it could exit has no code.
        let is_aborted = cell("status") == Some("ABORTED");
        let failed = (is_aborted || cell("status") == Some("FAILED")).then_some(-1);
        if cell("status") == Some("CACHED") {
            return;
        }
        recording.run.attempts.push(TaskAttempt {
            host: cell("hostname").map(str::to_owned),
            ready: Some(submit),
            submitted: Some(submit),
            execution,
            cpu_seconds: cpu.zip(ran).and_then(|(share, ran)| values::cpu_time(share / 100.0 * ran)),
            stage_in_bytes: cell("rchar").and_then(bytes),
            stage_out_bytes: cell("wchar").and_then(bytes),
            removed: end.filter(|_| is_aborted),
            exit_code: cell("exit").and_then(|code| code.parse().ok()).or(failed),
            ..TaskAttempt::new(
                task,
                TaskRole::Compute,
                process,
                cell("attempt").and_then(|n| n.parse().ok()).unwrap_or(1),
            )
        });
    }

    /// The run as known now.
    pub fn recording(&self, name: &str) -> Recording {
        let mut recording = self.recording.clone();
        name.clone_into(&mut recording.run.name);
        if !self.columns.contains_key("attempt") {
            recording.number_attempts();
        }
        recording
    }
}

/// `1.5 GB`, or a plain number.
fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, "B"));
    let factor = match unit {
        "B" => 1.0,
        "KB" => 1024.0,
        "MB" => 1024f64.powi(2),
        "GB" => 1024f64.powi(3),
        "TB" => 1024f64.powi(4),
        _ => return None,
    };
    values::bytes(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_times_and_sizes_are_parsed_as_nextflow_writes_them() {
        assert_eq!(seconds("1h 2m 3.5s"), Some(3_723.5));
        assert_eq!(seconds("250ms"), Some(0.25));
        assert_eq!(seconds("1500"), Some(1.5));
        assert_eq!(seconds("soon"), None);
        assert_eq!(parse_time("1970-01-01 00:01:00.500"), Some(60.5));
        assert_eq!(bytes("1.5 KB"), Some(1536.0));
    }
}
