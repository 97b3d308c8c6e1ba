//! The classifiers of the service: the one in the settings, and the one that was trained with labels here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use learn::artifact::{Artifact, Provenance};
use serde::Serialize;
use utoipa::ToSchema;
use workflows::Recording;
use workflows::classify::{TrainedClassifier, Verdict};
use workload::Timestamp;

/// Below the data of the service: the classifier that was trained with labels, and the one that it replaced.
const TRAINED: &str = "workflow-classifier";
const PREVIOUS: &str = "workflow-classifier-previous";

/// Where a classifier comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClassifierSource {
    /// The setting `serve.workflow_model`.
    Settings,
    /// Trained with the labels of the service.
    Labels,
}

/// A classifier in use.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ClassifierInUse {
    /// What kind of classifier it is, such as `slowdown`.
    pub kind: &'static str,
    pub classes: Vec<String>,
    /// The number of its training runs.
    pub n_runs: usize,
    /// When it was trained, in seconds since 1970; null if that is not known.
    pub trained: Option<f64>,
    pub from: ClassifierSource,
}

/// A classifier that can judge.
#[derive(Clone)]
pub struct Judge {
    classifier: Arc<TrainedClassifier>,
    trained: Option<Timestamp>,
    from: ClassifierSource,
}

impl Judge {
    /// A classifier that has just been trained.
    pub fn new(classifier: TrainedClassifier) -> Self {
        let trained = Some(SystemTime::now().into());
        Self { classifier: Arc::new(classifier), trained, from: ClassifierSource::Labels }
    }

    fn read(path: &Path, from: ClassifierSource) -> Result<Self, workflows::Error> {
        let classifier = Arc::new(TrainedClassifier::read(path)?);
        Ok(Self { classifier, trained: Artifact::manifest(path)?.provenance.created, from })
    }

    pub fn judge(&self, recording: &Recording) -> Result<Verdict, String> {
        self.classifier.judge(&recording.run).map_err(|reason| reason.to_string())
    }

    pub fn about(&self) -> ClassifierInUse {
        ClassifierInUse {
            kind: self.classifier.kind.name(),
            classes: self.classifier.classes.clone(),
            n_runs: self.classifier.origin.n_runs,
            trained: self.trained.map(|time| time.0 as f64 / 1e3),
            from: self.from,
        }
    }
}

/// The right to replace the classifier; one at a time.
#[derive(Debug)]
pub struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The classifiers of the service.
pub struct Classifiers {
    data: PathBuf,
    configured: Option<Judge>,
    in_use: RwLock<Option<Judge>>,
    is_changing: Arc<AtomicBool>,
}

impl Classifiers {
    /// Opens the classifiers. `model` is used until one is trained with labels. One that was trained here and is damaged
    /// is not used: the service has other work.
    pub fn open(data: &Path, model: Option<&Path>) -> Result<Self, workflows::Error> {
        let configured = model.map(|path| Judge::read(path, ClassifierSource::Settings)).transpose()?;
        let path = data.join(TRAINED);
        let trained = match path.is_dir().then(|| Judge::read(&path, ClassifierSource::Labels)) {
            None => None,
            Some(Ok(trained)) => Some(trained),
            Some(Err(error)) => {
                tracing::warn!("the classifier that was trained with labels is not used: {error}");
                None
            }
        };
        let in_use = RwLock::new(trained.or_else(|| configured.clone()));
        Ok(Self { data: data.to_owned(), configured, in_use, is_changing: Arc::default() })
    }

    pub fn in_use(&self) -> Option<Judge> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub const fn configured(&self) -> Option<&Judge> {
        self.configured.as_ref()
    }

    /// The right to replace the classifier; `None` while somebody has it.
    pub fn turn(&self) -> Option<Turn> {
        let is_taken = self.is_changing.swap(true, Ordering::AcqRel);
        (!is_taken).then(|| Turn(self.is_changing.clone()))
    }

    /// Writes a classifier that was trained with labels, and uses it. The one that it replaces is kept.
    pub fn replace(&self, _turn: &Turn, new: Judge) -> Result<(), workflows::Error> {
        let (path, previous) = (self.data.join(TRAINED), self.data.join(PREVIOUS));
        let mut parent = None;
        if path.exists() {
            remove(&previous)?;
            match Artifact::read(&path, "workflows") {
                Ok(replaced) => {
                    replaced.write(&previous)?;
                    parent = Some(Artifact::manifest(&path)?.weights_sha256);
                }
                // It is damaged, so nobody uses it.
                Err(_) => fs::rename(&path, &previous).map_err(files::Error::io(&path))?,
            }
        }
        let provenance = Provenance { created: new.trained, data: None, parent };
        new.classifier.write(&path, &provenance)?;
        self.set(Some(new));
        Ok(())
    }

    /// Goes back to the classifier of the settings. The one that was trained with labels is kept.
    pub fn go_back(&self, _turn: &Turn) -> Result<(), workflows::Error> {
        let (path, previous) = (self.data.join(TRAINED), self.data.join(PREVIOUS));
        remove(&previous)?;
        fs::rename(&path, &previous).map_err(files::Error::io(&path))?;
        files::sync_dir(&self.data)?;
        self.set(self.configured.clone());
        Ok(())
    }

    fn set(&self, judge: Option<Judge>) {
        *self.in_use.write().unwrap_or_else(PoisonError::into_inner) = judge;
    }
}

fn remove(path: &Path) -> Result<(), files::Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files::Error::io(path)(error)),
        _ => Ok(()),
    }
}
