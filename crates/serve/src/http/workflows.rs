//! `/api/v1/workflows` and `/api/v1/workflow-classifier`: runs of workflows, their charts, verdicts and labels.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::Handle;
use utoipa::{IntoParams, ToSchema};
use workflows::classify::Verdict;
use workflows::compare::Comparison;
use workload::Control;

use super::access::Client;
use super::api::{List, Shared, seconds};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path, Query};
use super::operations::{OperationItem, Started, started};
use super::stored;
use super::workflow_schema::{RunComparison, RunVerdict};
use crate::service::Service;
use crate::uploads::{Upload, UploadError, UploadName};
use crate::workflow_runs::{ClassifierInUse, RunChart, RunContent, RunDetail, RunLabel, Turn};

const MAX_LABEL: usize = 100;
const MAX_COMMENT: usize = 2_000;

/// A run of a workflow.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowItem {
    pub name: String,
    pub bytes: u64,
    /// In seconds since 1970.
    pub uploaded: f64,
    pub actor: String,
    pub seconds: f64,
    pub attempts: usize,
    pub failed: usize,
    /// What the classifier says.
    pub class: Option<String>,
    /// What a person says.
    pub label: Option<String>,
}

impl From<&Upload<RunContent>> for WorkflowItem {
    fn from(upload: &Upload<RunContent>) -> Self {
        let (about, content) = (&upload.about, &upload.about.content);
        Self {
            name: upload.name.to_string(),
            bytes: about.bytes,
            uploaded: seconds(about.uploaded),
            actor: about.actor.clone(),
            seconds: content.seconds,
            attempts: content.attempts,
            failed: content.failed,
            class: content.class.clone(),
            label: content.label().map(|label| label.label.clone()),
        }
    }
}

/// What somebody called a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct LabelItem {
    pub label: String,
    pub comment: String,
    pub actor: String,
    /// In seconds since 1970.
    pub time: f64,
}

impl From<&RunLabel> for LabelItem {
    fn from(label: &RunLabel) -> Self {
        let RunLabel { label, comment, actor, time } = label.clone();
        Self { label, comment, actor, time: seconds(time) }
    }
}

/// A run with the judgement of the classifier.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowDetail {
    #[serde(flatten)]
    pub item: WorkflowItem,
    pub warnings: Vec<String>,
    /// Class, probabilities, reasons and overdue tasks; null if the run cannot be judged.
    #[schema(value_type = Option<RunVerdict>)]
    pub verdict: Option<Verdict>,
    /// Why there is no verdict.
    pub not_judged: Option<String>,
    /// What people said, the last at the end; it counts.
    pub labels: Vec<LabelItem>,
}

impl From<RunDetail> for WorkflowDetail {
    fn from(detail: RunDetail) -> Self {
        let RunDetail { upload, warnings, verdict } = detail;
        let item = WorkflowItem::from(&upload);
        let labels = upload.about.content.labels.iter().map(LabelItem::from).collect();
        let (verdict, not_judged) = match verdict {
            Ok(verdict) => (Some(verdict), None),
            Err(reason) => (None, Some(reason)),
        };
        Self { item, warnings, verdict, not_judged, labels }
    }
}

