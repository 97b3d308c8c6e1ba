//! Plans: the jobs that every campaign runs, and the set that each campaign belongs to.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Deserializer, de};
use workload::Set;
use workload::units::{parse_bytes, parse_duration};

use crate::kind::Kind;

/// A shorter job could end before it has been sampled twice.
const SHORTEST_JOB: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{file}: {}", without_newlines(.cause))]
    Syntax { file: String, cause: toml::de::Error },
    #[error("{file}: {problem}")]
    Invalid { file: String, problem: PlanProblem },
}

/// Why a plan that can be read cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanProblem {
    #[error("there is no [[campaign]]")]
    NoCampaign,
    #[error("there is no [[normal]] job")]
    NoNormalJob,
    #[error("{0:?} cannot name a campaign; use letters, digits, - _ .")]
    CampaignName(String),
    #[error("there are two campaigns named {0}")]
    DuplicateCampaign(String),
    #[error("campaign {name} cannot be in both {first} and {second}")]
    TwoSets { name: String, first: Set, second: Set },
    #[error(
        "{0} is anomalous: list it under [[anomalous]], which only campaigns of the test set run, or set anomalous = \
         false"
    )]
    AnomalousAmongNormal(Kind),
    #[error("{0} is normal: list it under [[normal]], which every campaign runs, or set anomalous = true")]
    NormalAmongAnomalous(Kind),
    #[error("there are [[anomalous]] jobs, but no campaign of the test set to run them")]
    NoTestCampaign,
    #[error("{kind} has {fixed} threads, not {given}")]
    Threads { kind: Kind, fixed: u16, given: u16 },
    #[error("{0} needs at least one thread, and a count of at least one")]
    NothingToRun(Kind),
    #[error("{kind} needs {wanted} threads, but this machine has {available}")]
    TooManyThreads { kind: Kind, wanted: u16, available: usize },
    #[error("{0}: the length has to be [shortest, longest], of at least {SHORTEST_JOB:?}")]
    Length(Kind),
}

