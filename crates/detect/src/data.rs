//! Training and validation data of a detector, read from an archive.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use archive::Archive;
use learn::artifact::{DataOrigin, hexadecimal};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use workload::{Control, JobId, Label, Millis, Owner, Set, Stop};

use crate::archive_windows::{Reading, has_period, period_of};
use crate::channel::{JobChannel, N_RATES};
use crate::config::ValidConfig;
use crate::detector::Finding;
use crate::error::DetectError;
use crate::sample::Sample;
use crate::split::{Scope, WindowFilter};
use crate::window::{ThreadWindow, WindowBatch, WindowSpec};

/// How many batches are examined at once.
const N_AT_ONCE: usize = 32;
/// A detector is not trained on fewer windows.
const MIN_WINDOWS: usize = 100;
/// With fewer windows than this, the stride is reduced.
const ENOUGH_WINDOWS: usize = 4_000;
/// Threads that are never busier than this give a detector nothing to learn.
const IDLE_RATE: f32 = 0.02;

/// The kind of threads that no job owned, in an archive with labels.
pub const IDLE_KIND: &str = "idle";

/// What labels say about jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownJobs {
    jobs: BTreeMap<JobId, KnownJob>,
    /// Kinds of which at least one job is anomalous.
    anomalous_kinds: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct KnownJob {
    kind: String,
    is_anomalous: bool,
}

impl KnownJobs {
    pub fn new(labels: &[Label]) -> Self {
        let anomalous = labels.iter().filter(|label| label.is_anomalous());
        Self {
            jobs: labels
                .iter()
                .map(|label| {
                    let known = KnownJob { kind: label.kind.clone(), is_anomalous: label.is_anomalous() };
                    (label.job.clone(), known)
                })
                .collect(),
            anomalous_kinds: anomalous.map(|label| label.kind.clone()).collect(),
        }
    }

    /// The kind of a job, if it has a label.
    pub fn kind_of_job(&self, job: &JobId) -> Option<&str> {
        self.jobs.get(job).map(|known| known.kind.as_str())
    }

    /// The kind of a window by its owner: that of the job's label, or [`IDLE_KIND`] if no job owned it.
    pub fn kind(&self, owner: &Owner) -> Option<&str> {
        match owner {
            Owner::Job(job) => self.kind_of_job(job),
            Owner::Nobody if !self.is_empty() => Some(IDLE_KIND),
            _ => None,
        }
    }

    /// Whether the owner of a window is a job that its label calls anomalous.
    pub fn is_anomalous(&self, owner: &Owner) -> bool {
        owner.job().is_some_and(|job| self.is_anomalous_job(job))
    }

    /// Whether the label of a job calls it anomalous.
    pub fn is_anomalous_job(&self, job: &JobId) -> bool {
        self.jobs.get(job).is_some_and(|known| known.is_anomalous)
    }

    /// Whether a kind has an anomalous job.
    pub fn is_anomalous_kind(&self, kind: &str) -> bool {
        self.anomalous_kinds.contains(kind)
    }

    pub fn has_anomalies(&self) -> bool {
        !self.anomalous_kinds.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

/// Normal windows to train on and to set thresholds with.
#[derive(Debug)]
pub struct TrainingData {
    pub train: Sample,
    pub validation: Sample,
    pub known: KnownJobs,
    pub period: Millis,
    pub address: String,
}

impl TrainingData {
    /// Where the data comes from: the archive, the time of the training windows, and a hash of all windows.
    pub fn origin(&self) -> DataOrigin {
        let mut hash = Sha256::new();
        for batch in self.train.batches.iter().chain(&self.validation.batches) {
            hash.update(batch.start().0.to_le_bytes());
            for thread in batch.threads() {
                let job = thread.job().map_or(thread.owner.state(), JobId::as_str);
                hash.update(format!("{} {} {job}\n", thread.node, thread.cpu.0));
                for value in &thread.values {
                    hash.update(value.to_le_bytes());
                }
            }
        }
        let sha256 = hexadecimal(&hash.finalize());
        let times = || self.train.batches.iter().map(WindowBatch::start);
        let length = self.train.batches.first().and_then(|batch| {
            let n_steps = batch.threads().first()?.values.len() / batch.n_channels();
            Some(Millis(self.period.0 * n_steps as i64))
        });
        DataOrigin {
            address: self.address.clone(),
            from: times().min(),
            to: times().max().map(|start| start + length.unwrap_or(Millis(0))),
            sha256: Some(sha256),
        }
    }
}

/// Draws samples from an archive.
pub struct Sampler<'a> {
    archive: &'a Archive,
    config: &'a ValidConfig,
    seed: u64,
    control: Control<'a>,
    labels: Vec<Label>,
    period: Millis,
    filters: BTreeMap<Set, WindowFilter>,
}

/// Batches that a detector was not fitted to, at the stride of events.
pub enum HeldOut<'a> {
    Archive(&'a Sampler<'a>),
    /// Batches of the validation set.
    Batches(&'a [WindowBatch]),
}

impl HeldOut<'_> {
    /// Examines the batches of a set in parallel and visits them in order of time.
    pub fn examine(
        &self,
        set: Set,
        examine: &(dyn Fn(&WindowBatch) -> Vec<Finding> + Sync),
        stop: &Stop,
        mut visit: impl FnMut(&WindowBatch, Vec<Finding>),
    ) -> Result<(), DetectError> {
        let mut examiner = Examiner { examine, stop, waiting: Vec::new() };
        self.for_each(set, |batch| {
            examiner.push(batch, &mut visit)?;
            Ok(ControlFlow::Continue(()))
        })?;
        examiner.flush(&mut visit)
    }

