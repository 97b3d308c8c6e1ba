//! What was learnt, on disk: a folder with a manifest and the weights.
//!
//! `manifest.json` says what it is, its version, how to build it again, and the hash of the weights;
//! `weights.safetensors` has the numbers, in the format that Python reads too. The folder appears under
//! its name when all of it is written.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub const VERSION: u32 = 1;
const FORMAT: &str = "tracewise artifact";
const MANIFEST: &str = "manifest.json";
const WEIGHTS: &str = "weights.safetensors";

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path} is no artifact: {reason}")]
    Foreign { path: String, reason: String },
    #[error("{path} has version {found}, and this Tracewise knows up to {VERSION}; use a newer one")]
    Newer { path: String, found: u32 },
    #[error("{path} is damaged: {reason}; train again, or take it from a copy")]
    Damaged { path: String, reason: String },
    #[error("{path} exists and is no artifact; choose another folder")]
    InTheWay { path: String },
    #[error("{path} is a model of {found}, and this needs one of {expected}")]
    OtherKind { path: String, found: String, expected: String },
}

impl ArtifactError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.display().to_string();
        |source| Self::Io { path, source }
    }

    pub fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.display().to_string(), reason: reason.to_string() }
    }
}

/// Numbers in rows, columns and so on.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// By name.
pub type Tensors = BTreeMap<String, Tensor>;

impl Tensor {
    /// Numbers in a row.
    pub fn row(values: Vec<f32>) -> Self {
        Self { shape: vec![values.len()], values }
    }
}

/// Tensors of a part, with its name before theirs.
pub fn within(part: &str, tensors: Tensors) -> impl Iterator<Item = (String, Tensor)> {
    tensors.into_iter().map(move |(name, tensor)| (format!("{part}.{name}"), tensor))
}

/// The tensors of a part, under their own names.
pub fn part_of(tensors: &Tensors, part: &str) -> Tensors {
    let own = |(name, tensor): (&String, &Tensor)| {
        let name = name.strip_prefix(part)?.strip_prefix('.')?;
        Some((name.to_owned(), tensor.clone()))
    };
    tensors.iter().filter_map(own).collect()
}

#[derive(Debug, Clone, PartialEq)]
pub struct Artifact {
    /// What it is a model of, and of which kind: `threads/ae`.
    pub kind: String,
    /// All that is no weight.
    pub body: Value,
    pub tensors: Tensors,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    kind: String,
    /// The version of Tracewise that wrote it.
    made_by: String,
    weights_sha256: String,
    body: Value,
}

