//! Ours: trouble makes things slower, never faster, whatever the week.
//!
//! There are two views. The first does not see the weeks: for every kind of task, how long it ran for the processor's time that
//! it took, and how long staging took for its bytes. For each trouble, boosted trees tell its runs from healthy ones, and may
//! only become surer of it where something is slower. They also learn from weaker trouble, made by going part of the way
//! from a healthy run to a troubled one, so that what lies between the strengths that were recorded is trouble too. Which
//! trouble it is, where several would slow the same tasks, randomised trees say that were only shown troubled runs.
//! The second remembers: extremely randomised trees on all that is known of the delays. It decides where a run is as near
//! to those that were learnt from as they are to each other; everything else is new, and the first decides.

mod memory;

use learn::Matrix;
use learn::artifact::Tensors;
use learn::boost::{BoostSettings, BoostedTrees};
use learn::extra_trees::{ExtraTrees, ExtraTreesSettings};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::workflow::WorkflowRun;

use self::memory::Memory;
use super::{Classifier, Evidence, Lesson, shares_of};
use crate::error::{Error, Result};
use crate::features::{Quantity, Statistic, View};

const WEEKLESS: [Quantity; 4] =
    [Quantity::Stretch, Quantity::StageInSlowness, Quantity::StageOutSlowness, Quantity::Length];
/// What can be chosen by measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlowdownSettings {
    pub n_trees: usize,
    pub depth: usize,
    /// Weaker runs that are made of each troubled one.
    pub n_weaker: usize,
    /// Memory decides for runs that are nearer to what it knows than the other share of what it knows is.
    pub novelty: f64,
}

impl Default for SlowdownSettings {
    fn default() -> Self {
        Self { n_trees: 60, depth: 3, n_weaker: 2, novelty: 0.7 }
    }
}

/// The chance that is left to a trouble that no tree names.
const LEAST_NAME: f64 = 0.02;
/// The least part of the way from a healthy run to a troubled one.
const LEAST_PART: f32 = 0.3;

pub struct Slowdown {
    settings: SlowdownSettings,
    view: View,
    /// For each class but the healthy one.
    by_trouble: Vec<BoostedTrees>,
    /// Which trouble it is, if it is one.
    names: ExtraTrees,
    memory: Memory,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    settings: SlowdownSettings,
    view: View,
    trees: Vec<String>,
    names: ExtraTrees,
    memory: memory::Kept,
}

impl Slowdown {
    pub fn fit(lesson: &Lesson<'_>, settings: SlowdownSettings, seed: u64) -> Result<Self> {
        let healthy: Vec<usize> = (0..lesson.runs.len()).filter(|at| lesson.classes[*at] == 0).collect();
        if healthy.is_empty() {
            return Err(Error::Ask("slowdown is told from healthy runs, and there are none: label some `normal`".into()));
        }
        let mut view = View::of(&lesson.runs, &WEEKLESS, &[Statistic::Median]);
        // The whole length says nothing that the parts do not, where the parts are known.
        let has_parts = |kind: &str| {
            view.features.iter().any(|feature| feature.kind == kind && feature.quantity == Quantity::Stretch)
        };
        let features = view.features.iter().filter(|feature| {
            feature.quantity != Quantity::Length || !has_parts(&feature.kind) || !is_compute(lesson, &feature.kind)
        });
        view = View { features: features.cloned().collect() };
        let rows = view.rows(&lesson.runs);
        let by_trouble = (1..lesson.n_classes)
            .into_par_iter()
            .map(|class| fit_trouble(lesson, &rows, &healthy, class, settings, seed))
            .collect::<Result<Vec<_>>>()?;
        let troubled: Vec<usize> = (0..lesson.runs.len()).filter(|at| lesson.classes[*at] > 0).collect();
        let weights = lesson.class_weights();
        let names = ExtraTrees::fit(
            &rows.select(&troubled),
            &troubled.iter().map(|at| lesson.classes[*at] - 1).collect::<Vec<_>>(),
            &troubled.iter().map(|at| weights[*at]).collect::<Vec<_>>(),
            lesson.n_classes - 1,
            ExtraTreesSettings { seed, ..ExtraTreesSettings::default() },
        );
        Ok(Self { settings, view, by_trouble, names, memory: Memory::fit(lesson, seed) })
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let kept: Kept = serde_json::from_value(settings.clone()).ok()?;
        let by_trouble = kept.trees.iter().map(|text| BoostedTrees::from_json(text).ok()).collect::<Option<_>>()?;
        let memory = Memory::restore(kept.memory, tensors)?;
        Some(Self { settings: kept.settings, view: kept.view, by_trouble, names: kept.names, memory })
    }
}

