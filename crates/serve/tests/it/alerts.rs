//! Alerts: Alertmanager and webhooks learn of events once and in order, through outages and restarts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use detect::{Event, EventChange, EventWindow, Finding};
use lifecycle::{AcceptedRegion, AcceptedScope, Answer, NewVerdict};
use serde_json::{Value, json};
use serve::{ReceiverKind, ReceiverSettings, Running, ServeSettings};
use testbed::{alertmanager_on, free_port};
use workload::{Millis, Owner, Timestamp};

use crate::{eventually, settings, started};

fn event(number: i64) -> Event {
    let now = Timestamp::from(SystemTime::now()).0 / 1_000;
    let event = json!({
        "id": format!("event-{number}"), "subject": "job", "node": "n1", "nodes": ["n1"], "jobs": [number.to_string()],
        "threads": [0], "start": now - 60, "end": null, "opened": now, "strength": 1.5, "level": "job",
        "channels": ["iowait"], "kinds": [], "certainty": 0.9, "why": "mean iowait 41 % (expected 2.5 %)",
    });
    serde_json::from_value(event).unwrap()
}

fn closed(event: Event) -> EventChange {
    EventChange::Closed(Event { end: Some(event.opened), ..event })
}

async fn record(running: &Running, change: &EventChange) {
    let now = Timestamp::from(SystemTime::now());
    running.service.store.record(change, "m1", now).await.unwrap().unwrap();
}

fn with_receiver(mut settings: ServeSettings, kind: ReceiverKind, url: String) -> ServeSettings {
    settings.alerts.resend.0 = Duration::from_secs(1);
    settings.alerts.receivers =
        vec![ReceiverSettings { kind, url, silences: false, secret_file: None, token_file: None }];
    settings
}

