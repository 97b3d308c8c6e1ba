//! A trained classifier: training, storage, and judging runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use learn::artifact::restore::{RestoreError, ensure};
use learn::artifact::{ArtifactError, Provenance, Tensors, part_of, within};
use learn::family::{Family, Stored};
use learn::stats::median;
use serde::{Deserialize, Serialize};
use workload::Stop;

use super::applicability::n_over;
use super::baseline::{ANOMALOUS, Baseline};
use super::certainty;
use super::picture::Picture;
use super::{
    Classifier, ClassifierKind, ClassifierSettings, EpochProgress, MissingInput, NotApplicable, TrainingPlan,
    TrainingSet, centroid, most_likely, slowdown, trees,
};
use crate::dataset::{LabelledRun, NORMAL};
use crate::error::{Error, Result};
use crate::explain::{Explanation, explain};
use crate::features::RunSummary;
use crate::unfinished::{FRACTIONS, first_fraction};
use crate::workflow::WorkflowRun;

/// Where a classifier comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub n_runs: usize,
    pub by_class: BTreeMap<String, usize>,
    #[serde(rename = "fit_seconds")]
    pub train_seconds: f64,
    pub settings: ClassifierSettings,
}

/// A classifier with the baseline that explains its verdicts.
pub struct TrainedClassifier {
    pub kind: ClassifierKind,
    /// The healthy class first.
    pub classes: Vec<String>,
    pub baseline: Baseline,
    pub origin: Origin,
    classifier: Box<dyn Classifier>,
    /// The smallest confidence of a certain verdict.
    min_confidence: f64,
    /// Attempts of a training run: the median, and the smallest number.
    pub(super) median_attempts: f64,
    pub(super) min_attempts: Option<f64>,
    pub(super) early: Vec<EarlyClassifier>,
}

/// A classifier of runs that are not finished.
pub(super) struct EarlyClassifier {
    /// The fraction of attempts that are over, in the median of its training runs.
    pub progress: f64,
    classifier: Box<dyn Classifier>,
}

/// The stored form, apart from weights.
#[derive(Serialize, Deserialize)]
struct Body {
    classes: Vec<String>,
    #[serde(rename = "usual")]
    baseline: Baseline,
    origin: Origin,
    settings: serde_json::Value,
    #[serde(rename = "n_attempts")]
    median_attempts: f64,
    #[serde(rename = "least_attempts", default)]
    min_attempts: Option<f64>,
    #[serde(default)]
    min_confidence: f64,
    /// The progress and the settings of each early classifier; the names of its weights begin with `early<index>`.
    early: Vec<(f64, serde_json::Value)>,
}

/// The judgement of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub run: String,
    pub class: String,
    /// Whether the classifier can tell. If not, `class` is only the most likely class.
    pub is_certain: bool,
    pub confidence: f64,
    /// The smallest confidence of a certain verdict.
    pub min_confidence: f64,
    /// By class.
    pub probabilities: BTreeMap<String, f64>,
    /// Inputs that the run lacks; the verdict is less certain without them.
    pub missing_inputs: Vec<MissingInput>,
    #[serde(flatten)]
    pub explanation: Explanation,
}

/// Runs that a class needs.
const MIN_RUNS: usize = 2;

impl TrainedClassifier {
    /// Trains a classifier. `validation` is for early stopping of networks; if it is empty, a part of the training set is
    /// held out.
    pub fn train(
        plan: &TrainingPlan,
        runs: &[&LabelledRun],
        validation: &[&LabelledRun],
        stop: &Stop,
        mut progress: impl FnMut(&EpochProgress),
    ) -> Result<Self> {
        let started = Instant::now();
        let kind = plan.kind();
        let by_class = count_classes(runs);
        let classes = checked_classes(kind, &by_class)?;
        let training = TrainingSet::new(runs, validation, &classes);
        // Without healthy runs, all runs together have to serve as the baseline.
        let has_healthy = by_class.contains_key(NORMAL);
        let reference = training.runs.iter().zip(&training.classes);
        let reference: Vec<&RunSummary<'_>> = reference
            .filter(|(_, class)| !has_healthy || classes[**class] == NORMAL)
            .map(|(run, _)| run)
            .collect();
        let baseline = if kind == ClassifierKind::Baseline {
            Baseline::with_threshold(&reference)
        } else {
            Baseline::of(reference)
        };
        stop.check()?;
        let classifier = fit(plan, &training, &baseline, stop, &mut progress)?;
        let min_confidence = match kind {
            ClassifierKind::Slowdown => certainty::calibrate(plan, &training, &baseline, stop)?,
            _ => 0.0,
        };
        let has_early =
            kind.network().is_none() && kind != ClassifierKind::Baseline && !plan.settings().is_for_finished;
        let early = if has_early { fit_early(plan, &training, &baseline, stop)? } else { Vec::new() };
        let lengths: Vec<f64> = training.runs.iter().map(|run| run.run.attempts.len() as f64).collect();
        let min_attempts = lengths.iter().copied().reduce(f64::min);
        let median_attempts = median(lengths);
        let origin = Origin {
            n_runs: runs.len(),
            by_class,
            train_seconds: started.elapsed().as_secs_f64(),
            settings: plan.settings().clone(),
        };
        Ok(Self {
            kind,
            classes,
            baseline,
            origin,
            classifier,
            min_confidence,
            median_attempts,
            min_attempts,
            early,
        })
    }

