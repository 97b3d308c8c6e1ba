//! `/api/v1/events` and `/api/v1/stream`: events, what was said about them, and changes as they happen.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::Stream;
use lifecycle::{EventFilter, RecordedChange, RecordedEvent, SimilarEvent, Standing, VETTED, VettingFigures};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workload::{JobId, Millis, NodeName, Timestamp};

use super::api::{List, MAX_PAGE, Shared, time_of};
use super::error::{ApiError, ErrorBody};
use super::extract::{Path, Query};
use super::verdicts::VerdictsOfEvent;
use crate::service::Service;

const N_SIMILAR: usize = 5;
/// Changes that are read from the store at a time.
const N_CHANGES: i64 = 100;

/// An event with what was said about it.
#[derive(Debug, Serialize)]
pub struct EventItem {
    #[serde(flatten)]
    pub event: RecordedEvent,
    pub standing: &'static str,
}

/// What was said about events.
pub struct Standings(BTreeMap<String, Standing>);

impl Standings {
    pub async fn read(service: &Service) -> Result<Self, ApiError> {
        Ok(Self(service.store.standings().await?))
    }

    pub fn item(&self, event: RecordedEvent) -> EventItem {
        let standing = self.0.get(&event.event.id).copied().unwrap_or(Standing::Unvetted).name();
        EventItem { event, standing }
    }

    pub fn items(&self, events: Vec<RecordedEvent>) -> Vec<EventItem> {
        events.into_iter().map(|event| self.item(event)).collect()
    }
}

/// What the verdicts about an event may add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StandingItem {
    Unvetted,
    Anomaly,
    Normal,
    Unsure,
    Disputed,
}

impl From<StandingItem> for Standing {
    fn from(standing: StandingItem) -> Self {
        match standing {
            StandingItem::Unvetted => Self::Unvetted,
            StandingItem::Anomaly => Self::Anomaly,
            StandingItem::Normal => Self::Normal,
            StandingItem::Unsure => Self::Unsure,
            StandingItem::Disputed => Self::Disputed,
        }
    }
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
    /// Only events with this standing.
    pub standing: Option<StandingItem>,
    /// Only events that a verdict hides, or that none hides.
    pub hidden: Option<bool>,
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
) -> Result<Json<List<EventItem>>, ApiError> {
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
    let filter = EventFilter {
        node,
        job,
        is_open: query.open,
        from: time_of(query.from)?,
        to: time_of(query.to)?,
        is_hidden: query.hidden,
        standing: query.standing.map(Standing::from),
    };
    let after = query.after.as_deref().map(cursor).transpose()?;
    let page = service.store.events(&filter, after.as_ref(), limit).await?;
    let next = page.next.map(|(time, id)| format!("{}-{id}", time.0));
    Ok(Json(List { items: Standings::read(&service).await?.items(page.items), next }))
}

fn cursor(text: &str) -> Result<(Timestamp, String), ApiError> {
    let parsed =
        text.rsplit_once('-').and_then(|(time, id)| Some((Timestamp(time.parse().ok()?), id.to_owned())));
    parsed.ok_or_else(|| ApiError::bad_request("after must be the `next` of another page"))
}

/// A past event that resembles another.
#[derive(Debug, Serialize)]
pub struct SimilarItem {
    pub event: EventItem,
    pub distance: f64,
}

/// A change of an event.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangeItem {
    pub number: i64,
    /// `opened`, `reopened`, `closed`, `hidden` or `shown`.
    pub what: String,
    /// In seconds since 1970.
    #[schema(value_type = f64)]
    pub time: Timestamp,
}

/// Whether a receiver of alerts knows of an event.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReceiverItem {
    /// Its kind and its host.
    pub receiver: String,
    pub is_told: bool,
}

/// An event, past ones that resemble it, what was said about it, and who knows of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventDetail {
    #[schema(value_type = super::event_schema::Event)]
    pub event: EventItem,
    #[schema(value_type = Vec<super::event_schema::SimilarEvent>)]
    pub similar: Vec<SimilarItem>,
    #[serde(flatten)]
    pub verdicts: VerdictsOfEvent,
    pub changes: Vec<ChangeItem>,
    pub told: Vec<ReceiverItem>,
}

