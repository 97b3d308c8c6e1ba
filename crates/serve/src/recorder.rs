//! Records changes of events, in order, also if the store is unavailable for a while.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lifecycle::Store;
use tokio::sync::{mpsc, watch};
use workload::Timestamp;

use crate::counts::{Counts, Stage};
use crate::scoring::Change;

const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How often the store is asked for changes that others made, and whether a verdict has expired.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const APPLY_EVERY: u32 = 30;

/// Notices changes that others record, such as the command line, and verdicts that expire, until `stop` changes.
pub async fn follow(store: Store, last: watch::Sender<i64>, mut stop: watch::Receiver<bool>) {
    for look in 1_u32.. {
        tokio::select! {
            _ = stop.changed() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if look.is_multiple_of(APPLY_EVERY) {
            // A store that does not respond is asked again.
            let _ = store.apply_verdicts(Timestamp::from(SystemTime::now())).await;
        }
        if let Ok(number) = store.last_change().await {
            raise(&last, number);
        }
    }
}

fn raise(last: &watch::Sender<i64>, number: i64) {
    last.send_if_modified(|last| {
        let is_newer = number > *last;
        *last = number.max(*last);
        is_newer
    });
}

/// Records until no more changes come. `last` is the number of the last change that was recorded.
pub async fn record(
    mut changes: mpsc::UnboundedReceiver<Change>,
    store: Store,
    last: watch::Sender<i64>,
    counts: Arc<Counts>,
) {
    while let Some((change, model)) = changes.recv().await {
        let mut pause = Duration::from_millis(200);
        loop {
            let begin = Instant::now();
            match store.record(&change, &model, Timestamp::from(SystemTime::now())).await {
                Ok(number) => {
                    counts.spend(Stage::Record, begin.elapsed());
                    if let Some(number) = number {
                        let event = change.event();
                        tracing::info!("event {} {}: {}", event.id, change.name(), event.why);
                        raise(&last, number);
                    }
                    break;
                }
                Err(error) => {
                    tracing::warn!("an event cannot be recorded yet: {error}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }
}
