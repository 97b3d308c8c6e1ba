//! The networks agree with the same networks in PyTorch: `fixtures/torch/autoencoder.py` made the numbers.

use std::collections::BTreeMap;

use learn::artifact::{Tensor, Tensors};
use learn::nn::adam::Adam;
use learn::nn::tape::Tape;
use serde::Deserialize;

use super::net::{Net, NetConfig, Shape};
use super::train::{Inputs, Weights, loss};

const CLOSE: f32 = 1e-4;

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<InjectedCase>,
}

#[derive(Deserialize)]
struct InjectedCase {
    name: String,
    has_graph: bool,
    is_variational: bool,
    weights: BTreeMap<String, Weight>,
    windows: Vec<f32>,
    noise: Vec<f32>,
    embeddings: Vec<f32>,
    rates: Vec<f32>,
    loss: f32,
    gradients: BTreeMap<String, Vec<f32>>,
    weights_after: BTreeMap<String, Vec<f32>>,
}

#[derive(Deserialize)]
struct Weight {
    shape: Vec<usize>,
    values: Vec<f32>,
}

fn assert_close(what: &str, found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let most = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(most < CLOSE, "{what} differs by {most}");
}

#[test]
fn forward_and_a_step_of_training_are_those_of_pytorch() {
    let text = std::fs::read_to_string(testbed::workspace().join("fixtures/torch/autoencoder.json")).unwrap();
    let recorded: Recorded = serde_json::from_str(&text).unwrap();
    assert_eq!(recorded.cases.len(), 3);
    for case in recorded.cases {
        let config = NetConfig { widths: vec![4, 5], kernel: 5, n_hidden: 6, n_latent: 3, n_graph_hidden: 4 };
        let shape = Shape {
            n_steps: 17,
            n_channels: 4,
            has_graph: case.has_graph,
            is_variational: case.is_variational,
        };
        let mut net = Net::new(&config, shape, 0);
        let tensor = |weight: &Weight| Tensor::new(weight.shape.clone(), weight.values.clone());
        let tensors: Tensors =
            case.weights.iter().map(|(name, weight)| (name.clone(), tensor(weight))).collect();
        assert_eq!(tensors.len(), net.parameters.to_tensors().len(), "{}", case.name);
        net.parameters.load(&tensors).unwrap();

        let graphs = [0..3, 3..5];
        // The fixture has noise for the variational network only.
        let (noise, divergence_weight) =
            if case.is_variational { (case.noise.clone(), 0.01) } else { (vec![0.0; case.noise.len()], 0.0) };
        let mut tape = Tape::new(&net.parameters);
        let encoded = net.encode(&mut tape, net.input(&case.windows));
        let z = net.draw(&mut tape, &encoded, noise.clone());
        let z = net.exchange(&mut tape, z, &graphs);
        let out = net.decode(&mut tape, z);
        assert_close(&format!("{} embeddings", case.name), &tape.value(z).data, &case.embeddings);
        assert_close(&format!("{} rates", case.name), &tape.value(out).samples(), &case.rates);

        let mut tape = Tape::new(&net.parameters);
        let scale = 1.0 / case.windows.len() as f32;
        let weights = Weights { scale, divergence: divergence_weight };
        let inputs = Inputs { windows: &case.windows, graphs: &graphs };
        let of_all = loss(&net, &mut tape, inputs, weights, |_| noise);
        assert_close(&format!("{} loss", case.name), &[tape.scalar(of_all)], &[case.loss]);
        let mut gradients = vec![0.0; net.parameters.values().len()];
        tape.backward(of_all, &mut gradients);
        let mut slopes = net.parameters.clone();
        slopes.values_mut().copy_from_slice(&gradients);
        for (name, _, values) in slopes.iter() {
            assert_close(&format!("{} gradient of {name}", case.name), values, &case.gradients[name]);
        }
        let mut after = net.parameters.clone();
        Adam::new(1e-3, gradients.len()).step(&mut after, &gradients);
        for (name, _, values) in after.iter() {
            assert_close(&format!("{} {name} after a step", case.name), values, &case.weights_after[name]);
        }
    }
}
