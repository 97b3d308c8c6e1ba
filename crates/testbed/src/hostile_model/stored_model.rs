//! A stored model as plain JSON and bytes, and everything that can be changed in it. It is read without
//! the code under test.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "manifest.json";
const WEIGHTS: &str = "weights.safetensors";
/// Fields of the manifest that are the same in all models.
const COMMON: [&str; 3] = ["format", "version", "weights_sha256"];

#[derive(Clone)]
pub struct StoredModel {
    manifest: Value,
    tensors: BTreeMap<String, StoredTensor>,
}

#[derive(Clone)]
struct StoredTensor {
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// One change of a model.
pub enum Variant {
    Manifest { path: Vec<String>, change: ManifestChange },
    Tensor { name: String, change: TensorChange },
}

pub enum ManifestChange {
    Set(Value),
    Remove,
    /// The last element of an array, once more.
    Repeat,
}

pub enum TensorChange {
    Remove,
    /// The same values in another shape.
    Shape(Vec<usize>),
    /// Only the first rows, or none.
    Rows(usize),
    /// The same bytes as another type.
    Type(&'static str),
    /// One value, or all.
    Value {
        at: Option<usize>,
        value: f64,
    },
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest { path, change } => {
                let path = path.join(".");
                match change {
                    ManifestChange::Set(value) => write!(f, "{path} = {value}"),
                    ManifestChange::Remove => write!(f, "{path} removed"),
                    ManifestChange::Repeat => write!(f, "the last of {path} repeated"),
                }
            }
            Self::Tensor { name, change } => match change {
                TensorChange::Remove => write!(f, "tensor {name} removed"),
                TensorChange::Shape(shape) => write!(f, "tensor {name} of shape {shape:?}"),
                TensorChange::Rows(n_rows) => write!(f, "tensor {name} with {n_rows} rows"),
                TensorChange::Type(dtype) => write!(f, "tensor {name} as {dtype}"),
                TensorChange::Value { at: Some(at), value } => write!(f, "tensor {name}[{at}] = {value}"),
                TensorChange::Value { at: None, value } => write!(f, "all of tensor {name} = {value}"),
            },
        }
    }
}

impl StoredModel {
    pub fn read(dir: &Path) -> Self {
        let manifest = serde_json::from_slice(&fs::read(dir.join(MANIFEST)).unwrap()).unwrap();
        let weights = fs::read(dir.join(WEIGHTS)).unwrap();
        let (length, rest) = weights.split_first_chunk().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
        let tensor = |(name, entry): (String, Value)| {
            let sizes = |value: &Value| -> Vec<usize> { serde_json::from_value(value.clone()).unwrap() };
            let [from, to] = sizes(&entry["data_offsets"])[..] else { unreachable!("offsets are two") };
            let dtype = entry["dtype"].as_str().unwrap().to_owned();
            (name, StoredTensor { dtype, shape: sizes(&entry["shape"]), bytes: data[from..to].to_vec() })
        };
        let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__").map(tensor).collect();
        Self { manifest, tensors }
    }

    pub fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (name, tensor) in &self.tensors {
            let from = data.len();
            data.extend_from_slice(&tensor.bytes);
            let offsets = [from, data.len()];
            let entry = json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets });
            header.insert(name.clone(), entry);
        }
        let mut header = serde_json::to_vec(&header).unwrap();
        header.resize(header.len().next_multiple_of(8), b' ');
        let weights = [&(header.len() as u64).to_le_bytes(), &header[..], &data[..]].concat();
        let mut manifest = self.manifest.clone();
        let hash: String = Sha256::digest(&weights).iter().map(|byte| format!("{byte:02x}")).collect();
        manifest["weights_sha256"] = hash.into();
        fs::write(dir.join(WEIGHTS), weights).unwrap();
        fs::write(dir.join(MANIFEST), manifest.to_string()).unwrap();
    }

    /// Every change of every value; unless `is_all`, of equal elements of an array only the first and the
    /// last are changed.
    pub fn variants(&self, is_all: bool) -> Vec<Variant> {
        let mut paths = Vec::new();
        list_paths(&self.manifest, &mut Vec::new(), &mut paths);
        let of_manifest = chosen(paths, is_all, |path| path.join(".")).into_iter();
        let names = chosen(self.tensors.keys().cloned().collect(), is_all, Clone::clone).into_iter();
        of_manifest
            .flat_map(|path| {
                let changes = changes_of(found(&self.manifest, &path));
                changes.into_iter().map(move |change| Variant::Manifest { path: path.clone(), change })
            })
            .chain(names.flat_map(|name| {
                let changes = self.tensors[&name].changes();
                changes.into_iter().map(move |change| Variant::Tensor { name: name.clone(), change })
            }))
            .collect()
    }

    pub fn changed(&self, variant: &Variant) -> Self {
        let mut model = self.clone();
        match variant {
            Variant::Manifest { path, change } => change.apply(&mut model.manifest, path),
            Variant::Tensor { name, change: TensorChange::Remove } => drop(model.tensors.remove(name)),
            Variant::Tensor { name, change } => {
                if let Some(tensor) = model.tensors.get_mut(name) {
                    tensor.apply(change);
                }
            }
        }
        model
    }
}

/// All items, or the first and the last of those whose names differ only in numbers.
fn chosen<T>(items: Vec<T>, is_all: bool, name: impl Fn(&T) -> String) -> Vec<T> {
    let pattern = |item: &T| name(item).split(|c: char| c.is_ascii_digit()).collect::<Vec<_>>().join("#");
    let mut last: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        last.entry(pattern(item)).or_insert((at, at)).1 = at;
    }
    let is_chosen = |at: usize, item: &T| {
        let (first, last) = last[&pattern(item)];
        is_all || at == first || at == last
    };
    items.into_iter().enumerate().filter(|(at, item)| is_chosen(*at, item)).map(|(_, item)| item).collect()
}

