//! An HTTP client for one server.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, StatusCode, Url};
use workload::Stop;

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// Why there is no answer.
pub enum NoAnswer {
    /// The call was stopped, or could not be made at all.
    Ended(Error),
    Timeout,
    /// A retry may help.
    Failed {
        reason: String,
    },
}

impl From<reqwest::Error> for NoAnswer {
    fn from(error: reqwest::Error) -> Self {
        let reason = if error.is_timeout() {
            return Self::Timeout;
        } else if error.is_connect() {
            "cannot connect; is it running, and is the address right?".into()
        } else if error.is_body() || error.is_decode() {
            "its response was cut off".into()
        } else {
            format!("the request failed: {}", net::root_cause(&error))
        };
        Self::Failed { reason }
    }
}

/// A server that is queried over HTTP.
pub struct Peer {
    client: Client,
    pub base: Url,
    /// The address without a password.
    pub shown: String,
    runtime: Runtime,
    stop: Stop,
}

impl Peer {
    /// `example` shows how its address is written.
    pub fn new(url: &str, example: &str, timeout: Duration, stop: &Stop) -> Result<Self> {
        let refused = |reason: String| {
            let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
            Error::Server { url: host.to_owned(), reason }
        };
        let mut base =
            Url::parse(url).map_err(|error| refused(format!("{error}; write it like {example}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(refused("only http:// and https:// are supported".into()));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let shown = net::without_password(&base);
        net::install_tls_provider();
        let client = Client::builder()
            .timeout(timeout)
            .user_agent(concat!("tracewise/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let runtime = Runtime::new(None).map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            client,
            base,
            shown: shown.as_str().trim_end_matches('/').to_owned(),
            runtime,
            stop: stop.clone(),
        })
    }

    pub fn failed(&self, reason: impl Into<String>) -> Error {
        Error::Server { url: self.shown.clone(), reason: reason.into() }
    }

    /// Sends one request.
    pub fn get(&self, url: Url) -> Result<(StatusCode, Bytes), NoAnswer> {
        let request = self.client.get(url);
        let answer = async {
            let response = request.send().await?;
            let status = response.status();
            response.bytes().await.map(|body| (status, body))
        };
        let answered = self.runtime.wait(&self.stop, answer).map_err(NoAnswer::Ended)?;
        answered.map_err(NoAnswer::from)
    }

    /// Waits before a retry.
    pub fn pause(&self, length: Duration) {
        self.stop.wait(length);
    }

    pub fn no_answer(&self, cause: NoAnswer) -> Error {
        match cause {
            NoAnswer::Ended(error) => error,
            NoAnswer::Timeout => Error::Timeout { url: self.shown.clone() },
            NoAnswer::Failed { reason } => self.failed(reason),
        }
    }
}
