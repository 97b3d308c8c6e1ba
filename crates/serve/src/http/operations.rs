//! `/api/v1/operations`: what takes longer than a request may, such as backtests, embeddings and analyses.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use archive::Archive;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use detect::Kinds;
use detect::analysis::{sampling, spectrum};
use lifecycle::{KnownPoints, Role, Standing, Vetting};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use workload::{Control, JobId, Millis, Timestamp};

use super::access::Client;
use super::api::{List, Shared, seconds, time_of};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path};
use crate::backtest::BacktestQuery;
use crate::embeddings::{EmbeddingQuery, KnownKind, KnownKinds, Projection};
use crate::operations::{Busy, Operation, Outcome};
use crate::service::Service;
use crate::similar_jobs::SimilarJobsQuery;

/// How far back a backtest goes by default, and at most.
const BACKTEST: Millis = Millis(7 * Millis::DAY.0);
const MAX_BACKTEST: Millis = Millis(90 * Millis::DAY.0);
const MAX_MINUTES: f64 = 7.0 * 24.0 * 60.0;
/// The budgets that a backtest may try, in false events per day.
const MIN_BUDGET: f64 = 0.1;
const MAX_BUDGET: f64 = 10.0;
/// How far back jobs are compared by default, and at most.
const SIMILAR_JOBS: Millis = Millis(2 * Millis::HOUR.0);
const MAX_SIMILAR_JOBS: Millis = Millis(7 * Millis::DAY.0);

/// A long operation.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationItem {
    pub number: u64,
    /// `backtest`, `embeddings`, `similar-jobs`, `sampling`, `synthesis`, `comparison` or `training`.
    pub kind: &'static str,
    pub actor: String,
    /// In seconds since 1970.
    pub started: f64,
    /// `running`, `done`, `failed` or `cancelled`.
    pub state: &'static str,
    /// The fraction that is done.
    pub progress: f64,
    /// Why it failed.
    pub error: Option<String>,
    /// What it found, if it is asked for by its number.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

impl OperationItem {
    fn new(operation: &Operation, with_result: bool) -> Self {
        let (state, error, result) = match operation.outcome() {
            None => ("running", None, None),
            Some(Outcome::Done(result)) => ("done", None, Some(result).filter(|_| with_result)),
            Some(Outcome::Failed(reason)) => ("failed", Some(reason), None),
            Some(Outcome::Cancelled) => ("cancelled", None, None),
        };
        Self {
            number: operation.number,
            kind: operation.kind,
            actor: operation.actor.clone(),
            started: seconds(operation.started),
            state,
            progress: if state == "done" { 1.0 } else { operation.progress() },
            error,
            result,
        }
    }
}

/// The response to a request that starts an operation.
pub type Started = (StatusCode, Json<OperationItem>);

pub fn started(operation: Result<Arc<Operation>, Busy>) -> Result<Started, ApiError> {
    let operation = operation.map_err(|busy| ApiError::unavailable(busy.to_string()))?;
    Ok((StatusCode::ACCEPTED, Json(OperationItem::new(&operation, false))))
}

/// The operations that were started since the service started, the newest first.
#[utoipa::path(get, path = "/api/v1/operations", tag = "operations", responses(
    (status = 200, body = List<OperationItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn operations(State(service): Shared) -> Json<List<OperationItem>> {
    let all = service.operations.list();
    List::whole(all.iter().map(|operation| OperationItem::new(operation, false)).collect())
}

fn found(service: &Service, number: u64) -> Result<Arc<Operation>, ApiError> {
    let missing = || ApiError::not_found(format!("there is no operation {number}"));
    service.operations.find(number).ok_or_else(missing)
}

/// One operation with its result.
#[utoipa::path(get, path = "/api/v1/operations/{number}", params(("number" = u64, Path)), tag = "operations", responses(
    (status = 200, body = OperationItem), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn operation(
    State(service): Shared,
    Path(number): Path<u64>,
) -> Result<Json<OperationItem>, ApiError> {
    Ok(Json(OperationItem::new(&*found(&service, number)?, true)))
}

/// Cancels an operation. Viewers may cancel their own.
#[utoipa::path(delete, path = "/api/v1/operations/{number}", params(("number" = u64, Path)), tag = "operations", responses(
    (status = 204, description = "it ends soon, or has ended"), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn cancel(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(number): Path<u64>,
) -> Result<StatusCode, ApiError> {
    let operation = found(&service, number)?;
    if client.role < Role::Vetter && operation.actor != client.actor {
        return Err(ApiError::forbidden("a viewer may cancel only what it started"));
    }
    operation.cancel();
    Ok(StatusCode::NO_CONTENT)
}

/// What is tested.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BacktestRequest {
    /// The version of the model [default: the champion].
    #[serde(default)]
    pub model: Option<String>,
    /// In seconds since 1970 [default: seven days before `to`].
    #[serde(default)]
    pub from: Option<f64>,
    /// In seconds since 1970 [default: now].
    #[serde(default)]
    pub to: Option<f64>,
    /// Another budget of false events per day than the model's own. Models know thresholds for 0.1 to 10.
    #[serde(default)]
    #[schema(minimum = 0.1, maximum = 10)]
    pub false_events_per_day: Option<f64>,
}

