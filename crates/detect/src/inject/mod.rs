//! Fault injection: moves time of threads from one mode to another, in windows or in a copy of an archive, and records
//! where. Strengths go from barely visible to obvious.

mod copy;
mod suite;

pub use copy::{CopySettings, copy};
pub use suite::{cases, contaminate};

use std::fmt;
use std::str::FromStr;

use crate::window::WindowBatch;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The length of a burst in steps.
const BURST_STEPS: usize = 5;
/// Nothing is taken from a mode below this rate.
const MIN_RATE: f32 = 0.05;
/// The resolution of rates: one kernel tick.
const TICK: f32 = 0.01;
const USER: usize = 0;
const SYSTEM: usize = 1;
const IOWAIT: usize = 2;
const OTHER: usize = 3;

/// A kind of fault. Its strength is a fraction of the time that can be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// User time becomes system time, on all threads of a job.
    SystemTime,
    /// User time is taken away by others.
    Starved,
    /// Busy time becomes iowait.
    SlowStorage,
    /// As [`Fault::SlowStorage`], for five steps and three times as strong.
    Burst,
    /// One thread of a job spins while the others wait, for a fraction of the steps.
    StuckRank,
    /// All jobs of the cluster wait for shared storage: a third of the strength.
    SlowCluster,
}

impl Fault {
    pub const ALL: [Self; 6] =
        [Self::SystemTime, Self::Starved, Self::SlowStorage, Self::Burst, Self::StuckRank, Self::SlowCluster];

    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemTime => "system-time",
            Self::Starved => "starved",
            Self::SlowStorage => "slow-storage",
            Self::Burst => "burst",
            Self::StuckRank => "stuck-rank",
            Self::SlowCluster => "slow-cluster",
        }
    }

    /// Whether it affects the whole cluster at once.
    pub fn is_shared(self) -> bool {
        self == Self::SlowCluster
    }

    /// The number of busy threads that a job must have.
    fn min_threads(self) -> usize {
        if self == Self::StuckRank { 2 } else { 1 }
    }

    /// The modes that time is taken from.
    fn sources(self) -> &'static [usize] {
        match self {
            Self::SystemTime | Self::Starved | Self::StuckRank => &[USER],
            Self::SlowStorage | Self::Burst | Self::SlowCluster => &[USER, SYSTEM],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|fault| fault.name()).collect();
            format!("there are {}", names.join(", "))
        })
    }
}

/// Injects a fault into the threads of a job, each a row of channels per step of which the first four are rates.
/// Returns which threads it changed: those with time to move.
pub fn into_job(
    fault: Fault,
    strength: f32,
    threads: &mut [&mut [f32]],
    n_channels: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<bool> {
    let source = |values: &[f32]| {
        let steps = values.chunks_exact(n_channels);
        let n_steps = steps.len().max(1) as f32;
        steps.map(|step| fault.sources().iter().map(|mode| step[*mode]).sum::<f32>()).sum::<f32>() / n_steps
    };
    let mut changed: Vec<bool> = threads.iter().map(|values| source(values) >= MIN_RATE).collect();
    let busy = changed.iter().filter(|changed| **changed).count();
    let n_steps = threads.first().map_or(0, |values| values.len() / n_channels);
    if busy < fault.min_threads() || n_steps == 0 {
        return vec![false; threads.len()];
    }
    let (steps, share) = match fault {
        Fault::Burst => {
            let first = rng.random_range(0..=n_steps.saturating_sub(BURST_STEPS));
            (first..(first + BURST_STEPS).min(n_steps), (3.0 * strength).min(1.0))
        }
        Fault::StuckRank => {
            let length = ((n_steps as f32 * strength).ceil() as usize).clamp(1, n_steps);
            let first = rng.random_range(0..=n_steps - length);
            (first..first + length, 0.95)
        }
        Fault::SlowCluster => (0..n_steps, strength / 3.0),
        _ => (0..n_steps, strength),
    };
    let stuck = rng.random_range(0..threads.len());
    changed[stuck] |= fault == Fault::StuckRank;
    for (index, values) in threads.iter_mut().enumerate() {
        for step in values.chunks_exact_mut(n_channels).skip(steps.start).take(steps.len()) {
            // The moved fraction varies by a quarter around its mean from step to step.
            let share = (share * rng.random_range(0.75..1.25)).min(1.0);
            match fault {
                Fault::SystemTime => shift(step, &[USER], SYSTEM, share, rng),
                Fault::Starved => shift(step, &[USER], OTHER, share, rng),
                Fault::StuckRank if index == stuck => shift(step, &[SYSTEM, IOWAIT, OTHER], USER, share, rng),
                Fault::StuckRank => shift(step, &[USER], OTHER, share, rng),
                Fault::SlowStorage | Fault::Burst | Fault::SlowCluster => {
                    shift(step, &[USER, SYSTEM], IOWAIT, share, rng);
                }
            }
        }
    }
    changed
}

/// Moves a fraction of some modes to another in whole ticks; fractions of a tick are rounded at random.
fn shift(step: &mut [f32], from: &[usize], to: usize, share: f32, rng: &mut Xoshiro256PlusPlus) {
    for mode in from {
        let wanted = step[*mode] * share / TICK;
        let ticks = wanted.floor() + f32::from(u8::from(rng.random::<f32>() < wanted.fract()));
        let moved = (ticks * TICK).min(step[*mode]);
        step[*mode] -= moved;
        step[to] += moved;
    }
}

/// Injects a fault into one job of a batch, or into all jobs if it affects the whole cluster. Returns which windows it
/// changed; none if no job was suitable.
pub fn into_batch(batch: &mut WindowBatch, fault: Fault, strength: f32, seed: u64) -> Vec<bool> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ batch.start().0 as u64);
    let n_channels = batch.n_channels();
    let mut is_in = vec![false; batch.threads().len()];
    let mut jobs = batch.groups();
    jobs.retain(|group| batch.threads()[group.start].job().is_some());
    while !jobs.is_empty() {
        let chosen = jobs.choose(&mut rng).cloned().unwrap_or_default();
        jobs.retain(|job| *job != chosen);
        let mut threads = batch.values_mut(chosen.clone());
        let changed = into_job(fault, strength, &mut threads, n_channels, &mut rng);
        is_in[chosen].copy_from_slice(&changed);
        if changed.contains(&true) && !fault.is_shared() {
            break;
        }
    }
    is_in
}

