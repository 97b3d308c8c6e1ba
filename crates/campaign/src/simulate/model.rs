//! The model of each kind of job, fitted to recordings. The simulator samples the seconds of a job from it.
//!
//! The four rates of a second are a stick-breaking representation: the first stick is the fraction of `other`,
//! the second the fraction of iowait in the remainder, the third the fraction of system in the remainder of
//! that; the rest is user. So the rates sum to one by construction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub const VERSION: u32 = 2;
/// `other`, iowait, system.
pub const N_STICKS: usize = 3;
/// A distribution is stored as quantiles at even steps of a normal deviate, from `-MAX_DEVIATE` to `MAX_DEVIATE`.
pub const N_QUANTILES: usize = 33;
pub const MAX_DEVIATE: f64 = 2.4;

/// The models of all kinds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub version: u32,
    /// The recording it was fitted to, as text.
    pub origin: String,
    /// By kind; all `mpi-N` share one model.
    pub kinds: BTreeMap<String, KindModel>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindModel {
    pub behaviour: Behaviour,
    pub memory: Memory,
    #[serde(default)]
    pub foreign: Foreign,
}

/// CPU time that others use on the threads of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// The mean fraction of every thread's time.
    pub per_thread: f64,
    /// The fraction of the first thread's time that a hog uses, in each recorded job; empty without a hog.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hogs: Vec<f64>,
}

/// The memory of a job: bytes per thread at the start, and growth of the job in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    #[serde(rename = "bytes_a_thread")]
    pub bytes_per_thread: f64,
    #[serde(rename = "growth_bytes_a_second")]
    pub growth_bytes_per_second: f64,
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
    /// The probability of each phase (column) after each phase (row): of the next phase if there are durations, else
    /// of the phase in the next second.
    pub transitions: Vec<Vec<f64>>,
    /// How long each phase lasted in the recording, in seconds. Simulated phases draw their lengths from these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<Vec<f64>>,
    pub phases: Vec<Phase>,
    /// The correlation of a stick's deviate with that of the second before.
    #[serde(rename = "memory")]
    pub autocorrelation: [f64; N_STICKS],
    /// The correlation of a stick's deviates between threads of the job.
    pub shared: [f64; N_STICKS],
    /// The correlation between the sticks of one second.
    pub correlation: [[f64; N_STICKS]; N_STICKS],
}

/// The distributions of one phase: for the first thread of a job, and for the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub first: Sticks,
    pub others: Sticks,
}

/// Ranks that compute for an exponentially distributed time and wait for the last of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Barrier {
    /// The mean time that a rank computes between two barriers.
    pub mean_seconds: f64,
    pub computing: Sticks,
    pub waiting: Sticks,
}

/// The distribution of each stick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sticks(pub [Quantiles; N_STICKS]);

/// A distribution, as its quantiles at even steps of a normal deviate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantiles(pub Vec<f32>);

impl Quantiles {
    /// The quantile at a normal deviate, interpolated.
    pub fn at(&self, deviate: f32) -> f32 {
        let step = (2.0 * MAX_DEVIATE / (N_QUANTILES - 1) as f64) as f32;
        let position = ((deviate + MAX_DEVIATE as f32) / step).clamp(0.0, (N_QUANTILES - 1) as f32 - 1e-3);
        let (index, rest) = (position as usize, position.fract());
        self.0[index] + (self.0[index + 1] - self.0[index]) * rest
    }
}

/// The rates user, system, iowait and other from sticks.
pub fn rates_of(sticks: [f32; N_STICKS]) -> [f32; 4] {
    let [other, iowait, system] = sticks;
    let iowait = (1.0 - other) * iowait;
    let left = (1.0 - other - iowait).max(0.0);
    let system = left * system;
    [left - system, system, iowait, other]
}

/// The sticks from rates.
pub fn sticks_of(rates: [f32; 4]) -> [f32; N_STICKS] {
    let [user, system, iowait, other] = rates;
    let fraction = |part: f32, whole: f32| if whole > 1e-6 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    [other, fraction(iowait, 1.0 - other), fraction(system, user + system)]
}

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("the model has version {0}, but this version of Tracewise reads up to {VERSION}")]
    Version(u32),
    #[error("{kind}: {problem}")]
    Invalid { kind: String, problem: &'static str },
}

impl Model {
    /// Reads a model and checks that it can be sampled.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let model: Self = serde_json::from_str(text)?;
        if model.version > VERSION {
            return Err(ModelError::Version(model.version));
        }
        for (kind, known) in &model.kinds {
            known.check().map_err(|problem| ModelError::Invalid { kind: kind.clone(), problem })?;
        }
        Ok(model)
    }
}

