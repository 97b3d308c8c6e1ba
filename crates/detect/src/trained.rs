//! A trained detector: its weights, thresholds and origin, in memory and on disk.

use std::ops::RangeInclusive;
use std::path::Path;

use archive::Archive;
use learn::artifact::restore::RestoreError;
use learn::artifact::{Artifact, ArtifactError, DataOrigin, Provenance, Tensors};
use learn::family::{Family, Stored};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use workload::Millis;

use crate::archive_windows::{has_period, period_of};
use crate::autoencoder::net::{Net, Shape};
use crate::autoencoder::{Autoencoder, GraphScope};
use crate::calibration::Calibration;
use crate::channel::{N_RATES, names};
use crate::config::{DetectorConfig, ValidConfig};
use crate::detector::{Detector, DetectorKind, Finding};
use crate::ensemble::Ensemble;
use crate::error::DetectError;
use crate::evidence::Confirmation;
use crate::explain::Explanation;
use crate::hierarchy::Hierarchy;
use crate::nearest::Nearest;
use crate::pca::Components;
use crate::variational::Variational;
use crate::window::{WindowBatch, WindowSpec};

/// The sampling periods that a detector may be for.
const PERIODS: RangeInclusive<Millis> = Millis(1)..=Millis(86_400_000);

/// What a detector was trained on, and its error on validation data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The address of the archive.
    pub archive: String,
    pub seed: u64,
    /// The number of training windows.
    pub n_windows: usize,
    /// The number of windows they were sampled from.
    #[serde(alias = "n_seen")]
    pub n_available: usize,
    /// The mean reconstruction error on validation data.
    pub validation_error: f64,
}

/// A detector with its thresholds.
pub struct TrainedDetector {
    pub kind: DetectorKind,
    pub config: ValidConfig,
    /// The sampling period of the training data.
    pub period: Millis,
    /// The thresholds of events; absent in models that were trained before there were events.
    pub calibration: Option<Calibration>,
    pub origin: Origin,
    /// The training data; absent in models of the first format.
    pub data: Option<DataOrigin>,
    pub(crate) detector: Box<dyn Detector>,
}

/// The manifest's description of a detector.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(rename = "model")]
    kind: DetectorKind,
    config: DetectorConfig,
    period_ms: i64,
    channels: Vec<String>,
    /// Thresholds of windows, which earlier versions had. They are not used.
    #[serde(default, skip_serializing, rename = "thresholds")]
    _thresholds: IgnoredAny,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calibration: Option<Calibration>,
    origin: Origin,
}

