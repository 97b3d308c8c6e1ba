//! What an evaluation says, for people and programs: a page, numbers, a table in Markdown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use learn::moments::{deviation, mean};
use report::text::{show_bytes, show_count};
use report::{Axis, Chart, Mark, Page, ReportError, ReportFolder, Series};
use serde::Serialize;
use serde_json::{Value, json};

use super::figures::{
    Curve, Plane, curve_chart, distance_chart, error_chart, look, plane_chart, window_chart,
};
use super::{Evaluation, Floor, KindResult, Test, UNKNOWN_KIND};
use crate::diagnosis::Reliability;
use crate::{Data, Model, Trained};

/// One detector of an ensemble.
pub struct Member {
    pub model: Model,
    pub seed: u64,
    pub train_seconds: f64,
    pub evaluation: Evaluation,
    pub trained: Trained,
}

pub struct Report {
    floor: Floor,
    /// By model, in the order of their names.
    ensembles: BTreeMap<Model, Vec<Member>>,
    n_train: usize,
    n_test: usize,
}

/// A mean over an ensemble, and how much its members differ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub deviation: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| Self { mean: mean(&values), deviation: deviation(&values) })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.mean.abs() < 0.1 { 4 } else { 3 };
        match self.deviation > 0.0 {
            true => write!(f, "{:.digits$} ± {:.digits$}", self.mean, self.deviation),
            false => write!(f, "{:.digits$}", self.mean),
        }
    }
}

impl Report {
    pub fn new(data: &Data, test: &Test<'_>, floor: Floor, members: Vec<Member>) -> Self {
        let mut ensembles: BTreeMap<Model, Vec<Member>> = BTreeMap::new();
        members.into_iter().for_each(|member| ensembles.entry(member.model).or_default().push(member));
        Self { floor, ensembles, n_train: data.train.n_windows(), n_test: test.sample.n_windows() }
    }

    fn spread(members: &[Member], number: impl Fn(&Evaluation) -> Option<f64>) -> Option<Spread> {
        Spread::of(members.iter().filter_map(|member| number(&member.evaluation)))
    }

    /// A row for each detector.
    pub fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let header = vec![
            "DETECTOR",
            ">ERROR NORMAL",
            ">ERROR ANOMALOUS",
            ">SILHOUETTE",
            ">AUC ANOMALOUS",
            ">AUC SUBTLE",
            ">FALSE ALARMS",
            ">TRAIN",
        ];
        let shown = |spread: Option<Spread>| spread.map_or("–".to_owned(), |spread| spread.to_string());
        let row = |(model, members): (&Model, &Vec<Member>)| {
            let of = |number: &dyn Fn(&Evaluation) -> Option<f64>| shown(Self::spread(members, number));
            let seconds = Spread::of(members.iter().map(|member| member.train_seconds));
            vec![
                model.name().to_owned(),
                of(&|one| Some(one.normal_error)),
                of(&|one| one.anomalous_error()),
                of(&|one| one.silhouette),
                of(&|one| one.all.map(|all| all.roc_auc)),
                of(&|one| one.subtle_auc()),
                of(&|one| Some(one.false_alarm_rate * 100.0)) + " %",
                seconds.map_or("–".into(), |seconds| format!("{:.0} s", seconds.mean)),
            ]
        };
        (header, self.ensembles.iter().map(row).collect())
    }

    pub fn in_words(&self) -> String {
        format!(
            "The mean training window errs by {:.4}, random scores have an AUC of {:.3}; {} windows to learn from, {} to \
             judge by",
            self.floor.mean_window_error, self.floor.random_auc, self.n_train, self.n_test
        )
    }

    pub fn numbers(&self) -> Value {
        let members = |members: &Vec<Member>| -> Vec<Value> {
            let one = |member: &Member| {
                json!({ "seed": member.seed, "train_seconds": member.train_seconds,
                    "threshold": member.trained.thresholds, "evaluation": member.evaluation })
            };
            members.iter().map(one).collect()
        };
        let ensembles: BTreeMap<&str, Vec<Value>> =
            self.ensembles.iter().map(|(model, of_model)| (model.name(), members(of_model))).collect();
        json!({ "floor": self.floor, "train_windows": self.n_train, "test_windows": self.n_test, "detectors": ensembles })
    }
}

