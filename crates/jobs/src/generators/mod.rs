//! Generators of job traces: one folder each, one trait, one contract.

mod activate;
mod encode;
pub mod gan;
pub mod gaussian_copula;
pub mod sessions;
pub mod tvae;

use std::path::Path;
use std::time::Duration;

use learn::artifact::{Artifact, Provenance, Tensors};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use self::encode::Encoder;
use self::gan::Recipe;
use crate::assemble::{assemble, enforce};
use crate::error::{Error, Result};
use crate::features::{FeatureKind, FeatureSpec, Jobs};
use crate::format::Format;
use crate::schema::{Constraint, Kind, Rule, Schema, UNIX_START};
use crate::table::Table;
use crate::trace::Trace;

/// What a generator is, once it is fitted.
pub trait Generator: Send + Sync {
    /// Values of every feature for as many jobs; the first is the interval.
    fn sample(&self, n_jobs: usize, seed: u64) -> Vec<Vec<f64>>;

    fn tensors(&self) -> Tensors;

    /// What is no weight, but has to be kept.
    fn settings(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Rows that networks make together.
const CHUNK: usize = 512;

/// Features of as many jobs, from encoded rows that are made in chunks side by side; the same whatever the number of threads.
fn in_chunks(
    n_jobs: usize,
    seed: u64,
    encoder: &Encoder,
    make: impl Fn(usize, &mut Xoshiro256PlusPlus) -> Vec<f32> + Sync,
) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let chunks: Vec<(usize, u64)> =
        (0..n_jobs.div_ceil(CHUNK)).map(|chunk| (CHUNK.min(n_jobs - chunk * CHUNK), rng.random())).collect();
    let parts: Vec<Vec<Vec<f64>>> = chunks
        .into_par_iter()
        .map(|(n_rows, seed)| {
            let mut values = vec![Vec::with_capacity(n_rows); encoder.n_features()];
            encoder.decode(&make(n_rows, &mut Xoshiro256PlusPlus::seed_from_u64(seed)), &mut values);
            values
        })
        .collect();
    let column = |at: usize| parts.iter().flat_map(|part| &part[at]).copied().collect();
    (0..encoder.n_features()).into_par_iter().map(column).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    Ctgan,
    Tvae,
    Copulagan,
    SequenceCopulagan,
    Gan,
    GaussianCopula,
    Sessions,
}

impl Model {
    pub const ALL: [Self; 7] = [
        Self::Ctgan,
        Self::Tvae,
        Self::Copulagan,
        Self::SequenceCopulagan,
        Self::Gan,
        Self::GaussianCopula,
        Self::Sessions,
    ];
    /// The one that measurements recommend.
    pub const BEST: Self = Self::Sessions;

    pub fn name(self) -> &'static str {
        match self {
            Self::Ctgan => "ctgan",
            Self::Tvae => "tvae",
            Self::Copulagan => "copulagan",
            Self::SequenceCopulagan => "sequence-copulagan",
            Self::Gan => "gan",
            Self::GaussianCopula => "gaussian-copula",
            Self::Sessions => "sessions",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::Ctgan => "Conditional adversarial networks with modes for numbers",
            Self::Tvae => "A variational autoencoder of rows",
            Self::Copulagan => "CTGAN on normal scores",
            Self::SequenceCopulagan => "CopulaGAN in view of the job before",
            Self::Gan => "Plain adversarial networks: a baseline",
            Self::GaussianCopula => "Distributions of columns and their correlations: a baseline",
            Self::Sessions => {
                "Sessions of users who come back and repeat their jobs, on the course of the trace"
            }
        }
    }
}

/// How long to learn, for what is learnt step by step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FitSettings {
    /// How often every job is looked at; nothing is what the model takes by default.
    pub n_epochs: Option<usize>,
    pub seed: u64,
}

/// How far fitting is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub done: usize,
    pub total: usize,
    pub loss: Option<f64>,
    pub left: Duration,
}

/// Where a fitted generator is from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub n_jobs: usize,
    /// Seconds from the first submission to the last.
    pub span_seconds: f64,
    pub fit_seconds: f64,
    pub settings: FitSettings,
}

/// A generator with all that is needed to make tables like the one that it learnt from.
pub struct Fitted {
    pub model: Model,
    pub schema: Schema,
    pub specs: Vec<FeatureSpec>,
    /// The least and the most of each feature.
    pub ranges: Vec<(f64, f64)>,
    pub origin: Origin,
    generator: Box<dyn Generator>,
}

