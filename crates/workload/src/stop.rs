//! Cancellation: one handle that ends waiting threads and long loops, on request or at a deadline.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
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
    fn a_deadline_stops_without_a_request() {
        let stop = Stop::after(Some(Duration::from_millis(5)));
        assert!(stop.wait(Duration::from_secs(3_600)));
        assert!(stop.is_set());
        assert!(!Stop::after(None).is_set());
    }
}
