//! Can trees tell real jobs from synthetic ones? One half is perfect, one is hopeless.

use learn::Matrix;
use learn::boost::BoostedTrees;
use learn::metrics::roc_auc;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::error::Result;
use crate::features::Jobs;
use crate::schema::Role;

/// Jobs of either trace that rows are judged by.
const MOST_ROWS: usize = 15_000;
/// Jobs in a stretch.
const STRETCH: usize = 20;
/// Stretches of either trace that there have to be.
const LEAST_STRETCHES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Classifier {
    /// Single jobs; half of them to learn from, the other half to judge by.
    pub row_auc: f64,
    /// Twenty jobs in a row; the first half of the time to learn from, the second to judge by.
    pub stretch_auc: Option<f64>,
}

pub fn classify(real: &Jobs, made: &Jobs, seed: u64) -> Result<Classifier> {
    Ok(Classifier { row_auc: row_auc(real, made, seed)?, stretch_auc: stretch_auc(real, made, seed)? })
}

fn row_auc(real: &Jobs, made: &Jobs, seed: u64) -> Result<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rows = |jobs: &Jobs, rng: &mut Xoshiro256PlusPlus| -> Vec<Vec<f32>> {
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.shuffle(rng);
        order.truncate(MOST_ROWS);
        order.into_iter().map(|job| jobs.values.iter().map(|values| values[job] as f32).collect()).collect()
    };
    auc(&rows(real, &mut rng), &rows(made, &mut rng), seed)
}

pub fn stretch_auc(real: &Jobs, made: &Jobs, seed: u64) -> Result<Option<f64>> {
    let (real, made) = (stretches(real), stretches(made));
    if real.len().min(made.len()) < LEAST_STRETCHES {
        return Ok(None);
    }
    auc(&real, &made, seed).map(Some)
}

/// Learns from the first half of either, judges the second.
fn auc(real: &[Vec<f32>], made: &[Vec<f32>], seed: u64) -> Result<f64> {
    let (real, made) = (real.split_at(real.len() / 2), made.split_at(made.len() / 2));
    let both = |real: &[Vec<f32>], made: &[Vec<f32>]| {
        let is_made: Vec<bool> = real.iter().map(|_| false).chain(made.iter().map(|_| true)).collect();
        let n_columns = real.first().map_or(1, Vec::len);
        (Matrix::new(real.iter().chain(made).flatten().copied().collect(), n_columns), is_made)
    };
    let (points, is_made) = both(real.0, made.0);
    let trees = BoostedTrees::fit(&points, &is_made, seed)?;
    let (points, is_made) = both(real.1, made.1);
    Ok(roc_auc(&trees.scores(&points), &is_made).unwrap_or(0.5))
}

/// Means, spreads and what one has to do with the next, of every feature but the user; how many users, how often the same.
fn stretches(jobs: &Jobs) -> Vec<Vec<f32>> {
    let user = jobs.position(Role::User);
    let logs = |(at, values): (usize, &Vec<f64>)| -> Vec<f64> {
        let is_number = !jobs.specs[at].is_category();
        values.iter().map(|value| if is_number { value.max(0.0).ln_1p() } else { *value }).collect()
    };
    let columns: Vec<Vec<f64>> =
        jobs.values.iter().enumerate().filter(|(at, _)| Some(*at) != user).map(logs).collect();
    let stretch = |first: usize| {
        let mut found = Vec::new();
        for column in &columns {
            let known: Vec<f64> =
                column[first..first + STRETCH].iter().map(|v| if v.is_nan() { -1.0 } else { *v }).collect();
            let mean = learn::stats::mean(&known);
            let off: Vec<f64> = known.iter().map(|value| value - mean).collect();
            let power: f64 = off.iter().map(|off| off * off).sum();
            let next: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
            found.extend([mean, (power / STRETCH as f64).sqrt(), next / power.max(1e-9)]);
        }
        if let Some(user) = user {
            let users = &jobs.values[user][first..first + STRETCH];
            let mut distinct: Vec<u64> = users.iter().map(|user| user.to_bits()).collect();
            distinct.sort_unstable();
            distinct.dedup();
            let n_same = users.windows(2).filter(|pair| pair[0] == pair[1]).count();
            found.extend([distinct.len() as f64, n_same as f64]);
        }
        found.into_iter().map(|value| value as f32).collect()
    };
    (0..jobs.len() / STRETCH).map(|number| stretch(number * STRETCH)).collect()
}
