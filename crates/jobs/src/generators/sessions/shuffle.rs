//! Positions of the training trace in a slightly different order.

use std::collections::VecDeque;

/// Hands out every position once. Only a few upcoming ones are available at a time, and none waits for long, so that all
/// stay near their place.
pub(super) struct Shuffle {
    positions: Vec<u32>,
    /// How many positions have been available.
    n_seen: usize,
    n_upcoming: usize,
    /// Indices of available positions, the oldest first.
    upcoming: VecDeque<usize>,
}

impl Shuffle {
    pub fn new(positions: Vec<u32>, n_upcoming: usize) -> Self {
        let n_seen = n_upcoming.min(positions.len());
        Self { positions, n_seen, n_upcoming, upcoming: (0..n_seen).collect() }
    }

    /// Takes one of the available positions; the oldest if it has waited too long, and otherwise the one that `choose` selects
    /// by its index among the positions it is given. There has to be a position left.
    pub fn take(&mut self, choose: impl FnOnce(&[u32]) -> usize) -> u32 {
        let is_overdue =
            self.upcoming[0] + 2 * self.n_upcoming <= self.n_seen && self.n_seen < self.positions.len();
        let at = if is_overdue {
            0
        } else {
            let available: Vec<u32> = self.upcoming.iter().map(|index| self.positions[*index]).collect();
            choose(&available)
        };
        let taken = self.upcoming.remove(at).unwrap_or_default();
        if self.n_seen < self.positions.len() {
            self.upcoming.push_back(self.n_seen);
            self.n_seen += 1;
        }
        self.positions[taken]
    }
}
