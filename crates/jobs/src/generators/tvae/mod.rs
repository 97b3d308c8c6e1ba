//! TVAE: a variational autoencoder of rows (Xu et al., 2019).

mod train;

use learn::artifact::Tensors;
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::parameters::{ParameterId, Parameters};
use learn::nn::tape::{Tape, Var};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::activate::settle;
use super::encode::{Bend, Block, BlockKind, Encoder};
use super::{FitSettings, Generator, Step, in_chunks};
use crate::features::Jobs;

const WIDTHS: [usize; 2] = [128, 128];
const N_LATENT: usize = 128;

/// The layers.
#[derive(Debug, Clone)]
struct Net {
    encoder: Vec<Linear>,
    mean: Linear,
    log_variance: Linear,
    decoder: Vec<Linear>,
    last: Linear,
    /// How wide the place of a number is around what is made of it.
    widths: ParameterId,
}

/// What every place is uncertain by at first.
const WIDTH: f32 = 0.1;

impl Net {
    fn new(parameters: &mut Parameters, width: usize, rng: &mut Xoshiro256PlusPlus) -> Self {
        let mut stack = |name: &str, sizes: &[usize]| -> Vec<Linear> {
            let pairs = sizes.windows(2).enumerate();
            pairs
                .map(|(index, pair)| {
                    Linear::new(
                        parameters,
                        &format!("{name}.{index}"),
                        [pair[0], pair[1]],
                        Activation::Relu,
                        rng,
                    )
                })
                .collect()
        };
        let encoder = stack("encoder", &[width, WIDTHS[0], WIDTHS[1]]);
        let decoder = stack("decoder", &[N_LATENT, WIDTHS[1], WIDTHS[0]]);
        let mut plain = |name: &str, shape| Linear::new(parameters, name, shape, Activation::None, rng);
        let mean = plain("encoder.mean", [WIDTHS[1], N_LATENT]);
        let log_variance = plain("encoder.log_variance", [WIDTHS[1], N_LATENT]);
        let last = plain("decoder.last", [WIDTHS[0], width]);
        let widths = parameters.add("decoder.widths", &[width], width, rng);
        parameters.get_mut(widths).fill(WIDTH);
        Self { encoder, mean, log_variance, decoder, last, widths }
    }

    fn encode(&self, tape: &mut Tape<'_>, x: Var) -> (Var, Var) {
        let hidden = self.encoder.iter().fold(x, |x, layer| layer.forward(tape, x));
        (self.mean.forward(tape, hidden), self.log_variance.forward(tape, hidden))
    }

    fn decode(&self, tape: &mut Tape<'_>, z: Var) -> Var {
        let hidden = self.decoder.iter().fold(z, |z, layer| layer.forward(tape, z));
        self.last.forward(tape, hidden)
    }

    /// The same without learning.
    fn make(&self, parameters: &Parameters, mut x: Vec<f32>, n_rows: usize) -> Vec<f32> {
        for layer in self.decoder.iter().chain([&self.last]) {
            let mut out = vec![0.0; n_rows * parameters.shape(layer.bias)[0]];
            layer.compute(parameters, &x, &mut out);
            x = out;
        }
        x
    }
}

pub struct Tvae {
    encoder: Encoder,
    net: Net,
    parameters: Parameters,
}

impl Tvae {
    pub fn fit(jobs: &Jobs, settings: FitSettings, tell: &mut impl FnMut(Step)) -> Self {
        let encoder = Encoder::fit(jobs, Bend::Log, true, settings.seed);
        let (net, parameters) = train::train(jobs, &encoder, settings, tell);
        Self { encoder, net, parameters }
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let encoder: Encoder = serde_json::from_value(settings.clone()).ok()?;
        let mut parameters = Parameters::default();
        let net = Net::new(&mut parameters, encoder.width, &mut Xoshiro256PlusPlus::seed_from_u64(0));
        parameters.load(tensors).ok()?;
        Some(Self { encoder, net, parameters })
    }

    fn rows(&self, n_rows: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let noise: Vec<f32> = (0..n_rows * N_LATENT).map(|_| rng.sample(StandardNormal)).collect();
        let mut rows = self.net.make(&self.parameters, noise, n_rows);
        settle(&mut rows, &self.encoder, rng);
        let widths = self.parameters.get(self.net.widths);
        let is_place = |block: &&Block| block.kind == BlockKind::Place;
        let places: Vec<usize> =
            self.encoder.blocks.iter().filter(is_place).map(|block| block.first).collect();
        for row in rows.chunks_exact_mut(self.encoder.width) {
            for at in &places {
                let noise: f32 = rng.sample(StandardNormal);
                row[*at] += widths[*at].clamp(0.01, 1.0) * noise;
            }
        }
        rows
    }
}

impl Generator for Tvae {
    fn sample(&self, n_jobs: usize, seed: u64) -> Vec<Vec<f64>> {
        in_chunks(n_jobs, seed, &self.encoder, |n_rows, rng| self.rows(n_rows, rng))
    }

    fn tensors(&self) -> Tensors {
        self.parameters.to_tensors()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.encoder).unwrap_or_default()
    }
}
