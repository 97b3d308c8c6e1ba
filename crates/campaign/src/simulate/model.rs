//! What is known of each kind of job: numbers fitted to recordings, from which its threads' seconds are
//! drawn.
//!
//! A second of a thread is broken like a stick: first the share of `other`, then of what is left the
//! share of iowait, then of what is left of that the share of system; the rest is user. So the four
//! rates sum to one by construction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub const VERSION: u32 = 1;
/// `other`, iowait, system.
pub const N_STICKS: usize = 3;
/// Where quantiles are kept, in standard deviations: from `-REACH` to `REACH`.
pub const N_QUANTILES: usize = 33;
pub const REACH: f64 = 2.4;

/// The model of every kind, with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub version: u32,
    /// What it was fitted to, in words.
    pub origin: String,
    /// By kind; all `mpi-N` are one.
    pub kinds: BTreeMap<String, KindModel>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindModel {
    pub behaviour: Behaviour,
    pub memory: Memory,
}

/// A job's memory: what it has, and what it takes more every second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub bytes_a_thread: f64,
    pub growth_bytes_a_second: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Behaviour {
    Phases(Phases),
    Barrier(Barrier),
}

/// Phases that all threads of a job go through together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// The chance of each phase after each.
    pub transitions: Vec<Vec<f64>>,
    pub phases: Vec<Phase>,
    /// How much of a stick's deviation is left a second later.
    pub memory: [f64; N_STICKS],
    /// How much of it all threads of the job have in common.
    pub shared: [f64; N_STICKS],
    /// How sticks of one second go together.
    pub correlation: [[f64; N_STICKS]; N_STICKS],
}

/// What threads do in one phase: the first of a job, and the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub first: Sticks,
    pub others: Sticks,
}

/// Ranks that compute for a random time and wait for the last of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Barrier {
    /// How long a rank computes, on the average; exponential.
    pub mean_seconds: f64,
    pub computing: Sticks,
    pub waiting: Sticks,
}

/// The distribution of each stick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sticks(pub [Quantiles; N_STICKS]);

/// A distribution by its quantiles at even steps of a normal deviate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantiles(pub Vec<f32>);

impl Quantiles {
    /// The quantile of a normal deviate.
    pub fn at(&self, deviate: f32) -> f32 {
        let step = (2.0 * REACH / (N_QUANTILES - 1) as f64) as f32;
        let place = ((deviate + REACH as f32) / step).clamp(0.0, (N_QUANTILES - 1) as f32 - 1e-3);
        let (index, rest) = (place as usize, place.fract());
        self.0[index] + (self.0[index + 1] - self.0[index]) * rest
    }
}

/// The rates user, system, iowait, other of broken sticks.
pub fn rates_of(sticks: [f32; N_STICKS]) -> [f32; 4] {
    let [other, iowait, system] = sticks;
    let iowait = (1.0 - other) * iowait;
    let left = (1.0 - other - iowait).max(0.0);
    let system = left * system;
    [left - system, system, iowait, other]
}

/// How rates break a second.
pub fn sticks_of(rates: [f32; 4]) -> [f32; N_STICKS] {
    let [user, system, iowait, other] = rates;
    let share = |part: f32, whole: f32| if whole > 1e-6 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    [other, share(iowait, 1.0 - other), share(system, user + system)]
}

impl Model {
    /// Reads a model, and checks that everything can be drawn from it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let model: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if model.version > VERSION {
            return Err(format!(
                "it has version {}, and this Tracewise knows up to {VERSION}",
                model.version
            ));
        }
        for (kind, known) in &model.kinds {
            known.check().map_err(|reason| format!("{kind}: {reason}"))?;
        }
        Ok(model)
    }
}

impl KindModel {
    fn check(&self) -> Result<(), String> {
        let sticks: Vec<&Sticks> = match &self.behaviour {
            Behaviour::Barrier(barrier) if barrier.mean_seconds > 0.0 => {
                vec![&barrier.computing, &barrier.waiting]
            }
            Behaviour::Barrier(_) => return Err("ranks have to compute for some time".into()),
            Behaviour::Phases(phases) => {
                let n_phases = phases.phases.len();
                let is_row = |row: &Vec<f64>| {
                    row.len() == n_phases
                        && row.iter().all(|p| *p >= 0.0)
                        && (row.iter().sum::<f64>() - 1.0).abs() < 1e-6
                };
                if n_phases == 0
                    || phases.transitions.len() != n_phases
                    || !phases.transitions.iter().all(is_row)
                {
                    return Err("the transitions are no chances of phases".into());
                }
                let is_share = |share: &f64| (-1.0..=1.0).contains(share);
                if !phases.memory.iter().chain(&phases.shared).all(is_share) {
                    return Err("memory and shared lie between -1 and 1".into());
                }
                phases.phases.iter().flat_map(|phase| [&phase.first, &phase.others]).collect()
            }
        };
        let is_sound = |quantiles: &Quantiles| {
            quantiles.0.len() == N_QUANTILES && quantiles.0.iter().all(|share| (0.0..=1.0).contains(share))
        };
        match sticks.iter().flat_map(|sticks| &sticks.0).all(is_sound) {
            true => Ok(()),
            false => Err(format!("a distribution is {N_QUANTILES} shares between zero and one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sticks_and_rates_are_the_same_second(other in 0f32..1.0, iowait in 0f32..1.0, system in 0f32..1.0) {
            let rates = rates_of([other, iowait, system]);
            prop_assert!((rates.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            prop_assert!(rates.iter().all(|rate| *rate >= 0.0));
            let again = rates_of(sticks_of(rates));
            prop_assert!(rates.iter().zip(again).all(|(one, other)| (one - other).abs() < 1e-4));
        }
    }

    #[test]
    fn quantiles_between_two_are_between_them() {
        let quantiles = Quantiles((0..N_QUANTILES).map(|at| at as f32 / (N_QUANTILES - 1) as f32).collect());
        assert_eq!(quantiles.at(-9.0), 0.0);
        assert!((quantiles.at(0.0) - 0.5).abs() < 1e-6 && quantiles.at(9.0) > 0.999);
        assert!(quantiles.at(0.1) > quantiles.at(0.05));
    }
}
