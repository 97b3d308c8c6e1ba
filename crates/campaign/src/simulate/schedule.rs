//! Which job runs where and when: every campaign has the same normal jobs, placed on the threads of simulated
//! nodes by a small batch scheduler (first come, first served, with backfilling).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_distr::LogNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::label::family;
use workload::{Cpu, JobId, Label, Millis, NodeName, Set, Stop, Timestamp};

use super::SimulateError;
use super::model::N_STICKS;
use crate::kind::Kind;
use crate::plan::PlannedCampaign;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
/// Lengths of jobs in seconds: log-normal with this median and standard deviation of the logarithm.
const MEDIAN_JOB: f64 = 1_200.0;
const LOG_SPREAD: f64 = 0.7;
const SHORTEST_JOB: u64 = 180;
const LONGEST_JOB: u64 = 2 * HOUR;
/// Jobs of the queue that backfilling considers.
const LOOK_AHEAD: usize = 64;
/// A cluster that is busy from the start: the shortest of its first jobs, and its first anomaly.
const LONGEST_FILLING: f64 = 600.0;
const FIRST_ANOMALY: Kind = Kind::BadIo;
const FIRST_ANOMALY_LENGTH: f64 = 600.0;
/// Anomalous jobs per normal job, in campaigns of the test set.
const ANOMALOUS_FRACTION: f64 = 0.1;

/// How a cluster differs from the usual one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Variation {
    /// A family of normal kinds, such as `mpi-steady`, that is not run.
    pub left_out: Option<String>,
    /// A shift of the behaviour of all jobs, as normal deviates of the sticks: `other`, iowait, system.
    pub shift: [f32; N_STICKS],
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSettings {
    pub n_nodes: u32,
    pub threads_per_node: u16,
    /// The length of each campaign.
    pub campaign_seconds: u64,
    pub campaigns: Vec<PlannedCampaign>,
    pub seed: u64,
    /// The mean fraction of all threads that normal jobs use.
    pub load: f64,
    pub start: Timestamp,
    /// When the cluster began; drift is counted from then on.
    pub origin: Timestamp,
    /// The number of the first job.
    pub first_job: u64,
    /// Whether the cluster is busy from the first second, with an anomaly among its first jobs.
    pub is_busy_at_start: bool,
    pub variation: Variation,
}

/// A job with its node, threads and times.
#[derive(Debug, Clone)]
pub struct ScheduledJob {
    pub kind: Kind,
    pub label: Label,
    pub node: usize,
    pub seed: u64,
}

/// The resources that a job requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    n_threads: u16,
}

/// The jobs of every campaign, in order of their starts.
pub fn schedule(settings: &ClusterSettings, stop: &Stop) -> Result<Vec<ScheduledJob>, SimulateError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(
        settings.seed.wrapping_add((settings.start - settings.origin).0 as u64),
    );
    let normal = shapes(settings, &mut rng);
    let n_anomalous = ((normal.len() as f64 * ANOMALOUS_FRACTION) as usize).max(Kind::ANOMALOUS.len());
    let anomalous: Vec<Shape> = (0..n_anomalous)
        .map(|index| Shape {
            kind: Kind::ANOMALOUS[index % Kind::ANOMALOUS.len()],
            n_threads: threads_of([2, 4, 8], settings.threads_per_node, &mut rng),
        })
        .collect();
    let mut jobs = Vec::new();
    for (index, PlannedCampaign { name, set }) in settings.campaigns.iter().enumerate() {
        let mut shapes = normal.clone();
        if *set == Set::Test {
            shapes.extend(&anomalous);
        }
        shapes.shuffle(&mut rng);
        let begin = settings.start + Millis::from_seconds((index as u64 * settings.campaign_seconds) as i64);
        for placed in place(settings, &shapes, begin, &mut rng, stop)? {
            let number = settings.first_job + jobs.len() as u64;
            let time = |second: u64| begin + Millis::from_seconds(second as i64);
            let label = Label {
                campaign: name.clone(),
                set: *set,
                kind: placed.shape.kind.to_string(),
                anomalous: Some(placed.shape.kind.is_anomalous()),
                job: JobId::new(number.to_string())?,
                node: node_name(placed.node)?,
                threads: placed.threads,
                start: time(placed.start),
                end: time(placed.end),
                made_by: Some("simulation".into()),
                disturbance: None,
            };
            jobs.push(ScheduledJob { kind: placed.shape.kind, label, node: placed.node, seed: rng.random() });
        }
    }
    Ok(jobs)
}

