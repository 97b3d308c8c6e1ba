//! Alerts: Alertmanager and webhooks are told about every change of events, in order. That somebody said something about
//! an event is no such change.
//!
//! The store numbers changes and knows how far each receiver has been told, so an outage or a restart delays alerts and
//! loses none. A receiver that was told just before a crash is told again, with the same identity.

mod alertmanager;
mod silences;
mod webhook;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lifecycle::{RecordedChange, RecordedEvent, Store, StoreError, VETTED};
use reqwest::{Client, RequestBuilder, StatusCode};
use tokio::sync::watch;
use url::Url;
use workload::Timestamp;

use crate::counts::{Counts, Told};
use crate::peer::{self, SecretError, read_secret};
use crate::settings::{AlertSettings, ReceiverKind, ReceiverSettings, ServeSettings, SettingsError};
use crate::tasks::Tasks;

const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Changes that are read from the store at a time.
const N_CHANGES: i64 = 100;

/// Why a receiver was not told.
#[derive(Debug, thiserror::Error)]
enum AlertError {
    #[error("{0}")]
    Request(String),
    #[error("it responds with {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AlertError {
    /// Whether the receiver will never accept this request.
    fn is_final(&self) -> bool {
        let refusals =
            [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        matches!(self, Self::Status(status) if refusals.contains(status))
    }
}

/// What all receivers need.
#[derive(Clone)]
pub struct Alerts {
    pub settings: watch::Receiver<Arc<ServeSettings>>,
    pub cluster: String,
    pub store: Store,
    /// The number of the last change.
    pub last_change: watch::Receiver<i64>,
    pub counts: Arc<Counts>,
}

impl Alerts {
    /// Tells all receivers of the settings until `stop` changes.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut outboxes = Tasks::new();
        loop {
            let receivers = self.settings.borrow_and_update().alerts.receivers.clone();
            outboxes.keep(&receivers, |receiver| {
                let alerts = self.clone();
                async move {
                    let url = receiver.url.clone();
                    match Outbox::new(alerts, receiver) {
                        Ok(outbox) => outbox.run().await,
                        Err(error) => tracing::error!("{url}: {error}"),
                    }
                }
            });
            tokio::select! {
                _ = stop.changed() => break,
                changed = self.settings.changed() => if changed.is_err() { break },
            }
        }
        outboxes.end().await;
    }

    fn settings(&self) -> AlertSettings {
        self.settings.borrow().alerts.clone()
    }
}

/// The address of a receiver.
pub fn address(receiver: &ReceiverSettings) -> Result<Url, SettingsError> {
    if receiver.secret_file.is_some() && receiver.kind != ReceiverKind::Webhook {
        return Err(SettingsError::Server {
            url: receiver.url.clone(),
            reason: "secret_file is for webhooks",
        });
    }
    if receiver.silences && receiver.kind != ReceiverKind::Alertmanager {
        return Err(SettingsError::Server {
            url: receiver.url.clone(),
            reason: "silences is for Alertmanager",
        });
    }
    peer::address(&receiver.url, receiver.token_file.as_ref())
}

/// Tells one receiver.
struct Outbox {
    alerts: Alerts,
    receiver: ReceiverSettings,
    url: Url,
    client: Client,
    /// The name of the receiver in the store and in metrics.
    name: String,
}