/// What is asked of a generator.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    pub n_jobs: Option<usize>,
    /// From and to, in epoch seconds.
    pub span: Option<(f64, f64)>,
    /// How many times the load.
    pub scale: Option<f64>,
    /// Columns or roles with the cells that they have to have.
    pub condition: Vec<(String, String)>,
    pub seed: u64,
}

#[derive(Serialize, Deserialize)]
struct Body {
    schema: Schema,
    specs: Vec<FeatureSpec>,
    ranges: Vec<(f64, f64)>,
    origin: Origin,
    settings: serde_json::Value,
}

/// Jobs that there have to be for anything to be learnt.
pub const LEAST_JOBS: usize = 20;
/// How many jobs may be made for each that meets a condition.
const MOST_TRIES: usize = 500;
const WEEK: f64 = 7.0 * 86_400.0;
const HOUR: f64 = 3_600.0;

impl Fitted {
    pub fn fit(
        trace: &Trace,
        model: Model,
        settings: FitSettings,
        mut tell: impl FnMut(Step),
    ) -> Result<Self> {
        let begun = std::time::Instant::now();
        let jobs = trace.jobs()?;
        if jobs.len() < LEAST_JOBS {
            return Err(Error::TooFew { found: jobs.len(), wanted: LEAST_JOBS, what: "learn from" });
        }
        let ranges = jobs.values.iter().map(|values| range(values)).collect();
        let units = units(&trace.schema, &jobs);
        let rows = per_unit(&jobs, &units);
        let mut gan =
            |recipe| -> Box<dyn Generator> { Box::new(gan::Gan::fit(&rows, recipe, settings, &mut tell)) };
        let generator: Box<dyn Generator> = match model {
            Model::Ctgan => gan(Recipe::CTGAN),
            Model::Copulagan => gan(Recipe::COPULA),
            Model::SequenceCopulagan => gan(Recipe::SEQUENCE),
            Model::Gan => gan(Recipe::PLAIN),
            Model::Tvae => Box::new(tvae::Tvae::fit(&rows, settings, &mut tell)),
            Model::GaussianCopula => {
                let fitted = gaussian_copula::GaussianCopula::fit(&rows, settings.seed);
                Box::new(
                    fitted
                        .ok_or_else(|| Error::Schema("the correlations of columns make no sense".into()))?,
                )
            }
            Model::Sessions => Box::new(sessions::Sessions::fit(&jobs)),
        };
        let origin = Origin {
            n_jobs: jobs.len(),
            span_seconds: jobs.arrivals().last().copied().unwrap_or_default(),
            fit_seconds: begun.elapsed().as_secs_f64(),
            settings,
        };
        Ok(Self { model, schema: trace.schema.clone(), specs: jobs.specs, ranges, origin, generator })
    }

    pub fn write(&self, folder: &Path, provenance: &Provenance) -> Result<()> {
        let body = Body {
            schema: self.schema.clone(),
            specs: self.specs.clone(),
            ranges: self.ranges.clone(),
            origin: self.origin.clone(),
            settings: self.generator.settings(),
        };
        let body = serde_json::to_value(body).map_err(|error| Error::file(folder, error))?;
        let artifact = Artifact {
            kind: format!("jobs/{}", self.model.name()),
            body,
            tensors: self.generator.tensors(),
            provenance: provenance.clone(),
        };
        Ok(artifact.write(folder)?)
    }

    pub fn read(folder: &Path) -> Result<Self> {
        let artifact = Artifact::read(folder, "jobs")?;
        let name = artifact.kind.trim_start_matches("jobs/");
        let Some(model) = Model::ALL.into_iter().find(|model| model.name() == name) else {
            return Err(Error::file(
                folder,
                format!("{name} is a generator that this Tracewise does not know"),
            ));
        };
        let body: Body = serde_json::from_value(artifact.body).map_err(|error| Error::file(folder, error))?;
        let damaged = || Error::file(folder, "the weights are not those of its manifest");
        let (settings, tensors) = (&body.settings, &artifact.tensors);
        let generator: Option<Box<dyn Generator>> = match model {
            Model::Ctgan | Model::Copulagan | Model::SequenceCopulagan | Model::Gan => {
                gan::Gan::restore(settings, tensors).map(|found| Box::new(found) as _)
            }
            Model::Tvae => tvae::Tvae::restore(settings, tensors).map(|found| Box::new(found) as _),
            Model::GaussianCopula => {
                gaussian_copula::GaussianCopula::restore(settings, tensors).map(|found| Box::new(found) as _)
            }
            Model::Sessions => {
                sessions::Sessions::restore(&body.specs, tensors).map(|found| Box::new(found) as _)
            }
        };
        let generator = generator.ok_or_else(damaged)?;
        let Body { schema, specs, ranges, origin, .. } = body;
        Ok(Self { model, schema, specs, ranges, origin, generator })
    }

