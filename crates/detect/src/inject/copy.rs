//! Copies an archive and injects faults into stretches of its normal test jobs. Training data stays unchanged.

use std::collections::BTreeMap;
use std::ops::Range;

use archive::{Archive, Selection, Snapshot};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{
    Control, Cpu, Derivation, Injection, JobId, JobReading, Label, Measure, Millis, Mode, NodeName,
    NodeReading, Owner, Set, Source, ThreadReading, Ticks, Timestamp, Trace,
};

use super::{Fault, into_job};
use crate::archive_windows::{hours_of, period_of};
use crate::split::WindowFilter;
use crate::window::WindowSpec;

/// The length of windows by which an archive without labels is split.
const SPLIT_STEPS: usize = 100;
/// The resolution of copied rates.
const TICKS_PER_SECOND: u32 = 1_000;

#[derive(Debug, Clone, PartialEq)]
pub struct CopySettings {
    pub fault: Fault,
    pub strength: f32,
    /// The probability per job and hour.
    pub probability: f64,
    /// The duration of the fault.
    pub length: Millis,
    pub seed: u64,
}

/// Copies an archive into an empty one; returns the injected faults.
pub fn copy(
    from: &Archive,
    into: &Archive,
    settings: &CopySettings,
    control: Control<'_>,
) -> archive::Result<Vec<Injection>> {
    let labels = from.labels()?;
    let period = period_of(from)?;
    let spec = WindowSpec { period, n_steps: SPLIT_STEPS, stride: SPLIT_STEPS, job_channels: Vec::new() };
    let jobs = WindowFilter::of_set(from, &normal(&labels), Set::Test, &spec, Control::default())?;
    let mut loader = into.loader(Source {
        origin: format!("campaign inject {}", from.address()),
        measure: Measure::Interval,
        ticks_per_second: TICKS_PER_SECOND,
        modes: [Mode::User, Mode::System, Mode::Iowait, Mode::Idle].into_iter().collect(),
        period,
    })?;
    let hours = hours_of(&from.snapshot(Selection::default())?, period);
    let n_hours = hours.len() as u64;
    let mut injections = Vec::new();
    for (index, hour) in (0..).zip(hours) {
        let selection = Selection { from: hour, to: hour + Millis::HOUR, ..Selection::default() };
        let snapshot = from.snapshot(selection)?;
        for node in snapshot.nodes() {
            let mut slice = Slice::read(&snapshot, &node, period)?;
            injections.extend(slice.inject(&jobs, hour, settings));
            for reading in slice.readings(snapshot.job_readings(&node)?) {
                loader.push_node(&reading)?;
            }
        }
        control.report(index + 1, n_hours)?;
    }
    loader.add_labels(&labels)?;
    loader.add_injections(&injections)?;
    loader.finish()?;
    Ok(injections)
}

/// The labels of normal jobs; anomalous jobs stay unchanged.
fn normal(labels: &[Label]) -> Vec<Label> {
    labels.iter().filter(|label| !label.is_anomalous()).cloned().collect()
}

/// One hour of one node.
struct Slice {
    node: NodeName,
    period: Millis,
    traces: Vec<Trace>,
    /// The rates of each trace, step by step.
    values: Vec<Vec<f32>>,
}

impl Slice {
    fn read(snapshot: &Snapshot, node: &NodeName, period: Millis) -> archive::Result<Self> {
        let traces = snapshot.traces(node, &Derivation { period, ..Derivation::default() })?;
        let rates = |trace: &Trace| {
            (0..trace.len())
                .flat_map(|step| trace.rates(step).map_or([0.0; 4], |rates| *rates.as_array()))
                .collect()
        };
        let values = traces.iter().map(rates).collect();
        Ok(Self { node: node.clone(), period, traces, values })
    }

