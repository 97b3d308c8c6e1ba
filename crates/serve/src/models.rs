//! The model that the service uses: the champion of the registry, or the first one, which is trained here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use archive::{Archive, Selection};
use detect::{DetectorConfig, Library, Start, TrainedDetector, Training, TrainingStep};
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
    /// Labelled jobs and confirmed anomalies that events are compared with.
    pub library: Library,
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
        start: Start::Random,
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
