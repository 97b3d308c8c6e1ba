//! A random sample of the window batches of an archive.

use std::ops::ControlFlow;

use learn::Matrix;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Timestamp;

use crate::archive_windows::Reading;
use crate::window::{ThreadWindow, WindowBatch};

/// Sampled batches, in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    pub batches: Vec<WindowBatch>,
    /// How many windows there were to sample from.
    pub n_available: usize,
}

impl Sample {
    /// Samples whole batches with about `max_windows` windows, or all there are. The seed alone decides which.
    pub fn draw<E: From<archive::Error>>(
        reading: &Reading<'_>,
        max_windows: usize,
        seed: u64,
    ) -> Result<Self, E> {
        let mut kept: Vec<(u64, WindowBatch)> = Vec::new();
        let (mut n_available, mut n_kept) = (0, 0);
        let keep = |batch: WindowBatch| {
            n_available += batch.threads().len();
            n_kept += batch.threads().len();
            kept.push((rank(batch.start(), seed), batch));
            // Up to half as many again are collected before those of the highest rank are dropped.
            if n_kept > max_windows + max_windows / 2 {
                n_kept = keep_lowest(&mut kept, max_windows);
            }
            Ok(ControlFlow::Continue(()))
        };
        reading.for_each_batch::<E>(keep)?;
        keep_lowest(&mut kept, max_windows);
        kept.sort_by_key(|(_, batch)| batch.start());
        Ok(Self { batches: kept.into_iter().map(|(_, batch)| batch).collect(), n_available })
    }

    pub fn windows(&self) -> impl Iterator<Item = &ThreadWindow> {
        self.batches.iter().flat_map(WindowBatch::threads)
    }

    /// One row per window; `None` if there is none.
    pub fn matrix(&self) -> Option<Matrix> {
        let size = self.windows().next()?.values.len();
        Some(Matrix::new(self.windows().flat_map(|window| window.values.iter().copied()).collect(), size))
    }

    pub fn n_windows(&self) -> usize {
        self.batches.iter().map(|batch| batch.threads().len()).sum()
    }
}

/// A random number for each batch; those with the lowest are sampled.
fn rank(start: Timestamp, seed: u64) -> u64 {
    Xoshiro256PlusPlus::seed_from_u64(start.0 as u64 ^ seed.rotate_left(40)).next_u64()
}

/// Keeps the batches of lowest rank that are needed for `max_windows` windows; returns the number of windows kept.
fn keep_lowest(kept: &mut Vec<(u64, WindowBatch)>, max_windows: usize) -> usize {
    kept.sort_by_key(|(rank, _)| *rank);
    let mut n_windows = 0;
    let last = kept.iter().position(|(_, batch)| {
        n_windows += batch.threads().len();
        n_windows >= max_windows
    });
    kept.truncate(last.map_or(kept.len(), |last| last + 1));
    n_windows
}

#[cfg(test)]
mod tests {
    use workload::{Control, Millis};

    use super::*;
    use crate::split::WindowFilter;
    use crate::test_archive::{START, TestArchive};
    use crate::window::WindowSpec;

    #[test]
    fn a_sample_is_as_large_as_asked_ordered_and_decided_by_the_seed() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 600, 2, |_, _| Some("a"));
        let spec = WindowSpec { period: Millis::SECOND, n_steps: 20, stride: 10, job_channels: Vec::new() };
        let (filter, control) = (WindowFilter::All, Control::default());
        let reading = Reading { archive: &test.archive, filter: &filter, spec: &spec, control };
        let draw = |max_windows, seed| Sample::draw::<archive::Error>(&reading, max_windows, seed).unwrap();
        let all = draw(1_000, 1);
        assert_eq!((all.n_windows(), all.n_available), (118, 118));
        let some = draw(20, 1);
        assert_eq!((some.n_windows(), some.n_available), (20, 118));
        assert!(some.batches.is_sorted_by_key(WindowBatch::start));
        assert_eq!(some, draw(20, 1));
        assert_ne!(some, draw(20, 2));
        assert_eq!(some.matrix().unwrap().n_rows(), 20);
        assert!(Sample::default().matrix().is_none());
    }
}
