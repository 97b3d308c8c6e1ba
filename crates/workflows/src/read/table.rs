//! Tables with one row per job, as FlowGAD and FlowBench publish them: times, delays and kickstart measurements.
//!
//! The column `runtime` is the whole execution; `Delays::runtime` is the execution without staging.

use std::collections::HashMap;
use std::io::Read;

use files::{LimitExceeded, Meter};

use crate::duplicates::Seen;
use crate::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};

use super::values::{self, MAX_SECONDS};
use super::{Recording, kind};
use crate::dataset::NORMAL;

/// Columns that a table must have.
const REQUIRED: [&str; 2] = ["submit", "runtime"];

/// Columns that delays are computed from; a table without them has fewer delays.
const EXPECTED: [&str; 4] = ["ready", "execute_start", "stage_in_delay", "kickstart_executables_cpu_time"];
/// How an unknown value is written.
const UNKNOWN: [&str; 5] = ["None", "nan", "NaN", "NA", "null"];
/// Columns of times, in chronological order.
const TIMES: [&str; 8] = [
    "ready",
    "pre_script_start",
    "pre_script_end",
    "submit",
    "execute_start",
    "execute_end",
    "post_script_start",
    "post_script_end",
];
/// Columns of durations and sizes.
const AMOUNTS: [&str; 7] = [
    "runtime",
    "queue_delay",
    "stage_in_delay",
    "stage_in_bytes",
    "stage_out_delay",
    "stage_out_bytes",
    "kickstart_executables_cpu_time",
];

/// Whether the label of a task means that it is healthy.
fn is_healthy(label: &str) -> bool {
    UNKNOWN.contains(&label) || ["none", NORMAL, "0"].contains(&label)
}

/// Whether a first line looks like the header of such a table.
pub fn is_header(line: &str) -> bool {
    let names: Vec<&str> = line.split(',').map(str::trim).collect();
    REQUIRED.iter().all(|required| names.contains(required))
}

/// Reads one run. Invalid rows are skipped with a warning, and duplicate rows are skipped: they are not further attempts.
/// `meter` belongs to the reader that the bytes come from.
pub fn read(name: &str, from: impl Read, meter: &mut Meter) -> Result<Recording, TableError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(from);
    meter.next_record();
    let header = reader.byte_headers().map_err(|error| TableError::at(1, &error))?.clone();
    let columns: HashMap<String, usize> = header
        .iter()
        .enumerate()
        .map(|(at, name)| (String::from_utf8_lossy(name).trim().to_owned(), at))
        .collect();
    for required in REQUIRED {
        if !columns.contains_key(required) {
            return Err(TableError::Invalid(format!("not a table of jobs: it has no column {required}")));
        }
    }
    let mut recording = Recording::new(name);
    let missing: Vec<&str> = EXPECTED.into_iter().filter(|name| !columns.contains_key(*name)).collect();
    if !missing.is_empty() {
        recording.warn(format!("the table has no column {}; these values are unknown", missing.join(", ")));
    }
    let label_column = columns.get("anomaly_type").copied();
    let mut row = csv::ByteRecord::new();
    let mut line = 1;
    let (mut seen, mut n_repeated) = (Seen::default(), 0);
    loop {
        line += 1;
        meter.next_row()?;
        match reader.read_byte_record(&mut row) {
            Ok(false) => break,
            Err(error) => match TableError::at(line, &error) {
                TableError::Invalid(_) => {
                    recording.warn(format!("line {line} is skipped: {error}"));
                    continue;
                }
                limit => return Err(limit),
            },
            Ok(true) => {}
        }
        if row.len() != header.len() {
            recording.warn(format!("line {line} is skipped: it has {} of {} cells", row.len(), header.len()));
            continue;
        }
        let row = Row { cells: &row, columns: &columns };
        for (name, kind) in row.unreadable() {
            let text = row.text(name).unwrap_or_default();
            recording.warn(format!("line {line}: {name} is {text}, which is not a {kind}"));
        }
        let attempt = match row.attempt() {
            Ok(attempt) => attempt,
            Err(reason) => {
                recording.warn(format!("line {line} is skipped: {reason}"));
                continue;
            }
        };
        let attempts = &mut recording.run.attempts;
        if seen.find_or_add(&attempt, attempts.len(), |at| &attempts[at]).is_some() {
            n_repeated += 1;
            continue;
        }
        attempts.push(attempt);
        if let Some(column) = label_column {
            let label = row.at(column).filter(|label| !is_healthy(label));
            recording.labels.push(label.map(str::to_owned));
        }
    }
    if recording.run.attempts.is_empty() {
        return Err(TableError::Invalid("the table contains no job".into()));
    }
    if n_repeated > 0 {
        recording.warn(format!("{n_repeated} duplicate rows are skipped"));
    }
    recording.number_attempts();
    kind::settle(&mut recording.run);
    Ok(recording)
}

/// Why a table is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("{0}")]
    Invalid(String),
    /// The input is too large; nothing that follows can be read either.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl TableError {
    fn at(line: u64, error: &csv::Error) -> Self {
        let limit = match error.kind() {
            csv::ErrorKind::Io(error) => {
                error.get_ref().and_then(|inner| inner.downcast_ref::<LimitExceeded>())
            }
            _ => None,
        };
        limit.map_or_else(|| Self::Invalid(format!("line {line}: {error}")), |limit| Self::Limit(*limit))
    }
}

struct Row<'a> {
    cells: &'a csv::ByteRecord,
    columns: &'a HashMap<String, usize>,
}

impl<'a> Row<'a> {
    fn at(&self, column: usize) -> Option<&'a str> {
        let text = std::str::from_utf8(self.cells.get(column)?).ok()?.trim();
        (!text.is_empty()).then_some(text)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.at(*self.columns.get(name)?)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    fn time(&self, name: &str) -> Option<f64> {
        self.number(name).and_then(values::time)
    }

