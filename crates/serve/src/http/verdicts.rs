//! `/api/v1/events/{id}/verdicts`, `/api/v1/exclusions` and `/api/v1/competitions`: what people say about events, what is
//! not learned from, and how models competed.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use detect::Span;
use lifecycle::{
    AcceptedScope, Answer, Exclusion, NewVerdict, Night, Standing, Verdict, Vetting, VettingError,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::{Control, Millis, NodeName, Stop, Timestamp};

use super::access::Client;
use super::api::{List, Shared, seconds, time_of};
use super::error::{ApiError, ErrorBody};
use super::events::{EventItem, Standings};
use super::extract::{JsonBody, Path, Query};
use crate::service::Service;

/// How long similar events are hidden by default, and at most.
const DEFAULT_DAYS: f64 = 30.0;
const MAX_DAYS: f64 = 366.0;
const MAX_TEXT: usize = 2_000;
const MAX_NIGHTS: usize = 1_000;

/// What somebody says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnswerItem {
    Anomaly,
    Normal,
    Unsure,
}

impl From<AnswerItem> for Answer {
    fn from(answer: AnswerItem) -> Self {
        match answer {
            AnswerItem::Anomaly => Self::Anomaly,
            AnswerItem::Normal => Self::Normal,
            AnswerItem::Unsure => Self::Unsure,
        }
    }
}

/// Where similar events are normal as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScopeItem {
    #[default]
    Cluster,
    Node,
}

impl From<ScopeItem> for AcceptedScope {
    fn from(scope: ScopeItem) -> Self {
        match scope {
            ScopeItem::Cluster => Self::Cluster,
            ScopeItem::Node => Self::Node,
        }
    }
}

/// A verdict to be given.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerdictRequest {
    pub answer: AnswerItem,
    /// What kind of anomaly it is, such as `bad-io`.
    #[serde(default)]
    #[schema(max_length = 100)]
    pub kind: Option<String>,
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub comment: String,
    /// For `normal`: where similar events are hidden.
    #[serde(default)]
    pub scope: ScopeItem,
    /// For `normal`: for how many days.
    #[serde(default)]
    #[schema(minimum = 0.01, maximum = 366)]
    pub days: Option<f64>,
}

/// A verdict.
#[derive(Debug, Serialize, ToSchema)]
pub struct VerdictItem {
    pub number: i64,
    pub event: String,
    pub answer: &'static str,
    pub kind: Option<String>,
    pub comment: String,
    pub actor: String,
    /// In seconds since 1970.
    pub time: f64,
    pub scope: &'static str,
    /// Until when similar events are hidden, in seconds since 1970.
    pub expires: f64,
    pub is_undone: bool,
}

