//! `/api/v1/models` and `/api/v1/promotions`: versions of the model, and which of them is in use.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::extract::State;
use axum::{Extension, Json};
use lifecycle::{Alias, ModelVersion, Move, Promotion, ShadowFigures};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::Timestamp;

use super::access::Client;
use super::api::{List, Shared, seconds};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path, Query};

/// Rows of a history.
const MAX_HISTORY: usize = 1_000;

/// A version of the model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelItem {
    pub version: String,
    pub detector: String,
    /// When it was registered, in seconds since 1970.
    pub added: f64,
    /// Whether it scores now.
    pub in_use: bool,
    /// `champion`, `challenger` or neither.
    pub aliases: Vec<&'static str>,
    /// The version that it was trained from.
    pub parent: Option<String>,
    /// The first and last time of its training data, in seconds since 1970.
    pub data_from: Option<f64>,
    pub data_to: Option<f64>,
    pub weights_sha256: String,
    pub metrics: BTreeMap<String, f64>,
    /// Its events in shadow mode, compared with those of the champion; null if it was never in shadow mode.
    pub shadow: Option<ShadowItem>,
}

/// What a challenger would have reported, next to what the champion did in the same time.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShadowItem {
    /// In seconds since 1970.
    pub from: f64,
    pub to: f64,
    /// For how long it scored.
    pub hours: f64,
    pub events: usize,
    /// The champion's events, those that it would have reported too, and those of both that were confirmed as anomalies.
    pub champion_events: usize,
    pub common: usize,
    pub confirmed: usize,
    pub confirmed_found: usize,
}

impl From<ShadowFigures> for ShadowItem {
    fn from(figures: ShadowFigures) -> Self {
        Self {
            from: seconds(figures.from),
            to: seconds(figures.to),
            hours: figures.hours,
            events: figures.n_events,
            champion_events: figures.n_champion_events,
            common: figures.n_common,
            confirmed: figures.n_confirmed,
            confirmed_found: figures.n_confirmed_found,
        }
    }
}

impl ModelItem {
    fn new(
        model: ModelVersion,
        in_use: Option<&str>,
        holders: &[Promotion],
        shadow: Option<ShadowFigures>,
    ) -> Self {
        let aliases = holders.iter().filter(|holder| holder.version == model.version);
        let data = model.data.unwrap_or_default();
        Self {
            in_use: in_use == Some(model.version.as_str()),
            aliases: aliases.map(|holder| holder.alias.name()).collect(),
            version: model.version,
            detector: model.detector,
            added: seconds(model.added),
            parent: model.parent,
            data_from: data.from.map(seconds),
            data_to: data.to.map(seconds),
            weights_sha256: model.weights_sha256,
            metrics: model.metrics,
            shadow: shadow.map(ShadowItem::from),
        }
    }
}

/// When a version got an alias.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromotionItem {
    pub alias: &'static str,
    pub version: String,
    /// Whether it had the alias before, and the model after it was given up.
    pub is_rollback: bool,
    /// In seconds since 1970.
    pub time: f64,
    /// Who or what promoted it.
    pub actor: String,
    pub reason: String,
}

impl From<Promotion> for PromotionItem {
    fn from(promotion: Promotion) -> Self {
        Self {
            alias: promotion.alias.name(),
            version: promotion.version,
            is_rollback: promotion.what == Move::Restored,
            time: seconds(promotion.time),
            actor: promotion.actor,
            reason: promotion.reason,
        }
    }
}

/// All versions of the model, the newest first.
#[utoipa::path(get, path = "/api/v1/models", tag = "models", responses(
    (status = 200, body = List<ModelItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn models(State(service): Shared) -> Result<Json<List<ModelItem>>, ApiError> {
    let in_use = service.scoring.model();
    let holders = service.registry.holders().await?;
    let mut items = Vec::new();
    for model in service.registry.versions().await? {
        let shadow = service.store.shadow_figures(&model.version).await?;
        items.push(ModelItem::new(model, in_use.as_deref(), &holders, shadow));
    }
    Ok(List::whole(items))
}

/// Which promotions are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PromotionQuery {
    /// Only the one that was in force at this time, in seconds since 1970.
    at: Option<f64>,
}

/// The history of the champion, the newest first.
#[utoipa::path(get, path = "/api/v1/promotions", tag = "models", params(PromotionQuery), responses(
    (status = 200, body = List<PromotionItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn promotions(
    State(service): Shared,
    Query(query): Query<PromotionQuery>,
) -> Result<Json<List<PromotionItem>>, ApiError> {
    let promotions = match query.at {
        Some(at) => {
            let time = Timestamp((at * 1e3) as i64);
            service.registry.holder_at(Alias::Champion, time).await?.into_iter().collect()
        }
        None => service.registry.history(Alias::Champion, MAX_HISTORY).await?,
    };
    Ok(List::whole(promotions.into_iter().map(PromotionItem::from).collect()))
}

/// Why a model is promoted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    pub reason: String,
}

/// Makes a version the champion. Scoring uses it a few seconds later, without a missing window.
#[utoipa::path(post, path = "/api/v1/models/{version}/promote", request_body = Reason, tag = "models",
    params(("version" = String, Path, description = "the version")), responses(
    (status = 200, body = PromotionItem), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub async fn promote(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(version): Path<String>,
    JsonBody(Reason { reason }): JsonBody<Reason>,
) -> Result<Json<PromotionItem>, ApiError> {
    let now = Timestamp::from(SystemTime::now());
    let promoted = service.registry.promote(Alias::Champion, &version, &client.actor, &reason, now).await?;
    Ok(Json(promoted.into()))
}

/// Makes the champion before this one the champion again.
#[utoipa::path(post, path = "/api/v1/rollback", request_body = Reason, tag = "models", responses(
    (status = 200, body = PromotionItem), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 415, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub async fn rollback(
    State(service): Shared,
    Extension(client): Extension<Client>,
    JsonBody(Reason { reason }): JsonBody<Reason>,
) -> Result<Json<PromotionItem>, ApiError> {
    let now = Timestamp::from(SystemTime::now());
    Ok(Json(service.registry.rollback(&client.actor, &reason, now).await?.into()))
}