/// What the seed reports of its own campaigns: error of normal and of Bad IO windows, silhouette.
const SEED: [(Model, [f64; 3]); 3] = [
    (Model::Ae, [0.0064, 0.354, 0.750]),
    (Model::NodeGnn, [0.0122, 0.364, 0.685]),
    (Model::JobGnn, [0.0069, 0.373, 0.669]),
];
/// The trouble that the seed measures by.
const SEED_TROUBLE: &str = "bad-io";

/// Writes `detectors.html`, `.json`, `.md` and the charts; returns the path of the page.
pub fn write(
    report: &Report,
    data: &Data,
    test: &Test<'_>,
    folder: &Path,
    origin: &str,
) -> Result<PathBuf, ReportError> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("Detectors compared", origin);
    page.lead(report.in_words() + ".");
    let (header, rows) = report.table();
    page.table(&header, rows);
    page.text(
        "Errors are means of squared differences over all channels and steps of a window; means and standard deviations \
         over ensembles. AUC anomalous: labelled anomalies against normal windows. AUC subtle: windows with trouble of \
         the middle strengths put into them against the same windows without. False alarms: normal test windows above \
         the threshold that validation set.",
    );
    report.add_seed_table(&mut page);
    report.add_false_alarms(&mut page);
    report.add_kinds(&mut page);
    report.add_diagnosis(&mut page);
    report.add_cases(&mut page, &folder)?;
    report.add_figures(&mut page, &folder, data, test)?;
    folder.page("detectors", &page, &report.numbers())
}

