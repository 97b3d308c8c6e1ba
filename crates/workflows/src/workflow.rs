//! A workflow run: its tasks, the attempts at each task, and the delays of each attempt.
//!
//! Times are seconds since the epoch. Delays carry the names that Pegasus and FlowBench use.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::graph::Graph;

/// A name for a task, unique in its workflow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskName(pub String);

/// Why a task is in the workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskRole {
    /// A task of the user.
    Compute,
    /// Moves files before or after other tasks.
    Transfer,
    /// Added by the workflow system: creates directories, cleans up, runs a sub-workflow.
    Auxiliary,
}

impl TaskRole {
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Transfer => "transfer",
            Self::Auxiliary => "auxiliary",
        }
    }
}

/// A period of time. It never ends before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "(f64, f64)", into = "(f64, f64)")]
pub struct Span {
    start: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("a period cannot start at {start} and end at {end}")]
pub struct SpanError {
    pub start: f64,
    pub end: f64,
}

impl Span {
    pub fn new(start: f64, end: f64) -> Result<Self, SpanError> {
        let ordered = start.is_finite() && end.is_finite() && start <= end;
        if ordered { Ok(Self { start, end }) } else { Err(SpanError { start, end }) }
    }

    pub fn start(self) -> f64 {
        self.start
    }

    pub fn end(self) -> f64 {
        self.end
    }

    pub fn seconds(self) -> f64 {
        self.end - self.start
    }
}

impl TryFrom<(f64, f64)> for Span {
    type Error = SpanError;
    fn try_from((start, end): (f64, f64)) -> Result<Self, SpanError> {
        Self::new(start, end)
    }
}

impl From<Span> for (f64, f64) {
    fn from(span: Span) -> Self {
        (span.start, span.end)
    }
}

/// One attempt at one task. A field is `None` if the event has not happened yet or was not logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskAttempt {
    pub task: TaskName,
    pub role: TaskRole,
    /// The program that is run. Tasks of one kind do the same work on different data.
    pub kind: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    pub host: Option<String>,
    /// When all tasks it depends on had finished.
    pub ready: Option<f64>,
    pub pre_script: Option<Span>,
    /// When the workflow system submitted it to the batch system.
    pub submitted: Option<f64>,
    /// Execution, including staging.
    pub execution: Option<Span>,
    /// Start of the execution, while it is running.
    #[serde(default)]
    pub running_since: Option<f64>,
    pub stage_in: Option<Span>,
    pub stage_out: Option<Span>,
    pub post_script: Option<Span>,
    /// CPU time, from the record of the task itself (kickstart, for example).
    pub cpu_seconds: Option<f64>,
    pub stage_in_bytes: Option<f64>,
    pub stage_out_bytes: Option<f64>,
    /// How often the batch system held or evicted it.
    pub n_interruptions: u32,
    /// When it was held: until it was released, executed or removed.
    #[serde(default)]
    pub holds: Vec<Span>,
    /// Since when it is held, until it is released.
    #[serde(default)]
    pub held_since: Option<f64>,
    /// When it was removed from the batch system before it ended by itself.
    #[serde(default)]
    pub removed: Option<f64>,
    pub exit_code: Option<i32>,
}

/// Equal numbers have equal hashes, zero and minus zero too.
fn bits(number: f64) -> u64 {
    (number + 0.0).to_bits()
}

impl Hash for Span {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (bits(self.start), bits(self.end)).hash(state);
    }
}

impl Hash for TaskAttempt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let numbers = [
            self.ready,
            self.submitted,
            self.running_since,
            self.cpu_seconds,
            self.stage_in_bytes,
            self.stage_out_bytes,
            self.held_since,
            self.removed,
        ];
        self.holds.hash(state);
        (&self.task, self.attempt, &self.host, self.exit_code).hash(state);
        numbers.map(|number| number.map(bits)).hash(state);
        (self.pre_script, self.execution, self.stage_in, self.stage_out, self.post_script).hash(state);
    }
}

/// The delays of one attempt, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// From the start of the workflow until all dependencies were met.
    pub ready: f64,
    pub pre_script: f64,
    /// The workflow system prepared and submitted the task (without the pre-script).
    pub wms_delay: f64,
    /// Submitted, but not yet executing: the queue of the batch system. The time held is part of it.
    pub queue: f64,
    pub stage_in: f64,
    /// Execution without staging.
    pub runtime: f64,
    pub stage_out: f64,
    pub post_script: f64,
    /// From the start of the workflow until the attempt, with its post-script, was over.
    pub finish: f64,
}

impl Delays {
    /// All delays but `finish`, in the order of time, with their names.
    pub fn parts(&self) -> [(&'static str, f64); 8] {
        [
            ("ready", self.ready),
            ("pre_script", self.pre_script),
            ("wms_delay", self.wms_delay),
            ("queue", self.queue),
            ("stage_in", self.stage_in),
            ("runtime", self.runtime),
            ("stage_out", self.stage_out),
            ("post_script", self.post_script),
        ]
    }
}

impl TaskAttempt {
    /// An attempt without any events yet.
    pub fn new(task: impl Into<String>, role: TaskRole, kind: impl Into<String>, attempt: u32) -> Self {
        Self {
            task: TaskName(task.into()),
            role,
            kind: kind.into(),
            attempt,
            host: None,
            ready: None,
            pre_script: None,
            submitted: None,
            execution: None,
            running_since: None,
            stage_in: None,
            stage_out: None,
            post_script: None,
            cpu_seconds: None,
            stage_in_bytes: None,
            stage_out_bytes: None,
            n_interruptions: 0,
            holds: Vec::new(),
            held_since: None,
            removed: None,
            exit_code: None,
        }
    }

