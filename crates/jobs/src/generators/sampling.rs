//! Requests for synthetic traces: a number of jobs or a time span, a load factor, and conditions.

use std::num::NonZeroUsize;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Stop;

use super::TrainedGenerator;
use crate::assemble::assemble;
use crate::error::{RequestError, Result};
use crate::features::{FeatureKind, FeatureSpec, FeatureTable};
use crate::format::Format;
use crate::schema::{ColumnKind, UNIX_START};
use crate::table::Table;

/// How many jobs may be sampled for each one that meets a condition.
const MAX_TRIES: usize = 500;
/// The largest number of jobs that a model, and not the request, may ask for.
const MAX_IMPLICIT_JOBS: usize = 10_000_000;
const WEEK: f64 = 7.0 * 86_400.0;
const HOUR: f64 = 3_600.0;

/// A span of epoch seconds; the end is exclusive and after the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSpan {
    from: f64,
    to: f64,
}

impl TimeSpan {
    pub fn new(from: f64, to: f64) -> Result<Self, RequestError> {
        if to > from && from.is_finite() && to.is_finite() {
            Ok(Self { from, to })
        } else {
            Err(RequestError::Span { from, to })
        }
    }

    fn seconds(self) -> f64 {
        self.to - self.from
    }
}

/// A factor of the arrival rate: positive and finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadFactor(f64);

impl LoadFactor {
    pub fn new(factor: f64) -> Result<Self, RequestError> {
        if factor > 0.0 && factor.is_finite() { Ok(Self(factor)) } else { Err(RequestError::Load(factor)) }
    }

    pub fn factor(self) -> f64 {
        self.0
    }
}

impl Default for LoadFactor {
    fn default() -> Self {
        Self(1.0)
    }
}

/// How much to sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SampleExtent {
    /// As many jobs as the training trace has.
    #[default]
    LikeTraining,
    Jobs(NonZeroUsize),
    Span(TimeSpan),
}

/// A value that every job has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The name of a column or of a role.
    pub column: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampleRequest {
    pub extent: SampleExtent,
    pub load: LoadFactor,
    pub conditions: Vec<Condition>,
    pub seed: u64,
}

/// A condition in terms of features.
struct Required {
    feature: usize,
    value: f64,
}

impl TrainedGenerator {
    /// Samples a table with the columns of the training trace.
    pub fn sample(&self, request: &SampleRequest, stop: &Stop) -> Result<Table> {
        let required = self.required(&request.conditions)?;
        let LoadFactor(load) = request.load;
        let n_jobs = match request.extent {
            SampleExtent::Span(span) => return self.sample_span(span, &required, request, stop),
            SampleExtent::Jobs(n_jobs) => n_jobs.get(),
            SampleExtent::LikeTraining => implicit(self.origin().n_jobs)?,
        };
        let mut jobs = self.sample_matching(n_jobs, &required, request.seed, stop)?;
        for interval in &mut jobs.columns_mut()[0] {
            *interval /= load;
        }
        self.round_arrivals(&mut jobs);
        Ok(assemble(self.schema(), &jobs, self.schema().first_submission.unwrap_or_default()))
    }

    fn sample_span(
        &self,
        span: TimeSpan,
        required: &[Required],
        request: &SampleRequest,
        stop: &Stop,
    ) -> Result<Table> {
        let mut jobs = self.overlay(span, required, request, stop)?;
        self.round_arrivals(&mut jobs);
        // The first interval is the time from the start of the span to the first job.
        let first = jobs.intervals().first().copied().unwrap_or_default();
        let is_relative = self.schema().epoch().is_some_and(|epoch| epoch > 0.0);
        let mut table = assemble(self.schema(), &jobs, first + if is_relative { 0.0 } else { span.from });
        if is_relative {
            table.notes.retain(|note| !note.contains("StartTime:") && !note.contains("EndTime:"));
            table.notes.push(format!("{UNIX_START} {}", span.from));
        }
        Ok(table)
    }

