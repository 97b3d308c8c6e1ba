//! The structure of judgements and comparisons of workflow runs for the OpenAPI document. A test compares it with what is
//! sent.

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// The judgement of a run.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct RunVerdict {
    pub run: String,
    pub class: String,
    /// Whether the classifier can tell. If not, `class` is only the most likely class.
    pub is_certain: bool,
    pub confidence: f64,
    /// The smallest confidence of a certain verdict.
    pub min_confidence: f64,
    /// By class.
    pub probabilities: BTreeMap<String, f64>,
    /// Inputs that the run lacks, `cpu_time` or `stage_in`; the verdict is less certain without them.
    pub missing_inputs: Vec<String>,
    /// The weightiest first.
    pub reasons: Vec<RunReason>,
    /// Tasks that run longer than they should, by kind.
    pub overdue: Vec<OverdueTasks>,
    /// All of it in one sentence.
    pub summary: String,
}

/// One reason for a judgement. Times are seconds since 1970.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct RunReason {
    pub kind: String,
    pub delay: String,
    pub tasks: Vec<String>,
    /// The median of these tasks.
    pub observed_seconds: f64,
    /// The median of the baseline.
    pub baseline_seconds: f64,
    /// Null if the baseline is zero.
    pub ratio: Option<f64>,
    /// When the first of these tasks started and the last one ended.
    pub start: f64,
    pub end: f64,
    /// Its fraction of all evidence for the verdict.
    pub weight: f64,
    pub text: String,
}

/// Tasks of one kind that run longer than they should.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct OverdueTasks {
    pub kind: String,
    pub tasks: Vec<String>,
    pub running_seconds: f64,
    pub baseline_seconds: f64,
}

/// Two runs, task by task.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct RunComparison {
    /// Seconds.
    pub makespan_before: f64,
    pub makespan_after: f64,
    /// The largest change first.
    pub tasks: Vec<TaskDifference>,
    pub only_before: Vec<String>,
    pub only_after: Vec<String>,
}

/// The delay of a task that changed most, in seconds.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct TaskDifference {
    pub task: String,
    pub kind: String,
    pub delay: String,
    pub before: f64,
    pub after: f64,
}
