//! A trained generator: fitting, storing and loading.

use std::path::Path;
use std::time::Instant;

use learn::artifact::restore::{RestoreError, ensure};
use learn::artifact::{ArtifactError, Provenance, Tensors};
use learn::family::{Family, Stored};
use serde::{Deserialize, Serialize};
use workload::Stop;

use super::gan::{Gan, GanConfig};
use super::gaussian_copula::GaussianCopula;
use super::private::{self, Private};
use super::sequence::SequenceCopulaGan;
use super::sessions::Sessions;
use super::tvae::Tvae;
use super::{Generator, GeneratorKind, TrainingConfig, TrainingProgress};
use crate::assemble::{ValueRange, enforce};
use crate::error::{Result, TraceError};
use crate::features::{FeatureSpec, FeatureTable};
use crate::schema::{Constraint, Role, Rule, Schema};
use crate::trace::Trace;

/// Jobs that a training trace has to have.
pub const MIN_JOBS: usize = 20;

/// The training of a generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub n_jobs: usize,
    /// Seconds from the first submission to the last.
    pub span_seconds: f64,
    #[serde(alias = "fit_seconds")]
    pub training_seconds: f64,
    #[serde(alias = "settings")]
    pub config: TrainingConfig,
}

/// A generator with everything that is needed to sample tables like its training trace.
pub struct TrainedGenerator {
    kind: GeneratorKind,
    schema: Schema,
    specs: Vec<FeatureSpec>,
    ranges: Vec<ValueRange>,
    origin: Origin,
    generator: Box<dyn Generator>,
}

#[derive(Serialize, Deserialize)]
struct StoredBody {
    schema: Schema,
    specs: Vec<FeatureSpec>,
    ranges: Vec<ValueRange>,
    origin: Origin,
    settings: serde_json::Value,
}

impl TrainedGenerator {
    /// Trains on a trace. Stops within a batch if asked to.
    pub fn fit(
        trace: &Trace,
        kind: GeneratorKind,
        config: TrainingConfig,
        stop: &Stop,
        mut report: impl FnMut(TrainingProgress),
    ) -> Result<Self> {
        let started = Instant::now();
        let mut jobs = trace.features()?;
        let n_jobs = jobs.n_jobs();
        if n_jobs < MIN_JOBS {
            let (found, required) = (n_jobs, MIN_JOBS);
            return Err(TraceError::TooFewJobs { found, required, purpose: "training" }.into());
        }
        let mut schema = trace.schema().clone();
        let is_private = kind == GeneratorKind::Private;
        if is_private {
            (schema, jobs) = private::anonymised(schema, jobs)?;
        }
        let specs = jobs.specs().to_vec();
        let range = |(spec, values): (&FeatureSpec, &Vec<f64>)| {
            if is_private { private::range(spec) } else { ValueRange::of(values) }
        };
        let ranges = specs.iter().zip(jobs.columns()).map(range).collect();
        let mut span_seconds = jobs.arrivals().last().copied().unwrap_or_default();
        let jobs = if kind.models_ratios() { as_ratios(jobs, &schema) } else { jobs };
        let mut gan = |gan: GanConfig| Gan::fit(&jobs, gan, config, stop, &mut report);
        let generator: Box<dyn Generator> = match kind {
            GeneratorKind::Ctgan => Box::new(gan(GanConfig::CTGAN)?),
            GeneratorKind::Copulagan => Box::new(gan(GanConfig::COPULAGAN)?),
            GeneratorKind::Gan => Box::new(gan(GanConfig::PLAIN)?),
            GeneratorKind::SequenceCopulagan => {
                Box::new(SequenceCopulaGan::fit(&jobs, config, stop, &mut report)?)
            }
            GeneratorKind::Tvae => Box::new(Tvae::fit(&jobs, config, stop, &mut report)?),
            GeneratorKind::GaussianCopula => Box::new(GaussianCopula::fit(&jobs, config.seed, stop)?),
            GeneratorKind::Sessions => Box::new(Sessions::fit(jobs, stop)?),
            GeneratorKind::Private => {
                let private = Private::fit(&jobs, stop)?;
                // The true span would say more about the trace than the model does.
                span_seconds = private.mean_interval() * n_jobs as f64;
                Box::new(private)
            }
        };
        let training_seconds = started.elapsed().as_secs_f64();
        let origin = Origin { n_jobs, span_seconds, training_seconds, config };
        Ok(Self { kind, schema, specs, ranges, origin, generator })
    }

    pub fn kind(&self) -> GeneratorKind {
        self.kind
    }

    /// The schema of the training trace, and of sampled tables.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub fn specs(&self) -> &[FeatureSpec] {
        &self.specs
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether the training trace is tied to a calendar, so that hours of the day and days of the week are known.
    pub fn has_calendar(&self) -> bool {
        self.schema.epoch().is_some()
    }

