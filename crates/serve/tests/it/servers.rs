//! Other servers: samples that are read from them, and scores that are sent to them.

use std::time::Duration;

use serde_json::Value;
use serve::PollSettings;
use testbed::{free_port, prometheus, victoria_metrics_of};

use crate::agents::TestAgent;
use crate::remote_write::readings_are_stored;
use crate::{eventually, settings, started};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_victoria_metrics_scraped_is_read_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let agent = TestAgent::start(&folder.path().join("node"), port);
    let Some(server) = victoria_metrics_of(&format!("127.0.0.1:{port}")) else { return agent.stop() };
    let mut settings = settings(folder.path());
    settings.prometheus = vec![PollSettings {
        url: server.url(),
        every: serve::Length(Duration::from_secs(1)),
        matchers: "node=\"n1\"".into(),
        token_file: None,
    }];
    let running = started(settings, None).await;
    readings_are_stored(running, agent, folder.path(), server, async || true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_gets_the_series_of_the_service() {
    let Some(server) = prometheus(None, &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let mut changed = settings(folder.path());
    changed.export.remote_write = format!("{}/api/v1/write", server.url());
    changed.export.every.0 = Duration::from_secs(1);
    // Where to send can be changed while the service runs.
    let lines = running.reload(changed.clone()).unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(running.reload(changed).unwrap().is_empty());
    let url = format!("{}/api/v1/query?query=process_resident_memory_bytes", server.url());
    eventually("a sample", async || {
        let body = reqwest::get(&url).await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let value =
            answer["data"]["result"][0]["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
        value.is_some_and(|bytes| bytes > 1e6)
    })
    .await;
    running.stop().await;
}
