//! Injects a fault into a recorded run, by a simple model of its effect:
//!
//! - **CPU**, `cpu_K`: `K` of the `c` cores of a machine are taken away. The CPU time of a task takes
//!   `max(1, n / (c − K))` times as long, with `n` the tasks on its machine at that time. Waiting does not change.
//! - **Disk**, `hdd_K`: writes are capped at `K` MB/s and reads at `2 K` MB/s, as FlowBench defines it. Stage-in writes and
//!   stage-out reads, so neither is faster than the cap; a network that is slower than the disk hides the cap. A twentieth of
//!   the runtime is disk time, which takes [`Machine::disk_write_mb_per_second`]` / K` times as long.
//! - **Packet loss**, `loss_P`: `P` per cent of packets are lost. A transfer is not faster than the throughput of
//!   [`Machine::connections`] TCP connections after Padhye et al., "Modeling TCP Throughput: A Simple Model and its Empirical
//!   Validation" (1998), multiplied by log-normal noise for each transfer. Large transfers suffer more than small ones, which
//!   only wait for lost packets when they connect.
//!
//! The strength of disk faults and packet loss varies from run to run, and times have the resolution of the record. Otherwise,
//! classifiers learn what only injected faults have in common. A fault affects a fraction of the machines, drawn at random.
//! Everything that depends on a delayed task moves back.
//! Injected faults do not replace recorded ones (`docs/results/workflows.md`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::workflow::{Span, TaskAttempt, TaskName, TaskRole, WorkflowRun};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Normal, Poisson};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Cores taken away on a machine.
    Cpu { cores: u32 },
    /// The cap on disk writes; reads are capped at twice the rate.
    Disk { write_mb_per_second: f64 },
    /// Packets lost, in per cent.
    Loss { percent: f64 },
}

/// The disk caps that can be asked for, in MB/s.
const DISK_CAPS: std::ops::RangeInclusive<f64> = 0.001..=10_000.0;

impl Fault {
    /// Parses a label: `cpu_2`, `hdd_50`, `loss_0.5`.
    pub fn parse(text: &str) -> Result<Self> {
        let unknown = || Error::UnknownFault { text: text.to_owned() };
        let (name, strength) = text.split_once('_').ok_or_else(unknown)?;
        let strength: f64 = strength
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite() && *value > 0.0)
            .ok_or_else(unknown)?;
        match name {
            "cpu" if strength <= 1_024.0 && strength.fract() == 0.0 => {
                Ok(Self::Cpu { cores: strength as u32 })
            }
            "hdd" if DISK_CAPS.contains(&strength) => Ok(Self::Disk { write_mb_per_second: strength }),
            "loss" if strength < 100.0 => Ok(Self::Loss { percent: strength }),
            _ => Err(unknown()),
        }
    }

    pub fn label(self) -> String {
        match self {
            Self::Cpu { cores } => format!("cpu_{cores}"),
            Self::Disk { write_mb_per_second } => format!("hdd_{write_mb_per_second}"),
            Self::Loss { percent } => format!("loss_{percent}"),
        }
    }
}

/// The machines of a run, as far as faults depend on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    pub cores: u32,
    /// The rate of disk writes without a fault; reads are twice as fast.
    pub disk_write_mb_per_second: f64,
    /// TCP connections of a transfer.
    pub connections: u32,
    /// The fraction of the machines of a run that have the fault; at least one has it.
    pub affected_fraction: f64,
}

impl Default for Machine {
    /// Four cores, and a disk and a network whose effects resemble those in the runs of FlowGAD.
    fn default() -> Self {
        Self { cores: 4, disk_write_mb_per_second: 250.0, connections: 6, affected_fraction: 1.0 }
    }
}

impl Machine {
    /// How many times as long disk time takes under a cap.
    pub fn disk_slowdown(&self, write_mb_per_second: f64) -> f64 {
        self.disk_write_mb_per_second / write_mb_per_second
    }

    /// The throughput of a transfer at a packet loss between 0 and 1, in MB/s.
    fn lossy_mb_per_second(&self, loss: f64) -> f64 {
        // Seconds per packet: fast retransmission, and time-outs.
        let retransmission = ROUND_TRIP_SECONDS * (2.0 * loss / 3.0).sqrt();
        let n_timeouts = f64::min(1.0, 3.0 * (3.0 * loss / 8.0).sqrt()) * loss * (1.0 + 32.0 * loss * loss);
        let seconds = retransmission + TIMEOUT_SECONDS * n_timeouts;
        f64::from(self.connections) * PACKET_MB / seconds
    }
}