    /// A table like the one that was learnt from.
    pub fn sample(&self, ask: &Ask) -> Result<Table> {
        let wanted = self.wanted(&ask.condition)?;
        let scale = ask.scale.unwrap_or(1.0);
        let mut jobs = match ask.span {
            Some((from, to)) => self.over(from, to, &wanted, scale, ask.seed)?,
            None => {
                let mut jobs = self.count(ask.n_jobs.unwrap_or(self.origin.n_jobs), &wanted, ask.seed)?;
                jobs.values[0].iter_mut().for_each(|interval| *interval /= scale);
                jobs
            }
        };
        if let FeatureKind::Number { format } = self.specs[0].kind {
            round_arrivals(&mut jobs.values[0], format);
        }
        let Some((from, _)) = ask.span else {
            return Ok(assemble(&self.schema, &jobs, self.schema.begins.unwrap_or_default()));
        };
        // The first job of a span comes after its beginning, by its interval.
        let ahead = jobs.values[0].first().copied().unwrap_or_default();
        let is_counted_from_start = self.schema.epoch().is_some_and(|epoch| epoch > 0.0);
        let mut table = assemble(&self.schema, &jobs, ahead + if is_counted_from_start { 0.0 } else { from });
        if is_counted_from_start {
            table.notes.retain(|note| !note.contains("StartTime:") && !note.contains("EndTime:"));
            table.notes.push(format!("{UNIX_START} {from}"));
        }
        Ok(table)
    }

    /// Whether the trace that was learnt from says when it was: only then are hours of the week known.
    pub fn has_calendar(&self) -> bool {
        self.schema.epoch().is_some()
    }

    /// Jobs before they are a table.
    pub fn jobs(&self, n_jobs: usize, seed: u64) -> Jobs {
        let mut jobs = Jobs { specs: self.specs.clone(), values: self.generator.sample(n_jobs, seed) };
        if self.model != Model::Sessions {
            for (column, unit) in units(&self.schema, &jobs) {
                let units = jobs.values[unit].clone();
                jobs.values[column].iter_mut().zip(units).for_each(|(value, unit)| *value *= unit);
            }
        }
        enforce(&self.schema, &mut jobs, &self.ranges);
        jobs
    }

    /// Features and the values that they have to have.
    fn wanted(&self, condition: &[(String, String)]) -> Result<Vec<(usize, f64)>> {
        let one = |(name, cell): &(String, String)| {
            if let Some(Kind::Constant { cell: always }) = self.schema.column(name).map(|spec| &spec.kind) {
                let other =
                    || Error::Condition(format!("{name} is always {always} in the trace learnt from"));
                return if is_same(always, cell) { Ok(None) } else { Err(other()) };
            }
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            let at = self
                .specs
                .iter()
                .position(|spec| spec.name == *name || spec.role.is_some_and(|role| role.name() == name));
            let at = at.ok_or_else(|| {
                Error::Condition(format!("there is no column {name}; there are {}", names.join(", ")))
            })?;
            let value = match &self.specs[at].kind {
                FeatureKind::Category { names } => {
                    let found = names.iter().position(|known| is_same(known, cell)).map(|code| code as f64);
                    found.ok_or_else(|| {
                        Error::Condition(format!("{name} was never {cell} in the trace learnt from"))
                    })?
                }
                FeatureKind::Number { format } => format
                    .parse(cell)
                    .ok_or_else(|| Error::Condition(format!("{name}={cell}: {cell} is no number")))?,
            };
            Ok(Some((at, value)))
        };
        condition.iter().filter_map(|pair| one(pair).transpose()).collect()
    }

    /// As many jobs as are asked for. Those that do not meet the condition are left out, and the time that
    /// passed with them stays: what is left is what a trace has of such jobs.
    fn count(&self, n_jobs: usize, wanted: &[(usize, f64)], seed: u64) -> Result<Jobs> {
        if wanted.is_empty() {
            return Ok(self.jobs(n_jobs, seed));
        }
        let mut kept = Jobs { specs: self.specs.clone(), values: vec![Vec::new(); self.specs.len()] };
        let mut waited = 0.0;
        let mut n_made = 0;
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        while kept.len() < n_jobs {
            if n_made >= MOST_TRIES * n_jobs.max(self.origin.n_jobs) {
                return Err(Error::Condition(format!(
                    "of {n_made} jobs, {} meet the condition: ask for fewer, or for something that is not so rare",
                    kept.len()
                )));
            }
            let batch = self.jobs(self.origin.n_jobs.max(n_jobs), seeds.random());
            n_made += batch.len();
            for row in 0..batch.len() {
                waited += batch.values[0][row];
                if wanted.iter().all(|(at, value)| batch.values[*at][row] == *value) && kept.len() < n_jobs {
                    kept.values.iter_mut().zip(&batch.values).for_each(|(kept, made)| kept.push(made[row]));
                    if let Some(last) = kept.values[0].last_mut() {
                        *last = waited;
                    }
                    waited = 0.0;
                }
            }
        }
        Ok(kept)
    }

