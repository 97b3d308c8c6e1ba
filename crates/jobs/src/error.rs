//! Errors of job traces. They name files, columns and values; hints about command-line flags are the caller's.

use std::path::Path;

use workload::Stopped;

use crate::preset::Preset;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error(transparent)]
    Artifact(#[from] learn::artifact::ArtifactError),
    #[error("{path}, line {line}: {source}")]
    Line { path: String, line: u64, source: LineError },
    #[error("{path}: {source}")]
    Csv { path: String, source: csv::Error },
    #[error("{path}: {source}")]
    Parquet { path: String, source: parquet::errors::ParquetError },
    #[error("{path}: {message}")]
    SchemaFile { path: String, message: String },
    #[error("{path}: unknown extension; use .csv, .swf, .parquet or .json (Batsim)")]
    Extension { path: String },
    #[error("{path}: {source}")]
    InFile { path: String, source: TraceError },
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Mismatch(#[from] MismatchError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the correlation matrix of the columns is not positive definite")]
    Correlations,
    #[error("the real-vs-synthetic classifier failed: {0}")]
    Trees(#[from] learn::boost::BoostError),
    /// Not transparent, so that `Stopped` is among the sources of the error.
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with one line of a text file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("{found} fields, but SWF has {expected}")]
    SwfFields { found: usize, expected: usize },
    #[error("{field} is {cell:?}, which is not a finite number")]
    NotANumber { field: &'static str, cell: String },
    #[error("{found} cells, but the header has {expected}")]
    Cells { found: u64, expected: u64 },
    #[error("the text is not UTF-8")]
    NotUtf8,
}

/// What is wrong with the content of a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("the file is empty")]
    Empty,
    #[error("the file begins with an SWF header, which is preset swf")]
    LooksLikeSwf,
    #[error("there are no jobs in it")]
    NoJobs,
    #[error("column {column} is nested; a job trace has one plain value per cell")]
    Nested { column: String },
    #[error("column {column} contains {found}; a job trace has numbers, times and text")]
    Unsupported { column: String, found: String },
    #[error("column {column} has {found} values in a row group of {expected} rows")]
    UnevenColumn { column: String, found: u64, expected: u64 },
    #[error("its footer points outside the file")]
    OutsideFile,
    #[error("its footer and its pages contradict each other")]
    Contradiction,
    #[error("there are {found} columns, and a job trace has at most {most}")]
    TooManyColumns { found: usize, most: usize },
    #[error("there is no column {column}; the columns are {}", available.join(", "))]
    NoColumn { column: String, available: Vec<String> },
    #[error("this is not a trace of preset {}: there is no column {column}", preset.name())]
    NotOfPreset { preset: Preset, column: &'static str },
    #[error("no column has the submission time of jobs, or the interval since the previous one")]
    NoSubmission,
    #[error("no column has the run time of jobs")]
    NoRunTime,
    #[error("column {column} has to contain numbers or times, but contains {cell:?}")]
    NotNumbers { column: String, cell: String },
    #[error("column {column} has no submission time for any job")]
    NoSubmissionTimes { column: String },
    #[error("the schema has a column {column}, and the trace does not")]
    NotInTrace { column: String },
    #[error("the schema says that column {column} is a {kind}, but it contains text")]
    TextForKind { column: String, kind: &'static str },
    #[error("feature {feature} has {found} values, and others have {expected}")]
    UnevenFeatures { feature: String, found: usize, expected: usize },
    #[error("the first feature of jobs has to be the interval since the previous one")]
    IntervalNotFirst,
    #[error("the trace has {found} jobs, and {purpose} needs at least {required}")]
    TooFewJobs { found: usize, required: usize, purpose: &'static str },
}

/// Why a synthetic trace cannot be compared with a real one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MismatchError {
    #[error("the synthetic trace has no column {column}, which the real one (preset {}) has", preset.name())]
    MissingColumn { preset: Preset, column: String },
    #[error("the synthetic trace has a column {column}, which the real one (preset {}) does not have", preset.name())]
    ExtraColumn { preset: Preset, column: String },
    #[error("column {column} of preset {} is known for most jobs of the real trace, and for none of the synthetic one", preset.name())]
    UnknownColumn { preset: Preset, column: String },
    #[error("column {column} contains numbers in one trace and text in the other")]
    Kind { column: String },
    #[error("the synthetic trace has no feature {feature}, which the real one has")]
    MissingFeature { feature: String },
}

/// What a generator cannot sample.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequestError {
    #[error("the time span ends at {to}, which is not after its start at {from}")]
    Span { from: f64, to: f64 },
    #[error("the load factor is {0}, and has to be positive and finite")]
    Load(f64),
    #[error("there is no column {column}; the columns are {}", available.join(", "))]
    NoColumn { column: String, available: Vec<String> },
    #[error("{column} is always {value} in the training trace")]
    Constant { column: String, value: String },
    #[error("{column} is never {value} in the training trace")]
    NeverSeen { column: String, value: String },
    #[error("{column}={value}: {value} is not a number")]
    NotANumber { column: String, value: String },
    #[error("the model implies {n_jobs} jobs, and at most {limit} are sampled unless their number is given")]
    TooManyJobs { n_jobs: usize, limit: usize },
    #[error("only {n_matching} of {n_sampled} sampled jobs meet the condition")]
    TooRare { n_matching: usize, n_sampled: usize },
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = shown(path);
        |source| Self::Io { path, source }
    }

    pub(crate) fn limit(path: &Path) -> impl FnOnce(files::LimitExceeded) -> Self {
        let io = Self::io(path);
        |exceeded| io(exceeded.into())
    }

    pub(crate) fn in_file(path: &Path) -> impl FnOnce(TraceError) -> Self {
        let path = shown(path);
        |source| Self::InFile { path, source }
    }

    pub(crate) fn line(path: &Path, line: u64, source: LineError) -> Self {
        Self::Line { path: shown(path), line, source }
    }

    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = shown(path);
        |source| Self::Parquet { path, source }
    }
}