/// The round trip, and the least retransmission time-out of Linux.
const ROUND_TRIP_SECONDS: f64 = 5e-4;
const TIMEOUT_SECONDS: f64 = 0.2;
/// The payload of a packet in an Ethernet.
const PACKET_MB: f64 = 1448e-6;
/// Packets that are sent to set up a transfer, and the time until one that was lost is sent again.
const SETUP_PACKETS: f64 = 30.0;
const SETUP_TIMEOUT_SECONDS: f64 = 1.0;
/// The throughput of a transfer whose bytes are unknown.
const ASSUMED_MB_PER_SECOND: f64 = 50.0;
/// The fraction of runtime that is disk time: even a task that computes all the time reads and writes.
const DISK_FRACTION: f64 = 0.05;
/// The standard deviation of the logarithm of the noise between transfers, and of the strength of a fault between runs.
const TRANSFER_NOISE: f64 = 0.15;
const RUN_NOISE: f64 = 0.4;

/// How long the parts of an attempt take, in seconds.
#[derive(Debug, Clone, Copy)]
struct Parts {
    stage_in: f64,
    runtime: f64,
    stage_out: f64,
}

impl Parts {
    fn of(attempt: &TaskAttempt) -> Self {
        let seconds = |span: Option<Span>| span.map_or(0.0, Span::seconds);
        let (stage_in, stage_out) = (seconds(attempt.stage_in), seconds(attempt.stage_out));
        let runtime = (seconds(attempt.execution) - stage_in - stage_out).max(0.0);
        Self { stage_in, runtime, stage_out }
    }

    /// The same in whole seconds, if the record has whole seconds.
    fn at_resolution_of(self, record: &Self) -> Self {
        let is_whole =
            [record.stage_in, record.runtime, record.stage_out].iter().all(|one| one.fract() == 0.0);
        let rounded = |seconds: f64| if is_whole { seconds.round() } else { seconds };
        Self {
            stage_in: rounded(self.stage_in),
            runtime: rounded(self.runtime),
            stage_out: rounded(self.stage_out),
        }
    }
}

/// A copy of a run with a fault, under the same name.
pub fn inject(run: &WorkflowRun, fault: Fault, machine: &Machine, seed: u64) -> Result<WorkflowRun> {
    match fault {
        Fault::Cpu { cores: taken } if taken >= machine.cores => {
            return Err(Error::TooFewCores { taken, cores: machine.cores });
        }
        Fault::Disk { write_mb_per_second: cap } if machine.disk_slowdown(cap) <= 1.0 => {
            return Err(Error::NoDiskSlowdown { cap, uncapped: machine.disk_write_mb_per_second });
        }
        _ => {}
    }
    // Runs that are injected with the same seed differ in strength and in the machines that have the fault.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ checksum(&run.name) ^ checksum(&fault.label()));
    let affected = affected(run, machine.affected_fraction, &mut rng);
    let strength = log_normal(RUN_NOISE, &mut rng);
    let loads = Load::by_host(run);
    let mut part = |attempt: &TaskAttempt| {
        let old = Parts::of(attempt);
        if !affected.contains(&attempt.host.as_deref()) {
            return old;
        }
        match fault {
            Fault::Cpu { cores } => with_fewer_cores(&loads, attempt, old, cores, machine),
            Fault::Disk { write_mb_per_second } => {
                with_disk_cap(attempt, old, write_mb_per_second, machine, strength)
            }
            Fault::Loss { percent } => with_loss(attempt, old, percent / 100.0, machine, strength, &mut rng),
        }
        .at_resolution_of(&old)
    };
    let parts: Vec<Parts> = run.attempts.iter().map(&mut part).collect();
    Ok(delayed(run, &parts))
}

/// The machines that have the fault. Attempts without a machine are on one of their own.
fn affected<'a>(
    run: &'a WorkflowRun,
    fraction: f64,
    rng: &mut Xoshiro256PlusPlus,
) -> HashSet<Option<&'a str>> {
    let hosts: BTreeSet<Option<&str>> = run.attempts.iter().map(|attempt| attempt.host.as_deref()).collect();
    let mut hosts: Vec<Option<&str>> = hosts.into_iter().collect();
    let n_affected = (hosts.len() as f64 * fraction).round().max(1.0) as usize;
    if n_affected < hosts.len() {
        hosts.shuffle(rng);
        hosts.truncate(n_affected);
    }
    hosts.into_iter().collect()
}

