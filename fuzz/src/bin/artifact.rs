//! Manifests and weights of models are read or rejected; models that are restored can be used.
#![no_main]

use std::path::Path;

use learn::artifact::{Manifest, Tensor, Tensors, from_safetensors, part_of, to_safetensors};
use learn::boost::BoostedTrees;
use learn::extra_trees::ExtraTrees;
use learn::mixture::Mixture;
use learn::pca::Pca;
use libfuzzer_sys::fuzz_target;

const N_FEATURES: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let (manifest, tensors) = (Manifest::parse(Path::new("manifest.json"), bytes), from_safetensors(bytes));
    fuzz::expect(manifest.is_ok() || tensors.is_ok());
    if let Ok(tensors) = tensors {
        let again = to_safetensors(&tensors).and_then(|bytes| from_safetensors(&bytes));
        assert_eq!(again.as_ref(), Ok(&tensors), "tensors are read as they were written");
        restore(&tensors);
        restore(&part_of(&tensors, "a"));
    }
    restore(&tensors_of(bytes));
});

/// Bytes as the tensors of trees, so that the fuzzer does not have to find out about safetensors first.
fn tensors_of(bytes: &[u8]) -> Tensors {
    let Some(([width, n_sizes], rest)) = bytes.split_first_chunk() else { return Tensors::new() };
    let numbers: Vec<f32> = rest.iter().map(|byte| f32::from(byte.cast_signed())).collect();
    let (sizes, nodes) = numbers.split_at(numbers.len().min(usize::from(*n_sizes)));
    let width = usize::from(*width).clamp(1, 8);
    let nodes = nodes[..nodes.len() / width * width].to_vec();
    let shape = vec![nodes.len() / width, width];
    let tensors = [
        ("base", Tensor::row(vec![0.0f32])),
        ("shares", Tensor::new(vec![2, 1], vec![1.0f32; 2])),
        ("sizes", Tensor::row(sizes.to_vec())),
        ("nodes", Tensor::new(shape, nodes)),
    ];
    tensors.map(|(name, tensor)| (name.to_owned(), tensor)).into()
}

fn restore(tensors: &Tensors) {
    let rows = [[0.0; N_FEATURES], [f32::NAN; N_FEATURES], [1e9, -1e9, 1.0, f32::INFINITY]];
    if let Ok(trees) = BoostedTrees::restore(tensors, N_FEATURES) {
        for row in &rows {
            assert_eq!(trees.contributions(row).len(), N_FEATURES + 1);
            trees.score(row);
        }
    }
    if let Ok(trees) = ExtraTrees::restore(tensors, N_FEATURES) {
        for row in &rows {
            trees.probabilities(row);
        }
    }
    for (name, tensor) in tensors {
        if let Ok(mixture) = Mixture::restore(tensors, name, N_FEATURES) {
            mixture.assign(&rows[0]);
        }
        let n_components = tensor.shape().first().map_or(0, |n_rows| n_rows.saturating_sub(1));
        if let Ok(pca) = Pca::restore(tensors, name, n_components, N_FEATURES) {
            assert_eq!(pca.n_components(), n_components);
        }
    }
}
