//! What evaluations say, for people and programs.

use std::path::{Path, PathBuf};

use report::{Axis, Chart, Mark, Page, ReportFolder, Series};

use super::figures::{BatchFigures, Figures};
use crate::error::Result;

/// A row for every model and protocol.
pub fn table(all: &[Figures]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "MODEL",
        "PROTOCOL",
        ">ACCURACY",
        ">MACRO F1",
        ">PRECISION",
        ">RECALL",
        ">HEALTHY OR NOT",
        ">COMMONEST",
        ">TIME",
    ];
    let row = |figures: &Figures| {
        let three = |value: f64| format!("{value:.3}");
        vec![
            figures.model.name().to_owned(),
            figures.protocol.to_owned(),
            three(figures.accuracy),
            three(figures.macro_f1),
            three(figures.macro_precision),
            three(figures.macro_recall),
            three(figures.binary_balanced_accuracy),
            three(figures.commonest_accuracy),
            format!("{:.1} s", figures.seconds),
        ]
    };
    (header, all.iter().map(row).collect())
}

/// The confusion of one evaluation, as rows.
pub fn confusion(figures: &Figures) -> (Vec<String>, Vec<Vec<String>>) {
    let header =
        ["IS \\ SAID".to_owned()].into_iter().chain(figures.classes.iter().map(|class| format!(">{class}")));
    let rows = figures.classes.iter().zip(&figures.confusion).map(|(class, counts)| {
        [class.clone()].into_iter().chain(counts.iter().map(ToString::to_string)).collect()
    });
    (header.collect(), rows.collect())
}

/// What was said of each batch, as rows.
pub fn batches(figures: &Figures) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |one: &BatchFigures| {
        let said: Vec<String> = one.said.iter().map(|(class, count)| format!("{count} {class}")).collect();
        vec![
            one.batch.clone(),
            one.label.clone(),
            one.n_runs.to_string(),
            format!("{:.2}", one.recall),
            said.join(", "),
        ]
    };
    (vec!["BATCH", "LABEL", ">RUNS", ">FOUND", "SAID"], figures.batches.iter().map(row).collect())
}

/// Writes `workflows.html`, `.json`, `.md` and the charts; returns the path of the page.
pub fn write(all: &[Figures], folder: &Path, origin: &str) -> Result<PathBuf> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("Classifiers of workflow runs compared", origin);
    let (header, rows) = table(all);
    page.table(&header, rows);
    page.text(
        "Commonest: what always saying the commonest class of the training runs reaches. Healthy or not: the mean of how many \
         healthy runs and how many others are found. Seconds are of all folds, learning and judging.",
    );
    for figures in all {
        let name = format!("{}-{}", figures.model.name(), figures.protocol);
        page.heading(format!("{}, {}", figures.model.name(), figures.protocol));
        if !figures.conflicting.is_empty() {
            page.text(format!(
                "Left out, because they are filed under another label: {}.",
                figures.conflicting.join(", ")
            ));
        }
        if !figures.missing.is_empty() {
            page.text(format!("Not in the data, but in the split: {}.", figures.missing.join(", ")));
        }
        for reason in &figures.left_out {
            page.text(format!("A fold is left out: {reason}."));
        }
        let (header, rows) = confusion(figures);
        page.table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows);
        let found =
            figures.recall_by_label.iter().map(|(label, recall)| vec![label.clone(), format!("{recall:.2}")]);
        page.table(&["LABEL", ">FOUND"], found.collect());
        if !figures.batches.is_empty() {
            let (header, rows) = batches(figures);
            page.table(&header, rows);
        }
        if !figures.while_running.is_empty() {
            let early = figures
                .while_running
                .iter()
                .map(|(share, accuracy)| vec![format!("{share} %"), format!("{accuracy:.3}")]);
            page.table(&["OF THE RUN", ">ACCURACY"], early.collect());
        }
        if !figures.curve.is_empty() {
            let points = |of: &dyn Fn(&crate::classify::Step) -> f64| {
                figures.curve.iter().map(|step| (step.epoch as f64, of(step))).collect::<Vec<_>>()
            };
            let chart = Chart::new(&name, Axis::linear("epoch"), Axis::linear("loss, accuracy"))
                .with(Series::new("loss", Mark::Line, points(&|step| step.loss)))
                .with(Series::new("held out: loss", Mark::Line, points(&|step| step.validation_loss)))
                .with(Series::new(
                    "held out: accuracy",
                    Mark::Line,
                    points(&|step| step.validation_accuracy),
                ));
            let svg = folder.chart(&format!("{name}-curve"), &chart)?;
            page.figure(svg, "How the last fold was learnt");
        }
    }
    Ok(folder.page("workflows", &page, &all)?)
}