impl TrainedDetector {
    /// One finding for each window of a batch.
    pub fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        if batch.threads().is_empty() { Vec::new() } else { self.detector.examine(batch) }
    }

    /// Explains some windows of a batch, given the findings of the whole batch.
    pub fn explain(&self, batch: &WindowBatch, findings: &[Finding], windows: &[usize]) -> Vec<Explanation> {
        if windows.is_empty() {
            return Vec::new();
        }
        self.detector.explain(batch, findings, windows, &self.window_spec(1))
    }

    /// The largest ratio of a window's own evidence to its threshold; `None` without thresholds.
    pub fn strength(&self, finding: &Finding, kind: Option<&str>) -> Option<f64> {
        self.calibration.as_ref().map(|calibration| calibration.strength(finding, kind))
    }

    /// Whether a detector of another kind can start with the weights of this one.
    pub fn can_start(&self, kind: DetectorKind, config: &ValidConfig) -> bool {
        self.net_for(kind, config, 0).is_some()
    }

    /// The network of a member, for a detector of another kind; `None` if its shape is different.
    pub(crate) fn net_for(&self, kind: DetectorKind, config: &ValidConfig, member: usize) -> Option<Net> {
        let (tensors, n_members) = (self.detector.tensors(), self.config.n_members(self.kind));
        let own = if n_members > 1 { Ensemble::tensors_of(&tensors, member % n_members) } else { tensors };
        kind.is_random().then(|| Net::restore(&config.net, shape_of(kind, config), &own).ok()).flatten()
    }

    /// The windows that events are made from.
    pub fn event_spec(&self) -> WindowSpec {
        self.config.event_spec(self.period)
    }

    /// How long evidence has to last before it opens an event.
    pub fn confirmation(&self) -> Confirmation {
        self.config.confirmation(self.period)
    }

    /// The windows it expects, one every `stride` steps.
    pub fn window_spec(&self, stride: usize) -> WindowSpec {
        self.config.window_spec(self.period, stride)
    }

    /// The length of a window in seconds.
    pub fn window_seconds(&self) -> f64 {
        self.window_spec(1).length().as_seconds()
    }

    /// The number of dimensions of its embeddings.
    pub fn n_embedding(&self) -> usize {
        self.config.net.n_latent
    }

    /// The number of fitted parameters.
    pub fn n_weights(&self) -> usize {
        self.detector.tensors().values().map(|tensor| tensor.len()).sum()
    }

    /// The names of its channels.
    pub fn channels(&self) -> Vec<&'static str> {
        names(&self.config.channels)
    }

    pub fn to_artifact(&self, provenance: &Provenance) -> Result<Artifact, DetectError> {
        let body = Body {
            kind: self.kind,
            config: (*self.config).clone(),
            period_ms: self.period.0,
            channels: self.channels().into_iter().map(str::to_owned).collect(),
            _thresholds: IgnoredAny,
            calibration: self.calibration.clone(),
            origin: self.origin.clone(),
        };
        let data = provenance.data.clone().or_else(|| self.data.clone());
        let provenance = Provenance { data, ..provenance.clone() };
        Ok(self.kind.to_artifact(&body, self.detector.tensors(), &provenance)?)
    }

    /// Writes the model to a directory; a model that is there is replaced atomically.
    pub fn write(&self, dir: &Path, provenance: &Provenance) -> Result<(), DetectError> {
        Ok(self.to_artifact(provenance)?.write(dir)?)
    }

    pub fn read(dir: &Path) -> Result<Self, DetectError> {
        let Stored { body, tensors, provenance, .. }: Stored<DetectorKind, Body> = DetectorKind::read(dir)?;
        let damaged = |reason: String| ArtifactError::damaged(dir, reason);
        let Body { kind, mut config, period_ms, channels, calibration, origin, .. } = body;
        config.false_alarm_rate = None;
        let config = config.validate().map_err(|error| damaged(error.to_string()))?;
        if channels != names(&config.channels) {
            return Err(damaged(format!("it is for the channels {}", channels.join(", "))).into());
        }
        let invalid = |error: RestoreError| damaged(error.to_string());
        if let Some(calibration) = &calibration {
            calibration.check().map_err(invalid)?;
        }
        let period = Millis(period_ms);
        if !PERIODS.contains(&period) {
            return Err(damaged(format!("it is for a sampling period of {period_ms} ms")).into());
        }
        let detector = restore_all(kind, &config, &tensors).map_err(invalid)?;
        Ok(Self { kind, config, period, calibration, origin, data: provenance.data, detector })
    }

    /// Checks that nodes of an archive were sampled as often as the training data. Those that were sampled
    /// less often are left out.
    pub fn check_period(&self, archive: &Archive) -> Result<(), DetectError> {
        if has_period(archive, self.period, self.config.interval.is_some())? {
            return Ok(());
        }
        Err(DetectError::Period {
            address: archive.address().to_owned(),
            found: period_of(archive)?.as_seconds(),
            expected: self.period.as_seconds(),
        })
    }
}

/// Which threads exchange messages in a detector's network.
pub(crate) fn scope_of(kind: DetectorKind) -> GraphScope {
    match kind {
        DetectorKind::NodeGnn => GraphScope::Node,
        DetectorKind::JobGnn => GraphScope::Job,
        _ => GraphScope::Thread,
    }
}

