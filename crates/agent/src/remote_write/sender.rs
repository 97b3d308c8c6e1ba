//! Sends batches to a server, in the newest version of the protocol that it knows.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::Protocol;
use super::batch::{Batch, Version};

const TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a response is read.
const RESPONSE_BYTES: usize = 4096;
/// The characters of a server's response that are logged.
const LOGGED_CHARACTERS: usize = 200;
/// The response of a server that supports version 2 has this header.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";

/// Where batches are sent.
#[derive(Debug, Clone)]
pub struct Target {
    pub url: Url,
    /// Read for every request, so that it can be replaced.
    pub bearer_token_file: Option<PathBuf>,
}

/// Why a request was not taken.
#[derive(Debug)]
pub enum Failure {
    /// It may be taken later.
    Passing(String),
    /// It never will.
    Final(String),
}

impl Failure {
    /// Whether the same request may be taken later.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Passing(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passing(reason) => write!(f, "{reason}; will retry"),
            Self::Final(reason) => f.write_str(reason),
        }
    }
}

/// Sends batches.
#[derive(Debug)]
pub struct Sender {
    target: Target,
    client: Client,
    version: Version,
    /// The server has accepted this version.
    is_agreed: bool,
}

impl Sender {
    /// A sender that finds out which version the server knows.
    pub fn new(target: Target) -> reqwest::Result<Self> {
        Self::with_protocol(target, Protocol::Auto)
    }

    pub fn with_protocol(target: Target, protocol: Protocol) -> reqwest::Result<Self> {
        net::install_tls_provider();
        let client = Client::builder()
            .timeout(TIMEOUT)
            // A push that is sent elsewhere would arrive as a question, without its content.
            .redirect(Policy::none())
            // A response is only shown, and a few bytes can inflate to gigabytes.
            .no_gzip()
            .user_agent(concat!("tracewise/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let version = if protocol == Protocol::One { Version::One } else { Version::Two };
        Ok(Self { target, client, version, is_agreed: protocol != Protocol::Auto })
    }

    /// The address without a password.
    pub fn address(&self) -> String {
        net::without_password(&self.target.url).to_string()
    }

    /// Sends a batch. A server that knows only version 1 refuses version 2, or takes it for an empty request.
    pub async fn send(&mut self, batch: &Batch) -> Result<(), Failure> {
        let sent = self.send_once(batch).await;
        if self.is_agreed || matches!(sent, Err(Failure::Passing(_))) {
            return sent;
        }
        if sent.is_err() && self.version == Version::Two {
            self.version = Version::One;
            let sent = self.send_once(batch).await;
            self.is_agreed = sent.is_ok();
            if self.is_agreed {
                tracing::info!("{} accepts remote write 1.0", self.address());
            } else {
                self.version = Version::Two;
            }
            return sent;
        }
        self.is_agreed = sent.is_ok();
        sent
    }

    async fn send_once(&self, batch: &Batch) -> Result<(), Failure> {
        let body = snap::raw::Encoder::new()
            .compress_vec(&batch.encode(self.version))
            .map_err(|error| Failure::Final(error.to_string()))?;
        let mut request = self
            .client
            .post(self.target.url.clone())
            .header(CONTENT_TYPE, self.version.content_type())
            .header(CONTENT_ENCODING, "snappy")
            .header("X-Prometheus-Remote-Write-Version", self.version.number())
            .body(body);
        if let Some(path) = &self.target.bearer_token_file {
            let token = std::fs::read_to_string(path)
                .map_err(|error| Failure::Passing(format!("{}: {error}", path.display())))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let response =
            request.send().await.map_err(|error| Failure::Passing(net::root_cause(&error).to_string()))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return self.check(&headers);
        }
        if status.is_redirection() {
            let target = headers.get(LOCATION).and_then(|target| target.to_str().ok()).unwrap_or("nowhere");
            let target = printable(target);
            return Err(Failure::Passing(format!("it redirects with {status} to {target}; push there")));
        }
        let body = beginning(response).await;
        let line = body.trim().lines().next().unwrap_or_default();
        let reason = format!("it responds with {status}: {}", printable(line));
        let is_passing = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            );
        Err(if is_passing { Failure::Passing(reason) } else { Failure::Final(reason) })
    }

    /// A server that supports version 2 reports how much was written.
    fn check(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.version == Version::Two && !headers.contains_key(WRITTEN) {
            return Err(Failure::Final("it does not support remote write 2.0".into()));
        }
        Ok(())
    }
}

/// The first bytes of a response, as text.
async fn beginning(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < RESPONSE_BYTES
        && let Ok(Some(part)) = response.chunk().await
    {
        bytes.extend_from_slice(&part[..part.len().min(RESPONSE_BYTES - bytes.len())]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server's text for the log, short and without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LOGGED_CHARACTERS).collect()
}