impl Artifact {
    /// Writes the folder; one that is there is replaced, if it is an artifact.
    pub fn write(&self, folder: &Path) -> Result<(), ArtifactError> {
        if folder.exists() && !folder.join(MANIFEST).is_file() {
            return Err(ArtifactError::InTheWay { path: folder.display().to_string() });
        }
        let weights = self.weights().map_err(|reason| ArtifactError::damaged(folder, reason))?;
        let manifest = Manifest {
            format: FORMAT.into(),
            version: VERSION,
            kind: self.kind.clone(),
            made_by: env!("CARGO_PKG_VERSION").into(),
            weights_sha256: hash(&weights),
            body: self.body.clone(),
        };
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|error| ArtifactError::damaged(folder, error))?;
        let (new, old) = (beside(folder, "new"), beside(folder, "old"));
        remove(&new)?;
        fs::create_dir_all(&new).map_err(ArtifactError::io(&new))?;
        write_durably(&new.join(WEIGHTS), &weights)?;
        write_durably(&new.join(MANIFEST), &text)?;
        if folder.exists() {
            remove(&old)?;
            fs::rename(folder, &old).map_err(ArtifactError::io(folder))?;
        }
        fs::rename(&new, folder).map_err(ArtifactError::io(folder))?;
        let parent =
            folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(ArtifactError::io(parent))?;
        remove(&old)
    }

    fn weights(&self) -> Result<Vec<u8>, String> {
        let bytes: Vec<(&str, &Tensor, Vec<u8>)> = self
            .tensors
            .iter()
            .map(|(name, one)| {
                (name.as_str(), one, one.values.iter().flat_map(|v| v.to_le_bytes()).collect())
            })
            .collect();
        let views: Result<Vec<_>, _> = bytes
            .iter()
            .map(|(name, one, bytes)| Ok((*name, TensorView::new(Dtype::F32, one.shape.clone(), bytes)?)))
            .collect();
        let views = views.map_err(|error: safetensors::SafeTensorError| error.to_string())?;
        safetensors::serialize(views, None).map_err(|error| error.to_string())
    }

    /// Reads a folder; `kind` is how its kind has to begin.
    pub fn read(folder: &Path, kind: &str) -> Result<Self, ArtifactError> {
        let shown = || folder.display().to_string();
        let manifest = folder.join(MANIFEST);
        if !manifest.is_file() {
            let reason = format!("there is no {MANIFEST} in it");
            return Err(ArtifactError::Foreign { path: shown(), reason });
        }
        let text = fs::read(&manifest).map_err(ArtifactError::io(&manifest))?;
        let value: Value =
            serde_json::from_slice(&text).map_err(|error| ArtifactError::damaged(&manifest, error))?;
        // The version is looked at before anything that a newer one may have changed.
        if value["format"] != FORMAT {
            return Err(ArtifactError::Foreign {
                path: shown(),
                reason: "its manifest is of another format".into(),
            });
        }
        match value["version"].as_u64() {
            Some(version) if version <= u64::from(VERSION) => {}
            Some(found) => return Err(ArtifactError::Newer { path: shown(), found: found as u32 }),
            None => return Err(ArtifactError::damaged(&manifest, "it has no version")),
        }
        let manifest: Manifest =
            serde_json::from_value(value).map_err(|error| ArtifactError::damaged(&manifest, error))?;
        if !manifest.kind.starts_with(kind) {
            let (found, expected) = (manifest.kind, kind.trim_end_matches('/').to_owned());
            return Err(ArtifactError::OtherKind { path: shown(), found, expected });
        }
        let weights = folder.join(WEIGHTS);
        let bytes = fs::read(&weights).map_err(ArtifactError::io(&weights))?;
        if hash(&bytes) != manifest.weights_sha256 {
            return Err(ArtifactError::damaged(&weights, "its hash is not the one in the manifest"));
        }
        let tensors = read_tensors(&bytes).map_err(|reason| ArtifactError::damaged(&weights, reason))?;
        Ok(Self { kind: manifest.kind, body: manifest.body, tensors })
    }
}

fn read_tensors(bytes: &[u8]) -> Result<Tensors, String> {
    let stored = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut tensors = Tensors::new();
    for (name, view) in stored.tensors() {
        if view.dtype() != Dtype::F32 {
            return Err(format!("{name} is {:?}, not F32", view.dtype()));
        }
        let (words, _) = view.data().as_chunks::<4>();
        let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        if values.iter().any(|value| !value.is_finite()) {
            return Err(format!("{name} has a value that is no number"));
        }
        tensors.insert(name, Tensor { shape: view.shape().to_vec(), values });
    }
    Ok(tensors)
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn beside(folder: &Path, what: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.with_file_name(format!(".{name}.{what}"))
}

fn remove(folder: &Path) -> Result<(), ArtifactError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ArtifactError::io(folder)(error)),
        _ => Ok(()),
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), ArtifactError> {
    let write = || {
        let mut file = fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(ArtifactError::io(path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact() -> Artifact {
        let tensor = Tensor { shape: vec![2, 2], values: vec![1.0, -2.5, 0.0, 3.25] };
        Artifact {
            kind: "threads/ae".into(),
            body: json!({ "window": 100 }),
            tensors: [("encoder.weight".to_owned(), tensor)].into(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        artifact().write(&path).unwrap();
        assert_eq!(Artifact::read(&path, "threads/").unwrap(), artifact());
        let other = Artifact { body: json!({ "window": 50 }), ..artifact() };
        other.write(&path).unwrap();
        assert_eq!(Artifact::read(&path, "threads/").unwrap(), other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_foreign_newer_damaged_or_of_another_kind_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let refusal = || Artifact::read(&path, "threads/").unwrap_err().to_string();
        assert!(refusal().contains("is no artifact"), "{}", refusal());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        assert!(matches!(artifact().write(&path), Err(ArtifactError::InTheWay { .. })));
        fs::remove_dir_all(&path).unwrap();
        artifact().write(&path).unwrap();
        assert!(Artifact::read(&path, "jobs/").unwrap_err().to_string().contains("is a model of threads/ae"));
        let manifest = path.join(MANIFEST);
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, text.replace("\"version\": 1", "\"version\": 9")).unwrap();
        assert!(refusal().contains("has version 9"), "{}", refusal());
        fs::write(&manifest, &text).unwrap();
        let weights = path.join(WEIGHTS);
        let mut bytes = fs::read(&weights).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&weights, bytes).unwrap();
        assert!(refusal().contains("hash"), "{}", refusal());
    }
}
