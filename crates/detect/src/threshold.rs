//! How high a score has to be: from the tail of normal validation scores, for a stated rate of false alarms.

use std::collections::BTreeMap;

use learn::tail::{Tail, TailError};
use serde::{Deserialize, Serialize};

/// What a window is held against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// How often a normal window may score as high by chance.
    pub rate: f64,
    pub for_all: Threshold,
    /// For kinds that validation has enough windows of; only if asked for.
    #[serde(default)]
    pub for_kind: BTreeMap<String, Threshold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub score: f64,
    pub tail: Tail,
    /// Normal windows that it was found with.
    pub n_windows: usize,
}

impl Threshold {
    fn fit(scores: &[f64], rate: f64) -> Result<Self, TailError> {
        let tail = Tail::fit(scores)?;
        Ok(Self { score: tail.threshold(rate)?, tail, n_windows: scores.len() })
    }
}

impl Thresholds {
    /// From normal scores, each with the kind of its job if it is known and kinds are to be told apart.
    pub fn fit(scores: &[(f64, Option<&str>)], rate: f64) -> Result<Self, TailError> {
        let mut by_kind: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (score, kind) in scores {
            if let Some(kind) = kind {
                by_kind.entry(kind).or_default().push(*score);
            }
        }
        let all: Vec<f64> = scores.iter().map(|(score, _)| *score).collect();
        let known = by_kind.into_iter().filter_map(|(kind, scores)| {
            Threshold::fit(&scores, rate).ok().map(|threshold| (kind.to_owned(), threshold))
        });
        Ok(Self { rate, for_all: Threshold::fit(&all, rate)?, for_kind: known.collect() })
    }

    /// The threshold of a window, by the kind of its job if there is one for it.
    pub fn of(&self, kind: Option<&str>) -> &Threshold {
        kind.and_then(|kind| self.for_kind.get(kind)).unwrap_or(&self.for_all)
    }
}