    /// Visits the batches of a set in order of time. Batches in memory are those of the validation set.
    fn for_each(
        &self,
        set: Set,
        mut visit: impl FnMut(WindowBatch) -> Result<ControlFlow<()>, DetectError>,
    ) -> Result<(), DetectError> {
        match self {
            Self::Archive(sampler) => sampler.for_each(set, visit),
            Self::Batches(batches) if set == Set::Validation => {
                for batch in *batches {
                    if visit(batch.clone())?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Self::Batches(_) => Ok(()),
        }
    }
}

/// Examines batches in parallel, and passes them on in order.
pub(crate) struct Examiner<'a> {
    pub examine: &'a (dyn Fn(&WindowBatch) -> Vec<Finding> + Sync),
    pub stop: &'a Stop,
    pub waiting: Vec<WindowBatch>,
}

impl Examiner<'_> {
    pub fn push(
        &mut self,
        batch: WindowBatch,
        visit: &mut impl FnMut(&WindowBatch, Vec<Finding>),
    ) -> Result<(), DetectError> {
        self.waiting.push(batch);
        if self.waiting.len() < N_AT_ONCE { Ok(()) } else { self.flush(visit) }
    }

    pub fn flush(&mut self, visit: &mut impl FnMut(&WindowBatch, Vec<Finding>)) -> Result<(), DetectError> {
        self.stop.check()?;
        let examine = self.examine;
        let examined: Vec<Vec<Finding>> = self.waiting.par_iter().map(examine).collect();
        for (batch, findings) in self.waiting.drain(..).zip(examined) {
            visit(&batch, findings);
        }
        Ok(())
    }
}

impl<'a> Sampler<'a> {
    /// Samples sets by label, or by the amount of data in an archive without labels.
    pub fn new(
        archive: &'a Archive,
        config: &'a ValidConfig,
        seed: u64,
        control: Control<'a>,
    ) -> archive::Result<Self> {
        let period = analysed_period(archive, config)?;
        let labels = archive.labels()?;
        let spec = config.window_spec(period, config.window);
        let train = WindowFilter::of_set(archive, &labels, Set::Train, &spec, control)?;
        Ok(Self { archive, config, seed, control, labels, period, filters: by_set(&train) })
    }

    /// Samples sets of a part of an archive by the amount of data. Labels are ignored.
    pub fn of_scope(
        archive: &'a Archive,
        scope: Scope,
        config: &'a ValidConfig,
        seed: u64,
        control: Control<'a>,
    ) -> archive::Result<Self> {
        let period = analysed_period(archive, config)?;
        let spec = config.window_spec(period, config.window);
        let train = WindowFilter::of_scope(archive, scope, Set::Train, &spec, control)?;
        Ok(Self { archive, config, seed, control, labels: Vec::new(), period, filters: by_set(&train) })
    }

    /// Visits the batches of a set in order of time, at the stride of events.
    fn for_each(
        &self,
        set: Set,
        visit: impl FnMut(WindowBatch) -> Result<ControlFlow<()>, DetectError>,
    ) -> Result<(), DetectError> {
        let spec: WindowSpec = self.config.event_spec(self.period);
        let control = self.control;
        Reading { archive: self.archive, filter: &self.filters[&set], spec: &spec, control }
            .for_each_batch(visit)
    }

