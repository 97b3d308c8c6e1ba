//! Anomalies put into traces that have none: what time threads spent is moved from one mode to another, with the
//! truth kept. Strengths go from hardly there to blatant.

mod copy;
mod suite;

pub use copy::{CopySettings, copy};
pub use suite::{cases, contaminate};

use std::fmt;
use std::str::FromStr;

use crate::Moment;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Steps of a burst.
const BURST_STEPS: usize = 5;
/// How much of a mode a thread has to have for something to be taken from it.
const LEAST_RATE: f32 = 0.05;
/// How finely rates are told apart: the kernel's ticks.
const TICK: f32 = 0.01;
const USER: usize = 0;
const SYSTEM: usize = 1;
const IOWAIT: usize = 2;
const OTHER: usize = 3;

/// What goes wrong. A strength is a share of what can be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Time in the program becomes time in the kernel: for all threads of a job, a share of it.
    SystemTime,
    /// Time in the program is taken away by others: a share of it.
    Starved,
    /// Time at work becomes time waiting for a disk: a share of it.
    SlowStorage,
    /// The same for five steps, and three times as strong.
    Burst,
    /// One thread of a job spins and the others wait for it, for a share of the steps.
    StuckRank,
    /// All jobs of the cluster wait a little more for the storage they share: a third of a share of what they do.
    SlowCluster,
}

impl Trouble {
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

    /// Whether it is everywhere at once.
    pub fn is_shared(self) -> bool {
        self == Self::SlowCluster
    }

    /// Threads that a job has to have.
    fn least_threads(self) -> usize {
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

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Trouble {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|trouble| trouble.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|trouble| trouble.name()).collect();
            format!("there are {}", names.join(", "))
        })
    }
}

