//! What readers of a page have and a test does not.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use detect::EventChange;
use lifecycle::Store;
use workload::Timestamp;

use crate::{stdout_of, tracewise};

pub fn make(what: &str, folder: &Path) -> Result<(), String> {
    match what {
        "a service that has reported two events" => events(&folder.join("data")),
        "two hours of data and small candidates" => night(folder),
        other => return Err(format!("{other:?} cannot be given")),
    }
    Ok(())
}

/// Two events in the store of a service: one of a job, one of a thread that no job owns.
fn events(data: &Path) {
    std::fs::create_dir_all(data).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let event = |id: &str, node: &str, job: &str, level: &str, why: &str| {
        let event = serde_json::json!({
            "id": id, "subject": "job", "node": node, "nodes": [node], "jobs": [job], "threads": [4, 5, 6, 7],
            "start": now - 900, "end": now - 300, "opened": now - 780, "strength": 4.2, "level": level,
            "channels": ["user", "iowait"], "kinds": [{"kind": "bad-io", "confidence": 0.97, "distance": 0.8, "is_inside": true}],
            "certainty": 0.99, "why": why,
        });
        EventChange::Opened(serde_json::from_value(event).unwrap())
    };
    let first = event("5d0a4b0c6f6f2e11", "n003", "1110", "error", "user was 4 %, expected 95 %; iowait was 71 %, expected 0 %");
    let second = event("4c1d2e0a9b8f7a61", "n001", "1117", "peers", "one thread differs from the others of its job");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open_file(&data.join("metadata.db")).await.unwrap();
        for change in [first, second] {
            store.record(&change, "v1794966475", Timestamp(now as i64 * 1_000)).await.unwrap();
        }
        store.close().await;
    });
}

/// The data of a service that can hold a competition, and settings with which that takes seconds.
fn night(folder: &Path) {
    let settings = "[detector.train]\nn_epochs = 2\n\n[serve.learning]\ncandidates = [\"ae\", \"pca\"]\nwarm_start = false\n\
                    history = \"3h\"\n";
    std::fs::write(folder.join("tracewise.toml"), settings).unwrap();
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 9_000;
    let mut simulate = tracewise();
    simulate.args(["campaign", "simulate", "--campaigns", "train=3", "--hours", "0.75", "--nodes", "2"]);
    simulate.args(["--threads", "16", "--seed", "5", "--start", &start.to_string(), "--into"]);
    stdout_of(simulate.arg(folder.join("data/archive")));
}
