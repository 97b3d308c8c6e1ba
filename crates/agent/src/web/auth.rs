//! Basic authentication against hashed passwords.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};

/// Checking a hash takes a tenth of a second on purpose, so successful logins are cached.
const MOST_REMEMBERED: usize = 100;
/// How long to wait for one's turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// Checked when there is no such user, so that the response takes as long.
const NOBODYS_HASH: &str = "$2b$10$Ro0CUfOqk6cXEKf3dyaM7OhSCvnwM9s4wIX9JeLapehKK5YdLxKcm";

#[derive(Debug)]
pub struct Users {
    hashes: BTreeMap<String, String>,
    admitted: Arc<Mutex<HashSet<Vec<u8>>>>,
    /// One comparison at a time, even for closed connections, so that strangers cannot use all CPUs.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Users {
    pub fn new(hashes: BTreeMap<String, String>) -> Self {
        Self { hashes, admitted: Arc::default(), turn: Arc::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether a request has a user and the right password. Without users, every request is accepted.
    pub async fn admit(&self, headers: &HeaderMap) -> bool {
        if self.hashes.is_empty() {
            return true;
        }
        let Some((user, password)) = credentials(headers) else { return false };
        let key = digest(&SHA256, format!("{}:{user}{password}", user.len()).as_bytes()).as_ref().to_vec();
        let admitted = || self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        if admitted().contains(&key) {
            return true;
        }
        let known = self.hashes.get(&user).cloned();
        let is_known = known.is_some();
        let hash = known.unwrap_or_else(|| NOBODYS_HASH.to_owned());
        let Ok(turn) = tokio::time::timeout(PATIENCE, self.turn.clone().lock_owned()).await else {
            return false;
        };
        let compare = move || {
            let _turn = turn;
            bcrypt::verify(password, &hash)
        };
        let compared = tokio::task::spawn_blocking(compare).await;
        let is_right = matches!(compared, Ok(Ok(true))) && is_known;
        if is_right {
            let mut admitted = admitted();
            if admitted.len() == MOST_REMEMBERED {
                admitted.clear();
            }
            admitted.insert(key);
        }
        is_right
    }
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

    #[test]
    fn a_user_who_is_not_there_is_compared_as_slowly_as_one_who_is() {
        let parts: bcrypt::HashParts = NOBODYS_HASH.parse().unwrap();
        assert_eq!(parts.get_cost(), 10);
        assert!(!bcrypt::verify("", NOBODYS_HASH).unwrap());
    }
}
