//! Basic authentication against hashed passwords.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};

use super::guesses::Guesses;
use super::peer::Peer;

/// Checking a hash takes a tenth of a second on purpose, so successful logins are cached.
const MOST_REMEMBERED: usize = 100;
/// How long to wait for one's turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Salt and hash of a password that nobody has.
const NOBODYS: &str = "Ro0CUfOqk6cXEKf3dyaM7OhSCvnwM9s4wIX9JeLapehKK5YdLxKcm";

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// It has no user and password.
    Anonymous,
    WrongPassword,
    /// Too many passwords were wrong of late; this one was not compared.
    TooManyGuesses,
}

#[derive(Debug)]
pub struct Users {
    hashes: BTreeMap<String, Hash>,
    /// The highest cost of a hash. Every comparison that fails takes as long as one of this cost.
    cost: u32,
    admitted: Mutex<HashSet<Vec<u8>>>,
    /// One comparison at a time, even for closed connections, so that strangers cannot use all CPUs.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A password, hashed by bcrypt.
#[derive(Debug, Clone)]
pub struct Hash {
    text: String,
    cost: u32,
}

impl Hash {
    /// `None` if the text is not a hash.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: bcrypt::HashParts = text.parse().ok()?;
        Some(Self { text: text.to_owned(), cost: parts.get_cost() })
    }

    fn of_nobody(cost: u32) -> Self {
        Self { text: format!("$2b${cost:02}${NOBODYS}"), cost }
    }

    fn is_of(&self, password: &str) -> bool {
        bcrypt::verify(password, &self.text).unwrap_or(false)
    }
}

impl Users {
    pub fn new(hashes: BTreeMap<String, Hash>) -> Self {
        let cost = hashes.values().map(|hash| hash.cost).max().unwrap_or_default();
        Self { hashes, cost, admitted: Mutex::default(), turn: Arc::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether a request has a user and the right password. Without users, every request is accepted.
    pub async fn admit(&self, headers: &HeaderMap, peer: Peer, guesses: &Guesses) -> Admission {
        if self.hashes.is_empty() {
            return Admission::Admitted;
        }
        let Some((user, password)) = credentials(headers) else { return Admission::Anonymous };
        let key = digest(&SHA256, format!("{}:{user}{password}", user.len()).as_bytes()).as_ref().to_vec();
        let admitted = || self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        if admitted().contains(&key) {
            return Admission::Admitted;
        }
        if !guesses.may_try(peer, Instant::now()) {
            return Admission::TooManyGuesses;
        }
        let Ok(turn) = tokio::time::timeout(PATIENCE, self.turn.clone().lock_owned()).await else {
            guesses.give_back(peer);
            return Admission::TooManyGuesses;
        };
        let (hash, cost) = (self.hashes.get(&user).cloned(), self.cost);
        let compare = move || {
            let _turn = turn;
            is_right(hash, &password, cost)
        };
        if !tokio::task::spawn_blocking(compare).await.unwrap_or(false) {
            return Admission::WrongPassword;
        }
        guesses.give_back(peer);
        let mut admitted = admitted();
        if admitted.len() == MOST_REMEMBERED {
            admitted.clear();
        }
        admitted.insert(key);
        Admission::Admitted
    }
}

/// Compares a password. A wrong one takes as long as a hash of `cost`, whether there is such a user or not.
fn is_right(hash: Option<Hash>, password: &str, cost: u32) -> bool {
    let wrong_costs = match hash {
        Some(hash) if hash.is_of(password) => return true,
        // A comparison takes twice as long at the next higher cost: all of these together take as long as
        // is left.
        Some(hash) => hash.cost..cost,
        None => cost..cost + 1,
    };
    wrong_costs.for_each(|cost| {
        Hash::of_nobody(cost).is_of(password);
    });
    false
}

fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(password: &str, cost: u32) -> Hash {
        Hash::parse(&bcrypt::hash(password, cost).unwrap()).unwrap()
    }

    /// CPU time, which other tests do not disturb.
    fn seconds(work: impl FnOnce()) -> f64 {
        let now = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        let begun = now();
        work();
        now() - begun
    }

    #[test]
    fn a_user_who_is_not_there_takes_as_long_as_one_who_is() {
        let (cheap, dear) = (hash("secret", 5), hash("secret", 9));
        let users = Users::new([("a".into(), cheap.clone()), ("b".into(), dear.clone())].into());
        assert_eq!(users.cost, 9);
        let time = |hash: Option<Hash>| {
            let once = || seconds(|| assert!(!is_right(hash.clone(), "wrong", users.cost)));
            (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
        };
        let times = [time(None), time(Some(cheap)), time(Some(dear))];
        let (least, most) =
            (times.iter().copied().fold(f64::INFINITY, f64::min), times.iter().copied().fold(0.0, f64::max));
        assert!(most < 1.5 * least, "{times:?}");
    }

    #[test]
    fn nobodys_hash_is_one_and_has_no_password() {
        let nobody = Hash::of_nobody(4);
        assert_eq!(Hash::parse(&nobody.text).unwrap().cost, 4);
        assert!(!nobody.is_of(""));
    }
}