impl Outbox {
    fn new(alerts: Alerts, receiver: ReceiverSettings) -> Result<Self, String> {
        let url = address(&receiver).map_err(|error| error.to_string())?;
        let client = peer::client(TIMEOUT).map_err(|error| error.to_string())?;
        let name = receiver.name();
        Ok(Self { alerts, receiver, url, client, name })
    }

    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut is_failing = false;
        loop {
            match self.tell().await {
                Ok(()) => {
                    if is_failing {
                        tracing::info!("{}: accepts alerts again", self.name);
                    }
                    (pause, is_failing) = (FIRST_PAUSE, false);
                    let resend = self.alerts.settings().resend.0;
                    tokio::select! {
                        changed = self.alerts.last_change.changed() => if changed.is_err() { return },
                        () = tokio::time::sleep(resend) => {}
                    }
                }
                Err(error) => {
                    self.note(|told| told.n_failures += 1);
                    if !is_failing {
                        tracing::warn!("{}: {error}; will retry", self.name);
                    }
                    is_failing = true;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    /// Tells everything that happened since the last time, and what is still going on.
    async fn tell(&mut self) -> Result<(), AlertError> {
        if self.receiver.kind == ReceiverKind::Alertmanager {
            match self.keep_silences().await {
                // Alerts are more important: events without a silence are not shown as silenced.
                Err(error) if error.is_final() => {
                    tracing::error!("{}: refuses a silence: {error}", self.name);
                    self.note(|told| told.n_refused += 1);
                }
                other => other?,
            }
        }
        let mut position = self.alerts.store.delivered(&self.name).await?;
        loop {
            let last = *self.alerts.last_change.borrow_and_update();
            self.note(|told| told.n_waiting = (last - position).max(0));
            let changes = self.alerts.store.changes_after(position, N_CHANGES).await?;
            let Some(newest) = changes.last().map(|change| change.number) else { break };
            for change in &changes {
                if change.what != VETTED {
                    match self.send(change).await {
                        Ok(()) => self.note(|told| told.n_sent += 1),
                        Err(error) if error.is_final() => {
                            tracing::error!("{}: refuses change {}: {error}", self.name, change.number);
                            self.note(|told| told.n_refused += 1);
                        }
                        Err(error) => return Err(error),
                    }
                }
                self.alerts.store.set_delivered(&self.name, change.number).await?;
            }
            position = newest;
        }
        if self.receiver.kind == ReceiverKind::Alertmanager {
            let silences = self.alerts.store.silences(&self.name).await?;
            let is_silenced = |verdict: i64| silences.iter().any(|silence| silence.verdict == verdict);
            let mut open = self.alerts.store.open_events().await?;
            open.retain(|event| event.hidden_by.is_none_or(is_silenced));
            self.remind(&open).await?;
        }
        Ok(())
    }

    fn note(&self, change: impl FnOnce(&mut Told)) {
        self.alerts.counts.tell(&self.receiver.shown(), change);
    }

    async fn send(&self, change: &RecordedChange) -> Result<(), AlertError> {
        match self.receiver.kind {
            // For Alertmanager, an event that a verdict hides is over.
            ReceiverKind::Alertmanager if change.what == "hidden" => {
                let event = detect::Event { end: Some(change.time), ..change.event.clone() };
                self.post_alerts(&[(&event, None)]).await
            }
            ReceiverKind::Alertmanager => self.post_alerts(&[(&change.event, None)]).await,
            ReceiverKind::Webhook => {
                let body = webhook::body(change, &self.alerts.cluster);
                let key = self.receiver.secret_file.as_deref().map(read_secret).transpose()?;
                let request = self.client.post(self.url.clone());
                self.post(webhook::signed(request, body, key.as_deref(), change.number)).await
            }
        }
    }

    /// Alertmanager forgets alerts that are not sent again.
    async fn remind(&self, open: &[RecordedEvent]) -> Result<(), AlertError> {
        let open: Vec<(&detect::Event, Option<i64>)> =
            open.iter().map(|one| (&one.event, one.hidden_by)).collect();
        if open.is_empty() { Ok(()) } else { self.post_alerts(&open).await }
    }

    /// Sends the alerts of events, with the verdicts that hide them.
    async fn post_alerts(&self, events: &[(&detect::Event, Option<i64>)]) -> Result<(), AlertError> {
        let (settings, cluster) = (self.alerts.settings(), &self.alerts.cluster);
        let (now, keep) = (Timestamp::from(SystemTime::now()), settings.resend.0 * alertmanager::N_RESENDS);
        let alert = |(event, hidden_by): &(&detect::Event, Option<i64>)| {
            alertmanager::alert(event, *hidden_by, cluster, settings.external_url.as_deref(), now, keep)
        };
        let body: Vec<serde_json::Value> = events.iter().map(alert).collect();
        let url = peer::below(self.url.clone(), "/api/v2/alerts");
        self.post(self.client.post(url).json(&body)).await
    }

    async fn post(&self, request: RequestBuilder) -> Result<(), AlertError> {
        self.respond(request).await.map(drop)
    }

    /// The response to a request, if it succeeds.
    async fn respond(&self, mut request: RequestBuilder) -> Result<reqwest::Response, AlertError> {
        if let Some(path) = &self.receiver.token_file {
            request = request.bearer_auth(read_secret(path)?);
        }
        let cause = |error: reqwest::Error| AlertError::Request(net::root_cause(&error).to_string());
        let response = request.send().await.map_err(cause)?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(AlertError::Status(status)),
        }
    }
}
