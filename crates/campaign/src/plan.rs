//! What is to be run: the jobs that every campaign has, and which campaign is for what.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Deserializer, de};
use workload::Set;
use workload::units::{parse_bytes, parse_duration};

use crate::kind::Kind;

/// Shorter jobs could end before they have been read twice.
const SHORTEST_JOB: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{file}: {}", without_newlines(.cause))]
    Syntax { file: String, cause: toml::de::Error },
    #[error("{file}: {reason}")]
    Senseless { file: String, reason: String },
}

fn without_newlines(error: &toml::de::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A plan as it is written, in TOML.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Orders, lengths and the jobs' own choices follow from it.
    #[serde(default)]
    pub seed: u64,
    /// How long the machine rests between jobs.
    #[serde(default = "default_pause", deserialize_with = "pause")]
    pub pause: Duration,
    /// What the files of one job may take.
    #[serde(default = "default_quota", deserialize_with = "bytes")]
    pub quota: u64,
    /// Every campaign runs these, each in an order and with lengths of its own.
    #[serde(default)]
    pub normal: Vec<PlannedJob>,
    /// Campaigns of the test set run these too.
    #[serde(default)]
    pub anomalous: Vec<PlannedJob>,
    #[serde(default)]
    pub campaign: Vec<PlannedCampaign>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedJob {
    pub kind: Kind,
    /// Threads it runs on; of `mpi-N` it is N.
    pub threads: Option<u16>,
    /// The shortest and the longest it may take.
    #[serde(deserialize_with = "lengths")]
    pub length: [Duration; 2],
    /// How many of them.
    #[serde(default = "one")]
    pub count: u16,
}

impl PlannedJob {
    pub fn n_threads(&self) -> u16 {
        self.kind.fixed_threads().or(self.threads).unwrap_or(1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCampaign {
    pub name: String,
    pub set: Set,
}

/// A job of one campaign, in its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub kind: Kind,
    pub n_threads: u16,
    pub length: Duration,
    pub seed: u64,
}

fn default_pause() -> Duration {
    Duration::from_secs(5)
}

fn default_quota() -> u64 {
    1_000_000_000
}

fn one() -> u16 {
    1
}

fn pause<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "0s" => Ok(Duration::ZERO),
        text => parse_duration(text).map_err(de::Error::custom),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_bytes(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn lengths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[Duration; 2], D::Error> {
    let written = <[String; 2]>::deserialize(deserializer)?;
    let [shortest, longest] = written.map(|text| parse_duration(&text).map_err(de::Error::custom));
    Ok([shortest?, longest?])
}

impl Plan {
    /// Reads a plan and checks it for a machine of `n_threads`.
    pub fn from_toml(file: &str, text: &str, n_threads: usize) -> Result<Self, PlanError> {
        let plan: Self =
            toml::from_str(text).map_err(|cause| PlanError::Syntax { file: file.to_owned(), cause })?;
        plan.check(n_threads).map_err(|reason| PlanError::Senseless { file: file.to_owned(), reason })?;
        Ok(plan)
    }

    fn check(&self, n_threads: usize) -> Result<(), String> {
        if self.campaign.is_empty() {
            return Err("there is no [[campaign]]".into());
        }
        if self.normal.is_empty() {
            return Err("there is no [[normal]] job".into());
        }
        for (index, campaign) in self.campaign.iter().enumerate() {
            let name = &campaign.name;
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                return Err(format!("{name:?} cannot name a campaign; use letters, digits, - _ ."));
            }
            if let Some(other) = self.campaign[..index].iter().find(|other| other.name == *name) {
                return Err(match other.set == campaign.set {
                    true => format!("there are two campaigns {name}"),
                    false => format!("campaign {name} cannot be both {} and {}", other.set, campaign.set),
                });
            }
        }
        if let Some(job) = self.normal.iter().find(|job| job.kind.is_anomalous()) {
            return Err(format!("{} is an anomaly: list it under [[anomalous]], for the test set", job.kind));
        }
        if let Some(job) = self.anomalous.iter().find(|job| !job.kind.is_anomalous()) {
            return Err(format!("{} is normal: list it under [[normal]], for every campaign", job.kind));
        }
        if !self.anomalous.is_empty() && self.campaign.iter().all(|campaign| campaign.set != Set::Test) {
            return Err("there are [[anomalous]] jobs, and no campaign of the set test to run them".into());
        }
        for job in self.normal.iter().chain(&self.anomalous) {
            let PlannedJob { kind, length: [shortest, longest], .. } = job;
            match (job.kind.fixed_threads(), job.threads) {
                (Some(fixed), Some(threads)) if fixed != threads => {
                    return Err(format!("{kind} has {fixed} threads, not {threads}"));
                }
                _ => {}
            }
            if job.n_threads() == 0 || job.count == 0 {
                return Err(format!("{kind} needs at least one thread, and a count of at least one"));
            }
            if usize::from(job.n_threads()) > n_threads {
                let wanted = job.n_threads();
                return Err(format!("{kind} asks for {wanted} threads, and this machine has {n_threads}"));
            }
            if shortest > longest || *shortest < SHORTEST_JOB {
                return Err(format!(
                    "{kind}: a length is [shortest, longest], and at least {SHORTEST_JOB:?}"
                ));
            }
        }
        Ok(())
    }

    /// Jobs that may write at the same time on so many threads.
    pub fn n_writers(&self, n_threads: usize) -> usize {
        let writers = || self.normal.iter().chain(&self.anomalous).filter(|job| job.kind.writes());
        let count: usize = writers().map(|job| usize::from(job.count)).sum();
        let fewest = writers().map(PlannedJob::n_threads).min().unwrap_or(1);
        count.min(n_threads / usize::from(fewest.max(1)))
    }

    /// The jobs of one campaign: the same for all of its set, in its own order with its own lengths.
    pub fn turns(&self, campaign: usize) -> Vec<Turn> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(campaign as u64));
        let is_test = self.campaign[campaign].set == Set::Test;
        let anomalous = self.anomalous.iter().filter(|_| is_test);
        let mut turns: Vec<Turn> = self
            .normal
            .iter()
            .chain(anomalous)
            .flat_map(|job| std::iter::repeat_n(job, usize::from(job.count)))
            .map(|job| Turn {
                kind: job.kind,
                n_threads: job.n_threads(),
                length: rng.random_range(job.length[0]..=job.length[1]),
                seed: rng.random(),
            })
            .collect();
        turns.shuffle(&mut rng);
        turns
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PLAN: &str = r#"
        [[normal]]
        kind = "np"
        threads = 2
        count = 3
        length = ["10s", "20s"]
        [[normal]]
        kind = "mpi-2"
        length = ["10s", "10s"]
        [[anomalous]]
        kind = "bad-io"
        length = ["10s", "20s"]
        [[campaign]]
        name = "a"
        set = "train"
        [[campaign]]
        name = "b"
        set = "test"
    "#;

    fn read(text: &str) -> Result<Plan, PlanError> {
        Plan::from_toml("plan.toml", text, 2)
    }

    #[test]
    fn every_campaign_has_the_same_normal_jobs_and_only_test_has_anomalies() {
        let plan = read(PLAN).unwrap();
        let counts = |campaign| {
            let mut counts = BTreeMap::new();
            plan.turns(campaign).iter().for_each(|turn| *counts.entry(turn.kind).or_insert(0) += 1);
            counts
        };
        assert_eq!(counts(0), BTreeMap::from([(Kind::Np, 3), (Kind::Mpi(2), 1)]));
        assert_eq!(counts(1), BTreeMap::from([(Kind::Np, 3), (Kind::Mpi(2), 1), (Kind::BadIo, 1)]));
        assert_eq!(plan.turns(0), plan.turns(0));
        assert_ne!(plan.turns(0)[0].seed, plan.turns(1)[0].seed);
    }

    #[test]
    fn what_cannot_be_run_is_refused_in_one_line() {
        let cases = [
            (PLAN.replace("\"np\"", "\"nb\""), "\"nb\" is no kind of job"),
            (PLAN.replace("\"b\"", "\"a\""), "campaign a cannot be both train and test"),
            (PLAN.replace("mpi-2", "mpi-3"), "asks for 3 threads, and this machine has 2"),
            (PLAN.replace("mpi-2", "bad-io"), "bad-io is an anomaly"),
            (PLAN.replace("bad-io", "idle"), "idle is normal"),
            (PLAN.replace("set = \"test\"", "set = \"train\""), "no campaign of the set test"),
            (PLAN.replace("set = \"test\"", "set = \"exam\""), "unknown variant `exam`"),
            (PLAN.replace("[\"10s\", \"20s\"]", "[\"20s\", \"10s\"]"), "a length is [shortest, longest]"),
            (PLAN.replace("count", "cuont"), "unknown field `cuont`"),
            (String::new(), "there is no [[campaign]]"),
        ];
        for (text, expected) in cases {
            let said = read(&text).unwrap_err().to_string();
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
    }
}
