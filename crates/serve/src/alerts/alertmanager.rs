//! Alerts in the format of Alertmanager's API, version 2.

use std::time::Duration;

use detect::{Event, EventSubject};
use serde_json::{Map, Value, json};
use workload::{Millis, Timestamp};

use crate::peer::rfc3339;

/// An alert of an open event ends by itself if it was not sent again so many times.
pub const N_RESENDS: u32 = 4;

pub const ALERT_NAME: &str = "TracewiseAnomaly";
/// The label with the number of the verdict that hides an event.
pub const VERDICT: &str = "verdict";

/// The alert of an event. Its labels are its identity and never change; everything else is an annotation. An event that a
/// verdict hides has another identity.
pub fn alert(
    event: &Event,
    hidden_by: Option<i64>,
    cluster: &str,
    external_url: Option<&str>,
    now: Timestamp,
    keep: Duration,
) -> Value {
    let mut labels = Map::new();
    let mut label = |name: &str, value: String| labels.insert(name.to_owned(), Value::String(value));
    label("alertname", ALERT_NAME.into());
    label("cluster", cluster.to_owned());
    label("severity", "warning".into());
    label("subject", event.subject.to_string());
    label("level", event.level.to_string());
    if let Some(node) = &event.node {
        label("node", node.to_string());
    }
    if let (EventSubject::Job, Some(job)) = (event.subject, event.jobs.first()) {
        label("jobid", job.to_string());
    }
    if let Some(verdict) = hidden_by {
        label(VERDICT, verdict.to_string());
    }
    let kinds: Vec<String> =
        event.kinds.iter().map(|kind| format!("{} {:.0} %", kind.kind, kind.confidence * 100.0)).collect();
    let jobs: Vec<&str> = event.jobs.iter().map(|job| job.as_str()).collect();
    let mut alert = json!({
        "labels": labels,
        "annotations": {
            "summary": summary(event),
            "description": event.why,
            "event": event.id,
            "jobs": jobs.join(", "),
            "strength": format!("{:.2}", event.strength),
            "certainty": format!("{:.2}", event.certainty),
            "kinds": kinds.join(", "),
        },
        "startsAt": rfc3339(event.start),
        "endsAt": rfc3339(event.end.unwrap_or(now + Millis::from(keep))),
    });
    if let Some(url) = external_url {
        let link = format!("{}/#/events/{}", url.trim_end_matches('/'), event.id);
        alert["generatorURL"] = Value::String(link);
    }
    alert
}

/// What the event is about, in a line.
fn summary(event: &Event) -> String {
    let node = event.node.as_ref().map(|node| node.as_str());
    match (event.subject, node, event.jobs.first()) {
        (EventSubject::Job, Some(node), Some(job)) => format!("job {job} on {node} is abnormal"),
        (EventSubject::Cluster, ..) => "the cluster is abnormal".to_owned(),
        (_, Some(node), _) => format!("node {node} is abnormal"),
        (_, None, _) => format!("{} is abnormal", event.subject),
    }
}
