//! The view that does not see the weeks: how much slower tasks are than their own work explains, and trees that trouble can
//! only make surer.

use crate::workflow::{TaskRole, WorkflowRun};
use learn::Matrix;
use learn::artifact::{Tensors, part_of, within};
use learn::boost::{BoostSettings, BoostedTrees, restore_all, tensors_of};
use learn::extra_trees::{ExtraTrees, ExtraTreesSettings, LabelledPoints};
use learn::stats::softmax;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Stop;

use super::SlowdownSettings;
use crate::classify::Lesson;
use crate::error::Result;
use crate::features::{Feature, Quantity, Statistic, View};

/// The chance that is left to a trouble that no tree names.
const LEAST_NAME: f64 = 0.02;
/// The least part of the way from a healthy run to a troubled one.
const LEAST_PART: f32 = 0.3;

pub struct Weekless {
    view: View,
    /// For each class but the healthy one.
    by_trouble: Vec<BoostedTrees>,
    /// Which trouble it is, if it is one.
    names: ExtraTrees,
}

impl Weekless {
    pub fn fit(lesson: &Lesson<'_>, settings: SlowdownSettings, seed: u64) -> Result<Self> {
        let healthy: Vec<usize> = (0..lesson.runs.len()).filter(|at| lesson.classes[*at] == 0).collect();
        let view = view(lesson);
        let rows = view.rows(&lesson.runs);
        let by_trouble =
            (1..lesson.n_classes).map(|class| fit_trouble(lesson, &rows, &healthy, class, settings, seed));
        let by_trouble = by_trouble.collect::<Result<Vec<_>>>()?;
        let troubled: Vec<usize> = (0..lesson.runs.len()).filter(|at| lesson.classes[*at] > 0).collect();
        let weights = lesson.class_weights();
        let sample = LabelledPoints {
            points: &rows.select(&troubled),
            classes: &troubled.iter().map(|at| lesson.classes[*at] - 1).collect::<Vec<_>>(),
            weights: &troubled.iter().map(|at| weights[*at]).collect::<Vec<_>>(),
            n_classes: lesson.n_classes - 1,
        };
        let settings = ExtraTreesSettings { seed, ..ExtraTreesSettings::default() };
        let names = ExtraTrees::fit(sample, settings, &Stop::default())?;
        Ok(Self { view, by_trouble, names })
    }

    pub fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let row = self.view.row(run);
        let names = self.names.probabilities(&row);
        let odds: Vec<f64> = self.by_trouble.iter().map(|trees| trees.score(&row)).collect();
        let most = odds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let troubled = 1.0 / (1.0 + (-most).exp());
        let by_name: Vec<f64> =
            odds.iter().zip(names).map(|(odds, name)| odds + (name + LEAST_NAME).ln()).collect();
        let shares = softmax(&by_name).into_iter().map(|share| share * troubled);
        [1.0 - troubled].into_iter().chain(shares).collect()
    }

    /// How much each column speaks for a class.
    pub fn evidence(&self, run: &WorkflowRun, class: usize) -> Vec<(Feature, f64)> {
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
        self.view.features.iter().cloned().zip(parts).collect()
    }

    pub fn n_classes(&self) -> usize {
        self.by_trouble.len() + 1
    }

    pub fn settings(&self) -> serde_json::Value {
        serde_json::json!(self.view)
    }

    pub fn tensors(&self) -> Tensors {
        let mut tensors = tensors_of("trouble", &self.by_trouble);
        tensors.extend(within("names", self.names.tensors()));
        tensors
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let view: View = serde_json::from_value(settings.clone()).ok()?;
        let n_columns = view.features.len();
        let by_trouble = restore_all("trouble", tensors, n_columns).ok()?;
        let names = ExtraTrees::restore(&part_of(tensors, "names"), n_columns).ok()?;
        Some(Self { view, by_trouble, names })
    }
}

/// The middle of every quantity. The whole length of a computation says nothing that its parts do not; of anything else it is
/// all that is known.
fn view(lesson: &Lesson<'_>) -> View {
    let all = View::of(&lesson.runs, &Quantity::WEEKLESS, &[Statistic::Median]);
    let has_stretch = |kind: &str| {
        all.features.iter().any(|feature| feature.kind == kind && feature.quantity == Quantity::Stretch)
    };
    let is_needed = |feature: &&Feature| {
        feature.quantity != Quantity::Length
            || !has_stretch(&feature.kind)
            || !is_compute(lesson, &feature.kind)
    };
    View { features: all.features.iter().filter(is_needed).cloned().collect() }
}

fn is_compute(lesson: &Lesson<'_>, kind: &str) -> bool {
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
        // A hundredth of all points, as uncertain as points can be; of many, twenty are enough.
        least_leaf: (n_all as f32 / 100.0).clamp(0.25, 5.0),
        is_monotone: true,
        seed,
        ..BoostSettings::default()
    };
    let points = Matrix::new(values, rows.n_columns());
    Ok(BoostedTrees::fit_weighted(&points, &is_troubled, &weights, boost)?)
}
