//! Live scoring: stored readings become window batches, batches become scores and events.
//!
//! Two threads: one cuts windows, the other scores them. If the second is too slow, the first leaves out batches, which
//! makes the stride longer; every reading still takes part.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use archive::{Archive, Replay, Replayed, Selection};
use detect::{
    BufferStatus, Event, EventChange, KnownJobs, Library, Monitor, WindowBatch, WindowBuffer, WindowFilter,
    WindowSpec,
};
use tokio::sync::mpsc;
use workload::{Millis, NodeName, Stop, Timestamp};

use crate::counts::{Counts, Stage, add};
use crate::error::ServeError;
use crate::ingest::Stored;
use crate::live::Live;
use crate::models::Model;
use crate::recorder::Record;
use crate::shadow::Shadow;

/// Windows that may wait for the scorer: a few seconds of its work. A batch with more waits alone.
const MAX_WAITING: u64 = 50_000;
/// The stride becomes longer by at most this factor.
const MAX_FACTOR: i64 = 64;
/// After so many batches in time, the stride becomes shorter again.
const N_IN_TIME: i64 = 20;
/// An open event is recorded again when it is stronger by this factor.
const STRONGER: f64 = 1.2;
const TICK: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(10);

/// What scoring shares with the rest of the service.
#[derive(Default)]
pub struct Shared {
    live: Mutex<Arc<Live>>,
    status: Mutex<BufferStatus>,
    model: Mutex<Option<Model>>,
    challenger: Mutex<Option<Model>>,
    /// What events are compared with from now on.
    library: Mutex<Option<Library>>,
}