fn without_newlines(error: &toml::de::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A plan as it is written, in TOML.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Random seed of the order of jobs, their lengths and their own random choices.
    #[serde(default)]
    pub seed: u64,
    /// The pause between jobs.
    #[serde(default = "default_pause", deserialize_with = "pause")]
    pub pause: Duration,
    /// Bytes that the files of one job may take.
    #[serde(default = "default_quota", deserialize_with = "bytes")]
    pub quota: u64,
    /// Jobs of every campaign. Each campaign has its own order and lengths.
    #[serde(default)]
    pub normal: Vec<JobTemplate>,
    /// Additional jobs of campaigns of the test set.
    #[serde(default)]
    pub anomalous: Vec<JobTemplate>,
    #[serde(default)]
    pub campaign: Vec<PlannedCampaign>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTemplate {
    pub kind: Kind,
    /// Whether its jobs are labelled as anomalous; by default, the kind decides.
    pub anomalous: Option<bool>,
    /// Threads it runs on; `mpi-N` has N.
    pub threads: Option<u16>,
    /// The shortest and the longest it may take.
    #[serde(deserialize_with = "lengths")]
    pub length: [Duration; 2],
    /// Jobs per campaign.
    #[serde(default = "one")]
    pub count: u16,
}

impl JobTemplate {
    pub fn n_threads(&self) -> u16 {
        self.kind.fixed_threads().or(self.threads).unwrap_or(1)
    }

    pub fn is_anomalous(&self) -> bool {
        self.anomalous.unwrap_or_else(|| self.kind.is_anomalous())
    }

    fn check(&self, n_available: usize) -> Result<(), PlanProblem> {
        let Self { kind, length: [shortest, longest], .. } = *self;
        if let (Some(fixed), Some(given)) = (kind.fixed_threads(), self.threads)
            && fixed != given
        {
            return Err(PlanProblem::Threads { kind, fixed, given });
        }
        let wanted = self.n_threads();
        if wanted == 0 || self.count == 0 {
            return Err(PlanProblem::NothingToRun(kind));
        }
        if usize::from(wanted) > n_available {
            return Err(PlanProblem::TooManyThreads { kind, wanted, available: n_available });
        }
        if shortest > longest || shortest < SHORTEST_JOB {
            return Err(PlanProblem::Length(kind));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCampaign {
    pub name: String,
    pub set: Set,
}

/// One job of one campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedJob {
    pub kind: Kind,
    pub is_anomalous: bool,
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
    /// Reads a plan and checks it for a machine with `n_threads`.
    pub fn from_toml(file: &str, text: &str, n_threads: usize) -> Result<Self, PlanError> {
        let plan: Self =
            toml::from_str(text).map_err(|cause| PlanError::Syntax { file: file.to_owned(), cause })?;
        plan.check(n_threads).map_err(|problem| PlanError::Invalid { file: file.to_owned(), problem })?;
        Ok(plan)
    }

    fn check(&self, n_threads: usize) -> Result<(), PlanProblem> {
        if self.campaign.is_empty() {
            return Err(PlanProblem::NoCampaign);
        }
        if self.normal.is_empty() {
            return Err(PlanProblem::NoNormalJob);
        }
        for (index, campaign) in self.campaign.iter().enumerate() {
            let name = campaign.name.clone();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                return Err(PlanProblem::CampaignName(name));
            }
            if let Some(other) = self.campaign[..index].iter().find(|other| other.name == name) {
                let (first, second) = (other.set, campaign.set);
                return Err(if first == second {
                    PlanProblem::DuplicateCampaign(name)
                } else {
                    PlanProblem::TwoSets { name, first, second }
                });
            }
        }
        if let Some(job) = self.normal.iter().find(|job| job.is_anomalous()) {
            return Err(PlanProblem::AnomalousAmongNormal(job.kind));
        }
        if let Some(job) = self.anomalous.iter().find(|job| !job.is_anomalous()) {
            return Err(PlanProblem::NormalAmongAnomalous(job.kind));
        }
        if !self.anomalous.is_empty() && self.campaign.iter().all(|campaign| campaign.set != Set::Test) {
            return Err(PlanProblem::NoTestCampaign);
        }
        self.templates().try_for_each(|job| job.check(n_threads))
    }

    pub fn templates(&self) -> impl Iterator<Item = &JobTemplate> {
        self.normal.iter().chain(&self.anomalous)
    }

    /// The largest number of writing jobs that can run at the same time on `n_threads`.
    pub fn n_writers(&self, n_threads: usize) -> usize {
        let writers = || self.templates().filter(|job| job.kind.writes());
        let count: usize = writers().map(|job| usize::from(job.count)).sum();
        let fewest = writers().map(JobTemplate::n_threads).min().unwrap_or(1);
        count.min(n_threads / usize::from(fewest.max(1)))
    }

    /// The jobs of one campaign, in its own order and with its own lengths.
    pub fn jobs(&self, campaign: usize) -> Vec<PlannedJob> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(campaign as u64));
        let is_test = self.campaign[campaign].set == Set::Test;
        let anomalous = self.anomalous.iter().filter(|_| is_test);
        let mut jobs: Vec<PlannedJob> = self
            .normal
            .iter()
            .chain(anomalous)
            .flat_map(|job| std::iter::repeat_n(job, usize::from(job.count)))
            .map(|job| PlannedJob {
                kind: job.kind,
                is_anomalous: job.is_anomalous(),
                n_threads: job.n_threads(),
                length: rng.random_range(job.length[0]..=job.length[1]),
                seed: rng.random(),
            })
            .collect();
        jobs.shuffle(&mut rng);
        jobs
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
            for job in plan.jobs(campaign) {
                *counts.entry(job.kind).or_insert(0) += 1;
            }
            counts
        };
        assert_eq!(counts(0), BTreeMap::from([(Kind::Np, 3), (Kind::Mpi(2), 1)]));
        assert_eq!(counts(1), BTreeMap::from([(Kind::Np, 3), (Kind::Mpi(2), 1), (Kind::BadIo, 1)]));
        assert_eq!(plan.jobs(0), plan.jobs(0));
        assert_ne!(plan.jobs(0)[0].seed, plan.jobs(1)[0].seed);
    }

    #[test]
    fn a_plan_can_override_whether_a_kind_is_anomalous() {
        let plan = PLAN.replace("kind = \"bad-io\"", "kind = \"idle\"\nanomalous = true");
        let plan = read(&plan.replace("kind = \"mpi-2\"", "kind = \"leak\"\nanomalous = false")).unwrap();
        let is_anomalous =
            |kind: Kind| plan.jobs(1).iter().find(|job| job.kind == kind).unwrap().is_anomalous;
        assert!(is_anomalous(Kind::Idle) && !is_anomalous(Kind::Leak) && !is_anomalous(Kind::Np));
        assert!(plan.jobs(0).iter().all(|job| !job.is_anomalous && job.kind != Kind::Idle));
    }

    #[test]
    fn an_invalid_plan_is_rejected_with_one_line() {
        let cases = [
            (PLAN.replace("\"np\"", "\"nb\""), "\"nb\" is not a kind of job"),
            (PLAN.replace("\"b\"", "\"a\""), "campaign a cannot be in both train and test"),
            (PLAN.replace("mpi-2", "mpi-3"), "needs 3 threads, but this machine has 2"),
            (PLAN.replace("mpi-2", "bad-io"), "bad-io is anomalous"),
            (PLAN.replace("bad-io", "idle"), "idle is normal"),
            (PLAN.replace("set = \"test\"", "set = \"train\""), "no campaign of the test set"),
            (PLAN.replace("set = \"test\"", "set = \"exam\""), "unknown variant `exam`"),
            (
                PLAN.replace("[\"10s\", \"20s\"]", "[\"20s\", \"10s\"]"),
                "the length has to be [shortest, longest]",
            ),
            (PLAN.replace("count", "cuont"), "unknown field `cuont`"),
            (String::new(), "there is no [[campaign]]"),
        ];
        for (text, expected) in cases {
            let said = read(&text).unwrap_err().to_string();
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
    }
}
