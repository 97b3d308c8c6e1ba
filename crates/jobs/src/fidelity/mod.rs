//! How faithful a synthetic trace is to the real one: columns, pairs of columns, the sequence of jobs, a classifier that
//! tries to distinguish them, copies, and the outcome of scheduling policies. Two halves of the real trace are compared
//! in the same way, as the best that can be expected.

mod classifier;
pub mod columns;
mod copies;
pub mod curves;
mod load;
pub(crate) mod near;
pub mod report;
mod sequence;

use std::num::NonZeroU64;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use workload::{Stop, Stopped};

pub use self::classifier::ClassifierFidelity;
use self::columns::{ColumnFidelity, PairFidelity, columns, pairs};
pub use self::copies::Copies;
pub use self::load::{LoadFidelity, OfferedLoad};
pub use self::sequence::{Autocorrelation, Figure, SequenceFidelity};
use crate::error::{MismatchError, Result, TraceError};
use crate::features::{FeatureKind, FeatureTable};
use crate::replay::{Outcome, POLICIES, ReplayTrace, UTILISATION, replay};

const MIN_JOBS: usize = 40;
/// Policies whose slowdowns on the real trace differ by less than this factor may rank in any order.
const TIE_FACTOR: f64 = 1.1;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CompareConfig {
    /// The size of the machine that both traces are replayed on; by default sized for the real trace.
    pub n_nodes: Option<NonZeroU64>,
    /// Random seed of the halves and of the classifier.
    pub seed: u64,
}

