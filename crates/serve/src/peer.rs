//! Servers that the service talks to: their addresses and the secrets for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::redirect::Policy;
use url::Url;
use workload::Timestamp;

use crate::settings::SettingsError;

/// The address of a server. A token for it is sent only encrypted, or on this machine.
pub fn address(text: &str, token_file: Option<&PathBuf>) -> Result<Url, SettingsError> {
    let wrong = |reason| SettingsError::Server { url: text.to_owned(), reason };
    let url = Url::parse(text).map_err(|_| wrong("write it like http://host:9090"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !url.username().is_empty() {
        return Err(wrong("write it like http://host:9090, without a user"));
    }
    if token_file.is_some() && !net::is_confidential(&url) {
        return Err(wrong("a token is sent only with https"));
    }
    Ok(url)
}

/// A client for requests that take at most `timeout`. It follows no redirects: nobody configured where they lead.
pub fn client(timeout: Duration) -> reqwest::Result<reqwest::Client> {
    builder(timeout).build()
}

/// What makes such clients.
pub fn builder(timeout: Duration) -> reqwest::ClientBuilder {
    net::install_tls_provider();
    reqwest::Client::builder().timeout(timeout).redirect(Policy::none())
}

/// The same address with a path below its own.
pub fn below(mut url: Url, path: &str) -> Url {
    let path = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// A time as servers write it.
pub fn rfc3339(time: Timestamp) -> String {
    let time = std::time::UNIX_EPOCH + Duration::from_millis(time.0.max(0).cast_unsigned());
    humantime::format_rfc3339_millis(time).to_string()
}

/// Why a response was not read.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    #[error("{0}")]
    Connection(String),
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
}

/// The content of a response, if it is not too large.
pub async fn bounded(mut response: reqwest::Response, max_bytes: usize) -> Result<Vec<u8>, ResponseError> {
    let cause = |error: reqwest::Error| ResponseError::Connection(net::root_cause(&error).to_string());
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(cause)? {
        if body.len() + part.len() > max_bytes {
            return Err(ResponseError::TooLarge(max_bytes));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

/// A file with a secret cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct SecretError {
    path: String,
    reason: String,
}

/// A secret in a file. It is read every time it is needed, so that it can be replaced.
pub fn read_secret(path: &Path) -> Result<String, SecretError> {
    let failed = |reason: String| SecretError { path: path.display().to_string(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    match text.trim() {
        "" => Err(failed("it is empty".into())),
        secret => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sent_only_encrypted_or_on_this_machine() {
        let token = PathBuf::from("token");
        for (text, token_file, is_valid) in [
            ("http://prometheus:9090", None, true),
            ("http://prometheus:9090", Some(&token), false),
            ("https://prometheus:9090", Some(&token), true),
            ("http://127.0.0.1:9090", Some(&token), true),
            ("http://user:password@prometheus:9090", None, false),
            ("file:///etc/passwd", None, false),
            ("prometheus", None, false),
        ] {
            assert_eq!(address(text, token_file).is_ok(), is_valid, "{text}");
        }
        let url = address("http://host/prefix/", None).unwrap();
        assert_eq!(below(url, "/api/v1/query").as_str(), "http://host/prefix/api/v1/query");
    }
}
