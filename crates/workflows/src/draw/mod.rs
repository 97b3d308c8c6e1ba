//! Gantt charts of runs, independent of the output format.

mod chart;
mod page;
pub mod pixels;

pub use chart::{Style, svg};
pub use page::html;
pub use pixels::{Pixels, png};

use std::collections::HashMap;

use crate::workflow::{TaskAttempt, TaskName, TaskRole, WorkflowRun};

/// Logs have times in whole seconds: an end this long after a start may have been before it.
const CLOCK_TOLERANCE_SECONDS: f64 = 0.5;

/// The parts of a row, in the order of drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Ready,
    WmsDelay,
    PreScript,
    Queue,
    Held,
    StageIn,
    Runtime,
    StageOut,
    PostScript,
    Finished,
}

impl Part {
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::WmsDelay,
        Self::PreScript,
        Self::Queue,
        Self::Held,
        Self::StageIn,
        Self::Runtime,
        Self::StageOut,
        Self::PostScript,
        Self::Finished,
    ];

    /// The colour in the charts of Krawczuk et al. (PEARC 2021), which networks are trained on.
    pub fn paper_colour(self) -> [u8; 3] {
        match self {
            Self::Ready => [0xea, 0x43, 0x35],
            Self::WmsDelay => [0xfb, 0xbc, 0x03],
            Self::PreScript => [0x33, 0xa8, 0x53],
            // The time held is part of the queue in the published charts.
            Self::Queue | Self::Held => [0x74, 0x02, 0x64],
            Self::StageIn => [0x00, 0x00, 0x00],
            Self::Runtime => [0x4c, 0xd1, 0x95],
            Self::StageOut => [0x42, 0x85, 0xf4],
            Self::PostScript => [0xea, 0x80, 0x23],
            Self::Finished => [0x5f, 0x63, 0x68],
        }
    }

    /// The colour in charts for people: waiting is pale, work is dark, and staging stands out.
    pub fn colour(self) -> [u8; 3] {
        match self {
            Self::Ready | Self::Finished => [0xff, 0xff, 0xff],
            Self::WmsDelay => [0xd9, 0xd9, 0xd9],
            Self::PreScript => [0xb3, 0x9d, 0xdb],
            Self::Queue => [0xf3, 0xd9, 0x8b],
            Self::Held => [0xe0, 0x6c, 0x9f],
            Self::StageIn => [0xd9, 0x5f, 0x02],
            Self::Runtime => [0x1b, 0x7f, 0x79],
            Self::StageOut => [0x75, 0x70, 0xb3],
            Self::PostScript => [0x9e, 0x9e, 0x9e],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::WmsDelay => "wms_delay",
            Self::PreScript => "pre_script",
            Self::Queue => "queue",
            Self::Held => "held",
            Self::StageIn => "stage_in",
            Self::Runtime => "runtime",
            Self::StageOut => "stage_out",
            Self::PostScript => "post_script",
            Self::Finished => "finished",
        }
    }
}

/// What cannot be seen in the parts of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowNote {
    Held,
    Removed,
}

impl RowNote {
    fn of(attempt: &TaskAttempt) -> Option<Self> {
        let removed = attempt.removed.map(|_| Self::Removed);
        removed.or(attempt.held_since.map(|_| Self::Held))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Removed => "removed",
        }
    }
}

/// One attempt as a row of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub task: String,
    pub kind: String,
    pub role: TaskRole,
    pub attempt: u32,
    pub has_failed: bool,
    /// Whether it was removed from the batch system, or is held now.
    pub note: Option<RowNote>,
    pub is_critical: bool,
    /// The end of each part, in seconds since the start of the run.
    pub ends: [f64; Part::ALL.len()],
}

impl Row {
    /// Parts that take time, with their start and end.
    pub fn parts(&self) -> impl Iterator<Item = (Part, f64, f64)> + '_ {
        let starts = [0.0].into_iter().chain(self.ends);
        let part = |((part, start), end): ((Part, f64), f64)| (part, start, end);
        Part::ALL.into_iter().zip(starts).zip(self.ends).map(part).filter(|(_, start, end)| end > start)
    }

    /// When the task was ready.
    pub fn start(&self) -> f64 {
        self.ends[Part::Ready as usize]
    }

    pub fn end(&self) -> f64 {
        self.ends[Part::PostScript as usize]
    }
}