fn is_compute(lesson: &Lesson<'_>, kind: &str) -> bool {
    use workload::workflow::TaskRole;
    let mut attempts = lesson.runs.iter().flat_map(|run| &run.attempts);
    attempts.find(|attempt| attempt.kind == kind).is_some_and(|attempt| attempt.role == TaskRole::Compute)
}

/// Trees that tell one trouble from health.
fn fit_trouble(
    lesson: &Lesson<'_>,
    rows: &Matrix,
    healthy: &[usize],
    class: usize,
    settings: SlowdownSettings,
    seed: u64,
) -> Result<BoostedTrees> {
    let troubled: Vec<usize> = (0..lesson.runs.len()).filter(|at| lesson.classes[*at] == class).collect();
    let mut values: Vec<f32> = Vec::new();
    let (mut weights, mut is_troubled) = (Vec::new(), Vec::new());
    // Half of the weight is the healthy runs', half the troubled ones'; of theirs, half are the weaker ones'.
    let n_all = (healthy.len() + troubled.len()) as f64;
    let has_weaker = settings.n_weaker > 0;
    let share = n_all / 2.0 * if has_weaker { 0.5 } else { 1.0 };
    for (members, sum, is_such) in [(healthy, n_all / 2.0, false), (&troubled[..], share, true)] {
        let batches = lesson.batch_weights(members);
        for (member, weight) in members.iter().zip(batches) {
            values.extend_from_slice(rows.row(*member));
            weights.push(weight * sum);
            is_troubled.push(is_such);
        }
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (class as u64) << 20);
    let n_weaker = troubled.len() * settings.n_weaker;
    for _ in 0..n_weaker {
        let from = rows.row(healthy[rng.random_range(0..healthy.len())]);
        let to = rows.row(troubled[rng.random_range(0..troubled.len())]);
        let part: f32 = rng.random_range(LEAST_PART..1.0);
        values.extend(from.iter().zip(to).map(|(from, to)| from + part * (to - from)));
        weights.push(n_all / 4.0 / n_weaker as f64);
        is_troubled.push(true);
    }
    let boost = BoostSettings {
        n_trees: settings.n_trees,
        depth: settings.depth,
        least_leaf: 5.0,
        is_monotone: true,
        seed,
        ..BoostSettings::default()
    };
    let points = Matrix::new(values, rows.n_columns());
    Ok(BoostedTrees::fit_weighted(&points, &is_troubled, &weights, boost)?)
}

/// What both views make of a run.
pub struct Views {
    novelty: f64,
    weekless: Vec<f64>,
    remembered: Vec<f64>,
}

impl Views {
    /// The chances, if memory decides up to a novelty.
    pub fn chances(&self, most_novelty: f64) -> &[f64] {
        if self.novelty > most_novelty { &self.weekless } else { &self.remembered }
    }
}

impl Slowdown {
    pub fn views(&self, run: &WorkflowRun) -> Views {
        Views {
            novelty: self.memory.novelty(run),
            weekless: self.weekless_chances(run),
            remembered: self.memory.chances(run),
        }
    }

    fn weekless_chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let row = self.view.row(run);
        let names = self.names.chances(&row);
        let row = Matrix::new(row, self.view.features.len().max(1));
        let odds = self.by_trouble.iter().map(|trees| trees.scores(&row).first().copied().unwrap_or_default());
        let odds: Vec<f64> = odds.collect();
        let most = odds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let troubled = 1.0 / (1.0 + (-most).exp());
        let by_name: Vec<f64> = odds.iter().zip(names).map(|(odds, name)| odds + (name + LEAST_NAME).ln()).collect();
        let shares = shares_of(&by_name).into_iter().map(|share| share * troubled);
        [1.0 - troubled].into_iter().chain(shares).collect()
    }
}

impl Classifier for Slowdown {
    fn views(&self, run: &WorkflowRun) -> Option<Views> {
        Some(Self::views(self, run))
    }

    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        self.views(run).chances(self.settings.novelty).to_vec()
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        let row = self.view.row(run);
        let parts = match class.checked_sub(1) {
            Some(trouble) => self.by_trouble[trouble].contributions(&row),
            // What speaks for health is what speaks against every trouble.
            None => {
                let mut sum = vec![0.0; row.len() + 1];
                for trees in &self.by_trouble {
                    sum.iter_mut().zip(trees.contributions(&row)).for_each(|(sum, part)| *sum -= part);
                }
                sum
            }
        };
        Evidence::Features(self.view.features.iter().cloned().zip(parts).collect())
    }

    fn tensors(&self) -> Tensors {
        self.memory.tensors()
    }

    fn settings(&self) -> serde_json::Value {
        let trees = self.by_trouble.iter().filter_map(|trees| trees.to_json().ok()).collect();
        serde_json::json!(Kept {
            settings: self.settings,
            view: self.view.clone(),
            trees,
            names: self.names.clone(),
            memory: self.memory.kept(),
        })
    }
}