/// Finds what a model would have reported in the past.
#[utoipa::path(post, path = "/api/v1/backtests", request_body = BacktestRequest, tag = "operations", responses(
    (status = 202, body = OperationItem), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub async fn backtest(
    State(service): Shared,
    Extension(client): Extension<Client>,
    JsonBody(request): JsonBody<BacktestRequest>,
) -> Result<Started, ApiError> {
    let to = time_of(request.to)?.unwrap_or_else(|| Timestamp::from(SystemTime::now()));
    let from = time_of(request.from)?.unwrap_or(to - BACKTEST);
    if from >= to || to - from > MAX_BACKTEST {
        return Err(ApiError::bad_request("from must be before to, by at most 90 days"));
    }
    let no_model = || ApiError::not_found("there is no model yet");
    let version = request.model.or_else(|| service.scoring.model()).ok_or_else(no_model)?;
    service.registry.version(&version).await?;
    let budget = request.false_events_per_day;
    if budget.is_some_and(|budget| !(MIN_BUDGET..=MAX_BUDGET).contains(&budget)) {
        let message = format!("false_events_per_day must be between {MIN_BUDGET} and {MAX_BUDGET}");
        return Err(ApiError::bad_request(message));
    }
    let (runtime, worker) = (tokio::runtime::Handle::current(), service.clone());
    let work = move |control: Control<'_>| {
        let query = runtime.block_on(backtest_query(&worker, version, from, to, control));
        let mut query = query.map_err(|error| error.message)?;
        if let Some(budget) = budget {
            query.use_budget(budget).map_err(|error| error.to_string())?;
        }
        let archive = worker.archive.with_stop(control.stop());
        let found = query.run(&archive, control).map_err(|error| error.to_string())?;
        serde_json::to_value(found).map_err(|error| error.to_string())
    };
    started(service.operations.start("backtest", client.actor, work))
}

async fn backtest_query(
    service: &Service,
    version: String,
    from: Timestamp,
    to: Timestamp,
    control: Control<'_>,
) -> Result<BacktestQuery, ApiError> {
    let Service { store, registry, archive, .. } = service;
    let detector = registry.load(&version)?;
    let now = Timestamp::from(SystemTime::now());
    let vetting = Vetting { store, registry, archive, uses_labels: true, control };
    let library = vetting.library(&detector, &mut KnownPoints::default(), now).await?;
    let mut recorded = store.vetted_events(from).await?;
    recorded.retain(|vetted| vetted.event.event.opened < to);
    let regions = store.regions(&version, now).await?;
    Ok(BacktestQuery { version, detector, library, regions, from, to, recorded, is_own_budget: true })
}

/// How embeddings are projected to two dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProjectionItem {
    #[default]
    Pca,
    Umap,
}

/// Which windows are embedded.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingsRequest {
    #[serde(default)]
    pub projection: ProjectionItem,
    /// Recent windows: those of so many minutes [default: 60].
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10080)]
    pub minutes: Option<f64>,
}

/// Projects the embeddings of recent windows over those that the champion was trained with.
#[utoipa::path(post, path = "/api/v1/embeddings", request_body = EmbeddingsRequest, tag = "operations", responses(
    (status = 202, body = OperationItem), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub async fn embeddings(
    State(service): Shared,
    Extension(client): Extension<Client>,
    JsonBody(request): JsonBody<EmbeddingsRequest>,
) -> Result<Started, ApiError> {
    let minutes = request.minutes.unwrap_or(60.0);
    if !(1.0..=MAX_MINUTES).contains(&minutes) {
        return Err(ApiError::bad_request(format!("minutes must be between 1 and {MAX_MINUTES}")));
    }
    let model =
        service.scoring.current_model().ok_or_else(|| ApiError::not_found("there is no model yet"))?;
    let to = service.scoring.time().unwrap_or_else(|| Timestamp::from(SystemTime::now()));
    let query = EmbeddingQuery {
        projection: match request.projection {
            ProjectionItem::Pca => Projection::Pca,
            ProjectionItem::Umap => Projection::Umap,
        },
        from: to - Millis((minutes * 60_000.0) as i64),
        to,
        kinds: known_kinds(&service).await?,
        seed: 0,
    };
    let worker = service.clone();
    let work = move |control: Control<'_>| {
        let archive = worker.archive.with_stop(control.stop());
        let mut query = query;
        add_labels(&mut query.kinds, &archive)?;
        let found = query.run(&archive, &model.detector, control).map_err(|error| error.to_string())?;
        serde_json::to_value(found).map_err(|error| error.to_string())
    };
    started(service.operations.start("embeddings", client.actor, work))
}

