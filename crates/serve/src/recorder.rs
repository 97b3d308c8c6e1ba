//! Records changes of events, in order, also if the store is unavailable for a while.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lifecycle::Store;
use tokio::sync::{mpsc, watch};
use workload::Timestamp;

use crate::counts::{Counts, Stage};
use crate::scoring::Change;

const MAX_PAUSE: Duration = Duration::from_secs(30);

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
                        last.send_replace(number);
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