    /// The latest time known of it.
    pub fn end(&self) -> Option<f64> {
        let spans = [self.pre_script, self.execution, self.post_script];
        let spans = spans.into_iter().flatten().chain(self.holds.iter().copied());
        let moments = [self.ready, self.submitted, self.running_since, self.held_since, self.removed];
        spans.map(Span::end).chain(moments.into_iter().flatten()).max_by(f64::total_cmp)
    }

    /// How long it was held, without a hold that has not ended.
    pub fn held_seconds(&self) -> f64 {
        // The sum of nothing would be −0.
        self.holds.iter().fold(0.0, |sum, span| sum + span.seconds())
    }

    /// Whether its execution is over.
    pub fn is_over(&self) -> bool {
        self.execution.is_some() || self.exit_code.is_some()
    }

    /// The delays of this attempt in a workflow that started at `workflow_start`. A delay that is unknown,
    /// or negative because clocks differ, is zero.
    pub fn delays(&self, workflow_start: f64) -> Delays {
        let between = |from: Option<f64>, to: Option<f64>| match (from, to) {
            (Some(from), Some(to)) => (to - from).max(0.0),
            _ => 0.0,
        };
        let seconds = |span: Option<Span>| span.map_or(0.0, Span::seconds);
        let pre_script = seconds(self.pre_script);
        let (stage_in, stage_out) = (seconds(self.stage_in), seconds(self.stage_out));
        Delays {
            ready: between(Some(workflow_start), self.ready),
            pre_script,
            wms_delay: (between(self.ready, self.submitted) - pre_script).max(0.0),
            queue: between(self.submitted, self.execution.map(Span::start).or(self.removed)),
            stage_in,
            runtime: (seconds(self.execution) - stage_in - stage_out).max(0.0),
            stage_out,
            post_script: seconds(self.post_script),
            finish: between(Some(workflow_start), self.end()),
        }
    }
}

/// One execution of a workflow.
#[derive(Debug, Clone, Default, PartialEq, Hash, Serialize, Deserialize)]
pub struct WorkflowRun {
    pub name: String,
    /// In the order of the log.
    pub attempts: Vec<TaskAttempt>,
    pub graph: Graph,
}

impl WorkflowRun {
    /// When the first task was ready or submitted.
    pub fn start(&self) -> Option<f64> {
        let first = |one: &TaskAttempt| one.ready.or(one.submitted).or(one.execution.map(Span::start));
        self.attempts.iter().filter_map(first).min_by(f64::total_cmp)
    }

    /// The latest time known.
    pub fn end(&self) -> Option<f64> {
        self.attempts.iter().filter_map(TaskAttempt::end).max_by(f64::total_cmp)
    }

    /// Seconds from the start to the end.
    pub fn makespan(&self) -> f64 {
        self.start().zip(self.end()).map_or(0.0, |(start, end)| end - start)
    }

    /// The delays of every attempt, in their order.
    pub fn delays(&self) -> Vec<Delays> {
        let start = self.start().unwrap_or_default();
        self.attempts.iter().map(|attempt| attempt.delays(start)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attempt() -> TaskAttempt {
        TaskAttempt {
            ready: Some(110.0),
            pre_script: Some(Span::new(111.0, 113.0).unwrap()),
            submitted: Some(120.0),
            execution: Some(Span::new(150.0, 200.0).unwrap()),
            stage_in: Some(Span::new(150.0, 155.0).unwrap()),
            stage_out: Some(Span::new(190.0, 200.0).unwrap()),
            post_script: Some(Span::new(201.0, 204.0).unwrap()),
            exit_code: Some(0),
            ..TaskAttempt::new("merge_1", TaskRole::Compute, "merge", 1)
        }
    }

    #[test]
    fn delays_add_up_to_the_duration_of_an_attempt() {
        let delays = attempt().delays(100.0);
        let expected = Delays {
            ready: 10.0,
            pre_script: 2.0,
            wms_delay: 8.0,
            queue: 30.0,
            stage_in: 5.0,
            runtime: 35.0,
            stage_out: 10.0,
            post_script: 3.0,
            finish: 104.0,
        };
        assert_eq!(delays, expected);
        let sum: f64 = delays.parts().iter().map(|(_, seconds)| seconds).sum();
        assert_eq!(sum, delays.finish - 1.0, "the post-script started a second after the execution");
    }

    #[test]
    fn a_task_that_is_removed_from_the_queue_waited_until_then() {
        let removed = TaskAttempt {
            execution: None,
            stage_in: None,
            stage_out: None,
            post_script: None,
            holds: vec![Span::new(130.0, 145.0).unwrap()],
            removed: Some(160.0),
            ..attempt()
        };
        let delays = removed.delays(100.0);
        assert_eq!((delays.queue, delays.runtime, delays.finish), (40.0, 0.0, 60.0));
        assert_eq!(removed.held_seconds(), 15.0);
        assert!(attempt().held_seconds().is_sign_positive());
    }

    #[test]
    fn a_task_that_still_waits_has_no_runtime() {
        let waiting = TaskAttempt { execution: None, stage_in: None, stage_out: None, ..attempt() };
        let delays = waiting.delays(100.0);
        assert_eq!((delays.queue, delays.runtime), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn a_span_never_ends_before_it_starts(start in -1e9f64..1e9, end in -1e9f64..1e9) {
            prop_assert_eq!(Span::new(start, end).is_ok(), start <= end);
        }
    }
}
