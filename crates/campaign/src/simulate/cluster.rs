//! A simulated cluster, second by second: what each node's kernel would have counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::label::family;
use workload::{
    Cpu, JobReading, Measure, Millis, Mode, ModeSet, NodeReading, Owner, Source, ThreadReading, Ticks,
    Timestamp,
};

use super::SimulateError;
use super::draw::JobDraw;
use super::model::{KindModel, Model, N_STICKS};
use super::schedule::{ClusterSettings, ScheduledJob, node_name};
use super::world::World;

const TICKS_A_SECOND: u64 = 100;
/// The chance that a reading is a tick late, or a tick early: clocks of threads are not in step with whoever
/// reads them. Half of the seconds in the recording have a tick more or less than a hundred.
const OFF_BY_A_TICK: f64 = 0.12;
/// What a job may use, for each of its threads.
const LIMIT_BYTES_A_THREAD: u64 = 2 << 30;
/// How much nodes of one cluster differ, in standard deviations of a stick.
const NODE_SPREAD: f32 = 0.1;
/// A second of a writer whose storage does not answer: user, system, iowait, other.
const STALLED: [f32; 4] = [0.0, 0.05, 0.9, 0.05];

pub struct Cluster {
    readings: Vec<NodeReading>,
    nodes: Vec<Node>,
    world: World,
}

/// What a node remembers from second to second.
struct Node {
    /// Jobs that have not started, the next one last.
    waiting: Vec<(ScheduledJob, Arc<KindModel>)>,
    running: Vec<Running>,
    unused: JobDraw,
    character: [f32; N_STICKS],
    rates: Vec<[f32; 4]>,
    /// By how many ticks each thread was read late.
    late: Vec<i64>,
    rng: Xoshiro256PlusPlus,
}

struct Running {
    job: ScheduledJob,
    model: Arc<KindModel>,
    draw: JobDraw,
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
        let unused = model_of("idle")?;
        let n_threads = usize::from(settings.threads_a_node);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ 0x6e6f_6465);
        let mut readings = Vec::new();
        let mut nodes = Vec::new();
        for index in 0..settings.n_nodes as usize {
            let threads = (0..settings.threads_a_node).map(|cpu| ThreadReading {
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
                unused: JobDraw::new(Arc::clone(&unused), n_threads, rng.random()),
                character: std::array::from_fn(|_| NODE_SPREAD * rng.sample::<f32, _>(StandardNormal)),
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
        Ok(Self { readings, nodes, world: World::new(settings, jobs) })
    }

    /// What the ticks of its threads mean.
    pub fn source(settings: &ClusterSettings) -> Source {
        Source {
            origin: format!("simulation, seed {}", settings.seed),
            measure: Measure::Counter,
            ticks_per_second: TICKS_A_SECOND as u32,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        }
    }

    /// Counts on from what was counted before.
    pub fn resume(&mut self, before: &[NodeReading]) {
        for (now, before) in self.readings.iter_mut().zip(before) {
            now.threads.iter_mut().zip(&before.threads).for_each(|(now, before)| now.ticks = before.ticks);
        }
    }

    /// Every node as it was last.
    pub fn readings(&self) -> &[NodeReading] {
        &self.readings
    }

    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Every node at a moment. Moments come one second after the other.
    pub fn second(&mut self, time: Timestamp) -> &[NodeReading] {
        for index in 0..self.nodes.len() {
            self.node_second(index, time);
        }
        &self.readings
    }

    /// One node at a moment.
    pub fn node_second(&mut self, index: usize, time: Timestamp) -> &NodeReading {
        let (node, reading) = (&mut self.nodes[index], &mut self.readings[index]);
        reading.time = time;
        node.change_hands(reading, time);
        node.draw(&self.world, reading, time);
        node.count(reading);
        reading
    }
}

impl Node {
    /// A reading at `time` speaks of the second before it: a job has those after its start, up to its end.
    fn change_hands(&mut self, reading: &mut NodeReading, time: Timestamp) {
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
            let draw = JobDraw::new(Arc::clone(&model), job.label.threads.len(), job.seed);
            self.running.push(Running { job, model, draw });
        }
    }

    fn draw(&mut self, world: &World, reading: &mut NodeReading, time: Timestamp) {
        let rates = &mut self.rates;
        self.unused.second(self.character, |thread, drawn| rates[thread] = drawn);
        reading.jobs.clear();
        for running in &mut self.running {
            let label = &running.job.label;
            let weather = world.at(&running.job, time);
            let shift = std::array::from_fn(|stick| weather.shift[stick] + self.character[stick]);
            running.draw.second(shift, |thread, drawn| {
                let stalled = weather.stall;
                rates[usize::from(label.threads[thread].0)] =
                    std::array::from_fn(|mode| (1.0 - stalled) * drawn[mode] + stalled * STALLED[mode]);
            });
            reading.jobs.push(memory_of(running, time));
        }
    }

    /// Turns rates into ticks; what is less than one is one with that chance.
    fn count(&mut self, reading: &mut NodeReading) {
        for ((thread, rates), late) in reading.threads.iter_mut().zip(&self.rates).zip(&mut self.late) {
            let chance: f64 = self.rng.random();
            let now = i64::from(chance < OFF_BY_A_TICK) - i64::from(chance > 1.0 - OFF_BY_A_TICK);
            let spent = TICKS_A_SECOND.saturating_add_signed(now - *late);
            *late = now;
            let mut left = spent;
            for (index, mode) in [Mode::User, Mode::System, Mode::Iowait].into_iter().enumerate() {
                let chance: f32 = self.rng.random();
                let whole = ((rates[index] * spent as f32 + chance) as u64).min(left);
                thread.ticks[mode] += whole;
                left -= whole;
            }
            thread.ticks[Mode::Idle] += left;
        }
    }
}

fn memory_of(running: &Running, time: Timestamp) -> JobReading {
    let label = &running.job.label;
    let n_threads = label.threads.len() as u64;
    let age = (time - label.start).as_seconds();
    let memory = &running.model.memory;
    let limit = LIMIT_BYTES_A_THREAD * n_threads;
    let bytes = memory.bytes_a_thread * n_threads as f64 + memory.growth_bytes_a_second * age;
    JobReading {
        memory_bytes: Some((bytes as u64).min(limit)),
        memory_limit_bytes: Some(limit),
        ..JobReading::empty(label.job.clone())
    }
}

#[cfg(test)]
mod tests {
    use workload::Set;

    use super::super::recorded_model;
    use super::super::schedule::schedule;
    use super::*;

    #[test]
    fn every_thread_counts_a_hundred_ticks_a_second_but_for_one_and_belongs_to_whom_the_labels_say() {
        let start = Timestamp::from_seconds(1_767_571_200);
        let settings = ClusterSettings {
            n_nodes: 2,
            threads_a_node: 8,
            seconds: 1_200,
            campaigns: vec![("a".into(), Set::Test)],
            seed: 2,
            load: 0.7,
            start,
            origin: start,
            first_job: 1,
        };
        let jobs = schedule(&settings).unwrap();
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
