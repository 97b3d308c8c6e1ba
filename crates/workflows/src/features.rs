//! Runs as rows of numbers: how the tasks of each kind fared. What is not known is no number (NaN).

use std::collections::{BTreeMap, HashSet};

use crate::workflow::{Delays, Span, TaskAttempt, WorkflowRun};
use learn::Matrix;
use learn::stats::{mean, quantile, std_dev};
use serde::{Deserialize, Serialize};

/// What is looked at in an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Execution without staging, seconds.
    Run,
    StageIn,
    StageOut,
    Cpu,
    Queue,
    /// Execution over the processor's time for it, as a logarithm: what waits, for a core or a disk, shows in it
    /// whatever the machine's speed.
    Stretch,
    /// Seconds of stage-in for its bytes, as a logarithm.
    StageInSlowness,
    StageOutSlowness,
    /// The whole execution, as a logarithm: all that is known of transfers and what goes with them.
    Length,
}

/// Bytes of which a transfer of ordinary size has many.
const UNIT_BYTES: f64 = 1e7;

impl Quantity {
    pub const ALL: [Self; 9] = [
        Self::Run,
        Self::StageIn,
        Self::StageOut,
        Self::Cpu,
        Self::Queue,
        Self::Stretch,
        Self::StageInSlowness,
        Self::StageOutSlowness,
        Self::Length,
    ];
    /// What trouble shows in whatever the speed of the machines.
    pub const WEEKLESS: [Self; 4] =
        [Self::Stretch, Self::StageInSlowness, Self::StageOutSlowness, Self::Length];

    pub fn of(self, attempt: &TaskAttempt, delays: &Delays) -> Option<f64> {
        let execution = attempt.execution?;
        let slowness = |span: Option<Span>, bytes: Option<f64>| {
            let bytes = bytes.unwrap_or(0.0).max(0.0);
            span.map(|span| ((span.seconds() + 1.0) / (bytes / UNIT_BYTES + 1.0)).ln())
        };
        match self {
            Self::Run => Some(delays.run),
            Self::StageIn => attempt.stage_in.map(Span::seconds),
            Self::StageOut => attempt.stage_out.map(Span::seconds),
            Self::Cpu => attempt.cpu_seconds,
            Self::Queue => Some(delays.queue),
            Self::Stretch => attempt.cpu_seconds.map(|cpu| ((delays.run + 1.0) / (cpu + 1.0)).ln()),
            Self::StageInSlowness => slowness(attempt.stage_in, attempt.stage_in_bytes),
            Self::StageOutSlowness => slowness(attempt.stage_out, attempt.stage_out_bytes),
            Self::Length => Some((execution.seconds() + 1.0).ln()),
        }
    }

    pub fn is_of_stage_in(self) -> bool {
        matches!(self, Self::StageIn | Self::StageInSlowness)
    }

    /// Whether staging is taken out of it, where staging is known.
    pub fn is_without_staging(self) -> bool {
        matches!(self, Self::Run | Self::Stretch)
    }

    /// What it is in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Run => "run time",
            Self::StageIn => "stage-in",
            Self::StageOut => "stage-out",
            Self::Cpu => "CPU time",
            Self::Queue => "time in the queue",
            Self::Stretch => "run time for its CPU time",
            Self::StageInSlowness => "stage-in for its bytes",
            Self::StageOutSlowness => "stage-out for its bytes",
            Self::Length => "execution",
        }
    }

    /// Whether its values are logarithms, of which differences are ratios.
    pub fn is_logarithm(self) -> bool {
        matches!(self, Self::Stretch | Self::StageInSlowness | Self::StageOutSlowness | Self::Length)
    }
}

/// What is made of a quantity over the tasks of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    Mean,
    Median,
    Deviation,
    Least,
    Most,
    /// Above which one in ten is: trouble on one machine of several shows in it.
    High,
}

