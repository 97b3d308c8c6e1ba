//! How often models can compete on this machine: how long past nights took, and how long nights with other numbers of
//! threads would take.

use serde::Serialize;

use crate::competition::{Night, NightTimings};

/// Learning may take so much of the time; the rest is for scoring.
const LEARNING_SHARE: f64 = 0.5;
/// Numbers of threads, as multiples of the last night's.
const SIZES: [usize; 5] = [1, 2, 5, 10, 100];
const DAY: f64 = 86_400.0;

/// What past nights say about the next ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cadence {
    /// The number of nights that this is derived from.
    pub n_nights: usize,
    /// Threads, and hours of data, of the last of them.
    pub n_threads: usize,
    pub hours: f64,
    pub timings: NightTimings,
    /// How long a night takes whatever its size, and how much more for each thread, in seconds.
    pub fixed_seconds: f64,
    pub seconds_per_thread: f64,
    /// Whether nights of several sizes were compared. If not, the time is taken to be proportional to the threads.
    pub is_measured: bool,
    pub sizes: Vec<CadenceAtSize>,
    /// The most threads with which a night a day is possible.
    pub max_threads_nightly: usize,
}

/// The cadence with some number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CadenceAtSize {
    pub n_threads: usize,
    pub night_seconds: f64,
    /// The shortest time from one competition to the next.
    pub shortest_seconds: f64,
}

impl Cadence {
    /// Nights that are enough to derive it from.
    pub const MAX_NIGHTS: usize = 30;

    /// The cadence that nights allow, the newest first; `None` without a night whose size is known.
    pub fn of(nights: &[Night]) -> Option<Self> {
        let known: Vec<&Night> = nights.iter().filter(|night| night.n_threads > 0).collect();
        let last = known.first()?;
        let points: Vec<(f64, f64)> =
            known.iter().map(|night| (night.n_threads as f64, night.timings.total())).collect();
        let fitted = line(&points);
        let (fixed_seconds, seconds_per_thread) =
            fitted.unwrap_or((0.0, last.timings.total() / last.n_threads as f64));
        let at = |n_threads: usize| {
            let night_seconds = fixed_seconds + seconds_per_thread * n_threads as f64;
            CadenceAtSize { n_threads, night_seconds, shortest_seconds: night_seconds / LEARNING_SHARE }
        };
        let left = DAY * LEARNING_SHARE - fixed_seconds;
        Some(Self {
            n_nights: known.len(),
            n_threads: last.n_threads,
            hours: (last.to - last.from).as_seconds() / 3_600.0,
            timings: last.timings,
            fixed_seconds,
            seconds_per_thread,
            is_measured: fitted.is_some(),
            sizes: SIZES.map(|factor| at(factor * last.n_threads)).to_vec(),
            max_threads_nightly: (left.max(0.0) / seconds_per_thread.max(1e-9)) as usize,
        })
    }
}

/// The line with the least squared error through points of several sizes; `None` if it would fall or there is one size.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let slope = common / spread;
    let start = y - slope * x;
    (spread > 0.0 && slope > 0.0 && start >= 0.0).then_some((start, slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_to_nights_of_several_sizes_only() {
        let (start, slope) = line(&[(10.0, 25.0), (20.0, 45.0), (30.0, 65.0)]).unwrap();
        assert!((start - 5.0).abs() < 1e-9 && (slope - 2.0).abs() < 1e-9, "{start} {slope}");
        assert_eq!(line(&[(10.0, 25.0), (10.0, 26.0)]), None);
        assert_eq!(line(&[(10.0, 25.0), (20.0, 5.0)]), None, "more threads do not take less time");
        assert_eq!(line(&[]), None);
    }
}
