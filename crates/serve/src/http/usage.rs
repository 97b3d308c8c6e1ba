//! `/api/v1/nodes/{node}/usage`: memory and pressure of the jobs of a node.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::{JobId, Millis, NodeName, Timestamp};

use super::api::{Shared, time_of};
use super::error::{ApiError, ErrorBody};
use super::extract::{Path, Query};
use crate::usage::{NodeUsage, UsageMoment, UsageOfJob, UsageQuery, usage};

const DEFAULT_LENGTH: Millis = Millis(15 * 60_000);
const MAX_LENGTH: Millis = Millis(90 * Millis::DAY.0);
const DEFAULT_POINTS: usize = 300;
const MAX_POINTS: usize = 5_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UsageParameters {
    /// The first moment, in seconds since 1970 [default: 15 minutes before `to`].
    pub from: Option<f64>,
    /// The end, in seconds since 1970 [default: now].
    pub to: Option<f64>,
    /// Only this job.
    pub job: Option<String>,
    /// The most moments of each job; of several that share one, the largest values are shown.
    #[param(minimum = 1, maximum = 5000)]
    pub points: Option<usize>,
}

/// What the jobs of a node used.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageItem {
    /// The memory of the node; null if it was not recorded.
    pub memory_bytes: Option<u64>,
    pub jobs: Vec<JobUsageItem>,
}

/// What a job used: lists of the same length, one item for each moment. What was not recorded is null.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobUsageItem {
    #[schema(value_type = String)]
    pub job: JobId,
    /// Null if the job has no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Seconds since 1970.
    #[schema(value_type = Vec<f64>)]
    pub time: Vec<Timestamp>,
    pub memory_bytes: Vec<Option<u64>>,
    /// The fraction of the time in which at least one task waited for a CPU.
    pub cpu_pressure: Vec<Option<f64>>,
    pub memory_pressure: Vec<Option<f64>>,
    pub io_pressure: Vec<Option<f64>>,
}

impl JobUsageItem {
    fn new(job: JobId, found: &UsageOfJob) -> Self {
        let fractions = |of: fn(&UsageMoment) -> Option<f64>| found.moments.iter().map(of).collect();
        Self {
            job,
            memory_limit_bytes: found.memory_limit_bytes,
            time: found.moments.iter().map(|one| one.time).collect(),
            memory_bytes: found.moments.iter().map(|one| one.memory_bytes).collect(),
            cpu_pressure: fractions(|one| one.cpu_pressure),
            memory_pressure: fractions(|one| one.memory_pressure),
            io_pressure: fractions(|one| one.io_pressure),
        }
    }
}

/// Memory and pressure of the jobs of a node.
#[utoipa::path(get, path = "/api/v1/nodes/{node}/usage", params(("node" = String, Path), UsageParameters),
    tag = "cluster", responses(
    (status = 200, body = UsageItem), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn node_usage(
    State(service): Shared,
    Path(name): Path<String>,
    Query(query): Query<UsageParameters>,
) -> Result<Json<UsageItem>, ApiError> {
    let bad = |error: workload::IdError| ApiError::bad_request(error.to_string());
    let node =
        NodeName::new(&*name).map_err(|_| ApiError::not_found(format!("there is no node {name:?}")))?;
    let job = query.job.map(JobId::new).transpose().map_err(bad)?;
    let to = time_of(query.to)?.unwrap_or_else(|| Timestamp::from(SystemTime::now()));
    let from = time_of(query.from)?.unwrap_or(to - DEFAULT_LENGTH);
    if from >= to || to - from > MAX_LENGTH {
        return Err(ApiError::bad_request("from must be before to, by at most 90 days"));
    }
    let max_points = query.points.unwrap_or(DEFAULT_POINTS);
    if !(1..=MAX_POINTS).contains(&max_points) {
        return Err(ApiError::bad_request(format!("points must be between 1 and {MAX_POINTS}")));
    }
    let archive = service.archive.clone();
    let wanted = UsageQuery { node, from, to, job, max_points };
    let found = service.queries.run(move |stop| usage(&archive.with_stop(stop), &wanted)).await?;
    let NodeUsage { memory_bytes, jobs } = found.map_err(|error| {
        tracing::warn!("usage of {name}: {error}");
        ApiError::unavailable("the archive cannot be read; try again")
    })?;
    let jobs = jobs.into_iter().map(|(job, found)| JobUsageItem::new(job, &found)).collect();
    Ok(Json(UsageItem { memory_bytes, jobs }))
}
