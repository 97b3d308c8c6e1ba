//! Equal values among many, in linear time.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

/// Finds values that were seen before. Equality decides; hashes only keep the comparisons few.
#[derive(Debug, Default)]
pub struct Seen {
    hasher: RandomState,
    places_by_hash: HashMap<u64, Vec<usize>>,
}

impl Seen {
    /// The place of the first value equal to this one, or `None` if there is none: then `value` is remembered under
    /// `place`. `at` returns the value that was remembered under a place.
    pub fn find_or_add<'a, T: Hash + PartialEq + 'a>(
        &mut self,
        value: &T,
        place: usize,
        at: impl Fn(usize) -> &'a T,
    ) -> Option<usize> {
        let alike = self.places_by_hash.entry(self.hasher.hash_one(value)).or_default();
        let known = alike.iter().copied().find(|known| at(*known) == value);
        if known.is_none() {
            alike.push(place);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_where_it_was_first() {
        let words = ["a", "b", "a", "c", "b"];
        let mut seen = Seen::default();
        let found: Vec<Option<usize>> = words
            .iter()
            .enumerate()
            .map(|(place, word)| seen.find_or_add(word, place, |at| &words[at]))
            .collect();
        assert_eq!(found, [None, None, Some(0), None, Some(1)]);
    }
}
