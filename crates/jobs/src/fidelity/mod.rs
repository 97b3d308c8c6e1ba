//! How faithful a synthetic trace is: its columns, their pairs, its order, whether it can be told from the real one, whether
//! it copies, and what a scheduler makes of it; beside how alike two halves of the real trace are.

pub mod classifier;
pub mod columns;
pub mod order;
pub mod privacy;
pub mod report;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use self::classifier::{Classifier, classify};
use self::columns::{ColumnFidelity, PairFidelity, columns, pairs};
use self::order::{Order, order};
use self::privacy::{Privacy, privacy};
use crate::error::{Error, Result};
use crate::features::{FeatureKind, Jobs};
use crate::replay::{Outcome, POLICIES, UTILISATION, machine_for, replay};

/// Jobs of either trace that there have to be.
const LEAST_JOBS: usize = 40;
/// Policies whose slowdowns differ by less than this factor do equally well.
const TIE: f64 = 1.1;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreSettings {
    /// The size of the machine; found if not given.
    pub n_nodes: Option<u64>,
    pub seed: u64,
}

/// How alike two traces are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Likeness {
    pub columns: Vec<ColumnFidelity>,
    /// Means over all columns, and over all pairs; one is perfect.
    pub column_score: f64,
    pub pair_score: f64,
    pub pairs: Vec<PairFidelity>,
    pub order: Order,
    pub classifier: Classifier,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyOutcome {
    pub policy: &'static str,
    pub real: Outcome,
    pub synthetic: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Utility {
    pub n_nodes: u64,
    pub policies: Vec<PolicyOutcome>,
    /// Whether a policy that is clearly better by bounded slowdown on the real trace is so on the synthetic one.
    pub ranks_the_same: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fidelity {
    pub n_real: usize,
    pub n_synthetic: usize,
    #[serde(flatten)]
    pub likeness: Likeness,
    pub privacy: Privacy,
    /// Where jobs have a run time.
    pub utility: Option<Utility>,
    /// One random half of the real trace beside the other, and the first half in time beside the second.
    pub ceiling_random: Likeness,
    pub ceiling_by_time: Likeness,
}

pub fn score(real: &Jobs, made: &Jobs, settings: ScoreSettings) -> Result<Fidelity> {
    for jobs in [real, made] {
        if jobs.len() < LEAST_JOBS {
            return Err(Error::TooFew { found: jobs.len(), wanted: LEAST_JOBS, what: "compare" });
        }
    }
    let made = &aligned(real, made)?;
    let half = real.len() / 2;
    let (first, second) = (real.slice(0..half), real.slice(half..real.len()));
    let (one, other) = random_halves(real, settings.seed);
    Ok(Fidelity {
        n_real: real.len(),
        n_synthetic: made.len(),
        likeness: likeness(real, made, settings.seed)?,
        privacy: privacy(real, made),
        utility: utility(real, made, settings.n_nodes),
        ceiling_random: likeness(&one, &other, settings.seed)?,
        ceiling_by_time: likeness(&first, &second, settings.seed)?,
    })
}

pub fn likeness(real: &Jobs, made: &Jobs, seed: u64) -> Result<Likeness> {
    let (columns, pairs) = (columns(real, made), pairs(real, made));
    let mean = |scores: Vec<f64>| if scores.is_empty() { 1.0 } else { learn::stats::mean(&scores) };
    Ok(Likeness {
        column_score: mean(columns.iter().map(|column| column.figures.score()).collect()),
        pair_score: mean(pairs.iter().map(|pair| pair.score).collect()),
        columns,
        pairs,
        order: order(real, made),
        classifier: classify(real, made, seed)?,
    })
}

/// Jobs with the features of others, in their order, and numbers of the same names.
fn aligned(real: &Jobs, made: &Jobs) -> Result<Jobs> {
    let mut specs = real.specs.clone();
    let mut values = Vec::new();
    for spec in &mut specs {
        let Some(at) = made.specs.iter().position(|other| other.name == spec.name) else {
            return Err(Error::Schema(format!("the synthetic trace has no column {}", spec.name)));
        };
        match (&mut spec.kind, &made.specs[at].kind) {
            (FeatureKind::Category { names }, FeatureKind::Category { names: of_made }) => {
                let mut code = |name: &String| match names.iter().position(|known| known == name) {
                    Some(code) => code as f64,
                    None => {
                        names.push(name.clone());
                        names.len() as f64 - 1.0
                    }
                };
                let codes: Vec<f64> = of_made.iter().map(&mut code).collect();
                values.push(made.values[at].iter().map(|value| codes[*value as usize]).collect());
            }
            (FeatureKind::Number { .. }, FeatureKind::Number { .. }) => values.push(made.values[at].clone()),
            _ => {
                return Err(Error::Schema(format!(
                    "{} holds numbers in one trace and words in the other",
                    spec.name
                )));
            }
        }
    }
    Ok(Jobs { specs, values })
}

/// Every job in one of two parts, at random; both stay in order, with the intervals that jobs had.
fn random_halves(jobs: &Jobs, seed: u64) -> (Jobs, Jobs) {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let (one, other) = order.split_at_mut(jobs.len() / 2);
    one.sort_unstable();
    other.sort_unstable();
    let part = |rows: &[usize]| Jobs {
        specs: jobs.specs.clone(),
        values: jobs.values.iter().map(|values| rows.iter().map(|row| values[*row]).collect()).collect(),
    };
    (part(one), part(other))
}

fn utility(real: &Jobs, made: &Jobs, n_nodes: Option<u64>) -> Option<Utility> {
    let (real, made) = (real.records().ok()?, made.records().ok()?);
    let n_nodes = n_nodes.unwrap_or_else(|| machine_for(&real, UTILISATION));
    let policies: Vec<PolicyOutcome> = POLICIES
        .into_iter()
        .map(|policy| PolicyOutcome {
            policy: policy.name(),
            real: replay(&real, n_nodes, policy),
            synthetic: replay(&made, n_nodes, policy),
        })
        .collect();
    // Policies that do about as well on the real trace may come in any order.
    let ranks_the_same = policies.iter().all(|a| {
        let is_worse =
            |b: &&PolicyOutcome| b.real.mean_bounded_slowdown >= a.real.mean_bounded_slowdown * TIE;
        policies
            .iter()
            .filter(is_worse)
            .all(|b| a.synthetic.mean_bounded_slowdown <= b.synthetic.mean_bounded_slowdown)
    });
    Some(Utility { n_nodes, policies, ranks_the_same })
}

impl Fidelity {
    /// One line for the terminal.
    pub fn in_words(&self) -> String {
        let Likeness { column_score, pair_score, classifier, .. } = &self.likeness;
        let stretches = classifier.stretch_auc.map_or(String::new(), |auc| format!(", stretches {auc:.2}"));
        let ranks = self.utility.as_ref().map_or("", |utility| {
            if utility.ranks_the_same {
                "; policies rank as on the real trace"
            } else {
                "; policies rank differently"
            }
        });
        format!(
            "columns {column_score:.3}, pairs {pair_score:.3} (1 is perfect); told apart with AUC {:.2} by rows{stretches} \
             (0.5 is perfect); near copies {:.1} %{ranks}",
            classifier.row_auc,
            self.privacy.near_copies * 100.0
        )
    }
}
