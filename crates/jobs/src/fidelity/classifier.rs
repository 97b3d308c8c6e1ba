//! A real-vs-synthetic classifier: boosted trees that try to distinguish the two. An AUC of 0.5 is perfect.

use learn::Matrix;
use learn::boost::BoostedTrees;
use learn::metrics::roc_auc;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use workload::Stop;

use crate::error::Result;
use crate::features::FeatureTable;
use crate::schema::Role;

/// At most this many jobs of each trace are classified.
const MAX_ROWS: usize = 15_000;
/// Jobs in a window.
const WINDOW: usize = 20;
/// Windows that each trace has to have.
const MIN_WINDOWS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClassifierFidelity {
    /// Single jobs; trained on a random half, tested on the other.
    pub row_auc: f64,
    /// Windows of 20 consecutive jobs; trained on the first half of the time, tested on the second. None for short traces.
    pub window_auc: Option<f64>,
}

impl ClassifierFidelity {
    /// Compares two traces with the same features.
    pub fn of(real: &FeatureTable, synthetic: &FeatureTable, seed: u64, stop: &Stop) -> Result<Self> {
        let row_auc = row_auc(real, synthetic, seed)?;
        stop.check()?;
        let window_auc = window_auc(real, synthetic, seed)?;
        stop.check()?;
        Ok(Self { row_auc, window_auc })
    }
}

fn row_auc(real: &FeatureTable, synthetic: &FeatureTable, seed: u64) -> Result<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut rows = |jobs: &FeatureTable| -> Vec<Vec<f32>> {
        let mut order: Vec<usize> = (0..jobs.n_jobs()).collect();
        order.shuffle(&mut rng);
        order.truncate(MAX_ROWS);
        let row = |job: usize| jobs.columns().iter().map(|values| values[job] as f32).collect();
        order.into_iter().map(row).collect()
    };
    let (real, synthetic) = (rows(real), rows(synthetic));
    auc(&real, &synthetic, seed)
}

fn window_auc(real: &FeatureTable, synthetic: &FeatureTable, seed: u64) -> Result<Option<f64>> {
    let (real, synthetic) = (windows(real), windows(synthetic));
    if real.len().min(synthetic.len()) < MIN_WINDOWS {
        return Ok(None);
    }
    auc(&real, &synthetic, seed).map(Some)
}

/// Trains on the first half of each, tests on the second.
fn auc(real: &[Vec<f32>], synthetic: &[Vec<f32>], seed: u64) -> Result<f64> {
    let (real, synthetic) = (real.split_at(real.len() / 2), synthetic.split_at(synthetic.len() / 2));
    let labelled = |real: &[Vec<f32>], synthetic: &[Vec<f32>]| {
        let is_synthetic: Vec<bool> =
            real.iter().map(|_| false).chain(synthetic.iter().map(|_| true)).collect();
        let n_columns = real.first().map_or(1, Vec::len);
        (Matrix::new(real.iter().chain(synthetic).flatten().copied().collect(), n_columns), is_synthetic)
    };
    let (points, is_synthetic) = labelled(real.0, synthetic.0);
    let trees = BoostedTrees::fit(&points, &is_synthetic, seed)?;
    let (points, is_synthetic) = labelled(real.1, synthetic.1);
    Ok(roc_auc(&trees.scores(&points), &is_synthetic).unwrap_or(0.5))
}

/// For each window: mean, standard deviation and lag-1 autocorrelation of every feature but the user; the number of
/// users, and how often the user of a job is that of the previous one.
fn windows(jobs: &FeatureTable) -> Vec<Vec<f32>> {
    let user = jobs.position(Role::User);
    let logarithm = |at: usize| -> Vec<f64> {
        let is_number = !jobs.specs()[at].is_category();
        let value = |value: &f64| if is_number { value.max(0.0).ln_1p() } else { *value };
        jobs.column(at).iter().map(value).collect()
    };
    let columns: Vec<Vec<f64>> =
        (0..jobs.specs().len()).filter(|at| Some(*at) != user).map(logarithm).collect();
    let window = |first: usize| {
        let mut found = Vec::new();
        for column in &columns {
            let known: Vec<f64> =
                column[first..first + WINDOW].iter().map(|v| if v.is_nan() { -1.0 } else { *v }).collect();
            let mean = learn::stats::mean(&known);
            let centred: Vec<f64> = known.iter().map(|value| value - mean).collect();
            let power: f64 = centred.iter().map(|value| value * value).sum();
            let lagged: f64 = centred.windows(2).map(|pair| pair[0] * pair[1]).sum();
            found.extend([mean, (power / WINDOW as f64).sqrt(), lagged / power.max(1e-9)]);
        }
        if let Some(user) = user {
            let users = &jobs.column(user)[first..first + WINDOW];
            let mut distinct: Vec<u64> = users.iter().map(|user| user.to_bits()).collect();
            distinct.sort_unstable();
            distinct.dedup();
            let n_same = users.windows(2).filter(|pair| pair[0] == pair[1]).count();
            found.extend([distinct.len() as f64, n_same as f64]);
        }
        found.into_iter().map(|value| value as f32).collect()
    };
    (0..jobs.n_jobs() / WINDOW).map(|number| window(number * WINDOW)).collect()
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::features::{FeatureKind, FeatureSpec};
    use crate::format::Format;

    /// Intervals and run times; `shift` moves the run times, `is_sorted` gives the intervals an order.
    fn trace(seed: u64, shift: f64, is_sorted: bool) -> FeatureTable {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut intervals: Vec<f64> = (0..1_200).map(|_| rng.random_range(0.0..1_000.0)).collect();
        if is_sorted {
            for window in intervals.chunks_mut(WINDOW) {
                window.sort_by(f64::total_cmp);
            }
        }
        let runs = (0..1_200).map(|_| rng.random_range(0.0..100.0) + shift).collect();
        let spec = |name: &str, role| FeatureSpec {
            name: name.into(),
            role: Some(role),
            kind: FeatureKind::Number { format: Format::Plain { decimals: 2 } },
        };
        let specs = vec![spec("interval", Role::Interval), spec("run", Role::RunTime)];
        FeatureTable::new(specs, vec![intervals, runs]).unwrap()
    }

    fn fidelity(synthetic: &FeatureTable) -> ClassifierFidelity {
        ClassifierFidelity::of(&trace(1, 0.0, false), synthetic, 0, &Stop::default()).unwrap()
    }

    #[test]
    fn traces_of_one_distribution_cannot_be_distinguished() {
        let found = fidelity(&trace(2, 0.0, false));
        assert!((found.row_auc - 0.5).abs() < 0.08, "{found:?}");
        assert!((found.window_auc.unwrap() - 0.5).abs() < 0.2, "{found:?}");
    }

    #[test]
    fn another_distribution_shows_in_rows() {
        assert!(fidelity(&trace(2, 50.0, false)).row_auc > 0.7);
    }

    #[test]
    fn another_order_shows_in_windows_only() {
        let found = fidelity(&trace(2, 0.0, true));
        assert!((found.row_auc - 0.5).abs() < 0.08, "{found:?}");
        assert!(found.window_auc.unwrap() > 0.9, "{found:?}");
    }

    #[test]
    fn short_traces_have_no_windows() {
        let short = trace(2, 0.0, false).slice(0..100);
        assert_eq!(fidelity(&short).window_auc, None);
    }

    #[test]
    fn classification_stops_on_request() {
        let stop = Stop::default();
        stop.now();
        let trace = trace(1, 0.0, false);
        assert!(ClassifierFidelity::of(&trace, &trace, 0, &stop).is_err());
    }
}
