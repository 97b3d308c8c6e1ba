//! Jobs as networks take them: numbers by the mode that they belong to and where they are in it, categories as one of many
//! (mode-specific normalisation; Xu et al., 2019).

use std::collections::BTreeMap;

use learn::bayesian_mixture::{MixtureComponent, fit_components};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::features::{FeatureSpec, Jobs};

const MOST_MODES: usize = 10;
/// Widths of a mode that stand for one.
const WIDTHS: f64 = 4.0;
/// Numbers with at most so many different values are one of many, and categories with at most so many names; with more,
/// categories are on a line.
const MOST_VALUES: usize = 60;
const MOST_NAMES: usize = 256;
/// A value that such a share of jobs has is a heap, and a mode of its own; there are at most so many.
const HEAP_SHARE: f64 = 0.003;
const MOST_HEAPS: usize = 80;
/// Numbers with fewer different values than this share of jobs are only ever those values.
const FEW: f64 = 0.1;
const N_QUANTILES: usize = 1_000;
/// How far out quantiles of the normal distribution go.
const LEAST_SHARE: f64 = 1e-4;

/// How numbers are bent before their modes are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bend {
    None,
    /// Logarithms, where numbers are not negative and go over decades.
    Log,
    /// Normal scores: where a number is among all, as a quantile of the normal distribution.
    Scores,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Line {
    Plain,
    Log,
    Scores {
        quantiles: Vec<f64>,
    },
    /// Categories by how frequent they are, each as long as it is frequent: where each ends, and what it is.
    Codes {
        ends: Vec<f64>,
        values: Vec<f64>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Code {
    Number {
        line: Line,
        /// Values that many jobs share, each a mode of its own; the others come after them.
        heaps: Vec<f64>,
        modes: Vec<MixtureComponent>,
        /// Whether the last of the modes is for what is not known.
        has_missing: bool,
        /// The only values that there are, in order, where they are few.
        known: Vec<f64>,
    },
    OneOf {
        /// There is one share more if some are not known.
        values: Vec<f64>,
        shares: Vec<f64>,
        /// Whether it stands for a condition.
        is_condition: bool,
    },
}

/// Columns of an encoded row that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub first: usize,
    pub len: usize,
    pub kind: BlockKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockKind {
    /// One number between minus one and one.
    Place,
    /// Shares of one.
    OneOf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Encoder {
    codes: Vec<Code>,
    pub blocks: Vec<Block>,
    pub width: usize,
    /// The blocks that are conditions, with how frequent each of their values is.
    pub conditions: Vec<(usize, Vec<f64>)>,
}

impl Encoder {
    /// # Panics
    /// If there is no job.
    pub fn fit(jobs: &Jobs, bend: Bend, has_modes: bool, seed: u64) -> Self {
        let most_modes = if has_modes { MOST_MODES } else { 1 };
        let code =
            |(spec, values): (&FeatureSpec, &Vec<f64>)| Code::fit(spec, values, bend, most_modes, seed);
        let codes: Vec<Code> = jobs.specs.iter().zip(&jobs.values).map(code).collect();
        let (mut blocks, mut conditions, mut width) = (Vec::new(), Vec::new(), 0);
        let mut push = |blocks: &mut Vec<Block>, len: usize, kind: BlockKind| {
            blocks.push(Block { first: width, len, kind });
            width += len;
        };
        for code in &codes {
            match code {
                Code::Number { .. } => {
                    push(&mut blocks, 1, BlockKind::Place);
                    push(&mut blocks, code.len() - 1, BlockKind::OneOf);
                }
                Code::OneOf { shares, is_condition, .. } => {
                    push(&mut blocks, shares.len(), BlockKind::OneOf);
                    if *is_condition {
                        conditions.push((blocks.len() - 1, shares.clone()));
                    }
                }
            }
        }
        Self { codes, blocks, width, conditions }
    }

    pub fn n_features(&self) -> usize {
        self.codes.len()
    }

    pub fn condition_width(&self) -> usize {
        self.conditions.iter().map(|(_, shares)| shares.len()).sum()
    }

    /// Rows of numbers.
    pub fn encode(&self, jobs: &Jobs, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let mut rows = vec![0.0; jobs.len() * self.width];
        for (job, row) in rows.chunks_exact_mut(self.width).enumerate() {
            let mut at = 0;
            for (code, values) in self.codes.iter().zip(&jobs.values) {
                at += code.encode(values[job], &mut row[at..], rng);
            }
        }
        rows
    }

    /// Values of every feature, from rows.
    pub fn decode(&self, rows: &[f32], values: &mut [Vec<f64>]) {
        for row in rows.chunks_exact(self.width) {
            let mut at = 0;
            for (code, values) in self.codes.iter().zip(values.iter_mut()) {
                let (value, len) = code.decode(&row[at..]);
                values.push(value);
                at += len;
            }
        }
    }
}

impl Code {
    fn fit(spec: &FeatureSpec, values: &[f64], bend: Bend, most_modes: usize, seed: u64) -> Self {
        let mut counts: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for value in values {
            counts.entry(value.to_bits()).or_insert((*value, 0)).1 += 1;
        }
        let share = |count: usize| count as f64 / values.len() as f64;
        if counts.len() <= if spec.is_category() { MOST_NAMES } else { MOST_VALUES } {
            let mut found: Vec<(f64, usize)> = counts.into_values().collect();
            // What is not known comes last.
            found.sort_by(|a, b| a.0.is_nan().cmp(&b.0.is_nan()).then(a.0.total_cmp(&b.0)));
            return Self::OneOf {
                values: found.iter().map(|(value, _)| *value).filter(|value| !value.is_nan()).collect(),
                shares: found.iter().map(|(_, count)| share(*count)).collect(),
                is_condition: spec.is_category(),
            };
        }
        let known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        let line = if spec.is_category() { codes(&known) } else { Line::fit(&known, bend) };
        let mut heaps: Vec<(f64, usize)> = counts
            .values()
            .copied()
            .filter(|(value, count)| !spec.is_category() && !value.is_nan() && share(*count) >= HEAP_SHARE)
            .collect();
        heaps.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.total_cmp(&b.0)));
        heaps.truncate(if most_modes > 1 { MOST_HEAPS } else { 0 });
        let heaps: Vec<f64> = heaps.into_iter().map(|(value, _)| value).collect();
        let is_few = !spec.is_category() && (counts.len() as f64) < FEW * values.len() as f64;
        let mut only: Vec<f64> = if is_few {
            counts.into_values().map(|(value, _)| value).filter(|v| !v.is_nan()).collect()
        } else {
            Vec::new()
        };
        only.sort_by(f64::total_cmp);
        let bent: Vec<f64> =
            known.iter().filter(|value| !heaps.contains(value)).map(|value| line.bend(*value, 0.5)).collect();
        let has_missing = known.len() < values.len();
        let modes = fit_components(&bent, most_modes, seed);
        Self::Number { heaps, modes, line, has_missing, known: only }
    }

    fn len(&self) -> usize {
        match self {
            Self::Number { heaps, modes, has_missing, .. } => {
                1 + heaps.len() + modes.len() + usize::from(*has_missing)
            }
            Self::OneOf { shares, .. } => shares.len(),
        }
    }

    fn encode(&self, value: f64, row: &mut [f32], rng: &mut Xoshiro256PlusPlus) -> usize {
        match self {
            Self::Number { .. } if value.is_nan() => row[self.len() - 1] = 1.0,
            Self::Number { line, heaps, modes, .. } => {
                if let Some(heap) = heaps.iter().position(|heap| *heap == value) {
                    row[1 + heap] = 1.0;
                    return self.len();
                }
                let bent = line.bend(value, rng.random());
                let densities: Vec<f64> = modes.iter().map(|mode| mode.density(bent) + 1e-300).collect();
                let mut left = rng.random::<f64>() * densities.iter().sum::<f64>();
                let mut which = 0;
                while which + 1 < modes.len() && left > densities[which] {
                    left -= densities[which];
                    which += 1;
                }
                let place = (bent - modes[which].mean) / (WIDTHS * modes[which].std_dev);
                row[0] = place.clamp(-0.99, 0.99) as f32;
                row[1 + heaps.len() + which] = 1.0;
            }
            Self::OneOf { values, .. } => {
                let at = values.iter().position(|known| *known == value).unwrap_or(self.len() - 1);
                row[at] = 1.0;
            }
        }
        self.len()
    }

    fn decode(&self, row: &[f32]) -> (f64, usize) {
        let value = match self {
            Self::Number { line, heaps, modes, known, .. } => {
                let which = chosen(&row[1..self.len()]);
                match modes.get(which.saturating_sub(heaps.len())) {
                    _ if which < heaps.len() => heaps[which],
                    Some(mode) => {
                        let bent = f64::from(row[0].clamp(-1.0, 1.0)) * WIDTHS * mode.std_dev + mode.mean;
                        nearest(known, line.unbend(bent))
                    }
                    None => f64::NAN,
                }
            }
            Self::OneOf { values, shares, .. } => {
                values.get(chosen(&row[..shares.len()])).copied().unwrap_or(f64::NAN)
            }
        };
        (value, self.len())
    }
}

fn chosen(row: &[f32]) -> usize {
    row.iter().position(|share| *share > 0.5).unwrap_or(0)
}

/// The nearest of the values that there are; any, where there is no list.
fn nearest(known: &[f64], value: f64) -> f64 {
    let at = known.partition_point(|one| *one < value);
    let (below, above) = (at.checked_sub(1).map(|at| known[at]), known.get(at).copied());
    match (below, above) {
        (Some(below), Some(above)) => {
            if value - below < above - value {
                below
            } else {
                above
            }
        }
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => value,
    }
}

impl Line {
    fn fit(known: &[f64], bend: Bend) -> Self {
        match bend {
            Bend::None => Self::Plain,
            Bend::Log if known.iter().all(|value| *value >= 0.0) => Self::Log,
            Bend::Log => Self::Plain,
            Bend::Scores => {
                let mut sorted = known.to_vec();
                sorted.sort_by(f64::total_cmp);
                let at = |index: usize| sorted[index * (sorted.len() - 1) / (N_QUANTILES - 1)];
                Self::Scores { quantiles: (0..N_QUANTILES).map(at).collect() }
            }
        }
    }

    /// `chance` is where it is in what it shares with others.
    pub fn bend(&self, value: f64, chance: f64) -> f64 {
        match self {
            Self::Plain => value,
            Self::Log => value.max(0.0).ln_1p(),
            Self::Scores { quantiles } => {
                let first = quantiles.partition_point(|quantile| *quantile < value);
                let last = quantiles.partition_point(|quantile| *quantile <= value);
                let within = if first == last && first > 0 && first < quantiles.len() {
                    let (low, high) = (quantiles[first - 1], quantiles[first]);
                    first as f64 - 1.0 + (value - low) / (high - low)
                } else {
                    first as f64 + chance * (last - first).saturating_sub(1) as f64
                };
                normal_quantile(within / (quantiles.len() - 1) as f64)
            }
            Self::Codes { ends, values } => {
                let at = values.iter().position(|known| *known == value).unwrap_or(0);
                let from = if at == 0 { 0.0 } else { ends[at - 1] };
                from + chance * (ends[at] - from)
            }
        }
    }

    pub fn unbend(&self, bent: f64) -> f64 {
        match self {
            Self::Plain => bent,
            Self::Log => bent.clamp(0.0, 60.0).exp_m1(),
            Self::Scores { quantiles } => {
                let place = normal_share(bent) * (quantiles.len() - 1) as f64;
                let low = (place as usize).min(quantiles.len() - 1);
                let high = (low + 1).min(quantiles.len() - 1);
                quantiles[low] + (place - low as f64) * (quantiles[high] - quantiles[low])
            }
            Self::Codes { ends, values } => {
                let at = ends.partition_point(|end| *end < bent);
                values[at.min(values.len() - 1)]
            }
        }
    }
}

pub fn normal_quantile(share: f64) -> f64 {
    Normal::standard().inverse_cdf(share.clamp(LEAST_SHARE, 1.0 - LEAST_SHARE))
}

pub fn normal_share(value: f64) -> f64 {
    Normal::standard().cdf(value)
}

/// Lines that values of features are bent onto normal scores with, and back: what copulas need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    lines: Vec<Line>,
    /// Shares of what is not known.
    missing: Vec<f64>,
    known: Vec<Vec<f64>>,
}

