//! Pre-trained weights, converted to channels last, with batch normalisation folded into the layer before it.

use std::path::Path;

use learn::artifact::Tensors;
use learn::nn::parameters::{ParameterId, Parameters};
use learn::weights::WeightsError;

use super::net::{Layer, Net, Network, Source};

/// Loads a file into a network, with or without its last layer.
pub fn load(
    net: &Net,
    network: Network,
    parameters: &mut Parameters,
    path: &Path,
    with_head: bool,
) -> Result<(), WeightsError> {
    let tensors = learn::weights::read(path)?;
    let other = |reason: String| WeightsError::Other {
        path: path.to_owned(),
        reason: format!("{reason}; {} is expected", network.name()),
    };
    copy(net, &tensors, parameters, with_head).map_err(other)
}

/// Copies tensors into a network, with or without its last layer.
pub fn copy(
    net: &Net,
    tensors: &Tensors,
    parameters: &mut Parameters,
    with_head: bool,
) -> Result<(), String> {
    let n_layers = net.layers.len();
    let last = if with_head { n_layers } else { n_layers - 1 };
    net.layers[..last].iter().try_for_each(|layer| load_layer(layer, tensors, parameters))
}

/// Random weights with the variance that deep ReLU networks need (He et al., 2015), if there are no pre-trained ones.
pub fn initialise(net: &Net, parameters: &mut Parameters) {
    for layer in &net.layers {
        initialise_layer(layer, parameters);
    }
}

fn initialise_layer(layer: &Layer, parameters: &mut Parameters) {
    let mut initialise = |weight: ParameterId, bias: ParameterId| {
        for value in parameters.get_mut(weight) {
            *value *= 6f32.sqrt();
        }
        parameters.get_mut(bias).fill(0.0);
    };
    match layer {
        Layer::Conv(one, _) => initialise(one.weight, one.bias),
        Layer::Depthwise(one, _) => initialise(one.weight, one.bias),
        Layer::Linear(one, _) => initialise(one.weight, one.bias),
        Layer::Residual { body, past, .. } => {
            for layer in body.iter().chain(past.as_deref()) {
                initialise_layer(layer, parameters);
            }
        }
        Layer::MaxPool(_) | Layer::MeanPool | Layer::AsRows | Layer::Dropout(_) => {}
    }
}

/// The names and shapes of the tensors of a network in pre-trained weights.
pub fn expected(net: &Net, parameters: &Parameters) -> Vec<(String, Vec<usize>)> {
    let mut found = Vec::new();
    for layer in &net.layers {
        expect(layer, parameters, &mut found);
    }
    found
}

fn expect(layer: &Layer, parameters: &Parameters, found: &mut Vec<(String, Vec<usize>)>) {
    let mut conv = |source: &Source, shape: Vec<usize>| {
        let n_outputs = shape[0];
        found.push((format!("{}.weight", source.name), shape));
        match &source.norm {
            Some((norm, _)) => {
                let parts = ["weight", "bias", "running_mean", "running_var"];
                found.extend(parts.map(|part| (format!("{norm}.{part}"), vec![n_outputs])));
            }
            None => found.push((format!("{}.bias", source.name), vec![n_outputs])),
        }
    };
    match layer {
        Layer::Conv(one, source) => {
            conv(source, vec![one.n_outputs, one.n_inputs, one.windows.width, one.windows.width]);
        }
        Layer::Depthwise(one, source) => {
            conv(source, vec![one.n_channels, 1, one.windows.width, one.windows.width])
        }
        Layer::Linear(one, source) => {
            let shape = parameters.shape(one.weight);
            conv(source, vec![shape[1], shape[0]]);
        }
        Layer::Residual { body, past, .. } => {
            for layer in body.iter().chain(past.as_deref()) {
                expect(layer, parameters, found);
            }
        }
        Layer::MaxPool(_) | Layer::MeanPool | Layer::AsRows | Layer::Dropout(_) => {}
    }
}

