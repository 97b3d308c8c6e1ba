//! What readers of a page have and a test does not.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use detect::EventChange;
use lifecycle::Store;
use workload::Timestamp;

use crate::{json_of, stdout_of, tracewise};

pub fn make(what: &str, folder: &Path) -> Result<(), String> {
    match what {
        "a service that has reported two events" => events(&folder.join("data")),
        // Where /var/lib/tracewise is in a test.
        "an installed service that has reported two events" => events(&folder.join("var")),
        "two hours of data and small candidates" => night(folder),
        other => return Err(format!("{other:?} cannot be given")),
    }
    Ok(())
}

/// The identifiers of events on the pages.
const EVENTS: [&str; 2] = ["5d0a4b0c6f6f2e11", "4c1d2e0a9b8f7a61"];
const MODEL: &str = "v1794966475";
const DAY: u64 = 86_400;

/// A service with an archive, a model, and two of the events that this model finds in the archive.
fn events(data: &Path) {
    // On a Monday at midnight, as by default, so that the jobs are the same whenever the test runs: the epoch was a Thursday.
    let monday = (now() / DAY - 8) / 7 * 7 + 4;
    let archive = data.join("archive");
    let campaigns = "train=1,validation=1,test=1";
    simulate(&["--campaigns", campaigns, "--nodes", "2", "--threads", "8"], monday * DAY, &archive);
    let model = data.join("model");
    stdout_of(
        tracewise()
            .args(["detect", "train", "--detector", "pca", "--data"])
            .arg(&archive)
            .arg("--out")
            .arg(&model),
    );
    let add = ["--name", MODEL, "--promote", "the first model", "--data"];
    stdout_of(tracewise().args(["models", "add"]).arg(&model).args(add).arg(data));
    let find = ["detect", "events", "--json", "--set", "test", "--data"];
    let found = json_of(tracewise().args(find).arg(&archive).arg("--model").arg(&model));
    let found = found.as_array().unwrap();
    assert!(found.len() >= EVENTS.len(), "{found:?}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open_file(&data.join("metadata.db")).await.unwrap();
        for (event, id) in found.iter().zip(EVENTS) {
            let mut event = event.clone();
            event["id"] = id.into();
            let change = EventChange::Opened(serde_json::from_value(event).unwrap());
            store.record(&change, MODEL, Timestamp(now() as i64 * 1_000)).await.unwrap();
        }
        store.close().await;
    });
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn simulate(options: &[&str], start: u64, archive: &Path) {
    let mut simulate = tracewise();
    simulate.args(["campaign", "simulate", "--hours", "0.75", "--seed", "5"]).args(options);
    stdout_of(simulate.args(["--start", &start.to_string(), "--into"]).arg(archive));
}

/// The data of a service that can hold a competition, and settings with which that takes seconds.
fn night(folder: &Path) {
    let settings = "[detector.train]\nn_epochs = 2\n\n[serve.learning]\ncandidates = [\"ae\", \"pca\"]\nwarm_start = false\n\
                    history = \"3h\"\n";
    std::fs::write(folder.join("tracewise.toml"), settings).unwrap();
    let cluster = ["--campaigns", "train=3", "--nodes", "2", "--threads", "16"];
    simulate(&cluster, now() - 9_000, &folder.join("data/archive"));
}
