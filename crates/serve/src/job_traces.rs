//! Job traces that people send, their synthetic counterparts, and comparisons of two of them.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use jobs::fidelity::columns::PairFidelity;
use jobs::fidelity::curves::Curves;
use jobs::fidelity::{CompareConfig, Copies, SchedulingFidelity, compare, report};
use jobs::generators::{
    GeneratorKind, LoadFactor, SampleExtent, SampleRequest, TrainedGenerator, TrainingConfig,
};
use jobs::schema::ColumnSpec;
use jobs::trace::ReadOptions;
use jobs::{Trace, sink};
use serde::{Deserialize, Serialize};
use workload::Control;

use crate::uploads::{LIMITS, NewUpload, Upload, UploadError, UploadName, Uploads};

/// Names that are tried for a synthetic trace.
const MAX_NUMBER: usize = 1_000;
/// Factors of the arrival rate that a client may ask for.
const LOADS: RangeInclusive<f64> = 0.01..=100.0;

/// What is known about a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceContent {
    pub jobs: usize,
    pub span_seconds: f64,
    /// Absent for traces that were sent.
    pub synthetic: Option<SyntheticOrigin>,
}

/// Where a synthetic trace comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyntheticOrigin {
    /// The trace that the generator was trained with.
    pub of: String,
    pub generator: GeneratorKind,
    pub seed: u64,
    pub load: f64,
}

/// One column of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceColumn {
    pub name: String,
    pub role: Option<&'static str>,
    pub kind: &'static str,
    pub summary: String,
}

/// A trace in detail.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceDetail {
    pub upload: Upload<TraceContent>,
    pub warnings: Vec<String>,
    pub columns: Vec<TraceColumn>,
    pub curves: Curves,
}

/// A synthetic trace to make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Synthesis {
    pub generator: GeneratorKind,
    pub extent: SampleExtent,
    /// A factor of the arrival rate.
    pub load: f64,
    pub seed: u64,
}

impl Synthesis {
    /// `n_jobs` is that of the training trace by default.
    pub fn new(
        generator: GeneratorKind,
        n_jobs: Option<usize>,
        load: f64,
        seed: u64,
    ) -> Result<Self, String> {
        let extent = match n_jobs {
            None => SampleExtent::LikeTraining,
            Some(n_jobs) if n_jobs as u64 > LIMITS.rows => {
                return Err(format!("jobs must be at most {}", LIMITS.rows));
            }
            Some(n_jobs) => SampleExtent::Jobs(NonZeroUsize::new(n_jobs).ok_or("jobs must be at least 1")?),
        };
        LoadFactor::new(load).map_err(|error| error.to_string())?;
        if !LOADS.contains(&load) {
            return Err(format!("load must be between {} and {}", LOADS.start(), LOADS.end()));
        }
        Ok(Self { generator, extent, load, seed })
    }
}

