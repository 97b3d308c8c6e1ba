//! Other settings for a running service: which take effect at once, and what to say about it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::settings::ServeSettings;

/// Settings that take effect only when the service starts.
const AT_START: [&str; 8] =
    ["listen", "data", "cluster", "store", "web_config", "workflow_model", "scoring", "limits"];

/// The settings to use from now on, and a line for each difference.
pub fn reloaded(old: &ServeSettings, new: ServeSettings) -> (ServeSettings, Vec<String>) {
    let [before, after] =
        [old, &new].map(|settings| flat(&serde_json::to_value(settings).unwrap_or_default()));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let mut lines = Vec::new();
    for name in names.into_iter().filter(|name| before.get(*name) != after.get(*name)) {
        let waits = AT_START.iter().any(|first| name == first || name.starts_with(&format!("{first}.")));
        let note = if waits { " (takes effect when the service is started again)" } else { "" };
        let shown = |values: &BTreeMap<String, String>| match name.as_str() {
            // It may contain a password.
            "store" => "…".to_owned(),
            _ => values.get(name).cloned().unwrap_or_else(|| "not set".into()),
        };
        lines.push(format!("serve.{name}: {} → {}{note}", shown(&before), shown(&after)));
    }
    let used = ServeSettings {
        listen: old.listen,
        data: old.data.clone(),
        cluster: old.cluster.clone(),
        store: old.store.clone(),
        web_config: old.web_config.clone(),
        workflow_model: old.workflow_model.clone(),
        scoring: old.scoring.clone(),
        limits: old.limits.clone(),
        ..new
    };
    (used, lines)
}

/// The values of a tree by their paths.
fn flat(value: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut rest = vec![(String::new(), value)];
    while let Some((path, value)) = rest.pop() {
        match value {
            Value::Object(fields) => {
                let below =
                    |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                rest.extend(fields.iter().map(|(name, value)| (below(name), value)));
            }
            other => drop(all.insert(path, other.to_string())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_difference_is_named_and_some_wait_for_a_restart() {
        let old = ServeSettings::default();
        let mut new = old.clone();
        new.agents.targets = vec!["n001".into()];
        new.agents.every.0 = Duration::from_secs(10);
        new.scoring.threads = 3;
        new.store = "postgres://user:secret@host/db".into();
        let (used, lines) = reloaded(&old, new);
        assert_eq!(
            lines,
            [
                "serve.agents.every: \"5s\" → \"10s\"",
                "serve.agents.targets: [] → [\"n001\"]",
                "serve.scoring.threads: 0 → 3 (takes effect when the service is started again)",
                "serve.store: … → … (takes effect when the service is started again)",
            ]
        );
        assert_eq!((used.agents.targets.len(), used.scoring.threads, used.store.as_str()), (1, 0, ""));
    }
}
