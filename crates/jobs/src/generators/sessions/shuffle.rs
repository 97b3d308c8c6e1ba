//! Positions of the training trace in a slightly different order.

use std::collections::VecDeque;

/// Hands out every position once. Only a few upcoming ones are available at a time, and none waits for long, so that all
/// stay near their place.
pub(super) struct Shuffle {
    positions: Vec<u32>,
    n_upcoming: usize,
    /// How many positions have been available so far.
    n_seen: usize,
    /// Indices of the available positions, the oldest first.
    upcoming: VecDeque<usize>,
}

impl Shuffle {
    pub fn new(positions: Vec<u32>, n_upcoming: usize) -> Self {
        let n_seen = n_upcoming.min(positions.len());
        Self { positions, n_upcoming, n_seen, upcoming: (0..n_seen).collect() }
    }

    /// Takes the oldest available position if it has waited too long, and otherwise the one that `choose` selects by its index
    /// among the positions it is given. None if all have been taken.
    pub fn take(&mut self, choose: impl FnOnce(&[u32]) -> usize) -> Option<u32> {
        let oldest = *self.upcoming.front()?;
        let at = if oldest + 2 * self.n_upcoming <= self.n_seen {
            0
        } else {
            let available: Vec<u32> = self.upcoming.iter().map(|index| self.positions[*index]).collect();
            choose(&available)
        };
        let taken = self.upcoming.remove(at)?;
        if self.n_seen < self.positions.len() {
            self.upcoming.push_back(self.n_seen);
            self.n_seen += 1;
        }
        Some(self.positions[taken])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_handed_out_once_and_near_its_place() {
        let mut shuffle = Shuffle::new((0..100).collect(), 4);
        // Always the newest: the oldest one waits for as long as it may.
        let taken: Vec<u32> = std::iter::from_fn(|| shuffle.take(|available| available.len() - 1)).collect();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u32>>());
        let distance = |(place, position): (usize, &u32)| place.abs_diff(*position as usize);
        assert!(taken.iter().enumerate().map(distance).max() <= Some(12), "{taken:?}");
        assert_ne!(taken, sorted);
    }
}
