//! Arranges sampled jobs in a sampled order: every place gets the job that fits its user, size and run time best.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::order::Places;

/// For each place, the index of its job.
pub fn arrange(places: &Places, columns: &[Vec<f64>], rng: &mut Xoshiro256PlusPlus) -> Vec<usize> {
    let n_jobs = places.intervals.len();
    // Equal values are in random order.
    let mut ranked = |values: &[f64]| {
        let mut order: Vec<(f64, u32, usize)> =
            values.iter().enumerate().map(|(at, value)| (*value, rng.random(), at)).collect();
        order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut ranks = vec![0usize; values.len()];
        for (rank, (_, _, at)) in order.into_iter().enumerate() {
            ranks[at] = rank;
        }
        ranks
    };
    let of_places: Vec<Vec<usize>> = places.ranks.iter().map(|(_, ranks)| ranked(ranks)).collect();
    let of_jobs: Vec<Vec<usize>> =
        places.ranks.iter().map(|(feature, _)| ranked(&columns[*feature])).collect();
    let mut matching = Matching { of_places, of_jobs, found: vec![0; n_jobs] };
    let (mut left_places, mut left_jobs): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    if let Some((feature, users)) = &places.users {
        let mut groups: BTreeMap<u64, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (place, user) in users.iter().enumerate() {
            groups.entry(user.to_bits()).or_default().0.push(place);
        }
        for (job, user) in columns[*feature].iter().enumerate() {
            groups.entry(user.to_bits()).or_default().1.push(job);
        }
        for (mut group_places, mut group_jobs) in groups.into_values() {
            let n_both = group_places.len().min(group_jobs.len());
            group_places.shuffle(rng);
            group_jobs.shuffle(rng);
            left_places.extend(group_places.drain(n_both..));
            left_jobs.extend(group_jobs.drain(n_both..));
            matching.pair(&mut group_places, &mut group_jobs, 0);
        }
    } else {
        left_places.extend(0..n_jobs);
        left_jobs.extend(0..n_jobs);
    }
    matching.pair(&mut left_places, &mut left_jobs, 0);
    matching.found
}

struct Matching {
    /// By mark: the rank of each place, and of each job.
    of_places: Vec<Vec<usize>>,
    of_jobs: Vec<Vec<usize>>,
    found: Vec<usize>,
}

impl Matching {
    /// Pairs as many places as jobs: the lower half by one mark with the lower half, then the halves by the next mark.
    fn pair(&mut self, places: &mut [usize], jobs: &mut [usize], depth: usize) {
        if places.len() <= 1 || self.of_places.is_empty() {
            for (place, job) in places.iter().zip(jobs.iter()) {
                self.found[*place] = *job;
            }
            return;
        }
        let mark = depth % self.of_places.len();
        let half = places.len() / 2;
        places.select_nth_unstable_by_key(half, |place| self.of_places[mark][*place]);
        jobs.select_nth_unstable_by_key(half, |job| self.of_jobs[mark][*job]);
        let (low_places, high_places) = places.split_at_mut(half);
        let (low_jobs, high_jobs) = jobs.split_at_mut(half);
        self.pair(low_places, low_jobs, depth + 1);
        self.pair(high_places, high_jobs, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_job_has_a_place_that_fits_its_user_and_size() {
        let n_jobs = 64;
        let user = |at: usize| (at % 2) as f64;
        let places = Places {
            intervals: vec![0.0; n_jobs],
            users: Some((1, (0..n_jobs).map(user).collect())),
            ranks: vec![(2, (0..n_jobs).map(|at| at as f64).collect())],
        };
        // The same jobs backwards, with one more job of user 0.
        let mut users: Vec<f64> = (0..n_jobs).rev().map(user).collect();
        users[0] = 0.0;
        let sizes: Vec<f64> = (0..n_jobs).rev().map(|at| at as f64 * 10.0).collect();
        let columns = vec![vec![0.0; n_jobs], users.clone(), sizes.clone()];
        let found = arrange(&places, &columns, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        let mut jobs = found.clone();
        jobs.sort_unstable();
        assert!(jobs.into_iter().eq(0..n_jobs), "no job is used twice");
        let n_of_user = (0..n_jobs).filter(|at| users[found[*at]] == user(*at)).count();
        assert_eq!(n_of_user, n_jobs - 1);
        let rises = (0..n_jobs - 2).filter(|at| sizes[found[at + 2]] > sizes[found[*at]]).count();
        assert!(rises > n_jobs - 6, "{rises} jobs of a user are larger than the one before");
    }
}