impl Shared {
    /// The state of the cluster.
    pub fn live(&self) -> Arc<Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The end of the newest windows.
    pub fn time(&self) -> Option<Timestamp> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).time
    }

    /// What is late, missing or ignored.
    pub fn status(&self) -> BufferStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The version of the model in use.
    pub fn model(&self) -> Option<String> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|model| model.version.clone())
    }

    /// The challenger in shadow mode.
    fn challenger(&self) -> Option<Model> {
        self.challenger.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a version is in shadow mode; `None` for no challenger.
    pub fn is_challenger(&self, version: Option<&str>) -> bool {
        let challenger = self.challenger.lock().unwrap_or_else(PoisonError::into_inner);
        challenger.as_ref().map(|model| model.version.as_str()) == version
    }

    /// Scores with another challenger beside the champion from the next batch on, or with none.
    pub fn use_challenger(&self, challenger: Option<Model>) {
        *self.challenger.lock().unwrap_or_else(PoisonError::into_inner) = challenger;
    }

    /// Compares events with other jobs from the next batch on.
    pub fn use_library(&self, library: Library) {
        *self.library.lock().unwrap_or_else(PoisonError::into_inner) = Some(library);
    }

    /// The model in use.
    pub fn current_model(&self) -> Option<Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts scoring and ends when no more readings come.
pub struct Scoring {
    pub readings: Receiver<Vec<Stored>>,
    /// The model to use; a new one replaces it without a missing window.
    pub models: Receiver<Model>,
    pub records: mpsc::UnboundedSender<Record>,
    /// Events that were open when the service stopped, and the last reading before that.
    pub open: Vec<Event>,
    pub stopped_at: Timestamp,
    /// Windows that began before scoring are completed from here.
    pub archive: Archive,
    pub stride: Duration,
    pub n_threads: usize,
    pub shared: Arc<Shared>,
    pub counts: Arc<Counts>,
    /// What is not scored by then is scored after a restart, from the archive.
    pub stop: Stop,
}

impl Scoring {
    /// Starts both threads.
    pub fn start(self) -> Result<std::thread::JoinHandle<()>, ServeError> {
        let work = move || self.run();
        std::thread::Builder::new().name("windows".into()).spawn(work).map_err(ServeError::Thread)
    }

    fn run(mut self) {
        // Without a model, readings are stored only.
        let mut model = None;
        while model.is_none() {
            model = self.models.try_recv().ok();
            match self.readings.recv_timeout(TICK) {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        while let Some(current) = model.take() {
            model = self.run_with(&current);
        }
    }

    /// Scores with one model until there is another, or no more readings come.
    fn run_with(&mut self, model: &Model) -> Option<Model> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.n_threads)
            .thread_name(|number| format!("score-{number}"))
            .build();
        let pool = match pool {
            Ok(pool) => pool,
            Err(error) => {
                tracing::error!("cannot start threads for scoring: {error}");
                return None;
            }
        };
        let spec = self.spec(model);
        let stride = spec.stride_length();
        *self.shared.model.lock().unwrap_or_else(PoisonError::into_inner) = Some(model.clone());
        tracing::info!("scoring with model {} every {} s", model.version, stride.as_seconds());
        let (batches, waiting) = channel();
        let n_waiting = Arc::new(AtomicU64::new(0));
        let of_scorer = Arc::downgrade(&n_waiting);
        let scorer = Scorer {
            n_waiting,
            model: model.clone(),
            shared: self.shared.clone(),
            counts: self.counts.clone(),
            records: self.records.clone(),
            stop: self.stop.clone(),
        };
        let (open, stopped_at) = (std::mem::take(&mut self.open), self.stopped_at);
        std::thread::scope(|scope| {
            let scoring = scope.spawn(move || pool.install(move || scorer.run(&waiting, open, stopped_at)));
            let queue = Queue { batches, n_waiting: of_scorer, counts: self.counts.clone() };
            let next = self.cut(WindowBuffer::new(spec, WindowFilter::All), model, &queue);
            // The scorer ends when no more batches can come.
            drop(queue);
            if let Ok(open) = scoring.join() {
                self.open = open;
            }
            self.stopped_at = self.shared.time().unwrap_or(self.stopped_at);
            next
        })
    }

    fn spec(&self, model: &Model) -> WindowSpec {
        let mut spec = model.detector.event_spec();
        let n_steps = self.stride.as_millis() as i64 / spec.period.0.max(1);
        spec.stride = (n_steps.max(1) as usize).min(spec.n_steps);
        spec
    }

    /// The last readings of the archive.
    fn archived(&self, length: Millis) -> archive::Result<Vec<Stored>> {
        let ends = crate::models::last_readings(&self.archive)?;
        let Some(last) = ends.into_values().max() else { return Ok(Vec::new()) };
        let snapshot = self.archive.snapshot(Selection { from: last - length, ..Selection::default() })?;
        let stored = |replayed: archive::Result<Replayed>| replayed.map(|one| (one.reading, one.scale));
        Replay::new(&snapshot, None)?.map(stored).collect()
    }

    /// Cuts windows out of the readings, first out of those that were stored before.
    fn cut(&mut self, mut buffer: WindowBuffer, model: &Model, queue: &Queue) -> Option<Model> {
        let stride = buffer.spec().stride_length();
        let lookback =
            Millis(buffer.spec().length().0 + model.detector.confirmation().lasting.0 + 2 * stride.0);
        let mut seen: BTreeMap<NodeName, Timestamp> = BTreeMap::new();
        match self.archived(lookback) {
            Ok(readings) => {
                for (reading, scale) in readings {
                    seen.insert(reading.node.clone(), reading.time);
                    for batch in buffer.push(&reading, scale) {
                        // Old batches wait for the scorer: none of them is urgent.
                        while !queue.has_room(&batch) {
                            if self.stop.wait(PAUSE) {
                                return None;
                            }
                        }
                        queue.send(batch)?;
                    }
                }
            }
            Err(error) => tracing::warn!("the first windows are not completed from the archive: {error}"),
        }
        let mut pace = Pace::default();
        let mut described = Instant::now() - TICK;
        loop {
            self.counts.stride_millis.store((stride.0 * pace.factor) as u64, Ordering::Relaxed);
            if let Ok(next) = self.models.try_recv() {
                return Some(next);
            }
            let readings = match self.readings.recv_timeout(TICK) {
                Ok(readings) => readings,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            let begin = Instant::now();
            let mut complete = Vec::new();
            for (reading, scale) in readings {
                // The archive had it already.
                if seen.get(&reading.node).is_none_or(|last| reading.time > *last) {
                    seen.remove(&reading.node);
                    complete.extend(buffer.push(&reading, scale));
                }
            }
            self.counts.spend(Stage::Buffer, begin.elapsed());
            if described.elapsed() >= TICK {
                described = Instant::now();
                *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner) = buffer.status();
            }
            for batch in complete {
                let number = batch.start().0 / stride.0.max(1);
                if !pace.is_due(number) {
                    add(&self.counts.skipped_batches, 1);
                    continue;
                }
                if queue.has_room(&batch) {
                    queue.send(batch)?;
                    pace.in_time(number);
                } else {
                    add(&self.counts.skipped_batches, 1);
                    pace.too_slow(number);
                }
            }
        }
    }
}

/// The way of batches to the scorer.
struct Queue {
    batches: Sender<WindowBatch>,
    /// Windows that wait, as long as there is a scorer.
    n_waiting: Weak<AtomicU64>,
    counts: Arc<Counts>,
}

impl Queue {
    fn has_room(&self, batch: &WindowBatch) -> bool {
        let n_waiting = self.n_waiting.upgrade().map_or(0, |n_waiting| n_waiting.load(Ordering::Relaxed));
        n_waiting == 0 || n_waiting + batch.threads().len() as u64 <= MAX_WAITING
    }

    /// Sends a batch; `None` if the scorer has ended.
    fn send(&self, batch: WindowBatch) -> Option<()> {
        add(&*self.n_waiting.upgrade()?, batch.threads().len() as u64);
        add(&self.counts.waiting_batches, 1);
        self.batches.send(batch).ok()
    }
}

/// How many batches are scored: one of `factor`. Batches are numbered by their start; nodes that are late have batches of
/// their own with the same number.
#[derive(Debug)]
struct Pace {
    factor: i64,
    /// The number of the batch at which the factor changed.
    changed: i64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { factor: 1, changed: i64::MIN / 2 }
    }
}

