//! Shadow mode: a challenger scores the same windows as the champion, and nobody is told what it finds.

use detect::{KnownJobs, Monitor, TrainedDetector, WindowBatch};
use tokio::sync::mpsc;
use workload::{Millis, Timestamp};

use crate::models::Model;
use crate::recorder::Record;

/// How often the time is recorded that a challenger has scored.
const RECORD_EVERY: Millis = Millis(60_000);
/// Windows that end later than this after the ones before do not count as scored in between.
const MAX_GAP: Millis = Millis(60_000);

/// A challenger at work.
pub struct Shadow<'a> {
    model: &'a Model,
    monitor: Monitor<'a>,
    records: mpsc::UnboundedSender<Record>,
    length: Millis,
    /// The end of the last windows, and the time that was scored and is not recorded yet.
    last: Option<Timestamp>,
    scored: Millis,
}

impl<'a> Shadow<'a> {
    /// A challenger that scores the windows of a champion; `None` if it needs other windows.
    pub fn new(
        model: &'a Model,
        champion: &TrainedDetector,
        known: &'a KnownJobs,
        records: mpsc::UnboundedSender<Record>,
    ) -> Option<Self> {
        let spec = model.detector.event_spec();
        let has_same_windows = spec == champion.event_spec();
        let monitor = has_same_windows.then(|| Monitor::new(&model.detector, known, model.library.clone()));
        match monitor {
            Some(Ok(monitor)) => {
                tracing::info!("challenger {} scores in shadow mode", model.version);
                let (last, scored) = (None, Millis(0));
                Some(Self { model, monitor, records, length: spec.length(), last, scored })
            }
            Some(Err(error)) => {
                tracing::warn!("challenger {}: {error}", model.version);
                None
            }
            None => {
                let version = &model.version;
                tracing::warn!("challenger {version} needs other windows than the champion: no shadow mode");
                None
            }
        }
    }

    /// Scores a batch.
    pub fn observe(&mut self, batch: &WindowBatch) {
        let version = &self.model.version;
        for change in self.monitor.observe(batch) {
            // The recorder has ended: the service is stopping.
            let _ = self.records.send(Record::Shadow(change, version.clone()));
        }
        let end = batch.start() + self.length;
        let passed = self.last.map_or(Millis(0), |last| end - last);
        if passed.0 > 0 && passed <= MAX_GAP {
            self.scored = Millis(self.scored.0 + passed.0);
        }
        self.last = self.last.max(Some(end));
        if self.scored >= RECORD_EVERY {
            let length = std::mem::replace(&mut self.scored, Millis(0));
            let _ = self.records.send(Record::ShadowTime { model: version.clone(), length, to: end });
        }
    }
}
