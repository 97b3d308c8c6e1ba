//! What happened to tasks, one happening after the other, put together into attempts. Every log is read as
//! happenings, whole or as it grows, so that retries, holds and evictions are understood in one place.

use std::collections::{BTreeMap, HashMap};

use crate::workflow::{Span, TaskAttempt, TaskName};

use super::{Recording, kind};

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    PreScriptStarted,
    PreScriptEnded,
    /// Nothing comes after a pre-script that failed.
    PreScriptFailed(i32),
    Submitted,
    /// On a machine, if the log says which.
    Executing(Option<String>),
    /// Its files are brought to its machine, which is part of its execution; so is bringing them back.
    StageInStarted,
    StageInEnded,
    StageOutStarted,
    StageOutEnded,
    /// Its execution is over; the exit code may come later.
    Terminated(Option<i32>),
    Exited(i32),
    Held,
    Released,
    /// Taken off its machine; it waits again.
    Evicted,
    Aborted,
    PostScriptStarted,
    PostScriptEnded,
    /// What the post-script made of it.
    Judged(i32),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Happening {
    pub at: f64,
    pub task: String,
    /// Tells attempts apart, where the log does: a sequence number, or the number of the batch job.
    pub attempt: Option<String>,
    pub what: What,
}

#[derive(Debug, Clone, Default)]
struct Open {
    pre_script: Option<f64>,
    stage_in: Option<f64>,
    executing: Option<f64>,
    stage_out: Option<f64>,
    terminated: Option<f64>,
    post_script: Option<f64>,
    /// Whether the log has a name for this attempt.
    has_key: bool,
    is_closed: bool,
}

/// Attempts as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Assembly {
    attempts: Vec<TaskAttempt>,
    open: Vec<Open>,
    /// The last attempt of each task.
    last: HashMap<String, usize>,
    by_key: HashMap<(String, String), usize>,
    children: BTreeMap<String, Vec<String>>,
    begun: Option<f64>,
    n_begun: usize,
    is_over: bool,
    pub warnings: Vec<String>,
    n_backwards: usize,
}

impl Assembly {
    /// The workflow system started.
    pub fn begin(&mut self, at: f64) {
        self.n_begun += 1;
        self.is_over = false;
        self.begun = Some(self.begun.map_or(at, |begun: f64| begun.min(at)));
    }

