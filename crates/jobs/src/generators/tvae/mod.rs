//! TVAE: a variational autoencoder of rows (Xu et al., "Modeling tabular data using conditional GAN", 2019).
//!
//! Departures from the paper: numbers are transformed by `log(1 + x)` before their modes are fitted, and categories are
//! sampled instead of taking the most likely value.

mod train;

use learn::artifact::Tensors;
use learn::artifact::restore::{self, RestoreError};
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::parameters::{ParameterId, Parameters};
use learn::nn::tape::{Tape, Var};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Stop, Stopped};

use super::encoding::{Encoder, TransformKind};
use super::output::STD_DEV_RANGE;
use super::{Generator, TrainingConfig, TrainingProgress, sample_in_chunks};
use crate::features::{FeatureSpec, FeatureTable};

const WIDTHS: [usize; 2] = [128, 128];
const N_LATENT: usize = 128;

/// Encoder: width → 128 → 128 → 128 (mean and log variance). Decoder: 128 → 128 → 128 → width.
#[derive(Debug, Clone)]
struct Net {
    encoder: Vec<Linear>,
    mean: Linear,
    log_variance: Linear,
    decoder: Vec<Linear>,
    last: Linear,
    /// The standard deviation of each number of a row.
    std_devs: ParameterId,
}

const INITIAL_STD_DEV: f32 = 0.1;

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
        let std_devs = parameters.add("decoder.std_devs", &[width], width, rng);
        parameters.fill(std_devs, INITIAL_STD_DEV);
        Self { encoder, mean, log_variance, decoder, last, std_devs }
    }

    fn encode(&self, tape: &mut Tape<'_>, x: Var) -> (Var, Var) {
        let hidden = self.encoder.iter().fold(x, |x, layer| layer.forward(tape, x));
        (self.mean.forward(tape, hidden), self.log_variance.forward(tape, hidden))
    }

    fn decode(&self, tape: &mut Tape<'_>, z: Var) -> Var {
        let hidden = self.decoder.iter().fold(z, |z, layer| layer.forward(tape, z));
        self.last.forward(tape, hidden)
    }

    /// Decodes without a tape.
    fn generate(&self, parameters: &Parameters, mut x: Vec<f32>, n_rows: usize) -> Vec<f32> {
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
    pub fn fit(
        jobs: &FeatureTable,
        config: TrainingConfig,
        stop: &Stop,
        report: &mut impl FnMut(TrainingProgress),
    ) -> Result<Self, Stopped> {
        let encoder = Encoder::fit(jobs, TransformKind::Log, true, config.seed, stop)?;
        let (net, parameters) = train::train(jobs, &encoder, config, stop, report)?;
        Ok(Self { encoder, net, parameters })
    }

    pub fn restore(
        specs: &[FeatureSpec],
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> Result<Self, RestoreError> {
        let encoder: Encoder = restore::settings(settings)?;
        encoder.check(specs)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let (net, parameters) =
            Parameters::restore(tensors, |parameters| Net::new(parameters, encoder.width(), &mut rng))?;
        Ok(Self { encoder, net, parameters })
    }
}

impl Generator for Tvae {
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
        let std_devs = self.parameters.get(self.net.std_devs).iter();
        let std_devs: Vec<f32> =
            std_devs.map(|std_dev| std_dev.clamp(*STD_DEV_RANGE.start(), *STD_DEV_RANGE.end())).collect();
        sample_in_chunks(n_jobs, seed, stop, &self.encoder, Some(&std_devs), |n_rows, rng| {
            let noise = (0..n_rows * N_LATENT).map(|_| rng.sample(StandardNormal)).collect();
            self.net.generate(&self.parameters, noise, n_rows)
        })
    }

    fn tensors(&self) -> Tensors {
        self.parameters.to_tensors()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.encoder).unwrap_or_default()
    }
}