pub fn node_name(index: usize) -> Result<NodeName, SimulateError> {
    Ok(NodeName::new(format!("n{:03}", index + 1))?)
}

/// Enough jobs for the wanted load, at least one of each normal kind.
fn shapes(settings: &ClusterSettings, rng: &mut Xoshiro256PlusPlus) -> Vec<Shape> {
    let most = settings.threads_per_node;
    let capacity = f64::from(settings.n_nodes) * f64::from(most) * settings.campaign_seconds as f64;
    let mean_length =
        (MEDIAN_JOB * (LOG_SPREAD * LOG_SPREAD / 2.0).exp()).min(settings.campaign_seconds as f64 / 4.0);
    let (mut shapes, mut thread_seconds): (Vec<Shape>, f64) = (Vec::new(), 0.0);
    // The first jobs are one of each kind.
    const FIRST: [f64; 5] = [0.1, 0.5, 0.65, 0.8, 0.95];
    while shapes.len() < FIRST.len() || thread_seconds < settings.load * capacity {
        let draw = FIRST.get(shapes.len()).copied().unwrap_or_else(|| rng.random());
        let shape = match draw {
            0.0..0.4 => Shape { kind: Kind::Np, n_threads: threads_of([1, 2, 4, 8, 16], most, rng) },
            0.4..0.6 => Shape { kind: Kind::GoodIo, n_threads: threads_of([1, 2, 4, 8], most, rng) },
            0.6..0.75 => {
                let n_threads = threads_of([2, 4, 8, 16, 32], most, rng);
                Shape { kind: Kind::Mpi(n_threads), n_threads }
            }
            0.75..0.85 => {
                let n_threads = threads_of([2, 4, 8, 16, 32], most, rng);
                Shape { kind: Kind::SteadyMpi(n_threads), n_threads }
            }
            _ => Shape { kind: Kind::Idle, n_threads: threads_of([1, 2, 4, 8], most, rng) },
        };
        let left_out = settings.variation.left_out.as_deref();
        let shape = match left_out == Some(family(&shape.kind.to_string())) {
            true => Shape { kind: Kind::Np, ..shape },
            false => shape,
        };
        thread_seconds += f64::from(shape.n_threads) * mean_length;
        shapes.push(shape);
    }
    shapes
}

fn threads_of<const N: usize>(choices: [u16; N], most: u16, rng: &mut Xoshiro256PlusPlus) -> u16 {
    let fitting: Vec<u16> = choices.into_iter().filter(|threads| *threads <= most).collect();
    fitting.choose(rng).copied().unwrap_or(most)
}

struct Placed {
    shape: Shape,
    node: usize,
    threads: Vec<Cpu>,
    start: u64,
    end: u64,
}

/// A job in the queue.
struct Waiting {
    shape: Shape,
    arrival: u64,
    length: f64,
}

/// Places all jobs within their campaign; shortens them until they fit.
fn place(
    settings: &ClusterSettings,
    shapes: &[Shape],
    begin: Timestamp,
    rng: &mut Xoshiro256PlusPlus,
    stop: &Stop,
) -> Result<Vec<Placed>, SimulateError> {
    let lengths = LogNormal::new(MEDIAN_JOB.ln(), LOG_SPREAD).map_err(|_| SimulateError::DoesNotFit)?;
    let longest = (LONGEST_JOB as f64).min(settings.campaign_seconds as f64 / 3.0);
    let shortest = (SHORTEST_JOB as f64).min(longest);
    let mut waiting: Vec<Waiting> = shapes
        .iter()
        .map(|shape| Waiting {
            shape: *shape,
            arrival: arrival(settings, begin, rng),
            length: rng.sample(lengths).clamp(shortest, longest),
        })
        .collect();
    if settings.is_busy_at_start {
        fill_at_start(settings, &mut waiting);
    }
    waiting.sort_by_key(|job| job.arrival);
    for _ in 0..40 {
        let placed = run_queue(settings, &waiting, stop)?;
        let last = placed.iter().map(|job| job.end).max().unwrap_or(0);
        if last <= settings.campaign_seconds {
            return Ok(placed);
        }
        let shrink = (0.97 * settings.campaign_seconds as f64 / last as f64).clamp(0.5, 0.97);
        for job in &mut waiting {
            job.length = (job.length * shrink).max(30.0);
            job.arrival = (job.arrival as f64 * 0.98) as u64;
        }
    }
    Err(SimulateError::DoesNotFit)
}

