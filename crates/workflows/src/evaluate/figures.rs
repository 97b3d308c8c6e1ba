//! What verdicts are worth.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::classify::slowdown::SlowdownSettings;
use crate::classify::{Model, Step};
use crate::dataset::NORMAL;

/// One run that was judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub label: String,
    pub batch: Option<String>,
    pub truth: usize,
    pub verdict: usize,
}

/// What was said of the runs of a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchFigures {
    pub batch: String,
    pub label: String,
    pub n_runs: usize,
    /// The share of which the right class was said.
    pub recall: f64,
    /// How many were said to be of each class.
    pub said: BTreeMap<String, usize>,
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
    /// The worst first; none where runs say nothing of batches.
    pub batches: Vec<BatchFigures>,
    /// Accuracy when a quarter, a half, three quarters of a run are over.
    pub while_running: BTreeMap<&'static str, f64>,
    /// Runs of a split that are filed under another label; they are left out.
    pub conflicting: Vec<String>,
    /// Runs of a split that are not in the data.
    pub missing: Vec<String>,
    /// Why folds are left out, one reason each: their runs are not judged.
    pub left_out: Vec<String>,
    /// How the last fold was learnt, for what is learnt step by step.
    pub curve: Vec<Step>,
    /// What was chosen inside the training batches, fold by fold.
    pub chosen: Vec<SlowdownSettings>,
}

/// What a confusion is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worth {
    pub accuracy: f64,
    pub macro_f1: f64,
    pub macro_precision: f64,
    pub macro_recall: f64,
    pub binary_balanced_accuracy: f64,
}

impl Worth {
    /// Of a row a true class, a column a verdict. Classes that no run is of do not count in means over classes.
    pub fn new(confusion: &[Vec<usize>], classes: &[String]) -> Self {
        let share = |part: usize, whole: usize| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
        let healthy = classes.iter().position(|class| class == NORMAL);
        let (mut precision, mut recall, mut f1) = (0.0, 0.0, 0.0);
        let (mut n_right, mut n_all) = (0, 0);
        // Healthy runs and others: how many there are, and of how many it was said.
        let (mut of_either, mut found_of_either) = ([0; 2], [0; 2]);
        let mut n_present = 0.0f64;
        for (class, row) in confusion.iter().enumerate().filter(|(_, row)| row.iter().any(|count| *count > 0))
        {
            let (hits, of_class) = (row[class], row.iter().sum());
            let said: usize = confusion.iter().map(|row| row[class]).sum();
            let (p, r) = (share(hits, said), share(hits, of_class));
            precision += p;
            recall += r;
            f1 += if hits > 0 { 2.0 * p * r / (p + r) } else { 0.0 };
            n_right += hits;
            n_all += of_class;
            n_present += 1.0;
            let said_healthy = healthy.map_or(0, |healthy| row[healthy]);
            let is_healthy = Some(class) == healthy;
            of_either[usize::from(is_healthy)] += of_class;
            found_of_either[usize::from(is_healthy)] +=
                if is_healthy { said_healthy } else { of_class - said_healthy };
        }
        let n_present = n_present.max(1.0);
        let rate = |either: usize| share(found_of_either[either], of_either[either]);
        Self {
            accuracy: share(n_right, n_all),
            macro_f1: f1 / n_present,
            macro_precision: precision / n_present,
            macro_recall: recall / n_present,
            binary_balanced_accuracy: (rate(0) + rate(1)) / 2.0,
        }
    }
}

impl Figures {
    pub fn new(model: Model, protocol: &'static str, classes: Vec<String>, judged: Vec<Judged>) -> Self {
        let mut confusion = vec![vec![0usize; classes.len()]; classes.len()];
        judged.iter().for_each(|one| confusion[one.truth][one.verdict] += 1);
        let worth = Worth::new(&confusion, &classes);
        let mut by_label: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for one in &judged {
            let (right, all) = by_label.entry(one.label.clone()).or_default();
            *right += usize::from(one.truth == one.verdict);
            *all += 1;
        }
        Self {
            model,
            protocol,
            accuracy: worth.accuracy,
            macro_f1: worth.macro_f1,
            macro_precision: worth.macro_precision,
            macro_recall: worth.macro_recall,
            binary_balanced_accuracy: worth.binary_balanced_accuracy,
            confusion,
            batches: by_batch(&judged, &classes),
            classes,
            seconds: 0.0,
            seed: 0,
            n_runs: judged.len(),
            n_folds: 1,
            commonest_accuracy: 0.0,
            recall_by_label: by_label
                .into_iter()
                .map(|(label, (right, all))| (label, right as f64 / all as f64))
                .collect(),
            while_running: BTreeMap::new(),
            conflicting: Vec::new(),
            missing: Vec::new(),
            left_out: Vec::new(),
            curve: Vec::new(),
            chosen: Vec::new(),
        }
    }
}

fn by_batch(judged: &[Judged], classes: &[String]) -> Vec<BatchFigures> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Judged>> = BTreeMap::new();
    for one in judged {
        if let Some(batch) = &one.batch {
            groups.entry((batch, &one.label)).or_default().push(one);
        }
    }
    let figures = |((batch, label), members): ((&str, &str), Vec<&Judged>)| {
        let mut said: BTreeMap<String, usize> = BTreeMap::new();
        members.iter().for_each(|one| *said.entry(classes[one.verdict].clone()).or_default() += 1);
        let n_right = members.iter().filter(|one| one.truth == one.verdict).count();
        BatchFigures {
            batch: batch.to_owned(),
            label: label.to_owned(),
            n_runs: members.len(),
            recall: n_right as f64 / members.len() as f64,
            said,
        }
    };
    let mut all: Vec<BatchFigures> = groups.into_iter().map(figures).collect();
    all.sort_by(|a, b| a.recall.total_cmp(&b.recall));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_definitions() {
        let judged = |truth: usize, verdict: usize| Judged {
            label: format!("c_{truth}"),
            batch: Some(format!("week-{}", truth / 2)),
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
        let worst = &figures.batches[0];
        assert_eq!((&*worst.batch, &*worst.label, worst.n_runs, worst.recall), ("week-0", "c_0", 2, 0.5));
        assert_eq!(worst.said, BTreeMap::from([(NORMAL.into(), 1), ("cpu".into(), 1)]));
        assert_eq!(figures.batches.last().map(|best| &*best.label), Some("c_1"));
    }
}
