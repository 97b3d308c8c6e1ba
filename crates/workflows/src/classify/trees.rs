//! Gradient-boosted trees on the delay table: one set of trees a class, against all others.

use crate::workflow::WorkflowRun;
use learn::artifact::Tensors;
use learn::boost::{BoostSettings, BoostedTrees, restore_all, tensors_of};

use super::{Classifier, Evidence, Lesson};
use crate::error::Result;
use crate::features::{Quantity, Statistic, View};

const QUANTITIES: [Quantity; 7] = [
    Quantity::Run,
    Quantity::StageIn,
    Quantity::StageOut,
    Quantity::Cpu,
    Quantity::Queue,
    Quantity::Stretch,
    Quantity::StageInSlowness,
];
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::Median, Statistic::Deviation, Statistic::Least, Statistic::Most];

pub struct Trees {
    view: View,
    by_class: Vec<BoostedTrees>,
}

impl Trees {
    pub fn fit(lesson: &Lesson<'_>, seed: u64) -> Result<Self> {
        let view = View::of(&lesson.runs, &QUANTITIES, &STATISTICS);
        let rows = view.rows(&lesson.runs);
        let weights = vec![1.0; rows.n_rows()];
        let of_class = |class: usize| {
            let is_such: Vec<bool> = lesson.classes.iter().map(|of| *of == class).collect();
            let settings =
                BoostSettings { n_trees: 200, rate: 0.08, least_leaf: 0.5, seed, ..BoostSettings::default() };
            BoostedTrees::fit_weighted(&rows, &is_such, &weights, settings)
        };
        let by_class = (0..lesson.n_classes).map(of_class).collect::<std::result::Result<_, _>>()?;
        Ok(Self { view, by_class })
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let view: View = serde_json::from_value(settings.clone()).ok()?;
        let by_class = restore_all("class", tensors, view.features.len()).ok()?;
        Some(Self { view, by_class })
    }

    /// Columns that it looks at.
    pub fn view(&self) -> &View {
        &self.view
    }

    pub fn chances_of_row(&self, row: &[f32]) -> Vec<f64> {
        let chance = |trees: &BoostedTrees| 1.0 / (1.0 + (-trees.score(row)).exp());
        let chances: Vec<f64> = self.by_class.iter().map(chance).collect();
        let sum: f64 = chances.iter().sum();
        chances.into_iter().map(|chance| chance / sum.max(1e-12)).collect()
    }
}

impl Classifier for Trees {
    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        self.chances_of_row(&self.view.row(run))
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        let parts = self.by_class[class].contributions(&self.view.row(run));
        Evidence::Features(self.view.features.iter().cloned().zip(parts).collect())
    }

    fn n_classes(&self) -> usize {
        self.by_class.len()
    }

    fn tensors(&self) -> Tensors {
        tensors_of("class", &self.by_class)
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(self.view)
    }
}
