//! `tracewise detect`

mod embed;
mod evaluate;
mod explain;
mod score;
mod train;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use archive::Archive;
use detect::{Jobs, Moment, ThreadWindow, Trained, for_each_moment};
use files::table::{Cell, CellKind};

use crate::args::{DetectCommand, Look};
use crate::config::Config;
use crate::progress::Progress;

pub fn run(command: DetectCommand, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    match command {
        DetectCommand::Train(args) => train::run(&args, &config),
        DetectCommand::Score(args) => score::run(&args, &config),
        DetectCommand::Embed(args) => embed::run(&args, &config),
        DetectCommand::Watch(args) => watch::run(&args, &config),
        DetectCommand::Explain(args) => explain::run(&args, &config),
        DetectCommand::Evaluate(args) => evaluate::run(&args, &config),
    }
}

fn open(data: Option<&str>, config: &Config) -> archive::Result<Archive> {
    Archive::open(data.unwrap_or(&config.archive.address), &config.archive_settings())
}

impl Look {
    fn open(&self, config: &Config) -> anyhow::Result<(Trained, Archive)> {
        let trained = Trained::read(&self.model)?;
        let archive = open(self.data.as_deref(), config)?;
        trained.check_period(&archive)?;
        Ok((trained, archive))
    }

    /// The same look at all jobs.
    fn all(&self) -> Self {
        Self { set: None, ..self.clone() }
    }

    /// Visits the windows that were asked for; says so if there are none.
    fn for_each(
        &self,
        trained: &Trained,
        archive: &Archive,
        mut visit: impl FnMut(Moment) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let stride = match self.stride {
            None => (trained.config.window / 2).max(1),
            Some(0) => bail!("--stride is at least one second"),
            Some(seconds) => ((seconds as i64 * 1_000 / trained.period.0) as usize).max(1),
        };
        let jobs = match self.set {
            Some(set) => Jobs::of_set(archive, &archive.labels()?, set)?,
            None => Jobs::All,
        };
        let cut = trained.config.cut(trained.period, stride);
        let progress = Progress::new(format!("looking at {}", archive.address()));
        let mut outcome = Ok(());
        let mut n_windows = 0;
        let take = |moment: Moment| {
            n_windows += moment.threads.len();
            if outcome.is_ok() {
                outcome = visit(moment);
            }
        };
        for_each_moment(archive, &jobs, &cut, take, |done, total| progress.update(done, total))?;
        drop(progress);
        outcome?;
        if n_windows == 0 {
            let channels = match trained.config.channels.is_empty() {
                true => String::new(),
                false => format!(" and had {} read", trained.channels()[4..].join(", ")),
            };
            bail!(
                "{}: there is no window of {} s to look at: a stretch without gaps in which one job owned a thread{channels}",
                archive.address(),
                cut.length().as_seconds()
            );
        }
        Ok(())
    }
}

/// The columns that say which window a row is of.
const KEY: [(&str, CellKind); 5] = [
    ("node", CellKind::Text),
    ("cpu", CellKind::Int),
    ("job", CellKind::Text),
    ("window_start", CellKind::Time),
    ("window_seconds", CellKind::Float),
];

/// The cells of [`KEY`].
fn key(moment: &Moment, thread: &ThreadWindow, trained: &Trained) -> Vec<Cell> {
    let seconds = trained.config.window as f64 * trained.period.as_seconds();
    vec![
        Cell::Text(thread.node.to_string()),
        Cell::Int(i32::from(thread.cpu.0)),
        Cell::Text(thread.job.to_string()),
        Cell::Time(moment.start.0),
        Cell::Float(seconds),
    ]
}
