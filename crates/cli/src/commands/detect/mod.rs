//! `tracewise detect`

mod embed;
mod evaluate;
pub mod events;
mod explain;
mod score;
mod train;
mod watch;

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use ::detect::{
    DetectError, LabelledPoint, Reading, ThreadWindow, TrainedDetector, ValidConfig, WindowBatch,
    WindowFilter,
};
use anyhow::{Context, bail};
use archive::Archive;
use files::table::{Cell, CellKind};
use workload::{Control, Stop};

use crate::args::{DetectCommand, WindowArgs};
use crate::config::Config;
use crate::progress::Progress;

pub fn run(command: DetectCommand, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    match command {
        DetectCommand::Train(args) => train::run(&args, &config),
        DetectCommand::Events(args) => events::run(&args, &config),
        DetectCommand::Score(args) => score::run(&args, &config),
        DetectCommand::Embed(args) => embed::run(&args, &config),
        DetectCommand::Watch(args) => watch::run(&args, &config),
        DetectCommand::Explain(args) => explain::run(&args, &config),
        DetectCommand::Evaluate(args) => evaluate::run(&args, &config),
    }
}

pub fn detector_settings(config: &Config) -> anyhow::Result<ValidConfig> {
    config.detector.clone().validate().context("[detector]")
}

/// Adds what to change on the command line to errors that training and reading can give.
pub fn with_hint(error: DetectError) -> anyhow::Error {
    let hint = match &error {
        DetectError::TooFew { .. } => "record for longer, or set a shorter detector.window",
        DetectError::MissingChannel { .. } => "remove it from detector.channels",
        DetectError::Period { .. } => "train a model on data with this sampling period",
        DetectError::NoCalibration { .. } => "use more or longer jobs for validation",
        DetectError::NotCalibrated => "train it again",
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; {hint}")
}

/// A model applied to an archive.
struct Applied<'a> {
    detector: TrainedDetector,
    archive: Archive,
    args: &'a WindowArgs,
}

impl<'a> Applied<'a> {
    fn open(args: &'a WindowArgs, config: &Config) -> anyhow::Result<Self> {
        let detector = TrainedDetector::read(&args.model.model)?;
        let archive = args.model.data.open(config)?;
        detector.check_period(&archive).map_err(with_hint)?;
        Ok(Self { detector, archive, args })
    }

    fn stride(&self) -> anyhow::Result<usize> {
        match self.args.stride {
            None => Ok((self.detector.config.window / 2).max(1)),
            Some(0) => bail!("--stride must be at least 1 second"),
            Some(seconds) => Ok(((seconds as i64 * 1_000 / self.detector.period.0) as usize).max(1)),
        }
    }

    /// Visits the windows that the arguments select; an error if there are none.
    fn for_each(
        &self,
        stop: &Stop,
        mut visit: impl FnMut(WindowBatch) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let archive = &self.archive;
        let spec = self.detector.window_spec(self.stride()?);
        let quietly = Control::new(stop, &|_, _| {});
        let filter = match self.args.model.set {
            Some(set) => WindowFilter::of_set(archive, &archive.labels()?, set, &spec, quietly)?,
            None => WindowFilter::All,
        };
        let progress = Progress::new(format!("scoring {}", archive.address()));
        let report = |done, total| progress.update(done, total);
        let control = Control::new(stop, &report);
        let mut n_windows = 0;
        let reading = Reading { archive, filter: &filter, spec: &spec, control };
        reading.for_each_batch::<anyhow::Error>(|batch| {
            n_windows += batch.threads().len();
            visit(batch).map(ControlFlow::Continue)
        })?;
        if n_windows == 0 {
            let detector = &self.detector;
            let channels = if detector.config.channels.is_empty() {
                String::new()
            } else {
                format!(" with readings of {}", detector.channels()[4..].join(", "))
            };
            bail!(
                "{}: there is no window of {} s: a stretch without gaps during which a thread did not change its \
                 owner{channels}",
                self.archive.address(),
                detector.window_seconds()
            );
        }
        Ok(())
    }
}

/// The archive with labelled jobs to compare with: the one that was named, or the archive itself.
fn reference_of(
    archive: &Archive,
    address: Option<&str>,
    detector: &TrainedDetector,
    config: &Config,
) -> anyhow::Result<Archive> {
    let Some(address) = address else { return Ok(archive.clone()) };
    let reference = Archive::open(address, &config.archive_settings())?;
    detector.check_period(&reference).map_err(with_hint)?;
    Ok(reference)
}

/// The windows of the labelled jobs of an archive, for comparison.
fn labelled_points(
    detector: &TrainedDetector,
    archive: &Archive,
    stop: &Stop,
) -> anyhow::Result<Vec<LabelledPoint>> {
    let progress = Progress::new(format!("comparing with the labelled jobs of {}", archive.address()));
    let report = |done, total| progress.update(done, total);
    Ok(LabelledPoint::of_archive(detector, archive, Control::new(stop, &report))?)
}

/// The columns that identify a window.
const KEY: [(&str, CellKind); 5] = [
    ("node", CellKind::Text),
    ("cpu", CellKind::Int),
    ("job", CellKind::Text),
    ("window_start", CellKind::Time),
    ("window_seconds", CellKind::Float),
];

/// The cells of [`KEY`].
fn key(batch: &WindowBatch, thread: &ThreadWindow, detector: &TrainedDetector) -> Vec<Cell> {
    vec![
        Cell::Text(thread.node.to_string()),
        Cell::Int(i32::from(thread.cpu.0)),
        Cell::Text(thread.job().map_or(String::new(), ToString::to_string)),
        Cell::Time(batch.start().0),
        Cell::Float(detector.window_seconds()),
    ]
}
