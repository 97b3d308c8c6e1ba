//! Candidates that other processes train, such as the tasks of a Slurm job array. They share a directory: the assignment
//! is a file in it, and each candidate adds its model and then its figures. They do not use the metadata store.

use std::path::{Path, PathBuf};

use archive::Archive;
use detect::{DetectError, DetectorConfig, Event, Scope, TrainedDetector};
use learn::artifact::Provenance;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use workload::Control;

use super::arena::{Arena, Entered, Entrant};
use super::{Candidate, NightError, NightStep};

const FILE: &str = "assignment.json";
/// The largest assignment or result that is read.
const MAX_BYTES: u64 = 64 << 20;

/// What is needed to train and judge the candidates of a night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The address of the data.
    pub archive: String,
    pub scope: Scope,
    pub anomalies: Vec<Event>,
    /// The directory of the champion.
    pub champion: Option<PathBuf>,
    pub entrants: Vec<Entrant>,
    pub detector: DetectorConfig,
    pub seed: u64,
}

impl Assignment {
    /// Writes it to a new directory.
    pub fn write(&self, folder: &Path) -> Result<(), NightError> {
        files::create_dirs(folder)?;
        write(&folder.join(FILE), self)
    }

    pub fn read(folder: &Path) -> Result<Self, NightError> {
        read(&folder.join(FILE))
    }

    /// Trains and judges one of the candidates, and writes the result. Done again, it replaces the result.
    pub fn enter(
        &self,
        number: usize,
        folder: &Path,
        archive: &Archive,
        control: Control<'_>,
        mut tell: impl FnMut(NightStep<'_>),
    ) -> Result<Candidate, NightError> {
        let Some(entrant) = self.entrants.get(number) else {
            let reason = format!("there is no candidate {number}; it has {}", self.entrants.len());
            return Err(NightError::Assignment { path: folder.join(FILE), reason });
        };
        tell(NightStep::Preparing);
        let config = self.detector.clone().validate().map_err(DetectError::from)?;
        let arena = Arena::new(archive, self.scope.clone(), &self.anomalies, &config, self.seed, control)?;
        let champion = self.champion.as_deref().map(TrainedDetector::read).transpose()?;
        let Entered { candidate, detector } = arena.enter(*entrant, champion.as_ref(), &[], &mut tell)?;
        if let Some(detector) = detector {
            detector.write(&model_path(folder, number), &Provenance::default())?;
        }
        // The figures come last: a candidate without them has no result.
        write(&figures_path(folder, number), &candidate)?;
        Ok(candidate)
    }

    /// Whether all candidates have a result.
    pub fn is_complete(&self, folder: &Path) -> bool {
        (0..self.entrants.len()).all(|number| figures_path(folder, number).exists())
    }

    /// The results that are there. A candidate without one is out.
    pub(super) fn results(&self, folder: &Path) -> Vec<Entered> {
        let result = |(number, entrant): (usize, &Entrant)| {
            entered(folder, number).unwrap_or_else(|error| {
                let missing = !figures_path(folder, number).exists();
                let reason = if missing { "it has no result".into() } else { error.to_string() };
                let candidate = Candidate {
                    name: entrant.to_string(),
                    figures: None,
                    objection: Some(reason),
                    epochs: Vec::new(),
                    training_seconds: 0.0,
                    judging_seconds: 0.0,
                };
                Entered { candidate, detector: None }
            })
        };
        self.entrants.iter().enumerate().map(result).collect()
    }
}

fn entered(folder: &Path, number: usize) -> Result<Entered, NightError> {
    let candidate: Candidate = read(&figures_path(folder, number))?;
    let detector = match candidate.figures {
        Some(_) => Some(TrainedDetector::read(&model_path(folder, number))?),
        None => None,
    };
    Ok(Entered { candidate, detector })
}

fn model_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("candidate-{number}"))
}

fn figures_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("candidate-{number}.json"))
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), NightError> {
    let failed = |error: serde_json::Error| wrong(path, error.to_string());
    Ok(files::write(path, &serde_json::to_vec_pretty(value).map_err(failed)?)?)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, NightError> {
    let size = std::fs::metadata(path).map_err(|error| wrong(path, error.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(wrong(path, format!("it has more than {MAX_BYTES} bytes")));
    }
    let text = std::fs::read(path).map_err(|error| wrong(path, error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| wrong(path, error.to_string()))
}

fn wrong(path: &Path, reason: String) -> NightError {
    NightError::Assignment { path: path.to_owned(), reason }
}
