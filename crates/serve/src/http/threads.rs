//! `/api/v1/nodes/{node}/threads`: observed and expected traces.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::{Cpu, JobId, Millis, NodeName, Stop, Timestamp};

use super::api::time_of;
use super::error::{ApiError, ErrorBody};
use super::extract::{Path, Query};
use crate::service::Service;
use crate::traces::{Moment, NodeTraces, TraceError, TraceQuery, traces};

const DEFAULT_LENGTH: Millis = Millis(15 * 60_000);
const DEFAULT_POINTS: usize = 300;
const MAX_POINTS: usize = 5_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ThreadsQuery {
    /// The first moment, in seconds since 1970 [default: 15 minutes before `to`].
    pub from: Option<f64>,
    /// The end, in seconds since 1970 [default: now].
    pub to: Option<f64>,
    /// Only this thread.
    pub cpu: Option<u16>,
    /// The most moments of each thread; of several that share one, the one with the largest error is shown.
    #[param(minimum = 1, maximum = 5000)]
    pub points: Option<usize>,
}

/// The traces of the threads of a node.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadTraces {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = f64)]
    pub from: Timestamp,
    #[schema(value_type = f64)]
    pub to: Timestamp,
    /// The channels, in the order of `observed` and `expected`.
    pub channels: Vec<&'static str>,
    /// The length of the windows that are scored.
    pub window_seconds: f64,
    pub threads: Vec<ThreadTrace>,
}

/// The trace of one thread: lists of the same length, one item for each moment.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadTrace {
    #[schema(value_type = u16)]
    pub cpu: Cpu,
    /// Seconds since 1970.
    #[schema(value_type = Vec<f64>)]
    pub time: Vec<Timestamp>,
    /// The job that owned the thread; null if there was none, or several.
    #[schema(value_type = Vec<Option<String>>)]
    pub job: Vec<Option<JobId>>,
    /// The rate of each channel.
    pub observed: Vec<Vec<f32>>,
    /// The rates that the model expects; null without a model.
    pub expected: Option<Vec<Vec<f32>>>,
    /// The mean squared difference of both; null without a model.
    pub error: Option<Vec<f32>>,
    /// The score of the window; above 1 is anomalous; null without a model.
    pub score: Option<Vec<f32>>,
}

impl ThreadTrace {
    fn new(cpu: Cpu, moments: &[Moment], n_channels: usize, has_model: bool) -> Self {
        let channels = |rates: fn(&Moment) -> &[f32]| -> Vec<Vec<f32>> {
            let of = |channel: usize| moments.iter().map(|moment| rates(moment)[channel]).collect();
            (0..n_channels).map(of).collect()
        };
        let numbers = |number: fn(&Moment) -> f32| moments.iter().map(number).collect();
        Self {
            cpu,
            time: moments.iter().map(|moment| moment.time).collect(),
            job: moments.iter().map(|moment| moment.job.clone()).collect(),
            observed: channels(|moment| &moment.observed),
            expected: has_model.then(|| channels(|moment| &moment.expected)),
            error: has_model.then(|| numbers(|moment| moment.error)),
            score: has_model.then(|| numbers(|moment| moment.score)),
        }
    }
}

/// What the threads of a node did, what was expected, and how far they deviated.
#[utoipa::path(get, path = "/api/v1/nodes/{node}/threads", params(("node" = String, Path), ThreadsQuery), tag = "cluster",
    responses(
    (status = 200, body = ThreadTraces), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn threads(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    Query(query): Query<ThreadsQuery>,
) -> Result<Json<ThreadTraces>, ApiError> {
    let not_found = || ApiError::not_found(format!("there are no readings of node {name:?} in this time"));
    let node = NodeName::new(&*name).map_err(|_| not_found())?;
    let to = time_of(query.to)?.unwrap_or_else(|| Timestamp::from(SystemTime::now()));
    let from = time_of(query.from)?.unwrap_or(to - DEFAULT_LENGTH);
    if from >= to {
        return Err(ApiError::bad_request("from must be before to"));
    }
    let max_points = query.points.unwrap_or(DEFAULT_POINTS);
    if !(1..=MAX_POINTS).contains(&max_points) {
        return Err(ApiError::bad_request(format!("points must be between 1 and {MAX_POINTS}")));
    }
    let wanted = TraceQuery { node: node.clone(), from, to, cpu: query.cpu.map(Cpu), max_points };
    let (archive, model) = (service.archive.clone(), service.scoring.current_model());
    let work = move |stop: &Stop| {
        traces(&archive.with_stop(stop), model.as_ref().map(|model| &*model.detector), &wanted)
    };
    let found = service.queries.run(work).await?;
    let NodeTraces { channels, window, has_model, threads } = found.map_err(|error| match error {
        TraceError::TooMuch => ApiError::bad_request(error.to_string()),
        other => {
            tracing::warn!("traces of {node}: {other}");
            ApiError::unavailable("the archive cannot be read; try again")
        }
    })?;
    if threads.is_empty() {
        return Err(not_found());
    }
    let n_channels = channels.len();
    let trace = |(cpu, moments): (Cpu, Vec<Moment>)| ThreadTrace::new(cpu, &moments, n_channels, has_model);
    let window_seconds = window.as_seconds();
    let threads = threads.into_iter().map(trace).collect();
    Ok(Json(ThreadTraces { node, from, to, channels, window_seconds, threads }))
}
