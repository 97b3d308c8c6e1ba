//! The service as a whole: with agents, a simulated cluster, and clients of every role.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod agents;
mod alerts;
mod events;
mod outages;
mod remote_write;
mod schema;
mod servers;
mod stored;
mod workflow_runs;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use serve::{Running, ServeSettings, Simulation, start};
use testbed::http;

/// Settings with everything below a folder, on a free port.
fn settings(folder: &Path) -> ServeSettings {
    let mut settings = ServeSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data: folder.join("data"),
        ..ServeSettings::default()
    };
    settings.agents.every.0 = Duration::from_millis(100);
    settings
}

async fn started(settings: ServeSettings, simulation: Option<Simulation>) -> Running {
    start(settings, detect::DetectorConfig::default(), simulation).await.unwrap()
}

/// A response to a request without a token.
async fn json(running: &Running, path: &str) -> Value {
    let (port, path) = (running.address.port(), path.to_owned());
    let answer = tokio::task::spawn_blocking(move || http::get(port, &path, &[])).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Waits until `is_true`, at most a minute.
async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_true().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not happen in time");
}
