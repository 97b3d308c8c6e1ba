//! A simulated cluster, second by second: the CPU time that the kernel of each node would have counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_distr::{Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::label::family;
use workload::{
    Cpu, JobReading, Measure, Millis, Mode, ModeSet, NodeReading, Owner, Source, ThreadReading, Ticks,
    Timestamp,
};

use super::SimulateError;
use super::environment::Environment;
use super::model::{KindModel, Model, N_STICKS};
use super::sampler::JobSampler;
use super::schedule::{ClusterSettings, ScheduledJob, node_name};

const TICKS_PER_SECOND: u64 = 100;
/// The probability that a reading is one tick late, and that it is one tick early: the kernel's clock and the
/// sampler are not synchronised. Half of the recorded seconds do not have exactly 100 ticks.
const OFF_BY_ONE_TICK: f64 = 0.12;
/// The memory limit of a job, per thread.
const LIMIT_BYTES_PER_THREAD: u64 = 2 << 30;
/// How long a job takes to fill its memory, and how much that fluctuates afterwards: standard deviation and correlation
/// from one second to the next.
const FILL_SECONDS: f64 = 10.0;
const MEMORY_SPREAD: f64 = 0.03;
const MEMORY_CORRELATION: f64 = 0.95;
/// The standard deviation of the differences between nodes, as a normal deviate of a stick.
const NODE_SPREAD: f32 = 0.1;
/// The rates (user, system, iowait, other) of a writer while storage stalls.
const STALLED: [f32; 4] = [0.0, 0.05, 0.9, 0.05];

pub struct Cluster {
    readings: Vec<NodeReading>,
    nodes: Vec<Node>,
    environment: Environment,
}

/// The state of a node.
struct Node {
    /// Jobs that have not started, in reverse order of their starts.
    waiting: Vec<(ScheduledJob, Arc<KindModel>)>,
    running: Vec<Running>,
    /// The threads that no job owns.
    unowned: JobSampler,
    /// How this node differs from others.
    shift: [f32; N_STICKS],
    rates: Vec<[f32; 4]>,
    /// By how many ticks each thread was read late; negative if early.
    late: Vec<i64>,
    rng: Xoshiro256PlusPlus,
}

struct Running {
    job: ScheduledJob,
    model: Arc<KindModel>,
    sampler: JobSampler,
    /// The fraction of its first thread's time that a hog takes.
    hog: f32,
    /// Its CPU time in user and in system mode, in seconds.
    cpu_seconds: [f64; 2],
    /// How much its memory differs from the mean, as a fraction.
    memory_deviation: f64,
}

impl Running {
    fn new(job: ScheduledJob, model: Arc<KindModel>) -> Self {
        let sampler = JobSampler::new(Arc::clone(&model), job.label.threads.len(), job.seed);
        let hogs = &model.foreign.hogs;
        let hog = hogs.get(job.seed as usize % hogs.len().max(1)).copied().unwrap_or(0.0) as f32;
        Self { job, model, sampler, hog, cpu_seconds: [0.0; 2], memory_deviation: 0.0 }
    }

    /// Adds the CPU time of a second: what its threads spent, less what others used of it.
    fn count_cpu(&mut self, rates: &[[f32; 4]], rng: &mut Xoshiro256PlusPlus) {
        let per_thread = self.model.foreign.per_thread as f32;
        for (thread, cpu) in self.job.label.threads.iter().enumerate() {
            let [user, system, ..] = rates[usize::from(cpu.0)];
            let noise: f32 = rng.sample(Exp1);
            let foreign = per_thread * noise + if thread == 0 { self.hog } else { 0.0 };
            self.cpu_seconds[0] += f64::from((user - foreign).max(0.0));
            self.cpu_seconds[1] += f64::from(system);
        }
    }

