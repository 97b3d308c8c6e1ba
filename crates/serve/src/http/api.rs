//! `/api/v1/cluster`, `nodes`, `jobs` and `timings`: the state of the cluster and of the service.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use lifecycle::EventFilter;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::{JobId, NodeName, Timestamp};

use super::error::{ApiError, ErrorBody};
use super::events::{EventItem, Standings};
use super::extract::{Path, Query};
use crate::live::{JobScore, NodeScores, NodeSummary, ThreadScore, score_byte};
use crate::service::Service;

pub const MAX_PAGE: usize = 1_000;

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

/// A row of the plane of scores.
#[derive(Debug, Serialize, ToSchema)]
pub struct RowItem {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub threads: usize,
    /// Neighbouring threads with consecutive numbers: the number of the first, and how many there are.
    pub cpus: Vec<(u16, u16)>,
    /// Neighbouring threads of one job: the position of the first, how many there are, and the job.
    #[schema(value_type = Vec<(usize, usize, String)>)]
    pub runs: Vec<(usize, usize, JobId)>,
}

impl RowItem {
    fn new(name: &NodeName, node: &NodeScores) -> Self {
        let mut cpus: Vec<(u16, u16)> = Vec::new();
        let mut runs: Vec<(usize, usize, JobId)> = Vec::new();
        for (position, thread) in node.threads.iter().enumerate() {
            match cpus.last_mut() {
                Some((first, count)) if first.checked_add(*count) == Some(thread.cpu.0) => *count += 1,
                _ => cpus.push((thread.cpu.0, 1)),
            }
            let Some(job) = &thread.job else { continue };
            match runs.last_mut() {
                Some((first, count, last)) if last == job && *first + *count == position => *count += 1,
                _ => runs.push((position, 1, job.clone())),
            }
        }
        Self { node: name.clone(), threads: node.threads.len(), cpus, runs }
    }
}

/// What the bytes of the plane belong to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Layout {
    pub nodes: Vec<RowItem>,
}

/// Which nodes and jobs the bytes of `cluster?format=plane` belong to.
#[utoipa::path(get, path = "/api/v1/cluster/layout", tag = "cluster", responses(
    (status = 200, body = Layout), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn layout(State(service): Shared) -> Json<Layout> {
    let live = service.scoring.live();
    Json(Layout { nodes: live.nodes.iter().map(|(name, node)| RowItem::new(name, node)).collect() })
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
    pub events: Vec<EventItem>,
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
    let events = Standings::read(&service).await?.items(events);
    if nodes.is_empty() && events.is_empty() {
        return Err(not_found());
    }
    Ok(Json(JobDetail { nodes, events }))
}

/// A time as seconds since 1970.
pub fn seconds(time: Timestamp) -> f64 {
    time.0 as f64 / 1e3
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
