//! Measures the autoencoder: `bench-detect train BATCH SECONDS` and `bench-detect score BATCH SECONDS`, windows a
//! second as one JSON line.

#![allow(clippy::print_stdout, reason = "the result is what it prints")]

use std::time::{Duration, Instant};

use anyhow::bail;
use learn::nn::adam::Adam;
use learn::nn::ops::loss::squared_error;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use learn::nn::train::{Objective, gradients_of};
use serde_json::json;
use threads::detect::net::{N_RATES, Net, NetConfig};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Windows<'a> {
    net: &'a Net,
    inputs: Vec<f32>,
    targets: Vec<f32>,
    n_items: usize,
}

impl Objective for Windows<'_> {
    fn n_items(&self) -> usize {
        self.n_items
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, _: u64) -> Var {
        let n_steps = self.net.config.n_steps;
        let pick = |values: &[f32], width: usize| -> Vec<f32> {
            let size = n_steps * width;
            items.iter().flat_map(|item| values[item * size..(item + 1) * size].iter().copied()).collect()
        };
        let encoded = self.net.encode(tape, self.net.input(&pick(&self.inputs, N_RATES - 1)));
        let out = self.net.decode(tape, encoded.latent);
        let scale = 1.0 / (n_in_batch * n_steps * N_RATES) as f32;
        squared_error(tape, out, self.net.target(&pick(&self.targets, N_RATES)), scale)
    }

    fn validation(&self, _: &Parameters) -> f64 {
        0.0
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, batch, seconds] = &arguments[..] else {
        bail!("usage: bench-detect train|score BATCH SECONDS")
    };
    let (batch, seconds): (usize, f64) = (batch.parse()?, seconds.parse()?);
    let net = Net::new(&NetConfig::default(), 1);
    let targets: Vec<f32> = (0..batch * net.config.n_steps)
        .flat_map(|at| {
            let parts = [3, 5, 7, 11].map(|step| ((at * step) as f32 * 0.618).fract() + 0.01);
            let sum: f32 = parts.iter().sum();
            parts.map(|part| part / sum)
        })
        .collect();
    let inputs = targets.chunks_exact(N_RATES).flat_map(|rates| rates[..N_RATES - 1].to_vec()).collect();
    let windows = Windows { net: &net, inputs, targets, n_items: batch };
    let mut parameters = net.parameters.clone();
    let mut adam = Adam::new(1e-3, parameters.values().len());
    let items: Vec<usize> = (0..batch).collect();
    let mut n_windows = 0;
    let mut begun = Instant::now();
    let mut is_warm = false;
    let loss = loop {
        let loss = match what.as_str() {
            "train" => {
                let (loss, gradients) = gradients_of(&parameters, &windows, &items, 0);
                adam.step(&mut parameters, &gradients);
                loss
            }
            "score" => {
                let mut tape = Tape::new(&parameters);
                let of_all = windows.loss(&mut tape, &items, batch, 0);
                f64::from(tape.scalar(of_all))
            }
            _ => bail!("usage: bench-detect train|score BATCH SECONDS"),
        };
        n_windows += batch;
        if !is_warm && begun.elapsed() > Duration::from_millis(500) {
            (is_warm, n_windows, begun) = (true, 0, Instant::now());
        }
        if is_warm && begun.elapsed().as_secs_f64() > seconds {
            break loss;
        }
    };
    let rate = n_windows as f64 / begun.elapsed().as_secs_f64();
    println!("{}", json!({ "windows_a_second": rate, "loss": loss }));
    Ok(())
}
