//! `tracewise workflows`

mod classify;
mod compare;
mod draw;
mod evaluate;
mod follow;
mod inject;
mod read;
mod record;
mod train;

use std::path::Path;
use std::process::ExitCode;

use workflows::classify::{FitSettings, Model};
use workflows::dataset::NORMAL;
use workflows::{Dataset, Recording};

use crate::args::{Learning, WhichModel, WorkflowsCommand};
use crate::output::eprint_note;

pub fn run(command: WorkflowsCommand) -> anyhow::Result<ExitCode> {
    match command {
        WorkflowsCommand::Read(args) => read::run(&args),
        WorkflowsCommand::Draw(args) => draw::run(&args),
        WorkflowsCommand::Train(args) => train::run(&args),
        WorkflowsCommand::Classify(args) => classify::run(&args),
        WorkflowsCommand::Evaluate(args) => evaluate::run(&args),
        WorkflowsCommand::Follow(args) => follow::run(&args),
        WorkflowsCommand::Inject(args) => inject::run(&args),
        WorkflowsCommand::Compare(args) => compare::run(&args),
        WorkflowsCommand::Record(args) => record::run(&args),
    }
}

/// Reads the single run of a file, and says what had to be left out.
fn read_run(path: &Path) -> anyhow::Result<Recording> {
    let recording = workflows::read::read_one(path)?;
    warn(path, &recording.warnings);
    Ok(recording)
}

fn warn(path: &Path, warnings: &[String]) {
    warnings.iter().for_each(|warning| eprint_note(&format!("{}: {warning}", path.display())));
}

/// What is said of runs of a split that are not in the data.
fn missing_in_words(missing: &[String]) -> Option<String> {
    let first = missing.first()?;
    Some(format!("{} runs of the split are not in the data, the first of which is {first}", missing.len()))
}

fn read_runs(path: &Path) -> anyhow::Result<Dataset> {
    let data = Dataset::read(path)?;
    warn(path, &data.warnings);
    Ok(data)
}

impl WhichModel {
    /// The recommended one for these runs.
    fn for_runs(self, data: &Dataset) -> Model {
        match self {
            Self::This(model) => model,
            Self::Best if data.classes() == [NORMAL] => Model::Usual,
            Self::Best => Model::BEST,
        }
    }
}

impl Learning {
    fn settings(&self, model: Model) -> anyhow::Result<FitSettings> {
        if model.network().is_none() && (self.weights.is_some() || self.augment || self.fine_tune) {
            anyhow::bail!(
                "{} looks at no pictures: --weights, --augment and --fine-tune are for networks",
                model.name()
            );
        }
        if self.epochs == Some(0) {
            anyhow::bail!("nothing is learnt in no epochs: --epochs has to be at least one");
        }
        if model == Model::Cnn && self.weights.is_some() {
            anyhow::bail!("cnn is trained from scratch: there are no published weights of it");
        }
        if self.augment && model != Model::Cnn && !self.fine_tune {
            anyhow::bail!("with --augment, a network with published weights has to learn: add --fine-tune");
        }
        if model.network().is_some() && model != Model::Cnn && self.weights.is_none() {
            eprint_note(&format!(
                "{} starts from random weights: --weights has published ones",
                model.name()
            ));
        }
        Ok(FitSettings {
            seed: self.seed,
            weights: self.weights.clone(),
            is_fine_tuned: self.fine_tune,
            is_augmented: self.augment,
            n_epochs: self.epochs,
            is_for_finished: self.finished,
            ..FitSettings::default()
        })
    }
}
