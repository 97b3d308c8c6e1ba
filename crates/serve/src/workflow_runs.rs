//! Workflow runs that people send: their charts, the classifier that judges them, and the labels that people give them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use learn::artifact::{Artifact, Provenance};
use serde::{Deserialize, Serialize};
use workflows::classify::{
    ClassifierKind, ClassifierSettings, MissingInput, TrainedClassifier, TrainingPlan, Verdict,
};
use workflows::compare::{Comparison, compare};
use workflows::draw::{Gantt, Part};
use workflows::workflow::TaskRole;
use workflows::{Dataset, LabelledRun, Recording};
use workload::{Control, Timestamp};

use crate::uploads::{LIMITS, NewUpload, Upload, UploadError, UploadName, Uploads};

/// The parts of a row in a chart: all but the last, which is the time after the task.
const N_PARTS: usize = Part::ALL.len() - 1;
/// Changed tasks in a comparison.
const MAX_CHANGES: usize = 1_000;
/// Times in charts are rounded to so many parts of a second.
const ROUNDING: f64 = 1_000.0;

/// What is known about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunContent {
    pub seconds: f64,
    pub attempts: usize,
    pub failed: usize,
    /// What the classifier said last.
    pub class: Option<String>,
    /// What somebody said.
    pub label: Option<RunLabel>,
}

/// What somebody calls a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLabel {
    /// `normal`, or a fault such as `hdd`.
    pub label: String,
    pub comment: String,
    pub actor: String,
    pub time: Timestamp,
}

impl RunLabel {
    pub fn new(label: &str, comment: String, actor: &str) -> Self {
        let time = Timestamp::from(SystemTime::now());
        Self { label: label.to_owned(), comment, actor: actor.to_owned(), time }
    }
}

/// A run in detail.
#[derive(Debug)]
pub struct RunDetail {
    pub upload: Upload<RunContent>,
    pub warnings: Vec<String>,
    /// The judgement of the classifier, or why there is none.
    pub verdict: Result<Verdict, String>,
}

/// A chart in columns, one entry for each attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunChart {
    /// In seconds since 1970.
    pub start: f64,
    pub seconds: f64,
    pub parts: [&'static str; N_PARTS],
    pub kinds: Vec<String>,
    /// Sub-workflows.
    pub workflows: Vec<String>,
    pub task: Vec<String>,
    /// Places in `kinds` and `workflows`.
    pub kind: Vec<usize>,
    pub workflow: Vec<usize>,
    /// 0 for tasks that compute, 1 for transfers, 2 for others.
    pub role: Vec<u8>,
    pub attempt: Vec<u32>,
    /// 0 or 1.
    pub failed: Vec<u8>,
    pub critical: Vec<u8>,
    /// For each part, when it ends, in seconds since the start of the run.
    pub ends: [Vec<f64>; N_PARTS],
}

/// A classifier in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassifierInUse {
    pub kind: &'static str,
    pub classes: Vec<String>,
    pub n_runs: usize,
    /// `settings` or `labels`.
    pub from: &'static str,
}

/// The runs of the service.
pub struct WorkflowRuns {
    uploads: Uploads<RunContent>,
    /// Where a classifier that was trained with labels is kept.
    trained: PathBuf,
    classifier: RwLock<Option<(Arc<TrainedClassifier>, &'static str)>>,
}

impl WorkflowRuns {
    /// Opens the runs below `data`. `model` is used until a classifier is trained with labels.
    pub fn open(data: &Path, model: Option<&Path>) -> Result<Self, workflows::Error> {
        let trained = data.join("workflow-classifier");
        let classifier = match model {
            _ if trained.is_dir() => Some((Arc::new(TrainedClassifier::read(&trained)?), "labels")),
            Some(model) => Some((Arc::new(TrainedClassifier::read(model)?), "settings")),
            None => None,
        };
        let uploads = Uploads::open(data.join("workflows"))?;
        Ok(Self { uploads, trained, classifier: RwLock::new(classifier) })
    }

    pub const fn uploads(&self) -> &Uploads<RunContent> {
        &self.uploads
    }

    /// Adds a file that was sent, if it is the log of a run.
    pub fn add(&self, new: NewUpload, actor: &str) -> Result<Upload<RunContent>, UploadError> {
        let recording = read(&new.path())?;
        let run = &recording.run;
        let failed = run.attempts.iter().filter(|one| one.exit_code.is_some_and(|code| code != 0)).count();
        let content = RunContent {
            seconds: run.makespan(),
            attempts: run.attempts.len(),
            failed,
            class: self.judge(&recording).ok().map(|verdict| verdict.class),
            label: None,
        };
        self.uploads.finish(new, actor, content)
    }

    pub fn detail(&self, name: &UploadName) -> Result<RunDetail, UploadError> {
        let upload = self.uploads.find(name)?;
        let recording = read(&upload.path)?;
        let verdict = self.judge(&recording);
        let mut warnings = recording.warnings;
        let missing = verdict.as_ref().map_or(&[][..], |verdict| &verdict.missing_inputs);
        let missing: Vec<&str> = missing.iter().copied().map(MissingInput::name).collect();
        if !missing.is_empty() {
            let names = missing.join(" and ");
            warnings.push(format!("the run lacks {names}; the verdict is less certain than its probability"));
        }
        Ok(RunDetail { upload, warnings, verdict })
    }

