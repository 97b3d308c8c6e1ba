//! The report of an experiment: a table for the terminal, an HTML page with charts, Markdown and JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use learn::stats::{mean, std_dev};
use report::text::{show_bytes, show_count};
use report::{Axis, Chart, Mark, Page, ReportError, ReportFolder, Series};
use serde::Serialize;
use serde_json::{Value, json};

use super::figures::{
    Curve, Plane, Points, curve_chart, distance_chart, error_chart, examine_sample, plane_chart, window_chart,
};
use super::{Baselines, Evaluation, KindResult, PAPER_ANOMALY, TestSet, UNKNOWN_KIND};
use crate::data::TrainingData;
use crate::detector::DetectorKind;
use crate::kind_classifier::Reliability;
use crate::trained::TrainedDetector;
use crate::window::WindowBatch;

/// One detector of an ensemble.
pub struct Member {
    pub kind: DetectorKind,
    pub seed: u64,
    pub train_seconds: f64,
    pub evaluation: Evaluation,
    pub detector: TrainedDetector,
}

pub struct Report {
    baselines: Baselines,
    ensembles: BTreeMap<DetectorKind, Vec<Member>>,
    n_train: usize,
    n_test: usize,
}

/// The mean and standard deviation over an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub std_dev: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| Self { mean: mean(&values), std_dev: std_dev(&values) })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.mean.abs() < 0.1 { 4 } else { 3 };
        if self.std_dev > 0.0 {
            write!(f, "{:.digits$} ± {:.digits$}", self.mean, self.std_dev)
        } else {
            write!(f, "{:.digits$}", self.mean)
        }
    }
}

impl Report {
    pub fn new(data: &TrainingData, test: &TestSet<'_>, baselines: Baselines, members: Vec<Member>) -> Self {
        let mut ensembles: BTreeMap<DetectorKind, Vec<Member>> = BTreeMap::new();
        for member in members {
            ensembles.entry(member.kind).or_default().push(member);
        }
        Self { baselines, ensembles, n_train: data.train.n_windows(), n_test: test.sample.n_windows() }
    }

    fn spread(members: &[Member], number: impl Fn(&Evaluation) -> Option<f64>) -> Option<Spread> {
        Spread::of(members.iter().filter_map(|member| number(&member.evaluation)))
    }

    /// The header and one row per detector.
    pub fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let header = vec![
            "DETECTOR",
            ">ERROR NORMAL",
            ">ERROR ANOMALOUS",
            ">SILHOUETTE",
            ">AUC ANOMALOUS",
            ">AUC SUBTLE",
            ">JOBS FOUND",
            ">FALSE EVENTS/DAY",
            ">DELAY",
            ">TRAIN",
        ];
        let shown = |spread: Option<Spread>| spread.map_or("–".to_owned(), |spread| spread.to_string());
        let row = |(kind, members): (&DetectorKind, &Vec<Member>)| {
            let of = |number: &dyn Fn(&Evaluation) -> Option<f64>| shown(Self::spread(members, number));
            let seconds = Spread::of(members.iter().map(|member| member.train_seconds));
            vec![
                kind.name().to_owned(),
                of(&|one| Some(one.normal_error)),
                of(&|one| one.anomalous_error()),
                of(&|one| one.silhouette),
                of(&|one| one.all.map(|all| all.roc_auc)),
                of(&|one| one.subtle_auc()),
                of(&|one| one.events.as_ref()?.found_fraction()),
                of(&|one| Some(one.events.as_ref()?.false_per_day)),
                Self::spread(members, |one| one.events.as_ref()?.median_delay_seconds)
                    .map_or("–".into(), |delay| format!("{:.0} s", delay.mean)),
                seconds.map_or("–".into(), |seconds| format!("{:.0} s", seconds.mean)),
            ]
        };
        (header, self.ensembles.iter().map(row).collect())
    }

    pub fn summary(&self) -> String {
        format!(
            "Baselines: the mean training window has an error of {:.4} on normal windows, random scores have an AUC of \
             {:.3}. {} training windows, {} test windows",
            self.baselines.mean_window_error,
            self.baselines.random_auc,
            show_count(self.n_train as u64),
            show_count(self.n_test as u64)
        )
    }

    pub fn numbers(&self) -> Value {
        let members = |members: &Vec<Member>| -> Vec<Value> {
            let one = |member: &Member| {
                json!({ "seed": member.seed, "train_seconds": member.train_seconds,
                    "calibration": member.detector.calibration, "evaluation": member.evaluation })
            };
            members.iter().map(one).collect()
        };
        let ensembles: BTreeMap<&str, Vec<Value>> =
            self.ensembles.iter().map(|(kind, of_kind)| (kind.name(), members(of_kind))).collect();
        json!({ "baselines": self.baselines, "train_windows": self.n_train, "test_windows": self.n_test, "detectors": ensembles })
    }
}

