//! Runs as feature vectors: statistics of delays over the tasks of each kind. An unknown value is NaN.

use std::collections::{BTreeMap, HashSet};

use crate::workflow::{Delays, Span, TaskAttempt, WorkflowRun};
use learn::Matrix;
use learn::stats::{mean, quantile, std_dev};
use serde::{Deserialize, Serialize};

/// A quantity of one attempt. Stored models have the names in the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Execution without staging, in seconds.
    #[serde(rename = "run")]
    Runtime,
    StageIn,
    StageOut,
    /// CPU time, in seconds.
    Cpu,
    Queue,
    /// Logarithm of the runtime divided by the CPU time. It grows if a task waits for a core or a disk, whatever the
    /// speed of the machine.
    #[serde(rename = "stretch")]
    RuntimePerCpuTime,
    /// Logarithm of the stage-in time divided by the bytes.
    #[serde(rename = "stage-in-slowness")]
    StageInPerByte,
    #[serde(rename = "stage-out-slowness")]
    StageOutPerByte,
    /// Logarithm of the whole execution: all that is known of transfers and auxiliary tasks.
    #[serde(rename = "length")]
    Execution,
}

/// Bytes that are added to the size of a transfer, so that the latency of a small one does not dominate.
const UNIT_BYTES: f64 = 1e7;

impl Quantity {
    pub const ALL: [Self; 9] = [
        Self::Runtime,
        Self::StageIn,
        Self::StageOut,
        Self::Cpu,
        Self::Queue,
        Self::RuntimePerCpuTime,
        Self::StageInPerByte,
        Self::StageOutPerByte,
        Self::Execution,
    ];
    /// Quantities that are comparable between batches, whose machines differ in speed.
    pub const BATCH_INVARIANT: [Self; 4] =
        [Self::RuntimePerCpuTime, Self::StageInPerByte, Self::StageOutPerByte, Self::Execution];

    /// Its value for an attempt whose execution is over.
    pub fn of(self, attempt: &TaskAttempt, delays: &Delays) -> Option<f64> {
        let execution = attempt.execution?;
        let per_byte = |span: Option<Span>, bytes: Option<f64>| {
            let bytes = bytes.unwrap_or(0.0).max(0.0);
            span.map(|span| ((span.seconds() + 1.0) / (bytes / UNIT_BYTES + 1.0)).ln())
        };
        match self {
            Self::Runtime => Some(delays.runtime),
            Self::StageIn => attempt.stage_in.map(Span::seconds),
            Self::StageOut => attempt.stage_out.map(Span::seconds),
            Self::Cpu => attempt.cpu_seconds,
            Self::Queue => Some(delays.queue),
            Self::RuntimePerCpuTime => {
                attempt.cpu_seconds.map(|cpu| ((delays.runtime + 1.0) / (cpu + 1.0)).ln())
            }
            Self::StageInPerByte => per_byte(attempt.stage_in, attempt.stage_in_bytes),
            Self::StageOutPerByte => per_byte(attempt.stage_out, attempt.stage_out_bytes),
            Self::Execution => Some((execution.seconds() + 1.0).ln()),
        }
    }

    pub fn is_stage_in(self) -> bool {
        matches!(self, Self::StageIn | Self::StageInPerByte)
    }

    /// Whether staging is subtracted from it, if staging is known.
    pub fn excludes_staging(self) -> bool {
        matches!(self, Self::Runtime | Self::RuntimePerCpuTime)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::StageIn => "stage_in",
            Self::StageOut => "stage_out",
            Self::Cpu => "cpu_time",
            Self::Queue => "queue",
            Self::RuntimePerCpuTime => "runtime per cpu_time",
            Self::StageInPerByte => "stage_in per byte",
            Self::StageOutPerByte => "stage_out per byte",
            Self::Execution => "execution",
        }
    }

    /// Whether its values are logarithms, so that differences are ratios.
    pub fn is_logarithm(self) -> bool {
        Self::BATCH_INVARIANT.contains(&self)
    }
}

/// A statistic over the tasks of one kind. Stored models have the names in the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    Mean,
    Median,
    #[serde(rename = "deviation")]
    StdDev,
    #[serde(rename = "least")]
    Min,
    #[serde(rename = "most")]
    Max,
    /// The 90th percentile: it shows a fault on one machine of several.
    #[serde(rename = "high")]
    P90,
}

