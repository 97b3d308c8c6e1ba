//! Weights that others trained, from files that may be hostile: safetensors, and both layouts of
//! `torch.save` (`.pth`, `.pt`). Only tensors are read; nothing that a file names is run. Memory is
//! bounded by a multiple of the size of the file.

mod numbers;
mod pickle;

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors};

use self::numbers::NumberType;
use self::pickle::{StoredTensor, take, take_u64};
use crate::artifact::{MAX_WEIGHTS, Tensor, Tensors, read_bounded};

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} contains no weights that can be read: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("{path} contains the weights of another network: {reason}")]
    Other { path: PathBuf, reason: String },
}

/// Reads all tensors of a file, as `f32`, by name.
pub fn read(path: &Path) -> Result<Tensors, WeightsError> {
    let bytes = read_bounded(path, MAX_WEIGHTS)
        .map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
    parse(&bytes).map_err(|reason| WeightsError::Damaged { path: path.to_owned(), reason })
}

/// Reads all tensors of a file's content, as `f32`, by name; or explains why it has none.
pub fn parse(bytes: &[u8]) -> Result<Tensors, String> {
    let tensors = match bytes {
        [] => return Err("it is empty".into()),
        [b'P', b'K', 3, 4, ..] => from_zip(bytes)?,
        [0x80, ..] => from_legacy(bytes)?,
        _ => from_safetensors(bytes)?,
    };
    if tensors.is_empty() {
        return Err("it contains no tensor".into());
    }
    Ok(tensors)
}

/// The layout of `torch.save` since version 1.6: a zip archive with `data.pkl` and one file per storage.
fn from_zip(bytes: &[u8]) -> Result<Tensors, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| error.to_string())?;
    let root = archive
        .file_names()
        .find_map(|name| name.strip_suffix("data.pkl"))
        .ok_or("it contains no data.pkl")?
        .to_owned();
    // Files are stored without compression, so all together are smaller than the archive, unless they share bytes.
    let mut n_left = bytes.len();
    let mut file = |name: &str| -> Result<Vec<u8>, String> {
        let name = format!("{root}{name}");
        let entry = archive.by_name(&name).map_err(|error| format!("{name}: {error}"))?;
        let mut content = Vec::new();
        entry
            .take(n_left as u64 + 1)
            .read_to_end(&mut content)
            .map_err(|error| format!("{name}: {error}"))?;
        n_left = n_left.checked_sub(content.len()).ok_or("its files overlap")?;
        Ok(content)
    };
    let stored = pickle::tensors(&mut file("data.pkl")?.as_slice())?;
    let mut storages = HashMap::new();
    for (_, one) in stored.iter().filter(|(_, one)| one.number_type != NumberType::Other) {
        if !storages.contains_key(&one.storage) {
            storages.insert(one.storage.clone(), file(&format!("data/{}", one.storage))?);
        }
    }
    filled(stored, bytes.len(), |key| storages.get(key).map(Vec::as_slice))
}

/// The layout of `torch.save` before version 1.6: five pickles (a magic number, a version, the platform,
/// the object, the names of storages), then for every storage its length and its numbers.
fn from_legacy(bytes: &[u8]) -> Result<Tensors, String> {
    let mut rest = bytes;
    for _ in 0..3 {
        pickle::skip(&mut rest)?;
    }
    let stored = pickle::tensors(&mut rest)?;
    let keys = pickle::texts(&mut rest)?;
    let number_types: HashMap<&str, NumberType> =
        stored.iter().map(|(_, one)| (one.storage.as_str(), one.number_type)).collect();
    let mut storages: HashMap<&str, &[u8]> = HashMap::new();
    for key in &keys {
        let n_numbers = take_u64(&mut rest)?;
        let number_type = number_types.get(key.as_str()).copied().unwrap_or(NumberType::Other);
        let length = usize::try_from(n_numbers).ok().and_then(|n| n.checked_mul(number_type.n_bytes()));
        storages.insert(key, take(&mut rest, length.ok_or("a storage is larger than the file")?)?);
    }
    filled(stored, bytes.len(), |key| storages.get(key).copied())
}

fn from_safetensors(bytes: &[u8]) -> Result<Tensors, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("it is neither safetensors nor written by torch.save ({error})"))?;
    let mut tensors = Tensors::new();
    for (name, view) in file.tensors() {
        let number_type = match view.dtype() {
            Dtype::F32 => NumberType::Float,
            Dtype::F64 => NumberType::Double,
            Dtype::F16 => NumberType::Half,
            Dtype::BF16 => NumberType::BFloat16,
            _ => continue,
        };
        let numbers = view.data().chunks_exact(number_type.n_bytes());
        let values: Option<Vec<f32>> = numbers.map(|bytes| number_type.decode(bytes)).collect();
        insert(&mut tensors, name, view.shape().to_vec(), values)?;
    }
    Ok(tensors)
}

