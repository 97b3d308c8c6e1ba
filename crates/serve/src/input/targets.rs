//! Which agents to read: addresses from the settings, and from files and servers in Prometheus' service-discovery format.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use url::Url;

use crate::settings::{AgentSettings, SettingsError};

/// The port of an agent that is given without one.
const DEFAULT_PORT: u16 = 9742;
/// The largest file or response with targets.
const MAX_BYTES: usize = 16 << 20;

/// One entry of `file_sd` or `http_sd`. Labels of the targets are not used.
#[derive(Debug, Deserialize)]
struct TargetGroup {
    targets: Vec<String>,
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

/// All agents to read now. A place that cannot be read is an error of its own, and does not affect the others.
pub async fn discover(
    settings: &AgentSettings,
    client: &reqwest::Client,
) -> (BTreeSet<Url>, Vec<TargetsError>) {
    let (mut targets, mut errors) = (settings.targets.clone(), Vec::new());
    for path in &settings.file_sd {
        match read_file(path) {
            Ok(found) => targets.extend(found),
            Err(reason) => errors.push(TargetsError { place: path.display().to_string(), reason }),
        }
    }
    for place in &settings.http_sd {
        match read_server(place, client).await {
            Ok(found) => targets.extend(found),
            Err(reason) => errors.push(TargetsError { place: place.clone(), reason }),
        }
    }
    let mut addresses = BTreeSet::new();
    for target in targets {
        match address(&target) {
            Ok(url) => drop(addresses.insert(url)),
            Err(error) => errors.push(TargetsError { place: target, reason: error.to_string() }),
        }
    }
    (addresses, errors)
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
    if response.content_length().is_some_and(|length| length > MAX_BYTES as u64) {
        return Err(format!("it responds with more than {MAX_BYTES} bytes"));
    }
    parse(&response.bytes().await.map_err(cause)?)
}

fn parse(json: &[u8]) -> Result<Vec<String>, String> {
    let groups: Vec<TargetGroup> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    Ok(groups.into_iter().flat_map(|group| group.targets).collect())
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
        assert!(parse(b"{}").is_err() && parse(b"").is_err());
    }
}