    fn bytes(&self, name: &str) -> Option<f64> {
        self.number(name).and_then(values::bytes)
    }

    fn span(&self, start: &str, end: &str) -> Option<Span> {
        values::span(self.time(start)?, self.time(end)?)
    }

    /// Columns whose value is neither known nor marked as unknown, with what it should be.
    fn unreadable(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let times = TIMES.into_iter().filter(|name| self.time(name).is_none()).map(|name| (name, "time"));
        let amounts = AMOUNTS.into_iter().filter(|name| self.number(name).is_none());
        let all = times.chain(amounts.map(|name| (name, "number")));
        all.filter(|(name, _)| self.text(name).is_some_and(|text| !UNKNOWN.contains(&text)))
    }

    fn attempt(&self) -> Result<TaskAttempt, String> {
        // The first column is the name of the job; its header is empty.
        let task = self.at(0).ok_or("the job has no name")?;
        let (role, kind) = kind::from_name(task);
        let role = match self.text("type") {
            Some("compute") => TaskRole::Compute,
            Some("transfer") => TaskRole::Transfer,
            Some("auxiliary") => TaskRole::Auxiliary,
            _ => role,
        };
        let (ran, end) = (self.number("runtime"), self.time("execute_end"));
        let queued = || Some(self.time("submit")? + self.number("queue_delay")?);
        let start = self.time("execute_start").or_else(|| Some(end? - ran?)).or_else(queued);
        let ran = ran.or_else(|| Some(end? - start?));
        if ran.is_some_and(|seconds| seconds < 0.0) {
            return Err(format!("{task} ends before it starts"));
        }
        if ran.is_some_and(|seconds| seconds > MAX_SECONDS) {
            return Err(format!("the runtime of {task} is impossible"));
        }
        // Some tables have zero for a time that was never recorded.
        let is_near = |time: &f64| start.is_none_or(|start| (start - time).abs() < MAX_SECONDS);
        let execution = start.zip(ran).and_then(|(start, ran)| values::span(start, start + ran));
        // Staging is part of the execution: stage-in at its start, stage-out at its end.
        let staged = |delay: &str| self.number(delay).map(|seconds| seconds.max(0.0));
        let inside = |seconds: f64| execution.map_or(seconds, |span| seconds.min(span.seconds()));
        let stage_in = staged("stage_in_delay").map(inside).zip(execution);
        let stage_out = staged("stage_out_delay").map(inside).zip(execution);
        Ok(TaskAttempt {
            host: self.text("kickstart_hostname").map(str::to_owned),
            ready: self.time("ready").filter(is_near),
            pre_script: self.span("pre_script_start", "pre_script_end"),
            submitted: self.time("submit").filter(is_near),
            execution,
            stage_in: stage_in
                .and_then(|(seconds, span)| Span::new(span.start(), span.start() + seconds).ok()),
            stage_out: stage_out.and_then(|(seconds, span)| Span::new(span.end() - seconds, span.end()).ok()),
            post_script: self.span("post_script_start", "post_script_end"),
            cpu_seconds: self.number("kickstart_executables_cpu_time").and_then(values::cpu_time),
            stage_in_bytes: self.bytes("stage_in_bytes"),
            stage_out_bytes: self.bytes("stage_out_bytes"),
            exit_code: self.number("kickstart_executables_exitcode").map(|code| code as i32),
            ..TaskAttempt::new(task, role, kind, 1)
        })
    }
}

/// Writes a run as such a table.
pub fn write(
    run: &WorkflowRun,
    labels: &[Option<String>],
    to: impl std::io::Write,
) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(to);
    let label_name = (!labels.is_empty()).then_some("anomaly_type");
    let delays = [
        "wms_delay",
        "pre_script_delay",
        "queue_delay",
        "runtime",
        "post_script_delay",
        "stage_in_delay",
        "stage_in_bytes",
        "stage_out_delay",
        "stage_out_bytes",
        "kickstart_hostname",
        "kickstart_executables_cpu_time",
        "kickstart_executables_exitcode",
    ];
    let names = ["type"].into_iter().chain(TIMES).chain(delays);
    writer.write_record([""].into_iter().chain(label_name).chain(names))?;
    let shown = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for (at, (one, delays)) in run.attempts.iter().zip(run.delays()).enumerate() {
        let start = |span: Option<Span>| shown(span.map(Span::start));
        let end = |span: Option<Span>| shown(span.map(Span::end));
        let seconds = |span: Option<Span>| shown(span.map(Span::seconds));
        let label = labels.get(at).map(|label| label.clone().unwrap_or_else(|| "None".into()));
        let cells = [
            one.role.name().to_owned(),
            shown(one.ready),
            start(one.pre_script),
            end(one.pre_script),
            shown(one.submitted),
            start(one.execution),
            end(one.execution),
            start(one.post_script),
            end(one.post_script),
            shown(one.ready.and(one.submitted).map(|_| delays.wms_delay)),
            seconds(one.pre_script),
            shown(one.submitted.and(one.execution).map(|_| delays.queue)),
            seconds(one.execution),
            seconds(one.post_script),
            seconds(one.stage_in),
            shown(one.stage_in_bytes),
            seconds(one.stage_out),
            shown(one.stage_out_bytes),
            one.host.clone().unwrap_or_default(),
            shown(one.cpu_seconds),
            one.exit_code.map_or(String::new(), |code| code.to_string()),
        ];
        writer.write_record([one.task.0.clone()].into_iter().chain(label).chain(cells))?;
    }
    writer.flush()?;
    Ok(())
}