/// The figures of Mohammed et al. (CHEP 2024) for their own campaigns: error of normal and of Bad IO windows, silhouette.
const PAPER: [(DetectorKind, [f64; 3]); 3] = [
    (DetectorKind::Ae, [0.0064, 0.354, 0.750]),
    (DetectorKind::NodeGnn, [0.0122, 0.364, 0.685]),
    (DetectorKind::JobGnn, [0.0069, 0.373, 0.669]),
];

/// Writes `detectors.html`, `.json`, `.md` and the charts to a directory; returns the path of the page.
pub fn write(
    report: &Report,
    data: &TrainingData,
    test: &TestSet<'_>,
    dir: &Path,
    origin: &str,
) -> Result<PathBuf, ReportError> {
    let folder = ReportFolder::create(dir)?;
    let mut page = Page::new("Detectors compared", origin);
    page.lead(report.summary() + ".");
    let (header, rows) = report.table();
    page.table(&header, rows);
    page.text(
        "Errors are mean squared differences over all channels and steps of a window. Figures are means and standard \
         deviations over ensembles. AUC anomalous: labelled anomalies against normal windows. AUC subtle: windows with \
         injected faults of intermediate strength against the same windows without. Jobs found: the fraction of anomalous \
         test jobs that raise an event at the budget in force. Delay: the median time from the start of such a job to its \
         event.",
    );
    report.add_events(&mut page);
    report.add_paper_table(&mut page);
    report.add_cost(&mut page);
    report.add_kinds(&mut page);
    report.add_diagnosis(&mut page);
    report.add_cases(&mut page, &folder)?;
    report.add_figures(&mut page, &folder, data, test)?;
    folder.page("detectors", &page, &report.numbers())
}