impl Statistic {
    /// `values` are in order, and there is one at least.
    pub(crate) fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(values),
            Self::Median => (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0,
            Self::Deviation => std_dev(values),
            Self::Least => values[0],
            Self::Most => values[values.len() - 1],
            Self::High => quantile(values, 0.9),
        }
    }
}

/// A column: a statistic of a quantity over the tasks of a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Feature {
    pub kind: String,
    pub quantity: Quantity,
    pub statistic: Statistic,
}

/// Which columns there are, learnt from runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub features: Vec<Feature>,
}

impl View {
    /// A column for each kind that there is in the runs, with each quantity that is ever known of it.
    pub fn of(runs: &[&WorkflowRun], quantities: &[Quantity], statistics: &[Statistic]) -> Self {
        let mut known: BTreeMap<(String, Quantity), usize> = BTreeMap::new();
        for run in runs {
            for ((kind, quantity), _) in by_kind(run, quantities) {
                *known.entry((kind.to_owned(), quantity)).or_default() += 1;
            }
        }
        // What only a few runs have is no column: it would stand for those runs.
        let enough = runs.len().div_ceil(10);
        let features = known
            .into_iter()
            .filter(|(_, count)| *count >= enough)
            .flat_map(|((kind, quantity), _)| {
                statistics.iter().map(move |statistic| Feature {
                    kind: kind.clone(),
                    quantity,
                    statistic: *statistic,
                })
            })
            .collect();
        Self { features }
    }

    /// A run to be judged. Where it says nothing of staging, its run time includes it, and is not to be held against run time
    /// that does not.
    pub fn row(&self, run: &WorkflowRun) -> Vec<f32> {
        let mut row = self.row_as_recorded(run);
        if !says_staging(run) {
            let staged = self.features.iter().filter(|feature| feature.quantity.is_of_stage_in());
            let staged: HashSet<&str> = staged.map(|feature| feature.kind.as_str()).collect();
            for (value, feature) in row.iter_mut().zip(&self.features) {
                if feature.quantity.is_without_staging() && staged.contains(feature.kind.as_str()) {
                    *value = f32::NAN;
                }
            }
        }
        row
    }

    /// Runs to learn from.
    pub fn rows(&self, runs: &[&WorkflowRun]) -> Matrix {
        let values: Vec<f32> = runs.iter().flat_map(|run| self.row_as_recorded(run)).collect();
        Matrix::new(values, self.features.len().max(1))
    }

    fn row_as_recorded(&self, run: &WorkflowRun) -> Vec<f32> {
        let mut quantities: Vec<Quantity> = self.features.iter().map(|feature| feature.quantity).collect();
        quantities.sort_unstable();
        quantities.dedup();
        let values = by_kind(run, &quantities);
        let cell = |feature: &Feature| {
            let values = values.get(&(feature.kind.as_str(), feature.quantity));
            values.map_or(f32::NAN, |values| feature.statistic.of(values) as f32)
        };
        self.features.iter().map(cell).collect()
    }
}

/// Whether a run says anything of staging: logs alone do not.
pub(crate) fn says_staging(run: &WorkflowRun) -> bool {
    run.attempts.iter().any(|attempt| attempt.stage_in.is_some())
}

/// The values of every quantity over the attempts of each kind, in order of size. Only attempts that are over count.
pub(crate) fn by_kind<'a>(
    run: &'a WorkflowRun,
    quantities: &[Quantity],
) -> BTreeMap<(&'a str, Quantity), Vec<f64>> {
    let mut values: BTreeMap<(&str, Quantity), Vec<f64>> = BTreeMap::new();
    for (attempt, delays) in run.attempts.iter().zip(run.delays()) {
        for quantity in quantities {
            if let Some(value) = quantity.of(attempt, &delays) {
                values.entry((attempt.kind.as_str(), *quantity)).or_default().push(value);
            }
        }
    }
    values.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
    values
}
