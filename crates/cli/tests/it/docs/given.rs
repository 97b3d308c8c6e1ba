//! What readers of a page have and a test does not.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use detect::EventChange;
use lifecycle::Store;
use workload::Timestamp;

pub fn make(what: &str, folder: &Path) -> Result<(), String> {
    match what {
        "a service that has reported two events" => events(&folder.join("data")),
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
