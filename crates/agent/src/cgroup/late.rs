//! Questions whose answers may be late. The working directory of a job can lie on a file server that does
//! not answer, and a read from there cannot be interrupted. So it is read in a thread of its own, and the
//! clock goes on without the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How many threads may wait for a file server at once.
const MOST_WAITING: usize = 4;

/// The answers that are awaited, by what was asked about.
#[derive(Debug)]
pub struct LateAnswers {
    /// How long to wait for an answer if none is late.
    patience: Duration,
    awaited: BTreeMap<String, Receiver<Option<String>>>,
    /// Each thread holds one.
    waiting: Arc<()>,
}

impl LateAnswers {
    pub fn new(patience: Duration) -> Self {
        Self { patience, awaited: BTreeMap::new(), waiting: Arc::default() }
    }

    /// Asks in a thread of its own. `None` if there is no answer, or none yet; then [`Self::take`] has it
    /// later.
    pub fn ask(
        &mut self,
        about: &str,
        question: impl FnOnce() -> Option<String> + Send + 'static,
    ) -> Option<String> {
        if self.awaited.contains_key(about) || Arc::strong_count(&self.waiting) > MOST_WAITING {
            return None;
        }
        let (sender, answer) = channel();
        let waiting = self.waiting.clone();
        let work = move || {
            let _ = sender.send(question());
            drop(waiting);
        };
        std::thread::Builder::new().name("late answer".into()).spawn(work).ok()?;
        let patience = if self.awaited.is_empty() { self.patience } else { Duration::ZERO };
        match answer.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.awaited.insert(about.to_owned(), answer);
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// An answer that has come since.
    pub fn take(&mut self, about: &str) -> Option<String> {
        let answer = self.awaited.get(about)?.try_recv().ok()?;
        self.awaited.remove(about);
        answer
    }

    /// Whatever was asked about is gone.
    pub fn forget(&mut self, about: &str) {
        self.awaited.remove(about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;
    use std::time::Instant;

    /// A question that is answered when the sender is dropped or used.
    fn stuck() -> (Sender<()>, impl FnOnce() -> Option<String> + Send + 'static) {
        let (release, released) = channel::<()>();
        (release, move || {
            let _ = released.recv();
            Some("late".to_owned())
        })
    }

    #[test]
    fn an_answer_that_is_there_in_time_is_returned_at_once() {
        let mut answers = LateAnswers::new(Duration::from_secs(10));
        assert_eq!(answers.ask("a", || Some("120.3".into())), Some("120.3".into()));
        assert_eq!(answers.ask("a", || None), None);
        assert!(answers.awaited.is_empty());
    }

    #[test]
    fn a_question_that_hangs_delays_nobody_and_its_answer_is_had_later() {
        let mut answers = LateAnswers::new(Duration::from_millis(20));
        let (release, question) = stuck();
        let begun = Instant::now();
        assert_eq!(answers.ask("a", question), None);
        for _ in 0..1_000 {
            assert_eq!(answers.ask("a", || panic!("asked twice")), None);
            assert_eq!(answers.take("a"), None);
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop(release);
        let found = (0..1_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            answers.take("a")
        });
        assert_eq!(found, Some("late".into()));
    }

    #[test]
    fn only_so_many_threads_hang() {
        let mut answers = LateAnswers::new(Duration::from_millis(1));
        let releases: Vec<Sender<()>> = (0..MOST_WAITING)
            .map(|number| {
                let (release, question) = stuck();
                assert_eq!(answers.ask(&number.to_string(), question), None);
                answers.forget(&number.to_string());
                release
            })
            .collect();
        assert_eq!(answers.ask("one more", || panic!("asked")), None);
        drop(releases);
    }
}
