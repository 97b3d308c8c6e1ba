//! `/api/v1/job-traces` and `/api/v1/generators`: traces of batch systems, synthetic ones, and how similar they are.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use jobs::fidelity::curves::Curves;
use jobs::generators::GeneratorKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use workload::Control;

use super::access::Client;
use super::api::{List, Shared, seconds};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path};
use super::operations::{OperationItem, Started, started};
use super::stored;
use crate::job_traces::{Synthesis, SyntheticOrigin, TraceColumn, TraceContent, TraceDetail};
use crate::service::Service;
use crate::uploads::{Upload, UploadName};

/// A trace of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobTraceItem {
    pub name: String,
    pub bytes: u64,
    /// In seconds since 1970.
    pub uploaded: f64,
    pub actor: String,
    pub jobs: usize,
    pub span_seconds: f64,
    /// How it was made; null if it was recorded.
    #[schema(value_type = Option<Object>)]
    pub synthetic: Option<SyntheticOrigin>,
}

impl From<Upload<TraceContent>> for JobTraceItem {
    fn from(upload: Upload<TraceContent>) -> Self {
        let Upload { name, about, .. } = upload;
        Self {
            name: name.to_string(),
            bytes: about.bytes,
            uploaded: seconds(about.uploaded),
            actor: about.actor,
            jobs: about.content.jobs,
            span_seconds: about.content.span_seconds,
            synthetic: about.content.synthetic,
        }
    }
}

/// A trace with its columns and curves.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobTraceDetail {
    #[serde(flatten)]
    pub item: JobTraceItem,
    pub warnings: Vec<String>,
    /// Name, role, kind and summary of each column.
    #[schema(value_type = Vec<Object>)]
    pub columns: Vec<TraceColumn>,
    /// Distributions, autocorrelations, and the cycles of the day and of the week.
    #[schema(value_type = Object)]
    pub curves: Curves,
}

impl From<TraceDetail> for JobTraceDetail {
    fn from(detail: TraceDetail) -> Self {
        let TraceDetail { upload, warnings, columns, curves } = detail;
        Self { item: upload.into(), warnings, columns, curves }
    }
}

/// A generator of synthetic traces.
#[derive(Debug, Serialize, ToSchema)]
pub struct GeneratorItem {
    pub name: &'static str,
    pub description: &'static str,
    pub is_recommended: bool,
}