    /// Judges a run, or returns why the classifier does not apply to it.
    pub fn judge(&self, run: &WorkflowRun) -> std::result::Result<Verdict, NotApplicable> {
        let missing_inputs = self.applicability(run)?;
        let summary = RunSummary::new(run);
        let classifier = self.classifier_for(run);
        let probabilities = classifier.probabilities(&summary);
        let class = most_likely(&probabilities);
        let evidence = classifier.evidence(&summary, class);
        let confidence = classifier.confidence(&summary);
        Ok(Verdict {
            run: run.name.clone(),
            class: self.classes[class].clone(),
            is_certain: confidence >= self.min_confidence,
            confidence,
            min_confidence: self.min_confidence,
            probabilities: self.classes.iter().cloned().zip(probabilities).collect(),
            missing_inputs,
            explanation: explain(&summary, &self.baseline, &self.classes[class], &evidence),
        })
    }

    /// The probability of every class without checking that the classifier applies, for evaluations on runs of the same
    /// workflow.
    pub fn probabilities(&self, run: &WorkflowRun) -> Vec<f64> {
        self.classifier_for(run).probabilities(&RunSummary::new(run))
    }

    /// The confidence in the verdict on a run, and whether it is certain; for evaluations.
    pub fn confidence(&self, run: &WorkflowRun) -> (f64, bool) {
        let confidence = self.classifier_for(run).confidence(&RunSummary::new(run));
        (confidence, confidence >= self.min_confidence)
    }

    /// The classifier whose training runs had advanced about as far as this run.
    fn classifier_for(&self, run: &WorkflowRun) -> &dyn Classifier {
        let progress = n_over(run) as f64 / self.median_attempts.max(1.0);
        let distance = |of: f64| (of - progress).abs();
        let nearest = self.early.iter().min_by(|a, b| distance(a.progress).total_cmp(&distance(b.progress)));
        match nearest.filter(|early| distance(early.progress) < distance(1.0)) {
            Some(early) => early.classifier.as_ref(),
            None => self.classifier.as_ref(),
        }
    }

    pub fn write(&self, directory: &Path, provenance: &Provenance) -> Result<()> {
        let body = Body {
            classes: self.classes.clone(),
            baseline: self.baseline.clone(),
            origin: self.origin.clone(),
            settings: self.classifier.settings(),
            min_confidence: self.min_confidence,
            median_attempts: self.median_attempts,
            min_attempts: self.min_attempts,
            early: self.early.iter().map(|early| (early.progress, early.classifier.settings())).collect(),
        };
        let mut tensors = self.classifier.tensors();
        for (at, early) in self.early.iter().enumerate() {
            tensors.extend(within(&format!("early{at}"), early.classifier.tensors()));
        }
        Ok(self.kind.to_artifact(&body, tensors, provenance)?.write(directory)?)
    }

    pub fn read(directory: &Path) -> Result<Self> {
        let stored = <ClassifierKind as Family>::read::<Body>(directory)?;
        Ok(Self::restore(stored).map_err(|error| ArtifactError::damaged(directory, error))?)
    }

    fn restore(stored: Stored<ClassifierKind, Body>) -> std::result::Result<Self, RestoreError> {
        let Stored { member: kind, mut body, tensors, .. } = stored;
        if kind == ClassifierKind::Baseline {
            body.classes = baseline_classes();
        }
        body.baseline.check()?;
        ensure(body.classes.len() >= 2, "it has fewer than two classes")?;
        ensure(body.early.len() <= FRACTIONS.len(), "it has too many classifiers of unfinished runs")?;
        // The hash in the manifest covers the weights only.
        let restore = |settings: &serde_json::Value, tensors: &Tensors| {
            let classifier = restore(kind, settings, tensors, &body.baseline)?;
            ensure(classifier.n_classes() == body.classes.len(), "its parts are for different classes")?;
            Ok::<_, RestoreError>(classifier)
        };
        let classifier = restore(&body.settings, &tensors)?;
        let mut early = Vec::new();
        for (at, (progress, settings)) in body.early.iter().enumerate() {
            let classifier = restore(settings, &part_of(&tensors, &format!("early{at}")))?;
            early.push(EarlyClassifier { progress: *progress, classifier });
        }
        let Body { classes, baseline, origin, min_confidence, median_attempts, min_attempts, .. } = body;
        Ok(Self {
            kind,
            classes,
            baseline,
            origin,
            classifier,
            min_confidence,
            median_attempts,
            min_attempts,
            early,
        })
    }
}

