//! Limits on what clients may ask for: requests per second, failed logins, time, connections per address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::HttpBody;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use crate::counts::add;
use crate::service::Service;
use crate::settings::LoginSettings;

/// Addresses that are remembered. Beyond that, those that have waited longest are forgotten.
const MAX_ADDRESSES: usize = 100_000;
/// Failed logins of one address per second, when it has used up those of the settings.
const FAILURES_PER_SECOND: f64 = 0.2;
/// A client may send the requests of so many seconds at once.
const BURST_SECONDS: f64 = 10.0;
/// A request body of this size has arrived with its head.
const MAX_READ_AT_ONCE: u64 = 4_096;
/// How long a client may take to send a file.
const MAX_UPLOAD_TIME: Duration = Duration::from_secs(600);

/// How often something may happen.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub per_second: f64,
    pub burst: f64,
}

/// Counts what addresses do.
#[derive(Debug)]
pub struct Buckets {
    rate: Rate,
    of: Mutex<BTreeMap<IpAddr, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn filled(self, rate: Rate, now: Instant) -> Self {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        Self { left: (self.left + gained).min(rate.burst), at: now }
    }
}

impl Buckets {
    pub fn new(rate: Rate) -> Self {
        Self { rate, of: Mutex::default() }
    }

    /// For requests, at a rate of the settings.
    pub fn of_requests(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self::new(Rate { per_second, burst: per_second * BURST_SECONDS })
    }

    /// For logins that failed.
    pub fn of_failures(most: u32) -> Self {
        Self::new(Rate { per_second: FAILURES_PER_SECOND, burst: f64::from(most) })
    }

    fn with<T>(&self, address: IpAddr, now: Instant, change: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= MAX_ADDRESSES {
            let rate = self.rate;
            of.retain(|_, bucket| bucket.filled(rate, now).left < rate.burst);
            if of.len() >= MAX_ADDRESSES {
                of.clear();
            }
        }
        let full = Bucket { left: self.rate.burst, at: now };
        let bucket = of.entry(address.to_canonical()).or_insert(full);
        *bucket = bucket.filled(self.rate, now);
        change(bucket)
    }

    /// Whether an address may do it once more; if so, that is counted.
    pub fn take(&self, address: IpAddr, now: Instant) -> bool {
        self.with(address, now, |bucket| {
            let is_left = bucket.left >= 1.0;
            if is_left {
                bucket.left -= 1.0;
            }
            is_left
        })
    }

    /// Whether an address has none left.
    pub fn is_empty(&self, address: IpAddr, now: Instant) -> bool {
        self.with(address, now, |bucket| bucket.left < 1.0)
    }
}

/// The connections of each address.
#[derive(Debug, Default)]
pub struct Connections(Mutex<BTreeMap<IpAddr, usize>>);

impl Connections {
    /// A place for one more connection of an address, if it has fewer than `most`.
    pub fn place(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = address.to_canonical();
        let mut of = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n_open = of.entry(address).or_default();
        if *n_open >= most {
            return None;
        }
        *n_open += 1;
        Some(Place { address, connections: self.clone() })
    }
}

/// The place of a connection.
#[derive(Debug)]
pub struct Place {
    address: IpAddr,
    connections: Arc<Connections>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of = self.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n_open) = of.get_mut(&self.address) {
            *n_open -= 1;
            if *n_open == 0 {
                of.remove(&self.address);
            }
        }
    }
}

/// The address that a request comes from.
pub fn peer(request: &Request) -> IpAddr {
    let unknown = IpAddr::from([0, 0, 0, 0]);
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or(unknown, |ConnectInfo(peer)| peer.ip().to_canonical())
}

/// The address of the client: that which a trusted proxy names last, or that of the connection.
pub fn client(request: &Request, login: &LoginSettings) -> IpAddr {
    let peer = peer(request);
    let forwarded = request.headers().get_all("x-forwarded-for").iter().next_back();
    let last = forwarded.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
    match last {
        Some(address) if login.is_proxy(peer) => address,
        _ => peer,
    }
}

/// A response to a client that has to wait.
pub fn too_many(what: &str) -> Response {
    let error = ApiError {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "too_many_requests",
        message: what.to_owned(),
    };
    let mut response = error.into_response();
    response.headers_mut().insert(axum::http::header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Closes the connection after a refusal whose request may not have been read to its end, and says so. Otherwise a client
/// would send its next request on a connection that is about to be closed.
pub async fn close_after_refusal(request: Request, next: Next) -> Response {
    let may_be_unread = request.body().size_hint().upper().is_none_or(|upper| upper > MAX_READ_AT_ONCE);
    let mut response = next.run(request).await;
    if may_be_unread && response.status().is_client_error() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Refuses requests beyond the limits. Remote write has limits of its own: a sender that is told to slow down by 429
/// would throw samples away.
pub async fn check(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    if request.uri().path() == super::WRITE {
        return next.run(request).await;
    }
    let settings = service.settings();
    if !service.requests.take(client(&request, &settings.login), Instant::now()) {
        add(&service.counts.refused_requests, 1);
        return too_many("too many requests of this address; slow down");
    }
    let patience = settings.limits.request_time.0;
    // A file takes as long as it takes to send it.
    let patience = if request.method() == Method::PUT { patience.max(MAX_UPLOAD_TIME) } else { patience };
    answer_within(patience, next.run(request)).await
}

/// The answer, or an error if it takes too long.
async fn answer_within(patience: Duration, answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
        let error = ApiError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "timeout",
            message: "the answer took too long; ask for less".into(),
        };
        error.into_response()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_asks_too_often_waits_and_others_do_not() {
        let buckets = Buckets::new(Rate { per_second: 2.0, burst: 5.0 });
        let (now, [one, other]) = (Instant::now(), [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from));
        assert_eq!((0..9).filter(|_| buckets.take(one, now)).count(), 5);
        assert!(buckets.is_empty(one, now) && buckets.take(other, now));
        let later = now + Duration::from_secs(1);
        assert_eq!((0..9).filter(|_| buckets.take(one, later)).count(), 2);
    }

    #[test]
    fn an_address_has_so_many_connections() {
        let connections = Arc::new(Connections::default());
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let places: Vec<Option<Place>> = (0..3).map(|_| connections.place(one, 2)).collect();
        assert_eq!(places.iter().flatten().count(), 2);
        assert!(connections.place(other, 2).is_some());
        drop(places);
        assert!(connections.0.lock().unwrap().is_empty());
    }
}