impl KindModel {
    fn check(&self) -> Result<(), &'static str> {
        let is_fraction = |value: &f64| (0.0..=1.0).contains(value);
        if !self.foreign.hogs.iter().chain([&self.foreign.per_thread]).all(is_fraction) {
            return Err("the CPU time of others has to be a fraction");
        }
        let sticks: Vec<&Sticks> = match &self.behaviour {
            Behaviour::Barrier(barrier) if barrier.mean_seconds > 0.0 => {
                vec![&barrier.computing, &barrier.waiting]
            }
            Behaviour::Barrier(_) => return Err("the mean time that ranks compute has to be positive"),
            Behaviour::Phases(phases) => {
                phases.check()?;
                phases.phases.iter().flat_map(|phase| [&phase.first, &phase.others]).collect()
            }
        };
        let is_valid = |quantiles: &Quantiles| {
            quantiles.0.len() == N_QUANTILES && quantiles.0.iter().all(|value| (0.0..=1.0).contains(value))
        };
        if sticks.iter().flat_map(|sticks| &sticks.0).all(is_valid) {
            Ok(())
        } else {
            Err("a distribution has to have 33 quantiles between zero and one")
        }
    }
}

impl Phases {
    fn check(&self) -> Result<(), &'static str> {
        let n_phases = self.phases.len();
        let is_distribution = |row: &Vec<f64>| {
            row.len() == n_phases
                && row.iter().all(|p| *p >= 0.0)
                && (row.iter().sum::<f64>() - 1.0).abs() < 1e-6
        };
        if n_phases == 0
            || self.transitions.len() != n_phases
            || !self.transitions.iter().all(is_distribution)
        {
            return Err("each row of the transitions has to be a distribution over the phases");
        }
        let is_length = |seconds: &f64| *seconds >= 1.0 && seconds.is_finite();
        let are_lengths = |lengths: &Vec<f64>| !lengths.is_empty() && lengths.iter().all(is_length);
        let n_durations = self.durations.len();
        if n_durations != 0 && (n_durations != n_phases || !self.durations.iter().all(are_lengths)) {
            return Err("each phase has to have durations of at least a second");
        }
        let is_correlation = |value: &f64| (-1.0..=1.0).contains(value);
        if !self.autocorrelation.iter().chain(&self.shared).all(is_correlation) {
            return Err("memory and shared have to be between -1 and 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sticks_and_rates_convert_into_each_other(other in 0f32..1.0, iowait in 0f32..1.0, system in 0f32..1.0) {
            let rates = rates_of([other, iowait, system]);
            prop_assert!((rates.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            prop_assert!(rates.iter().all(|rate| *rate >= 0.0));
            let again = rates_of(sticks_of(rates));
            prop_assert!(rates.iter().zip(again).all(|(one, other)| (one - other).abs() < 1e-4));
        }
    }

    #[test]
    fn quantiles_are_interpolated() {
        let quantiles = Quantiles((0..N_QUANTILES).map(|at| at as f32 / (N_QUANTILES - 1) as f32).collect());
        assert_eq!(quantiles.at(-9.0), 0.0);
        assert!((quantiles.at(0.0) - 0.5).abs() < 1e-6 && quantiles.at(9.0) > 0.999);
        assert!(quantiles.at(0.1) > quantiles.at(0.05));
    }

    #[test]
    fn an_invalid_model_is_rejected() {
        let valid: serde_json::Value = serde_json::from_str(include_str!("recorded.json")).unwrap();
        assert!(Model::from_json(&valid.to_string()).is_ok());
        let rejected = |pointer: &str, value: serde_json::Value| {
            let mut model = valid.clone();
            *model.pointer_mut(pointer).unwrap() = value;
            Model::from_json(&model.to_string()).unwrap_err().to_string()
        };
        assert!(rejected("/version", 3.into()).contains("version 3"));
        let np = "/kinds/np/behaviour/phases";
        assert!(rejected(&format!("{np}/memory/0"), 7.into()).contains("between -1 and 1"));
        assert!(rejected(&format!("{np}/transitions/0/0"), 7.into()).contains("has to be a distribution"));
        let quantile = format!("{np}/phases/0/first/0/0");
        assert_eq!(
            rejected(&quantile, 7.into()),
            "np: a distribution has to have 33 quantiles between zero and one"
        );
    }
}
