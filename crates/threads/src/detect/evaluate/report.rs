//! What an evaluation says, for people and programs: a page, numbers, a table in Markdown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use learn::moments::{deviation, mean};
use report::ReportError;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Evaluation, Floor, Test};
use crate::detect::{Data, Model, Trained};

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
            "the mean training window errs by {:.4}, random scores have an AUC of {:.3}; {} windows to learn from, {} to \
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

pub fn write(
    report: &Report,
    _data: &Data,
    _test: &Test<'_>,
    folder: &Path,
    origin: &str,
) -> Result<PathBuf, ReportError> {
    let folder = report::ReportFolder::create(folder)?;
    let page = report::Page::new("Detectors compared", origin);
    folder.page("detectors", &page, &report.numbers())
}