    fn inject(&mut self, jobs: &WindowFilter, hour: Timestamp, settings: &CopySettings) -> Vec<Injection> {
        let mut injections = Vec::new();
        // A fault of the whole cluster starts on all nodes at the same time.
        let common = settings.seed ^ hour.0 as u64;
        for (job, (traces, owned)) in self.owned() {
            let own = job.as_str().bytes().fold(common, |hash, byte| hash.rotate_left(7) ^ u64::from(byte));
            let is_shared = settings.fault.is_shared();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(if is_shared { common } else { own });
            let is_chosen = rng.random_bool(settings.probability.clamp(0.0, 1.0));
            let within = if is_shared { hour..hour + Millis::HOUR } else { owned };
            let length = settings.length.min(within.end - within.start);
            let n_steps = (length.0 / self.period.0).max(1) as usize;
            let offset = rng.random_range(0..=(within.end - within.start).0 - length.0);
            let start = (within.start + Millis(offset)).floor(self.period);
            let end = start + Millis(self.period.0 * n_steps as i64);
            if !is_chosen || !jobs.contains(&self.node, &Owner::Job(job.clone()), start, end) {
                continue;
            }
            let owned: Vec<(usize, usize)> = traces
                .into_iter()
                .filter_map(|index| Some((index, self.first_step(index, &job, start, n_steps)?)))
                .collect();
            let mut threads: Vec<&mut [f32]> = Vec::new();
            let mut cpus: Vec<Cpu> = Vec::new();
            for (index, values) in self.values.iter_mut().enumerate() {
                if let Some((_, first)) = owned.iter().find(|(owned, _)| *owned == index) {
                    threads.push(&mut values[first * 4..(first + n_steps) * 4]);
                    cpus.push(self.traces[index].thread().cpu);
                }
            }
            let shows = into_job(settings.fault, settings.strength, &mut threads, 4, &mut rng);
            let cpus: Vec<Cpu> =
                cpus.into_iter().zip(shows).filter(|(_, shows)| *shows).map(|(cpu, _)| cpu).collect();
            if !cpus.is_empty() {
                injections.push(Injection {
                    fault: settings.fault.name().into(),
                    strength: settings.strength,
                    job,
                    node: self.node.clone(),
                    threads: cpus,
                    start,
                    end,
                });
            }
        }
        injections
    }

    /// For each job, the traces of threads it owned, and when it owned them.
    fn owned(&self) -> BTreeMap<JobId, (Vec<usize>, Range<Timestamp>)> {
        let mut found: BTreeMap<JobId, (Vec<usize>, Range<Timestamp>)> = BTreeMap::new();
        for (index, trace) in self.traces.iter().enumerate() {
            for (time, _, owner) in trace.read_steps() {
                let Owner::Job(job) = owner else { continue };
                let end = time + self.period;
                match found.get_mut(job) {
                    Some((traces, owned)) => {
                        (owned.start, owned.end) = (owned.start.min(time), owned.end.max(end));
                        if traces.last() != Some(&index) {
                            traces.push(index);
                        }
                    }
                    None => drop(found.insert(job.clone(), (vec![index], time..end))),
                }
            }
        }
        found
    }

    /// The first step of a stretch in a trace, if the job owned the thread throughout.
    fn first_step(&self, index: usize, job: &JobId, start: Timestamp, n_steps: usize) -> Option<usize> {
        let trace = &self.traces[index];
        let first = usize::try_from((start - trace.start()).0 / self.period.0).ok()?;
        let window = trace.window(first, n_steps).filter(|_| start >= trace.start())?;
        (window.owner()?.job() == Some(job)).then_some(first)
    }

    fn readings(&self, jobs: Vec<(Timestamp, JobReading)>) -> Vec<NodeReading> {
        let mut by_time: BTreeMap<Timestamp, NodeReading> = BTreeMap::new();
        let node = &self.node;
        let empty = |time| NodeReading { node: node.clone(), time, threads: Vec::new(), jobs: Vec::new() };
        for (trace, values) in self.traces.iter().zip(&self.values) {
            for (step, rates) in values.chunks_exact(4).enumerate() {
                if trace.rates(step).is_none() {
                    continue;
                }
                let time = trace.time(step);
                let reading = ThreadReading {
                    cpu: trace.thread().cpu,
                    ticks: ticks_of(rates, self.period),
                    owner: trace.owner(step).clone(),
                };
                by_time.entry(time).or_insert_with(|| empty(time)).threads.push(reading);
            }
        }
        for (time, reading) in jobs {
            by_time.entry(time).or_insert_with(|| empty(time)).jobs.push(reading);
        }
        by_time.into_values().collect()
    }
}

fn ticks_of(rates: &[f32], period: Millis) -> Ticks {
    let whole = u64::from(TICKS_PER_SECOND) * period.0 as u64 / 1_000;
    let mut ticks = Ticks::default();
    let mut left = whole;
    for (mode, rate) in [Mode::User, Mode::System, Mode::Iowait].into_iter().zip(rates) {
        ticks[mode] = ((f64::from(*rate) * whole as f64).round() as u64).min(left);
        left -= ticks[mode];
    }
    ticks[Mode::Idle] = left;
    ticks
}