impl Report {
    fn names(&self) -> Vec<&'static str> {
        self.ensembles.keys().map(|model| model.name()).collect()
    }

    fn shown(members: &[Member], number: impl Fn(&Evaluation) -> Option<f64>) -> String {
        Self::spread(members, number).map_or("–".to_owned(), |spread| spread.to_string())
    }

    /// The seed's table 2, with its figures beside ours.
    fn add_seed_table(&self, page: &mut Page) {
        let error = |one: &Evaluation| one.kind(SEED_TROUBLE).map(|kind| kind.error);
        if !self.ensembles.values().flatten().any(|member| error(&member.evaluation).is_some()) {
            return;
        }
        page.heading("The seed's table");
        let rows = self.ensembles.iter().map(|(model, members)| {
            let of_seed = SEED.iter().find(|(known, _)| known == model).map(|(_, figures)| figures);
            let beside = |at: usize| of_seed.map_or("–".to_owned(), |figures| figures[at].to_string());
            vec![
                model.name().to_owned(),
                Self::shown(members, |one| Some(one.normal_error)),
                beside(0),
                Self::shown(members, error),
                beside(1),
                Self::shown(members, |one| Some(error(one)? / one.normal_error)),
                of_seed.map_or("–".to_owned(), |figures| format!("{:.0}", figures[1] / figures[0])),
                Self::shown(members, |one| one.silhouette),
                beside(2),
            ]
        });
        page.table(
            &[
                "detector",
                ">error normal",
                ">seed's",
                ">error Bad IO",
                ">seed's",
                ">Bad IO / normal",
                ">seed's",
                ">silhouette",
                ">seed's",
            ],
            rows.collect(),
        );
        page.text("The seed's jobs ran on other machines: its figures are beside ours for orientation.");
    }

    /// Whether thresholds keep what they promise.
    fn add_false_alarms(&self, page: &mut Page) {
        let Some(first) = self.ensembles.values().flatten().next() else { return };
        page.heading("False alarms");
        page.text(
            "The share of normal test windows at or above the threshold for each stated rate, on nodes where no anomalous job \
             runs; beside one, at the rate that the threshold is for; windows scored a second; size.",
        );
        let stated: Vec<f64> = first.evaluation.false_alarms.iter().map(|one| one.stated).collect();
        let mut header = vec!["detector".to_owned()];
        header.extend(stated.iter().map(|rate| format!(">stated {} %", rate * 100.0)));
        header.extend([">beside anomalies", ">windows a second", ">train", ">weights"].map(str::to_owned));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let rows = self.ensembles.iter().map(|(model, members)| {
            let mut row = vec![model.name().to_owned()];
            for index in 0..stated.len() {
                row.push(Self::shown(members, |one| Some(one.false_alarms.get(index)?.found * 100.0)) + " %");
            }
            row.push(Self::shown(members, |one| Some(one.beside_anomalies? * 100.0)) + " %");
            let speed =
                Self::spread(members, |one| Some(one.windows_a_second)).map_or(0.0, |spread| spread.mean);
            let seconds = Spread::of(members.iter().map(|member| member.train_seconds))
                .map_or(0.0, |spread| spread.mean);
            let weights = members.first().map_or(0, |member| member.trained.n_weights());
            row.extend([show_count(speed as u64), format!("{seconds:.0} s"), show_bytes(4 * weights as u64)]);
            row
        });
        page.table(&header, rows.collect());
    }

    /// Errors and detection, kind by kind.
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
        page.heading("Errors by kind of job");
        table(page, &|kind| Some(kind.error));
        if first.evaluation.all.is_some() {
            page.heading("Labelled anomalies against normal windows");
            page.text("ROC-AUC:");
            table(page, &|kind| kind.detection.map(|detection| detection.roc_auc));
            page.text("PR-AUC:");
            table(page, &|kind| kind.detection.map(|detection| detection.pr_auc));
            page.text("VUS-PR:");
            table(page, &|kind| kind.detection.and_then(|detection| detection.vus_pr));
            page.text("F1 at the threshold that validation set:");
            table(page, &|kind| kind.detection.map(|detection| detection.f1));
        }
    }

    /// Whether it is known which kind a window is of.
    fn add_diagnosis(&self, page: &mut Page) {
        if !self.ensembles.values().flatten().any(|member| member.evaluation.diagnosis.is_some()) {
            return;
        }
        page.heading("Which kind it is");
        page.text(
            "Windows of jobs that were left out, by where labelled windows of other jobs lie: how often the likeliest kind is the right \
             one, how often the commonest kind would be, how sure it was, and by how much confidence and being right differ (expected \
             calibration error). Confidence is scaled by jobs of other folds.",
        );
        let rows = self.ensembles.iter().map(|(model, members)| {
            let of = |number: fn(Reliability) -> f64| Self::shown(members, |one| one.diagnosis.map(number));
            vec![
                model.name().to_owned(),
                of(|one| one.accuracy),
                of(|one| one.commonest),
                of(|one| one.confidence),
                of(|one| one.calibration_error),
            ]
        });
        page.table(
            &["detector", ">right", ">commonest", ">confidence", ">calibration error"],
            rows.collect(),
        );
    }

    /// Trouble put into normal windows, by strength.
    fn add_cases(&self, page: &mut Page, folder: &ReportFolder) -> Result<(), ReportError> {
        let Some(first) = self.ensembles.values().flatten().next() else { return Ok(()) };
        let cases = &first.evaluation.cases;
        if cases.is_empty() {
            return Ok(());
        }
        page.heading("Trouble of known strength");
        page.text("ROC-AUC of windows with trouble in them against the same windows without it.");
        let header: Vec<String> = ["trouble", ">strength", ">windows"]
            .into_iter()
            .map(str::to_owned)
            .chain(self.names().iter().map(|name| format!(">{name}")))
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let auc = |one: &Evaluation, trouble: &str, strength: f32| {
            let found = one.cases.iter().find(|case| case.trouble == trouble && case.strength == strength);
            found.map(|case| case.roc_auc)
        };
        let rows = cases.iter().map(|case| {
            let mut row =
                vec![case.trouble.clone(), format!("{:.2}", case.strength), case.n_windows.to_string()];
            let of =
                |members: &Vec<Member>| Self::shown(members, |one| auc(one, &case.trouble, case.strength));
            row.extend(self.ensembles.values().map(of));
            row
        });
        page.table(&header, rows.collect());
        let mut strengths: Vec<f32> = cases.iter().map(|case| case.strength).collect();
        strengths.sort_by(f32::total_cmp);
        strengths.dedup();
        let ticks = strengths.iter().map(|strength| f64::from(*strength));
        let mut chart = Chart::new(
            "How strong trouble has to be to be seen",
            Axis::log("strength").with_ticks(ticks),
            Axis::linear("ROC-AUC, mean over kinds of trouble").including([0.5, 1.0]),
        );
        for (model, members) in &self.ensembles {
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
            chart = chart.with(Series::new(model.name(), Mark::LineAndDots, points));
        }
        page.figure(folder.chart("strength", &chart)?, "0.5 is chance.");
        Ok(())
    }

    fn add_figures(
        &self,
        page: &mut Page,
        folder: &ReportFolder,
        data: &Data,
        test: &Test<'_>,
    ) -> Result<(), ReportError> {
        if test.has_anomalies() {
            let scored: Vec<(&str, Vec<f64>, Vec<bool>)> = self
                .ensembles
                .iter()
                .filter_map(|(model, members)| {
                    let (scores, truth) = members.first()?.evaluation.scores.iter().copied().unzip();
                    Some((model.name(), scores, truth))
                })
                .collect();
            page.heading("Curves");
            page.text("The first member of each ensemble, all labelled anomalies.");
            page.figure(
                folder.chart("roc", &curve_chart(Curve::Roc, &scored))?,
                "Up and to the left is better.",
            );
            let chart = curve_chart(Curve::PrecisionRecall, &scored);
            page.figure(folder.chart("precision-recall", &chart)?, "Up and to the right is better.");
        }
        for (model, members) in &self.ensembles {
            let Some(member) =
                members.first().filter(|_| matches!(model, Model::Ae | Model::NodeGnn | Model::JobGnn))
            else {
                continue;
            };
            let name = model.name();
            let (train, seen) =
                (look(&member.trained, &data.train, test), look(&member.trained, test.sample, test));
            let n_channels = data.train.moments.first().map_or(4, |moment| moment.n_channels);
            page.heading(format!("What {name} sees"));
            for kind in ["np", SEED_TROUBLE, UNKNOWN_KIND, "spark"] {
                if let Some(chart) = window_chart(&seen, kind, n_channels) {
                    let svg = folder.chart(&format!("{name}-window-{kind}"), &chart)?;
                    page.figure(svg, "The window of its kind whose error is in the middle.");
                }
            }
            let svg = folder.chart(&format!("{name}-errors"), &error_chart(&seen))?;
            page.figure(svg, "Test windows; each kind sums to one.");
            let planes = [
                ("components", Plane::Components, "principal components"),
                ("neighbours", Plane::Neighbours, "UMAP"),
            ];
            for (file, plane, how) in planes {
                let title = format!("Embeddings of {name} ({how})");
                let chart = plane_chart(&title, plane, (&train, &seen), |one| one.finding.embedding.clone());
                if let Some(chart) = chart {
                    let svg = folder.chart(&format!("{name}-{file}"), &chart)?;
                    page.figure(svg, "Fitted to the train set, applied to the test set; one dot a window.");
                }
            }
            let title = "Windows as they are (principal components)";
            if let Some(chart) =
                plane_chart(title, Plane::Components, (&train, &seen), |one| one.window.values.clone())
            {
                page.figure(
                    folder.chart("original-components", &chart)?,
                    "The original space, for comparison.",
                );
            }
            if let Some(chart) = distance_chart(&seen, SEED_TROUBLE, test, n_channels) {
                let svg = folder.chart(&format!("{name}-distance"), &chart)?;
                page.figure(svg, "What lies near a known trouble and waits a lot deserves a look.");
            }
        }
        Ok(())
    }
}