impl Report {
    fn names(&self) -> Vec<&'static str> {
        self.ensembles.keys().map(|kind| kind.name()).collect()
    }

    fn shown(members: &[Member], number: impl Fn(&Evaluation) -> Option<f64>) -> String {
        Self::spread(members, number).map_or("–".to_owned(), |spread| spread.to_string())
    }

    /// Table 2 of the paper, next to our figures.
    fn add_paper_table(&self, page: &mut Page) {
        let error = |one: &Evaluation| one.kind(PAPER_ANOMALY).map(|kind| kind.error);
        if !self.ensembles.values().flatten().any(|member| error(&member.evaluation).is_some()) {
            return;
        }
        page.heading("Comparison with the paper");
        let rows = self.ensembles.iter().map(|(kind, members)| {
            let of_paper = PAPER.iter().find(|(known, _)| known == kind).map(|(_, figures)| figures);
            let beside = |at: usize| of_paper.map_or("–".to_owned(), |figures| figures[at].to_string());
            vec![
                kind.name().to_owned(),
                Self::shown(members, |one| Some(one.normal_error)),
                beside(0),
                Self::shown(members, error),
                beside(1),
                Self::shown(members, |one| Some(error(one)? / one.normal_error)),
                of_paper.map_or("–".to_owned(), |figures| format!("{:.0}", figures[1] / figures[0])),
                Self::shown(members, |one| one.silhouette),
                beside(2),
            ]
        });
        page.table(
            &[
                "detector",
                ">error normal",
                ">paper",
                ">error Bad IO",
                ">paper",
                ">Bad IO / normal",
                ">paper",
                ">silhouette",
                ">paper",
            ],
            rows.collect(),
        );
        page.text(
            "Paper: Mohammed et al., Decode the Workload, CHEP 2024. Its jobs ran on other machines, so its figures are \
             for orientation only.",
        );
    }

    /// Events at the budget in force, by kind.
    fn add_events(&self, page: &mut Page) {
        let of = |one: &Evaluation| one.events.clone();
        let Some(first) = self.ensembles.values().flatten().find_map(|member| of(&member.evaluation)) else {
            return;
        };
        page.heading("Events");
        page.text(
            "The fraction of anomalous test jobs of each kind that are part of an event, and how many of those the event \
             names as responsible; false events per day; median seconds from the start of a job to its event.",
        );
        let mut header = vec!["detector".to_owned()];
        header.extend(first.kinds.iter().map(|kind| format!(">{} ({})", kind.kind, kind.n_jobs)));
        header
            .extend([">responsible", ">false per day", ">delay", ">window false alarms"].map(str::to_owned));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let rows = self.ensembles.iter().map(|(kind, members)| {
            let mut row = vec![kind.name().to_owned()];
            for name in first.kinds.iter().map(|kind| &kind.kind) {
                row.push(Self::shown(members, |one| {
                    let of_kind = one.events.as_ref()?.kinds.iter().find(|kind| kind.kind == *name)?;
                    Some(of_kind.n_found as f64 / of_kind.n_jobs as f64)
                }));
            }
            row.push(Self::shown(members, |one| {
                let kinds = &one.events.as_ref()?.kinds;
                let n_found: usize = kinds.iter().map(|kind| kind.n_found).sum();
                let n_responsible: usize = kinds.iter().map(|kind| kind.n_responsible).sum();
                (n_found > 0).then(|| n_responsible as f64 / n_found as f64)
            }));
            row.push(Self::shown(members, |one| Some(one.events.as_ref()?.false_per_day)));
            row.push(Self::shown(members, |one| one.events.as_ref()?.median_delay_seconds));
            row.push(Self::shown(members, |one| Some(one.false_alarm_rate * 100.0)) + " %");
            row
        });
        page.table(&header, rows.collect());
    }

    /// Speed and size.
    fn add_cost(&self, page: &mut Page) {
        page.heading("Cost");
        page.text("Windows scored per second, training time and size of the model.");
        let rows = self.ensembles.iter().map(|(kind, members)| {
            let speed =
                Self::spread(members, |one| Some(one.windows_per_second)).map_or(0.0, |spread| spread.mean);
            let seconds = Spread::of(members.iter().map(|member| member.train_seconds))
                .map_or(0.0, |spread| spread.mean);
            let weights = members.first().map_or(0, |member| member.detector.n_weights());
            let shown = [show_count(speed as u64), format!("{seconds:.0} s"), show_bytes(4 * weights as u64)];
            std::iter::once(kind.name().to_owned()).chain(shown).collect()
        });
        page.table(&["detector", ">windows per second", ">train", ">weights"], rows.collect());
    }

    /// Errors and detection by kind.
    fn add_kinds(&self, page: &mut Page) {
        let Some(first) = self.ensembles.values().flatten().next() else { return };
        let header: Vec<String> = ["kind".to_owned(), ">windows".to_owned()]
            .into_iter()
            .chain(self.names().iter().map(|n| format!(">{n}")))
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let table =
            |page: &mut Page, number: &dyn Fn(&KindResult) -> Option<f64>| {
                let mut rows = Vec::new();
                for kind in &first.evaluation.kinds {
                    if number(kind).is_some() {
                        let mut row = vec![kind.kind.clone(), kind.n_windows.to_string()];
                        row.extend(self.ensembles.values().map(|members| {
                            Self::shown(members, |one| one.kind(&kind.kind).and_then(number))
                        }));
                        rows.push(row);
                    }
                }
                page.table(&header, rows);
            };
        page.heading("Reconstruction error by job kind");
        table(page, &|kind| Some(kind.error));
        if first.evaluation.all.is_some() {
            page.heading("Labelled anomalies against normal windows");
            page.text("ROC-AUC:");
            table(page, &|kind| kind.detection.map(|detection| detection.roc_auc));
            page.text("PR-AUC:");
            table(page, &|kind| kind.detection.map(|detection| detection.pr_auc));
            page.text("VUS-PR:");
            table(page, &|kind| kind.detection.and_then(|detection| detection.vus_pr));
            page.text("Recall at the threshold in force:");
            table(page, &|kind| kind.detection.map(|detection| detection.recall));
            page.text("F1 at the threshold in force:");
            table(page, &|kind| kind.detection.map(|detection| detection.f1));
        }
    }

    /// The classification of kinds.
    fn add_diagnosis(&self, page: &mut Page) {
        if !self.ensembles.values().flatten().any(|member| member.evaluation.diagnosis.is_some()) {
            return;
        }
        page.heading("Kind classifier");
        page.text(
            "Windows of held-out jobs, classified by the regions of labelled windows of other jobs: accuracy, accuracy of always \
             answering the most common kind, mean confidence, and expected calibration error. The temperature of the softmax \
             is chosen on other folds.",
        );
        let rows = self.ensembles.iter().map(|(kind, members)| {
            let of = |number: fn(Reliability) -> f64| Self::shown(members, |one| one.diagnosis.map(number));
            vec![
                kind.name().to_owned(),
                of(|one| one.accuracy),
                of(|one| one.majority),
                of(|one| one.confidence),
                of(|one| one.calibration_error),
            ]
        });
        page.table(
            &["detector", ">accuracy", ">most frequent kind", ">confidence", ">calibration error"],
            rows.collect(),
        );
    }

    /// Injected faults, by strength.
    fn add_cases(&self, page: &mut Page, folder: &ReportFolder) -> Result<(), ReportError> {
        let Some(first) = self.ensembles.values().flatten().next() else { return Ok(()) };
        let cases = &first.evaluation.cases;
        if cases.is_empty() {
            return Ok(());
        }
        page.heading("Injected faults");
        page.text("ROC-AUC of windows with an injected fault against the same windows without.");
        let header: Vec<String> = ["fault", ">strength", ">windows"]
            .into_iter()
            .map(str::to_owned)
            .chain(self.names().iter().map(|name| format!(">{name}")))
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let auc = |one: &Evaluation, fault: &str, strength: f32| {
            let found = one.cases.iter().find(|case| case.fault == fault && case.strength == strength);
            found.map(|case| case.roc_auc)
        };
        let rows = cases.iter().map(|case| {
            let mut row =
                vec![case.fault.clone(), format!("{:.2}", case.strength), case.n_windows.to_string()];
            let of = |members: &Vec<Member>| Self::shown(members, |one| auc(one, &case.fault, case.strength));
            row.extend(self.ensembles.values().map(of));
            row
        });
        page.table(&header, rows.collect());
        let mut strengths: Vec<f32> = cases.iter().map(|case| case.strength).collect();
        strengths.sort_by(f32::total_cmp);
        strengths.dedup();
        let ticks = strengths.iter().map(|strength| f64::from(*strength));
        let mut chart = Chart::new(
            "Detection of injected faults by strength",
            Axis::log("strength").with_ticks(ticks),
            Axis::linear("ROC-AUC, mean over kinds of faults").including([0.5, 1.0]),
        );
        for (kind, members) in &self.ensembles {
            let at = |strength: &f32| {
                let mean_of = |one: &Evaluation| {
                    let of: Vec<f64> = one
                        .cases
                        .iter()
                        .filter(|case| case.strength == *strength)
                        .map(|case| case.roc_auc)
                        .collect();
                    (!of.is_empty()).then(|| mean(&of))
                };
                Some((f64::from(*strength), Self::spread(members, mean_of)?.mean))
            };
            let points = strengths.iter().filter_map(at).collect();
            chart = chart.with(Series::new(kind.name(), Mark::LineAndDots, points));
        }
        page.figure(folder.chart("strength", &chart)?, "0.5 is chance.");
        Ok(())
    }

    fn add_figures(
        &self,
        page: &mut Page,
        folder: &ReportFolder,
        data: &TrainingData,
        test: &TestSet<'_>,
    ) -> Result<(), ReportError> {
        if test.known.has_anomalies() {
            let scored: Vec<(&str, Vec<f64>, Vec<bool>)> = self
                .ensembles
                .iter()
                .filter_map(|(kind, members)| {
                    let (scores, truth) = members.first()?.evaluation.scores.iter().copied().unzip();
                    Some((kind.name(), scores, truth))
                })
                .collect();
            page.heading("Curves");
            page.text("The first member of each ensemble, all labelled anomalies.");
            page.figure(folder.chart("roc", &curve_chart(Curve::Roc, &scored))?, "The upper left is best.");
            let chart = curve_chart(Curve::PrecisionRecall, &scored);
            page.figure(folder.chart("precision-recall", &chart)?, "The upper right is best.");
        }
        for (kind, members) in &self.ensembles {
            let Some(member) = members
                .first()
                .filter(|_| matches!(kind, DetectorKind::Ae | DetectorKind::NodeGnn | DetectorKind::JobGnn))
            else {
                continue;
            };
            let name = kind.name();
            let (train, seen) = (
                examine_sample(&member.detector, &data.train, test),
                examine_sample(&member.detector, test.sample, test),
            );
            let n_channels = data.train.batches.first().map_or(4, WindowBatch::n_channels);
            page.heading(format!("Windows and embeddings of {name}"));
            for job_kind in ["np", PAPER_ANOMALY, UNKNOWN_KIND, "spark"] {
                if let Some(chart) = window_chart(&seen, job_kind, n_channels) {
                    let svg = folder.chart(&format!("{name}-window-{job_kind}"), &chart)?;
                    page.figure(svg, "The window of its kind with the median error.");
                }
            }
            let svg = folder.chart(&format!("{name}-errors"), &error_chart(&seen))?;
            page.figure(svg, "Test windows; the histogram of each kind sums to one.");
            let planes = [
                ("components", Plane::Components, "principal components"),
                ("neighbours", Plane::Neighbours, "UMAP"),
            ];
            for (file, plane, how) in planes {
                let title = format!("Embeddings of {name} ({how})");
                let chart = plane_chart(&title, plane, Points { train: &train, test: &seen }, |one| {
                    one.finding.embedding.clone()
                });
                if let Some(chart) = chart {
                    let svg = folder.chart(&format!("{name}-{file}"), &chart)?;
                    page.figure(
                        svg,
                        "Fitted to the training set, applied to the test set; one dot per window.",
                    );
                }
            }
            let title = "Original windows (principal components)";
            if let Some(chart) =
                plane_chart(title, Plane::Components, Points { train: &train, test: &seen }, |one| {
                    one.window.values.clone()
                })
            {
                page.figure(
                    folder.chart("original-components", &chart)?,
                    "The original space, for comparison.",
                );
            }
            if let Some(chart) = distance_chart(&seen, PAPER_ANOMALY, test, n_channels) {
                let svg = folder.chart(&format!("{name}-distance"), &chart)?;
                page.figure(svg, "Windows close to the anomaly with a high iowait resemble it.");
            }
        }
        Ok(())
    }
}
