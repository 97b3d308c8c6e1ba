//! Grad-CAM (Selvaraju et al., 2017): the regions of a chart that are evidence for a class, and the tasks in these regions.

use learn::nn::ops::loss::known;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Layout, Tape, Value};

use super::net::Net;
use crate::classify::Evidence;

/// The evidence for a class at each position of a chart, row by row.
pub struct Map {
    height: usize,
    width: usize,
    values: Vec<f64>,
}

pub fn map(net: &Net, parameters: &Parameters, picture: Value, class: usize) -> Map {
    let mut tape = Tape::new(parameters);
    let x = tape.input(picture);
    let (maps, logits) = net.forward_with_maps(&mut tape, x);
    let value = tape.value(maps).clone();
    let n_classes = tape.value(logits).n_columns;
    let mut slopes = vec![0.0; n_classes];
    slopes[class] = 1.0;
    let score = f64::from(tape.value(logits).data[class]);
    let score = known(&mut tape, logits, score, slopes);
    let gradient = tape.gradient_of(score, maps);
    let Layout::Image { height, width } = value.layout else {
        return Map { height: 1, width: 1, values: vec![1.0] };
    };
    let channels = value.n_columns;
    let mut weights = vec![0.0f64; channels];
    for row in gradient.chunks_exact(channels) {
        for (weight, slope) in weights.iter_mut().zip(row) {
            *weight += f64::from(*slope);
        }
    }
    let place = |row: &[f32]| {
        row.iter().zip(&weights).map(|(value, weight)| f64::from(*value) * weight).sum::<f64>().max(0.0)
    };
    Map { height, width, values: value.data.chunks_exact(channels).map(place).collect() }
}

/// Gives each row of the chart the weight of the row of the map that it lies in.
pub fn to_attempts(map: &Map, n_rows: usize) -> Evidence {
    let line = |at: usize| &map.values[at * map.width..(at + 1) * map.width];
    let sums: Vec<f64> = (0..map.height).map(|at| line(at).iter().sum()).collect();
    let weight = |row: usize| sums[(row * map.height / n_rows.max(1)).min(map.height - 1)];
    Evidence::Attempts((0..n_rows).map(weight).collect())
}
