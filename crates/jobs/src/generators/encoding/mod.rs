//! Encoding of jobs for networks: numbers as a mode and the position within it, categories as one-hot vectors
//! (mode-specific normalisation; Xu et al., "Modeling tabular data using conditional GAN", 2019).
//!
//! Departures from the paper: numbers may be transformed before their modes are fitted ([`TransformKind`]), frequent
//! values are modes of their own, and categories with many names are numbers.

mod column;
mod scores;
mod transform;

use learn::artifact::restore::{RestoreError, ensure};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use self::column::ColumnEncoding;
pub use self::column::is_distribution;
pub use self::scores::NormalScores;
pub use self::transform::{TransformKind, normal_quantile};
use crate::features::{FeatureSpec, FeatureTable};

const MAX_MODES: usize = 10;

/// Consecutive positions of an encoded row that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub first: usize,
    pub len: usize,
    pub kind: SpanKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpanKind {
    /// One number between -1 and 1.
    Scalar,
    OneHot,
}

/// A category that rows can be conditioned on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConditionColumn {
    /// The index of its span.
    pub span: usize,
    /// The fraction of jobs with each value.
    pub fractions: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Encoder {
    columns: Vec<ColumnEncoding>,
    spans: Vec<Span>,
    width: usize,
    conditions: Vec<ConditionColumn>,
}

impl Encoder {
    /// `has_modes` allows several modes per number, and modes for frequent values.
    pub fn fit(
        jobs: &FeatureTable,
        transform: TransformKind,
        has_modes: bool,
        seed: u64,
        stop: &Stop,
    ) -> Result<Self, Stopped> {
        let max_modes = if has_modes { MAX_MODES } else { 1 };
        let mut columns = Vec::new();
        for (spec, values) in jobs.specs().iter().zip(jobs.columns()) {
            stop.check()?;
            columns.push(ColumnEncoding::fit(spec, values, transform, max_modes, seed));
        }
        Ok(Self::of_columns(columns))
    }

    fn of_columns(columns: Vec<ColumnEncoding>) -> Self {
        let mut encoder = Self { columns: Vec::new(), spans: Vec::new(), width: 0, conditions: Vec::new() };
        for column in &columns {
            match column {
                ColumnEncoding::Number { .. } => {
                    encoder.push_span(1, SpanKind::Scalar);
                    encoder.push_span(column.len() - 1, SpanKind::OneHot);
                }
                ColumnEncoding::OneHot { fractions, is_condition, .. } => {
                    encoder.push_span(fractions.len(), SpanKind::OneHot);
                    if *is_condition {
                        let (span, fractions) = (encoder.spans.len() - 1, fractions.clone());
                        encoder.conditions.push(ConditionColumn { span, fractions });
                    }
                }
            }
        }
        Self { columns, ..encoder }
    }

    fn push_span(&mut self, len: usize, kind: SpanKind) {
        self.spans.push(Span { first: self.width, len, kind });
        self.width += len;
    }

