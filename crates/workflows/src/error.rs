//! Errors of reading, training, evaluating and recording workflow runs.

use std::path::Path;

use learn::extra_trees::ExtraTreesError;

use crate::classify::ClassifierKind;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("{text:?} is not a fault: expected cpu_K, hdd_K or loss_P, such as cpu_2, hdd_50 or loss_0.5")]
    UnknownFault { text: String },
    #[error("a fault cannot take {taken} cores from machines with {cores}")]
    TooFewCores { taken: u32, cores: u32 },
    #[error("a cap of {cap} MB/s has no effect on disks that write {uncapped} MB/s")]
    NoDiskSlowdown { cap: f64, uncapped: f64 },
    #[error("packet loss cannot be set up: {reason}")]
    PacketLoss { reason: String },
    #[error("no TCP port can be opened on the loopback interface: {source}")]
    Loopback { source: std::io::Error },
    #[error("the training set has {found} runs of class {class}; at least {needed} are needed")]
    TooFewRuns { class: String, found: usize, needed: usize },
    #[error("all training runs are of class {class}; {kind} needs at least two classes", kind = .kind.name())]
    SingleClass { kind: ClassifierKind, class: String },
    #[error("{kind} needs healthy runs, and no training run has the label `normal`", kind = .kind.name())]
    NoHealthyRuns { kind: ClassifierKind },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("the authors' protocol needs a file that lists the split")]
    NoSplit,
    #[error("no batches to leave out: file names need the form <workflow>-<batch>-runNNNN.csv")]
    NoBatches,
    #[error("tasks have no labels of their own: no run has a column anomaly_type")]
    NoTaskLabels,
    #[error("{found} runs have labelled tasks; at least {needed} are needed")]
    TooFewTaskLabels { found: usize, needed: usize },
    #[error("tasks cannot be ranked: all are anomalous, or all are healthy")]
    OneTaskClass,
    #[error("the image cannot be encoded: {0}")]
    Image(#[from] png::EncodingError),
    #[error(transparent)]
    Stopped(#[from] workload::Stopped),
    #[error(transparent)]
    Artifact(#[from] learn::artifact::ArtifactError),
    #[error(transparent)]
    Weights(#[from] learn::weights::WeightsError),
    #[error(transparent)]
    BoostedTrees(#[from] learn::boost::BoostError),
    #[error(transparent)]
    ExtraTrees(ExtraTreesError),
    #[error(transparent)]
    NetworkTraining(#[from] learn::nn::train::TrainSettingsError),
    #[error(transparent)]
    Report(#[from] report::ReportError),
}

impl From<ExtraTreesError> for Error {
    fn from(error: ExtraTreesError) -> Self {
        match error {
            ExtraTreesError::Stopped(stopped) => Self::Stopped(stopped),
            other => Self::ExtraTrees(other),
        }
    }
}

/// Training settings that contradict each other or the classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("{name} does not look at charts: pre-trained weights, augmentation and fine-tuning are for networks", name = .0.name())]
    NotANetwork(ClassifierKind),
    #[error("training needs at least one epoch")]
    NoEpochs,
    #[error("{name} is trained from scratch: it has no pre-trained weights", name = .0.name())]
    NoPretrainedWeights(ClassifierKind),
    #[error("augmentation has no effect on {name} unless all of its layers are trained", name = .0.name())]
    AugmentationNeedsFineTuning(ClassifierKind),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.display().to_string();
        |source| Self::Io { path, source }
    }

    pub fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }

    /// Whether the operation ended because it was asked to.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }
}