fn load_layer(layer: &Layer, tensors: &Tensors, parameters: &mut Parameters) -> Result<(), String> {
    match layer {
        Layer::Conv(conv, source) => {
            let size = conv.windows.width;
            let expected = [conv.n_outputs, conv.n_inputs, size, size];
            let weight = found(tensors, source, "weight", &expected)?;
            let (scale, offset) = norm(tensors, source, conv.n_outputs)?;
            let values = parameters.get_mut(conv.weight);
            for output in 0..conv.n_outputs {
                for input in 0..conv.n_inputs {
                    for place in 0..size * size {
                        let from = (output * conv.n_inputs + input) * size * size + place;
                        values[(place * conv.n_inputs + input) * conv.n_outputs + output] =
                            weight[from] * scale[output];
                    }
                }
            }
            parameters.get_mut(conv.bias).copy_from_slice(&offset);
        }
        Layer::Depthwise(conv, source) => {
            let (size, channels) = (conv.windows.width, conv.n_channels);
            let weight = found(tensors, source, "weight", &[channels, 1, size, size])?;
            let (scale, offset) = norm(tensors, source, channels)?;
            let values = parameters.get_mut(conv.weight);
            for channel in 0..channels {
                for place in 0..size * size {
                    values[place * channels + channel] =
                        weight[channel * size * size + place] * scale[channel];
                }
            }
            parameters.get_mut(conv.bias).copy_from_slice(&offset);
        }
        Layer::Linear(linear, source) => {
            load_linear(linear.weight, linear.bias, source, tensors, parameters)?
        }
        Layer::Residual { body, past, .. } => {
            body.iter().try_for_each(|layer| load_layer(layer, tensors, parameters))?;
            if let Some(past) = past {
                load_layer(past, tensors, parameters)?;
            }
        }
        Layer::MaxPool(_) | Layer::MeanPool | Layer::AsRows | Layer::Dropout(_) => {}
    }
    Ok(())
}

fn load_linear(
    weight_id: ParameterId,
    bias_id: ParameterId,
    source: &Source,
    tensors: &Tensors,
    parameters: &mut Parameters,
) -> Result<(), String> {
    let [n_inputs, n_outputs] = [parameters.shape(weight_id)[0], parameters.shape(weight_id)[1]];
    let weight = found(tensors, source, "weight", &[n_outputs, n_inputs])?;
    let bias = found(tensors, source, "bias", &[n_outputs])?;
    let n_pixels = source.pixels.unwrap_or(1);
    let n_channels = n_inputs / n_pixels;
    let values = parameters.get_mut(weight_id);
    for output in 0..n_outputs {
        for channel in 0..n_channels {
            for pixel in 0..n_pixels {
                let from = output * n_inputs + channel * n_pixels + pixel;
                values[(pixel * n_channels + channel) * n_outputs + output] = weight[from];
            }
        }
    }
    parameters.get_mut(bias_id).copy_from_slice(bias);
    Ok(())
}

fn found<'a>(
    tensors: &'a Tensors,
    source: &Source,
    part: &str,
    shape: &[usize],
) -> Result<&'a [f32], String> {
    named(tensors, &source.name, part, shape)
}

fn named<'a>(tensors: &'a Tensors, name: &str, part: &str, shape: &[usize]) -> Result<&'a [f32], String> {
    let name = format!("{name}.{part}");
    let tensor = tensors.get(&name).ok_or_else(|| format!("no tensor {name}"))?;
    if tensor.shape() != shape {
        return Err(format!("{name} has the shape {:?}, not {shape:?}", tensor.shape()));
    }
    tensor.as_f32().ok_or_else(|| format!("{name} is not stored as f32"))
}

/// The scale and offset of batch normalisation; without it, one and the bias.
fn norm(tensors: &Tensors, source: &Source, n_outputs: usize) -> Result<(Vec<f32>, Vec<f32>), String> {
    let Some((name, epsilon)) = &source.norm else {
        return Ok((vec![1.0; n_outputs], found(tensors, source, "bias", &[n_outputs])?.to_vec()));
    };
    let part = |part: &str| named(tensors, name, part, &[n_outputs]);
    let (weight, bias, mean, variance) =
        (part("weight")?, part("bias")?, part("running_mean")?, part("running_var")?);
    let scale: Vec<f32> =
        weight.iter().zip(variance).map(|(weight, variance)| weight / (variance + epsilon).sqrt()).collect();
    let offset = bias.iter().zip(mean).zip(&scale).map(|((bias, mean), scale)| bias - mean * scale).collect();
    Ok((scale, offset))
}
