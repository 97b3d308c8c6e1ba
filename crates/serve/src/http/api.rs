//! `/api/v1`: the state of the cluster, events, sessions.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use lifecycle::{EventFilter, RecordedChange, Secret};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::{JobId, Millis, NodeName, Timestamp};

use super::access::{SESSION_COOKIE, session_secret};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path, Query};
use super::limits::too_many;
use super::verdicts::VerdictsOfEvent;
use crate::live::{JobScore, NodeScores, NodeSummary, ThreadScore, score_byte};
use crate::service::Service;

const MAX_PAGE: usize = 1_000;
const N_SIMILAR: usize = 5;
pub const SESSION_LENGTH: Millis = Millis(12 * 3_600_000);
/// Changes that are read from the store at a time.
const N_CHANGES: i64 = 100;

pub type Shared = State<Arc<Service>>;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Where the next page begins; null if there is none.
    pub next: Option<String>,
}

impl<T> List<T> {
    pub fn whole(items: Vec<T>) -> Json<Self> {
        Json(Self { items, next: None })
    }
}

/// A node and its scores.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodeItem {
    #[schema(value_type = String)]
    pub node: NodeName,
    /// The end of its last windows, in seconds since 1970.
    #[schema(value_type = f64)]
    pub time: Timestamp,
    pub threads: usize,
    pub jobs: usize,
    /// The largest score; above 1 is anomalous.
    pub max_score: f64,
    pub p99_score: f64,
    /// Threads with a score above 1.
    pub anomalous_threads: usize,
}