    pub fn n_features(&self) -> usize {
        self.columns.len()
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Numbers in an encoded row.
    pub fn width(&self) -> usize {
        self.width
    }

    pub fn conditions(&self) -> &[ConditionColumn] {
        &self.conditions
    }

    /// Numbers in a condition vector: one per value of each condition column.
    pub fn condition_width(&self) -> usize {
        self.conditions.iter().map(|condition| condition.fractions.len()).sum()
    }

    /// For each condition column, the position of the value of every job.
    pub fn condition_values(&self, jobs: &FeatureTable) -> Vec<Vec<usize>> {
        let is_condition =
            |column: &ColumnEncoding| matches!(column, ColumnEncoding::OneHot { is_condition: true, .. });
        let columns = self.columns.iter().zip(jobs.columns()).filter(|(column, _)| is_condition(column));
        columns
            .map(|(column, values)| values.iter().map(|value| column.one_hot_position(*value)).collect())
            .collect()
    }

    /// Checks an encoder that was read from a file, against the features it is for.
    pub fn check(&self, specs: &[FeatureSpec]) -> Result<(), RestoreError> {
        ensure(self.columns.len() == specs.len(), "its encoder is for other features")?;
        for (column, spec) in self.columns.iter().zip(specs) {
            column.check(spec)?;
        }
        let derived = Self::of_columns(self.columns.clone());
        ensure(*self == derived, "the spans of its encoder do not follow from its columns")
    }

    /// Encoded rows, one after the other.
    pub fn encode(&self, jobs: &FeatureTable, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let mut rows = vec![0.0; jobs.n_jobs() * self.width];
        for (job, row) in rows.chunks_exact_mut(self.width).enumerate() {
            let mut at = 0;
            for (column, values) in self.columns.iter().zip(jobs.columns()) {
                at += column.encode(values[job], &mut row[at..], rng);
            }
        }
        rows
    }

    /// Samples jobs from the raw output of a network, which is overwritten, and appends them to one column per feature.
    /// `std_devs` are those of the noise of scalars, by position in a row.
    pub fn sample(
        &self,
        raw: &mut [f32],
        std_devs: Option<&[f32]>,
        columns: &mut [Vec<f64>],
        rng: &mut Xoshiro256PlusPlus,
    ) {
        for row in raw.chunks_exact_mut(self.width) {
            let mut at = 0;
            for (encoding, values) in self.columns.iter().zip(columns.iter_mut()) {
                let std_dev = std_devs.map_or(0.0, |std_devs| std_devs[at]);
                values.push(encoding.sample(&mut row[at..], std_dev, rng));
                at += encoding.len();
            }
        }
    }

    /// Appends the values of encoded rows to one column per feature.
    pub fn decode(&self, rows: &[f32], columns: &mut [Vec<f64>]) {
        for row in rows.chunks_exact(self.width) {
            let mut at = 0;
            for (encoding, values) in self.columns.iter().zip(columns.iter_mut()) {
                values.push(encoding.decode(&row[at..]));
                at += encoding.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::features::FeatureKind;
    use crate::format::Format;
    use crate::schema::Role;

    /// A number with a frequent value and missing values, a category of few names, and one of many.
    fn jobs() -> FeatureTable {
        let number = FeatureKind::Number { format: Format::Plain { decimals: 2 } };
        let few = FeatureKind::Category { names: vec!["a".into(), "b".into()] };
        let many = FeatureKind::Category { names: (0..400).map(|name| name.to_string()).collect() };
        let spec = |name: &str, role, kind| FeatureSpec { name: name.into(), role, kind };
        let interval = |job: usize| match job % 10 {
            0..4 => 3_600.0,
            4 => f64::NAN,
            _ => 10.0 + (job * 37 % 5_000) as f64 * 1.25,
        };
        let specs = vec![
            spec("interval", Some(Role::Interval), number),
            spec("few", None, few),
            spec("many", None, many),
        ];
        let columns = vec![
            (0..2_000).map(interval).collect(),
            (0..2_000).map(|job| f64::from(u8::from(job % 3 == 0))).collect(),
            (0..2_000).map(|job| (job % 400) as f64).collect(),
        ];
        FeatureTable::new(specs, columns).unwrap()
    }

    #[test]
    fn encoded_jobs_are_decoded_to_themselves() {
        let jobs = jobs();
        for transform in [TransformKind::Log, TransformKind::NormalScores] {
            let encoder = Encoder::fit(&jobs, transform, true, 0, &Stop::default()).unwrap();
            assert_eq!(encoder.check(jobs.specs()), Ok(()));
            let rows = encoder.encode(&jobs, &mut Xoshiro256PlusPlus::seed_from_u64(1));
            assert_eq!(rows.len(), 2_000 * encoder.width);
            assert!(encoder.width < 200, "a category of many names is not one-hot");
            let mut columns = vec![Vec::new(); 3];
            encoder.decode(&rows, &mut columns);
            let mut n_off = 0;
            for (found, wanted) in columns[0].iter().zip(jobs.column(0)) {
                if wanted.is_nan() || *wanted == 3_600.0 {
                    assert_eq!(found.to_bits(), wanted.to_bits(), "missing and frequent values are exact");
                } else {
                    // Values far from their mode are clipped.
                    n_off += usize::from((found - wanted).abs() > 0.05 * wanted);
                }
            }
            assert!(n_off < 40, "{transform:?}: {n_off} are off");
            assert_eq!(columns[1], jobs.column(1));
            let n_same = columns[2].iter().zip(jobs.column(2)).filter(|(a, b)| a == b).count();
            assert!(n_same > 1_900, "{transform:?}: {n_same}");
        }
    }

    #[test]
    fn encoders_that_do_not_fit_their_features_are_rejected() {
        let jobs = jobs();
        let encoder = Encoder::fit(&jobs, TransformKind::NormalScores, true, 0, &Stop::default()).unwrap();
        let changed = |change: &dyn Fn(&mut Encoder)| {
            let mut encoder = encoder.clone();
            change(&mut encoder);
            encoder.check(jobs.specs())
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert!(changed(&|encoder| encoder.width = usize::MAX).is_err());
        assert!(changed(&|encoder| encoder.spans[1].len = usize::MAX).is_err());
        assert!(changed(&|encoder| encoder.conditions[0].span = 0).is_err());
        assert!(changed(&|encoder| encoder.columns.truncate(1)).is_err());
        assert!(changed(&|encoder| encoder.columns.swap(1, 2)).is_err());
        let no_values = |encoder: &mut Encoder| {
            let (values, fractions) = (Vec::new(), Vec::new());
            let columns = vec![ColumnEncoding::OneHot { values, fractions, is_condition: false }; 3];
            *encoder = Encoder::of_columns(columns);
        };
        assert!(changed(&no_values).is_err());
        let two_names = FeatureKind::Category { names: vec!["a".into(), "b".into()] };
        let mut specs = jobs.specs().to_vec();
        specs[2].kind = two_names;
        assert!(encoder.check(&specs).is_err(), "codes need names");
    }
}
