//! Convolutions over pictures against PyTorch. `fixtures/torch/convolutions.py` computed the values.

use learn::nn::ops::conv2d::{Border, Conv2d, Rectifier, Windows};
use learn::nn::ops::depthwise::Depthwise;
use learn::nn::ops::elementwise::{scaled, weighted_sum};
use learn::nn::parameters::{ParameterId, Parameters};
use learn::nn::tape::{Tape, Value, Var};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    is_depthwise: bool,
    width: usize,
    stride: usize,
    /// Nothing: as much as it takes for the output to be the input divided by the stride.
    pad: Option<usize>,
    n_inputs: usize,
    n_outputs: usize,
    side: usize,
    rectifier: String,
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    upstream: Vec<f32>,
    out: Vec<f32>,
    x_gradient: Vec<f32>,
    weight_gradient: Vec<f32>,
    bias_gradient: Vec<f32>,
}

enum Layer {
    Full(Conv2d),
    Depthwise(Depthwise),
}

impl Layer {
    fn new(one: &Recorded, parameters: &mut Parameters) -> Self {
        let border = one.pad.map_or(Border::Same, Border::Even);
        let windows = Windows { width: one.width, stride: one.stride, border };
        let rectifier = match one.rectifier.as_str() {
            "none" => Rectifier::None,
            "relu" => Rectifier::Relu,
            _ => Rectifier::Relu6,
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        if one.is_depthwise {
            let layer = Depthwise::new(parameters, "conv", windows, one.n_inputs, rectifier, &mut rng);
            Self::Depthwise(layer)
        } else {
            let sizes = [one.n_inputs, one.n_outputs];
            Self::Full(Conv2d::new(parameters, "conv", windows, sizes, rectifier, &mut rng))
        }
    }

    fn ids(&self) -> (ParameterId, ParameterId) {
        match self {
            Self::Full(layer) => (layer.weight, layer.bias),
            Self::Depthwise(layer) => (layer.weight, layer.bias),
        }
    }

    fn forward(&self, tape: &mut Tape<'_>, x: Var) -> Var {
        match self {
            Self::Full(layer) => layer.forward(tape, x),
            Self::Depthwise(layer) => layer.forward(tape, x),
        }
    }
}

fn assert_near(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let tolerance = 2e-5 * expected.abs().max(1.0);
        assert!((found - expected).abs() < tolerance, "{what}: {found} is not {expected}");
    }
}

#[test]
fn convolutions_and_their_gradients_are_those_of_pytorch() {
    let path = testbed::workspace().join("fixtures/torch/convolutions.json");
    let recorded: Vec<Recorded> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(recorded.len(), 10);
    for one in &recorded {
        let mut parameters = Parameters::default();
        let layer = Layer::new(one, &mut parameters);
        let (weight, bias) = layer.ids();
        parameters.get_mut(weight).copy_from_slice(&one.weight);
        parameters.get_mut(bias).copy_from_slice(&one.bias);
        let forward = |tape: &mut Tape<'_>| {
            let picture = Value::pictures(one.x.clone(), one.side, one.side, one.n_inputs);
            let input = tape.input(picture);
            // Inputs have no gradient; what was computed from them has.
            let x = scaled(tape, input, vec![1.0; one.x.len()]);
            let out = layer.forward(tape, x);
            let loss = weighted_sum(tape, out, one.upstream.clone());
            (x, out, loss)
        };
        let mut tape = Tape::new(&parameters);
        let (_, out, loss) = forward(&mut tape);
        assert_near("out", &tape.value(out).data, &one.out);
        let mut gradients = vec![0.0; parameters.values().len()];
        tape.backward(loss, &mut gradients);
        assert_near("weight", &gradients[parameters.range(weight)], &one.weight_gradient);
        assert_near("bias", &gradients[parameters.range(bias)], &one.bias_gradient);
        let mut tape = Tape::new(&parameters);
        let (x, _, loss) = forward(&mut tape);
        assert_near("x", &tape.gradient_of(loss, x), &one.x_gradient);
    }
}