/// Lets jobs arrive in the first second until the wanted load is reached, one of them an anomaly.
fn fill_at_start(settings: &ClusterSettings, waiting: &mut Vec<Waiting>) {
    let n_threads = f64::from(settings.n_nodes) * f64::from(settings.threads_per_node);
    let mut n_taken = 0.0;
    for job in waiting.iter_mut().filter(|job| !job.shape.kind.is_anomalous()) {
        if n_taken + f64::from(job.shape.n_threads) <= settings.load * n_threads {
            n_taken += f64::from(job.shape.n_threads);
            job.arrival = 0;
            // Otherwise all of them would end together, too.
            job.length = job.length.max(LONGEST_FILLING.min(settings.campaign_seconds as f64 / 3.0));
        }
    }
    // An anomaly that is easily seen comes first, so that it finds a place.
    if let Some(first) = waiting.iter().position(|job| job.shape.kind == FIRST_ANOMALY) {
        let mut first = waiting.remove(first);
        first.arrival = 0;
        first.length = first.length.max(FIRST_ANOMALY_LENGTH.min(settings.campaign_seconds as f64 / 3.0));
        waiting.insert(0, first);
    }
}

/// The second of a campaign at which a job arrives: more arrive by day than by night, and on workdays than at
/// weekends.
fn arrival(settings: &ClusterSettings, begin: Timestamp, rng: &mut Xoshiro256PlusPlus) -> u64 {
    loop {
        let second = rng.random_range(0..(settings.campaign_seconds * 17 / 20).max(1));
        if rng.random::<f64>() < arrival_rate((begin.0 / 1_000).unsigned_abs() + second) {
            return second;
        }
    }
}

/// The relative rate of arrivals at an epoch second, at most one.
fn arrival_rate(second: u64) -> f64 {
    let hour = (second % DAY) as f64 / HOUR as f64;
    let by_hour = 0.6 + 0.4 * ((hour - 14.0) / 24.0 * std::f64::consts::TAU).cos();
    // The epoch was a Thursday.
    let is_weekend = matches!((second / DAY + 4) % 7, 0 | 6);
    if is_weekend { by_hour * 0.5 } else { by_hour }
}

/// First come, first served; later jobs fill threads that the first cannot use.
fn run_queue(
    settings: &ClusterSettings,
    waiting: &[Waiting],
    stop: &Stop,
) -> Result<Vec<Placed>, SimulateError> {
    let mut free: Vec<Vec<Cpu>> =
        vec![(0..settings.threads_per_node).map(Cpu).collect(); settings.n_nodes as usize];
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut queue: VecDeque<usize> = VecDeque::new();
    let mut placed: Vec<Placed> = Vec::with_capacity(waiting.len());
    let (mut next, mut now) = (0, 0);
    loop {
        stop.check()?;
        while next < waiting.len() && waiting[next].arrival <= now {
            queue.push_back(next);
            next += 1;
        }
        let mut index = 0;
        while index < queue.len().min(LOOK_AHEAD) {
            let job = &waiting[queue[index]];
            match take_threads(&mut free, usize::from(job.shape.n_threads)) {
                None => index += 1,
                Some((node, threads)) => {
                    queue.remove(index);
                    let end = now + job.length.round().max(1.0) as u64;
                    ends.push(Reverse((end, placed.len())));
                    placed.push(Placed { shape: job.shape, node, threads, start: now, end });
                }
            }
        }
        let next_end = ends.peek().map(|Reverse((end, _))| *end);
        let next_arrival = waiting.get(next).map(|job| job.arrival);
        now = match (next_end, next_arrival) {
            (None, None) => return Ok(placed),
            (Some(end), None) => end,
            (None, Some(arrival)) => arrival.max(now),
            (Some(end), Some(arrival)) => end.min(arrival.max(now)),
        };
        while ends.peek().is_some_and(|Reverse((end, _))| *end <= now) {
            let Some(Reverse((_, job))) = ends.pop() else { break };
            let threads = placed[job].threads.iter().copied();
            free[placed[job].node].extend(threads);
            free[placed[job].node].sort_unstable();
        }
    }
}

