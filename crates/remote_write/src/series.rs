//! What the series of both versions have in common.

use std::hash::Hasher;

use crate::wire::Damaged;

/// The name and the value of a label. Both should be UTF-8, which is not checked.
pub type Label<'a> = (&'a [u8], &'a [u8]);

/// The value that marks the end of a series: a NaN that has no other use.
pub const STALE_MARKER_BITS: u64 = 0x7ff0_0000_0000_0002;

/// One value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp: i64,
    /// The value; see [`Sample::is_stale`].
    pub value: f64,
    /// When the counter started counting, in milliseconds since 1970-01-01 UTC. Version 2.0 only.
    pub start_timestamp: Option<i64>,
}

impl Sample {
    /// Whether the sample marks the end of its series and has no value.
    pub const fn is_stale(&self) -> bool {
        self.value.to_bits() == STALE_MARKER_BITS
    }
}

/// One series of a request of either version.
pub trait TimeSeries<'a> {
    /// The labels in the order in which they were sent.
    fn labels(&self) -> impl Iterator<Item = Result<Label<'a>, Damaged>>;

    /// Hashes the labels: series with the same hash have the same labels, unless the hasher collides. A sender that
    /// encodes the same labels in another way may get another hash.
    fn hash_labels(&self, hasher: &mut impl Hasher) -> Result<(), Damaged> {
        hash_each(self.labels(), hasher)
    }

    /// The samples in the order in which they were sent.
    fn samples(&self) -> impl Iterator<Item = Result<Sample, Damaged>>;

    /// The number of samples.
    fn n_samples(&self) -> usize;

    /// The number of native histograms, whose contents are not read.
    fn n_histograms(&self) -> usize;

    /// The number of exemplars, whose contents are not read.
    fn n_exemplars(&self) -> usize;
}

/// Hashes labels one after another, with their lengths.
pub(crate) fn hash_each<'a>(
    labels: impl Iterator<Item = Result<Label<'a>, Damaged>>,
    hasher: &mut impl Hasher,
) -> Result<(), Damaged> {
    for label in labels {
        let (name, value) = label?;
        hasher.write_usize(name.len());
        hasher.write(name);
        hasher.write_usize(value.len());
        hasher.write(value);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A copy of everything that can be read from a series; values as bits, so that NaNs are compared too.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Contents {
        pub labels: Vec<(Vec<u8>, Vec<u8>)>,
        /// Timestamp, bits of the value, start timestamp.
        pub samples: Vec<(i64, u64, Option<i64>)>,
        pub n_histograms: usize,
        pub n_exemplars: usize,
    }

    /// Reads a series to its end.
    pub fn contents<'a>(series: &impl TimeSeries<'a>) -> Result<Contents, Damaged> {
        let contents = Contents {
            labels: series
                .labels()
                .map(|label| label.map(|(name, value)| (name.to_vec(), value.to_vec())))
                .collect::<Result<_, _>>()?,
            samples: series
                .samples()
                .map(|sample| sample.map(|s| (s.timestamp, s.value.to_bits(), s.start_timestamp)))
                .collect::<Result<_, _>>()?,
            n_histograms: series.n_histograms(),
            n_exemplars: series.n_exemplars(),
        };
        assert_eq!(contents.samples.len(), series.n_samples());
        Ok(contents)
    }

    #[test]
    fn only_the_stale_marker_is_stale() {
        let sample = |value| Sample { timestamp: 0, value, start_timestamp: None };
        assert!(sample(f64::from_bits(STALE_MARKER_BITS)).is_stale());
        assert!(!sample(f64::NAN).is_stale());
        assert!(!sample(0.0).is_stale());
    }
}
