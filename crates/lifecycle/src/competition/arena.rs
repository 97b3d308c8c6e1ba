//! Entrants of a competition, and the data that all of them are trained and judged with.

use std::fmt;
use std::time::Instant;

use archive::Archive;
use detect::{
    DetectError, DetectorKind, Event, HeldOut, Sampler, Scope, Start, TrainedDetector, Training,
    TrainingData, TrainingStep, ValidConfig,
};
use serde::{Deserialize, Serialize};
use workload::{Control, Set};

use super::judge::Judge;
use super::{Candidate, EpochLoss, NightError, NightStep};

/// A detector that takes part, and whether its weights start from those of the champion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entrant {
    pub kind: DetectorKind,
    pub from_champion: bool,
}

impl fmt::Display for Entrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, if self.from_champion { ", from the champion" } else { "" })
    }
}

/// A candidate that was trained and judged.
pub struct Entered {
    pub candidate: Candidate,
    pub detector: Option<TrainedDetector>,
}

/// The data of a night.
pub struct Arena<'a> {
    archive: &'a Archive,
    config: &'a ValidConfig,
    seed: u64,
    control: Control<'a>,
    anomalies: &'a [Event],
    sampler: Sampler<'a>,
    pub data: TrainingData,
}

impl<'a> Arena<'a> {
    /// Reads the training data.
    pub fn new(
        archive: &'a Archive,
        scope: Scope,
        anomalies: &'a [Event],
        config: &'a ValidConfig,
        seed: u64,
        control: Control<'a>,
    ) -> Result<Self, NightError> {
        let sampler = Sampler::of_scope(archive, scope, config, seed, control)?;
        let data = sampler.training_data()?;
        Ok(Self { archive, config, seed, control, anomalies, sampler, data })
    }

    pub fn judge(&self) -> Judge<'_> {
        Judge {
            archive: self.archive,
            test: self.sampler.filter(Set::Test),
            anomalies: self.anomalies,
            control: self.control,
        }
    }

    /// Trains and judges a candidate. One that cannot be trained does not end the night; a request to stop does.
    /// `trained` are the candidates before it.
    pub fn enter(
        &self,
        entrant: Entrant,
        champion: Option<&TrainedDetector>,
        trained: &[Entered],
        tell: &mut impl FnMut(NightStep<'_>),
    ) -> Result<Entered, NightError> {
        let Entrant { kind, from_champion } = entrant;
        let name = entrant.to_string();
        let mut trained = trained.iter().filter_map(|other| other.detector.as_ref());
        let start = match (champion.filter(|_| from_champion), trained.find(|other| has_network(other, kind)))
        {
            (Some(champion), _) => Start::From(champion),
            (None, Some(trained)) => Start::Trained(trained),
            (None, None) => Start::Random,
        };
        let training = Training {
            kind,
            config: self.config,
            seed: self.seed,
            checkpoint: None,
            start,
            control: self.control,
        };
        let mut epochs = Vec::new();
        let begin = Instant::now();
        let outcome = training.fit(&self.data, &HeldOut::Archive(&self.sampler), |step| {
            if let TrainingStep::Epoch(epoch) = step {
                epochs.push(EpochLoss { training: epoch.loss, validation: epoch.validation });
            }
            tell(NightStep::Training { candidate: &name, step });
        });
        let training_seconds = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let outcome = outcome.and_then(|detector| {
            tell(NightStep::Judging { candidate: &name });
            Ok((self.judge().figures(&detector)?, detector))
        });
        let judging_seconds = begin.elapsed().as_secs_f64();
        let candidate =
            Candidate { name, figures: None, objection: None, epochs, training_seconds, judging_seconds };
        match outcome {
            Ok((figures, detector)) => Ok(Entered {
                candidate: Candidate { figures: Some(figures), ..candidate },
                detector: Some(detector),
            }),
            Err(error @ DetectError::Stopped(_)) => Err(error.into()),
            Err(error) => Ok(Entered {
                candidate: Candidate { objection: Some(error.to_string()), ..candidate },
                detector: None,
            }),
        }
    }
}

/// Whether a candidate from random weights would get the same network as one that has been trained: the hierarchy is
/// built on an autoencoder of single threads.
fn has_network(trained: &TrainedDetector, kind: DetectorKind) -> bool {
    trained.kind == DetectorKind::Ae && kind == DetectorKind::Hierarchy
}