/// Puts trouble into the steps of a job's threads, each a row of channels of which the first four are rates.
/// Returns in which of them it shows: those that had something to be moved.
pub fn into_job(
    trouble: Trouble,
    strength: f32,
    threads: &mut [&mut [f32]],
    n_channels: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<bool> {
    let source = |values: &[f32]| {
        let steps = values.chunks_exact(n_channels);
        let n_steps = steps.len().max(1) as f32;
        steps.map(|step| trouble.sources().iter().map(|mode| step[*mode]).sum::<f32>()).sum::<f32>() / n_steps
    };
    let mut shows: Vec<bool> = threads.iter().map(|values| source(values) >= LEAST_RATE).collect();
    let busy = shows.iter().filter(|shows| **shows).count();
    let n_steps = threads.first().map_or(0, |values| values.len() / n_channels);
    if busy < trouble.least_threads() || n_steps == 0 {
        return vec![false; threads.len()];
    }
    let (steps, share) = match trouble {
        Trouble::Burst => {
            let first = rng.random_range(0..=n_steps.saturating_sub(BURST_STEPS));
            (first..(first + BURST_STEPS).min(n_steps), (3.0 * strength).min(1.0))
        }
        Trouble::StuckRank => {
            let length = ((n_steps as f32 * strength).ceil() as usize).clamp(1, n_steps);
            let first = rng.random_range(0..=n_steps - length);
            (first..first + length, 0.95)
        }
        Trouble::SlowCluster => (0..n_steps, strength / 3.0),
        _ => (0..n_steps, strength),
    };
    let stuck = rng.random_range(0..threads.len());
    shows[stuck] |= trouble == Trouble::StuckRank;
    for (index, values) in threads.iter_mut().enumerate() {
        for step in values.chunks_exact_mut(n_channels).skip(steps.start).take(steps.len()) {
            // No second is like another: what is moved varies by a quarter around its mean.
            let share = (share * rng.random_range(0.75..1.25)).min(1.0);
            match trouble {
                Trouble::SystemTime => shift(step, &[USER], SYSTEM, share, rng),
                Trouble::Starved => shift(step, &[USER], OTHER, share, rng),
                Trouble::StuckRank if index == stuck => {
                    shift(step, &[SYSTEM, IOWAIT, OTHER], USER, share, rng)
                }
                Trouble::StuckRank => shift(step, &[USER], OTHER, share, rng),
                Trouble::SlowStorage | Trouble::Burst | Trouble::SlowCluster => {
                    shift(step, &[USER, SYSTEM], IOWAIT, share, rng);
                }
            }
        }
    }
    shows
}

/// Moves a share of some modes to another, in whole ticks; what is less than one is one by chance.
fn shift(step: &mut [f32], from: &[usize], to: usize, share: f32, rng: &mut Xoshiro256PlusPlus) {
    for mode in from {
        let wanted = step[*mode] * share / TICK;
        let ticks = wanted.floor() + f32::from(u8::from(rng.random::<f32>() < wanted.fract()));
        let moved = (ticks * TICK).min(step[*mode]);
        step[*mode] -= moved;
        step[to] += moved;
    }
}

/// Puts trouble into a moment: into one job of it, or into all of them if it is shared. Returns in which windows it
/// shows; none, if there was no job that it could be put into.
pub fn into_moment(moment: &mut Moment, trouble: Trouble, strength: f32, seed: u64) -> Vec<bool> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ moment.start.0 as u64);
    let n_channels = moment.n_channels;
    let mut is_in = vec![false; moment.threads.len()];
    let mut jobs = moment.jobs();
    while !jobs.is_empty() {
        let chosen = jobs.choose(&mut rng).cloned().unwrap_or_default();
        jobs.retain(|job| *job != chosen);
        let windows = &mut moment.threads[chosen.clone()];
        let mut threads: Vec<&mut [f32]> =
            windows.iter_mut().map(|window| window.values.as_mut_slice()).collect();
        let shows = into_job(trouble, strength, &mut threads, n_channels, &mut rng);
        is_in[chosen].copy_from_slice(&shows);
        if shows.contains(&true) && !trouble.is_shared() {
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

    fn inject(trouble: Trouble, strength: f32, job: &mut [Vec<f32>]) -> bool {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut threads: Vec<&mut [f32]> = job.iter_mut().map(Vec::as_mut_slice).collect();
        into_job(trouble, strength, &mut threads, 4, &mut rng).contains(&true)
    }

    fn mean(values: &[f32], mode: usize) -> f32 {
        values.chunks_exact(4).map(|step| step[mode]).sum::<f32>() / (values.len() / 4) as f32
    }

    #[test]
    fn as_much_is_moved_as_the_strength_says_and_no_time_is_lost() {
        for trouble in Trouble::ALL {
            for strength in STRENGTHS {
                let mut job = job(4, [0.7, 0.2, 0.0, 0.1]);
                assert!(inject(trouble, strength, &mut job));
                for step in job.iter().flat_map(|thread| thread.chunks_exact(4)) {
                    assert!(
                        (step.iter().sum::<f32>() - 1.0).abs() < 1e-4 && step.iter().all(|rate| *rate >= 0.0)
                    );
                }
                let moved = match trouble {
                    Trouble::SystemTime => mean(&job[0], SYSTEM) - 0.2,
                    Trouble::Starved => mean(&job[0], OTHER) - 0.1,
                    Trouble::SlowStorage | Trouble::SlowCluster => mean(&job[0], IOWAIT),
                    Trouble::Burst | Trouble::StuckRank => continue,
                };
                let wanted = match trouble {
                    Trouble::SystemTime | Trouble::Starved => 0.7 * strength,
                    Trouble::SlowCluster => 0.9 * strength / 3.0,
                    _ => 0.9 * strength,
                };
                assert!((moved / wanted - 1.0).abs() < 0.2, "{trouble} {strength}: {moved} of {wanted}");
            }
        }
    }

    #[test]
    fn one_rank_spins_while_the_others_wait() {
        let mut ranks = job(4, [0.8, 0.1, 0.0, 0.1]);
        assert!(inject(Trouble::StuckRank, 0.6, &mut ranks));
        let busier = ranks.iter().filter(|rank| mean(rank, USER) > 0.85).count();
        assert_eq!((busier, ranks.iter().filter(|rank| mean(rank, OTHER) > 0.4).count()), (1, 3));
    }

    #[test]
    fn where_there_is_nothing_to_move_nothing_is_anomalous() {
        assert!(!inject(Trouble::SystemTime, 0.6, &mut job(4, [0.01, 0.0, 0.0, 0.99])));
        assert!(!inject(Trouble::StuckRank, 0.6, &mut job(1, [0.9, 0.0, 0.0, 0.1])));
        assert!("bad".parse::<Trouble>().unwrap_err().contains("slow-storage"));
    }
}
