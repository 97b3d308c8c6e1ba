//! Thresholds: the score that a stated fraction of normal windows exceeds, from the tail of validation scores.

use std::collections::BTreeMap;

use learn::artifact::restore::{RestoreError, ensure};
use learn::tail::{Tail, TailError};
use serde::{Deserialize, Serialize};

/// The thresholds of a detector. [`Thresholds::of`] is the only rule for which one applies to a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// The fraction of normal windows that may exceed the threshold.
    pub rate: f64,
    pub for_all: Threshold,
    /// For kinds of jobs with enough validation windows; only if configured.
    #[serde(default)]
    pub for_kind: BTreeMap<String, Threshold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub score: f64,
    pub tail: Tail,
    /// The number of validation windows it was fitted to.
    pub n_windows: usize,
}

impl Threshold {
    fn fit(scores: &[f64], rate: f64) -> Result<Self, TailError> {
        let tail = Tail::fit(scores)?;
        Ok(Self { score: tail.threshold(rate)?, tail, n_windows: scores.len() })
    }

    /// Whether a score raises an alarm.
    pub fn is_exceeded_by(&self, score: f64) -> bool {
        score > self.score
    }
}

impl Thresholds {
    /// Fits validation scores. Scores with a kind also count towards the threshold of that kind.
    pub fn fit(scores: &[(f64, Option<&str>)], rate: f64) -> Result<Self, TailError> {
        let mut by_kind: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (score, kind) in scores {
            if let Some(kind) = kind {
                by_kind.entry(kind).or_default().push(*score);
            }
        }
        let all: Vec<f64> = scores.iter().map(|(score, _)| *score).collect();
        let mut for_kind = BTreeMap::new();
        for (kind, scores) in by_kind {
            // A kind with too few windows keeps the threshold for all.
            if let Ok(threshold) = Threshold::fit(&scores, rate) {
                for_kind.insert(kind.to_owned(), threshold);
            }
        }
        Ok(Self { rate, for_all: Threshold::fit(&all, rate)?, for_kind })
    }

    /// Checks thresholds that were read from a file.
    pub fn check(&self) -> Result<(), RestoreError> {
        ensure(self.rate > 0.0 && self.rate < 1.0, "the rate of its thresholds is not between 0 and 1")?;
        let mut all = self.for_kind.values().chain([&self.for_all]);
        let is_valid = |one: &Threshold| one.score.is_finite() && one.tail.is_valid();
        ensure(all.all(is_valid), "one of its thresholds is not a number or has no tail")
    }

    /// The threshold of a window: that of the kind of its job if there is one, else the one for all.
    pub fn of(&self, kind: Option<&str>) -> &Threshold {
        kind.and_then(|kind| self.for_kind.get(kind)).unwrap_or(&self.for_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exponential quantiles with a mean of `scale`.
    fn scores(scale: f64) -> impl Iterator<Item = f64> {
        (0..2_000).map(move |index| -scale * (1.0 - (f64::from(index) + 0.5) / 2_000.0).ln())
    }

    #[test]
    fn each_kind_has_the_threshold_of_its_own_scores() {
        let np = scores(1.0).map(|score| (score, Some("np")));
        let io = scores(10.0).map(|score| (score, Some("good-io")));
        let rare = [(3.0, Some("rare"))];
        let all: Vec<(f64, Option<&str>)> = np.chain(io).chain(rare).collect();
        let thresholds = Thresholds::fit(&all, 0.01).unwrap();
        let exact = |scale: f64| -scale * f64::ln(0.01);
        for (kind, scale) in [("np", 1.0), ("good-io", 10.0)] {
            let found = thresholds.of(Some(kind)).score;
            assert!((found / exact(scale) - 1.0).abs() < 0.1, "{kind}: {found}");
        }
        assert!(thresholds.of(Some("np")).is_exceeded_by(6.0));
        assert!(!thresholds.of(Some("good-io")).is_exceeded_by(6.0));
        for kind in [None, Some("rare"), Some("unknown")] {
            assert_eq!(thresholds.of(kind), &thresholds.for_all, "{kind:?}");
        }
    }

    #[test]
    fn without_kinds_there_is_one_threshold() {
        let all: Vec<(f64, Option<&str>)> = scores(1.0).map(|score| (score, None)).collect();
        let thresholds = Thresholds::fit(&all, 0.01).unwrap();
        assert!(thresholds.for_kind.is_empty());
        let exceeded = all.iter().filter(|(score, _)| thresholds.for_all.is_exceeded_by(*score)).count();
        assert!((15..=25).contains(&exceeded), "1 % of 2,000 is 20, not {exceeded}");
        assert!(Thresholds::fit(&[], 0.01).is_err());
        assert_eq!(thresholds.check(), Ok(()));
        let with_share = |share: f64| {
            let mut changed = thresholds.clone();
            changed.for_all.tail.share = share;
            changed
        };
        assert!(with_share(0.0).check().is_err() && with_share(2.0).check().is_err());
        assert!(Thresholds { rate: 1.0, ..thresholds }.check().is_err());
    }
}
