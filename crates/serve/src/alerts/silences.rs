//! Silences in Alertmanager, for sites that want to see there what verdicts hide. A verdict has one silence; the alerts of
//! events that it hides carry its number as a label.

use std::time::SystemTime;

use lifecycle::{Silence, Verdict};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;
use workload::{Millis, Timestamp};

use super::alertmanager::{ALERT_NAME, VERDICT};
use super::{AlertError, Outbox};
use crate::peer::{self, bounded, rfc3339};

/// A silence outlives its verdict for as long as the service may need to notice the end.
const MARGIN: Millis = Millis(600_000);
const MAX_BYTES: usize = 16 << 20;

/// A silence as Alertmanager describes it.
#[derive(Debug, Deserialize)]
struct Found {
    id: String,
    status: FoundStatus,
}

#[derive(Debug, Deserialize)]
struct FoundStatus {
    state: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    #[serde(rename = "silenceID")]
    id: String,
}

/// An alert as Alertmanager describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Alert {
    labels: Map<String, Value>,
    starts_at: String,
}

impl Outbox {
    /// Creates the silences of verdicts that have none, and expires those of verdicts that are no longer in force.
    pub(super) async fn keep_silences(&self) -> Result<(), AlertError> {
        let (store, now) = (&self.alerts.store, Timestamp::from(SystemTime::now()));
        let wanted = match self.receiver.silences {
            true => store.hiding_verdicts(now).await?,
            false => Vec::new(),
        };
        let known = store.silences(&self.name).await?;
        for verdict in &wanted {
            let number = verdict.number;
            if known.iter().any(|silence| silence.verdict == number) {
                continue;
            }
            // It may have been created just before a crash.
            let id = match self.find_silence(number).await? {
                Some(id) => id,
                None => self.create_silence(verdict, now).await?,
            };
            store.add_silence(&self.name, &Silence { verdict: number, id }).await?;
        }
        for silence in known {
            if wanted.iter().all(|verdict| verdict.number != silence.verdict) {
                // Otherwise Alertmanager would report them for the moment without a silence.
                self.end_alerts(silence.verdict, now).await?;
                self.expire_silence(&silence.id).await?;
                store.remove_silence(&self.name, silence.verdict).await?;
            }
        }
        Ok(())
    }

    async fn find_silence(&self, verdict: i64) -> Result<Option<String>, AlertError> {
        let found: Vec<Found> = self.get(self.filtered("/api/v2/silences", verdict)).await?;
        Ok(found.into_iter().find(|one| one.status.state != "expired").map(|one| one.id))
    }

    async fn create_silence(&self, verdict: &Verdict, now: Timestamp) -> Result<String, AlertError> {
        let matcher = |(name, value): (&str, String)| json!({ "name": name, "value": value, "isRegex": false, "isEqual": true });
        let body = json!({
            "matchers": self.labels(verdict.number).map(matcher),
            "startsAt": rfc3339(now),
            "endsAt": rfc3339(verdict.expires + MARGIN),
            "createdBy": verdict.actor,
            "comment": format!("verdict {} about event {}: normal. {}", verdict.number, verdict.event, verdict.comment),
        });
        let url = peer::below(self.url.clone(), "/api/v2/silences");
        let response = self.respond(self.client.post(url).json(&body)).await?;
        Ok(read::<Created>(response).await?.id)
    }

    async fn expire_silence(&self, id: &str) -> Result<(), AlertError> {
        let url = peer::below(self.url.clone(), &format!("/api/v2/silence/{id}"));
        match self.respond(self.client.delete(url)).await {
            Ok(_) => Ok(()),
            // Somebody has expired it already, or Alertmanager has lost it.
            Err(AlertError::Status(StatusCode::NOT_FOUND | StatusCode::INTERNAL_SERVER_ERROR)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the alerts that a silence keeps quiet.
    async fn end_alerts(&self, verdict: i64, now: Timestamp) -> Result<(), AlertError> {
        let alerts: Vec<Alert> = self.get(self.filtered("/api/v2/alerts", verdict)).await?;
        if alerts.is_empty() {
            return Ok(());
        }
        let ended = |alert: &Alert| json!({ "labels": alert.labels, "startsAt": alert.starts_at, "endsAt": rfc3339(now) });
        let body: Vec<Value> = alerts.iter().map(ended).collect();
        let url = peer::below(self.url.clone(), "/api/v2/alerts");
        self.post(self.client.post(url).json(&body)).await
    }

    /// What the alerts of a verdict have in common.
    fn labels(&self, verdict: i64) -> [(&'static str, String); 3] {
        [
            ("alertname", ALERT_NAME.to_owned()),
            ("cluster", self.alerts.cluster.clone()),
            (VERDICT, verdict.to_string()),
        ]
    }

    /// The address of a list, restricted to what belongs to a verdict.
    fn filtered(&self, path: &str, verdict: i64) -> Url {
        let mut url = peer::below(self.url.clone(), path);
        for (name, value) in self.labels(verdict) {
            let quoted = Value::String(value).to_string();
            url.query_pairs_mut().append_pair("filter", &format!("{name}={quoted}"));
        }
        url
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: Url) -> Result<T, AlertError> {
        read(self.respond(self.client.get(url)).await?).await
    }
}

async fn read<T: serde::de::DeserializeOwned>(response: reqwest::Response) -> Result<T, AlertError> {
    let body = bounded(response, MAX_BYTES).await.map_err(|error| AlertError::Request(error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| AlertError::Request(error.to_string()))
}