impl Pace {
    /// Whether the batch of this number is scored.
    fn is_due(&self, number: i64) -> bool {
        number.rem_euclid(self.factor) == 0
    }

    /// A batch that is due cannot be scored. Several at once do not count more than one.
    fn too_slow(&mut self, number: i64) {
        if number - self.changed >= self.factor && self.factor < MAX_FACTOR {
            (self.factor, self.changed) = (self.factor * 2, number);
            tracing::warn!("scoring is too slow; one window of {} is scored", self.factor);
        }
    }

    fn in_time(&mut self, number: i64) {
        if self.factor > 1 && number - self.changed >= N_IN_TIME * self.factor {
            (self.factor, self.changed) = (self.factor / 2, number);
        }
    }
}

/// Scores batches.
struct Scorer {
    model: Model,
    /// Windows that wait.
    n_waiting: Arc<AtomicU64>,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    records: mpsc::UnboundedSender<Record>,
    stop: Stop,
}

impl Scorer {
    /// Scores until no more batches come, and returns the events that are open then.
    fn run(&self, batches: &Receiver<WindowBatch>, open: Vec<Event>, stopped_at: Timestamp) -> Vec<Event> {
        let detector = &self.model.detector;
        let known = KnownJobs::default();
        let mut monitor = match Monitor::new(detector, &known, self.model.library.clone()) {
            Ok(monitor) => monitor,
            Err(error) => {
                tracing::error!("model {}: {error}", self.model.version);
                return open;
            }
        };
        monitor.resume(open, stopped_at);
        let mut recorded = BTreeMap::new();
        loop {
            let challenger = self.shared.challenger();
            let version = challenger.as_ref().map(|challenger| challenger.version.as_str());
            let mut shadow = challenger
                .as_ref()
                .and_then(|challenger| Shadow::new(challenger, detector, &known, self.records.clone()));
            while self.shared.is_challenger(version) {
                let Ok(batch) = batches.recv() else { return monitor.finish() };
                if self.stop.is_set() {
                    return monitor.finish();
                }
                self.score(&mut monitor, &batch);
                for event in stronger(&monitor, &mut recorded) {
                    // If the recorder has ended, the service is stopping.
                    let _ = self.records.send(Record::Stronger(event));
                }
                // The champion comes first: a challenger scores only if nothing waits.
                if let Some(shadow) = &mut shadow
                    && self.n_waiting.load(Ordering::Relaxed) == 0
                {
                    let begin = Instant::now();
                    shadow.observe(&batch);
                    self.counts.spend(Stage::Shadow, begin.elapsed());
                }
            }
        }
    }