    pub fn chart(&self, name: &UploadName) -> Result<RunChart, UploadError> {
        Ok(RunChart::new(&read(&self.uploads.find(name)?.path)?))
    }

    /// The tasks whose delays differ most between two runs.
    pub fn compare(&self, before: &UploadName, after: &UploadName) -> Result<Comparison, UploadError> {
        let read = |name| read(&self.uploads.find(name)?.path);
        let mut found = compare(&read(before)?.run, &read(after)?.run);
        found.tasks.truncate(MAX_CHANGES);
        found.only_before.truncate(MAX_CHANGES);
        found.only_after.truncate(MAX_CHANGES);
        Ok(found)
    }

    /// Labels a run, or removes its label.
    pub fn set_label(
        &self,
        name: &UploadName,
        label: Option<RunLabel>,
    ) -> Result<Upload<RunContent>, UploadError> {
        self.uploads.change(name, |content| content.label = label)
    }

    /// The classifier in use, if there is one.
    pub fn classifier(&self) -> Option<ClassifierInUse> {
        let (classifier, from) = self.in_use()?;
        Some(ClassifierInUse {
            kind: classifier.kind.name(),
            classes: classifier.classes.clone(),
            n_runs: classifier.origin.n_runs,
            from,
        })
    }

    /// How many runs have each label.
    pub fn labels(&self) -> Result<BTreeMap<String, usize>, UploadError> {
        let mut counts = BTreeMap::new();
        for upload in self.uploads.list()? {
            if let Some(label) = upload.about.content.label {
                *counts.entry(label.label).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Trains a classifier with the labelled runs. From then on it judges.
    pub fn train(&self, control: Control<'_>) -> Result<ClassifierInUse, UploadError> {
        let uploads = self.uploads.list()?;
        let mut data = Dataset::default();
        for upload in &uploads {
            if let Some(label) = &upload.about.content.label {
                data.runs.push(LabelledRun::new(read(&upload.path)?, &label.label));
            }
        }
        let kind = ClassifierKind::recommended_for(&data);
        let plan = TrainingPlan::new(kind, ClassifierSettings::default()).map_err(unusable)?;
        let runs: Vec<&LabelledRun> = data.runs.iter().collect();
        let trained = TrainedClassifier::train(&plan, &runs, &[], control.stop(), |progress| {
            // Training ends by itself if it is cancelled.
            let _ = control.report(progress.epoch as u64, progress.n_epochs as u64);
        });
        let trained = trained.map_err(unusable)?;
        let provenance = Provenance {
            created: Some(SystemTime::now().into()),
            data: None,
            parent: Artifact::manifest(&self.trained).ok().map(|manifest| manifest.weights_sha256),
        };
        trained.write(&self.trained, &provenance).map_err(unusable)?;
        let in_use = Some((Arc::new(trained), "labels"));
        *self.classifier.write().unwrap_or_else(PoisonError::into_inner) = in_use;
        for upload in &uploads {
            let class = self.judge(&read(&upload.path)?).ok().map(|verdict| verdict.class);
            match self.uploads.change(&upload.name, |content| content.class = class) {
                // It has been deleted in the meantime.
                Err(UploadError::Missing(_)) => {}
                changed => drop(changed?),
            }
        }
        self.classifier().ok_or_else(|| unusable("the classifier was not kept"))
    }

    fn in_use(&self) -> Option<(Arc<TrainedClassifier>, &'static str)> {
        self.classifier.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn judge(&self, recording: &Recording) -> Result<Verdict, String> {
        let (classifier, _) = self.in_use().ok_or(
            "there is no classifier yet: label at least two runs of two kinds and train one, or name one in the \
             setting serve.workflow_model",
        )?;
        classifier.judge(&recording.run).map_err(|reason| reason.to_string())
    }
}

impl RunChart {
    fn new(recording: &Recording) -> Self {
        let gantt = Gantt::new(&recording.run);
        let mut kinds: Vec<String> = gantt.rows.iter().map(|row| row.kind.clone()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let place = |kind: &String| kinds.binary_search(kind).unwrap_or(0);
        let role = |role: TaskRole| match role {
            TaskRole::Compute => 0,
            TaskRole::Transfer => 1,
            TaskRole::Auxiliary => 2,
        };
        let rows = &gantt.rows;
        let end =
            |part: usize| rows.iter().map(|row| (row.ends[part] * ROUNDING).round() / ROUNDING).collect();
        Self {
            start: recording.run.start().unwrap_or(0.0),
            seconds: gantt.seconds,
            parts: std::array::from_fn(|part| Part::ALL[part].name()),
            workflows: vec![String::new()],
            task: rows.iter().map(|row| row.task.clone()).collect(),
            kind: rows.iter().map(|row| place(&row.kind)).collect(),
            workflow: vec![0; rows.len()],
            role: rows.iter().map(|row| role(row.role)).collect(),
            attempt: rows.iter().map(|row| row.attempt).collect(),
            failed: rows.iter().map(|row| u8::from(row.has_failed)).collect(),
            critical: rows.iter().map(|row| u8::from(row.is_critical)).collect(),
            ends: std::array::from_fn(end),
            kinds,
        }
    }
}

fn read(path: &Path) -> Result<Recording, UploadError> {
    workflows::read::read_one(path, &LIMITS).map_err(|error| UploadError::in_file(path, &error))
}

fn unusable(error: impl std::fmt::Display) -> UploadError {
    UploadError::Content(error.to_string())
}