/// How many attempts run on a machine over time.
#[derive(Default)]
struct Load {
    /// Times at which an attempt starts or ends, in order, each with the sum of the seconds that all attempts have run
    /// until then.
    points: Vec<(f64, f64)>,
}

impl Load {
    /// The load of every machine; attempts without one share a load.
    fn by_host(run: &WorkflowRun) -> HashMap<Option<&str>, Self> {
        let mut spans: HashMap<Option<&str>, Vec<Span>> = HashMap::new();
        for attempt in &run.attempts {
            spans.entry(attempt.host.as_deref()).or_default().extend(attempt.execution);
        }
        spans.into_iter().map(|(host, spans)| (host, Self::of(&spans))).collect()
    }

    fn of(spans: &[Span]) -> Self {
        let changes = spans.iter().flat_map(|span| [(span.start(), 1.0), (span.end(), -1.0)]);
        let mut changes: Vec<(f64, f64)> = changes.collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut n_running, mut sum) = (0.0, 0.0);
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(changes.len());
        for (at, change) in changes {
            sum += points.last().map_or(0.0, |(previous, _)| (at - previous) * n_running);
            n_running += change;
            points.push((at, sum));
        }
        Self { points }
    }

    /// The seconds that all attempts have run until a time at which one of them started or ended.
    fn until(&self, time: f64) -> f64 {
        let place = self.points.partition_point(|(at, _)| *at < time);
        self.points.get(place).map_or(0.0, |(_, sum)| *sum)
    }

    /// The mean number of attempts during one of them, including itself.
    fn mean_during(&self, span: Span) -> f64 {
        (self.until(span.end()) - self.until(span.start())) / span.seconds()
    }
}

/// The mean number of attempts on the same machine during an attempt, including itself. If the machine is unknown, it is
/// assumed to be fully used, with one task per core.
fn concurrency(loads: &HashMap<Option<&str>, Load>, attempt: &TaskAttempt, cores: u32) -> f64 {
    let Some(own) = attempt.execution.filter(|span| span.seconds() > 0.0) else { return 1.0 };
    let found = loads.get(&attempt.host.as_deref()).map_or(1.0, |load| load.mean_during(own));
    if attempt.host.is_some() { found } else { found.min(f64::from(cores)) }
}

/// FNV-1a, which is the same on every machine.
fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn log_normal(std_dev: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
    Normal::new(0.0, std_dev).map_or(1.0, |normal| f64::exp(normal.sample(rng)))
}

fn with_fewer_cores(
    loads: &HashMap<Option<&str>, Load>,
    attempt: &TaskAttempt,
    old: Parts,
    taken: u32,
    machine: &Machine,
) -> Parts {
    let cpu_seconds = attempt.cpu_seconds.unwrap_or(old.runtime).clamp(0.0, old.runtime);
    let left = f64::from(machine.cores - taken);
    let factor = (concurrency(loads, attempt, machine.cores) / left).max(1.0);
    Parts { runtime: old.runtime + cpu_seconds * (factor - 1.0), ..old }
}

/// What a transfer moves. Without bytes, it is assumed to have the throughput of a cluster's network.
fn megabytes(seconds: f64, bytes: Option<f64>) -> f64 {
    bytes.map_or(seconds * ASSUMED_MB_PER_SECOND, |bytes| bytes / 1e6)
}

fn with_disk_cap(attempt: &TaskAttempt, old: Parts, cap: f64, machine: &Machine, strength: f64) -> Parts {
    let disk_seconds = DISK_FRACTION * old.runtime * strength;
    Parts {
        stage_in: old.stage_in.max(megabytes(old.stage_in, attempt.stage_in_bytes) / cap),
        runtime: old.runtime + disk_seconds * (machine.disk_slowdown(cap) - 1.0),
        stage_out: old.stage_out.max(megabytes(old.stage_out, attempt.stage_out_bytes) / (2.0 * cap)),
    }
}