impl Scores {
    pub fn fit(jobs: &Jobs) -> Self {
        let mut lines = Vec::new();
        let (mut missing, mut only) = (Vec::new(), Vec::new());
        for (spec, values) in jobs.specs.iter().zip(&jobs.values) {
            let known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
            missing.push(1.0 - known.len() as f64 / values.len() as f64);
            let mut distinct = known.clone();
            distinct.sort_by(f64::total_cmp);
            distinct.dedup();
            let is_few = (distinct.len() as f64) < FEW * values.len() as f64;
            lines.push(if spec.is_category() { codes(&known) } else { Line::fit(&known, Bend::Scores) });
            only.push(if is_few && !spec.is_category() { distinct } else { Vec::new() });
        }
        Self { lines, missing, known: only }
    }

    /// Where every value is, as a normal number.
    pub fn scores(&self, jobs: &Jobs, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<f64>> {
        let column = |(line, values): (&Line, &Vec<f64>)| -> Vec<f64> {
            values
                .iter()
                .map(|value| match (value.is_nan(), line) {
                    (true, _) => 0.0,
                    (false, Line::Codes { .. }) => normal_quantile(line.bend(*value, rng.random())),
                    (false, _) => line.bend(*value, rng.random()),
                })
                .collect()
        };
        self.lines.iter().zip(&jobs.values).map(column).collect()
    }

    pub fn value(&self, feature: usize, score: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
        if self.missing[feature] > 0.0 && rng.random::<f64>() < self.missing[feature] {
            return f64::NAN;
        }
        match &self.lines[feature] {
            line @ Line::Codes { .. } => line.unbend(normal_share(score)),
            line => nearest(&self.known[feature], line.unbend(score)),
        }
    }
}

fn codes(values: &[f64]) -> Line {
    let mut counts: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
    values.iter().for_each(|value| counts.entry(value.to_bits()).or_insert((*value, 0)).1 += 1);
    let mut found: Vec<(f64, usize)> = counts.into_values().collect();
    found.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.total_cmp(&b.0)));
    let ends = found.iter().scan(0.0, |end, (_, count)| {
        *end += *count as f64 / values.len() as f64;
        Some(*end)
    });
    Line::Codes { ends: ends.collect(), values: found.iter().map(|(value, _)| *value).collect() }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::features::FeatureKind;
    use crate::format::Format;

    /// A number with a heap and holes, a category of few names, and one of many.
    fn jobs() -> Jobs {
        let number = FeatureKind::Number { format: Format::Plain { decimals: 2 } };
        let few = FeatureKind::Category { names: vec!["a".into(), "b".into()] };
        let many = FeatureKind::Category { names: (0..400).map(|name| name.to_string()).collect() };
        let spec = |name: &str, kind| FeatureSpec { name: name.into(), role: None, kind };
        let run = |job: usize| match job % 10 {
            0..4 => 3_600.0,
            4 => f64::NAN,
            _ => 10.0 + (job * 37 % 5_000) as f64 * 1.25,
        };
        Jobs {
            specs: vec![spec("run", number), spec("few", few), spec("many", many)],
            values: vec![
                (0..2_000).map(run).collect(),
                (0..2_000).map(|job| f64::from(u8::from(job % 3 == 0))).collect(),
                (0..2_000).map(|job| (job % 400) as f64).collect(),
            ],
        }
    }

    #[test]
    fn what_is_encoded_comes_back() {
        let jobs = jobs();
        for bend in [Bend::None, Bend::Log, Bend::Scores] {
            let encoder = Encoder::fit(&jobs, bend, true, 0);
            let rows = encoder.encode(&jobs, &mut Xoshiro256PlusPlus::seed_from_u64(1));
            assert_eq!(rows.len(), 2_000 * encoder.width);
            assert!(encoder.width < 200, "many names are no columns");
            let mut values = vec![Vec::new(); 3];
            encoder.decode(&rows, &mut values);
            let mut n_off = 0;
            for (found, wanted) in values[0].iter().zip(&jobs.values[0]) {
                if wanted.is_nan() || *wanted == 3_600.0 {
                    assert_eq!(found.to_bits(), wanted.to_bits(), "holes and heaps come back exactly");
                } else {
                    // What is far from its mode is cut off.
                    n_off += usize::from((found - wanted).abs() > 0.05 * wanted);
                }
            }
            assert!(n_off < 40, "{bend:?}: {n_off} are off");
            assert_eq!(values[1], jobs.values[1]);
            let n_same = values[2].iter().zip(&jobs.values[2]).filter(|(a, b)| a == b).count();
            assert!(n_same > 1_900, "{bend:?}: {n_same}");
        }
    }
}
