//! Metrics of judged runs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::classify::slowdown::SlowdownSettings;
use crate::classify::{ClassifierKind, EpochProgress};
use crate::dataset::NORMAL;

/// One run that was judged.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedRun {
    pub label: String,
    pub batch: Option<String>,
    pub truth: usize,
    pub verdict: usize,
    pub confidence: f64,
    /// Whether the classifier could tell.
    pub is_certain: bool,
}

/// Verdicts with the highest confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Selected {
    /// Their fraction of all verdicts.
    pub coverage: f64,
    pub accuracy: f64,
    /// The fraction of healthy runs among them that were recognised; none if there are no healthy runs.
    pub healthy_recall: Option<f64>,
}

impl Selected {
    fn of(selected: &[&JudgedRun], n_all: usize, healthy: Option<usize>) -> Self {
        let accuracy = |runs: &[&&JudgedRun]| {
            let n_right = runs.iter().filter(|one| one.truth == one.verdict).count();
            (!runs.is_empty()).then(|| n_right as f64 / runs.len() as f64)
        };
        let is_healthy = |one: &&&JudgedRun| Some(one.truth) == healthy;
        Self {
            coverage: selected.len() as f64 / n_all.max(1) as f64,
            accuracy: accuracy(&selected.iter().collect::<Vec<_>>()).unwrap_or_default(),
            healthy_recall: accuracy(&selected.iter().filter(is_healthy).collect::<Vec<_>>()),
        }
    }
}

/// The coverages at which accuracy is reported.
const COVERAGES: [f64; 6] = [1.0, 0.95, 0.9, 0.8, 0.7, 0.5];

/// The verdicts on the runs of one batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchMetrics {
    pub batch: String,
    pub label: String,
    pub n_runs: usize,
    /// The fraction of runs that were judged correctly.
    pub recall: f64,
    /// The number of verdicts of each class.
    pub verdicts: BTreeMap<String, usize>,
}

/// The metrics of one classifier under one protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    pub classifier: ClassifierKind,
    pub protocol: &'static str,
    pub accuracy: f64,
    pub macro_f1: f64,
    pub macro_precision: f64,
    pub macro_recall: f64,
    /// Healthy or not: the mean of the recall of healthy runs and the recall of faulty runs.
    pub binary_balanced_accuracy: f64,
    /// One row per true class, one column per verdict.
    pub confusion: Vec<Vec<usize>>,
    pub classes: Vec<String>,
    /// Training and judging.
    pub seconds: f64,
    pub seed: u64,
    pub n_runs: usize,
    pub n_folds: usize,
    /// The accuracy of always predicting the most frequent class of the training runs.
    pub majority_class_accuracy: f64,
    /// The verdicts that were certain by the threshold of each fold.
    pub certain: Selected,
    /// The most confident verdicts of all folds together.
    pub by_coverage: Vec<Selected>,
    /// Recall by label, that is by fault and strength.
    pub recall_by_label: BTreeMap<String, f64>,
    /// The batch with the lowest recall first; empty if batches are unknown.
    pub batches: Vec<BatchMetrics>,
    /// Accuracy after 25, 50 and 75 % of the duration of a run.
    pub while_running: BTreeMap<&'static str, f64>,
    /// Runs whose label in the split differs from the data; they are skipped.
    pub conflicting: Vec<String>,
    /// Runs of the split that are not in the data.
    pub missing: Vec<String>,
    /// Why folds were skipped, one entry per fold: their runs are not judged.
    pub skipped_folds: Vec<String>,
    /// The training curve of the last fold, for networks.
    pub curve: Vec<EpochProgress>,
    /// The hyper-parameters chosen within the training batches of each fold.
    pub chosen: Vec<SlowdownSettings>,
}

/// Scores of a confusion matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    pub accuracy: f64,
    pub macro_f1: f64,
    pub macro_precision: f64,
    pub macro_recall: f64,
    pub binary_balanced_accuracy: f64,
}

