//! Partial waves of a two-body final state: amplitudes as functions of mass and angles, events drawn from
//! them, and the likelihood of couplings given events.

use std::f64::consts::PI;
use std::ops::{Add, Mul};

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

/// The range of masses of events, in GeV.
const MASSES: [f64; 2] = [0.6, 2.0];
/// Events that one worker sums at a time.
const CHUNK: usize = 2_048;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Complex {
    pub re: f64,
    pub im: f64,
}

impl Complex {
    pub const fn new(re: f64, im: f64) -> Self {
        Self { re, im }
    }

    pub fn norm_squared(self) -> f64 {
        self.re * self.re + self.im * self.im
    }

    fn conjugate(self) -> Self {
        Self::new(self.re, -self.im)
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::new(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    }
}

/// One wave: angular momentum `l`, its projection `m`, and the resonance that carries it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wave {
    pub l: u32,
    pub m: u32,
    /// Mass and width in GeV.
    pub mass: f64,
    pub width: f64,
}

/// One event: mass and angles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    pub mass: f64,
    pub cos_theta: f64,
    pub phi: f64,
}

impl Event {
    /// Uniform in mass, cosine and azimuth.
    fn uniform(rng: &mut Xoshiro256PlusPlus) -> Self {
        Self {
            mass: rng.random_range(MASSES[0]..MASSES[1]),
            cos_theta: rng.random_range(-1.0..1.0),
            phi: rng.random_range(-PI..PI),
        }
    }
}

impl Wave {
    /// The wave's amplitude at an event, for a coupling of one.
    pub fn at(&self, event: &Event) -> Complex {
        let angular = legendre(self.l, self.m, event.cos_theta);
        let phase = f64::from(self.m) * event.phi;
        let (mass, width) = (self.mass, self.width);
        // A relativistic Breit-Wigner of constant width, one at its peak.
        let (re, im) = (mass * mass - event.mass * event.mass, -mass * width);
        let scale = mass * width / (re * re + im * im);
        Complex::new(re * scale, -im * scale) * Complex::new(angular * phase.cos(), angular * phase.sin())
    }
}

/// The associated Legendre function, normalised so that its spherical harmonic has norm one.
fn legendre(l: u32, m: u32, x: f64) -> f64 {
    let sine = (1.0 - x * x).max(0.0).sqrt();
    let mut here = (1..=m).fold(1.0, |value, k| -value * f64::from(2 * k - 1) * sine);
    let mut before = 0.0;
    for degree in m + 1..=l {
        let next = (f64::from(2 * degree - 1) * x * here - f64::from(degree + m - 1) * before)
            / f64::from(degree - m);
        (before, here) = (here, next);
    }
    let factorials: f64 = (l - m + 1..=l + m).map(f64::from).product();
    here * (f64::from(2 * l + 1) / (4.0 * PI * factorials)).sqrt()
}

pub fn intensity(waves: &[Wave], couplings: &[Complex], event: &Event) -> f64 {
    let amplitude = waves
        .iter()
        .zip(couplings)
        .fold(Complex::new(0.0, 0.0), |sum, (wave, coupling)| sum + *coupling * wave.at(event));
    amplitude.norm_squared()
}

/// Events drawn from a model by rejection sampling. Ends early once `is_over` is true.
pub fn generate(
    waves: &[Wave],
    couplings: &[Complex],
    n_events: usize,
    rng: &mut Xoshiro256PlusPlus,
    is_over: impl Fn() -> bool,
) -> Vec<Event> {
    let mut max_intensity =
        (0..2_000).map(|_| intensity(waves, couplings, &Event::uniform(rng))).fold(0.0, f64::max);
    let mut events = Vec::with_capacity(n_events);
    while events.len() < n_events && !is_over() {
        let event = Event::uniform(rng);
        let here = intensity(waves, couplings, &event);
        max_intensity = max_intensity.max(here);
        if rng.random_range(0.0..max_intensity) < here {
            events.push(event);
        }
    }
    events
}

