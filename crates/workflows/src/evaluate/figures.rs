//! What verdicts are worth.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::classify::{Model, Step};
use crate::dataset::NORMAL;

/// One run that was judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    pub run: String,
    pub label: String,
    pub truth: usize,
    pub verdict: usize,
}

/// The figures of one model under one protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub model: Model,
    pub protocol: &'static str,
    pub accuracy: f64,
    pub macro_f1: f64,
    pub macro_precision: f64,
    pub macro_recall: f64,
    /// Healthy or not: the mean of how many are found of either.
    pub binary_balanced_accuracy: f64,
    /// A row a true class, a column a verdict.
    pub confusion: Vec<Vec<usize>>,
    pub classes: Vec<String>,
    /// Of everything: learning and judging.
    pub seconds: f64,
    pub seed: u64,
    pub n_runs: usize,
    pub n_folds: usize,
    /// What saying the commonest class of the training runs would reach.
    pub commonest_accuracy: f64,
    /// How many are found of each strength of trouble.
    pub recall_by_label: BTreeMap<String, f64>,
    /// Accuracy when a quarter, a half, three quarters of a run are over.
    pub while_running: BTreeMap<&'static str, f64>,
    /// Runs of a split that are filed under another label; they are left out.
    pub conflicting: Vec<String>,
    /// How the last fold was learnt, for what is learnt step by step.
    pub curve: Vec<Step>,
    /// What was chosen inside the training batches, fold by fold.
    pub chosen: Vec<String>,
    #[serde(skip)]
    pub judged: Vec<Judged>,
}

impl Figures {
    pub fn new(model: Model, protocol: &'static str, classes: Vec<String>, judged: Vec<Judged>) -> Self {
        let n_classes = classes.len();
        let mut confusion = vec![vec![0usize; n_classes]; n_classes];
        judged.iter().for_each(|one| confusion[one.truth][one.verdict] += 1);
        let share = |part: usize, whole: usize| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
        let (mut precision, mut recall, mut f1) = (0.0, 0.0, 0.0);
        let present: Vec<usize> =
            (0..n_classes).filter(|class| confusion[*class].iter().sum::<usize>() > 0).collect();
        for class in &present {
            let hits = confusion[*class][*class];
            let said: usize = confusion.iter().map(|row| row[*class]).sum();
            let (p, r) = (share(hits, said), share(hits, confusion[*class].iter().sum()));
            precision += p;
            recall += r;
            f1 += if hits > 0 { 2.0 * p * r / (p + r) } else { 0.0 };
        }
        let n_present = present.len().max(1) as f64;
        let healthy = classes.iter().position(|class| class == NORMAL);
        let rate = |is_healthy: bool| {
            let of = judged.iter().filter(|one| (Some(one.truth) == healthy) == is_healthy);
            let right = of.clone().filter(|one| (Some(one.verdict) == healthy) == is_healthy).count();
            share(right, of.count())
        };
        let mut by_label: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for one in &judged {
            let (right, all) = by_label.entry(one.label.clone()).or_default();
            *right += usize::from(one.truth == one.verdict);
            *all += 1;
        }
        let n_right = judged.iter().filter(|one| one.truth == one.verdict).count();
        Self {
            model,
            protocol,
            accuracy: share(n_right, judged.len()),
            macro_f1: f1 / n_present,
            macro_precision: precision / n_present,
            macro_recall: recall / n_present,
            binary_balanced_accuracy: (rate(true) + rate(false)) / 2.0,
            confusion,
            classes,
            seconds: 0.0,
            seed: 0,
            n_runs: judged.len(),
            n_folds: 1,
            commonest_accuracy: 0.0,
            recall_by_label: by_label
                .into_iter()
                .map(|(label, (right, all))| (label, share(right, all)))
                .collect(),
            while_running: BTreeMap::new(),
            conflicting: Vec::new(),
            curve: Vec::new(),
            chosen: Vec::new(),
            judged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_definitions() {
        let judged = |truth: usize, verdict: usize| Judged {
            run: String::new(),
            label: format!("c_{truth}"),
            truth,
            verdict,
        };
        let all = vec![judged(0, 0), judged(0, 1), judged(1, 1), judged(1, 1), judged(2, 2), judged(2, 0)];
        let classes = vec![NORMAL.to_owned(), "cpu".into(), "hdd".into()];
        let figures = Figures::new(Model::Trees, "random", classes, all);
        assert_eq!(figures.confusion, [[1, 1, 0], [0, 2, 0], [1, 0, 1]]);
        assert!((figures.accuracy - 4.0 / 6.0).abs() < 1e-12);
        assert!((figures.macro_precision - (0.5 + 2.0 / 3.0 + 1.0) / 3.0).abs() < 1e-12);
        assert!((figures.macro_recall - (0.5 + 1.0 + 0.5) / 3.0).abs() < 1e-12);
        assert!((figures.macro_f1 - (0.5 + 0.8 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
        // One of two healthy runs is said to be healthy, three of four others are said not to be.
        assert!((figures.binary_balanced_accuracy - (0.5 + 0.75) / 2.0).abs() < 1e-12);
        assert_eq!(figures.recall_by_label["c_1"], 1.0);
    }
}
