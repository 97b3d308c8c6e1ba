//! Long operations that clients start: they have progress, can be cancelled, and end with a result. They are kept in
//! memory; a restart forgets them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value;
use workload::{Control, Stop, Timestamp};

use crate::learning::in_background;

/// Operations that run at the same time.
const MAX_RUNNING: usize = 2;
/// Operations that are remembered.
const MAX_KEPT: usize = 50;

/// How an operation ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Done(Value),
    Failed(String),
    Cancelled,
}

/// A long operation.
#[derive(Debug)]
pub struct Operation {
    pub number: u64,
    /// What it does, such as `backtest`.
    pub kind: &'static str,
    /// Who started it.
    pub actor: String,
    pub started: Timestamp,
    stop: Stop,
    done: AtomicU64,
    total: AtomicU64,
    outcome: Mutex<Option<Outcome>>,
}

impl Operation {
    /// How it ended; `None` while it runs.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_running(&self) -> bool {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The fraction that is done.
    pub fn progress(&self) -> f64 {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if total == 0 { 0.0 } else { (done as f64 / total as f64).min(1.0) }
    }

    /// Asks it to end.
    pub fn cancel(&self) {
        self.stop.now();
    }

    fn run(&self, work: impl FnOnce(Control<'_>) -> Result<Value, String> + Send) {
        let note = |done, total| {
            self.done.store(done, Ordering::Relaxed);
            self.total.store(total, Ordering::Relaxed);
        };
        let work = || in_background(|| work(Control::new(&self.stop, &note)));
        let outcome = match catch_unwind(AssertUnwindSafe(work)) {
            // It was complete before it noticed the request to end.
            Ok(Ok(result)) => Outcome::Done(result),
            _ if self.stop.is_set() => Outcome::Cancelled,
            Ok(Err(reason)) => Outcome::Failed(reason),
            Err(_) => Outcome::Failed("it ended with an internal error; see the log".into()),
        };
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
}

/// As many operations run as may.
#[derive(Debug, thiserror::Error)]
#[error("{MAX_RUNNING} operations are running; wait for one to end, or cancel one")]
pub struct Busy;

/// All operations.
#[derive(Debug, Default)]
pub struct Operations {
    all: Mutex<Vec<Arc<Operation>>>,
    last: AtomicU64,
}

impl Operations {
    /// Starts an operation in a thread of its own, of low priority.
    pub fn start(
        &self,
        kind: &'static str,
        actor: String,
        work: impl FnOnce(Control<'_>) -> Result<Value, String> + Send + 'static,
    ) -> Result<Arc<Operation>, Busy> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().filter(|operation| operation.is_running()).count() >= MAX_RUNNING {
            return Err(Busy);
        }
        let operation = Arc::new(Operation {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            kind,
            actor,
            started: Timestamp::from(SystemTime::now()),
            stop: Stop::default(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            outcome: Mutex::new(None),
        });
        let running = operation.clone();
        let thread = std::thread::Builder::new().name(kind.to_owned()).spawn(move || running.run(work));
        if thread.is_err() {
            return Err(Busy);
        }
        all.push(operation.clone());
        if all.len() > MAX_KEPT
            && let Some(oldest) = all.iter().position(|operation| !operation.is_running())
        {
            all.remove(oldest);
        }
        Ok(operation)
    }

    /// The operations that are remembered, the newest first.
    pub fn list(&self) -> Vec<Arc<Operation>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    pub fn find(&self, number: u64) -> Option<Arc<Operation>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|operation| operation.number == number).cloned()
    }

    /// Cancels all that run.
    pub fn end(&self) {
        self.list().iter().for_each(|operation| operation.cancel());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ended(operation: &Operation) -> Outcome {
        for _ in 0..1_000 {
            if let Some(outcome) = operation.outcome() {
                return outcome;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }

    #[test]
    fn operations_end_with_a_result_an_error_or_because_somebody_cancels_them() {
        let operations = Operations::default();
        let done = operations
            .start("one", "ann".into(), |control| {
                control.report(1, 4).map_err(|error| error.to_string())?;
                Ok(Value::from(7))
            })
            .unwrap();
        assert_eq!((ended(&done), done.progress()), (Outcome::Done(7.into()), 0.25));
        let failed = operations.start("two", "ann".into(), |_| Err("no data".into())).unwrap();
        assert_eq!(ended(&failed), Outcome::Failed("no data".into()));
        let panicked = operations.start("three", "ann".into(), |_| panic!("a test")).unwrap();
        assert!(matches!(ended(&panicked), Outcome::Failed(_)));

        let wait = |control: Control<'_>| {
            while !control.stop().wait(Duration::from_secs(10)) {}
            control.check().map(|()| Value::Null).map_err(|error| error.to_string())
        };
        let waiting = [1, 2].map(|_| operations.start("wait", "bob".into(), wait).unwrap());
        assert!(operations.start("wait", "bob".into(), wait).is_err(), "no more than two at a time");
        waiting[0].cancel();
        assert_eq!(ended(&waiting[0]), Outcome::Cancelled);
        operations.end();
        assert_eq!(ended(&waiting[1]), Outcome::Cancelled);
        let complete = |control: Control<'_>| {
            while !control.stop().wait(Duration::from_secs(10)) {}
            Ok(Value::from(3))
        };
        let complete = operations.start("complete", "bob".into(), complete).unwrap();
        complete.cancel();
        assert_eq!(ended(&complete), Outcome::Done(3.into()), "what has been done is not called cancelled");
        let numbers: Vec<u64> = operations.list().iter().map(|operation| operation.number).collect();
        assert_eq!(numbers, [6, 5, 4, 3, 2, 1]);
        assert!(operations.find(3).is_some() && operations.find(9).is_none());
    }
}
