//! Weights that others trained: safetensors, and what `torch.save` writes (`.pth`, `.pt`, both of its layouts).
//! Nothing that a file names is ever run: a pickle is read for tensors, and whatever else is in it is refused or skipped.

mod pickle;

use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};

use crate::artifact::{Tensor, Tensors};

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path} has no weights that can be read: {reason}")]
    Damaged { path: String, reason: String },
    #[error("{path} has the weights of another network: {reason}")]
    Other { path: String, reason: String },
}

/// Reads all tensors of a file, as 32-bit numbers, by their names.
pub fn read(path: &Path) -> Result<Tensors, WeightsError> {
    let shown = || path.display().to_string();
    let bytes = fs::read(path).map_err(|source| WeightsError::Io { path: shown(), source })?;
    let found = match bytes.get(..4) {
        None => Err("it is empty".to_owned()),
        Some(b"PK\x03\x04") => zipped(&bytes),
        Some([0x80, ..]) => pickle::legacy(&bytes),
        Some(_) => safe(&bytes),
    };
    let found = found.map_err(|reason| WeightsError::Damaged { path: shown(), reason })?;
    if found.is_empty() {
        return Err(WeightsError::Damaged { path: shown(), reason: "there is no tensor in it".into() });
    }
    Ok(found)
}

/// The format of `torch.save` since 1.6: a zip with `data.pkl` and a file a storage.
fn zipped(bytes: &[u8]) -> Result<Tensors, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| error.to_string())?;
    let names: Vec<String> = archive.file_names().map(str::to_owned).collect();
    let root = names
        .iter()
        .find_map(|name| name.strip_suffix("data.pkl"))
        .ok_or("there is no data.pkl in it")?
        .to_owned();
    let mut file = |name: String| -> Result<Vec<u8>, String> {
        let mut entry = archive.by_name(&name).map_err(|error| format!("{name}: {error}"))?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|error| format!("{name}: {error}"))?;
        Ok(content)
    };
    let code = file(format!("{root}data.pkl"))?;
    let tensors = pickle::tensors(&mut code.as_slice())?;
    pickle::fill(tensors, |key| file(format!("{root}data/{key}")))
}

fn safe(bytes: &[u8]) -> Result<Tensors, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("it is neither safetensors nor what torch.save writes ({error})"))?;
    let mut found = Tensors::new();
    for (name, view) in file.tensors() {
        let values = match view.dtype() {
            Dtype::F32 => pickle::numbers(view.data(), pickle::Number::Float),
            Dtype::F64 => pickle::numbers(view.data(), pickle::Number::Double),
            Dtype::F16 => pickle::numbers(view.data(), pickle::Number::Half),
            Dtype::BF16 => pickle::numbers(view.data(), pickle::Number::BrainHalf),
            _ => continue,
        };
        found.insert(name, Tensor::new(view.shape().to_vec(), values));
    }
    Ok(found)
}