fn with_loss(
    attempt: &TaskAttempt,
    old: Parts,
    loss: f64,
    machine: &Machine,
    strength: f64,
    rng: &mut Xoshiro256PlusPlus,
) -> Parts {
    let throughput = machine.lossy_mb_per_second(loss) / strength;
    let mut transfer = |seconds: f64, bytes: Option<f64>| {
        let setup =
            Poisson::new(SETUP_PACKETS * loss).map_or(0.0, |lost| lost.sample(rng)) * SETUP_TIMEOUT_SECONDS;
        let limited = megabytes(seconds, bytes) / throughput * log_normal(TRANSFER_NOISE, rng);
        seconds.max(limited) + setup
    };
    Parts {
        stage_in: transfer(old.stage_in, attempt.stage_in_bytes),
        // A transfer task whose staging is unknown moves files all the time.
        runtime: if attempt.role == TaskRole::Transfer && old.stage_in + old.stage_out == 0.0 {
            transfer(old.runtime, attempt.stage_in_bytes.or(attempt.stage_out_bytes))
        } else {
            old.runtime
        },
        stage_out: transfer(old.stage_out, attempt.stage_out_bytes),
    }
}

/// The run with longer parts, and everything that depends on them moved back.
fn delayed(run: &WorkflowRun, parts: &[Parts]) -> WorkflowRun {
    // A task waits for its parents. If the graph is unknown, it waits for everything that had ended when it was ready.
    let (waits_for, awaited_by) = (run.graph.places_by_child(), run.graph.places_by_parent());
    // Old and new ends of the parents of every dependency, as far as they are known.
    let mut parents_end = vec![NEVER; run.graph.dependencies().len()];
    let mut order: Vec<usize> = (0..run.attempts.len()).collect();
    let start_of = |at: &usize| {
        let one = &run.attempts[*at];
        one.ready.or(one.submitted).or(one.execution.map(Span::start)).unwrap_or(f64::INFINITY)
    };
    order.sort_by(|a, b| start_of(a).total_cmp(&start_of(b)));
    let last_attempts: HashMap<&TaskName, usize> =
        order.iter().map(|at| (&run.attempts[*at].task, *at)).collect();
    let mut delayed = run.clone();
    // Old and new ends of the attempts at each task so far, which determine by how much a retry moves.
    let mut ends: HashMap<&TaskName, (f64, f64)> = HashMap::new();
    // Tasks that have not ended yet, sorted by their old ends in milliseconds.
    let mut to_come: BTreeMap<(i64, usize), (f64, f64)> = BTreeMap::new();
    let mut past = NEVER;
    for at in order {
        let (old, parts) = (&run.attempts[at], &parts[at]);
        let ready = start_of(&at);
        while let Some(ended) = to_come.first_entry().filter(|first| first.get().0 <= ready + 0.5) {
            past = later(past, ended.remove());
        }
        let waited_for = if run.graph.is_empty() {
            past
        } else {
            // A retry waits for the attempt before it, which waited for the parents.
            ends.get(&old.task).copied().unwrap_or_else(|| {
                let dependencies = waits_for.get(&old.task).into_iter().flatten();
                dependencies.map(|place| parents_end[*place]).fold(NEVER, later)
            })
        };
        let shift = if waited_for.0.is_finite() { (waited_for.1 - waited_for.0).max(0.0) } else { 0.0 };
        let moved = |time: Option<f64>| time.map(|time| time + shift);
        let span = |span: Option<Span>| {
            span.and_then(|span| Span::new(span.start() + shift, span.end() + shift).ok())
        };
        let attempt = &mut delayed.attempts[at];
        attempt.ready = moved(old.ready);
        attempt.submitted = moved(old.submitted);
        attempt.pre_script = span(old.pre_script);
        attempt.post_script = span(old.post_script);
        attempt.running_since = moved(old.running_since);
        attempt.holds = old.holds.iter().filter_map(|hold| span(Some(*hold))).collect();
        attempt.held_since = moved(old.held_since);
        attempt.removed = moved(old.removed);
        let is_last = last_attempts.get(&old.task) == Some(&at);
        let mut end_at = |end: (f64, f64)| {
            ends.insert(&old.task, end);
            for place in awaited_by.get(&old.task).into_iter().flatten().filter(|_| is_last) {
                parents_end[*place] = later(parents_end[*place], end);
            }
        };
        let Some(execution) = old.execution else {
            if let Some(end) = old.end() {
                end_at((end, end + shift));
            }
            continue;
        };
        let of_span = |seconds: f64, span: Option<Span>| if span.is_some() { seconds } else { 0.0 };
        let (stage_in, stage_out) =
            (of_span(parts.stage_in, old.stage_in), of_span(parts.stage_out, old.stage_out));
        let start = execution.start() + shift;
        let end = start + stage_in + parts.runtime + stage_out;
        attempt.execution = Span::new(start, end).ok();
        attempt.stage_in = old.stage_in.and_then(|_| Span::new(start, start + stage_in).ok());
        attempt.stage_out = old.stage_out.and_then(|_| Span::new(end - stage_out, end).ok());
        let later = end - execution.end();
        // A task that was removed while it ran is removed when it ends.
        attempt.removed = old.removed.map(|removed| removed + later);
        attempt.post_script =
            old.post_script.and_then(|span| Span::new(span.start() + later, span.end() + later).ok());
        let moved = (old.end().unwrap_or(execution.end()), attempt.end().unwrap_or(end));
        to_come.insert(((moved.0 * 1e3) as i64, at), moved);
        end_at(moved);
    }
    delayed
}

