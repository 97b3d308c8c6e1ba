//! What a classifier is trained with: validated settings, and a training set.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::ClassifierKind;
use super::baseline::class_index;
use super::slowdown::SlowdownSettings;
use crate::dataset::LabelledRun;
use crate::error::SettingsError;
use crate::features::RunSummary;
use crate::workflow::WorkflowRun;

/// Settings of a training. [`TrainingPlan::new`] checks them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassifierSettings {
    pub seed: u64,
    /// Pre-trained weights of a network.
    pub weights: Option<PathBuf>,
    /// Trains all layers of a pre-trained network, not only the last one.
    pub is_fine_tuned: bool,
    /// Varies the charts of the training set at random.
    pub is_augmented: bool,
    pub n_epochs: Option<usize>,
    /// Trains for finished runs only.
    #[serde(default)]
    pub is_for_finished: bool,
    pub slowdown: SlowdownSettings,
}

/// A classifier and settings that fit together.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingPlan {
    kind: ClassifierKind,
    settings: ClassifierSettings,
}

impl TrainingPlan {
    pub fn new(kind: ClassifierKind, settings: ClassifierSettings) -> Result<Self, SettingsError> {
        let wants_network = settings.weights.is_some() || settings.is_augmented || settings.is_fine_tuned;
        if kind.network().is_none() && wants_network {
            return Err(SettingsError::NotANetwork(kind));
        }
        if settings.n_epochs == Some(0) {
            return Err(SettingsError::NoEpochs);
        }
        if kind == ClassifierKind::Cnn && settings.weights.is_some() {
            return Err(SettingsError::NoPretrainedWeights(kind));
        }
        if settings.is_augmented && kind != ClassifierKind::Cnn && !settings.is_fine_tuned {
            return Err(SettingsError::AugmentationNeedsFineTuning(kind));
        }
        Ok(Self { kind, settings })
    }

    pub fn kind(&self) -> ClassifierKind {
        self.kind
    }

    pub fn settings(&self) -> &ClassifierSettings {
        &self.settings
    }

    /// Whether a network that is meant for pre-trained weights has none.
    pub fn lacks_pretrained_weights(&self) -> bool {
        let is_meant_for = self.kind.network().is_some() && self.kind != ClassifierKind::Cnn;
        is_meant_for && self.settings.weights.is_none()
    }

    /// The same plan with other settings of `slowdown`.
    pub fn with_slowdown(&self, slowdown: SlowdownSettings) -> Self {
        Self { kind: self.kind, settings: ClassifierSettings { slowdown, ..self.settings.clone() } }
    }
}

/// Progress of a training, after an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochProgress {
    pub epoch: usize,
    pub n_epochs: usize,
    pub loss: f64,
    /// On the validation set.
    pub validation_loss: f64,
    pub validation_accuracy: f64,
    /// The estimated time that remains.
    #[serde(skip)]
    pub left: Duration,
}

/// Runs with their classes and batches.
pub struct TrainingSet<'a> {
    pub runs: Vec<RunSummary<'a>>,
    /// The class of each run.
    pub classes: Vec<usize>,
    /// The batch of each run, if it is known.
    pub batches: Vec<Option<&'a str>>,
    pub n_classes: usize,
    /// Runs for early stopping; empty if the classifier should hold out its own.
    pub validation: Vec<(&'a WorkflowRun, usize)>,
}

impl<'a> TrainingSet<'a> {
    /// Runs whose class is not among `classes` are left out: they cannot be predicted.
    pub fn new(runs: &[&'a LabelledRun], validation: &[&'a LabelledRun], classes: &[String]) -> Self {
        let with_class = |run: &&'a LabelledRun| Some((*run, class_index(classes, run.class())?));
        let known: Vec<(&LabelledRun, usize)> = runs.iter().filter_map(with_class).collect();
        let validation = validation.iter().filter_map(with_class);
        Self {
            runs: known.par_iter().map(|(run, _)| RunSummary::new(&run.recording.run)).collect(),
            classes: known.iter().map(|(_, class)| *class).collect(),
            batches: known.iter().map(|(run, _)| run.batch.as_deref()).collect(),
            n_classes: classes.len(),
            validation: validation.map(|(run, class)| (&run.recording.run, class)).collect(),
        }
    }

    /// Weights of runs that sum to one for each class.
    pub fn class_weights(&self) -> Vec<f64> {
        let mut counts = vec![0.0f64; self.n_classes];
        for class in &self.classes {
            counts[*class] += 1.0;
        }
        self.classes.iter().map(|class| 1.0 / counts[*class]).collect()
    }

    /// Weights of some runs that sum to one, with the same sum for every batch. A run without a batch counts as a batch.
    pub fn batch_weights(&self, members: &[usize]) -> Vec<f64> {
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        let mut n_alone = 0.0;
        for member in members {
            match self.batches[*member] {
                Some(batch) => *counts.entry(batch).or_default() += 1.0,
                None => n_alone += 1.0,
            }
        }
        let n_batches = counts.len() as f64 + n_alone;
        let weight =
            |member: &usize| self.batches[*member].map_or(1.0, |batch| 1.0 / counts[batch]) / n_batches;
        members.iter().map(weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_the_classifier_are_rejected() {
        let settings = |change: &dyn Fn(&mut ClassifierSettings)| {
            let mut settings = ClassifierSettings::default();
            change(&mut settings);
            settings
        };
        let augmented = settings(&|settings| settings.is_augmented = true);
        let rejected = |kind, settings: &ClassifierSettings| TrainingPlan::new(kind, settings.clone()).err();
        let trees = ClassifierKind::Trees;
        assert_eq!(rejected(trees, &augmented), Some(SettingsError::NotANetwork(trees)));
        assert_eq!(rejected(ClassifierKind::Cnn, &augmented), None);
        let vgg = ClassifierKind::Vgg16;
        assert_eq!(rejected(vgg, &augmented), Some(SettingsError::AugmentationNeedsFineTuning(vgg)));
        let no_epochs = settings(&|settings| settings.n_epochs = Some(0));
        assert_eq!(rejected(vgg, &no_epochs), Some(SettingsError::NoEpochs));
    }
}