    /// The workflow system ended.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn edge(&mut self, parent: &str, child: &str) {
        self.children.entry(parent.to_owned()).or_default().push(child.to_owned());
    }

    pub fn take(&mut self, happening: Happening) {
        let Happening { at, task, attempt, what } = happening;
        let index = self.attempt_of(&task, attempt, &what);
        let (one, open) = (&mut self.attempts[index], &mut self.open[index]);
        let mut span = |start: Option<f64>, end: f64| {
            let start = start?;
            if end < start {
                self.n_backwards += 1;
            }
            Span::new(start, end.max(start)).ok()
        };
        match what {
            What::PreScriptStarted => open.pre_script = Some(at),
            What::PreScriptEnded => one.pre_script = span(open.pre_script, at),
            What::PreScriptFailed(code) => {
                one.pre_script = one.pre_script.or_else(|| span(open.pre_script, at));
                one.exit_code = Some(code);
                open.is_closed = true;
            }
            What::Submitted => one.submitted = Some(at),
            What::Executing(host) => {
                open.executing = open.stage_in.or(Some(at));
                open.terminated = None;
                one.execution = None;
                one.host = host.or(one.host.take());
            }
            What::StageInStarted => open.stage_in = Some(at),
            What::StageInEnded => one.stage_in = span(open.stage_in, at),
            What::StageOutStarted => open.stage_out = Some(at),
            What::StageOutEnded => one.stage_out = span(open.stage_out, at),
            What::Terminated(code) => {
                // A second word on the same end (the log of the job, then that of the node) adds nothing.
                if open.terminated.is_none() {
                    open.terminated = Some(at);
                    one.execution = span(open.executing, at);
                }
                one.exit_code = code.or(one.exit_code);
            }
            What::Exited(code) | What::Judged(code) => {
                if one.exit_code.is_none_or(|known| known == 0) {
                    one.exit_code = Some(code);
                }
                if let (What::Judged(_), Some(_)) = (&what, open.post_script) {
                    one.post_script = span(open.post_script, at);
                    open.is_closed = true;
                }
            }
            What::Held | What::Evicted => {
                one.n_interruptions += 1;
                (open.stage_in, open.executing, open.stage_out, open.terminated) = (None, None, None, None);
                (one.stage_in, one.execution, one.stage_out) = (None, None, None);
            }
            What::Released => {}
            What::Aborted => {
                one.execution = span(open.executing, at);
                one.exit_code = one.exit_code.filter(|code| *code != 0).or(Some(-1));
            }
            What::PostScriptStarted => open.post_script = Some(at),
            What::PostScriptEnded => one.post_script = span(open.post_script, at),
        }
    }

    /// Attempts at tasks that had succeeded before.
    fn n_again(&self) -> usize {
        let mut has_succeeded: HashMap<&str, bool> = HashMap::new();
        let mut n_again = 0;
        for one in &self.attempts {
            let before = has_succeeded.insert(&one.task.0, one.exit_code == Some(0));
            n_again += usize::from(before == Some(true));
        }
        n_again
    }

    /// A task of the graph that waits for itself, if there is one.
    fn in_a_cycle(&self) -> Option<&str> {
        let mut n_parents: BTreeMap<&str, usize> = BTreeMap::new();
        for (parent, children) in &self.children {
            n_parents.entry(parent).or_default();
            children.iter().for_each(|child| *n_parents.entry(child).or_default() += 1);
        }
        // Whatever waits for nothing is taken away, again and again; cycles stay, and what waits for them.
        let mut free: Vec<&str> = n_parents.iter().filter(|(_, n)| **n == 0).map(|(task, _)| *task).collect();
        while let Some(task) = free.pop() {
            for child in self.children.get(task).into_iter().flatten() {
                if let Some(n) = n_parents.get_mut(child.as_str()) {
                    *n -= 1;
                    if *n == 0 {
                        free.push(child);
                    }
                }
            }
            n_parents.remove(task);
        }
        // Whatever stays has a parent that stays: going up long enough ends in a cycle.
        let mut above: BTreeMap<&str, &str> = BTreeMap::new();
        for (parent, children) in
            self.children.iter().filter(|(parent, _)| n_parents.contains_key(parent.as_str()))
        {
            children.iter().for_each(|child| _ = above.insert(child, parent));
        }
        let first = n_parents.keys().next().copied()?;
        Some((0..n_parents.len()).fold(first, |task, _| above.get(task).copied().unwrap_or(task)))
    }

    fn attempt_of(&mut self, task: &str, key: Option<String>, what: &What) -> usize {
        let last = self.last.get(task).copied();
        let found = match &key {
            Some(key) => self.by_key.get(&(task.to_owned(), key.clone())).copied().or_else(|| {
                // What came before the submission did not know its number yet.
                last.filter(|at| !self.open[*at].has_key && !self.open[*at].is_closed)
            }),
            None => last,
        };
        let begins_anew = key.is_none()
            && match what {
                _ if found.is_some_and(|at| self.open[at].is_closed) => {
                    matches!(what, What::Submitted | What::PreScriptStarted)
                }
                What::Submitted => found.is_some_and(|at| self.attempts[at].submitted.is_some()),
                What::PreScriptStarted => found.is_some_and(|at| self.open[at].pre_script.is_some()),
                _ => false,
            };
        let index = match found {
            Some(at) if !begins_anew => at,
            _ => {
                let (role, kind) = kind::by_name(task);
                let number = last.map_or(1, |at| self.attempts[at].attempt + 1);
                self.attempts.push(TaskAttempt::new(task, role, kind, number));
                self.open.push(Open::default());
                self.last.insert(task.to_owned(), self.attempts.len() - 1);
                self.attempts.len() - 1
            }
        };
        if let Some(key) = key {
            self.open[index].has_key = true;
            self.by_key.insert((task.to_owned(), key), index);
        }
        index
    }

    /// Everything that is known now; what still runs has no execution yet.
    pub fn recording(&self, name: &str) -> Recording {
        let mut recording = Recording::new(name);
        let now = |(one, open): (&TaskAttempt, &Open)| TaskAttempt {
            running_since: open.executing.filter(|_| !one.is_over() && !self.is_over),
            ..one.clone()
        };
        recording.run.attempts = self.attempts.iter().zip(&self.open).map(now).collect();
        recording.warnings = self.warnings.clone();
        if self.n_backwards > 0 {
            recording.warn(format!(
                "{} stretches ended before they started, by the clocks that wrote them; they count as nothing",
                self.n_backwards
            ));
        }
        if self.n_begun > 1 {
            recording.warn(format!(
                "the workflow was started {} times in this log: what was restarted is put together, and so are several workflows",
                self.n_begun
            ));
        }
        let n_again = self.n_again();
        if n_again > 0 && self.n_begun < 2 {
            recording.warn(format!(
                "{n_again} tasks were submitted again after they had succeeded: there may be several workflows in this log"
            ));
        }
        if let Some(one) = self.in_a_cycle() {
            recording.warn(format!(
                "{one} waits for itself through the graph: since when it was ready is a guess"
            ));
        }
        let known: HashMap<&str, usize> = self.last.iter().map(|(task, at)| (task.as_str(), *at)).collect();
        let mut parents: HashMap<&str, Vec<&str>> = HashMap::new();
        for (parent, children) in &self.children {
            for child in children {
                parents.entry(child).or_default().push(parent);
            }
            let names = children.iter().cloned().map(TaskName).collect();
            recording.run.children.insert(TaskName(parent.clone()), names);
        }
        for (at, attempt) in recording.run.attempts.iter_mut().enumerate() {
            if attempt.attempt > 1 {
                continue;
            }
            let over = |parent: &&str| known.get(parent).and_then(|at| self.attempts[*at].end());
            let ends = parents.get(self.attempts[at].task.0.as_str()).into_iter().flatten().filter_map(over);
            // Without a graph nothing says since when a task could have been submitted.
            let begun = self.begun.filter(|_| !self.children.is_empty());
            let moment = ends.max_by(f64::total_cmp).or(begun);
            let first = attempt.pre_script.map(Span::start).or(attempt.submitted);
            attempt.ready = match (moment, first) {
                (Some(moment), Some(first)) => Some(moment.min(first)),
                (None, first) => first,
                (moment, None) => moment,
            };
        }
        // A retry is ready when the attempt before it is over.
        let mut ends: HashMap<String, f64> = HashMap::new();
        for attempt in &mut recording.run.attempts {
            if attempt.attempt > 1 {
                attempt.ready = ends.get(&attempt.task.0).copied().or(attempt.submitted);
            }
            if let Some(end) = attempt.end() {
                ends.insert(attempt.task.0.clone(), end);
            }
        }
        recording
    }

    /// A task turns out to be called otherwise: its attempts are further ones of that task.
    pub fn rename(&mut self, from: &str, to: &str) {
        if self.last.remove(from).is_none() {
            return;
        }
        let (role, kind) = kind::by_name(to);
        let mut number = self.last.get(to).map_or(0, |last| self.attempts[*last].attempt);
        for (at, attempt) in self.attempts.iter_mut().enumerate().filter(|(_, one)| one.task.0 == from) {
            number += 1;
            (attempt.task, attempt.role, attempt.kind, attempt.attempt) =
                (TaskName(to.into()), role, kind.clone(), number);
            self.last.insert(to.to_owned(), at);
        }
        let keys: Vec<(String, String)> =
            self.by_key.keys().filter(|(task, _)| task == from).cloned().collect();
        for key in keys {
            if let Some(at) = self.by_key.remove(&key) {
                self.by_key.insert((to.to_owned(), key.1), at);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// An attempt by its number, for what a record of the execution itself knows better.
    pub fn numbered(&mut self, task: &str, number: u32) -> Option<&mut TaskAttempt> {
        self.attempts.iter_mut().find(|one| one.task.0 == task && one.attempt == number)
    }

    /// The last attempt of a task.
    pub fn newest(&mut self, task: &str) -> Option<&mut TaskAttempt> {
        let at = *self.last.get(task)?;
        self.attempts.get_mut(at)
    }
}