pub(crate) fn new_net(kind: DetectorKind, config: &ValidConfig, seed: u64) -> Net {
    Net::new(&config.net, shape_of(kind, config), seed)
}

fn shape_of(kind: DetectorKind, config: &DetectorConfig) -> Shape {
    Shape {
        n_steps: config.window,
        n_channels: N_RATES + config.channels.len(),
        has_graph: scope_of(kind) != GraphScope::Thread,
        is_variational: kind == DetectorKind::Vae,
    }
}

/// A detector, or all members of an ensemble.
fn restore_all(
    kind: DetectorKind,
    config: &ValidConfig,
    tensors: &Tensors,
) -> Result<Box<dyn Detector>, RestoreError> {
    if config.n_members(kind) == 1 {
        return restore(kind, config, tensors);
    }
    let members: Result<Vec<Box<dyn Detector>>, RestoreError> = (0..config.n_members(kind))
        .map(|member| restore(kind, config, &Ensemble::tensors_of(tensors, member)))
        .collect();
    Ensemble::of(members?).ok_or_else(|| RestoreError::Invalid("it has no members".to_owned()))
}

fn restore(
    kind: DetectorKind,
    config: &ValidConfig,
    tensors: &Tensors,
) -> Result<Box<dyn Detector>, RestoreError> {
    let shape = shape_of(kind, config);
    let network = || Net::restore(&config.net, shape, tensors);
    let (n_latent, size) = (config.net.n_latent, shape.n_steps * shape.n_channels);
    Ok(match kind {
        DetectorKind::Ae | DetectorKind::NodeGnn | DetectorKind::JobGnn => {
            Box::new(Autoencoder { net: network()?, scope: scope_of(kind) })
        }
        DetectorKind::Vae => Box::new(Variational { net: network()? }),
        DetectorKind::Hierarchy => {
            let base = Autoencoder { net: network()?, scope: GraphScope::Thread };
            Box::new(Hierarchy::restore(base, tensors)?)
        }
        DetectorKind::Pca => Box::new(Components::restore(tensors, n_latent, size)?),
        DetectorKind::Nearest => Box::new(Nearest::restore(tensors, n_latent, size)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_foreign_model_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/artifact/threads-v1");
        let model = TrainedDetector::read(&golden).unwrap();
        assert_eq!(
            (model.kind, model.period, model.data.as_ref()),
            (DetectorKind::Hierarchy, Millis(1_000), None)
        );
        for file in ["manifest.json", "weights.safetensors"] {
            std::fs::copy(golden.join(file), dir.path().join(file)).unwrap();
        }
        let manifest = dir.path().join("manifest.json");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let rejected = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            std::fs::write(&manifest, text.replace(from, to)).unwrap();
            TrainedDetector::read(dir.path()).err().unwrap().to_string()
        };
        assert!(
            rejected("threads/hierarchy", "jobs/hierarchy").contains("is a model of kind jobs/hierarchy")
        );
        assert!(rejected("\"hierarchy\"", "\"pca\"").contains("damaged"));
        assert!(rejected("\"other\"", "\"memory\"").contains("channels"));
        assert!(rejected("\"window\": 40", "\"window\": 0").contains("window must be at least 1"));
        assert!(rejected("\"n_latent\": 4", "\"n_latent\": 5").contains("damaged"));
        for period in ["0", "-1000", "9223372036854775807"] {
            let change = format!("\"period_ms\": {period}");
            assert!(rejected("\"period_ms\": 1000", &change).contains("sampling period"));
        }
        let large = rejected("\"n_hidden\": 16", "\"n_hidden\": 1000000000000");
        assert!(large.contains("net.n_hidden must be at most"), "{large}");
        assert!(TrainedDetector::read(&golden.join("..")).is_err());
    }
}