    /// Memory as read at a time: it fills while the job starts, and fluctuates a little.
    fn reading(&mut self, time: Timestamp, rng: &mut Xoshiro256PlusPlus) -> JobReading {
        let label = &self.job.label;
        let n_threads = label.threads.len() as u64;
        let age = (time - label.start).as_seconds();
        let memory = &self.model.memory;
        let fresh = MEMORY_SPREAD * (1.0 - MEMORY_CORRELATION * MEMORY_CORRELATION).sqrt();
        self.memory_deviation =
            MEMORY_CORRELATION * self.memory_deviation + fresh * rng.sample::<f64, _>(StandardNormal);
        let filled = 1.0 - (-age / FILL_SECONDS).exp();
        let steady = memory.bytes_per_thread * n_threads as f64 * filled * (1.0 + self.memory_deviation);
        let bytes = (steady + memory.growth_bytes_per_second * age).max(0.0);
        let limit = LIMIT_BYTES_PER_THREAD * n_threads;
        let [user, system] = self.cpu_seconds.map(|seconds| (seconds * 1e6) as u64);
        JobReading {
            memory_bytes: Some((bytes as u64).min(limit)),
            memory_limit_bytes: Some(limit),
            cpu_user_usec: Some(user),
            cpu_system_usec: Some(system),
            ..JobReading::empty(label.job.clone())
        }
    }
}

impl Cluster {
    pub fn new(
        settings: &ClusterSettings,
        jobs: &[ScheduledJob],
        model: &Model,
    ) -> Result<Self, SimulateError> {
        let models: BTreeMap<&str, Arc<KindModel>> =
            model.kinds.iter().map(|(kind, model)| (kind.as_str(), Arc::new(model.clone()))).collect();
        let model_of = |kind: &str| {
            let family = family(kind);
            models.get(family).map(Arc::clone).ok_or_else(|| SimulateError::NoKind(family.to_owned()))
        };
        let unowned = model_of("idle")?;
        let n_threads = usize::from(settings.threads_per_node);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ 0x6e6f_6465);
        let mut readings = Vec::new();
        let mut nodes = Vec::new();
        for index in 0..settings.n_nodes as usize {
            let threads = (0..settings.threads_per_node).map(|cpu| ThreadReading {
                cpu: Cpu(cpu),
                ticks: Ticks::default(),
                owner: Owner::Nobody,
            });
            readings.push(NodeReading {
                node: node_name(index)?,
                time: settings.start,
                threads: threads.collect(),
                jobs: Vec::new(),
            });
            nodes.push(Node {
                waiting: Vec::new(),
                running: Vec::new(),
                unowned: JobSampler::new(Arc::clone(&unowned), n_threads, rng.random()),
                shift: std::array::from_fn(|_| NODE_SPREAD * rng.sample::<f32, _>(StandardNormal)),
                rates: vec![[0.0, 0.0, 0.0, 1.0]; n_threads],
                late: vec![0; n_threads],
                rng: Xoshiro256PlusPlus::seed_from_u64(rng.random()),
            });
        }
        for job in jobs.iter().rev() {
            nodes[job.node].waiting.push((job.clone(), model_of(&job.label.kind)?));
        }
        for node in &mut nodes {
            node.waiting.sort_by_key(|(job, _)| std::cmp::Reverse(job.label.start));
        }
        Ok(Self { readings, nodes, environment: Environment::new(settings, jobs) })
    }

    /// How the ticks of its readings are to be understood.
    pub fn source(settings: &ClusterSettings) -> Source {
        Source {
            origin: format!("simulation, seed {}", settings.seed),
            measure: Measure::Counter,
            ticks_per_second: TICKS_PER_SECOND as u32,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        }
    }

    /// Continues from the counters of earlier readings.
    pub fn resume(&mut self, before: &[NodeReading]) {
        for (now, before) in self.readings.iter_mut().zip(before) {
            for (now, before) in now.threads.iter_mut().zip(&before.threads) {
                now.ticks = before.ticks;
            }
        }
    }

    /// The latest reading of every node.
    pub fn readings(&self) -> &[NodeReading] {
        &self.readings
    }

    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Readings of all nodes at `time`, which has to advance by one second per call.
    pub fn second(&mut self, time: Timestamp) -> &[NodeReading] {
        for index in 0..self.nodes.len() {
            self.node_second(index, time);
        }
        &self.readings
    }

    /// The reading of one node at `time`.
    pub fn node_second(&mut self, index: usize, time: Timestamp) -> &NodeReading {
        let (node, reading) = (&mut self.nodes[index], &mut self.readings[index]);
        reading.time = time;
        node.update_owners(reading, time);
        node.sample(&self.environment, reading, time);
        node.count(reading);
        reading
    }
}