/// Uniform events, over which the model is integrated.
pub fn phase_space(n_events: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<Event> {
    (0..n_events).map(|_| Event::uniform(rng)).collect()
}

/// The extended likelihood of couplings, with the phase of the first wave as the reference.
#[derive(Debug)]
pub struct Likelihood {
    pub waves: Vec<Wave>,
    pub data: Vec<Event>,
    pub phase_space: Vec<Event>,
}

impl Likelihood {
    /// The first coupling is real; the others have two numbers each.
    pub fn couplings(parameters: &[f64]) -> Vec<Complex> {
        let rest = parameters[1..].chunks_exact(2).map(|pair| Complex::new(pair[0], pair[1]));
        std::iter::once(Complex::new(parameters[0], 0.0)).chain(rest).collect()
    }

    pub fn n_parameters(&self) -> usize {
        2 * self.waves.len() - 1
    }

    /// Minus the logarithm of the likelihood per event, and its gradient.
    pub fn evaluate(&self, parameters: &[f64]) -> (f64, Vec<f64>) {
        let couplings = Self::couplings(parameters);
        let n_data = self.data.len() as f64;
        let (data, data_gradient) =
            self.sum(&self.data, &couplings, |intensity| (-intensity.ln(), -1.0 / intensity));
        let (integral, integral_gradient) =
            self.sum(&self.phase_space, &couplings, |intensity| (intensity, 1.0));
        let weight = 1.0 / self.phase_space.len() as f64;
        let gradient = data_gradient.iter().zip(&integral_gradient);
        (data / n_data + integral * weight, gradient.map(|(data, mc)| data / n_data + mc * weight).collect())
    }

    /// The sum of a function of the intensity over events, and its gradient by the couplings.
    fn sum(
        &self,
        events: &[Event],
        couplings: &[Complex],
        function: impl Fn(f64) -> (f64, f64) + Sync,
    ) -> (f64, Vec<f64>) {
        let n_waves = self.waves.len();
        let zero = || (0.0, vec![0.0; 2 * n_waves]);
        let (sum, by_part) = events
            .par_chunks(CHUNK)
            .map(|events| {
                let (mut sum, mut gradient) = zero();
                let mut terms = vec![Complex::new(0.0, 0.0); n_waves];
                for event in events {
                    let mut amplitude = Complex::new(0.0, 0.0);
                    for ((term, wave), coupling) in terms.iter_mut().zip(&self.waves).zip(couplings) {
                        *term = wave.at(event);
                        amplitude = amplitude + *coupling * *term;
                    }
                    let (value, slope) = function(amplitude.norm_squared().max(f64::MIN_POSITIVE));
                    sum += value;
                    for (gradient, term) in gradient.chunks_exact_mut(2).zip(&terms) {
                        let product = amplitude.conjugate() * *term;
                        gradient[0] += slope * 2.0 * product.re;
                        gradient[1] -= slope * 2.0 * product.im;
                    }
                }
                (sum, gradient)
            })
            .reduce(zero, |(sum, mut gradient), (more, slopes)| {
                gradient.iter_mut().zip(&slopes).for_each(|(all, slope)| *all += slope);
                (sum + more, gradient)
            });
        // The imaginary part of the first coupling is not a parameter.
        let gradient = by_part[..1].iter().chain(&by_part[2..]).copied().collect();
        (sum, gradient)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const WAVES: [Wave; 3] = [
        Wave { l: 0, m: 0, mass: 0.98, width: 0.1 },
        Wave { l: 1, m: 1, mass: 0.77, width: 0.15 },
        Wave { l: 2, m: 0, mass: 1.27, width: 0.19 },
    ];

    #[test]
    fn spherical_harmonics_have_norm_one_and_are_orthogonal() {
        let n = 2_000;
        let integral = |l: u32, k: u32, m: u32| {
            let term = |at: usize| {
                let x = -1.0 + (at as f64 + 0.5) * 2.0 / n as f64;
                legendre(l, m, x) * legendre(k, m, x)
            };
            (0..n).map(term).sum::<f64>() * 2.0 / n as f64 * 2.0 * PI
        };
        for (l, m) in [(0, 0), (1, 0), (1, 1), (2, 1), (3, 2), (4, 4)] {
            assert!((integral(l, l, m) - 1.0).abs() < 1e-4, "{l} {m}");
        }
        assert!(integral(1, 3, 1).abs() < 1e-4 && integral(0, 2, 0).abs() < 1e-4);
    }

    #[test]
    fn the_gradient_is_that_of_the_likelihood() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let data = phase_space(300, &mut rng);
        let likelihood = Likelihood { waves: WAVES.into(), data, phase_space: phase_space(500, &mut rng) };
        let at = [1.2, 0.5, -0.3, 0.2, 0.8];
        let (_, gradient) = likelihood.evaluate(&at);
        for parameter in 0..at.len() {
            let moved = |by: f64| {
                let mut there = at;
                there[parameter] += by;
                likelihood.evaluate(&there).0
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((slope - gradient[parameter]).abs() < 1e-6 * (1.0 + slope.abs()), "{parameter}");
        }
    }
}
