//! An experiment: several detectors, each trained several times, evaluated on one test set.

use std::time::Instant;

use archive::Archive;
use workload::{Control, Label, Set};

use super::report::{Member, Report};
use super::{Baselines, Evaluation, EventEvaluation, TestSet, evaluate};
use crate::archive_events::ArchiveEvents;
use crate::config::ValidConfig;
use crate::data::{HeldOut, Sampler, TrainingData};
use crate::detector::DetectorKind;
use crate::error::DetectError;
use crate::inject::{cases, contaminate};
use crate::library::Library;
use crate::sample::Sample;
use crate::training::{Start, Training};

/// What is trained and evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Experiment<'a> {
    pub archive: &'a Archive,
    pub detectors: &'a [DetectorKind],
    pub config: &'a ValidConfig,
    /// How often each detector is trained, with consecutive seeds.
    pub n_members: usize,
    pub seed: u64,
    /// The fraction of training windows that faults are injected into.
    pub contamination: f64,
}

/// The progress of an experiment.
#[derive(Debug, Clone, Copy)]
pub enum ExperimentStep<'a> {
    Contaminated {
        n_windows: usize,
        n_total: usize,
    },
    Member {
        kind: DetectorKind,
        member: usize,
        n_members: usize,
        train_seconds: f64,
        evaluation: &'a Evaluation,
    },
}

/// The data of an experiment.
#[derive(Debug)]
pub struct ExperimentData {
    pub training: TrainingData,
    pub test: Sample,
}

impl Experiment<'_> {
    /// Reads the data. Faults are injected into the training sample if so configured.
    pub fn read(
        &self,
        control: Control<'_>,
        mut tell: impl FnMut(ExperimentStep<'_>),
    ) -> Result<ExperimentData, DetectError> {
        let Self { archive, config, seed, .. } = *self;
        let sampler = Sampler::new(archive, config, seed, control)?;
        let mut training = sampler.training_data()?;
        let test = sampler.sample(Set::Test)?;
        if self.contamination > 0.0 {
            let n_windows = contaminate(&mut training.train, self.contamination, seed);
            tell(ExperimentStep::Contaminated { n_windows, n_total: training.train.n_windows() });
        }
        Ok(ExperimentData { training, test })
    }

    /// The labels of the test set.
    fn test_labels(&self) -> archive::Result<Vec<Label>> {
        let labels = self.archive.labels()?;
        Ok(labels.into_iter().filter(|label| label.set == Set::Test).collect())
    }

    /// Trains and evaluates every detector.
    pub fn run<'a>(
        &self,
        data: &'a ExperimentData,
        control: Control<'_>,
        mut tell: impl FnMut(ExperimentStep<'_>),
    ) -> Result<(Report, TestSet<'a>), DetectError> {
        let training = &data.training;
        let mut test = TestSet { sample: &data.test, known: &training.known, cases: Vec::new() };
        test.cases = cases(&test.normal_batches(), self.seed);
        let baselines = Baselines::new(&training.train, &test, self.seed)
            .ok_or_else(|| DetectError::EmptyTest { address: training.address.clone() })?;
        let mut detectors = self.detectors.to_vec();
        detectors.sort_unstable();
        detectors.dedup();
        let sampler = Sampler::new(self.archive, self.config, self.seed, control)?;
        let labels = self.test_labels()?;
        let mut members = Vec::new();
        for kind in detectors {
            // Without a random start, all members would be equal.
            let n_members = if kind.is_random() { self.n_members } else { 1 };
            for member in 0..n_members {
                let seed = self.seed + member as u64;
                let run = Training {
                    kind,
                    config: self.config,
                    seed,
                    checkpoint: None,
                    start: Start::Random,
                    control,
                };
                let started = Instant::now();
                let detector = run.fit(training, &HeldOut::Archive(&sampler), |_| {})?;
                let train_seconds = started.elapsed().as_secs_f64();
                let mut evaluation = evaluate(&detector, &test);
                let events = ArchiveEvents {
                    archive: self.archive,
                    detector: &detector,
                    filter: sampler.filter(Set::Test),
                    known: &training.known,
                    control,
                };
                let found = events.find(Library::default())?;
                let length = detector.event_spec().length();
                evaluation.events = Some(EventEvaluation::new(&found, &labels, length));
                let evaluated = &evaluation;
                let member = member + 1;
                tell(ExperimentStep::Member {
                    kind,
                    member,
                    n_members,
                    train_seconds,
                    evaluation: evaluated,
                });
                members.push(Member { kind, seed, train_seconds, evaluation, detector });
            }
        }
        Ok((Report::new(training, &test, baselines, members), test))
    }
}
