//! Builds the attempts of a run from task events. Every log goes through this one place, whether it is read
//! whole or as it grows, so retries, holds and evictions mean the same for all formats.

use std::collections::{BTreeMap, HashMap};

use crate::graph::Graph;
use crate::workflow::{Span, TaskAttempt, TaskName};

use super::events::{EventKind, TaskEvent};
use super::{MAX_WARNINGS, Recording, RunState, kind, shortened};

/// Start times of what has not ended yet, for one attempt.
#[derive(Debug, Clone, Default)]
struct Open {
    pre_script: Option<f64>,
    stage_in: Option<f64>,
    executing: Option<f64>,
    stage_out: Option<f64>,
    terminated: Option<f64>,
    post_script: Option<f64>,
    /// Whether the log identifies this attempt.
    has_key: bool,
    is_closed: bool,
}

/// Where the attempts at a task are.
#[derive(Debug, Clone, Default)]
struct Places {
    by_number: BTreeMap<u32, usize>,
    /// By what identifies an attempt in the log.
    by_key: HashMap<String, usize>,
}

impl Places {
    fn last(&self) -> Option<(u32, usize)> {
        self.by_number.last_key_value().map(|(number, place)| (*number, *place))
    }

    /// Adds an attempt after all others and returns its number.
    fn push(&mut self, place: usize) -> u32 {
        let number = self.last().map_or(1, |(number, _)| number + 1);
        self.by_number.insert(number, place);
        number
    }
}

/// The attempts of a run, as far as events have told.
#[derive(Debug, Clone, Default)]
pub struct RunBuilder {
    attempts: Vec<TaskAttempt>,
    open: Vec<Open>,
    by_task: HashMap<String, Places>,
    graph: Graph,
    started: Option<f64>,
    n_started: usize,
    is_watched: bool,
    is_over: bool,
    warnings: Vec<String>,
    n_negative_periods: usize,
}

impl RunBuilder {
    /// The workflow system started at this time.
    pub fn start(&mut self, at: f64) {
        self.n_started += 1;
        self.is_over = false;
        self.started = Some(self.started.map_or(at, |started: f64| started.min(at)));
    }

    /// Something watches the workflow, which is about to start.
    pub fn watch(&mut self) {
        self.is_watched = true;
    }

    /// The workflow system ended.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// The graph, to add dependencies to.
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// How far the workflow is, as far as the log says it.
    pub fn state(&self) -> RunState {
        match self.is_over {
            true => RunState::Ended,
            false if self.is_watched || self.started.is_some() => RunState::Running,
            false => RunState::Unknown,
        }
    }