/// How similar two traces are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Similarity {
    pub columns: Vec<ColumnFidelity>,
    /// Mean score of columns; 1 is perfect.
    pub column_score: f64,
    /// Mean score of pairs of columns; 1 is perfect.
    pub pair_score: f64,
    pub pairs: Vec<PairFidelity>,
    pub sequence: SequenceFidelity,
    pub classifier: ClassifierFidelity,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyOutcome {
    pub policy: &'static str,
    pub real: Outcome,
    pub synthetic: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchedulingFidelity {
    pub n_nodes: u64,
    pub offered_load: OfferedLoad,
    pub policies: Vec<PolicyOutcome>,
    /// Whether policies that clearly differ in bounded slowdown on the real trace rank the same on the synthetic one.
    pub has_same_ranking: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fidelity {
    pub n_real: usize,
    pub n_synthetic: usize,
    #[serde(flatten)]
    pub similarity: Similarity,
    pub copies: Copies,
    /// None if the traces have no run times.
    pub scheduling: Option<SchedulingFidelity>,
    /// One random half of the real trace compared with the other.
    pub random_halves: Similarity,
    /// The first half of the real trace compared with the second.
    pub time_halves: Similarity,
}

/// Compares a synthetic trace with the real one.
pub fn compare(
    real: &FeatureTable,
    synthetic: &FeatureTable,
    config: CompareConfig,
    stop: &Stop,
) -> Result<Fidelity> {
    for jobs in [real, synthetic] {
        if jobs.n_jobs() < MIN_JOBS {
            let (found, required) = (jobs.n_jobs(), MIN_JOBS);
            return Err(TraceError::TooFewJobs { found, required, purpose: "a comparison" }.into());
        }
    }
    let Aligned { real, synthetic } = align(real, synthetic)?;
    let half = real.n_jobs() / 2;
    let (first, second) = (real.slice(0..half), real.slice(half..real.n_jobs()));
    let (one, other) = random_halves(&real, config.seed);
    Ok(Fidelity {
        n_real: real.n_jobs(),
        n_synthetic: synthetic.n_jobs(),
        similarity: similarity(&real, &synthetic, config.seed, stop)?,
        copies: Copies::of(&real, &synthetic, stop)?,
        scheduling: scheduling(&real, &synthetic, config.n_nodes, stop)?,
        random_halves: similarity(&one, &other, config.seed, stop)?,
        time_halves: similarity(&first, &second, config.seed, stop)?,
    })
}

fn similarity(real: &FeatureTable, synthetic: &FeatureTable, seed: u64, stop: &Stop) -> Result<Similarity> {
    stop.check()?;
    let (columns, pairs) = (columns(real, synthetic), pairs(real, synthetic, stop)?);
    let mean = |scores: Vec<f64>| if scores.is_empty() { 1.0 } else { learn::stats::mean(&scores) };
    Ok(Similarity {
        column_score: mean(columns.iter().map(|column| column.figures.score()).collect()),
        pair_score: mean(pairs.iter().map(|pair| pair.score).collect()),
        columns,
        pairs,
        sequence: SequenceFidelity::of(real, synthetic),
        classifier: ClassifierFidelity::of(real, synthetic, seed, stop)?,
    })
}

/// Two traces with the same features, in the same order, and the same codes of categories.
struct Aligned {
    real: FeatureTable,
    synthetic: FeatureTable,
}

fn align(real: &FeatureTable, synthetic: &FeatureTable) -> Result<Aligned> {
    let mut specs = real.specs().to_vec();
    let mut columns = Vec::new();
    for spec in &mut specs {
        let at = synthetic
            .specs()
            .iter()
            .position(|other| other.name == spec.name)
            .ok_or_else(|| MismatchError::MissingFeature { feature: spec.name.clone() })?;
        match (&mut spec.kind, &synthetic.specs()[at].kind) {
            (FeatureKind::Category { names }, FeatureKind::Category { names: of_synthetic }) => {
                let mut code = |name: &String| match names.iter().position(|known| known == name) {
                    Some(code) => code as f64,
                    None => {
                        names.push(name.clone());
                        names.len() as f64 - 1.0
                    }
                };
                let codes: Vec<f64> = of_synthetic.iter().map(&mut code).collect();
                columns.push(synthetic.column(at).iter().map(|value| codes[*value as usize]).collect());
            }
            (FeatureKind::Number { .. }, FeatureKind::Number { .. }) => {
                columns.push(synthetic.column(at).to_vec());
            }
            _ => return Err(MismatchError::Kind { column: spec.name.clone() }.into()),
        }
    }
    Ok(Aligned {
        real: FeatureTable::new(specs.clone(), real.columns().to_vec())?,
        synthetic: FeatureTable::new(specs, columns)?,
    })
}

/// Two random halves. Jobs keep their order and their intervals.
fn random_halves(jobs: &FeatureTable, seed: u64) -> (FeatureTable, FeatureTable) {
    let mut order: Vec<usize> = (0..jobs.n_jobs()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let (one, other) = order.split_at_mut(jobs.n_jobs() / 2);
    one.sort_unstable();
    other.sort_unstable();
    (jobs.select(one), jobs.select(other))
}

fn scheduling(
    real: &FeatureTable,
    synthetic: &FeatureTable,
    n_nodes: Option<NonZeroU64>,
    stop: &Stop,
) -> Result<Option<SchedulingFidelity>, Stopped> {
    let (Ok(real), Ok(synthetic)) = (ReplayTrace::from_features(real), ReplayTrace::from_features(synthetic))
    else {
        return Ok(None);
    };
    let n_nodes = n_nodes.unwrap_or_else(|| real.machine_size(UTILISATION));
    let mut policies = Vec::new();
    for policy in POLICIES {
        policies.push(PolicyOutcome {
            policy: policy.name(),
            real: replay(&real, n_nodes, policy, stop)?,
            synthetic: replay(&synthetic, n_nodes, policy, stop)?,
        });
    }
    let has_same_ranking = has_same_ranking(&policies);
    let offered_load = OfferedLoad::of(&real, &synthetic);
    Ok(Some(SchedulingFidelity { n_nodes: n_nodes.get(), offered_load, policies, has_same_ranking }))
}

fn has_same_ranking(policies: &[PolicyOutcome]) -> bool {
    policies.iter().all(|a| {
        let is_clearly_worse =
            |b: &&PolicyOutcome| b.real.mean_bounded_slowdown >= a.real.mean_bounded_slowdown * TIE_FACTOR;
        policies
            .iter()
            .filter(is_clearly_worse)
            .all(|b| a.synthetic.mean_bounded_slowdown <= b.synthetic.mean_bounded_slowdown)
    })
}

impl Fidelity {
    /// One line for the terminal.
    pub fn summary(&self) -> String {
        let Similarity { column_score, pair_score, classifier, .. } = &self.similarity;
        let windows =
            classifier.window_auc.map_or(String::new(), |auc| format!(", {auc:.2} on windows of 20 jobs"));
        let ranking = match &self.scheduling {
            Some(scheduling) if scheduling.has_same_ranking => "; policies rank as on the real trace",
            Some(_) => "; policies rank differently than on the real trace",
            None => "",
        };
        format!(
            "columns {column_score:.3}, pairs {pair_score:.3} (1 is perfect); a classifier distinguishes real from \
             synthetic with an AUC of {:.2} on single jobs{windows} (0.5 is perfect); near copies {:.1} %{ranking}",
            classifier.row_auc,
            self.copies.near_fraction * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::FeatureSpec;
    use crate::format::Format;
    use crate::schema::Role;

    fn outcome(slowdown: f64) -> Outcome {
        Outcome {
            mean_wait_seconds: 0.0,
            mean_bounded_slowdown: slowdown,
            utilisation: 0.5,
            makespan_seconds: 1.0,
        }
    }

    fn policies(slowdowns: [(f64, f64); 2]) -> Vec<PolicyOutcome> {
        let one = |(real, synthetic)| PolicyOutcome {
            policy: "fcfs",
            real: outcome(real),
            synthetic: outcome(synthetic),
        };
        slowdowns.map(one).to_vec()
    }

    #[test]
    fn only_clear_differences_between_policies_have_to_be_kept() {
        assert!(has_same_ranking(&policies([(10.0, 5.0), (20.0, 9.0)])));
        assert!(!has_same_ranking(&policies([(10.0, 9.0), (20.0, 5.0)])));
        assert!(has_same_ranking(&policies([(10.0, 9.0), (10.5, 5.0)])), "a tie may be broken either way");
    }

    fn table(users: &[&str], codes: Vec<f64>) -> FeatureTable {
        let number = FeatureKind::Number { format: Format::Plain { decimals: 0 } };
        let names = users.iter().map(ToString::to_string).collect();
        let specs = vec![
            FeatureSpec { name: "interval".into(), role: Some(Role::Interval), kind: number },
            FeatureSpec {
                name: "user".into(),
                role: Some(Role::User),
                kind: FeatureKind::Category { names },
            },
        ];
        FeatureTable::new(specs, vec![vec![1.0; codes.len()], codes]).unwrap()
    }

    #[test]
    fn categories_are_aligned_by_name() {
        let real = table(&["ann", "bob"], vec![0.0, 1.0, 0.0]);
        let synthetic = table(&["bob", "eve"], vec![0.0, 1.0, 1.0]);
        let aligned = align(&real, &synthetic).unwrap();
        assert_eq!(aligned.real.column(1), [0.0, 1.0, 0.0]);
        assert_eq!(aligned.synthetic.column(1), [1.0, 2.0, 2.0]);
    }

    #[test]
    fn too_few_jobs_and_other_features_are_rejected() {
        let few = table(&["ann"], vec![0.0; 10]);
        let error = compare(&few, &few, CompareConfig::default(), &Stop::default()).unwrap_err();
        assert_eq!(error.to_string(), "the trace has 10 jobs, and a comparison needs at least 40");
        let real = table(&["ann"], vec![0.0; 50]);
        let lacking = FeatureTable::new(real.specs()[..1].to_vec(), real.columns()[..1].to_vec()).unwrap();
        let error = compare(&real, &lacking, CompareConfig::default(), &Stop::default()).unwrap_err();
        assert_eq!(error.to_string(), "the synthetic trace has no feature user, which the real one has");
    }
}
