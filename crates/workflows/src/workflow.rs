//! Workflow traces: when each task of a workflow was ready, queued, staged, ran and finished.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A name for a task, unique in its workflow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskName(pub String);

/// What a task is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskRole {
    Compute,
    Transfer,
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

/// A stretch between two moments, in seconds since the epoch. It never ends before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "(f64, f64)", into = "(f64, f64)")]
pub struct Span {
    start: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("a stretch cannot run from {start} to {end}")]
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

/// One attempt at one task. What has not happened yet, or was not logged, is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskAttempt {
    pub task: TaskName,
    pub role: TaskRole,
    /// What is run; tasks of a kind do the same work on other data.
    pub kind: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    pub host: Option<String>,
    /// When the tasks it depends on had finished.
    pub ready: Option<f64>,
    pub pre_script: Option<Span>,
    /// When the workflow system handed it to the batch system.
    pub submitted: Option<f64>,
    /// From the start to the end of its execution, staging included.
    pub execution: Option<Span>,
    /// Since when it executes, as long as it does.
    #[serde(default)]
    pub running_since: Option<f64>,
    pub stage_in: Option<Span>,
    pub stage_out: Option<Span>,
    pub post_script: Option<Span>,
    /// What the processor worked, as the task's own record has it.
    pub cpu_seconds: Option<f64>,
    pub stage_in_bytes: Option<f64>,
    pub stage_out_bytes: Option<f64>,
    /// Times that the batch system held it or took it off its machine.
    pub n_interruptions: u32,
    pub exit_code: Option<i32>,
}

/// Where the time of one attempt went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// From the start of the workflow until the task was ready.
    pub ready: f64,
    pub pre_script: f64,
    /// In the hands of the workflow system: ready, but not yet submitted (pre-script aside).
    pub workflow_system: f64,
    /// Submitted, but not yet executing.
    pub queue: f64,
    pub stage_in: f64,
    /// Executing, staging aside.
    pub run: f64,
    pub stage_out: f64,
    pub post_script: f64,
    /// From the start of the workflow until all of the attempt was over.
    pub finish: f64,
}

impl Delays {
    /// What is drawn and summed, in the order of time, each with its name; the finish is no part of it.
    pub fn parts(&self) -> [(&'static str, f64); 8] {
        [
            ("ready", self.ready),
            ("pre-script", self.pre_script),
            ("workflow system", self.workflow_system),
            ("queue", self.queue),
            ("stage-in", self.stage_in),
            ("run", self.run),
            ("stage-out", self.stage_out),
            ("post-script", self.post_script),
        ]
    }
}

impl TaskAttempt {
    /// An attempt of which nothing is known but what it is.
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
            exit_code: None,
        }
    }

    /// The last moment that is known of it.
    pub fn end(&self) -> Option<f64> {
        let spans = [self.pre_script, self.execution, self.post_script];
        let moments = [self.ready, self.submitted, self.running_since].into_iter().flatten();
        spans.into_iter().flatten().map(Span::end).chain(moments).max_by(f64::total_cmp)
    }

    /// Whether its execution is over.
    pub fn is_over(&self) -> bool {
        self.execution.is_some() || self.exit_code.is_some()
    }

    /// The delays of this attempt in a workflow that started at `workflow_start`; what is
    /// not known counts as zero, and so does what clocks put before its cause.
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
            workflow_system: (between(self.ready, self.submitted) - pre_script).max(0.0),
            queue: between(self.submitted, self.execution.map(Span::start)),
            stage_in,
            run: (seconds(self.execution) - stage_in - stage_out).max(0.0),
            stage_out,
            post_script: seconds(self.post_script),
            finish: between(Some(workflow_start), self.end()),
        }
    }
}

/// One execution of a workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRun {
    pub name: String,
    /// In the order in which the log has them.
    pub attempts: Vec<TaskAttempt>,
    /// Tasks that wait for a task; empty where the graph is not known.
    pub children: BTreeMap<TaskName, Vec<TaskName>>,
}

impl WorkflowRun {
    /// When the first task was ready or submitted.
    pub fn start(&self) -> Option<f64> {
        let first = |one: &TaskAttempt| one.ready.or(one.submitted).or(one.execution.map(Span::start));
        self.attempts.iter().filter_map(first).min_by(f64::total_cmp)
    }

    /// The last moment that is known.
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
    fn delays_share_out_the_time_of_an_attempt() {
        let delays = attempt().delays(100.0);
        let expected = Delays {
            ready: 10.0,
            pre_script: 2.0,
            workflow_system: 8.0,
            queue: 30.0,
            stage_in: 5.0,
            run: 35.0,
            stage_out: 10.0,
            post_script: 3.0,
            finish: 104.0,
        };
        assert_eq!(delays, expected);
    }

    #[test]
    fn a_task_that_still_waits_has_no_run_time() {
        let waiting = TaskAttempt { execution: None, stage_in: None, stage_out: None, ..attempt() };
        let delays = waiting.delays(100.0);
        assert_eq!((delays.queue, delays.run), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn a_span_never_ends_before_it_starts(start in -1e9f64..1e9, end in -1e9f64..1e9) {
            prop_assert_eq!(Span::new(start, end).is_ok(), start <= end);
        }
    }
}