    fn required(&self, conditions: &[Condition]) -> Result<Vec<Required>, RequestError> {
        let mut required = Vec::new();
        for Condition { column, value } in conditions {
            let (column, value) = (column.clone(), value.clone());
            let spec = self.schema().column(&column);
            if let Some(ColumnKind::Constant { cell }) = spec.map(|spec| &spec.kind) {
                if is_equal(cell, &value) {
                    continue;
                }
                return Err(RequestError::Constant { column, value: cell.clone() });
            }
            let is_named = |spec: &FeatureSpec| {
                spec.name == column || spec.role.is_some_and(|role| role.name() == column)
            };
            let Some(feature) = self.specs().iter().position(is_named) else {
                let available = self.specs().iter().map(|spec| spec.name.clone()).collect();
                return Err(RequestError::NoColumn { column, available });
            };
            let value = match &self.specs()[feature].kind {
                FeatureKind::Category { names } => {
                    let code = names.iter().position(|known| is_equal(known, &value));
                    code.ok_or(RequestError::NeverSeen { column, value })? as f64
                }
                FeatureKind::Number { format } => {
                    format.parse(&value).ok_or(RequestError::NotANumber { column, value })?
                }
            };
            required.push(Required { feature, value });
        }
        Ok(required)
    }

    /// Samples jobs until enough of them meet the conditions. The others are left out, but the time that passed with them
    /// remains: the result is the part of a trace that consists of such jobs.
    fn sample_matching(
        &self,
        n_jobs: usize,
        required: &[Required],
        seed: u64,
        stop: &Stop,
    ) -> Result<FeatureTable> {
        if required.is_empty() {
            return self.sample_features(n_jobs, seed, stop);
        }
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); self.specs().len()];
        let mut since_last = 0.0;
        let mut n_sampled = 0;
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let n_in_batch = self.origin().n_jobs.min(MAX_IMPLICIT_JOBS).max(n_jobs);
        while columns[0].len() < n_jobs {
            if n_sampled >= n_in_batch.saturating_mul(MAX_TRIES) {
                return Err(RequestError::TooRare { n_matching: columns[0].len(), n_sampled }.into());
            }
            let batch = self.sample_features(n_in_batch, seeds.random(), stop)?;
            n_sampled += batch.n_jobs();
            for job in 0..batch.n_jobs() {
                since_last += batch.value(0, job);
                let matches = |one: &Required| batch.value(one.feature, job) == one.value;
                if columns[0].len() < n_jobs && required.iter().all(matches) {
                    columns[0].push(since_last);
                    for (column, sampled) in columns.iter_mut().zip(batch.columns()).skip(1) {
                        column.push(sampled[job]);
                    }
                    since_last = 0.0;
                }
            }
        }
        Ok(FeatureTable::new(self.specs().to_vec(), columns)?)
    }

    /// Samples jobs of a span. A load above one overlays several traces, so that the daily cycle is kept.
    fn overlay(
        &self,
        span: TimeSpan,
        required: &[Required],
        request: &SampleRequest,
        stop: &Stop,
    ) -> Result<FeatureTable> {
        let LoadFactor(load) = request.load;
        let n_traces = load.ceil().max(1.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(request.seed);
        let mut jobs: Vec<(f64, Vec<f64>)> = Vec::new();
        for trace in 0..n_traces as u64 {
            let seed = if trace == 0 { request.seed } else { rng.random() };
            let (sampled, arrivals) = self.sample_one_span(span, required, seed, stop)?;
            for (job, arrival) in arrivals.into_iter().enumerate() {
                if rng.random::<f64>() * n_traces < load {
                    jobs.push((arrival, sampled.columns().iter().map(|values| values[job]).collect()));
                }
            }
        }
        jobs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut columns = vec![Vec::with_capacity(jobs.len()); self.specs().len()];
        let mut previous = 0.0;
        for (arrival, row) in jobs {
            columns[0].push(arrival - previous);
            for (column, value) in columns.iter_mut().zip(row).skip(1) {
                column.push(value);
            }
            previous = arrival;
        }
        Ok(FeatureTable::new(self.specs().to_vec(), columns)?)
    }

    /// One trace in a span: its jobs, and their arrivals in seconds after the start of the span. If the training trace is
    /// tied to a calendar, hours of the week are aligned with those of the training trace.
    fn sample_one_span(
        &self,
        span: TimeSpan,
        required: &[Required],
        seed: u64,
        stop: &Stop,
    ) -> Result<(FeatureTable, Vec<f64>)> {
        let mean_interval = self.origin().span_seconds / self.origin().n_jobs.max(1) as f64;
        let training_start =
            self.schema().epoch().zip(self.schema().first_submission).map(|(epoch, first)| epoch + first);
        let skipped = training_start.map_or(0.0, |start| (span.from - start).rem_euclid(WEEK));
        let n_expected = (span.seconds() + skipped + HOUR) / mean_interval.max(1e-6);
        let mut n_jobs = ((n_expected * 1.3) as usize).saturating_add(self.origin().n_jobs);
        loop {
            let jobs = self.sample_matching(implicit(n_jobs)?, required, seed, stop)?;
            let arrivals = jobs.arrivals();
            let end = skipped + span.to - span.from;
            if arrivals.last().is_some_and(|last| *last < end) {
                n_jobs *= 2;
                continue;
            }
            let last = arrivals.partition_point(|arrival| *arrival < end);
            // Arrivals are not in order if intervals are negative.
            let first = arrivals.partition_point(|arrival| *arrival < skipped).min(last);
            let arrivals = arrivals[first..last].iter().map(|arrival| arrival - skipped).collect();
            return Ok((jobs.slice(first..last), arrivals));
        }
    }

    /// Rounds arrival times instead of intervals, so that rounding does not change the length of a trace.
    fn round_arrivals(&self, jobs: &mut FeatureTable) {
        let FeatureKind::Number { format } = self.specs()[0].kind else { return };
        round_arrivals(&mut jobs.columns_mut()[0], format);
    }
}

