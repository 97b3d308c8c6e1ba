//! Events of tasks, the common form of all logs that are read line by line.

/// What happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    PreScriptStarted,
    PreScriptEnded,
    /// The pre-script failed with this exit code; the task is not submitted.
    PreScriptFailed(i32),
    Submitted,
    /// Execution started on this host, if the log names it.
    Executing(Option<String>),
    /// Input files are transferred to the host. Staging is part of the execution.
    StageInStarted,
    StageInEnded,
    StageOutStarted,
    StageOutEnded,
    /// The execution ended; the exit code may follow in a later event.
    Terminated(Option<i32>),
    Exited(i32),
    Held,
    Released,
    /// Removed from its host; it waits in the queue again.
    Evicted,
    Aborted,
    PostScriptStarted,
    PostScriptEnded,
    /// The exit code of the post-script, which decides whether the attempt succeeded.
    PostScriptExit(i32),
}

/// One event of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEvent {
    /// Seconds since the epoch.
    pub at: f64,
    pub task: String,
    /// What identifies the attempt, if the log has it: a sequence number or the id of the batch job.
    pub attempt: Option<String>,
    pub kind: EventKind,
}