impl Node {
    /// Ends and starts jobs. A reading covers the second before it, so a job owns the readings after its start, up
    /// to and including its end.
    fn update_owners(&mut self, reading: &mut NodeReading, time: Timestamp) {
        self.running.retain(|running| {
            let goes_on = running.job.label.end >= time;
            if !goes_on {
                for cpu in &running.job.label.threads {
                    reading.threads[usize::from(cpu.0)].owner = Owner::Nobody;
                }
            }
            goes_on
        });
        while let Some((job, model)) = self.waiting.pop_if(|(job, _)| job.label.start < time) {
            let owner = Owner::Job(job.label.job.clone());
            for cpu in &job.label.threads {
                reading.threads[usize::from(cpu.0)].owner = owner.clone();
            }
            self.running.push(Running::new(job, model));
        }
    }

    /// Samples the rates of all threads, and the memory of all jobs.
    fn sample(&mut self, environment: &Environment, reading: &mut NodeReading, time: Timestamp) {
        let rates = &mut self.rates;
        self.unowned.second(self.shift, |thread, drawn| rates[thread] = drawn);
        reading.jobs.clear();
        for running in &mut self.running {
            let conditions = environment.at(&running.job, time);
            let shift = std::array::from_fn(|stick| conditions.shift[stick] + self.shift[stick]);
            let label = &running.job.label;
            running.sampler.second(shift, |thread, drawn| {
                let stalled = conditions.stall;
                rates[usize::from(label.threads[thread].0)] =
                    std::array::from_fn(|mode| (1.0 - stalled) * drawn[mode] + stalled * STALLED[mode]);
            });
            running.count_cpu(rates, &mut self.rng);
            reading.jobs.push(running.reading(time, &mut self.rng));
        }
    }

    /// Turns rates into ticks. A fraction of a tick is rounded up with that probability, else down.
    fn count(&mut self, reading: &mut NodeReading) {
        for ((thread, rates), late) in reading.threads.iter_mut().zip(&self.rates).zip(&mut self.late) {
            let draw: f64 = self.rng.random();
            let now = i64::from(draw < OFF_BY_ONE_TICK) - i64::from(draw > 1.0 - OFF_BY_ONE_TICK);
            let spent = TICKS_PER_SECOND.saturating_add_signed(now - *late);
            *late = now;
            let mut left = spent;
            for (index, mode) in [Mode::User, Mode::System, Mode::Iowait].into_iter().enumerate() {
                let draw: f32 = self.rng.random();
                let whole = ((rates[index] * spent as f32 + draw) as u64).min(left);
                thread.ticks[mode] += whole;
                left -= whole;
            }
            thread.ticks[Mode::Idle] += left;
        }
    }
}

#[cfg(test)]
mod tests {
    use workload::{Set, Stop};

    use super::super::recorded_model;
    use super::super::schedule::{Variation, schedule};
    use super::*;
    use crate::plan::PlannedCampaign;

    #[test]
    fn threads_count_100_ticks_per_second_within_one_and_have_the_owners_of_the_labels() {
        let start = Timestamp::from_seconds(1_767_571_200);
        let settings = ClusterSettings {
            n_nodes: 2,
            threads_per_node: 8,
            campaign_seconds: 1_200,
            campaigns: vec![PlannedCampaign { name: "a".into(), set: Set::Test }],
            seed: 2,
            load: 0.7,
            start,
            origin: start,
            first_job: 1,
            is_busy_at_start: false,
            variation: Variation::default(),
        };
        let jobs = schedule(&settings, &Stop::default()).unwrap();
        let mut cluster = Cluster::new(&settings, &jobs, &recorded_model().unwrap()).unwrap();
        for second in 0..=1_200 {
            let time = start + Millis::from_seconds(second);
            for (node, reading) in cluster.second(time).iter().enumerate() {
                for thread in &reading.threads {
                    assert!(thread.ticks.total().abs_diff(100 * (second as u64 + 1)) <= 1);
                    let owner = jobs.iter().map(|job| (job.node, &job.label)).find(|(on, label)| {
                        *on == node
                            && label.threads.contains(&thread.cpu)
                            && label.start < time
                            && time <= label.end
                    });
                    let wanted = owner.map_or(Owner::Nobody, |(_, label)| Owner::Job(label.job.clone()));
                    assert_eq!(thread.owner, wanted, "{time:?} {node} {}", thread.cpu);
                }
            }
        }
    }
}
