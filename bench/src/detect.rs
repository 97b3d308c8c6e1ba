//! Measures the autoencoder of `docs/results/detect.md`: `bench-detect WHAT SECONDS`, one JSON line.
//!
//! `bench-detect umap FILE COLUMNS` lays out points of 32-bit floats in the plane. WHAT is `train-ae`, `train-gnn` (graphs of 32 threads), `score-B` for a batch of B windows, or `sgemm`.

#![allow(clippy::print_stdout, reason = "the result is what it prints")]

#[path = "../../crates/cli/src/memory.rs"]
mod memory;

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use detect::autoencoder::net::{Net, NetConfig, Shape};
use detect::autoencoder::train::{Inputs, Weights, loss, noise};
use detect::autoencoder::{Autoencoder, GraphScope};
use detect::{Detector, ThreadWindow, WindowBatch};
use learn::Matrix;
use learn::nn::adam::Adam;
use learn::nn::gemm::{Accumulate, View, multiply};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use learn::nn::train::{Objective, gradients_of};
use learn::umap::{Umap, UmapSettings};
use rayon::prelude::*;
use serde_json::json;
use workload::{Cpu, JobId, NodeName, Owner, Stop, Stopped, Timestamp};

const N_STEPS: usize = 100;
const N_CHANNELS: usize = 4;
const BATCH: usize = 256;
const N_GRAPHS: usize = 64;
const GRAPH: usize = 32;
const SGEMM: usize = 1_024;

fn net(has_graph: bool) -> Net {
    let shape = Shape { n_steps: N_STEPS, n_channels: N_CHANNELS, has_graph, is_variational: false };
    Net::new(&NetConfig::default(), shape, 1)
}

fn windows(n_windows: usize) -> Vec<f32> {
    (0..n_windows * N_STEPS)
        .flat_map(|at| {
            let parts = [3, 5, 7, 11].map(|step| ((at * step) as f32 * 0.618).fract() + 0.01);
            let sum: f32 = parts.iter().sum();
            parts.map(|part| part / sum)
        })
        .collect()
}

/// Graphs of as many windows each.
struct Training {
    net: Net,
    windows: Vec<f32>,
    graph: usize,
    n_items: usize,
}

impl Objective for Training {
    fn n_items(&self) -> usize {
        self.n_items
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var {
        let size = self.graph * self.net.size();
        let chosen: Vec<f32> = items
            .iter()
            .flat_map(|item| self.windows[item * size..(item + 1) * size].iter().copied())
            .collect();
        let graphs: Vec<Range<usize>> =
            (0..items.len()).map(|item| item * self.graph..(item + 1) * self.graph).collect();
        let scale = 1.0 / (n_in_batch * size) as f32;
        let inputs = Inputs { windows: &chosen, graphs: &graphs };
        loss(&self.net, tape, inputs, Weights { scale, divergence: 0.0 }, noise(seed))
    }

    fn validation(&self, _: &Parameters, _: &Stop) -> Result<f64, Stopped> {
        Ok(0.0)
    }
}

/// Does work over and over: how much of it a second.
fn rate(seconds: f64, mut work: impl FnMut() -> usize) -> f64 {
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(500) {
        work();
    }
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed().as_secs_f64() < seconds {
        done += work();
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

fn train(has_graph: bool, seconds: f64) -> f64 {
    let (graph, n_items) = if has_graph { (GRAPH, N_GRAPHS) } else { (1, BATCH) };
    let training = Training { net: net(has_graph), windows: windows(graph * n_items), graph, n_items };
    let mut parameters = training.net.parameters.clone();
    let mut adam = Adam::new(1e-3, parameters.values().len());
    let items: Vec<usize> = (0..n_items).collect();
    rate(seconds, || {
        let (_, gradients) = gradients_of(&parameters, &training, &items, 0);
        adam.step(&mut parameters, &gradients);
        graph * n_items
    })
}

fn score(batch: usize, seconds: f64) -> anyhow::Result<f64> {
    let detector = Autoencoder { net: net(false), scope: GraphScope::Thread };
    let (node, job) = (NodeName::new("n1")?, JobId::new("1")?);
    let values = windows(batch);
    let threads = values.chunks_exact(N_STEPS * N_CHANNELS).map(|values| ThreadWindow {
        node: node.clone(),
        cpu: Cpu(0),
        owner: Owner::Job(job.clone()),
        values: values.to_vec(),
    });
    let batch = WindowBatch::new(Timestamp(0), N_CHANNELS, threads.collect());
    Ok(rate(seconds, || detector.examine(&batch).len()))
}

/// Floating-point operations a second of products of matrices, one on each thread.
fn sgemm(seconds: f64) -> f64 {
    let n_threads = rayon::current_num_threads();
    let factors = vec![0.5f32; SGEMM * SGEMM];
    let products = rate(seconds, || {
        (0..n_threads).into_par_iter().for_each(|_| {
            let mut out = vec![0.0; SGEMM * SGEMM];
            let view = View::rows(&factors, SGEMM);
            multiply([SGEMM; 3], &mut out, SGEMM, Accumulate::Overwrite, view, view);
            std::hint::black_box(out);
        });
        n_threads
    });
    products * 2.0 * (SGEMM as f64).powi(3)
}

fn main() -> anyhow::Result<()> {
    memory::reuse_memory();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, file, n_columns] = &arguments[..]
        && what == "umap"
    {
        let bytes = std::fs::read(file)?;
        let (words, _) = bytes.as_chunks::<4>();
        let points =
            Matrix::new(words.iter().map(|word| f32::from_le_bytes(*word)).collect(), n_columns.parse()?);
        let umap = Umap::fit(&points, &UmapSettings::default())?;
        println!("{}", json!({ "layout": umap.layout.as_slice() }));
        return Ok(());
    }
    let [what, seconds] = &arguments[..] else {
        bail!("usage: bench-detect train-ae|train-gnn|score-B|sgemm SECONDS")
    };
    let seconds: f64 = seconds.parse()?;
    let rate = match what.as_str() {
        "train-ae" => train(false, seconds),
        "train-gnn" => train(true, seconds),
        "sgemm" => sgemm(seconds),
        other => {
            let batch = other.strip_prefix("score-").context("nothing of that name can be measured")?;
            score(batch.parse()?, seconds)?
        }
    };
    println!("{}", json!({ "what": what, "rate": rate }));
    Ok(())
}
