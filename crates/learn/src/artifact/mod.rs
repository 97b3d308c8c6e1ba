//! A trained model on disk: a directory with a manifest and the weights.
//!
//! `manifest.json` contains the kind of model, where it comes from, how to build it again, and the hash
//! of the weights. `weights.safetensors` contains the numbers, in a format that Python also reads. The
//! directory is replaced atomically: a reader sees the old model or the new one, never a mixture.

pub mod restore;
mod tensor;

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use workload::Timestamp;

pub use self::tensor::{Tensor, Tensors, Values, from_safetensors, part_of, to_safetensors, within};

/// The version of the format. Version 1 had no provenance and only `f32` tensors.
pub const VERSION: u32 = 2;
const FORMAT: &str = "tracewise artifact";
const MANIFEST: &str = "manifest.json";
const WEIGHTS: &str = "weights.safetensors";
/// How often reading starts again because the model was replaced meanwhile.
const MAX_ATTEMPTS: usize = 100;
/// The largest manifest and the largest weights that are read, in bytes. VGG-16 has 550 MB of weights.
const MAX_MANIFEST: u64 = 64 << 20;
pub(crate) const MAX_WEIGHTS: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a model: {reason}")]
    Foreign { path: PathBuf, reason: String },
    #[error("{path} has format version {found}; this version of Tracewise reads up to {VERSION}")]
    Newer { path: PathBuf, found: u64 },
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("the settings of a model cannot be written as JSON: {0}")]
    Body(serde_json::Error),
    #[error("{path} exists and is not a model")]
    InTheWay { path: PathBuf },
    #[error("{path} is a model of kind {found}, not {expected}")]
    OtherKind { path: PathBuf, found: String, expected: String },
}

impl ArtifactError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::Io { path: path.to_owned(), source }
    }

    pub fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl From<files::Error> for ArtifactError {
    fn from(error: files::Error) -> Self {
        let (path, source) = error.into_parts();
        Self::Io { path, source }
    }
}

/// Where a model comes from. Everything is optional, because artifacts of version 1 recorded nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// When it was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The training data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataOrigin>,
    /// The model it was retrained from or replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl Provenance {
    /// A model trained at a time.
    pub fn at(created: Timestamp) -> Self {
        Self { created: Some(created), ..Self::default() }
    }
}

/// The data a model was trained on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DataOrigin {
    /// The path or address it was read from.
    pub address: String,
    /// Its first and last time, if it has times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Everything about a stored model except its weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    pub version: u32,
    /// The domain and the kind of model: `detect/ae`.
    pub kind: String,
    /// The version of Tracewise that wrote it.
    #[serde(alias = "made_by")]
    pub product_version: String,
    #[serde(flatten)]
    pub provenance: Provenance,
    pub weights_sha256: String,
    /// The settings of this kind of model.
    pub body: Value,
}