    /// Keeps a warning, unless there are too many already.
    pub fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(shortened(warning));
        }
    }

    pub fn apply(&mut self, event: TaskEvent) {
        let TaskEvent { at, task, attempt, kind } = event;
        let index = self.index_of(&task, attempt, &kind);
        let (one, open) = (&mut self.attempts[index], &mut self.open[index]);
        let mut period = |start: Option<f64>, end: f64| {
            let start = start?;
            if end < start {
                self.n_negative_periods += 1;
            }
            Span::new(start, end.max(start)).ok()
        };
        match kind {
            EventKind::PreScriptStarted => open.pre_script = Some(at),
            EventKind::PreScriptEnded => one.pre_script = period(open.pre_script, at),
            EventKind::PreScriptFailed(code) => {
                one.pre_script = one.pre_script.or_else(|| period(open.pre_script, at));
                one.exit_code = Some(code);
                open.is_closed = true;
            }
            EventKind::Submitted => one.submitted = Some(at),
            EventKind::Executing(host) => {
                end_hold(one, at);
                open.executing = open.stage_in.or(Some(at));
                open.terminated = None;
                one.execution = None;
                one.host = host.or(one.host.take());
            }
            EventKind::StageInStarted => open.stage_in = Some(at),
            EventKind::StageInEnded => one.stage_in = period(open.stage_in, at),
            EventKind::StageOutStarted => open.stage_out = Some(at),
            EventKind::StageOutEnded => one.stage_out = period(open.stage_out, at),
            EventKind::Terminated(code) => {
                // The end may be logged twice: by the log of the job, then by that of the node.
                if open.terminated.is_none() {
                    open.terminated = Some(at);
                    one.execution = period(open.executing, at);
                }
                one.exit_code = code.or(one.exit_code);
            }
            EventKind::Exited(code) | EventKind::PostScriptExit(code) => {
                if one.exit_code.is_none_or(|known| known == 0) {
                    one.exit_code = Some(code);
                }
                if let (EventKind::PostScriptExit(_), Some(_)) = (&kind, open.post_script) {
                    one.post_script = period(open.post_script, at);
                    open.is_closed = true;
                }
            }
            EventKind::Held | EventKind::Evicted => {
                one.n_interruptions += 1;
                if kind == EventKind::Held {
                    one.held_since = one.held_since.or(Some(at));
                }
                (open.stage_in, open.executing, open.stage_out, open.terminated) = (None, None, None, None);
                (one.stage_in, one.execution, one.stage_out) = (None, None, None);
            }
            EventKind::Released => end_hold(one, at),
            EventKind::Aborted => {
                end_hold(one, at);
                one.removed = one.removed.or(Some(at));
                if one.execution.is_none() {
                    one.execution = period(open.executing, at);
                }
                one.exit_code = one.exit_code.filter(|code| *code != 0).or(Some(-1));
            }
            EventKind::PostScriptStarted => open.post_script = Some(at),
            EventKind::PostScriptEnded => one.post_script = period(open.post_script, at),
        }
    }

    fn last(&self, task: &str) -> Option<usize> {
        self.by_task.get(task)?.last().map(|(_, place)| place)
    }

    fn index_of(&mut self, task: &str, key: Option<String>, kind: &EventKind) -> usize {
        let last = self.last(task);
        let found = match &key {
            Some(key) => self.by_task.get(task).and_then(|of| of.by_key.get(key).copied()).or_else(|| {
                // Events before the submission did not have the key yet.
                last.filter(|at| !self.open[*at].has_key && !self.open[*at].is_closed)
            }),
            None => last,
        };
        let is_new_attempt = key.is_none()
            && match kind {
                _ if found.is_some_and(|at| self.open[at].is_closed) => {
                    matches!(kind, EventKind::Submitted | EventKind::PreScriptStarted)
                }
                EventKind::Submitted => found.is_some_and(|at| self.attempts[at].submitted.is_some()),
                EventKind::PreScriptStarted => found.is_some_and(|at| self.open[at].pre_script.is_some()),
                _ => false,
            };
        let index = match found {
            Some(at) if !is_new_attempt => at,
            _ => {
                let (role, kind) = kind::from_name(task);
                let place = self.attempts.len();
                let number = self.by_task.entry(task.to_owned()).or_default().push(place);
                self.attempts.push(TaskAttempt::new(task, role, kind, number));
                self.open.push(Open::default());
                place
            }
        };
        if let (Some(key), Some(places)) = (key, self.by_task.get_mut(task)) {
            self.open[index].has_key = true;
            places.by_key.insert(key, index);
        }
        index
    }

    /// Gives the attempt with this key another task: it becomes the next attempt at the task of that name.
    pub fn rename(&mut self, from: &str, key: &str, to: &str) {
        let Some(places) = self.by_task.get_mut(from) else { return };
        let Some(place) = places.by_key.remove(key) else { return };
        let attempt = &mut self.attempts[place];
        places.by_number.remove(&attempt.attempt);
        if places.by_number.is_empty() {
            self.by_task.remove(from);
        }
        let (role, kind) = kind::from_name(to);
        let places = self.by_task.entry(to.to_owned()).or_default();
        places.by_key.insert(key.to_owned(), place);
        (attempt.task, attempt.role, attempt.kind, attempt.attempt) =
            (TaskName(to.into()), role, kind, places.push(place));
    }

    /// Every attempt, in the order of the log.
    pub fn attempts(&self) -> &[TaskAttempt] {
        &self.attempts
    }

    /// An attempt by its place, for details from the record of the execution.
    pub fn attempt_mut(&mut self, place: usize) -> Option<&mut TaskAttempt> {
        self.attempts.get_mut(place)
    }

    /// The attempt with this number at a task.
    pub fn numbered(&mut self, task: &str, number: u32) -> Option<&mut TaskAttempt> {
        let place = *self.by_task.get(task)?.by_number.get(&number)?;
        self.attempts.get_mut(place)
    }

    /// The last attempt at a task.
    pub fn newest(&mut self, task: &str) -> Option<&mut TaskAttempt> {
        let place = self.last(task)?;
        self.attempts.get_mut(place)
    }

    /// Attempts at tasks that had already succeeded.
    fn n_repeated(&self) -> usize {
        let mut has_succeeded: HashMap<&str, bool> = HashMap::new();
        let mut n_repeated = 0;
        for one in &self.attempts {
            let before = has_succeeded.insert(&one.task.0, one.exit_code == Some(0));
            n_repeated += usize::from(before == Some(true));
        }
        n_repeated
    }

    /// The run as known now. Running tasks have no execution yet.
    pub fn recording(&self, name: &str) -> Recording {
        let mut recording = Recording::new(name);
        let as_known = |(one, open): (&TaskAttempt, &Open)| TaskAttempt {
            running_since: open.executing.filter(|_| !one.is_over() && !self.is_over),
            ..one.clone()
        };
        recording.run.attempts = self.attempts.iter().zip(&self.open).map(as_known).collect();
        recording.warnings = self.warnings.clone();
        for warning in self.doubts() {
            recording.warn(warning);
        }
        recording.state = self.state();
        recording.run.graph = self.graph.clone();
        kind::settle(&mut recording.run);
        self.set_ready(&mut recording.run.attempts);
        recording
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.n_negative_periods > 0 {
            doubts.push(format!(
                "{} periods ended before they started, because clocks differ; their duration counts as zero",
                self.n_negative_periods
            ));
        }
        if self.n_started > 1 {
            doubts.push(format!(
                "the workflow was started {} times in this log; restarts and different workflows are merged into one run",
                self.n_started
            ));
        }
        let n_repeated = self.n_repeated();
        if n_repeated > 0 && self.n_started < 2 {
            doubts.push(format!(
                "{n_repeated} tasks were submitted again after they had succeeded; the log may contain several workflows"
            ));
        }
        if let Some(task) = self.graph.find_cycle() {
            doubts.push(format!("{} depends on itself; when it was ready is a guess", task.0));
        }
        doubts
    }

    /// A first attempt is ready when its parents are over, a retry when the attempt before it is.
    fn set_ready(&self, attempts: &mut [TaskAttempt]) {
        let end_of = |task: &TaskName| self.last(&task.0).and_then(|at| self.attempts[at].end());
        let parents_end = self.graph.largest_of_parents(end_of, f64::max);
        // Without a graph, nothing tells how long a task could have been submitted earlier.
        let started = self.started.filter(|_| !self.graph.is_empty());
        let mut previous_end: HashMap<String, f64> = HashMap::new();
        for attempt in attempts {
            if attempt.attempt > 1 {
                attempt.ready = previous_end.get(&attempt.task.0).copied().or(attempt.submitted);
            } else {
                let ready = parents_end.get(&attempt.task).copied().or(started);
                let first = attempt.pre_script.map(Span::start).or(attempt.submitted);
                attempt.ready = match (ready, first) {
                    (Some(ready), Some(first)) => Some(ready.min(first)),
                    (ready, first) => ready.or(first),
                };
            }
            if let Some(end) = attempt.end() {
                previous_end.insert(attempt.task.0.clone(), end);
            }
        }
    }
}

/// Ends the hold of an attempt, if it is held.
fn end_hold(attempt: &mut TaskAttempt, at: f64) {
    let since = attempt.held_since.take();
    attempt.holds.extend(since.and_then(|since| Span::new(since, at.max(since)).ok()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_found_by_number_after_a_rename() {
        let mut builder = RunBuilder::default();
        let submit = |task: &str, key: &str| TaskEvent {
            at: 1.0,
            task: task.into(),
            attempt: Some(key.into()),
            kind: EventKind::Submitted,
        };
        builder.apply(submit("a", "1"));
        builder.apply(submit("a", "2"));
        builder.apply(submit("unnamed", "3"));
        builder.rename("unnamed", "3", "a");
        for number in 1..=3 {
            assert_eq!(builder.numbered("a", number).map(|one| one.attempt), Some(number));
        }
        assert!(builder.numbered("a", 0).is_none() && builder.numbered("a", 4).is_none());
        assert!(builder.numbered("unnamed", 1).is_none());
    }
}