impl Scores {
    /// `confusion` has one row per true class and one column per verdict. Classes without runs do not count in means over
    /// classes.
    pub fn new(confusion: &[Vec<usize>], classes: &[String]) -> Self {
        let fraction = |part: usize, whole: usize| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
        let healthy = classes.iter().position(|class| class == NORMAL);
        let (mut precision, mut recall, mut f1) = (0.0, 0.0, 0.0);
        let (mut n_right, mut n_all) = (0, 0);
        // Faulty runs, then healthy runs: how many there are, and how many were recognised.
        let (mut n_of, mut n_recognised) = ([0; 2], [0; 2]);
        let mut n_present = 0.0f64;
        for (class, row) in confusion.iter().enumerate().filter(|(_, row)| row.iter().any(|count| *count > 0))
        {
            let (hits, of_class) = (row[class], row.iter().sum());
            let n_predicted: usize = confusion.iter().map(|row| row[class]).sum();
            let (p, r) = (fraction(hits, n_predicted), fraction(hits, of_class));
            precision += p;
            recall += r;
            f1 += if hits > 0 { 2.0 * p * r / (p + r) } else { 0.0 };
            n_right += hits;
            n_all += of_class;
            n_present += 1.0;
            let n_judged_healthy = healthy.map_or(0, |healthy| row[healthy]);
            let is_healthy = Some(class) == healthy;
            n_of[usize::from(is_healthy)] += of_class;
            n_recognised[usize::from(is_healthy)] +=
                if is_healthy { n_judged_healthy } else { of_class - n_judged_healthy };
        }
        let n_present = n_present.max(1.0);
        let rate = |either: usize| fraction(n_recognised[either], n_of[either]);
        Self {
            accuracy: fraction(n_right, n_all),
            macro_f1: f1 / n_present,
            macro_precision: precision / n_present,
            macro_recall: recall / n_present,
            binary_balanced_accuracy: (rate(0) + rate(1)) / 2.0,
        }
    }
}

impl Evaluation {
    pub fn new(
        classifier: ClassifierKind,
        protocol: &'static str,
        classes: Vec<String>,
        judged: Vec<JudgedRun>,
    ) -> Self {
        let mut confusion = vec![vec![0usize; classes.len()]; classes.len()];
        for one in &judged {
            confusion[one.truth][one.verdict] += 1;
        }
        let scores = Scores::new(&confusion, &classes);
        let healthy = classes.iter().position(|class| class == NORMAL);
        let certain: Vec<&JudgedRun> = judged.iter().filter(|one| one.is_certain).collect();
        let certain = Selected::of(&certain, judged.len(), healthy);
        let mut ordered: Vec<&JudgedRun> = judged.iter().collect();
        ordered.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        let most = |coverage: f64| (ordered.len() as f64 * coverage).round() as usize;
        let by_coverage = COVERAGES
            .into_iter()
            .map(|coverage| Selected::of(&ordered[..most(coverage)], judged.len(), healthy))
            .collect();
        let mut by_label: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for one in &judged {
            let (right, all) = by_label.entry(one.label.clone()).or_default();
            *right += usize::from(one.truth == one.verdict);
            *all += 1;
        }
        Self {
            classifier,
            protocol,
            accuracy: scores.accuracy,
            macro_f1: scores.macro_f1,
            macro_precision: scores.macro_precision,
            macro_recall: scores.macro_recall,
            binary_balanced_accuracy: scores.binary_balanced_accuracy,
            confusion,
            batches: by_batch(&judged, &classes),
            classes,
            seconds: 0.0,
            seed: 0,
            n_runs: judged.len(),
            n_folds: 1,
            majority_class_accuracy: 0.0,
            certain,
            by_coverage,
            recall_by_label: by_label
                .into_iter()
                .map(|(label, (right, all))| (label, right as f64 / all as f64))
                .collect(),
            while_running: BTreeMap::new(),
            conflicting: Vec::new(),
            missing: Vec::new(),
            skipped_folds: Vec::new(),
            curve: Vec::new(),
            chosen: Vec::new(),
        }
    }
}