/// A number of jobs that the request does not name.
fn implicit(n_jobs: usize) -> Result<usize, RequestError> {
    let limit = MAX_IMPLICIT_JOBS;
    if n_jobs <= limit { Ok(n_jobs) } else { Err(RequestError::TooManyJobs { n_jobs, limit }) }
}

fn round_arrivals(intervals: &mut [f64], format: Format) {
    let (mut time, mut previous) = (0.0, 0.0);
    for interval in intervals {
        time += *interval;
        let arrival = format.round(time);
        *interval = format.round(arrival - previous);
        previous = arrival;
    }
}

/// Whether two cells are equal as text or as numbers.
fn is_equal(one: &str, other: &str) -> bool {
    one == other
        || one.parse::<f64>().ok().zip(other.parse::<f64>().ok()).is_some_and(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_loads_are_checked_when_they_are_made() {
        assert!(TimeSpan::new(1.0, 2.0).is_ok());
        for (from, to) in [(2.0, 1.0), (1.0, 1.0), (0.0, f64::NAN), (0.0, f64::INFINITY)] {
            assert!(TimeSpan::new(from, to).is_err());
        }
        assert!(LoadFactor::new(0.5).is_ok());
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(LoadFactor::new(factor).is_err());
        }
    }

    #[test]
    fn rounding_does_not_change_the_length_of_a_trace() {
        let mut intervals = vec![0.4; 100];
        round_arrivals(&mut intervals, Format::Plain { decimals: 0 });
        assert_eq!(intervals.iter().sum::<f64>(), 40.0);
        assert!(intervals.iter().all(|interval| *interval == 0.0 || *interval == 1.0));
    }
}
