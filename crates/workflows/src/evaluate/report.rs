//! Reports of evaluations: tables, charts and JSON.

use std::path::{Path, PathBuf};

use report::{Axis, Chart, Mark, Page, ReportFolder, Series};

use super::metrics::{BatchMetrics, Evaluation, Selected};
use crate::error::Result;

/// One row per classifier and protocol.
pub fn table(all: &[Evaluation]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "CLASSIFIER",
        "PROTOCOL",
        ">ACCURACY",
        ">MACRO F1",
        ">PRECISION",
        ">RECALL",
        ">HEALTHY OR NOT",
        ">MAJORITY",
        ">TIME",
    ];
    let row = |evaluation: &Evaluation| {
        let three = |value: f64| format!("{value:.3}");
        vec![
            evaluation.classifier.name().to_owned(),
            evaluation.protocol.to_owned(),
            three(evaluation.accuracy),
            three(evaluation.macro_f1),
            three(evaluation.macro_precision),
            three(evaluation.macro_recall),
            three(evaluation.binary_balanced_accuracy),
            three(evaluation.majority_class_accuracy),
            format!("{:.1} s", evaluation.seconds),
        ]
    };
    (header, all.iter().map(row).collect())
}

/// The confusion matrix of one evaluation.
pub fn confusion(evaluation: &Evaluation) -> (Vec<String>, Vec<Vec<String>>) {
    let header = ["TRUTH \\ VERDICT".to_owned()]
        .into_iter()
        .chain(evaluation.classes.iter().map(|class| format!(">{class}")));
    let rows = evaluation.classes.iter().zip(&evaluation.confusion).map(|(class, counts)| {
        [class.clone()].into_iter().chain(counts.iter().map(ToString::to_string)).collect()
    });
    (header.collect(), rows.collect())
}

/// The accuracy of the verdicts that are certain, and of the most confident verdicts.
pub fn coverage(evaluation: &Evaluation) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |name: &str, found: &Selected| {
        let healthy = found.healthy_recall.map_or_else(String::new, |recall| format!("{recall:.3}"));
        vec![name.to_owned(), format!("{:.3}", found.coverage), format!("{:.3}", found.accuracy), healthy]
    };
    let mut rows = vec![row("certain", &evaluation.certain)];
    rows.extend(evaluation.by_coverage.iter().map(|found| row("most confident", found)));
    (vec!["VERDICTS", ">COVERAGE", ">ACCURACY", ">HEALTHY RECALL"], rows)
}

/// The verdicts on each batch.
pub fn batches(evaluation: &Evaluation) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |one: &BatchMetrics| {
        let verdicts: Vec<String> =
            one.verdicts.iter().map(|(class, count)| format!("{count} {class}")).collect();
        vec![
            one.batch.clone(),
            one.label.clone(),
            one.n_runs.to_string(),
            format!("{:.2}", one.recall),
            verdicts.join(", "),
        ]
    };
    (vec!["BATCH", "LABEL", ">RUNS", ">RECALL", "VERDICTS"], evaluation.batches.iter().map(row).collect())
}

/// Writes `workflows.html`, `.json`, `.md` and the charts; returns the path of the page.
pub fn write(all: &[Evaluation], directory: &Path, origin: &str) -> Result<PathBuf> {
    let folder = ReportFolder::create(directory)?;
    let mut page = Page::new("Classifiers of workflow runs", origin);
    let (header, rows) = table(all);
    page.table(&header, rows);
    page.text(
        "Majority: the accuracy of always predicting the most frequent class of the training runs. Healthy or not: balanced \
         accuracy, the mean of the recall of healthy runs and the recall of faulty runs. Time: training and judging of all \
         folds.",
    );
    for evaluation in all {
        let name = format!("{}-{}", evaluation.classifier.name(), evaluation.protocol);
        page.heading(format!("{}, {}", evaluation.classifier.name(), evaluation.protocol));
        if !evaluation.conflicting.is_empty() {
            page.text(format!(
                "Skipped, because the split and the data have different labels: {}.",
                evaluation.conflicting.join(", ")
            ));
        }
        if !evaluation.missing.is_empty() {
            page.text(format!("In the split, but not in the data: {}.", evaluation.missing.join(", ")));
        }
        for reason in &evaluation.skipped_folds {
            page.text(format!("A fold was skipped: {reason}."));
        }
        let (header, rows) = confusion(evaluation);
        page.table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows);
        let (header, rows) = coverage(evaluation);
        page.table(&header, rows);
        let found = evaluation
            .recall_by_label
            .iter()
            .map(|(label, recall)| vec![label.clone(), format!("{recall:.2}")]);
        page.table(&["LABEL", ">RECALL"], found.collect());
        if !evaluation.batches.is_empty() {
            let (header, rows) = batches(evaluation);
            page.table(&header, rows);
        }
        if !evaluation.while_running.is_empty() {
            let early = evaluation
                .while_running
                .iter()
                .map(|(percent, accuracy)| vec![format!("{percent} %"), format!("{accuracy:.3}")]);
            page.table(&["OF THE RUN", ">ACCURACY"], early.collect());
        }
        if !evaluation.curve.is_empty() {
            let points = |of: &dyn Fn(&crate::classify::EpochProgress) -> f64| {
                evaluation.curve.iter().map(|step| (step.epoch as f64, of(step))).collect::<Vec<_>>()
            };
            let chart = Chart::new(&name, Axis::linear("epoch"), Axis::linear("loss, accuracy"))
                .with(Series::new("training loss", Mark::Line, points(&|step| step.loss)))
                .with(Series::new("validation loss", Mark::Line, points(&|step| step.validation_loss)))
                .with(Series::new(
                    "validation accuracy",
                    Mark::Line,
                    points(&|step| step.validation_accuracy),
                ));
            let svg = folder.chart(&format!("{name}-curve"), &chart)?;
            page.figure(svg, "Training curve of the last fold");
        }
    }
    Ok(folder.page("workflows", &page, &all)?)
}