impl From<Verdict> for VerdictItem {
    fn from(verdict: Verdict) -> Self {
        Self {
            number: verdict.number,
            event: verdict.event,
            answer: verdict.answer.name(),
            kind: verdict.kind,
            comment: verdict.comment,
            actor: verdict.actor,
            time: seconds(verdict.time),
            scope: verdict.scope.name(),
            expires: seconds(verdict.expires),
            is_undone: verdict.undone.is_some(),
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// All verdicts about an event, and what they add up to.
#[derive(Debug, Serialize, ToSchema)]
pub struct VerdictsOfEvent {
    /// `unvetted`, `anomaly`, `normal`, `unsure` or `disputed`.
    pub standing: &'static str,
    pub verdicts: Vec<VerdictItem>,
}

impl VerdictsOfEvent {
    pub fn new(verdicts: Vec<Verdict>) -> Self {
        let standing = Standing::of(&verdicts).name();
        Self { standing, verdicts: verdicts.into_iter().map(VerdictItem::from).collect() }
    }
}

/// Verdicts about an event.
#[utoipa::path(get, path = "/api/v1/events/{id}/verdicts", params(("id" = String, Path)), tag = "verdicts", responses(
    (status = 200, body = VerdictsOfEvent), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn verdicts(
    State(service): Shared,
    Path(id): Path<String>,
) -> Result<Json<VerdictsOfEvent>, ApiError> {
    let missing = || ApiError::not_found(format!("there is no event {id:?}"));
    service.store.event(&id).await?.ok_or_else(missing)?;
    Ok(Json(VerdictsOfEvent::new(service.store.verdicts_of(&id).await?)))
}

/// Gives a verdict. It takes effect at once.
#[utoipa::path(post, path = "/api/v1/events/{id}/verdicts", request_body = VerdictRequest, tag = "verdicts",
    params(("id" = String, Path)), responses(
    (status = 200, body = VerdictItem), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub async fn give(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<VerdictRequest>,
) -> Result<Json<VerdictItem>, ApiError> {
    let days = request.days.unwrap_or(DEFAULT_DAYS);
    if !(0.01..=MAX_DAYS).contains(&days) {
        return Err(ApiError::bad_request(format!("days must be between 0.01 and {MAX_DAYS}")));
    }
    let is_too_long = |text: &str| text.len() > MAX_TEXT;
    if is_too_long(&request.comment) || request.kind.as_deref().is_some_and(is_too_long) {
        return Err(ApiError::bad_request(format!("texts may have {MAX_TEXT} bytes")));
    }
    let now = now();
    let verdict = NewVerdict {
        event: id,
        answer: request.answer.into(),
        kind: request.kind.filter(|kind| !kind.trim().is_empty()),
        comment: request.comment,
        actor: client.actor,
        scope: request.scope.into(),
        expires: now + Millis((days * Millis::DAY.0 as f64) as i64),
    };
    let given = vet(service, move |vetting, runtime| runtime.block_on(vetting.give(&verdict, now))).await?;
    Ok(Json(given.into()))
}

/// Runs what reads the archive in a thread that may wait. Nothing is recorded for a request that ended before.
pub async fn vet<T: Send + 'static>(
    service: Arc<Service>,
    work: impl FnOnce(&Vetting<'_>, &tokio::runtime::Handle) -> Result<T, VettingError> + Send + 'static,
) -> Result<T, ApiError> {
    let runtime = tokio::runtime::Handle::current();
    let worker = service.clone();
    let work = move |stop: &Stop| {
        let Service { store, registry, archive, .. } = &*worker;
        let archive = &archive.with_stop(stop);
        let control = Control::new(stop, &|_, _| {});
        work(&Vetting { store, registry, archive, uses_labels: true, control }, &runtime)
    };
    Ok(service.vetting.run(work).await??)
}

/// Where events would be hidden.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PreviewQuery {
    scope: Option<ScopeItem>,
}

/// What calling an event normal would hide.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewItem {
    /// Events of the last 30 days that would have been hidden, the newest first.
    #[schema(value_type = Vec<super::event_schema::Event>)]
    pub hidden: Vec<EventItem>,
    /// Events of that time that other models found, and that cannot be compared.
    pub not_compared: usize,
}

/// What calling an event normal would have hidden in the last 30 days.
#[utoipa::path(get, path = "/api/v1/events/{id}/preview", params(("id" = String, Path), PreviewQuery),
    tag = "verdicts", responses(
    (status = 200, body = PreviewItem), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn preview(
    State(service): Shared,
    Path(id): Path<String>,
    Query(query): Query<PreviewQuery>,
) -> Result<Json<PreviewItem>, ApiError> {
    let scope = query.scope.unwrap_or_default().into();
    let preview = move |vetting: &Vetting<'_>, runtime: &tokio::runtime::Handle| {
        runtime.block_on(vetting.preview(&id, scope, now()))
    };
    let standings = Standings::read(&service).await?;
    let preview = vet(service, preview).await?;
    Ok(Json(PreviewItem { hidden: standings.items(preview.hidden), not_compared: preview.n_not_compared }))
}

/// Undoes a verdict with all of its effects.
#[utoipa::path(delete, path = "/api/v1/verdicts/{number}", params(("number" = i64, Path)), tag = "verdicts", responses(
    (status = 204, description = "it is undone"), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn undo(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(number): Path<i64>,
) -> Result<StatusCode, ApiError> {
    service.store.undo_verdict(number, &client.actor, now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A time that models do not learn from.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExclusionItem {
    pub number: i64,
    /// Null for the whole cluster.
    pub node: Option<String>,
    /// In seconds since 1970.
    pub from: f64,
    pub to: f64,
    pub reason: String,
    pub actor: String,
}

impl From<Exclusion> for ExclusionItem {
    fn from(one: Exclusion) -> Self {
        Self {
            number: one.number,
            node: one.node.map(|node| node.to_string()),
            from: seconds(one.from),
            to: seconds(one.to),
            reason: one.reason,
            actor: one.actor,
        }
    }
}

/// Times that models do not learn from.
#[utoipa::path(get, path = "/api/v1/exclusions", tag = "models", responses(
    (status = 200, body = List<ExclusionItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn exclusions(State(service): Shared) -> Result<Json<List<ExclusionItem>>, ApiError> {
    let exclusions = service.store.exclusions().await?;
    Ok(List::whole(exclusions.into_iter().map(ExclusionItem::from).collect()))
}

/// A time to exclude.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExclusionRequest {
    /// Only this node.
    #[serde(default)]
    pub node: Option<String>,
    /// In seconds since 1970.
    pub from: f64,
    pub to: f64,
    #[schema(max_length = 2000)]
    pub reason: String,
}

/// Excludes a time from training.
#[utoipa::path(post, path = "/api/v1/exclusions", request_body = ExclusionRequest, tag = "models", responses(
    (status = 200, body = ExclusionItem), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 415, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub async fn exclude(
    State(service): Shared,
    Extension(client): Extension<Client>,
    JsonBody(request): JsonBody<ExclusionRequest>,
) -> Result<Json<ExclusionItem>, ApiError> {
    let bad = |error: workload::IdError| ApiError::bad_request(error.to_string());
    let node = request.node.map(NodeName::new).transpose().map_err(bad)?;
    let (from, to) = (time_of(Some(request.from))?, time_of(Some(request.to))?);
    let span = from.zip(to).filter(|(from, to)| from < to);
    let (from, to) = span.ok_or_else(|| ApiError::bad_request("from must be before to"))?;
    if request.reason.len() > MAX_TEXT {
        return Err(ApiError::bad_request(format!("texts may have {MAX_TEXT} bytes")));
    }
    let span = Span { node, ..Span::of_time(from, to) };
    let added = service.store.add_exclusion(&span, &request.reason, &client.actor, now()).await?;
    Ok(Json(added.into()))
}

/// Ends an exclusion.
#[utoipa::path(delete, path = "/api/v1/exclusions/{number}", params(("number" = i64, Path)), tag = "models", responses(
    (status = 204, description = "it is removed"), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn include(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(number): Path<i64>,
) -> Result<StatusCode, ApiError> {
    service.store.remove_exclusion(number, &client.actor, now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Competitions between models, the newest first.
#[utoipa::path(get, path = "/api/v1/competitions", tag = "models", responses(
    (status = 200, description = "competitions with all candidates and their figures", body = List<Object>),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn competitions(State(service): Shared) -> Result<Json<List<Night>>, ApiError> {
    Ok(List::whole(service.store.nights(MAX_NIGHTS).await?))
}
