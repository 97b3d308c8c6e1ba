//! Samples the seconds of one job from the model of its kind.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_distr::{Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::model::{Barrier, Behaviour, KindModel, N_STICKS, Phases, Sticks, rates_of};

/// A simulated job: yields the rates of its threads, one second at a time.
#[derive(Debug)]
pub struct JobSampler {
    model: Arc<KindModel>,
    rng: Xoshiro256PlusPlus,
    /// The Cholesky factor of the correlation between sticks.
    mix: [[f32; N_STICKS]; N_STICKS],
    phase: usize,
    /// Seconds until it leaves the phase, if phases have durations.
    phase_left: f64,
    /// The normal deviates of each thread's sticks.
    deviations: Vec<[f32; N_STICKS]>,
    /// Seconds that each rank still computes before the next barrier.
    left: Vec<f64>,
}

impl JobSampler {
    pub fn new(model: Arc<KindModel>, n_threads: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mix, phase) = match &model.behaviour {
            Behaviour::Phases(phases) => {
                (cholesky(&phases.correlation), rng.random_range(0..phases.phases.len()))
            }
            Behaviour::Barrier(_) => (cholesky(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 0),
        };
        let phase_left = match &model.behaviour {
            Behaviour::Phases(phases) => phases
                .durations
                .get(phase)
                .map_or(0.0, |lengths| draw(lengths, &mut rng) * rng.random::<f64>()),
            Behaviour::Barrier(_) => 0.0,
        };
        let deviations =
            (0..n_threads).map(|_| std::array::from_fn(|_| rng.sample(StandardNormal))).collect();
        Self { model, rng, mix, phase, phase_left, deviations, left: vec![0.0; n_threads] }
    }

    /// Passes the rates (user, system, iowait, other) of each thread in the next second to `take`. `shift` is
    /// added to the deviates; it carries drift and what many jobs share.
    pub fn second(&mut self, shift: [f32; N_STICKS], mut take: impl FnMut(usize, [f32; 4])) {
        let model = Arc::clone(&self.model);
        match &model.behaviour {
            Behaviour::Phases(phases) => self.phases_second(phases, shift, &mut take),
            Behaviour::Barrier(barrier) => self.barrier_second(barrier, shift, &mut take),
        }
    }

    fn phases_second(
        &mut self,
        phases: &Phases,
        shift: [f32; N_STICKS],
        take: &mut impl FnMut(usize, [f32; 4]),
    ) {
        self.advance_phase(phases);
        let phase = &phases.phases[self.phase];
        let common: [f32; N_STICKS] = std::array::from_fn(|_| self.rng.sample(StandardNormal));
        let (shared_weight, own_weight) = (
            phases.shared.map(|s| s.max(0.0).sqrt() as f32),
            phases.shared.map(|s| (1.0 - s.max(0.0)).sqrt() as f32),
        );
        let kept = phases.autocorrelation.map(|correlation| correlation as f32);
        let fresh = phases.autocorrelation.map(|c| (1.0 - c * c).sqrt() as f32);
        for thread in 0..self.deviations.len() {
            let noise: [f32; N_STICKS] = std::array::from_fn(|stick| {
                shared_weight[stick] * common[stick]
                    + own_weight[stick] * self.rng.sample::<f32, _>(StandardNormal)
            });
            let sticks = if thread == 0 { &phase.first } else { &phase.others };
            let deviation = &mut self.deviations[thread];
            for stick in 0..N_STICKS {
                let mixed: f32 = self.mix[stick].iter().zip(&noise).map(|(part, noise)| part * noise).sum();
                deviation[stick] = kept[stick] * deviation[stick] + fresh[stick] * mixed;
            }
            let broken = std::array::from_fn(|stick| sticks.0[stick].at(deviation[stick] + shift[stick]));
            take(thread, rates_of(broken));
        }
    }

    fn advance_phase(&mut self, phases: &Phases) {
        self.phase_left -= 1.0;
        if phases.durations.is_empty() {
            self.phase = self.next_phase(&phases.transitions[self.phase]);
        } else if self.phase_left <= 0.0 {
            self.phase = self.next_phase(&phases.transitions[self.phase]);
            self.phase_left += draw(&phases.durations[self.phase], &mut self.rng);
        }
    }

    fn next_phase(&mut self, probabilities: &[f64]) -> usize {
        let mut left: f64 = self.rng.random();
        let chosen = probabilities.iter().position(|probability| {
            left -= probability;
            left < 0.0
        });
        chosen.unwrap_or(probabilities.len() - 1)
    }

