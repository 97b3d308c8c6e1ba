//! Which agents to read: addresses from the settings, and from files and servers in Prometheus' service-discovery format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use url::Url;

use crate::peer::bounded;
use crate::settings::{AgentSettings, SettingsError};

/// The port of an agent that is given without one.
const DEFAULT_PORT: u16 = 9742;
/// The largest file or response with targets.
const MAX_BYTES: usize = 16 << 20;

/// One entry of `file_sd` or `http_sd`.
#[derive(Debug, Deserialize)]
struct TargetGroup {
    targets: Vec<String>,
    /// Only the label that Prometheus gives the scheme with is used.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl TargetGroup {
    fn addresses(self) -> impl Iterator<Item = String> {
        let is_https = self.labels.get("__scheme__").is_some_and(|scheme| scheme == "https");
        self.targets.into_iter().map(move |target| match is_https && !target.contains("://") {
            true => format!("https://{target}"),
            false => target,
        })
    }
}

/// Why targets cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct TargetsError {
    place: String,
    reason: String,
}

/// The address of an agent's readings.
pub fn address(target: &str) -> Result<Url, SettingsError> {
    let wrong = || SettingsError::Target { target: target.to_owned() };
    let text = if target.contains("://") { target.to_owned() } else { format!("http://{target}") };
    let mut url = Url::parse(&text).map_err(|_| wrong())?;
    let has_path = !matches!(url.path(), "" | "/");
    let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || has_path || !is_plain {
        return Err(wrong());
    }
    let has_port = url.port().is_some() || target.ends_with(":80") || target.ends_with(":443");
    if !has_port {
        url.set_port(Some(DEFAULT_PORT)).map_err(|()| wrong())?;
    }
    url.set_path("/samples");
    Ok(url)
}

/// What was found last at each place. A list that cannot be read does not end the reading of its agents.
#[derive(Debug, Default)]
pub struct Discovery {
    last: BTreeMap<String, Vec<String>>,
}

impl Discovery {
    /// All agents to read now. A place that cannot be read is an error of its own, and does not affect the others; its agents are
    /// those that it listed last.
    pub async fn discover(
        &mut self,
        settings: &AgentSettings,
        client: &reqwest::Client,
    ) -> (BTreeSet<Url>, Vec<TargetsError>) {
        let mut found = Vec::new();
        for path in &settings.file_sd {
            found.push((path.display().to_string(), read_file(path)));
        }
        for place in &settings.http_sd {
            found.push((place.clone(), read_server(place, client).await));
        }
        let (mut targets, mut errors) = (settings.targets.clone(), Vec::new());
        let mut last = BTreeMap::new();
        for (place, found) in found {
            let listed = found.unwrap_or_else(|reason| {
                let kept = self.last.get(&place).cloned().unwrap_or_default();
                let reason = match kept.len() {
                    0 => reason,
                    count => format!("{reason}; the {count} agents that it listed last are still read"),
                };
                errors.push(TargetsError { place: place.clone(), reason });
                kept
            });
            targets.extend(listed.iter().cloned());
            last.insert(place, listed);
        }
        self.last = last;
        let mut addresses = BTreeSet::new();
        for target in targets {
            match address(&target).and_then(|url| settings.may_ask(&url).map(|()| url)) {
                Ok(url) => drop(addresses.insert(url)),
                Err(error) => errors.push(TargetsError { place: target, reason: error.to_string() }),
            }
        }
        (addresses, errors)
    }
}

/// The targets that a file lists.
pub fn read_file(path: &Path) -> Result<Vec<String>, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > MAX_BYTES as u64 {
        return Err(format!("it is larger than {MAX_BYTES} bytes"));
    }
    parse(&std::fs::read(path).map_err(|error| error.to_string())?)
}

async fn read_server(place: &str, client: &reqwest::Client) -> Result<Vec<String>, String> {
    let cause = |error: reqwest::Error| net::root_cause(&error).to_string();
    let response =
        client.get(place).send().await.and_then(reqwest::Response::error_for_status).map_err(cause)?;
    parse(&bounded(response, MAX_BYTES).await.map_err(|error| error.to_string())?)
}

fn parse(json: &[u8]) -> Result<Vec<String>, String> {
    let groups: Vec<TargetGroup> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    Ok(groups.into_iter().flat_map(TargetGroup::addresses).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_or_refused() {
        let of = |target: &str| address(target).map(|url| url.to_string());
        assert_eq!(of("n001").unwrap(), "http://n001:9742/samples");
        assert_eq!(of("n001:99").unwrap(), "http://n001:99/samples");
        assert_eq!(of("https://n001").unwrap(), "https://n001:9742/samples");
        assert_eq!(of("[::1]:9742").unwrap(), "http://[::1]:9742/samples");
        for wrong in ["", "file:///etc/passwd", "n001/metrics", "http://u:p@n001", "n001:9742?x", "a b"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn groups_of_targets_are_read() {
        let json = br#"[{"targets": ["n1:9742", "n2"], "labels": {"rack": "1"}}, {"targets": []}]"#;
        assert_eq!(parse(json).unwrap(), ["n1:9742", "n2"]);
        let json = br#"[{"targets": ["n1:9742", "http://n2"], "labels": {"__scheme__": "https"}}]"#;
        assert_eq!(parse(json).unwrap(), ["https://n1:9742", "http://n2"]);
        assert!(parse(b"{}").is_err() && parse(b"").is_err());
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_keeps_its_agents() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one.json"), folder.path().join("other.json"));
        std::fs::write(&one, r#"[{"targets": ["n1", "n2"]}]"#).unwrap();
        std::fs::write(&other, r#"[{"targets": ["n3"]}]"#).unwrap();
        let mut settings =
            AgentSettings { file_sd: vec![one.clone(), other.clone()], ..AgentSettings::default() };
        let client = crate::peer::client(std::time::Duration::from_secs(1)).unwrap();
        let mut discovery = Discovery::default();
        assert_eq!(discovery.discover(&settings, &client).await.0.len(), 3);
        for damage in [&b"[{\"targets\": [\"n1\""[..], b"", b"{}"] {
            std::fs::write(&one, damage).unwrap();
            let (agents, errors) = discovery.discover(&settings, &client).await;
            assert_eq!((agents.len(), errors.len()), (3, 1), "{errors:?}");
            assert!(errors[0].to_string().contains("the 2 agents that it listed last"), "{errors:?}");
        }
        std::fs::remove_file(&one).unwrap();
        assert_eq!(discovery.discover(&settings, &client).await.0.len(), 3);
        // An empty list is a list, and a place that is not in the settings any more has none.
        std::fs::write(&one, "[]").unwrap();
        assert_eq!(discovery.discover(&settings, &client).await.0.len(), 1);
        settings.file_sd.pop();
        let (agents, errors) = discovery.discover(&settings, &client).await;
        assert!(agents.is_empty() && errors.is_empty());
    }
}