    /// Scores a batch with the champion.
    fn score(&self, monitor: &mut Monitor<'_>, batch: &WindowBatch) {
        let detector = &self.model.detector;
        let length = detector.event_spec().length();
        if let Some(library) = self.shared.library.lock().unwrap_or_else(PoisonError::into_inner).take() {
            monitor.use_library(library);
        }
        self.counts.waiting_batches.fetch_sub(1, Ordering::Relaxed);
        self.n_waiting.fetch_sub(batch.threads().len() as u64, Ordering::Relaxed);
        let begin = Instant::now();
        let findings = detector.examine(batch);
        let score = |finding| detector.strength(finding, None).unwrap_or(0.0);
        let scores: Vec<f64> = findings.iter().map(score).collect();
        let changes = monitor.decide(batch, findings.clone());
        let mut live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        // Copied only if a request is being answered from it.
        Arc::make_mut(&mut live).update(batch, length, &findings, &scores, monitor.strengths());
        drop(live);
        for change in changes {
            if matches!(change, EventChange::Opened(_)) {
                add(&self.counts.events_opened, 1);
            }
            // The recorder has ended: the service is stopping.
            let _ = self.records.send(Record::Event(change, self.model.version.clone()));
        }
        add(&self.counts.scored_windows, scores.len() as u64);
        let lag = Timestamp::from(SystemTime::now()) - (batch.start() + length);
        self.counts.lag_millis.store(lag.0.max(0) as u64, Ordering::Relaxed);
        self.counts.spend(Stage::Score, begin.elapsed());
    }
}

/// The open events that have become much stronger since they were recorded. `recorded` are their strengths at that time.
pub(crate) fn stronger(monitor: &Monitor<'_>, recorded: &mut BTreeMap<String, f64>) -> Vec<Event> {
    let (mut open, mut stronger) = (BTreeMap::new(), Vec::new());
    for event in monitor.open_events() {
        let known = recorded.get(&event.id).copied().unwrap_or(event.strength);
        let is_stronger = event.strength > known * STRONGER;
        if is_stronger {
            stronger.push(event.clone());
        }
        open.insert(event.id.clone(), if is_stronger { event.strength } else { known });
    }
    *recorded = open;
    stronger
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_slows_down_and_recovers() {
        let mut pace = Pace::default();
        assert!((0..10).all(|number| pace.is_due(number)));
        // Several batches of the same time, and of the next, count once.
        (0..5).for_each(|_| pace.too_slow(100));
        assert_eq!(pace.factor, 2);
        pace.too_slow(102);
        assert_eq!((0..8).filter(|number| pace.is_due(*number)).count(), 2);
        (0..50).for_each(|_| pace.in_time(110));
        assert_eq!(pace.factor, 4);
        pace.in_time(102 + 4 * N_IN_TIME);
        assert_eq!(pace.factor, 2);
        (1..100).for_each(|number| pace.too_slow(1_000 * number));
        assert_eq!(pace.factor, MAX_FACTOR);
    }
}