#[cfg(test)]
mod tests {
    use super::suite::STRENGTHS;
    use super::*;

    fn job(n_threads: usize, rates: [f32; 4]) -> Vec<Vec<f32>> {
        vec![rates.repeat(100); n_threads]
    }

    fn inject(fault: Fault, strength: f32, job: &mut [Vec<f32>]) -> bool {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut threads: Vec<&mut [f32]> = job.iter_mut().map(Vec::as_mut_slice).collect();
        into_job(fault, strength, &mut threads, 4, &mut rng).contains(&true)
    }

    fn mean(values: &[f32], mode: usize) -> f32 {
        values.chunks_exact(4).map(|step| step[mode]).sum::<f32>() / (values.len() / 4) as f32
    }

    #[test]
    fn the_strength_is_the_fraction_moved_and_no_time_is_lost() {
        for fault in Fault::ALL {
            for strength in STRENGTHS {
                let mut job = job(4, [0.7, 0.2, 0.0, 0.1]);
                assert!(inject(fault, strength, &mut job));
                for step in job.iter().flat_map(|thread| thread.chunks_exact(4)) {
                    assert!(
                        (step.iter().sum::<f32>() - 1.0).abs() < 1e-4 && step.iter().all(|rate| *rate >= 0.0)
                    );
                }
                let moved = match fault {
                    Fault::SystemTime => mean(&job[0], SYSTEM) - 0.2,
                    Fault::Starved => mean(&job[0], OTHER) - 0.1,
                    Fault::SlowStorage | Fault::SlowCluster => mean(&job[0], IOWAIT),
                    Fault::Burst | Fault::StuckRank => continue,
                };
                let wanted = match fault {
                    Fault::SystemTime | Fault::Starved => 0.7 * strength,
                    Fault::SlowCluster => 0.9 * strength / 3.0,
                    _ => 0.9 * strength,
                };
                assert!((moved / wanted - 1.0).abs() < 0.2, "{fault} {strength}: {moved} of {wanted}");
            }
        }
    }

    #[test]
    fn one_rank_spins_while_the_others_wait() {
        let mut ranks = job(4, [0.8, 0.1, 0.0, 0.1]);
        assert!(inject(Fault::StuckRank, 0.6, &mut ranks));
        let busier = ranks.iter().filter(|rank| mean(rank, USER) > 0.85).count();
        assert_eq!((busier, ranks.iter().filter(|rank| mean(rank, OTHER) > 0.4).count()), (1, 3));
    }

    #[test]
    fn without_time_to_move_nothing_is_changed() {
        assert!(!inject(Fault::SystemTime, 0.6, &mut job(4, [0.01, 0.0, 0.0, 0.99])));
        assert!(!inject(Fault::StuckRank, 0.6, &mut job(1, [0.9, 0.0, 0.0, 0.1])));
        assert!("bad".parse::<Fault>().unwrap_err().contains("slow-storage"));
    }
}