fn list_paths(value: &Value, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    if !path.is_empty() {
        paths.push(path.clone());
    }
    let mut visit = |key: String, value: &Value| {
        if path.is_empty() && COMMON.contains(&key.as_str()) {
            return;
        }
        path.push(key);
        list_paths(value, path, paths);
        path.pop();
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| visit(key.clone(), value)),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(at, value)| visit(at.to_string(), value));
        }
        _ => {}
    }
}

fn found<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(value, |value, key| match value {
        Value::Array(values) => &values[key.parse::<usize>().unwrap()],
        _ => &value[key.as_str()],
    })
}

fn changes_of(value: &Value) -> Vec<ManifestChange> {
    let values = match value {
        Value::Number(_) => vec![
            json!(0),
            json!(-1),
            json!(1),
            json!(0.5),
            json!(1u64 << 31),
            json!(1_000_000_000_000u64),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(1e308),
            json!(-1e308),
        ],
        Value::String(_) => vec![json!(""), json!("x"), json!(0)],
        Value::Bool(value) => vec![json!(!value)],
        Value::Array(_) => vec![json!([])],
        Value::Object(_) => vec![json!({})],
        Value::Null => vec![json!(0), json!(1e308)],
    };
    let is_container = matches!(value, Value::Array(values) if !values.is_empty());
    values
        .into_iter()
        .chain([Value::Null])
        .map(ManifestChange::Set)
        .chain([ManifestChange::Remove])
        .chain(is_container.then_some(ManifestChange::Repeat))
        .collect()
}

impl ManifestChange {
    fn apply(&self, manifest: &mut Value, path: &[String]) {
        let (key, parents) = path.split_last().unwrap();
        let parent = parents.iter().fold(manifest, |value, key| match value {
            Value::Array(values) => &mut values[key.parse::<usize>().unwrap()],
            _ => &mut value[key.as_str()],
        });
        match (self, parent) {
            (Self::Remove, Value::Array(values)) => drop(values.remove(key.parse().unwrap())),
            (Self::Remove, Value::Object(fields)) => drop(fields.remove(key)),
            (Self::Set(value), Value::Array(values)) => {
                values[key.parse::<usize>().unwrap()] = value.clone();
            }
            (Self::Set(value), parent) => parent[key.as_str()] = value.clone(),
            (Self::Repeat, Value::Array(values)) => repeat_last(&mut values[key.parse::<usize>().unwrap()]),
            (Self::Repeat, parent) => repeat_last(&mut parent[key.as_str()]),
            (Self::Remove, _) => unreachable!("only containers have paths"),
        }
    }
}

fn repeat_last(value: &mut Value) {
    if let Value::Array(values) = value {
        values.extend(values.last().cloned());
    }
}

impl StoredTensor {
    fn n_values(&self) -> usize {
        self.shape.iter().product()
    }

    fn changes(&self) -> Vec<TensorChange> {
        let n_values = self.n_values();
        let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
        let shapes = [vec![n_values], vec![1, n_values], vec![n_values, 1], vec![1, 1, n_values], reversed];
        let n_rows = self.shape.first().copied().unwrap_or(0);
        let values = [0.0, -1.0, 1.0, 0.5, 2_147_483_648.0, 1e12, 1e30, -1e30, 3e38, 1e-40, f64::NAN];
        let places = [Some(0), Some(n_values / 2), n_values.checked_sub(1), None];
        let of_value = |value: f64| {
            let places = places.into_iter().filter(move |_| n_values > 0);
            places.map(move |at| TensorChange::Value { at, value })
        };
        std::iter::once(TensorChange::Remove)
            .chain(shapes.into_iter().filter(|shape| *shape != self.shape).map(TensorChange::Shape))
            .chain([0, 1, n_rows.saturating_sub(1)].map(TensorChange::Rows))
            .chain(["U8", "F64", "I64", "F16"].map(TensorChange::Type))
            .chain(values.into_iter().flat_map(of_value))
            .collect()
    }

    fn apply(&mut self, change: &TensorChange) {
        let width = self.bytes.len() / self.n_values().max(1);
        match change {
            TensorChange::Remove => {}
            TensorChange::Shape(shape) => self.shape.clone_from(shape),
            TensorChange::Rows(n_rows) => {
                if let Some(first) = self.shape.first_mut() {
                    *first = (*n_rows).min(*first);
                }
                self.bytes.truncate(self.n_values() * width);
            }
            TensorChange::Type(dtype) => {
                let new_width = match *dtype {
                    "U8" => 1,
                    "F16" => 2,
                    _ => 8,
                };
                self.dtype = (*dtype).to_owned();
                self.shape = vec![self.bytes.len() / new_width];
                self.bytes.truncate(self.shape[0] * new_width);
            }
            TensorChange::Value { at, value } => {
                let encoded = match self.dtype.as_str() {
                    "F32" => (*value as f32).to_le_bytes().to_vec(),
                    "F64" => value.to_le_bytes().to_vec(),
                    "I64" => (*value as i64).to_le_bytes().to_vec(),
                    _ => vec![*value as u8; width],
                };
                let is_changed = |place: &usize| at.is_none_or(|at| at == *place);
                for (_, bytes) in self
                    .bytes
                    .chunks_exact_mut(width.max(1))
                    .enumerate()
                    .filter(|(place, _)| is_changed(place))
                {
                    bytes.copy_from_slice(&encoded);
                }
            }
        }
    }
}