/// All runs, the newest first.
#[utoipa::path(get, path = "/api/v1/workflows", tag = "workflows", responses(
    (status = 200, body = List<WorkflowItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn runs(State(service): Shared) -> Result<Json<List<WorkflowItem>>, ApiError> {
    let all = service.workflow_runs.uploads().list()?;
    Ok(List::whole(all.iter().map(WorkflowItem::from).collect()))
}

/// One run with the judgement of the classifier.
#[utoipa::path(get, path = "/api/v1/workflows/{name}", params(("name" = String, Path)), tag = "workflows", responses(
    (status = 200, body = WorkflowDetail), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn run(State(service): Shared, Path(name): Path<String>) -> Result<Json<WorkflowDetail>, ApiError> {
    let name = UploadName::new(&name)?;
    let worker = service.clone();
    let detail = stored::query(&service, move || worker.workflow_runs.detail(&name)).await?;
    Ok(Json(detail.into()))
}

/// The Gantt chart of a run, in columns.
#[utoipa::path(get, path = "/api/v1/workflows/{name}/chart", params(("name" = String, Path)), tag = "workflows",
    responses((status = 200, body = RunChart), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn chart(State(service): Shared, Path(name): Path<String>) -> Result<Json<RunChart>, ApiError> {
    let name = UploadName::new(&name)?;
    let worker = service.clone();
    Ok(Json(stored::query(&service, move || worker.workflow_runs.chart(&name)).await?))
}

/// The run to compare with.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WithQuery {
    pub with: String,
}

/// The tasks whose delays differ most between two runs.
#[utoipa::path(get, path = "/api/v1/workflows/{name}/comparison", params(("name" = String, Path), WithQuery),
    tag = "workflows", responses((status = 200, body = RunComparison), (status = 404, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn compare(
    State(service): Shared,
    Path(name): Path<String>,
    Query(query): Query<WithQuery>,
) -> Result<Json<Comparison>, ApiError> {
    let (before, after) = (UploadName::new(&name)?, UploadName::new(&query.with)?);
    let worker = service.clone();
    Ok(Json(stored::query(&service, move || worker.workflow_runs.compare(&before, &after)).await?))
}

/// The file of a run.
#[utoipa::path(get, path = "/api/v1/workflows/{name}/file", params(("name" = String, Path)), tag = "workflows",
    responses((status = 200, description = "the file", content_type = "application/octet-stream"),
    (status = 404, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn file(State(service): Shared, Path(name): Path<String>) -> Result<Response, ApiError> {
    let name = UploadName::new(&name)?;
    stored::send(&name, &service.workflow_runs.uploads().find(&name)?.path)
}

/// Stores a run: a log of Pegasus, HTCondor, DAGMan or Nextflow, or a tar archive of a submit directory.
#[utoipa::path(put, path = "/api/v1/workflows/{name}", params(("name" = String, Path)), tag = "workflows",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 201, body = WorkflowItem), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn store(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<WorkflowItem>), ApiError> {
    let new = stored::receive(&service, service.workflow_runs.uploads(), &name, &headers, body).await?;
    let add = |service: &Service, actor: &str| service.workflow_runs.add(new, actor);
    let added = stored::add(&service, "store workflow run", name, client.actor, add).await?;
    Ok((StatusCode::CREATED, Json(WorkflowItem::from(&added))))
}

/// Deletes a run.
#[utoipa::path(delete, path = "/api/v1/workflows/{name}", params(("name" = String, Path)), tag = "workflows",
    responses((status = 204, description = "deleted"), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn remove(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    stored::remove(&service, service.workflow_runs.uploads(), &name, &client.actor).await
}

/// What somebody calls a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    /// `normal`, or a fault such as `cpu`, `hdd` or `loss`.
    #[schema(min_length = 1, max_length = 100)]
    pub label: String,
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub comment: String,
}

/// Labels a run. A classifier can be trained with labelled runs.
#[utoipa::path(put, path = "/api/v1/workflows/{name}/label", params(("name" = String, Path)),
    request_body = LabelRequest, tag = "workflows", responses(
    (status = 200, body = WorkflowItem), (status = 404, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn label(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<LabelRequest>,
) -> Result<Json<WorkflowItem>, ApiError> {
    let label = request.label.trim();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if label.is_empty() || label.len() > MAX_LABEL || !label.chars().all(is_plain) {
        let rule = format!("a label has 1 to {MAX_LABEL} letters, digits, dots, dashes and underscores");
        return Err(ApiError::bad_request(rule));
    }
    if request.comment.chars().count() > MAX_COMMENT {
        return Err(ApiError::bad_request(format!("a comment has at most {MAX_COMMENT} characters")));
    }
    let given = RunLabel::new(label, request.comment, &client.actor);
    let labelled = service.workflow_runs.label(&UploadName::new(&name)?, given)?;
    stored::note(&service, &client.actor, &format!("label workflow run {label}"), &name).await?;
    Ok(Json(WorkflowItem::from(&labelled)))
}

/// Withdraws the last label that the client gave to a run. The one before it counts again, whoever gave it.
#[utoipa::path(delete, path = "/api/v1/workflows/{name}/label", params(("name" = String, Path)), tag = "workflows",
    responses((status = 200, body = WorkflowItem), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn remove_label(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Result<Json<WorkflowItem>, ApiError> {
    let changed = service.workflow_runs.withdraw_label(&UploadName::new(&name)?, &client.actor)?;
    let changed = changed.ok_or_else(|| ApiError::not_found(format!("you gave {name} no label")))?;
    stored::note(&service, &client.actor, "withdraw label of workflow run", &name).await?;
    Ok(Json(WorkflowItem::from(&changed)))
}

/// The classifier in use, and the labels that another one could be trained with.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClassifierState {
    /// Null if there is none.
    pub classifier: Option<ClassifierInUse>,
    /// Whether the settings name a classifier.
    pub is_configured: bool,
    /// The number of runs with each label.
    pub labels: BTreeMap<String, usize>,
}

/// The classifier in use, and the number of runs with each label.
#[utoipa::path(get, path = "/api/v1/workflow-classifier", tag = "workflows", responses(
    (status = 200, body = ClassifierState), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn classifier(State(service): Shared) -> Result<Json<ClassifierState>, ApiError> {
    let runs = &service.workflow_runs;
    Ok(Json(ClassifierState {
        classifier: runs.classifier(),
        is_configured: runs.has_configured(),
        labels: runs.labels()?,
    }))
}

/// Trains a classifier with the labelled runs. It judges all runs from then on.
#[utoipa::path(post, path = "/api/v1/workflow-classifier", tag = "workflows", responses(
    (status = 202, body = OperationItem), (status = 409, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 403, body = ErrorBody)))]
pub async fn train(
    State(service): Shared,
    Extension(client): Extension<Client>,
) -> Result<Started, ApiError> {
    let (turn, worker, actor) = (turn(&service)?, service.clone(), client.actor.clone());
    let note = noting(&service, client.actor, "train workflow classifier");
    let work = move |control: Control<'_>| {
        let note = |new: &ClassifierInUse| note(&format!("{}, {} runs", new.kind, new.n_runs));
        let trained = worker.workflow_runs.train(&turn, control, note);
        serde_json::to_value(trained.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    };
    started(service.operations.start("training", actor, work))
}

/// Stops using the classifier that was trained with labels. The one in the settings, if there is one, judges all runs from
/// then on.
#[utoipa::path(delete, path = "/api/v1/workflow-classifier", tag = "workflows", responses(
    (status = 202, body = OperationItem), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn go_back(
    State(service): Shared,
    Extension(client): Extension<Client>,
) -> Result<Started, ApiError> {
    let (turn, worker, actor) = (turn(&service)?, service.clone(), client.actor.clone());
    if !service.workflow_runs.is_trained() {
        return Err(ApiError::not_found("no classifier in use was trained with labels"));
    }
    let note = noting(&service, client.actor, "remove workflow classifier");
    let work = move |control: Control<'_>| {
        let in_use = worker.workflow_runs.go_back(&turn, control, || note("trained with labels"));
        Ok(json!({ "classifier": in_use.map_err(|error| error.to_string())? }))
    };
    started(service.operations.start("reclassification", actor, work))
}

/// The right to replace the classifier.
fn turn(service: &Service) -> Result<Turn, ApiError> {
    service.workflow_runs.turn().ok_or_else(|| ApiError {
        status: StatusCode::CONFLICT,
        code: "conflict",
        message: "the classifier is being replaced; wait for the end of that operation, or cancel it".into(),
    })
}

/// Writes to the audit log from the thread of an operation.
fn noting(
    service: &Arc<Service>,
    actor: String,
    action: &'static str,
) -> impl Fn(&str) -> Result<(), UploadError> + Send + use<> {
    let (service, runtime) = (service.clone(), Handle::current());
    move |detail| {
        let noted = runtime.block_on(stored::note(&service, &actor, action, detail));
        noted.map_err(|error| UploadError::Content(error.message))
    }
}