    /// Jobs that come between two moments. Where the trace learnt from says when it began, hours of the week are about
    /// those that they were: a larger load is several traces at once, not one that goes faster. The first interval is since the first moment.
    fn over(&self, from: f64, to: f64, wanted: &[(usize, f64)], scale: f64, seed: u64) -> Result<Jobs> {
        let n_traces = scale.ceil().max(1.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut found: Vec<(f64, Vec<f64>)> = Vec::new();
        for at in 0..n_traces as u64 {
            let (jobs, arrivals) =
                self.at_once(from, to, wanted, if at == 0 { seed } else { rng.random() })?;
            for (row, arrival) in arrivals.into_iter().enumerate() {
                if rng.random::<f64>() * n_traces < scale {
                    found.push((arrival, jobs.values.iter().map(|values| values[row]).collect()));
                }
            }
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut values = vec![Vec::with_capacity(found.len()); self.specs.len()];
        let mut before = 0.0;
        for (arrival, row) in found {
            values.iter_mut().zip(row).for_each(|(values, value)| values.push(value));
            if let Some(interval) = values[0].last_mut() {
                *interval = arrival - before;
            }
            before = arrival;
        }
        Ok(Jobs { specs: self.specs.clone(), values })
    }

    /// One trace between two moments: its jobs, and when they come after the first moment.
    fn at_once(&self, from: f64, to: f64, wanted: &[(usize, f64)], seed: u64) -> Result<(Jobs, Vec<f64>)> {
        let mean = self.origin.span_seconds / self.origin.n_jobs.max(1) as f64;
        let began = self.schema.epoch().zip(self.schema.begins).map(|(epoch, begins)| epoch + begins);
        let ahead = began.map_or(0.0, |began| (from - began).rem_euclid(WEEK));
        let n_expected = (to - from + ahead + HOUR) / mean.max(1e-6);
        let mut n_jobs = (n_expected * 1.3) as usize + self.origin.n_jobs;
        loop {
            let jobs = self.count(n_jobs, wanted, seed)?;
            let arrivals = jobs.arrivals();
            let end = ahead + to - from;
            if arrivals.last().is_some_and(|last| *last < end) {
                n_jobs *= 2;
                continue;
            }
            let first = arrivals.partition_point(|arrival| *arrival < ahead);
            let last = arrivals.partition_point(|arrival| *arrival < end);
            let arrivals = arrivals[first..last].iter().map(|arrival| arrival - ahead).collect();
            return Ok((jobs.slice(first..last), arrivals));
        }
    }
}

/// Rounds when jobs come, not how long after each other: a trace does not get longer by it.
fn round_arrivals(intervals: &mut [f64], format: Format) {
    let (mut time, mut before) = (0.0, 0.0);
    for interval in intervals {
        time += *interval;
        let arrival = format.round(time);
        *interval = format.round(arrival - before);
        before = arrival;
    }
}

/// Whether cells say the same, be it with other zeros.
fn is_same(one: &str, other: &str) -> bool {
    one == other
        || one.parse::<f64>().ok().zip(other.parse::<f64>().ok()).is_some_and(|(one, other)| one == other)
}

/// Columns that are always a multiple of another, and that other.
fn units(schema: &Schema, jobs: &Jobs) -> Vec<(usize, usize)> {
    let at = |name: &String| jobs.specs.iter().position(|spec| spec.name == *name);
    let unit = |constraint: &Constraint| match &constraint.rule {
        Rule::MultipleOf { column, unit } if constraint.is_kept() => at(column).zip(at(unit)),
        _ => None,
    };
    schema.constraints.iter().filter_map(unit).collect()
}

/// Jobs with multiples as how many times the other: models of rows learn cores a node, and cores follow.
fn per_unit(jobs: &Jobs, units: &[(usize, usize)]) -> Jobs {
    let mut jobs = jobs.clone();
    for (column, unit) in units {
        let units = jobs.values[*unit].clone();
        jobs.values[*column].iter_mut().zip(units).for_each(|(value, unit)| *value /= unit.max(1.0));
    }
    jobs
}

/// The least and the most of what is known.
fn range(values: &[f64]) -> (f64, f64) {
    let known = values.iter().copied().filter(|value| !value.is_nan());
    known.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
}
