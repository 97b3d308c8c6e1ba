//! Control of long operations: cancellation, on request or at a deadline, and progress.

use std::fmt;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request to stop, shared by whoever asks and whoever works. Clones refer to the same request.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    requested: Arc<(Mutex<bool>, Condvar)>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Stops by itself after `length`, if there is one.
    pub fn after(length: Option<Duration>) -> Self {
        let deadline = length.and_then(|length| Instant::now().checked_add(length));
        Self { requested: Arc::default(), deadline }
    }

    /// The same request, with a deadline after `length`, if there is one.
    #[must_use]
    pub fn with_deadline(&self, length: Option<Duration>) -> Self {
        Self { requested: self.requested.clone(), ..Self::after(length) }
    }

    /// Asks everyone who holds a clone to stop.
    pub fn now(&self) {
        *self.requested.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.requested.1.notify_all();
    }

    /// Whether it is time to stop. Cheap enough for every step of a loop that takes microseconds.
    pub fn is_set(&self) -> bool {
        let is_requested = *self.requested.0.lock().unwrap_or_else(PoisonError::into_inner);
        is_requested || self.is_past_deadline()
    }

    /// Waits for `length` at most; true if it is time to stop.
    pub fn wait(&self, length: Duration) -> bool {
        let rest = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let length = rest.map_or(length, |rest| rest.min(length));
        let is_requested = self.requested.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.requested.1.wait_timeout_while(is_requested, length, |is_requested| !*is_requested);
        let is_requested = *waited.unwrap_or_else(PoisonError::into_inner).0;
        is_requested || self.is_past_deadline()
    }

    /// An error if it is time to stop, so that `?` ends a long operation.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.is_set() { Err(Stopped) } else { Ok(()) }
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// What a long operation is given: when to stop, and whom to tell how far it has come.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    stop: &'a Stop,
    progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl<'a> Control<'a> {
    /// `progress` is called with how much is done, and of how much; several threads may call it at once.
    pub fn new(stop: &'a Stop, progress: &'a (dyn Fn(u64, u64) + Sync)) -> Self {
        Self { stop, progress }
    }

    /// Reports progress; an error if it is time to stop.
    pub fn report(&self, done: u64, total: u64) -> Result<(), Stopped> {
        (self.progress)(done, total);
        self.check()
    }

    /// An error if it is time to stop.
    pub fn check(&self) -> Result<(), Stopped> {
        self.stop.check()
    }

    /// The request to stop.
    pub fn stop(&self) -> &'a Stop {
        self.stop
    }
}

impl Default for Control<'_> {
    /// Runs to the end, and reports to nobody.
    fn default() -> Self {
        static NEVER: LazyLock<Stop> = LazyLock::new(Stop::default);
        Self { stop: &NEVER, progress: &|_, _| {} }
    }
}

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("stop", self.stop).finish_non_exhaustive()
    }
}

/// A long operation ended early because it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before it was finished")]
pub struct Stopped;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_request() {
        let stop = Stop::default();
        let other = stop.clone();
        assert_eq!(stop.check(), Ok(()));
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(3_600)));
        stop.now();
        assert!(waiting.join().unwrap());
        assert_eq!(stop.check(), Err(Stopped));
    }

    #[test]
    fn a_report_tells_and_then_stops() {
        let (stop, told) = (Stop::default(), Mutex::new(Vec::new()));
        let tell = |done, total| {
            told.lock().unwrap().push((done, total));
            if done == 2 {
                stop.now();
            }
        };
        let control = Control::new(&stop, &tell);
        let outcome = (1..10).try_for_each(|done| control.report(done, 9));
        assert_eq!(outcome, Err(Stopped));
        assert_eq!(*told.lock().unwrap(), [(1, 9), (2, 9)]);
        assert_eq!(Control::default().report(1, 1), Ok(()));
    }

    #[test]
    fn a_deadline_stops_without_a_request() {
        let stop = Stop::after(Some(Duration::from_millis(5)));
        assert!(stop.wait(Duration::from_secs(3_600)));
        assert!(stop.is_set());
        assert!(!Stop::after(None).is_set());
    }
}