/// Where and when a job is compared with others.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarJobsRequest {
    /// In seconds since 1970 [default: two hours before `to`].
    #[serde(default)]
    pub from: Option<f64>,
    /// In seconds since 1970 [default: now].
    #[serde(default)]
    pub to: Option<f64>,
}

/// Compares a job with others of its kind, or with those that resemble it.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/similar", request_body = SimilarJobsRequest, tag = "operations",
    params(("job" = String, Path)), responses(
    (status = 202, body = OperationItem), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub async fn similar_jobs(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(job): Path<String>,
    JsonBody(request): JsonBody<SimilarJobsRequest>,
) -> Result<Started, ApiError> {
    let job = JobId::new(job).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let model =
        service.scoring.current_model().ok_or_else(|| ApiError::not_found("there is no model yet"))?;
    let now = || service.scoring.time().unwrap_or_else(|| Timestamp::from(SystemTime::now()));
    let to = time_of(request.to)?.unwrap_or_else(now);
    let from = time_of(request.from)?.unwrap_or(to - SIMILAR_JOBS);
    if from >= to || to - from > MAX_SIMILAR_JOBS {
        return Err(ApiError::bad_request("from must be before to, by at most 7 days"));
    }
    let kinds = known_kinds(&service).await?;
    let mut query = SimilarJobsQuery { job, from, to, kinds };
    let worker = service.clone();
    let work = move |control: Control<'_>| {
        let archive = worker.archive.with_stop(control.stop());
        add_labels(&mut query.kinds, &archive)?;
        let found = query.run(&archive, &model.detector, control).map_err(|error| error.to_string())?;
        serde_json::to_value(found).map_err(|error| error.to_string())
    };
    started(service.operations.start("similar-jobs", client.actor, work))
}

/// What diagnoses and verdicts say about jobs.
async fn known_kinds(service: &Service) -> Result<KnownKinds, ApiError> {
    Ok(KnownKinds::new(kinds_by_verdict(service).await?, &service.store.diagnoses().await?))
}

/// Adds what labels say about jobs that nothing else is known about.
fn add_labels(kinds: &mut KnownKinds, archive: &Archive) -> Result<(), String> {
    for label in archive.labels().map_err(|error| error.to_string())? {
        let known = KnownKind { is_anomalous: label.is_anomalous(), kind: label.kind };
        kinds.jobs.entry(label.job).or_insert(known);
    }
    Ok(())
}

/// The jobs that verdicts call anomalous, with their kinds.
async fn kinds_by_verdict(service: &Service) -> Result<BTreeMap<JobId, KnownKind>, ApiError> {
    let mut kinds = BTreeMap::new();
    for vetted in service.store.vetted_events(Timestamp::MIN).await? {
        if vetted.standing() == Standing::Anomaly
            && let Some(job) = vetted.event.event.jobs.first()
        {
            let kind = vetted.kind().unwrap_or("anomaly").to_owned();
            kinds.insert(job.clone(), KnownKind { kind, is_anomalous: true });
        }
    }
    Ok(kinds)
}

/// Analyses spectra and sampling intervals of the archive, to choose the length of windows and the interval.
#[utoipa::path(post, path = "/api/v1/sampling", tag = "operations", responses(
    (status = 202, body = OperationItem), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn sampling(
    State(service): Shared,
    Extension(client): Extension<Client>,
) -> Result<Started, ApiError> {
    let worker = service.clone();
    let work = move |control: Control<'_>| {
        let archive = worker.archive.with_stop(control.stop());
        let labels = archive.labels().map_err(|error| error.to_string())?;
        let kinds = Kinds::from_labels(&labels);
        let spectra = spectrum::analyze(&archive, &kinds, &spectrum::SpectrumSettings::default(), &control);
        let intervals = sampling::analyze(&archive, &kinds, &sampling::SamplingSettings::default(), &control);
        // One of them may be impossible with the data, such as jobs of a single kind.
        let part = |report: Result<Value, String>| report.unwrap_or_else(|reason| json!({ "error": reason }));
        Ok(json!({
            "spectra": part(spectra.map(|report| json!(report)).map_err(|error| error.to_string())),
            "intervals": part(intervals.map(|report| json!(report)).map_err(|error| error.to_string())),
        }))
    };
    started(service.operations.start("sampling", client.actor, work))
}
