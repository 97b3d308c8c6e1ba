//! Workflow runs that people send: their charts, the classifier that judges them, and the labels that people give them.

mod chart;
mod classifier;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize};
use workflows::classify::{
    ClassifierKind, ClassifierSettings, MissingInput, TrainedClassifier, TrainingPlan, Verdict,
};
use workflows::compare::{Comparison, compare};
use workflows::{Dataset, LabelledRun, Recording};
use workload::{Control, Timestamp};

pub use self::chart::RunChart;
use self::classifier::Classifiers;
pub use self::classifier::{ClassifierInUse, ClassifierSource, Judge, Turn};
use crate::uploads::{LIMITS, NewUpload, Upload, UploadError, UploadName, Uploads};

/// Changed tasks in a comparison.
const MAX_CHANGES: usize = 1_000;
/// Labels that are remembered for a run.
const MAX_LABELS: usize = 100;

/// What is known about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunContent {
    pub seconds: f64,
    pub attempts: usize,
    pub failed: usize,
    /// What the classifier said last.
    pub class: Option<String>,
    /// What people said; the last one counts. Older documents have one label or none.
    #[serde(default, alias = "label", deserialize_with = "one_or_several")]
    pub labels: Vec<RunLabel>,
}

impl RunContent {
    /// The label that counts.
    pub fn label(&self) -> Option<&RunLabel> {
        self.labels.last()
    }

    /// Adds a label. Saying the same thing again changes nothing but its time.
    fn add(&mut self, label: RunLabel) {
        self.labels.pop_if(|last| last.is_like(&label));
        self.labels.push(label);
        let n_surplus = self.labels.len().saturating_sub(MAX_LABELS);
        self.labels.drain(..n_surplus);
    }

    /// Removes the last label that somebody gave; false if there is none.
    fn withdraw(&mut self, actor: &str) -> bool {
        let place = self.labels.iter().rposition(|label| label.actor == actor);
        place.map(|place| self.labels.remove(place)).is_some()
    }
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RunLabel>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Labels {
        Several(Vec<RunLabel>),
        One(Option<RunLabel>),
    }
    Ok(match Labels::deserialize(deserializer)? {
        Labels::Several(labels) => labels,
        Labels::One(label) => label.into_iter().collect(),
    })
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