    /// Samples jobs before they are assembled to a table.
    pub fn sample_features(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<FeatureTable> {
        let columns = self.generator.sample(n_jobs, seed, stop)?;
        let mut jobs = FeatureTable::new(self.specs.clone(), columns)?;
        if self.kind.models_ratios() {
            for Ratio { column, unit } in ratios(&self.schema, &jobs) {
                let units = jobs.column(unit).to_vec();
                for (value, unit) in jobs.columns_mut()[column].iter_mut().zip(units) {
                    *value *= unit;
                }
            }
        }
        enforce(&self.schema, &mut jobs, &self.ranges);
        Ok(jobs)
    }

    /// Writes the model to a directory, which appears whole or not at all.
    pub fn write(&self, dir: &Path, provenance: &Provenance) -> Result<()> {
        let body = StoredBody {
            schema: self.schema.clone(),
            specs: self.specs.clone(),
            ranges: self.ranges.clone(),
            origin: self.origin.clone(),
            settings: self.generator.settings(),
        };
        let mut provenance = provenance.clone();
        if self.kind == GeneratorKind::Private {
            // Its checksum would confirm a guess of the trace.
            provenance.data = None;
        }
        let artifact = self.kind.to_artifact(&body, self.generator.tensors(), &provenance)?;
        Ok(artifact.write(dir)?)
    }

    /// Loads a model from a directory.
    pub fn read(dir: &Path) -> Result<Self> {
        let stored: Stored<GeneratorKind, StoredBody> = GeneratorKind::read(dir)?;
        let (kind, tensors) = (stored.member, &stored.tensors);
        let StoredBody { schema, specs, ranges, origin, settings } = stored.body;
        let restored =
            check(&schema, &specs, &ranges).and_then(|()| restore(kind, &specs, &settings, tensors));
        let generator = restored.map_err(|error| ArtifactError::damaged(dir, error))?;
        Ok(Self { kind, schema, specs, ranges, origin, generator })
    }
}

/// Checks what all generators have in common.
fn check(schema: &Schema, specs: &[FeatureSpec], ranges: &[ValueRange]) -> Result<(), RestoreError> {
    ensure(!schema.columns.is_empty(), "its schema has no columns")?;
    let is_interval = |spec: &FeatureSpec| spec.role == Some(Role::Interval) && !spec.is_category();
    ensure(specs.first().is_some_and(is_interval), "its first feature is not the interval")?;
    ensure(ranges.len() == specs.len(), "its ranges are those of other features")?;
    specs.iter().try_for_each(FeatureSpec::check)?;
    ranges.iter().try_for_each(ValueRange::check)
}

fn restore(
    kind: GeneratorKind,
    specs: &[FeatureSpec],
    settings: &serde_json::Value,
    tensors: &Tensors,
) -> Result<Box<dyn Generator>, RestoreError> {
    Ok(match kind {
        GeneratorKind::Ctgan | GeneratorKind::Copulagan | GeneratorKind::Gan => {
            Box::new(Gan::restore(specs, settings, tensors)?)
        }
        GeneratorKind::SequenceCopulagan => SequenceCopulaGan::restore(specs, settings, tensors)?,
        GeneratorKind::Tvae => Box::new(Tvae::restore(specs, settings, tensors)?),
        GeneratorKind::GaussianCopula => Box::new(GaussianCopula::restore(specs, settings, tensors)?),
        GeneratorKind::Sessions => Box::new(Sessions::restore(specs, tensors)?),
        GeneratorKind::Private => Box::new(Private::restore(specs, tensors)?),
    })
}

/// A feature that is always a multiple of another.
struct Ratio {
    column: usize,
    unit: usize,
}

fn ratios(schema: &Schema, jobs: &FeatureTable) -> Vec<Ratio> {
    let at = |name: &String| jobs.specs().iter().position(|spec| spec.name == *name);
    let ratio = |constraint: &Constraint| match &constraint.rule {
        Rule::MultipleOf { column, unit } if constraint.is_enforced() => {
            Some(Ratio { column: at(column)?, unit: at(unit)? })
        }
        _ => None,
    };
    schema.constraints.iter().filter_map(ratio).collect()
}

/// Replaces every feature that is a multiple of another by the ratio: cores by cores per node.
fn as_ratios(mut jobs: FeatureTable, schema: &Schema) -> FeatureTable {
    for Ratio { column, unit } in ratios(schema, &jobs) {
        let units = jobs.column(unit).to_vec();
        for (value, unit) in jobs.columns_mut()[column].iter_mut().zip(units) {
            *value /= unit.max(1.0);
        }
    }
    jobs
}
