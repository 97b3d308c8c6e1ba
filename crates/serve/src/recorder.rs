//! Records what scoring finds, in order, also if the store is unavailable for a while.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use detect::{Event, EventChange};
use lifecycle::{Store, StoreError};
use tokio::sync::{mpsc, watch};
use workload::{Millis, Timestamp};

use crate::counts::{Counts, Stage};

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

/// Something that is to be recorded.
#[derive(Debug)]
pub enum Record {
    /// A change of an event, and the version of the model that found it.
    Event(EventChange, String),
    /// An open event has become stronger.
    Stronger(Event),
    /// What a challenger would have reported.
    Shadow(EventChange, String),
    /// A challenger has scored for some time, up to `to`.
    ShadowTime { model: String, length: Millis, to: Timestamp },
}

impl Record {
    /// Records it and returns the number of the change, if it is one that others are told about.
    async fn write(&self, store: &Store) -> Result<Option<i64>, StoreError> {
        let now = Timestamp::from(SystemTime::now());
        match self {
            Self::Event(change, model) => store.record(change, model, now).await,
            Self::Stronger(event) => store.update_open(event).await.map(|()| None),
            Self::Shadow(change, model) => store.record_shadow(change, model, now).await.map(|()| None),
            Self::ShadowTime { model, length, to } => {
                store.add_shadow_time(model, *length, *to).await.map(|()| None)
            }
        }
    }
}

/// Records until no more comes. `last` is the number of the last change that was recorded.
pub async fn record(
    mut records: mpsc::UnboundedReceiver<Record>,
    store: Store,
    last: watch::Sender<i64>,
    counts: Arc<Counts>,
) {
    while let Some(record) = records.recv().await {
        let mut pause = Duration::from_millis(200);
        loop {
            let begin = Instant::now();
            match record.write(&store).await {
                Ok(number) => {
                    counts.spend(Stage::Record, begin.elapsed());
                    if let (Some(number), Record::Event(change, _)) = (number, &record) {
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