/// Tensors with their values. None has more values than its storage, and all together have at most as many
/// as the file has bytes: with a stride of zero, a small file could otherwise ask for any amount of memory.
fn filled<'a>(
    stored: Vec<(String, StoredTensor)>,
    n_bytes: usize,
    storage: impl Fn(&str) -> Option<&'a [u8]>,
) -> Result<Tensors, String> {
    let mut tensors = Tensors::new();
    let mut n_left = n_bytes;
    for (name, one) in stored.into_iter().filter(|(_, one)| one.number_type != NumberType::Other) {
        let bytes = storage(&one.storage).ok_or_else(|| format!("storage {} is missing", one.storage))?;
        let n_values = one.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        n_left = n_values
            .filter(|n_values| *n_values <= bytes.len() / one.number_type.n_bytes())
            .and_then(|n_values| n_left.checked_sub(n_values))
            .ok_or_else(|| format!("{name} is larger than the file"))?;
        let values = n_values.and_then(|n_values| strided(&one, n_values, bytes));
        insert(&mut tensors, name, one.shape, values)?;
    }
    Ok(tensors)
}

fn insert(
    tensors: &mut Tensors,
    name: String,
    shape: Vec<usize>,
    values: Option<Vec<f32>>,
) -> Result<(), String> {
    let n_values = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    match values.filter(|values| Some(values.len()) == n_values) {
        Some(values) if values.iter().any(|value| !value.is_finite()) => {
            return Err(format!("{name} contains a value that is not finite"));
        }
        Some(values) => tensors.insert(name, Tensor::new(shape, values)),
        None => return Err(format!("{name} is larger than its storage")),
    };
    Ok(())
}

/// The values of a tensor in row-major order; nothing if one lies outside of the storage.
fn strided(tensor: &StoredTensor, n_values: usize, bytes: &[u8]) -> Option<Vec<f32>> {
    let size = tensor.number_type.n_bytes();
    let mut values = Vec::with_capacity(n_values);
    let mut index = vec![0usize; tensor.shape.len()];
    for _ in 0..n_values {
        let mut place = tensor.offset;
        for (at, stride) in index.iter().zip(&tensor.strides) {
            place = place.checked_add(at.checked_mul(*stride)?)?;
        }
        let first = place.checked_mul(size)?;
        values.push(tensor.number_type.decode(bytes.get(first..)?)?);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < tensor.shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tensor(offset: usize, shape: &[usize], strides: &[usize]) -> StoredTensor {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        StoredTensor { number_type: NumberType::Float, storage: "0".into(), offset, shape, strides }
    }

    fn fill(one: StoredTensor, n_bytes: usize) -> Result<Vec<f32>, String> {
        let bytes: Vec<u8> = (0..6u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let tensors = filled(vec![("a".into(), one)], n_bytes, |_| Some(&bytes))?;
        Ok(tensors["a"].as_f32().unwrap().to_vec())
    }

    #[test]
    fn transposed_and_shifted_tensors_are_read_in_row_major_order() {
        assert_eq!(fill(tensor(0, &[3, 2], &[1, 3]), 24).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(fill(tensor(4, &[2], &[1]), 24).unwrap(), [4.0, 5.0]);
        assert_eq!(fill(tensor(4, &[], &[]), 24).unwrap(), [4.0]);
        assert_eq!(fill(tensor(0, &[0, 5], &[1, 1]), 24).unwrap(), [0.0; 0]);
    }

    #[test]
    fn a_small_file_cannot_ask_for_much_memory() {
        let error = fill(tensor(0, &[i32::MAX as usize], &[0]), 24).unwrap_err();
        assert_eq!(error, "a is larger than the file");
        assert!(fill(tensor(0, &[usize::MAX, 2], &[0, 0]), 24).is_err());
        assert!(fill(tensor(0, &[7], &[0]), 24).is_err(), "the storage has six values");
        let many = (0..10).map(|at| (at.to_string(), tensor(0, &[6], &[1]))).collect();
        let bytes = [0; 24];
        assert!(filled(many, 24, |_| Some(&bytes)).unwrap_err().contains("larger than the file"));
    }

    #[test]
    fn values_outside_of_the_storage_are_rejected() {
        for wrong in [tensor(5, &[2], &[1]), tensor(0, &[2], &[usize::MAX]), tensor(usize::MAX, &[1], &[1])] {
            assert_eq!(fill(wrong, 24).unwrap_err(), "a is larger than its storage");
        }
    }

    #[test]
    fn files_that_are_not_weights_are_rejected() {
        assert_eq!(parse(b"").unwrap_err(), "it is empty");
        assert!(parse(b"PK\x03\x04").is_err());
        assert!(parse(b"hello, world").unwrap_err().contains("neither safetensors nor"));
        assert_eq!(parse(b"\x80\x02").unwrap_err(), "it is truncated");
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_result(bytes in prop::collection::vec(any::<u8>(), 0..300), first in 0u8..3) {
            let start: &[u8] = [&b"PK\x03\x04"[..], &b"\x80\x02"[..], &b""[..]][usize::from(first)];
            let _ = parse(&[start, &bytes].concat());
        }
    }
}