/// Threads of the first node that has enough of them, adjacent ones if possible.
fn take_threads(free: &mut [Vec<Cpu>], n_threads: usize) -> Option<(usize, Vec<Cpu>)> {
    let node = free.iter().position(|threads| threads.len() >= n_threads)?;
    let threads = &mut free[node];
    let is_run =
        |first: &usize| usize::from(threads[first + n_threads - 1].0 - threads[*first].0) == n_threads - 1;
    let first = (0..=threads.len() - n_threads).find(is_run).unwrap_or(0);
    Some((node, threads.drain(first..first + n_threads).collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings() -> ClusterSettings {
        ClusterSettings {
            n_nodes: 3,
            threads_per_node: 16,
            campaign_seconds: 4 * HOUR,
            campaigns: [("a", Set::Train), ("b", Set::Train), ("c", Set::Validation), ("d", Set::Test)]
                .map(|(name, set)| PlannedCampaign { name: name.into(), set })
                .to_vec(),
            seed: 11,
            load: 0.6,
            start: Timestamp::from_seconds(1_767_571_200),
            origin: Timestamp::from_seconds(1_767_571_200),
            first_job: 1,
            is_busy_at_start: false,
            variation: Variation::default(),
        }
    }

    #[test]
    fn a_cluster_can_be_busy_from_the_first_second_and_have_an_anomaly_soon_after() {
        let live = ClusterSettings {
            campaigns: vec![PlannedCampaign { name: "live".into(), set: Set::Test }],
            is_busy_at_start: true,
            ..settings()
        };
        for seed in 0..20 {
            let live = ClusterSettings { seed, ..live.clone() };
            let jobs = schedule(&live, &Stop::default()).unwrap();
            let started = |job: &&ScheduledJob| job.label.start == live.start;
            let n_busy: usize = jobs.iter().filter(started).map(|job| job.label.threads.len()).sum();
            assert!(n_busy >= 20, "seed {seed}: {n_busy} of 48 threads");
            let anomaly =
                jobs.iter().filter(|job| job.kind.is_anomalous()).map(|job| job.label.start - live.start);
            assert!(anomaly.min().unwrap() <= Millis(120_000), "seed {seed}");
        }
    }

    #[test]
    fn every_campaign_has_the_same_normal_jobs_and_keeps_to_its_time() {
        let settings = settings();
        let jobs = schedule(&settings, &Stop::default()).unwrap();
        let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for job in &jobs {
            let index =
                settings.campaigns.iter().position(|planned| planned.name == job.label.campaign).unwrap();
            let begin = settings.start + Millis((index as u64 * settings.campaign_seconds * 1_000) as i64);
            assert!(
                job.label.start >= begin
                    && job.label.end <= begin + Millis(settings.campaign_seconds as i64 * 1_000)
            );
            if job.kind.is_anomalous() {
                assert_eq!(job.label.set, Set::Test);
            } else {
                *counts.entry(&job.label.campaign).or_default().entry(&job.label.kind).or_default() += 1;
            }
        }
        assert!(counts["a"].len() >= 4 && counts.values().all(|count| *count == counts["a"]), "{counts:?}");
        let all = jobs.iter().filter(|job| job.kind.is_anomalous()).map(|job| job.kind);
        assert_eq!(all.collect::<std::collections::BTreeSet<_>>().len(), Kind::ANOMALOUS.len());
    }

    #[test]
    fn no_thread_has_two_jobs_at_once() {
        let jobs = schedule(&settings(), &Stop::default()).unwrap();
        let mut spans: BTreeMap<(usize, Cpu), Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
        for job in &jobs {
            for thread in &job.label.threads {
                spans.entry((job.node, *thread)).or_default().push((job.label.start, job.label.end));
            }
        }
        for spans in spans.values_mut() {
            spans.sort();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }

    #[test]
    fn one_seed_is_one_schedule() {
        let ids = |seed: u64| -> Vec<Label> {
            schedule(&ClusterSettings { seed, ..settings() }, &Stop::default())
                .unwrap()
                .into_iter()
                .map(|job| job.label)
                .collect()
        };
        assert_eq!(ids(5), ids(5));
        assert_ne!(ids(5), ids(6));
    }

    #[test]
    fn more_jobs_arrive_by_day_and_on_workdays() {
        let monday = 1_767_571_200;
        assert!(arrival_rate(monday + 14 * HOUR) > 2.0 * arrival_rate(monday + 2 * HOUR));
        assert!(arrival_rate(monday + 14 * HOUR) > 1.5 * arrival_rate(monday + 6 * DAY + 14 * HOUR));
    }
}
