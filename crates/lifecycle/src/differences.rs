//! What differs between two versions of the model.

use std::collections::{BTreeMap, BTreeSet};

use learn::artifact::{Artifact, hexadecimal};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::registry::{Registry, RegistryError};

/// Lists of so many values are compared one by one.
const MAX_ITEMS: usize = 8;

/// A value in which two versions differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub name: String,
    pub before: String,
    pub after: String,
}

impl Registry {
    /// The settings, thresholds and metrics in which two versions differ.
    pub async fn differences(&self, before: &str, after: &str) -> Result<Vec<Difference>, RegistryError> {
        let [before, after] = [self.values(before).await?, self.values(after).await?];
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let value = |values: &BTreeMap<String, String>, name: &String| {
            values.get(name).cloned().unwrap_or_else(|| "–".into())
        };
        let pairs = names.into_iter().map(|name| Difference {
            name: name.clone(),
            before: value(&before, name),
            after: value(&after, name),
        });
        Ok(pairs.filter(|one| one.before != one.after).collect())
    }

    /// Everything about a version that fits into a table.
    async fn values(&self, version: &str) -> Result<BTreeMap<String, String>, RegistryError> {
        let model = self.version(version).await?;
        let manifest = Artifact::manifest(&self.path(version))?;
        let mut values = BTreeMap::new();
        flatten("", &manifest.body, &mut values);
        // The thresholds in force say enough.
        values.retain(|name, _| !name.starts_with("calibration.at_budgets"));
        values.insert("detector".into(), model.detector);
        values.insert("product_version".into(), model.product_version);
        let data = model.data.unwrap_or_default();
        values.extend(data.sha256.map(|hash| ("data.sha256".to_owned(), hash)));
        values.extend(
            model.metrics.into_iter().map(|(name, value)| (format!("metrics.{name}"), value.to_string())),
        );
        Ok(values)
    }
}

/// The values of a JSON document by their paths. Long lists are named by their hash.
fn flatten(path: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    let inner = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| flatten(&inner(name), value, values)),
        Value::Array(items) if items.len() <= MAX_ITEMS => {
            items.iter().enumerate().for_each(|(at, value)| flatten(&inner(&at.to_string()), value, values));
        }
        Value::Array(items) => {
            let hash = hexadecimal(&Sha256::digest(value.to_string()));
            values.insert(path.to_owned(), format!("{} values ({})", items.len(), &hash[..8]));
        }
        Value::String(text) => drop(values.insert(path.to_owned(), text.clone())),
        other => drop(values.insert(path.to_owned(), other.to_string())),
    }
}