    fn is_like(&self, other: &Self) -> bool {
        (&self.label, &self.comment, &self.actor) == (&other.label, &other.comment, &other.actor)
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

/// The runs of the service.
pub struct WorkflowRuns {
    uploads: Uploads<RunContent>,
    classifiers: Classifiers,
}

impl WorkflowRuns {
    /// Opens the runs below `data`. `model` is used until a classifier is trained with labels.
    pub fn open(data: &Path, model: Option<&Path>) -> Result<Self, workflows::Error> {
        let classifiers = Classifiers::open(data, model)?;
        Ok(Self { uploads: Uploads::open(data.join("workflows"))?, classifiers })
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
            labels: Vec::new(),
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

    /// Labels a run.
    pub fn label(&self, name: &UploadName, label: RunLabel) -> Result<Upload<RunContent>, UploadError> {
        self.uploads.change(name, |content| content.add(label))
    }

    /// Withdraws the last label that somebody gave to a run, so that the one before counts again; `None` if there is no
    /// label of theirs.
    pub fn withdraw_label(
        &self,
        name: &UploadName,
        actor: &str,
    ) -> Result<Option<Upload<RunContent>>, UploadError> {
        let mut is_found = false;
        let changed = self.uploads.change(name, |content| is_found = content.withdraw(actor))?;
        Ok(is_found.then_some(changed))
    }

    /// The classifier in use, if there is one.
    pub fn classifier(&self) -> Option<ClassifierInUse> {
        Some(self.classifiers.in_use()?.about())
    }

    /// Whether the classifier in use was trained with labels.
    pub fn is_trained(&self) -> bool {
        self.classifier().is_some_and(|one| one.from == ClassifierSource::Labels)
    }

    /// Whether the settings name a classifier.
    pub const fn has_configured(&self) -> bool {
        self.classifiers.configured().is_some()
    }

    /// The right to replace the classifier; `None` while somebody has it.
    pub fn turn(&self) -> Option<Turn> {
        self.classifiers.turn()
    }

    /// How many runs have each label.
    pub fn labels(&self) -> Result<BTreeMap<String, usize>, UploadError> {
        let mut counts = BTreeMap::new();
        for upload in self.uploads.list()? {
            if let Some(label) = upload.about.content.label() {
                *counts.entry(label.label.clone()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Trains a classifier with the labelled runs and judges all runs. After that, `note` is told, and then the new
    /// classifier takes over; until then, everything stays as it was.
    pub fn train(
        &self,
        turn: &Turn,
        control: Control<'_>,
        note: impl FnOnce(&ClassifierInUse) -> Result<(), UploadError>,
    ) -> Result<ClassifierInUse, UploadError> {
        let uploads = self.uploads.list()?;
        let mut data = Dataset::default();
        for upload in &uploads {
            if let Some(label) = upload.about.content.label() {
                data.runs.push(LabelledRun::new(read(&upload.path)?, &label.label));
            }
        }
        let kind = ClassifierKind::recommended_for(&data);
        let plan = TrainingPlan::new(kind, ClassifierSettings::default()).map_err(unusable)?;
        let runs: Vec<&LabelledRun> = data.runs.iter().collect();
        let trained = TrainedClassifier::train(&plan, &runs, &[], control.stop(), |progress| {
            // Training ends by itself if it is cancelled. It counts for half of the operation.
            let _ = control.report(progress.epoch as u64, 2 * progress.n_epochs as u64);
        });
        let new = Judge::new(trained.map_err(unusable)?);
        let classes = classes_of(Some(&new), &uploads, control)?;
        let about = new.about();
        note(&about)?;
        self.classifiers.replace(turn, new).map_err(unusable)?;
        self.note_classes(classes);
        Ok(about)
    }

    /// Goes back to the classifier of the settings, if there is one, in the same steps.
    pub fn go_back(
        &self,
        turn: &Turn,
        control: Control<'_>,
        note: impl FnOnce() -> Result<(), UploadError>,
    ) -> Result<Option<ClassifierInUse>, UploadError> {
        let uploads = self.uploads.list()?;
        let configured = self.classifiers.configured();
        let classes = classes_of(configured, &uploads, control)?;
        note()?;
        self.classifiers.go_back(turn).map_err(unusable)?;
        self.note_classes(classes);
        Ok(configured.map(Judge::about))
    }

    /// Notes the classes of the runs. The classifier has changed already, so whatever goes wrong is only reported.
    fn note_classes(&self, mut classes: Classes) {
        let uploads = self.uploads.list().unwrap_or_else(|error| {
            tracing::warn!("the classes of workflow runs are not up to date: {error}");
            Vec::new()
        });
        for upload in &uploads {
            // Runs may have come in the meantime.
            let class = classes
                .remove(&key(upload))
                .unwrap_or_else(|| class_of(self.classifiers.in_use().as_ref(), upload));
            match self.uploads.change(&upload.name, |content| content.class = class) {
                // Or they may have been deleted.
                Ok(_) | Err(UploadError::Missing(_)) => {}
                Err(error) => tracing::warn!("the class of {} is not up to date: {error}", upload.name),
            }
        }
    }

    fn judge(&self, recording: &Recording) -> Result<Verdict, String> {
        let judge = self.classifiers.in_use().ok_or(
            "there is no classifier yet: label at least two runs of two kinds and train one, or name one in the \
             setting serve.workflow_model",
        )?;
        judge.judge(recording)
    }
}

/// A run is another one if it was deleted and sent again.
type Key = (UploadName, Timestamp);
type Classes = BTreeMap<Key, Option<String>>;

fn key(upload: &Upload<RunContent>) -> Key {
    (upload.name.clone(), upload.about.uploaded)
}

/// What a classifier says about each run; nothing about those that cannot be read.
fn classes_of(
    judge: Option<&Judge>,
    uploads: &[Upload<RunContent>],
    control: Control<'_>,
) -> Result<Classes, UploadError> {
    let mut classes = Classes::new();
    let n_uploads = uploads.len() as u64;
    for (done, upload) in uploads.iter().enumerate() {
        control.report(n_uploads + done as u64, 2 * n_uploads).map_err(unusable)?;
        classes.insert(key(upload), class_of(judge, upload));
    }
    control.check().map_err(unusable)?;
    Ok(classes)
}

fn class_of(judge: Option<&Judge>, upload: &Upload<RunContent>) -> Option<String> {
    let judge = judge?;
    match read(&upload.path) {
        Ok(recording) => Some(judge.judge(&recording).ok()?.class),
        Err(error) => {
            tracing::warn!("{} is not classified: {error}", upload.name);
            None
        }
    }
}

fn read(path: &Path) -> Result<Recording, UploadError> {
    workflows::read::read_one(path, &LIMITS).map_err(|error| UploadError::in_file(path, &error))
}

fn unusable(error: impl std::fmt::Display) -> UploadError {
    UploadError::Content(error.to_string())
}

#[cfg(test)]
mod tests;
