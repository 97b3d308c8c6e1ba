//! What the service needs goes away and comes back: the disk's room, the database.

use std::time::{Duration, SystemTime};

use agent::exposition::{Family, Kind, Sink};
use agent::remote_write::{Batch, Sender, Target};
use testbed::small_disk::SmallDisk;
use testbed::{http, postgres, postgres_url};
use workload::{Millis, Timestamp};

use crate::agents::archived;
use crate::{settings, started};

/// A sender of samples to the service.
fn sender(port: u16) -> Sender {
    let url = format!("http://127.0.0.1:{port}/api/v1/write").parse().unwrap();
    Sender::new(Target { url, bearer_token_file: None }).unwrap()
}

/// One scrape of a node with many threads.
fn scrape(time: Timestamp, second: i64) -> Batch {
    let mut batch = Batch::new(Vec::new());
    let help = "Seconds.";
    batch.family(Family { name: "node_cpu_seconds_total", kind: Kind::Counter, help });
    for cpu in 0..64 {
        for mode in ["user", "system", "idle"] {
            let labels = [("cpu", &*format!("{cpu}")), ("instance", "n1"), ("mode", mode)];
            batch.sample(&labels, second as f64, Some(time));
        }
    }
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_refused_while_the_disk_is_full_and_nothing_acknowledged_is_lost() {
    let Some(disk) = SmallDisk::mount(16_384) else { return };
    let running = started(settings(disk.path()), None).await;
    let mut sender = sender(running.address.port());
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(3_000);
    let mut accepted = Vec::new();
    let (mut filler, mut n_refused) = (None, 0);
    for second in 0..400 {
        match second {
            50 => filler = Some(disk.fill(64)),
            250 => std::fs::remove_file(filler.take().unwrap()).unwrap(),
            _ => {}
        }
        let time = begin + Millis::from_seconds(second);
        match sender.send(&scrape(time, second)).await {
            Ok(()) => accepted.push(time),
            Err(failure) => {
                assert!(failure.is_passing(), "a full disk is told as 503: {failure}");
                n_refused += 1;
            }
        }
    }
    assert!(n_refused > 20 && accepted.len() > 150, "{n_refused} refused, {} accepted", accepted.len());
    tokio::time::sleep(Duration::from_secs(3)).await;
    running.stop().await;
    let stored: Vec<Timestamp> = archived(disk.path()).iter().map(|reading| reading.time).collect();
    // The last reading waits for the one after it.
    accepted.pop();
    let lost: Vec<&Timestamp> = accepted.iter().filter(|time| !stored.contains(time)).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), accepted.len());
    assert_eq!(
        stored.len(),
        stored.iter().collect::<std::collections::BTreeSet<_>>().len(),
        "none is doubled"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_goes_on_when_postgresql_returns() {
    let Some(mut database) = postgres() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    settings.store = postgres_url(&database);
    let running = started(settings, None).await;
    let port = running.address.port();
    let status = |path: &'static str| async move {
        tokio::task::spawn_blocking(move || http::get(port, path, &[]).status).await.unwrap()
    };
    assert_eq!((status("/readyz").await, status("/api/v1/nodes").await), (200, 200));
    database.kill();
    assert_eq!(status("/healthz").await, 200, "the service itself is well");
    assert_eq!((status("/readyz").await, status("/api/v1/events").await), (503, 503));
    database.start_again();
    crate::eventually("the database is used again", async || status("/api/v1/events").await == 200).await;
    assert_eq!(status("/readyz").await, 200);
    running.stop().await;
}