/// The old and the new end of what has not ended.
const NEVER: (f64, f64) = (f64::NEG_INFINITY, f64::NEG_INFINITY);

/// The later of two ends, both old and new.
fn later(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.max(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> WorkflowRun {
        let task = |name: &str, ready: f64, host: &str| TaskAttempt {
            host: Some(host.into()),
            ready: Some(ready),
            submitted: Some(ready + 1.0),
            execution: Span::new(ready + 2.0, ready + 102.0).ok(),
            stage_in: Span::new(ready + 2.0, ready + 22.0).ok(),
            stage_out: Span::new(ready + 92.0, ready + 102.0).ok(),
            stage_in_bytes: Some(1e9),
            stage_out_bytes: Some(1e6),
            cpu_seconds: Some(60.0),
            ..TaskAttempt::new(name, TaskRole::Compute, "work", 1)
        };
        let attempts = vec![task("a", 0.0, "one"), task("b", 0.0, "one"), task("c", 102.0, "one")];
        WorkflowRun { name: "run".into(), attempts, ..WorkflowRun::default() }
    }

    #[test]
    fn every_fault_affects_its_delays_and_no_others() {
        let healthy = run().delays();
        let machine = Machine::default();
        let of = |fault: &str| inject(&run(), Fault::parse(fault).unwrap(), &machine, 1).unwrap();
        let cpu = of("cpu_3").delays();
        assert!(cpu[0].runtime > healthy[0].runtime * 1.5 && cpu[0].stage_in == healthy[0].stage_in);
        assert_eq!(cpu[2].runtime, healthy[2].runtime, "alone on its machine, one core is enough");
        let disk = of("hdd_20").delays();
        assert!(disk[0].runtime > healthy[0].runtime);
        assert_eq!(disk[0].stage_in, 50.0, "1 GB at 20 MB/s instead of 50 MB/s");
        assert_eq!(of("hdd_60").delays()[0].stage_in, 20.0, "the network is slower than the disk");
        let loss = of("loss_5").delays();
        assert!(
            loss[0].stage_in > healthy[0].stage_in * 3.0
                && (loss[0].runtime - healthy[0].runtime).abs() < 1e-6
        );
        assert!(loss[2].ready > healthy[2].ready, "a task that waited waits longer");
        let slow = of("hdd_20");
        let last_of_both = slow.attempts[..2].iter().filter_map(TaskAttempt::end).fold(0.0, f64::max);
        assert!(slow.attempts[2].ready >= Some(last_of_both), "no task overtakes its parents");
        let mut without_hosts = run();
        for attempt in &mut without_hosts.attempts {
            attempt.host = None;
        }
        let more = (0..9).map(|_| without_hosts.attempts[0].clone()).collect::<Vec<_>>();
        without_hosts.attempts.extend(more);
        let full = inject(&without_hosts, Fault::parse("cpu_2").unwrap(), &machine, 1).unwrap().delays();
        assert!(
            full[0].runtime < healthy[0].runtime * 2.1,
            "an unknown machine has at most one task per core"
        );
        let weak = of("loss_0.01").delays();
        assert!(weak[0].stage_in < healthy[0].stage_in * 1.6);
    }

    #[test]
    fn the_load_of_a_machine_is_the_mean_number_of_tasks_that_run_on_it() {
        let span = |at: u32| {
            let start = 1.7e9 + f64::from(at * at % 89);
            Span::new(start, start + 1.0 + f64::from(at * 31 % 47)).unwrap()
        };
        let spans: Vec<Span> = (0..60).map(span).collect();
        let load = Load::of(&spans);
        for own in &spans {
            let shared =
                |other: &Span| (own.end().min(other.end()) - own.start().max(other.start())).max(0.0);
            let expected = spans.iter().map(shared).sum::<f64>() / own.seconds();
            assert!((load.mean_during(*own) - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn holds_and_removals_move_with_the_task() {
        let mut run = run();
        let waiting = &mut run.attempts[2];
        (waiting.execution, waiting.stage_in, waiting.stage_out) = (None, None, None);
        waiting.holds = vec![Span::new(105.0, 110.0).unwrap()];
        (waiting.held_since, waiting.removed) = (Some(120.0), Some(130.0));
        let found = inject(&run, Fault::parse("hdd_20").unwrap(), &Machine::default(), 1).unwrap();
        let (old, new) = (&run.attempts[2], &found.attempts[2]);
        let shift = new.submitted.unwrap() - old.submitted.unwrap();
        assert!(shift > 1.0);
        assert_eq!(new.holds, [Span::new(105.0 + shift, 110.0 + shift).unwrap()]);
        assert_eq!((new.held_since, new.removed), (Some(120.0 + shift), Some(130.0 + shift)));
    }

    #[test]
    fn packet_loss_limits_large_transfers_and_delays_small_ones() {
        let [weak, strong] = ["loss_1", "loss_5"].map(|fault| {
            inject(&run(), Fault::parse(fault).unwrap(), &Machine::default(), 1).unwrap().delays()[0]
        });
        assert!((20.0..150.0).contains(&weak.stage_in), "1 GB at about 20 MB/s: {weak:?}");
        assert!((150.0..1500.0).contains(&strong.stage_in), "1 GB at about 2 MB/s: {strong:?}");
        assert!((10.0..16.0).contains(&strong.stage_out), "1 MB only waits for its connection: {strong:?}");
    }

    #[test]
    fn a_fraction_of_the_machines_has_the_fault() {
        let mut many = run();
        for (at, attempt) in vec![many.attempts[0].clone(); 40].into_iter().enumerate() {
            many.attempts.push(TaskAttempt { host: Some(format!("worker{}", at % 10)), ..attempt });
        }
        many.attempts.drain(..3);
        let machine = Machine { affected_fraction: 0.3, ..Machine::default() };
        let slow_hosts = |seed: u64| -> BTreeSet<String> {
            let found = inject(&many, Fault::Disk { write_mb_per_second: 20.0 }, &machine, seed).unwrap();
            let is_slow = |(after, before): (&TaskAttempt, &TaskAttempt)| {
                Parts::of(after).runtime > 1.1 * Parts::of(before).runtime
            };
            let pairs = found.attempts.iter().zip(&many.attempts).filter(|pair| is_slow(*pair));
            let hosts: Vec<String> = pairs.filter_map(|(after, _)| after.host.clone()).collect();
            assert_eq!(hosts.len(), 12, "all four tasks on each of three machines");
            hosts.into_iter().collect()
        };
        assert_eq!(slow_hosts(1).len(), 3);
        assert_ne!(slow_hosts(1), slow_hosts(2));
    }

    #[test]
    fn a_disk_cap_slows_down_in_proportion_to_the_assumed_throughput() {
        let machine = Machine::default();
        let runtime = |cap: f64| {
            let fault = Fault::Disk { write_mb_per_second: cap };
            inject(&run(), fault, &machine, 0).unwrap().delays()[0].runtime
        };
        // 70 s of runtime, of which about 3.5 s are disk time, which take 25 and 5 times as long.
        let [more, less] = [runtime(10.0), runtime(50.0)].map(|seconds| seconds - 70.0);
        assert!((4.0..50.0).contains(&less) && more > 2.0 * less, "{more} {less}");
        let labels: Vec<String> =
            ["hdd_50", "hdd_75", "hdd_100"].map(|label| Fault::parse(label).unwrap().label()).into();
        assert_eq!(labels, ["hdd_50", "hdd_75", "hdd_100"]);
    }

    #[test]
    fn faults_that_are_unknown_or_have_no_effect_are_rejected() {
        for text in
            ["cpu", "cpu_x", "cpu_1.5", "hdd_0", "hdd_-1", "hdd_nan", "hdd_1e-300", "loss_100", "fan_3"]
        {
            assert!(matches!(Fault::parse(text), Err(Error::UnknownFault { .. })), "{text}");
        }
        let machine = Machine::default();
        let cpu = inject(&run(), Fault::Cpu { cores: 4 }, &machine, 0);
        assert!(matches!(cpu, Err(Error::TooFewCores { taken: 4, cores: 4 })));
        let disk = inject(&run(), Fault::Disk { write_mb_per_second: 250.0 }, &machine, 0);
        assert!(matches!(disk, Err(Error::NoDiskSlowdown { .. })));
    }
}