fn by_batch(judged: &[JudgedRun], classes: &[String]) -> Vec<BatchMetrics> {
    let mut groups: BTreeMap<(&str, &str), Vec<&JudgedRun>> = BTreeMap::new();
    for one in judged {
        if let Some(batch) = &one.batch {
            groups.entry((batch, &one.label)).or_default().push(one);
        }
    }
    let metrics = |((batch, label), members): ((&str, &str), Vec<&JudgedRun>)| {
        let mut verdicts: BTreeMap<String, usize> = BTreeMap::new();
        for one in &members {
            *verdicts.entry(classes[one.verdict].clone()).or_default() += 1;
        }
        let n_right = members.iter().filter(|one| one.truth == one.verdict).count();
        BatchMetrics {
            batch: batch.to_owned(),
            label: label.to_owned(),
            n_runs: members.len(),
            recall: n_right as f64 / members.len() as f64,
            verdicts,
        }
    };
    let mut all: Vec<BatchMetrics> = groups.into_iter().map(metrics).collect();
    all.sort_by(|a, b| a.recall.total_cmp(&b.recall));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_follow_their_definitions() {
        let judged = |truth: usize, verdict: usize| JudgedRun {
            label: format!("c_{truth}"),
            batch: Some(format!("week-{}", truth / 2)),
            truth,
            verdict,
            confidence: if truth == verdict { 0.9 } else { 0.5 },
            is_certain: truth == 2 || truth == verdict,
        };
        let all = vec![judged(0, 0), judged(0, 1), judged(1, 1), judged(1, 1), judged(2, 2), judged(2, 0)];
        let classes = vec![NORMAL.to_owned(), "cpu".into(), "hdd".into()];
        let evaluation = Evaluation::new(ClassifierKind::Trees, "random", classes, all);
        assert_eq!(evaluation.confusion, [[1, 1, 0], [0, 2, 0], [1, 0, 1]]);
        assert!((evaluation.accuracy - 4.0 / 6.0).abs() < 1e-12);
        assert!((evaluation.macro_precision - (0.5 + 2.0 / 3.0 + 1.0) / 3.0).abs() < 1e-12);
        assert!((evaluation.macro_recall - (0.5 + 1.0 + 0.5) / 3.0).abs() < 1e-12);
        assert!((evaluation.macro_f1 - (0.5 + 0.8 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
        // One of two healthy runs and three of four faulty runs are recognised.
        assert!((evaluation.binary_balanced_accuracy - (0.5 + 0.75) / 2.0).abs() < 1e-12);
        let close = |found: Selected, coverage: f64, accuracy: f64, healthy: f64| {
            assert!((found.coverage - coverage).abs() < 1e-12, "{found:?}");
            assert!((found.accuracy - accuracy).abs() < 1e-12, "{found:?}");
            assert_eq!(found.healthy_recall, Some(healthy), "{found:?}");
        };
        // The wrong verdict on a healthy run was not certain, that on a faulty run was.
        close(evaluation.certain, 5.0 / 6.0, 4.0 / 5.0, 1.0);
        close(evaluation.by_coverage[0], 1.0, 4.0 / 6.0, 0.5);
        close(evaluation.by_coverage[4], 4.0 / 6.0, 1.0, 1.0);
        assert_eq!(evaluation.recall_by_label["c_1"], 1.0);
        let worst = &evaluation.batches[0];
        assert_eq!((&*worst.batch, &*worst.label, worst.n_runs, worst.recall), ("week-0", "c_0", 2, 0.5));
        assert_eq!(worst.verdicts, BTreeMap::from([(NORMAL.into(), 1), ("cpu".into(), 1)]));
        assert_eq!(evaluation.batches.last().map(|best| &*best.label), Some("c_1"));
    }
}
