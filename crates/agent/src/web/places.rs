//! How many connections there may be, in all and of one peer. Where places are short, the connection
//! that has been idle longest is closed, so that a client that holds many cannot keep others out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::peer::Peer;
use crate::counts::{Served, count};

/// A response that takes longer than this ends its connection, however steadily the client reads.
const LONGEST_RESPONSE: Duration = Duration::from_secs(120);
/// How often a connection is examined for that.
const EXAMINED_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    pub connections_per_peer: usize,
}

/// The places of all listeners together.
#[derive(Debug)]
pub struct Places {
    limits: Limits,
    served: Arc<Served>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// By number, in order of arrival.
    connections: BTreeMap<u64, Connection>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    peer: Peer,
    /// It waits for a request, or for the rest of one.
    is_idle: bool,
    /// When it became idle or busy.
    since: Instant,
    must_close: Arc<Notify>,
}

impl Places {
    pub fn new(limits: Limits, served: Arc<Served>) -> Arc<Self> {
        Arc::new(Self { limits, served, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; `None` if all that it could have are being answered.
    pub fn take(self: &Arc<Self>, peer: Peer, now: Instant) -> Option<Place> {
        let mut taken = self.taken();
        let n_of_peer = taken.connections.values().filter(|other| other.peer == peer).count();
        let has_room = if n_of_peer >= self.limits.connections_per_peer {
            self.close_idle(&mut taken, Some(peer))
        } else if taken.connections.len() >= self.limits.connections {
            self.close_idle(&mut taken, None)
        } else {
            true
        };
        if !has_room {
            count(&self.served.refused);
            return None;
        }
        let (number, must_close) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        let connection = Connection { peer, is_idle: true, since: now, must_close: must_close.clone() };
        taken.connections.insert(number, connection);
        Some(Place { places: self.clone(), number, must_close })
    }

    /// Closes the connection that has been idle longest, of this peer or of the one that has most.
    fn close_idle(&self, taken: &mut Taken, of: Option<Peer>) -> bool {
        let mut n_of = BTreeMap::<Peer, usize>::new();
        taken.connections.values().for_each(|one| *n_of.entry(one.peer).or_default() += 1);
        let idle =
            taken.connections.iter().filter(|(_, one)| one.is_idle && of.is_none_or(|of| one.peer == of));
        let longest = idle.min_by_key(|(_, one)| (n_of.get(&one.peer).map(|n| Reverse(*n)), one.since));
        let number = longest.map(|(number, _)| *number);
        let closed = number.and_then(|number| taken.connections.remove(&number));
        if let Some(connection) = &closed {
            connection.must_close.notify_one();
            count(&self.served.idle);
        }
        closed.is_some()
    }

    fn mark(&self, number: u64, is_idle: bool, now: Instant) {
        if let Some(connection) = self.taken().connections.get_mut(&number) {
            (connection.is_idle, connection.since) = (is_idle, now);
        }
    }
}

/// The place of one connection, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    must_close: Arc<Notify>,
}

impl Place {
    /// Completes when the connection has to be closed.
    pub async fn lost(&self) {
        loop {
            tokio::select! {
                () = self.must_close.notified() => return,
                () = tokio::time::sleep(EXAMINED_EVERY) => {}
            }
            if self.is_overdue(Instant::now()) {
                count(&self.places.served.slow);
                return;
            }
        }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let taken = self.places.taken();
        let connection = taken.connections.get(&self.number);
        connection.is_some_and(|one| !one.is_idle && now.duration_since(one.since) > LONGEST_RESPONSE)
    }

    /// A request has arrived. It is answered when the result is dropped.
    pub fn begin(&self, now: Instant) -> Busy {
        self.places.mark(self.number, false, now);
        Busy { places: self.places.clone(), number: self.number }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().connections.remove(&self.number);
    }
}

/// A connection that is being answered.
#[derive(Debug)]
pub struct Busy {
    places: Arc<Places>,
    number: u64,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.places.mark(self.number, true, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const LIMITS: Limits = Limits { connections: 4, connections_per_peer: 3 };

    fn peer(number: u8) -> Peer {
        Peer::Address([10, 0, 0, number].into())
    }

    fn is_open(places: &Places, place: &Place) -> bool {
        places.taken().connections.contains_key(&place.number)
    }

    #[test]
    fn a_peer_at_its_limit_loses_the_connection_that_was_idle_longest() {
        let places = Places::new(LIMITS, Arc::default());
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let held: Vec<Place> = (0..3).map(|n| places.take(peer(1), at(n)).unwrap()).collect();
        let _busy = held[0].begin(at(4));
        let last = places.take(peer(1), at(5)).unwrap();
        assert_eq!(held.iter().map(|place| is_open(&places, place)).collect::<Vec<_>>(), [true, false, true]);
        assert!(is_open(&places, &last));
        assert_eq!(places.served.idle.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_peer_whose_connections_are_all_busy_is_refused_and_others_are_not() {
        let places = Places::new(LIMITS, Arc::default());
        let now = Instant::now();
        let held: Vec<Place> = (0..3).map(|_| places.take(peer(1), now).unwrap()).collect();
        let busy: Vec<Busy> = held.iter().map(|place| place.begin(now)).collect();
        assert!(places.take(peer(1), now).is_none());
        assert!(places.take(peer(2), now).is_some());
        assert_eq!(places.served.refused.load(Ordering::Relaxed), 1);
        drop(busy);
        assert!(places.take(peer(1), now).is_some());
    }

    #[test]
    fn when_all_places_are_taken_the_peer_with_most_makes_room() {
        let places = Places::new(LIMITS, Arc::default());
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let modest = places.take(peer(2), at(0)).unwrap();
        let greedy: Vec<Place> = (1..4).map(|n| places.take(peer(1), at(n)).unwrap()).collect();
        let newcomer = places.take(peer(3), at(9)).unwrap();
        assert!(is_open(&places, &modest) && is_open(&places, &newcomer) && !is_open(&places, &greedy[0]));
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_ends() {
        let places = Places::new(LIMITS, Arc::default());
        let now = Instant::now();
        drop(places.take(peer(1), now));
        assert!(places.taken().connections.is_empty());
    }

    #[test]
    fn a_response_that_takes_too_long_is_overdue_and_an_idle_connection_is_not() {
        let places = Places::new(LIMITS, Arc::default());
        let begun = Instant::now();
        let place = places.take(peer(1), begun).unwrap();
        let later = begun + LONGEST_RESPONSE + Duration::from_secs(1);
        assert!(!place.is_overdue(later));
        let _busy = place.begin(begun);
        assert!(place.is_overdue(later));
    }
}