/// One event.
#[utoipa::path(get, path = "/api/v1/events/{id}", params(("id" = String, Path)), tag = "events", responses(
    (status = 200, body = EventDetail), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn event(State(service): Shared, Path(id): Path<String>) -> Result<Json<EventDetail>, ApiError> {
    let event = service.store.event(&id).await?;
    let event = event.ok_or_else(|| ApiError::not_found(format!("there is no event {id:?}")))?;
    let standings = Standings::read(&service).await?;
    let similar = service.store.similar(&id, N_SIMILAR).await?.into_iter();
    let similar = similar
        .map(|SimilarEvent { event, distance }| SimilarItem { event: standings.item(event), distance });
    let verdicts = VerdictsOfEvent::new(service.store.verdicts_of(&id).await?);
    let mut changes = service.store.changes_of(&id).await?;
    // The verdicts say more.
    changes.retain(|change| change.what != VETTED);
    let told = told(&service, &changes).await?;
    let change = |change: RecordedChange| {
        let RecordedChange { number, what, time, .. } = change;
        ChangeItem { number, what, time }
    };
    Ok(Json(EventDetail {
        event: standings.item(event),
        similar: similar.collect(),
        verdicts,
        changes: changes.into_iter().map(change).collect(),
        told,
    }))
}

/// The receivers of alerts, and whether they know of the last of these changes.
async fn told(service: &Service, changes: &[RecordedChange]) -> Result<Vec<ReceiverItem>, ApiError> {
    let mut told = Vec::new();
    for receiver in &service.settings().alerts.receivers {
        let delivered = service.store.delivered_since_the_first(&receiver.name()).await?;
        let is_told = changes.last().is_some_and(|last| last.number <= delivered);
        told.push(ReceiverItem { receiver: receiver.shown(), is_told });
    }
    Ok(told)
}

/// How good events were, by the verdicts about them.
#[derive(Debug, Serialize, ToSchema)]
pub struct VettingItem {
    pub events: usize,
    pub anomalies: usize,
    pub normal: usize,
    pub unvetted: usize,
    /// Events that verdicts hid.
    pub hidden: usize,
    /// Confirmed anomalies as a fraction of events with a clear verdict.
    pub precision: Option<f64>,
    /// The median time from an event to its first verdict.
    pub seconds_to_verdict: Option<f64>,
}

impl From<VettingFigures> for VettingItem {
    fn from(figures: VettingFigures) -> Self {
        Self {
            events: figures.n_events,
            anomalies: figures.n_anomalies,
            normal: figures.n_normal,
            unvetted: figures.n_unvetted,
            hidden: figures.n_hidden,
            precision: figures.precision(),
            seconds_to_verdict: figures.seconds_to_verdict,
        }
    }
}

/// The last 7 and the last 30 days.
#[derive(Debug, Serialize, ToSchema)]
pub struct VettingSummary {
    pub days7: VettingItem,
    pub days30: VettingItem,
}

/// How good the events of the last days were, by the verdicts about them.
#[utoipa::path(get, path = "/api/v1/vetting", tag = "verdicts", responses(
    (status = 200, body = VettingSummary), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn vetting(State(service): Shared) -> Result<Json<VettingSummary>, ApiError> {
    let now = Timestamp::from(SystemTime::now());
    let since = async |days: i64| service.store.vetting_figures(now - Millis(days * Millis::DAY.0)).await;
    Ok(Json(VettingSummary { days7: since(7).await?.into(), days30: since(30).await?.into() }))
}

/// Changes of events as they happen, as server-sent events. `Last-Event-ID` resumes after a change.
#[utoipa::path(get, path = "/api/v1/stream", tag = "events", responses(
    (status = 200, description = "server-sent events named opened, reopened, closed, hidden, shown and vetted", content_type = "text/event-stream"),
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