/// The generators of synthetic traces, the recommended one first.
#[utoipa::path(get, path = "/api/v1/generators", tag = "job traces", responses(
    (status = 200, body = List<GeneratorItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn generators() -> Json<List<GeneratorItem>> {
    let item = |kind: GeneratorKind| GeneratorItem {
        name: kind.name(),
        description: kind.description(),
        is_recommended: kind == GeneratorKind::BEST,
    };
    let mut items: Vec<GeneratorItem> = GeneratorKind::ALL.into_iter().map(item).collect();
    items.sort_by_key(|item| !item.is_recommended);
    List::whole(items)
}

/// All traces, the newest first.
#[utoipa::path(get, path = "/api/v1/job-traces", tag = "job traces", responses(
    (status = 200, body = List<JobTraceItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn traces(State(service): Shared) -> Result<Json<List<JobTraceItem>>, ApiError> {
    let all = service.job_traces.uploads().list()?;
    Ok(List::whole(all.into_iter().map(JobTraceItem::from).collect()))
}

/// One trace with its columns, distributions and cycles.
#[utoipa::path(get, path = "/api/v1/job-traces/{name}", params(("name" = String, Path)), tag = "job traces", responses(
    (status = 200, body = JobTraceDetail), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn trace(
    State(service): Shared,
    Path(name): Path<String>,
) -> Result<Json<JobTraceDetail>, ApiError> {
    let name = UploadName::new(&name)?;
    let worker = service.clone();
    let detail = stored::query(&service, move || worker.job_traces.detail(&name)).await?;
    Ok(Json(detail.into()))
}

/// The file of a trace.
#[utoipa::path(get, path = "/api/v1/job-traces/{name}/file", params(("name" = String, Path)), tag = "job traces",
    responses((status = 200, description = "the file", content_type = "application/octet-stream"),
    (status = 404, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn file(State(service): Shared, Path(name): Path<String>) -> Result<Response, ApiError> {
    let name = UploadName::new(&name)?;
    stored::send(&name, &service.job_traces.uploads().find(&name)?.path)
}

/// Stores a trace: SWF, CSV, output of sacct or Parquet, also compressed. Its layout is recognised by its columns.
#[utoipa::path(put, path = "/api/v1/job-traces/{name}", params(("name" = String, Path)), tag = "job traces",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 201, body = JobTraceItem), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn store(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<JobTraceItem>), ApiError> {
    let new = stored::receive(&service, service.job_traces.uploads(), &name, &headers, body).await?;
    let add = |service: &Service, actor: &str| service.job_traces.add(new, actor);
    let added = stored::add(&service, "store job trace", name, client.actor, add).await?;
    Ok((StatusCode::CREATED, Json(added.into())))
}

/// Deletes a trace.
#[utoipa::path(delete, path = "/api/v1/job-traces/{name}", params(("name" = String, Path)), tag = "job traces",
    responses((status = 204, description = "deleted"), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn remove(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    stored::remove(&service, service.job_traces.uploads(), &name, &client.actor).await
}

/// A synthetic trace to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SynthesisRequest {
    /// The name of the generator [default: the recommended one].
    #[serde(default)]
    pub generator: Option<String>,
    /// [default: as many as in the trace].
    #[serde(default)]
    #[schema(minimum = 1, maximum = 2_000_000)]
    pub jobs: Option<usize>,
    /// A factor of the arrival rate.
    #[serde(default)]
    pub load: Option<f64>,
    /// The random seed.
    #[serde(default)]
    pub seed: u64,
}

/// Trains a generator with a trace, stores a synthetic one, and compares both.
#[utoipa::path(post, path = "/api/v1/job-traces/{name}/synthesis", params(("name" = String, Path)),
    request_body = SynthesisRequest, tag = "job traces", responses(
    (status = 202, body = OperationItem), (status = 404, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn synthesise(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<SynthesisRequest>,
) -> Result<Started, ApiError> {
    let name = UploadName::new(&name)?;
    service.job_traces.uploads().find(&name)?;
    let generator = match &request.generator {
        None => GeneratorKind::BEST,
        Some(generator) => generator.parse().map_err(|error| ApiError::bad_request(format!("{error}")))?,
    };
    let synthesis = Synthesis::new(generator, request.jobs, request.load.unwrap_or(1.0), request.seed);
    let synthesis = synthesis.map_err(ApiError::bad_request)?;
    let (worker, actor) = (service.clone(), client.actor.clone());
    let work = move |control: Control<'_>| {
        let made = worker.job_traces.synthesise(&name, synthesis, &actor, control);
        serde_json::to_value(made.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    };
    started(service.operations.start("synthesis", client.actor, work))
}

/// The trace to compare with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonRequest {
    pub with: String,
}

/// Compares a trace with a synthetic one, or with any that has the same columns.
#[utoipa::path(post, path = "/api/v1/job-traces/{name}/comparison", params(("name" = String, Path)),
    request_body = ComparisonRequest, tag = "job traces", responses(
    (status = 202, body = OperationItem), (status = 404, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn compare(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<ComparisonRequest>,
) -> Result<Started, ApiError> {
    let (name, other) = (UploadName::new(&name)?, UploadName::new(&request.with)?);
    for one in [&name, &other] {
        service.job_traces.uploads().find(one)?;
    }
    let worker = service.clone();
    let work = move |control: Control<'_>| {
        let found = worker.job_traces.compare(&name, &other, control);
        serde_json::to_value(found.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    };
    started(service.operations.start("comparison", client.actor, work))
}