impl Statistic {
    /// The statistic of sorted values, of which there is at least one.
    pub(crate) fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(values),
            Self::Median => (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0,
            Self::StdDev => std_dev(values),
            Self::Min => values[0],
            Self::Max => values[values.len() - 1],
            Self::P90 => quantile(values, 0.9),
        }
    }
}

/// A run with its delays and quantities, computed once for all that judge it.
#[derive(Clone)]
pub struct RunSummary<'a> {
    pub run: &'a WorkflowRun,
    /// One entry per attempt.
    pub delays: Vec<Delays>,
    /// The sorted values of every quantity over the finished attempts of each kind.
    pub(crate) by_kind: BTreeMap<(&'a str, Quantity), Vec<f64>>,
    /// Whether any staging is known. Logs alone do not have it.
    pub(crate) has_staging: bool,
}

impl<'a> RunSummary<'a> {
    pub fn new(run: &'a WorkflowRun) -> Self {
        let delays = run.delays();
        let mut by_kind: BTreeMap<(&str, Quantity), Vec<f64>> = BTreeMap::new();
        for (attempt, delays) in run.attempts.iter().zip(&delays) {
            for quantity in Quantity::ALL {
                if let Some(value) = quantity.of(attempt, delays) {
                    by_kind.entry((attempt.kind.as_str(), quantity)).or_default().push(value);
                }
            }
        }
        for values in by_kind.values_mut() {
            values.sort_by(f64::total_cmp);
        }
        let has_staging = run.attempts.iter().any(|attempt| attempt.stage_in.is_some());
        Self { run, delays, by_kind, has_staging }
    }
}

/// One feature: a statistic of a quantity over the tasks of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Feature {
    pub kind: String,
    pub quantity: Quantity,
    pub statistic: Statistic,
}

/// The features of a classifier, in the order of its columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureSet {
    pub features: Vec<Feature>,
}

impl FeatureSet {
    /// A feature for each kind and quantity that at least a tenth of the runs have, and for each statistic.
    pub fn of(runs: &[RunSummary<'_>], quantities: &[Quantity], statistics: &[Statistic]) -> Self {
        let mut n_runs: BTreeMap<(&str, Quantity), usize> = BTreeMap::new();
        for key in runs.iter().flat_map(|run| run.by_kind.keys()) {
            if quantities.contains(&key.1) {
                *n_runs.entry(*key).or_default() += 1;
            }
        }
        // A rarer feature would identify the few runs that have it.
        let enough = runs.len().div_ceil(10);
        let features = n_runs
            .into_iter()
            .filter(|(_, count)| *count >= enough)
            .flat_map(|((kind, quantity), _)| {
                let feature = |statistic: &Statistic| Feature {
                    kind: kind.to_owned(),
                    quantity,
                    statistic: *statistic,
                };
                statistics.iter().map(feature).collect::<Vec<_>>()
            })
            .collect();
        Self { features }
    }

    /// The features of a run to judge. If nothing is known of its staging, its runtime includes staging and cannot be
    /// compared with the runtime of the training runs, so it becomes unknown.
    pub fn row(&self, run: &RunSummary<'_>) -> Vec<f32> {
        let mut row = self.row_as_recorded(run);
        if !run.has_staging {
            let staged = self.features.iter().filter(|feature| feature.quantity.is_stage_in());
            let staged: HashSet<&str> = staged.map(|feature| feature.kind.as_str()).collect();
            for (value, feature) in row.iter_mut().zip(&self.features) {
                if feature.quantity.excludes_staging() && staged.contains(feature.kind.as_str()) {
                    *value = f32::NAN;
                }
            }
        }
        row
    }

    /// The features of training runs, one row per run.
    pub fn rows(&self, runs: &[RunSummary<'_>]) -> Matrix {
        let values: Vec<f32> = runs.iter().flat_map(|run| self.row_as_recorded(run)).collect();
        Matrix::new(values, self.features.len().max(1))
    }

    fn row_as_recorded(&self, run: &RunSummary<'_>) -> Vec<f32> {
        let cell = |feature: &Feature| {
            let values = run.by_kind.get(&(feature.kind.as_str(), feature.quantity));
            values.map_or(f32::NAN, |values| feature.statistic.of(values) as f32)
        };
        self.features.iter().map(cell).collect()
    }
}