    /// The training and the validation sample.
    pub fn training_data(&self) -> Result<TrainingData, DetectError> {
        let train = self.sample(Set::Train)?;
        let validation = self.sample(Set::Validation)?;
        let busiest =
            train.windows().map(|window| busy_fraction(window, self.n_channels())).fold(0.0, f32::max);
        let address = self.archive.address().to_owned();
        if busiest < IDLE_RATE {
            return Err(DetectError::Idle { address, percent: busiest * 100.0 });
        }
        let known = KnownJobs::new(&self.labels);
        Ok(TrainingData { train, validation, known, period: self.period, address })
    }

    /// The windows of a set.
    pub fn filter(&self, set: Set) -> &WindowFilter {
        &self.filters[&set]
    }

    fn n_channels(&self) -> usize {
        N_RATES + self.config.channels.len()
    }

    /// The sample of one set.
    pub fn sample(&self, set: Set) -> Result<Sample, DetectError> {
        let (config, period) = (self.config, self.period);
        let filter = &self.filters[&set];
        // Windows for validation and testing do not overlap, if there are enough.
        let mut stride = if set == Set::Train { config.stride } else { config.window };
        let sample = loop {
            let draw = Draw { filter, channels: &config.channels, stride };
            let sample = self.draw(&draw, config.max_windows)?;
            if sample.n_available >= ENOUGH_WINDOWS || stride == 1 {
                break sample;
            }
            stride = (stride / 5).max(1);
        };
        let n_windows = sample.n_windows();
        if n_windows >= MIN_WINDOWS {
            return Ok(sample);
        }
        let address = self.archive.address().to_owned();
        if let Some(channel) = self.missing_channel(filter)? {
            return Err(DetectError::MissingChannel { address, channel: channel.name() });
        }
        let seconds = config.window as f64 * period.as_seconds();
        Err(DetectError::TooFew { address, set, n_windows, seconds, needed: MIN_WINDOWS })
    }

    /// A configured channel that no window has, although there are windows without it.
    fn missing_channel(&self, filter: &WindowFilter) -> Result<Option<JobChannel>, DetectError> {
        let has_windows = |channels: &[JobChannel]| -> Result<bool, DetectError> {
            let mut spec = self.config.window_spec(self.period, self.config.stride);
            spec.job_channels = channels.to_vec();
            let reading = Reading { archive: self.archive, filter, spec: &spec, control: self.control };
            let mut is_found = false;
            reading.for_each_batch::<DetectError>(|batch| {
                // Threads without a job have no job channels to lack.
                is_found |= batch.threads().iter().any(|thread| thread.job().is_some());
                Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            Ok(is_found)
        };
        for channel in &self.config.channels {
            if !has_windows(&[*channel])? && has_windows(&[])? {
                return Ok(Some(*channel));
            }
        }
        Ok(None)
    }

    fn draw(&self, draw: &Draw<'_>, max_windows: usize) -> Result<Sample, DetectError> {
        let mut spec = self.config.window_spec(self.period, draw.stride);
        spec.job_channels = draw.channels.to_vec();
        let reading =
            Reading { archive: self.archive, filter: draw.filter, spec: &spec, control: self.control };
        Sample::draw(&reading, max_windows, self.seed)
    }
}

/// The sampling period at which an archive is analysed.
fn analysed_period(archive: &Archive, config: &ValidConfig) -> archive::Result<Millis> {
    let period = match config.interval {
        Some(interval) => interval,
        None => period_of(archive)?,
    };
    has_period(archive, period, config.interval.is_some())?;
    Ok(period)
}

fn by_set(filter: &WindowFilter) -> BTreeMap<Set, WindowFilter> {
    Set::ALL.into_iter().map(|set| (set, filter.for_set(set))).collect()
}

/// One way to cut windows.
struct Draw<'a> {
    filter: &'a WindowFilter,
    channels: &'a [JobChannel],
    stride: usize,
}

fn busy_fraction(thread: &ThreadWindow, n_channels: usize) -> f32 {
    let steps = thread.values.chunks_exact(n_channels);
    let n_steps = steps.len() as f32;
    steps.map(|step| 1.0 - step[N_RATES - 1]).sum::<f32>() / n_steps
}
