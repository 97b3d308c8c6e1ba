//! Windows to learn from: a random part of the moments of an archive.

use archive::Archive;
use learn::Matrix;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Timestamp;

use super::window::{Cut, Jobs, Moment, for_each_moment};

/// Moments that are kept, in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    pub moments: Vec<Moment>,
    /// Windows that there were.
    pub n_seen: usize,
}

impl Sample {
    /// About `most` windows, or all there are, in whole moments; which of them is decided by the seed alone.
    pub fn draw(
        archive: &Archive,
        jobs: &Jobs,
        cut: &Cut,
        most: usize,
        seed: u64,
        progress: impl FnMut(u64, u64),
    ) -> archive::Result<Self> {
        let mut kept: Vec<(u64, Moment)> = Vec::new();
        let (mut n_seen, mut n_kept) = (0, 0);
        let take = |moment: Moment| {
            n_seen += moment.threads.len();
            n_kept += moment.threads.len();
            kept.push((rank(moment.start, seed), moment));
            // Half as many again may pile up before those of the highest rank are dropped.
            if n_kept > most + most / 2 {
                n_kept = keep_lowest(&mut kept, most);
            }
        };
        for_each_moment(archive, jobs, cut, take, progress)?;
        keep_lowest(&mut kept, most);
        kept.sort_by_key(|(_, moment)| moment.start);
        Ok(Self { moments: kept.into_iter().map(|(_, moment)| moment).collect(), n_seen })
    }

    /// A row for each window; `None` if there is none.
    pub fn matrix(&self) -> Option<Matrix> {
        let windows = || self.moments.iter().flat_map(|moment| &moment.threads);
        let size = windows().next()?.values.len();
        Some(Matrix::new(windows().flat_map(|window| window.values.iter().copied()).collect(), size))
    }

    pub fn n_windows(&self) -> usize {
        self.moments.iter().map(|moment| moment.threads.len()).sum()
    }
}

fn rank(start: Timestamp, seed: u64) -> u64 {
    Xoshiro256PlusPlus::seed_from_u64(start.0 as u64 ^ seed.rotate_left(40)).next_u64()
}

/// Keeps as many moments of the lowest rank as it takes to have `most` windows; returns how many there are.
fn keep_lowest(kept: &mut Vec<(u64, Moment)>, most: usize) -> usize {
    kept.sort_by_key(|(rank, _)| *rank);
    let mut n_windows = 0;
    let last = kept.iter().position(|(_, moment)| {
        n_windows += moment.threads.len();
        n_windows >= most
    });
    kept.truncate(last.map_or(kept.len(), |last| last + 1));
    n_windows
}