    fn barrier_second(
        &mut self,
        barrier: &Barrier,
        shift: [f32; N_STICKS],
        take: &mut impl FnMut(usize, [f32; 4]),
    ) {
        let computed = self.computing_fractions(barrier.mean_seconds, 1.0);
        for (rank, computed) in computed.into_iter().enumerate() {
            let mut draw = |sticks: &Sticks| {
                rates_of(std::array::from_fn(|stick| {
                    sticks.0[stick].at(self.rng.sample::<f32, _>(StandardNormal) + shift[stick])
                }))
            };
            let (computing, waiting) = (draw(&barrier.computing), draw(&barrier.waiting));
            let rates =
                std::array::from_fn(|mode| computed * computing[mode] + (1.0 - computed) * waiting[mode]);
            take(rank, rates);
        }
    }

    /// The fraction of the next step in which each rank computes; in the rest it waits at the barrier.
    pub fn computing_fractions(&mut self, mean_seconds: f64, step_seconds: f64) -> Vec<f32> {
        let mut computed = vec![0.0; self.left.len()];
        let mut rest = step_seconds;
        while rest > 0.0 {
            let round = self.left.iter().copied().fold(0.0, f64::max);
            if round <= 0.0 {
                let rng = &mut self.rng;
                for left in &mut self.left {
                    *left = mean_seconds * rng.sample::<f64, _>(Exp1);
                }
                continue;
            }
            let step = round.min(rest);
            for (left, computed) in self.left.iter_mut().zip(&mut computed) {
                *computed += left.min(step);
                *left = (*left - step).max(0.0);
            }
            rest -= step;
        }
        computed.into_iter().map(|seconds| (seconds / step_seconds) as f32).collect()
    }
}

/// One of some values.
fn draw(values: &[f64], rng: &mut Xoshiro256PlusPlus) -> f64 {
    values[rng.random_range(0..values.len())]
}

/// The lower triangular matrix whose product with its transpose is the correlation.
fn cholesky(correlation: &[[f64; N_STICKS]; N_STICKS]) -> [[f32; N_STICKS]; N_STICKS] {
    let mut lower = [[0.0f64; N_STICKS]; N_STICKS];
    for row in 0..N_STICKS {
        for column in 0..=row {
            let known: f64 = (0..column).map(|k| lower[row][k] * lower[column][k]).sum();
            let rest = correlation[row][column] - known;
            lower[row][column] = if row == column {
                rest.max(0.0).sqrt()
            } else if lower[column][column] > 1e-9 {
                rest / lower[column][column]
            } else {
                0.0
            };
        }
    }
    lower.map(|row| row.map(|value| value as f32))
}

#[cfg(test)]
mod tests {
    use super::super::model::{Foreign, Memory, N_QUANTILES, Quantiles};
    use super::*;

    fn always(value: f32) -> Quantiles {
        Quantiles(vec![value; N_QUANTILES])
    }

    fn barrier(n_ranks: usize) -> JobSampler {
        let sticks = |system| Sticks([always(0.0), always(0.0), always(system)]);
        let behaviour =
            Behaviour::Barrier(Barrier { mean_seconds: 2.0, computing: sticks(0.0), waiting: sticks(1.0) });
        let memory = Memory { bytes_per_thread: 0.0, growth_bytes_per_second: 0.0 };
        JobSampler::new(Arc::new(KindModel { behaviour, memory, foreign: Foreign::default() }), n_ranks, 3)
    }

    #[test]
    fn ranks_wait_for_the_last_of_them_and_more_ranks_wait_longer() {
        let computed = |n_ranks: usize| {
            let (mut job, mut user) = (barrier(n_ranks), 0.0);
            for _ in 0..20_000 {
                job.second([0.0; 3], |_, rates| user += f64::from(rates[0]));
            }
            user / 20_000.0 / n_ranks as f64
        };
        // The expected maximum of n exponential times is 1 + 1/2 + … + 1/n times their mean.
        assert!((computed(1) - 1.0).abs() < 1e-6);
        assert!((computed(2) - 1.0 / 1.5).abs() < 0.02, "{}", computed(2));
        assert!((computed(8) - 0.368).abs() < 0.02, "{}", computed(8));
    }

    #[test]
    fn the_cholesky_factor_gives_back_the_correlation() {
        let wanted = [[1.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 1.0]];
        let lower = cholesky(&wanted);
        for row in 0..3 {
            for column in 0..3 {
                let product: f32 = (0..3).map(|k| lower[row][k] * lower[column][k]).sum();
                assert!((f64::from(product) - wanted[row][column]).abs() < 1e-6);
            }
        }
    }
}