/// A run as a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Gantt {
    pub name: String,
    pub rows: Vec<Row>,
    pub seconds: f64,
}

impl Gantt {
    pub fn new(run: &WorkflowRun) -> Self {
        let mut rows: Vec<Row> = Vec::with_capacity(run.attempts.len());
        for (attempt, delays) in run.attempts.iter().zip(run.delays()) {
            // Held attempts wait in the queue again when they are released.
            let held = attempt.held_seconds().min(delays.queue);
            let seconds = [
                delays.ready,
                delays.wms_delay,
                delays.pre_script,
                delays.queue - held,
                held,
                delays.stage_in,
                delays.runtime,
                delays.stage_out,
                delays.post_script,
                0.0,
            ];
            let mut end = 0.0;
            let ends = seconds.map(|seconds| {
                end += seconds;
                end
            });
            rows.push(Row {
                task: attempt.task.0.clone(),
                kind: attempt.kind.clone(),
                role: attempt.role,
                attempt: attempt.attempt,
                has_failed: attempt.exit_code.is_some_and(|code| code != 0),
                note: RowNote::of(attempt),
                is_critical: false,
                ends,
            });
        }
        let seconds = rows.iter().map(Row::end).fold(0.0, f64::max);
        for row in &mut rows {
            row.ends[Part::Finished as usize] = seconds;
        }
        let mut gantt = Self { name: run.name.clone(), rows, seconds };
        gantt.mark_critical(run);
        gantt
    }

    /// Marks the critical path: the chain of tasks that determined the end of the run.
    fn mark_critical(&mut self, run: &WorkflowRun) {
        // The order of rows by their ends decides between all candidates.
        let mut by_end: Vec<usize> = (0..self.rows.len()).collect();
        by_end.sort_by(|a, b| self.rows[*a].end().total_cmp(&self.rows[*b].end()));
        let before = if run.graph.is_empty() {
            rows_before(&self.rows, &by_end)
        } else {
            rows_of_last_parents(&self.rows, &by_end, run)
        };
        let mut at = by_end.last().copied();
        while let Some(index) = at.filter(|index| !self.rows[*index].is_critical) {
            self.rows[index].is_critical = true;
            at = before[index];
        }
    }
}

/// For every row, the row of a parent that ended last.
fn rows_of_last_parents(rows: &[Row], by_end: &[usize], run: &WorkflowRun) -> Vec<Option<usize>> {
    // Rows of the same task later in the order replace earlier ones.
    let last_of_task: HashMap<&str, usize> =
        by_end.iter().enumerate().map(|(place, at)| (rows[*at].task.as_str(), place)).collect();
    let place_of = |task: &TaskName| last_of_task.get(task.0.as_str()).copied();
    let last_parents = run.graph.largest_of_parents(place_of, usize::max);
    let of = |attempt: &TaskAttempt| last_parents.get(&attempt.task).map(|place| by_end[*place]);
    run.attempts.iter().map(of).collect()
}

/// For every row, the row of another task that ended last before it was ready: what it waited for, if the graph is
/// unknown.
fn rows_before(rows: &[Row], by_end: &[usize]) -> Vec<Option<usize>> {
    // The nearest place before each place with a row of another task.
    let mut other_task: Vec<Option<usize>> = Vec::with_capacity(by_end.len());
    for place in 0..by_end.len() {
        let previous = place.checked_sub(1);
        let is_same = |previous: usize| rows[by_end[previous]].task == rows[by_end[place]].task;
        other_task.push(previous.and_then(|at| if is_same(at) { other_task[at] } else { Some(at) }));
    }
    let of = |row: &Row| {
        if row.start() <= 0.0 {
            return None;
        }
        let n_before = by_end.partition_point(|at| rows[*at].end() <= row.start() + CLOCK_TOLERANCE_SECONDS);
        let last = n_before.checked_sub(1)?;
        let place = if rows[by_end[last]].task == row.task { other_task[last]? } else { last };
        Some(by_end[place])
    };
    rows.iter().map(of).collect()
}