impl Manifest {
    /// Parses the content of a manifest; `path` is for errors.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ArtifactError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| ArtifactError::damaged(path, error))?;
        if value["format"] != FORMAT {
            let reason = "its manifest has another format".into();
            return Err(ArtifactError::Foreign { path: path.to_owned(), reason });
        }
        // Checked before anything that a newer version may have changed.
        match value["version"].as_u64() {
            Some(version) if version <= u64::from(VERSION) => {}
            Some(found) => return Err(ArtifactError::Newer { path: path.to_owned(), found }),
            None => return Err(ArtifactError::damaged(path, "it has no version")),
        }
        serde_json::from_value(value).map_err(|error| ArtifactError::damaged(path, error))
    }

    /// Whether the model is of a domain, such as `detect`.
    pub fn is_of(&self, domain: &str) -> bool {
        self.kind.strip_prefix(domain).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A model in memory, ready to be written or just read.
#[derive(Debug, Clone, PartialEq)]
pub struct Artifact {
    /// The domain and the kind of model: `detect/ae`.
    pub kind: String,
    /// The settings of this kind of model.
    pub body: Value,
    pub tensors: Tensors,
    pub provenance: Provenance,
}

impl Artifact {
    /// Writes the directory. An existing model is replaced atomically; anything else is left alone.
    pub fn write(&self, dir: &Path) -> Result<(), ArtifactError> {
        if dir.exists() && !dir.join(MANIFEST).is_file() {
            return Err(ArtifactError::InTheWay { path: dir.to_owned() });
        }
        let weights = to_safetensors(&self.tensors).map_err(|reason| ArtifactError::damaged(dir, reason))?;
        let manifest = Manifest {
            format: FORMAT.into(),
            version: VERSION,
            kind: self.kind.clone(),
            product_version: env!("CARGO_PKG_VERSION").into(),
            provenance: self.provenance.clone(),
            weights_sha256: sha256(&weights),
            body: self.body.clone(),
        };
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|error| ArtifactError::damaged(dir, error))?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        files::create_dirs(parent)?;
        let new = tempfile::Builder::new()
            .prefix(".tracewise-")
            .permissions(Permissions::from_mode(files::DIR_MODE))
            .tempdir_in(parent)
            .map_err(ArtifactError::io(parent))?;
        files::write(&new.path().join(WEIGHTS), &weights)?;
        files::write(&new.path().join(MANIFEST), &text)?;
        Ok(files::replace_dir(new.path(), dir)?)
    }

    /// Reads the manifest alone, however large the weights are.
    pub fn manifest(dir: &Path) -> Result<Manifest, ArtifactError> {
        consistently(dir, || read_manifest(dir))
    }

    /// Reads a model of a domain, such as `detect`, and checks its weights against their hash.
    pub fn read(dir: &Path, domain: &str) -> Result<Self, ArtifactError> {
        consistently(dir, || {
            let manifest = read_manifest(dir)?;
            if !manifest.is_of(domain) {
                let (found, expected) = (manifest.kind, domain.to_owned());
                return Err(ArtifactError::OtherKind { path: dir.to_owned(), found, expected });
            }
            let path = dir.join(WEIGHTS);
            let bytes = read_bounded(&path, MAX_WEIGHTS).map_err(ArtifactError::io(&path))?;
            if sha256(&bytes) != manifest.weights_sha256 {
                return Err(ArtifactError::damaged(&path, "its hash is not the one in the manifest"));
            }
            let tensors = from_safetensors(&bytes).map_err(|reason| ArtifactError::damaged(&path, reason))?;
            let Manifest { kind, body, provenance, .. } = manifest;
            Ok(Self { kind, body, tensors, provenance })
        })
    }
}

fn read_manifest(dir: &Path) -> Result<Manifest, ArtifactError> {
    let path = dir.join(MANIFEST);
    let text = read_bounded(&path, MAX_MANIFEST).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let reason = format!("it contains no {MANIFEST}");
            ArtifactError::Foreign { path: dir.to_owned(), reason }
        }
        _ => ArtifactError::Io { path: path.clone(), source },
    })?;
    Manifest::parse(&path, &text)
}

/// Reads a whole file of at most `max_bytes`.
pub(crate) fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let too_large = || {
        let reason = format!("it has more than {max_bytes} bytes, the most that a model may have");
        io::Error::new(io::ErrorKind::FileTooLarge, reason)
    };
    if file.metadata()?.len() > max_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // The size of a pipe or a growing file is not known in advance.
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(too_large()) } else { Ok(bytes) }
}

/// Reads files of a directory that may be replaced meanwhile: an error counts only if the directory is
/// still the same. The open handle keeps its inode number from being used again.
fn consistently<T>(
    dir: &Path,
    mut read: impl FnMut() -> Result<T, ArtifactError>,
) -> Result<T, ArtifactError> {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    for _ in 1..MAX_ATTEMPTS {
        let Ok(handle) = File::open(dir) else { break };
        let before = handle.metadata().map(inode).map_err(ArtifactError::io(dir))?;
        let result = read();
        if result.is_ok() || fs::metadata(dir).map(inode).is_ok_and(|after| after == before) {
            return result;
        }
    }
    read()
}

fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes as hexadecimal digits, such as those of a hash.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;

    fn artifact(number: f64) -> Artifact {
        let tensors = [
            ("encoder.weight".to_owned(), Tensor::new(vec![2, 2], vec![1.0f32, -2.5, 0.0, 3.25])),
            ("number".to_owned(), Tensor::row(vec![number; 5_000])),
        ];
        Artifact {
            kind: "detect/ae".into(),
            body: json!({ "number": number }),
            tensors: tensors.into(),
            provenance: Provenance::at(Timestamp(number as i64)),
        }
    }

    #[test]
    fn a_model_is_read_as_it_was_written_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("models/a");
        let provenance = Provenance {
            created: Some(Timestamp(1_750_000_000_500)),
            data: Some(DataOrigin {
                address: "traces".into(),
                from: Some(Timestamp(1_500)),
                ..DataOrigin::default()
            }),
            parent: Some("b".into()),
        };
        let first = Artifact { provenance, ..artifact(1.0) };
        first.write(&path).unwrap();
        assert_eq!(Artifact::read(&path, "detect").unwrap(), first);
        artifact(2.0).write(&path).unwrap();
        assert_eq!(Artifact::read(&path, "detect").unwrap(), artifact(2.0));
        let names = fs::read_dir(dir.path().join("models")).unwrap().count();
        assert_eq!(names, 1, "nothing else is left in the directory");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!((mode & 0o500, mode & 0o007), (0o500, 0), "{mode:o}");
    }

    #[test]
    fn the_manifest_is_read_without_the_weights() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        artifact(3.5).write(&path).unwrap();
        fs::remove_file(path.join(WEIGHTS)).unwrap();
        let manifest = Artifact::manifest(&path).unwrap();
        assert_eq!((manifest.kind.as_str(), manifest.version), ("detect/ae", VERSION));
        assert_eq!(manifest.provenance, Provenance::at(Timestamp(3)));
        assert_eq!(manifest.body, json!({ "number": 3.5 }));
        assert_eq!(manifest.product_version, env!("CARGO_PKG_VERSION"));
        assert!(matches!(Artifact::read(&path, "detect"), Err(ArtifactError::Io { .. })));
    }

    #[test]
    fn a_reader_sees_one_whole_model_while_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        artifact(0.0).write(&path).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=60 {
                    artifact(f64::from(number)).write(&path).unwrap();
                }
                is_done.store(true, Ordering::Release);
            });
            let mut n_seen = 0;
            let mut latest = -1.0;
            while !is_done.load(Ordering::Acquire) {
                let found = Artifact::read(&path, "detect").unwrap();
                let number = found.body["number"].as_f64().unwrap();
                assert_eq!(found, artifact(number));
                assert!(Artifact::manifest(&path).is_ok());
                n_seen += usize::from(number > latest);
                latest = number;
            }
            assert!(n_seen > 2, "the reader has to see several models, not {n_seen}");
        });
        assert_eq!(Artifact::read(&path, "detect").unwrap(), artifact(60.0));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        artifact(1.0).write(&path).unwrap();
        // Sparse: it has no blocks on disk, but reading it would fill memory.
        for (file, size) in [(WEIGHTS, MAX_WEIGHTS + 1), (MANIFEST, 1 << 42)] {
            File::options().write(true).open(path.join(file)).unwrap().set_len(size).unwrap();
            let error = Artifact::read(&path, "detect").unwrap_err().to_string();
            assert!(error.contains("the most that a model may have"), "{error}");
        }
        assert_eq!(read_bounded(Path::new("/dev/zero"), 10).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_foreign_newer_or_damaged_directory_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        let error = || Artifact::read(&path, "detect").unwrap_err().to_string();
        assert!(error().contains("is not a model"), "{}", error());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let written = artifact(1.0).write(&path);
        assert!(matches!(written, Err(ArtifactError::InTheWay { .. })));
        fs::remove_dir_all(&path).unwrap();
        artifact(1.0).write(&path).unwrap();
        let other = Artifact::read(&path, "jobs").unwrap_err().to_string();
        assert!(other.contains("is a model of kind detect/ae, not jobs"), "{other}");
        assert!(Artifact::read(&path, "det").is_err());
        let manifest = path.join(MANIFEST);
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, text.replace("\"version\": 2", "\"version\": 9")).unwrap();
        assert!(error().contains("has format version 9"), "{}", error());
        fs::write(&manifest, "{}").unwrap();
        assert!(error().contains("another format"), "{}", error());
        fs::write(&manifest, &text).unwrap();
        let weights = path.join(WEIGHTS);
        let mut bytes = fs::read(&weights).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&weights, bytes).unwrap();
        assert!(error().contains("hash"), "{}", error());
    }
}
