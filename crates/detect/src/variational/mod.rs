//! The variational autoencoder (Kingma and Welling, 2014): the embedding of a window is a normal distribution, which
//! also gives the uncertainty of the embedding and of the reconstruction.

use learn::artifact::Tensors;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::autoencoder::net::Net;
use crate::detector::{Detector, Finding, Uncertainty};
use crate::window::WindowBatch;

/// The number of embedding samples from which the variance of the reconstruction is estimated.
const N_SAMPLES: usize = 8;

#[derive(Debug, Clone)]
pub struct Variational {
    pub net: Net,
}

impl Detector for Variational {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let windows = batch.values();
        let (means, logs) = self.net.embed(&windows);
        let expected = self.net.reconstruct(&means);
        let draws: Vec<Vec<f32>> =
            (0..N_SAMPLES).map(|draw| self.net.reconstruct(&drawn(&means, &logs, draw))).collect();
        let (size, n_latent) = (self.net.size(), self.net.n_latent());
        let row =
            |values: &[f32], index: usize, size: usize| values[index * size..(index + 1) * size].to_vec();
        let finding = |(index, window): (usize, &[f32])| {
            let expected = row(&expected, index, size);
            let drawn: Vec<Vec<f32>> = draws.iter().map(|draw| row(draw, index, size)).collect();
            let latent = row(&logs, index, n_latent).iter().map(|log| f64::from(log.exp())).sum::<f64>();
            let uncertainty =
                Uncertainty { reconstruction: variance(&drawn, &expected), latent: latent / n_latent as f64 };
            let embedding = row(&means, index, n_latent);
            let finding = Finding::from_reconstruction(window, expected, embedding, batch.n_channels());
            Finding { uncertainty: Some(uncertainty), ..finding }
        };
        windows.chunks_exact(size).enumerate().map(finding).collect()
    }

    fn tensors(&self) -> Tensors {
        self.net.parameters.to_tensors()
    }
}

/// The same noise for every call, so that equal windows get equal findings.
fn drawn(means: &[f32], logs: &[f32], draw: usize) -> Vec<f32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(draw as u64);
    let spread = |(mean, log): (&f32, &f32)| mean + (0.5 * log).exp() * rng.sample::<f32, _>(StandardNormal);
    means.iter().zip(logs).map(spread).collect()
}

/// The mean squared difference of samples from the expectation.
fn variance(draws: &[Vec<f32>], expected: &[f32]) -> f64 {
    let of_draw = |draw: &Vec<f32>| learn::stats::squared_distance(draw, expected);
    draws.iter().map(of_draw).sum::<f64>() / (draws.len() * expected.len()) as f64
}