fn baseline_classes() -> Vec<String> {
    vec![NORMAL.to_owned(), ANOMALOUS.to_owned()]
}

fn count_classes(runs: &[&LabelledRun]) -> BTreeMap<String, usize> {
    let mut by_class = BTreeMap::new();
    for run in runs {
        *by_class.entry(run.class().to_owned()).or_default() += 1;
    }
    by_class
}

/// The classes to train, the healthy one first, if there are enough runs of each.
fn checked_classes(kind: ClassifierKind, by_class: &BTreeMap<String, usize>) -> Result<Vec<String>> {
    let is_baseline = kind == ClassifierKind::Baseline;
    if (is_baseline || kind == ClassifierKind::Slowdown) && !by_class.contains_key(NORMAL) {
        return Err(Error::NoHealthyRuns { kind });
    }
    let is_needed = |class: &String| !is_baseline || class == NORMAL;
    let too_few = |(class, count): &(&String, &usize)| is_needed(class) && **count < MIN_RUNS;
    if let Some((class, found)) = by_class.iter().find(too_few) {
        return Err(Error::TooFewRuns { class: class.clone(), found: *found, needed: MIN_RUNS });
    }
    if is_baseline {
        return Ok(baseline_classes());
    }
    let mut classes: Vec<String> = by_class.keys().cloned().collect();
    classes.sort_by_key(|class| (class != NORMAL, class.clone()));
    match &classes[..] {
        [] => Err(Error::TooFewRuns { class: NORMAL.into(), found: 0, needed: MIN_RUNS }),
        [class] => Err(Error::SingleClass { kind, class: class.clone() }),
        _ => Ok(classes),
    }
}

pub(super) fn fit(
    plan: &TrainingPlan,
    training: &TrainingSet<'_>,
    baseline: &Baseline,
    stop: &Stop,
    progress: &mut impl FnMut(&EpochProgress),
) -> Result<Box<dyn Classifier>> {
    let settings = plan.settings();
    if let Some(network) = plan.kind().network() {
        return Ok(Box::new(Picture::fit(training, network, settings, stop, progress)?));
    }
    Ok(match plan.kind() {
        ClassifierKind::Centroid => Box::new(centroid::Centroid::fit(training)),
        ClassifierKind::Trees => Box::new(trees::Trees::fit(training, settings.seed, stop)?),
        ClassifierKind::Slowdown => {
            Box::new(slowdown::Slowdown::fit(training, settings.slowdown, settings.seed, stop)?)
        }
        _ => Box::new(baseline.clone()),
    })
}

/// Trains classifiers on the first quarter, half and three quarters of the runs.
fn fit_early(
    plan: &TrainingPlan,
    training: &TrainingSet<'_>,
    baseline: &Baseline,
    stop: &Stop,
) -> Result<Vec<EarlyClassifier>> {
    let mut found = Vec::new();
    for (_, fraction) in FRACTIONS {
        let runs: Vec<WorkflowRun> =
            training.runs.iter().map(|run| first_fraction(run.run, fraction)).collect();
        let progress = runs
            .iter()
            .zip(&training.runs)
            .map(|(early, run)| n_over(early) as f64 / run.run.attempts.len().max(1) as f64);
        let progress = median(progress.collect());
        let early = TrainingSet {
            runs: runs.iter().map(RunSummary::new).collect(),
            classes: training.classes.clone(),
            batches: training.batches.clone(),
            n_classes: training.n_classes,
            validation: Vec::new(),
        };
        if progress > 0.0 {
            let classifier = fit(plan, &early, baseline, stop, &mut |_| {})?;
            found.push(EarlyClassifier { progress, classifier });
        }
    }
    Ok(found)
}

fn restore(
    kind: ClassifierKind,
    settings: &serde_json::Value,
    tensors: &Tensors,
    baseline: &Baseline,
) -> std::result::Result<Box<dyn Classifier>, RestoreError> {
    if kind.network().is_some() {
        return Ok(Box::new(Picture::restore(settings, tensors)?));
    }
    Ok(match kind {
        ClassifierKind::Centroid => Box::new(centroid::Centroid::restore(settings, tensors)?),
        ClassifierKind::Trees => Box::new(trees::Trees::restore(settings, tensors)?),
        ClassifierKind::Slowdown => Box::new(slowdown::Slowdown::restore(settings, tensors)?),
        _ => Box::new(baseline.clone()),
    })
}
