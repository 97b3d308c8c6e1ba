//! The model that the service uses: the champion of the registry, or the first one, which is trained here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use archive::{Archive, Selection};
use detect::{DetectorConfig, KnownJobs, LabelledPoint, Library, TrainedDetector, Training, TrainingStep};
use learn::artifact::Provenance;
use lifecycle::Registry;
use workload::{Control, Millis, NodeName, Stop, Timestamp};

use crate::error::ServeError;
use crate::settings::ScoringSettings;

/// A model and its version.
#[derive(Clone)]
pub struct Model {
    pub version: String,
    pub detector: Arc<TrainedDetector>,
    /// Labelled jobs that events are compared with.
    pub library: Library,
}

impl Model {
    pub fn new(version: String, detector: TrainedDetector, archive: &Archive, stop: &Stop) -> Self {
        let library = library(&detector, archive, stop).unwrap_or_else(|error| {
            tracing::warn!("events are not compared with labelled jobs: {error}");
            Library::default()
        });
        Self { version, detector: Arc::new(detector), library }
    }
}

/// The labelled jobs of the archive.
fn library(detector: &TrainedDetector, archive: &Archive, stop: &Stop) -> Result<Library, ServeError> {
    let labels = archive.labels()?;
    if labels.is_empty() {
        return Ok(Library::default());
    }
    let points = LabelledPoint::of_archive(detector, archive, Control::new(stop, &|_, _| {}))?;
    Ok(Library::new(points, KnownJobs::new(&labels)))
}

/// The last reading of each node.
pub fn last_readings(archive: &Archive) -> archive::Result<BTreeMap<NodeName, Timestamp>> {
    let snapshot = archive.snapshot(Selection::default())?;
    let bounds =
        snapshot.nodes().into_iter().filter_map(|node| Some((node.clone(), snapshot.bounds(&node)?.1)));
    Ok(bounds.collect())
}

/// How much time of readings the archive has, at the node with the most.
pub fn recorded(archive: &Archive) -> Result<Millis, archive::Error> {
    let snapshot = archive.snapshot(Selection::default())?;
    let spans = snapshot.nodes().into_iter().filter_map(|node| snapshot.bounds(&node));
    Ok(spans.map(|(first, last)| last - first).max().unwrap_or(Millis(0)))
}

/// Trains a model with all that the archive has, and writes it to a new directory of the registry. Returns its version.
pub fn train(
    archive: &Archive,
    registry: &Registry,
    scoring: &ScoringSettings,
    config: &DetectorConfig,
    stop: &Stop,
    tell: impl Fn(&str) + Sync,
) -> Result<String, ServeError> {
    let config = config.clone().validate().map_err(detect::DetectError::from)?;
    let report = |_, _| {};
    let training = Training {
        kind: scoring.detector,
        config: &config,
        seed: config.train.seed,
        checkpoint: None,
        parent: None,
        control: Control::new(stop, &report),
    };
    let detector = training.run(&archive.with_stop(stop), |step| match step {
        TrainingStep::Epoch(epoch) => tell(&format!("epoch {} of {}", epoch.epoch, epoch.n_epochs)),
        TrainingStep::Calibrating => tell("setting thresholds with held-out jobs"),
        TrainingStep::Resumed { .. } => {}
    })?;
    let now = Timestamp::from(SystemTime::now());
    let version = format!("v{}", now.0 / 1_000);
    detector.write(&registry.path(&version), &Provenance::at(now))?;
    Ok(version)
}
