//! Limits how often passwords may be wrong, of one peer and of all together: comparing one takes a tenth
//! of a second of CPU time on purpose.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::peer::Peer;

/// Of one peer: so many at once, and then one in this time.
const PER_PEER: Rate = Rate { burst: 10.0, refill: Duration::from_secs(5) };
/// Of all peers.
const IN_ALL: Rate = Rate { burst: 20.0, refill: Duration::from_secs(1) };
/// Those of `IN_ALL` that only a peer without a recent failure may use.
const RESERVED: f64 = 10.0;
const LOGGED_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: f64,
    /// How long it takes until one more is allowed.
    refill: Duration,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, tokens: rate.burst, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        self.give(passed.as_secs_f64() / self.rate.refill.as_secs_f64());
        self.filled = now;
    }

    fn give(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.rate.burst);
    }

    fn is_full(&self) -> bool {
        self.tokens >= self.rate.burst
    }
}

/// Who has guessed how often of late.
#[derive(Debug)]
pub struct Guesses(Mutex<Recent>);

#[derive(Debug)]
struct Recent {
    all: Bucket,
    /// Those that are not full. There are few, since each has taken from `all`.
    peers: BTreeMap<Peer, Bucket>,
    logged: Option<Instant>,
    n_unlogged: u64,
}

impl Guesses {
    pub fn new(now: Instant) -> Self {
        let all = Bucket::full(IN_ALL, now);
        Self(Mutex::new(Recent { all, peers: BTreeMap::new(), logged: None, n_unlogged: 0 }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Recent) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a password of this peer may be compared now. It counts as wrong unless [`Self::give_back`] follows.
    pub fn may_try(&self, peer: Peer, now: Instant) -> bool {
        self.with(|recent| {
            recent.all.fill(now);
            recent.peers.retain(|_, bucket| {
                bucket.fill(now);
                !bucket.is_full()
            });
            let reserved = if recent.peers.contains_key(&peer) { RESERVED } else { 0.0 };
            if recent.all.tokens < 1.0 + reserved {
                return false;
            }
            let own = recent.peers.entry(peer).or_insert_with(|| Bucket::full(PER_PEER, now));
            if own.tokens < 1.0 {
                return false;
            }
            own.tokens -= 1.0;
            recent.all.tokens -= 1.0;
            true
        })
    }

    /// The password was right, or not compared after all.
    pub fn give_back(&self, peer: Peer) {
        self.with(|recent| {
            recent.all.give(1.0);
            if let Some(own) = recent.peers.get_mut(&peer) {
                own.give(1.0);
            }
        });
    }

    /// Notes a failure: how many to log now, or `None` if it is too early to log again.
    pub fn to_log(&self, now: Instant) -> Option<u64> {
        self.with(|recent| {
            recent.n_unlogged += 1;
            let is_early = recent.logged.is_some_and(|logged| now.duration_since(logged) < LOGGED_EVERY);
            if is_early {
                return None;
            }
            recent.logged = Some(now);
            Some(std::mem::take(&mut recent.n_unlogged))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> Peer {
        Peer::Address([10, 0, 0, number].into())
    }

    fn n_tries(guesses: &Guesses, peer: Peer, now: Instant) -> usize {
        (0..100).filter(|_| guesses.may_try(peer, now)).count()
    }

    #[test]
    fn a_peer_may_guess_a_few_times_and_then_once_in_a_while() {
        let begun = Instant::now();
        let guesses = Guesses::new(begun);
        assert_eq!(n_tries(&guesses, peer(1), begun), 10);
        assert_eq!(n_tries(&guesses, peer(1), begun + Duration::from_secs(4)), 0);
        assert_eq!(n_tries(&guesses, peer(1), begun + Duration::from_secs(5)), 1);
        assert_eq!(n_tries(&guesses, peer(1), begun + Duration::from_secs(3_600)), 10);
    }

    #[test]
    fn those_who_guess_leave_room_for_those_who_have_not() {
        let begun = Instant::now();
        let guesses = Guesses::new(begun);
        let n_guessed: usize = (1..=5).map(|number| n_tries(&guesses, peer(number), begun)).sum();
        assert!(n_guessed <= 20, "{n_guessed}");
        let mut n_guessed = 0;
        for second in 1..=600 {
            let now = begun + Duration::from_secs(second);
            n_guessed += (1..=5).map(|number| n_tries(&guesses, peer(number), now)).sum::<usize>();
            assert!(second < 10 || guesses.may_try(peer(99), now), "after {second} s");
            guesses.give_back(peer(99));
        }
        assert!(n_guessed <= 700, "{n_guessed} in 600 s");
    }

    #[test]
    fn a_right_password_costs_nothing() {
        let begun = Instant::now();
        let guesses = Guesses::new(begun);
        for _ in 0..100 {
            assert!(guesses.may_try(peer(1), begun));
            guesses.give_back(peer(1));
        }
    }

    #[test]
    fn peers_that_have_stopped_are_forgotten() {
        let begun = Instant::now();
        let guesses = Guesses::new(begun);
        for number in 0..=255 {
            let now = begun + Duration::from_secs(u64::from(number));
            n_tries(&guesses, peer(number), now);
            assert!(guesses.with(|recent| recent.peers.len()) < 100);
        }
    }

    #[test]
    fn failures_are_logged_once_a_minute_with_their_number() {
        let begun = Instant::now();
        let guesses = Guesses::new(begun);
        assert_eq!(guesses.to_log(begun), Some(1));
        assert!((1..60).all(|second| guesses.to_log(begun + Duration::from_secs(second)).is_none()));
        assert_eq!(guesses.to_log(begun + Duration::from_secs(60)), Some(60));
    }
}
