//! `tracewise workflows`

mod classify;
mod compare;
mod draw;
mod evaluate;
mod follow;
mod inject;
mod read;
mod record;
mod tasks;
mod train;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use files::Limits;
use workflows::classify::{ClassifierKind, ClassifierSettings, TrainingPlan};
use workflows::workflow::WorkflowRun;
use workflows::{Dataset, Error, Recording, SettingsError};

use crate::args::{TrainingArgs, WhichClassifier, WorkflowsCommand};
use crate::config::Config;
use crate::output::eprint_note;

pub fn run(command: WorkflowsCommand, config: &Config) -> anyhow::Result<ExitCode> {
    let limits = config.limits();
    match command {
        WorkflowsCommand::Read(args) => read::run(&args, &limits),
        WorkflowsCommand::Draw(args) => draw::run(&args, &limits),
        WorkflowsCommand::Train(args) => train::run(&args, &limits),
        WorkflowsCommand::Classify(args) => classify::run(&args, &limits),
        WorkflowsCommand::Evaluate(args) => evaluate::run(&args, &limits),
        WorkflowsCommand::Follow(args) => follow::run(&args, &limits),
        WorkflowsCommand::Inject(args) => inject::run(&args, &limits),
        WorkflowsCommand::Tasks(args) => tasks::run(&args, &limits),
        WorkflowsCommand::Compare(args) => compare::run(&args, &limits),
        WorkflowsCommand::Record(args) => record::run(&args),
    }
}

/// Reads a file with a single run and prints its warnings.
fn read_run(path: &Path, limits: &Limits) -> anyhow::Result<Recording> {
    let recording = workflows::read::read_one(path, limits)?;
    warn(path, &recording.warnings);
    Ok(recording)
}

fn warn(path: &Path, warnings: &[String]) {
    for warning in warnings {
        eprint_note(&format!("{}: {warning}", path.display()));
    }
}

fn missing_runs_warning(missing: &[String]) -> Option<String> {
    let first = missing.first()?;
    Some(format!("{} runs of the split are not in the data, such as {first}", missing.len()))
}

fn read_runs(path: &Path, limits: &Limits) -> anyhow::Result<Dataset> {
    let data = Dataset::read(path, limits)?;
    warn(path, &data.warnings);
    Ok(data)
}

/// Writes a run as a table.
fn write_run(run: &WorkflowRun, path: &Path) -> anyhow::Result<()> {
    let mut table = Vec::new();
    workflows::read::table::write(run, &[], &mut table).with_context(|| path.display().to_string())?;
    Ok(files::write(path, &table)?)
}

/// The classifier to train and its settings.
fn training_plan(
    which: WhichClassifier,
    args: &TrainingArgs,
    data: &Dataset,
) -> anyhow::Result<TrainingPlan> {
    let kind = match which {
        WhichClassifier::This(kind) => kind,
        WhichClassifier::Best => ClassifierKind::recommended_for(data),
    };
    let settings = ClassifierSettings {
        seed: args.seed,
        weights: args.weights.clone(),
        is_fine_tuned: args.fine_tune,
        is_augmented: args.augment,
        n_epochs: args.epochs,
        is_for_finished: args.finished,
        ..ClassifierSettings::default()
    };
    let plan = TrainingPlan::new(kind, settings).map_err(Error::from).map_err(with_hint)?;
    if plan.lacks_pretrained_weights() {
        eprint_note(&format!(
            "{} starts from random weights; --weights loads pre-trained ones",
            plan.kind().name()
        ));
    }
    Ok(plan)
}

/// Adds the flag that helps to an error of the library.
fn with_hint(error: Error) -> anyhow::Error {
    let hint = match &error {
        Error::SingleClass { .. } => "with healthy runs alone, use --classifier baseline",
        Error::NoHealthyRuns { .. } => "healthy runs are in the directory `normal`",
        Error::NoSplit => "give it with --split",
        Error::TooFewCores { .. } => "--cores sets the cores of every machine",
        Error::NoDiskSlowdown { .. } => "--disk-write-rate sets the rate without a fault",
        Error::Settings(SettingsError::NotANetwork(_)) => {
            "--weights, --augment and --fine-tune need a network as --classifier"
        }
        Error::Settings(SettingsError::NoEpochs) => "--epochs must be at least 1",
        Error::Settings(SettingsError::AugmentationNeedsFineTuning(_)) => "add --fine-tune",
        _ => return error.into(),
    };
    anyhow::anyhow!("{error} (hint: {hint})")
}