/// How similar two traces are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceComparison {
    pub real: String,
    pub synthetic: String,
    pub summary: String,
    pub n_real: usize,
    pub n_synthetic: usize,
    pub table: FigureTable,
    pub copies: Copies,
    pub scheduling: Option<SchedulingFidelity>,
    pub pairs: Vec<PairFidelity>,
    pub curves: Curves,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigureTable {
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// The traces of the service.
pub struct JobTraces {
    uploads: Uploads<TraceContent>,
}

impl JobTraces {
    pub fn open(folder: PathBuf) -> Result<Self, files::Error> {
        Ok(Self { uploads: Uploads::open(folder)? })
    }

    pub const fn uploads(&self) -> &Uploads<TraceContent> {
        &self.uploads
    }

    /// Adds a file that was sent, if it is a trace.
    pub fn add(&self, new: NewUpload, actor: &str) -> Result<Upload<TraceContent>, UploadError> {
        let content = content(&read(&new.path())?, None)?;
        self.uploads.finish(new, actor, content)
    }

    pub fn detail(&self, name: &UploadName) -> Result<TraceDetail, UploadError> {
        let upload = self.uploads.find(name)?;
        let trace = read(&upload.path)?;
        let column = |spec: &ColumnSpec| TraceColumn {
            name: spec.name.clone(),
            role: spec.role.map(|role| role.name()),
            kind: spec.kind.name(),
            summary: trace.summary(spec),
        };
        Ok(TraceDetail {
            upload,
            warnings: trace.warnings().iter().map(ToString::to_string).collect(),
            columns: trace.schema().columns.iter().map(column).collect(),
            curves: Curves::new(&trace.features().map_err(unusable)?, None),
        })
    }

    /// Trains a generator with a trace, samples a synthetic one, keeps it, and compares both.
    pub fn synthesise(
        &self,
        name: &UploadName,
        synthesis: Synthesis,
        actor: &str,
        control: Control<'_>,
    ) -> Result<TraceComparison, UploadError> {
        let upload = self.uploads.find(name)?;
        let name_of = |number| synthetic_name(name, synthesis.generator, number);
        // What is wrong with the name is found before the training.
        let new = self.uploads.prepare(&name_of(1)?)?;
        let real = read(&upload.path)?;
        let config = TrainingConfig { n_epochs: None, seed: synthesis.seed };
        let trained = TrainedGenerator::fit(&real, synthesis.generator, config, control.stop(), |progress| {
            // Training ends by itself if it is cancelled.
            let _ = control.report(progress.epoch as u64, progress.n_epochs as u64);
        });
        let trained = trained.map_err(unusable)?;
        let request = SampleRequest {
            extent: synthesis.extent,
            load: LoadFactor::new(synthesis.load).map_err(unusable)?,
            conditions: Vec::new(),
            seed: synthesis.seed,
        };
        let table = trained.sample(&request, control.stop()).map_err(unusable)?;
        sink::write(&new.path(), &table, trained.schema()).map_err(unusable)?;
        let synthetic = read_counterpart(&real, &new.path())?;
        let origin = SyntheticOrigin {
            of: name.to_string(),
            generator: synthesis.generator,
            seed: synthesis.seed,
            load: synthesis.load,
        };
        let mut made = comparison(name, &real, new.name(), &synthetic, control)?;
        let content = content(&synthetic, Some(origin))?;
        let names = (1..=MAX_NUMBER).filter_map(|number| name_of(number).ok());
        made.synthetic = self.uploads.finish_as(new, names, actor, content)?.name.to_string();
        Ok(made)
    }

    /// Compares a synthetic trace with a real one, or any two with the same columns.
    pub fn compare(
        &self,
        real_name: &UploadName,
        synthetic_name: &UploadName,
        control: Control<'_>,
    ) -> Result<TraceComparison, UploadError> {
        let real = read(&self.uploads.find(real_name)?.path)?;
        let synthetic = self.uploads.find(synthetic_name)?;
        let synthetic = read_counterpart(&real, &synthetic.path)?;
        comparison(real_name, &real, synthetic_name, &synthetic, control)
    }
}

/// A name such as `theta-sessions-1.csv`.
fn synthetic_name(
    of: &UploadName,
    generator: GeneratorKind,
    number: usize,
) -> Result<UploadName, UploadError> {
    let suffix = format!("-{}-{number}.csv", generator.name());
    let stem = of.stem();
    UploadName::new(&format!(
        "{}{suffix}",
        &stem[..stem.len().min(UploadName::MAX_LENGTH.saturating_sub(suffix.len()))]
    ))
}

fn comparison(
    real_name: &UploadName,
    real: &Trace,
    synthetic_name: &UploadName,
    synthetic: &Trace,
    control: Control<'_>,
) -> Result<TraceComparison, UploadError> {
    let (real, synthetic) = (real.features().map_err(unusable)?, synthetic.features().map_err(unusable)?);
    let found = compare(&real, &synthetic, CompareConfig::default(), control.stop()).map_err(unusable)?;
    let (header, rows) = report::table(&found);
    Ok(TraceComparison {
        real: real_name.to_string(),
        synthetic: synthetic_name.to_string(),
        summary: found.summary(),
        n_real: found.n_real,
        n_synthetic: found.n_synthetic,
        table: FigureTable { header, rows },
        copies: found.copies,
        scheduling: found.scheduling,
        pairs: found.similarity.pairs,
        curves: Curves::new(&real, Some(&synthetic)),
    })
}

fn read(path: &Path) -> Result<Trace, UploadError> {
    let options = ReadOptions { limits: LIMITS, ..ReadOptions::default() };
    Trace::read(path, &options).map_err(|error| UploadError::in_file(path, &error))
}

/// Reads another trace with the columns of this one.
fn read_counterpart(real: &Trace, path: &Path) -> Result<Trace, UploadError> {
    real.read_counterpart(path, &LIMITS).map_err(|error| UploadError::in_file(path, &error))
}

fn content(trace: &Trace, synthetic: Option<SyntheticOrigin>) -> Result<TraceContent, UploadError> {
    let features = trace.features().map_err(unusable)?;
    let span_seconds = features.arrivals().last().copied().unwrap_or_default();
    Ok(TraceContent { jobs: features.n_jobs(), span_seconds, synthetic })
}

fn unusable(error: impl std::fmt::Display) -> UploadError {
    UploadError::Content(error.to_string())
}