/// The jobs of the alerts that are active.
async fn active(port: u16) -> Vec<String> {
    net::install_tls_provider();
    let url = format!("http://127.0.0.1:{port}/api/v2/alerts?active=true");
    let Ok(response) = reqwest::get(url).await else { return Vec::new() };
    let alerts: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    let job = |alert: &Value| {
        assert_eq!(alert["labels"]["alertname"], "TracewiseAnomaly");
        assert_eq!(alert["annotations"]["description"], "mean iowait 41 % (expected 2.5 %)");
        alert["labels"]["jobid"].as_str().unwrap().to_owned()
    };
    let mut jobs: Vec<String> = alerts.as_array().unwrap().iter().map(job).collect();
    jobs.sort();
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn alertmanager_is_told_of_events_and_of_their_end_also_after_an_outage() {
    let port = free_port();
    let Some(first) = alertmanager_on(port) else { return };
    let folder = tempfile::tempdir().unwrap();
    let settings = with_receiver(
        settings(folder.path()),
        ReceiverKind::Alertmanager,
        format!("http://127.0.0.1:{port}"),
    );
    let running = started(settings.clone(), None).await;
    record(&running, &EventChange::Opened(event(1))).await;
    eventually("an alert", async || active(port).await == ["1"]).await;
    record(&running, &closed(event(1))).await;
    eventually("the end of the alert", async || active(port).await.is_empty()).await;

    // Alertmanager is away, and forgets what it knew; the service is started again.
    drop(first);
    record(&running, &EventChange::Opened(event(2))).await;
    record(&running, &EventChange::Opened(event(3))).await;
    running.stop().await;
    let running = started(settings, None).await;
    record(&running, &closed(event(3))).await;
    let _second = alertmanager_on(port).unwrap();
    eventually("the alert that is open", async || active(port).await == ["2"]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(active(port).await, ["2"]);
    running.stop().await;
}

/// The windows of an event all look the same.
fn region(event: &Event) -> AcceptedRegion {
    let window = |at: i64| EventWindow {
        start: Timestamp(at * 100_000),
        owner: Owner::Nobody,
        finding: Finding::from_reconstruction(&[0.0; 4], vec![0.0; 4], vec![at as f32], 4),
        usage: None,
    };
    let windows: Vec<EventWindow> = (0..3).map(window).collect();
    AcceptedRegion::around(event, &windows, AcceptedScope::Cluster, Millis(100_000), []).unwrap()
}

/// The states of the alerts of an Alertmanager, with the verdicts in their labels, and of its silences.
async fn silenced(port: u16) -> (Vec<(String, String)>, Vec<String>) {
    net::install_tls_provider();
    let get = async |path: &str| -> Vec<Value> {
        let response = reqwest::get(format!("http://127.0.0.1:{port}/api/v2/{path}")).await.unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let alert = |alert: &Value| (text(&alert["status"]["state"]), text(&alert["labels"]["verdict"]));
    let silence = |silence: &Value| text(&silence["status"]["state"]);
    (get("alerts").await.iter().map(alert).collect(), get("silences").await.iter().map(silence).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_a_silence_in_alertmanager_until_it_is_undone() {
    let port = free_port();
    let Some(_server) = alertmanager_on(port) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut settings = with_receiver(
        settings(folder.path()),
        ReceiverKind::Alertmanager,
        format!("http://127.0.0.1:{port}"),
    );
    settings.alerts.receivers[0].silences = true;
    let running = started(settings.clone(), None).await;
    let event = Event { embedding: vec![0.0], ..event(1) };
    record(&running, &EventChange::Opened(event.clone())).await;
    eventually("an alert", async || active(port).await == ["1"]).await;

    let now = Timestamp::from(SystemTime::now());
    let verdict = NewVerdict {
        event: event.id.clone(),
        answer: Answer::Normal,
        kind: None,
        comment: "a \"test\"".into(),
        actor: "ann".into(),
        scope: AcceptedScope::Cluster,
        expires: now + Millis::DAY,
    };
    let regions = [("m1".to_owned(), region(&event))];
    let given = running.service.store.give_verdict(&verdict, &regions, now).await.unwrap();
    let number = given.number.to_string();
    let pair = |state: &str, verdict: &str| (state.to_owned(), verdict.to_owned());
    let is_silenced = async || {
        let (alerts, silences) = silenced(port).await;
        alerts == [pair("suppressed", &number)] && silences == ["active"]
    };
    eventually("a silence and a silenced alert", is_silenced).await;
    // A service that crashed before it noted the silence finds it.
    let name = settings.alerts.receivers[0].name();
    running.service.store.remove_silence(&name, given.number).await.unwrap();
    running.stop().await;
    let running = started(settings, None).await;
    eventually("the silence is known again", async || {
        !running.service.store.silences(&name).await.unwrap().is_empty()
    })
    .await;
    assert!(is_silenced().await, "{:?}", silenced(port).await);

    running.service.store.undo_verdict(given.number, "ann", now).await.unwrap();
    eventually("the alert without a silence", async || {
        let (alerts, silences) = silenced(port).await;
        alerts == [pair("active", "")] && silences == ["expired"]
    })
    .await;
    running.stop().await;
}

/// A webhook, which can be told to fail.
#[derive(Clone, Default)]
struct Hook {
    received: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    is_failing: Arc<Mutex<bool>>,
}

async fn receive(State(hook): State<Hook>, headers: HeaderMap, body: String) -> StatusCode {
    if *hook.is_failing.lock().unwrap() {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    hook.received.lock().unwrap().push((headers, body));
    StatusCode::NO_CONTENT
}

impl Hook {
    async fn listen(&self) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().route("/hook", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        port
    }

    /// What was received: the change and the event.
    fn changes(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let received = self.received.lock().unwrap();
        let bodies = received.iter().map(|(_, body)| serde_json::from_str::<Value>(body).unwrap());
        bodies.map(|body| (text(&body["what"]), text(&body["event"]["id"]))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_told_once_in_order_with_a_signature() {
    let hook = Hook::default();
    let port = hook.listen().await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "secret\n").unwrap();
    let mut settings = with_receiver(
        settings(folder.path()),
        ReceiverKind::Webhook,
        format!("http://127.0.0.1:{port}/hook"),
    );
    settings.alerts.receivers[0].secret_file = Some(key);
    let running = started(settings.clone(), None).await;
    let name = format!("webhook http://127.0.0.1:{port}/hook");
    // A receiver that is new is told what happens from now on.
    eventually("the receiver is known", async || running.service.store.delivered(&name).await.is_ok()).await;
    record(&running, &EventChange::Opened(event(1))).await;
    eventually("the first change", async || hook.changes().len() == 1).await;
    *hook.is_failing.lock().unwrap() = true;
    record(&running, &EventChange::Opened(event(2))).await;
    record(&running, &closed(event(1))).await;
    running.stop().await;
    let running = started(settings, None).await;
    record(&running, &closed(event(2))).await;
    *hook.is_failing.lock().unwrap() = false;
    eventually("all changes", async || hook.changes().len() >= 4).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = |what: &str, number: i64| (what.to_owned(), format!("event-{number}"));
    assert_eq!(hook.changes(), [told("opened", 1), told("opened", 2), told("closed", 1), told("closed", 2)]);
    for (headers, body) in hook.received.lock().unwrap().iter() {
        let header = |name: &str| headers[name].to_str().unwrap();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"secret");
        let signed = ring::hmac::sign(&key, format!("{}.{body}", header("tracewise-timestamp")).as_bytes());
        let signed: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(header("tracewise-signature"), format!("sha256={signed}"));
        assert_eq!(
            header("tracewise-change"),
            serde_json::from_str::<Value>(body).unwrap()["number"].to_string()
        );
    }
    running.stop().await;
}
