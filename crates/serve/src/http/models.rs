//! `/api/v1/models` and `/api/v1/promotions`: versions of the model, and which of them is in use.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::extract::State;
use axum::{Extension, Json};
use detect::{BUDGETS, Calibration};
use lifecycle::{Alias, ModelVersion, Move, Promotion, ShadowFigures};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::Timestamp;

use super::access::Client;
use super::api::{List, Shared, seconds};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path, Query};
use crate::settings::MlflowSettings;

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

/// The threshold of one source of evidence.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThresholdItem {
    /// What is compared with it, such as `error` or `lasting-job`.
    pub evidence: String,
    pub value: f64,
    /// The standard deviation of its logarithm over resampled jobs.
    pub log_std_error: f64,
    /// The units of normal jobs that it was set with.
    pub units: usize,
}

/// How often anomalies of a kind are found at each of the `budgets`.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundItem {
    pub kind: String,
    /// Whether the anomalies were injected into normal jobs, and not recorded.
    pub is_injected: bool,
    pub jobs: usize,
    pub found: Vec<usize>,
}

/// The thresholds of a version, and what its alarm budget costs.
#[derive(Debug, Serialize, ToSchema)]
pub struct CalibrationItem {
    /// The budget: false events per day for the whole cluster.
    pub false_events_per_day: f64,
    /// The 5th and 95th percentile of the rate that the thresholds give, over resampled jobs.
    pub plausible_events_per_day: Vec<f64>,
    /// How much time of validation data there was, and how many jobs.
    pub days: f64,
    pub jobs: usize,
    /// Whether there were so few jobs that thresholds had to be set by assumption.
    pub is_uncertain: bool,
    pub thresholds: Vec<ThresholdItem>,
    /// The budgets of `found`, in false events per day.
    pub budgets: Vec<f64>,
    pub found: Vec<FoundItem>,
    /// The smallest and the largest budget that a backtest may try; null if the version knows only its own.
    pub backtest_budgets: Option<Vec<f64>>,
}

impl From<Calibration> for CalibrationItem {
    fn from(one: Calibration) -> Self {
        Self {
            is_uncertain: one.is_uncertain(),
            backtest_budgets: one.budgets().map(Vec::from),
            false_events_per_day: one.false_events_per_day,
            plausible_events_per_day: one.plausible_events_per_day.to_vec(),
            days: one.days,
            jobs: one.n_jobs,
            thresholds: one
                .thresholds
                .iter()
                .map(|(evidence, threshold)| ThresholdItem {
                    evidence: evidence.to_string(),
                    value: threshold.value,
                    log_std_error: threshold.log_std_error,
                    units: threshold.n_units,
                })
                .collect(),
            budgets: BUDGETS.to_vec(),
            found: one
                .found
                .into_iter()
                .map(|found| FoundItem {
                    kind: found.kind,
                    is_injected: found.is_injected,
                    jobs: found.n_jobs,
                    found: found.n_found.to_vec(),
                })
                .collect(),
        }
    }
}

/// A version of the model in detail.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelDetail {
    pub version: String,
    /// Null for models without thresholds.
    pub calibration: Option<CalibrationItem>,
    /// The page of the registered model in MLflow; null without MLflow.
    pub mlflow: Option<String>,
}

/// The thresholds of a version of the model, and what its alarm budget costs.
#[utoipa::path(get, path = "/api/v1/models/{version}", params(("version" = String, Path)), tag = "models", responses(
    (status = 200, body = ModelDetail), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn model(
    State(service): Shared,
    Path(version): Path<String>,
) -> Result<Json<ModelDetail>, ApiError> {
    let calibration = service.registry.calibration(&version).await?.map(CalibrationItem::from);
    let settings = service.settings();
    let mlflow = mlflow_page(&settings.mlflow);
    Ok(Json(ModelDetail { version, calibration, mlflow }))
}

/// The page of the registered model, without a password that the address may contain.
fn mlflow_page(settings: &MlflowSettings) -> Option<String> {
    let mut url = url::Url::parse(&settings.url).ok()?;
    (matches!(url.scheme(), "http" | "https")).then_some(())?;
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    url.set_query(None);
    url.path_segments_mut().ok()?.pop_if_empty().push("");
    url.set_fragment(Some(&format!("/models/{}", settings.model)));
    Some(url.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_mlflow_has_no_password_and_is_a_web_page() {
        let page = |url: &str| mlflow_page(&MlflowSettings { url: url.into(), ..MlflowSettings::default() });
        let found = page("https://ann:secret@mlflow:5000/base?token=1");
        assert_eq!(found.as_deref(), Some("https://mlflow:5000/base/#/models/tracewise"));
        assert_eq!(page("http://mlflow:5000").as_deref(), Some("http://mlflow:5000/#/models/tracewise"));
        assert_eq!((page(""), page("file:///tmp/mlruns")), (None, None));
    }
}