impl From<NodeSummary> for NodeItem {
    fn from(one: NodeSummary) -> Self {
        Self {
            node: one.node,
            time: one.time,
            threads: one.n_threads,
            jobs: one.n_jobs,
            max_score: one.max_score,
            p99_score: one.p99_score,
            anomalous_threads: one.n_anomalous,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadItem {
    #[schema(value_type = u16)]
    pub cpu: workload::Cpu,
    pub score: f64,
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct JobItem {
    #[schema(value_type = String)]
    pub job: JobId,
    #[schema(value_type = String)]
    pub node: NodeName,
    pub score: f64,
    /// The mean reconstruction error of its threads.
    pub error: f64,
    pub threads: usize,
}

fn job_item(node: &NodeName, job: &JobId, score: &JobScore) -> JobItem {
    JobItem {
        job: job.clone(),
        node: node.clone(),
        score: score.score,
        error: score.error,
        threads: score.n_threads,
    }
}

/// A node with its threads and jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodeDetail {
    pub summary: NodeItem,
    pub threads: Vec<ThreadItem>,
    pub jobs: Vec<JobItem>,
}

/// The order of the rows in the plane of scores.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterState {
    pub cluster: String,
    /// The end of the newest windows, in seconds since 1970; null if nothing was scored yet.
    #[schema(value_type = Option<f64>)]
    pub time: Option<Timestamp>,
    /// The version of the model in use; null while there is none.
    pub model: Option<String>,
    /// What the service is doing.
    pub state: String,
    pub nodes: usize,
    pub threads: usize,
    pub open_events: usize,
    /// Nodes that stopped sending.
    pub missing: Vec<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ClusterQuery {
    /// `plane` returns one byte per thread, node by node, 100 is the threshold.
    pub format: Option<ClusterFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClusterFormat {
    Json,
    Plane,
}

/// The state of the cluster, or the scores of all threads as bytes.
#[utoipa::path(get, path = "/api/v1/cluster", params(ClusterQuery), tag = "cluster", responses(
    (status = 200, description = "the state, or with `format=plane` one byte per thread", body = ClusterState),
    (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn cluster(
    State(service): Shared,
    Query(query): Query<ClusterQuery>,
) -> Result<Response, ApiError> {
    let live = service.scoring.live();
    if query.format == Some(ClusterFormat::Plane) {
        return Ok(plane(&live.nodes));
    }
    let open = service.store.reported_events().await?;
    let missing = service.scoring.status().missing;
    Ok(Json(ClusterState {
        cluster: service.settings().cluster.clone(),
        time: live.time,
        model: service.scoring.model(),
        state: service.state(),
        nodes: live.nodes.len(),
        threads: live.nodes.values().map(|node| node.threads.len()).sum(),
        open_events: open.len(),
        missing: missing.into_iter().map(|one| one.node.to_string()).collect(),
    })
    .into_response())
}

/// One byte per thread. The header names the nodes and how many threads each has.
fn plane(nodes: &BTreeMap<NodeName, NodeScores>) -> Response {
    let rows: Vec<String> =
        nodes.iter().map(|(name, node)| format!("{name}={}", node.threads.len())).collect();
    let bytes: Vec<u8> =
        nodes.values().flat_map(|node| &node.threads).map(|thread| score_byte(thread.score)).collect();
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(rows) = HeaderValue::from_str(&rows.join(",")) {
        headers.insert("tracewise-rows", rows);
    }
    response
}

/// All nodes that are scored.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "cluster", responses(
    (status = 200, body = List<NodeItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn nodes(State(service): Shared) -> Json<List<NodeItem>> {
    List::whole(service.scoring.live().summaries().into_iter().map(NodeItem::from).collect())
}

/// One node with its threads and jobs.
#[utoipa::path(get, path = "/api/v1/nodes/{node}", params(("node" = String, Path)), tag = "cluster", responses(
    (status = 200, body = NodeDetail), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn node(State(service): Shared, Path(name): Path<String>) -> Result<Json<NodeDetail>, ApiError> {
    let live = service.scoring.live();
    let found = live.nodes.iter().find(|(node, _)| node.as_str() == name);
    let (name, node) =
        found.ok_or_else(|| ApiError::not_found(format!("there is no node {name:?} with scores")))?;
    let thread = |one: &ThreadScore| ThreadItem { cpu: one.cpu, score: one.score, job: one.job.clone() };
    Ok(Json(NodeDetail {
        summary: node.summary(name).into(),
        threads: node.threads.iter().map(thread).collect(),
        jobs: node.jobs.iter().map(|(job, score)| job_item(name, job, score)).collect(),
    }))
}

/// All jobs that are scored, the highest score first.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "cluster", responses(
    (status = 200, body = List<JobItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn jobs(State(service): Shared) -> Json<List<JobItem>> {
    let live = service.scoring.live();
    let of_node = |(name, node): (&NodeName, &NodeScores)| -> Vec<JobItem> {
        node.jobs.iter().map(|(job, score)| job_item(name, job, score)).collect()
    };
    let mut items: Vec<JobItem> = live.nodes.iter().flat_map(of_node).collect();
    items.sort_by(|a, b| b.score.total_cmp(&a.score));
    List::whole(items)
}

/// A job on all of its nodes, and its events.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobDetail {
    pub nodes: Vec<JobItem>,
    #[schema(value_type = Vec<super::event_schema::Event>)]
    pub events: Vec<lifecycle::RecordedEvent>,
}

/// One job.
#[utoipa::path(get, path = "/api/v1/jobs/{job}", params(("job" = String, Path)), tag = "cluster", responses(
    (status = 200, body = JobDetail), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn job(State(service): Shared, Path(name): Path<String>) -> Result<Json<JobDetail>, ApiError> {
    let not_found = || ApiError::not_found(format!("there is no job {name:?} with scores or events"));
    let job = JobId::new(&*name).map_err(|_| not_found())?;
    let live = service.scoring.live();
    let items =
        live.nodes.iter().filter_map(|(node, scores)| Some(job_item(node, &job, scores.jobs.get(&job)?)));
    let nodes: Vec<JobItem> = items.collect();
    let filter = EventFilter { job: Some(job.clone()), ..EventFilter::default() };
    let events = service.store.events(&filter, None, MAX_PAGE).await?.items;
    if nodes.is_empty() && events.is_empty() {
        return Err(not_found());
    }
    Ok(Json(JobDetail { nodes, events }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events of this node.
    pub node: Option<String>,
    /// Only events of this job.
    pub job: Option<String>,
    /// Only events that are open, or that are not.
    pub open: Option<bool>,
    /// Only events opened at or after this time, in seconds since 1970.
    pub from: Option<f64>,
    /// Only events opened before this time, in seconds since 1970.
    pub to: Option<f64>,
    /// Where the page begins: `next` of the page before.
    pub after: Option<String>,
    /// The largest number of events, at most 1,000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Events, the newest first.
#[utoipa::path(get, path = "/api/v1/events", params(EventsQuery), tag = "events", responses(
    (status = 200, body = List<super::event_schema::Event>), (status = 400, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn events(
    State(service): Shared,
    Query(query): Query<EventsQuery>,
) -> Result<Json<List<lifecycle::RecordedEvent>>, ApiError> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit must be between 1 and {MAX_PAGE}")));
    }
    let node = query
        .node
        .map(NodeName::new)
        .transpose()
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let job =
        query.job.map(JobId::new).transpose().map_err(|error| ApiError::bad_request(error.to_string()))?;
    let filter =
        EventFilter { node, job, is_open: query.open, from: time_of(query.from)?, to: time_of(query.to)? };
    let after = query.after.as_deref().map(cursor).transpose()?;
    let page = service.store.events(&filter, after.as_ref(), limit).await?;
    let next = page.next.map(|(time, id)| format!("{}-{id}", time.0));
    Ok(Json(List { items: page.items, next }))
}

/// A time in seconds since 1970.
pub fn time_of(seconds: Option<f64>) -> Result<Option<Timestamp>, ApiError> {
    match seconds {
        Some(seconds) if seconds.is_finite() && seconds.abs() < 1e12 => {
            Ok(Some(Timestamp((seconds * 1e3) as i64)))
        }
        Some(_) => Err(ApiError::bad_request("times are seconds since 1970")),
        None => Ok(None),
    }
}

fn cursor(text: &str) -> Result<(Timestamp, String), ApiError> {
    let parsed =
        text.rsplit_once('-').and_then(|(time, id)| Some((Timestamp(time.parse().ok()?), id.to_owned())));
    parsed.ok_or_else(|| ApiError::bad_request("after must be the `next` of another page"))
}

/// An event, and past ones that resemble it.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventDetail {
    #[schema(value_type = super::event_schema::Event)]
    pub event: lifecycle::RecordedEvent,
    #[schema(value_type = Vec<super::event_schema::SimilarEvent>)]
    pub similar: Vec<lifecycle::SimilarEvent>,
    #[serde(flatten)]
    pub verdicts: VerdictsOfEvent,
}

/// One event.
#[utoipa::path(get, path = "/api/v1/events/{id}", params(("id" = String, Path)), tag = "events", responses(
    (status = 200, body = EventDetail), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn event(State(service): Shared, Path(id): Path<String>) -> Result<Json<EventDetail>, ApiError> {
    let event = service.store.event(&id).await?;
    let event = event.ok_or_else(|| ApiError::not_found(format!("there is no event {id:?}")))?;
    let similar = service.store.similar(&id, N_SIMILAR).await?;
    let verdicts = VerdictsOfEvent::new(service.store.verdicts_of(&id).await?);
    Ok(Json(EventDetail { event, similar, verdicts }))
}

/// Time spent in a stage of the pipeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimingItem {
    pub stage: &'static str,
    pub seconds: f64,
    pub count: u64,
}

/// Time spent in each stage since the start.
#[utoipa::path(get, path = "/api/v1/timings", tag = "service", responses(
    (status = 200, body = List<TimingItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn timings(State(service): Shared) -> Json<List<TimingItem>> {
    let item = |(stage, (seconds, count))| TimingItem { stage, seconds, count };
    List::whole(service.counts.timings().into_iter().map(item).collect())
}

/// Changes of events as they happen, as server-sent events. `Last-Event-ID` resumes after a change.
#[utoipa::path(get, path = "/api/v1/stream", tag = "events", responses(
    (status = 200, description = "server-sent events named opened, reopened, closed, hidden and shown", content_type = "text/event-stream"),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn stream(
    State(service): Shared,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
    let position = match last {
        Some(last) => last,
        None => service.store.last_change().await?,
    };
    let following =
        Following { changed: service.last_change.clone(), position, waiting: Vec::new(), service };
    let changes = futures_util::stream::unfold(following, Following::next);
    Ok(Sse::new(changes).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

/// Follows the changes of events.
struct Following {
    service: Arc<Service>,
    changed: tokio::sync::watch::Receiver<i64>,
    position: i64,
    /// In reverse order.
    waiting: Vec<RecordedChange>,
}

impl Following {
    async fn next(mut self) -> Option<(Result<SseEvent, Infallible>, Self)> {
        loop {
            if let Some(change) = self.waiting.pop() {
                self.position = change.number;
                let event = SseEvent::default().id(change.number.to_string()).event(change.what.clone());
                return Some((Ok(event.json_data(&change.event).unwrap_or_default()), self));
            }
            self.changed.mark_unchanged();
            match self.service.store.changes_after(self.position, N_CHANGES).await {
                Ok(changes) if !changes.is_empty() => self.waiting = changes.into_iter().rev().collect(),
                // The client connects again, and resumes.
                Err(_) => return None,
                Ok(_) => self.changed.changed().await.ok()?,
            }
        }
    }
}

/// A token to log in with.
#[derive(Debug, Deserialize, ToSchema)]
pub struct Login {
    pub token: String,
}

/// Logs a browser in: exchanges a token for a session cookie.
#[utoipa::path(post, path = "/api/v1/session", request_body = Login, tag = "service", responses(
    (status = 204, description = "the cookie is set"), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 415, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub async fn log_in(
    State(service): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    JsonBody(login): JsonBody<Login>,
) -> Result<Response, ApiError> {
    if service.failures.is_empty(peer.ip(), Instant::now()) {
        return Ok(too_many("too many logins of this address failed; wait"));
    }
    let wrong = || {
        service.note_failure(peer.ip());
        ApiError { message: "this token is not valid".into(), ..ApiError::unauthorized() }
    };
    let secret = Secret::parse(login.token.trim()).ok_or_else(wrong)?;
    let token = service.store.token_of(&secret).await?.ok_or_else(wrong)?;
    let now = Timestamp::from(SystemTime::now());
    let store = &service.store;
    let session = store.open_session(&token.name, token.role, Some(&token.id), now, SESSION_LENGTH).await?;
    Ok(with_cookie(session.reveal(), SESSION_LENGTH.0 / 1_000, service.is_tls))
}

/// Logs a browser out.
#[utoipa::path(delete, path = "/api/v1/session", tag = "service", responses((status = 204, description = "logged out")))]
pub async fn log_out(State(service): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(secret) = session_secret(&headers) {
        service.store.close_session(&secret).await?;
    }
    Ok(with_cookie("", 0, service.is_tls))
}

fn with_cookie(value: &str, seconds: i64, is_tls: bool) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(cookie) = HeaderValue::from_str(&session_cookie(value, seconds, is_tls)) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// The cookie of a session.
pub fn session_cookie(value: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{SESSION_COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}
