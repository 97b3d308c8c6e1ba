//! An HTTP client for one server.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use files::{LimitExceeded, Limits};
use net::Credentials;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use workload::Stop;

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// Why there is no answer.
pub enum NoAnswer {
    /// The call was stopped, or could not be made at all.
    Ended(Error),
    Timeout,
    TooLarge(LimitExceeded),
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

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct PeerSettings {
    /// How long to wait for one answer.
    pub timeout: Duration,
    /// Used instead of a user and password in the address.
    pub credentials: Option<Credentials>,
    /// Whether credentials may be sent to other machines without TLS.
    pub allow_http: bool,
}

impl PeerSettings {
    /// No credentials.
    /// Without credentials.
    pub fn with_timeout(timeout: Duration) -> Self {
        Self { timeout, credentials: None, allow_http: false }
    }
}

/// A server that is queried over HTTP.
#[derive(Clone)]
pub struct Peer {
    client: Client,
    authorization: Option<HeaderValue>,
    pub base: Url,
    /// The address without a password.
    pub shown: String,
    limits: Limits,
    runtime: Runtime,
    stop: Stop,
}

impl Peer {
    /// `example` shows how its address is written.
    pub fn new(
        url: &str,
        example: &str,
        settings: &PeerSettings,
        limits: &Limits,
        stop: &Stop,
    ) -> Result<Self> {
        let refused = |reason: String| {
            let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
            Error::Server { url: host.to_owned(), reason }
        };
        let mut base =
            Url::parse(url).map_err(|error| refused(format!("{error}; write it like {example}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(refused("only http:// and https:// are supported".into()));
        }
        let PeerSettings { timeout, credentials, allow_http } = settings;
        let is_authenticated =
            credentials.is_some() || !base.username().is_empty() || base.password().is_some();
        if is_authenticated && !allow_http && !net::is_confidential(&base) {
            return Err(refused("credentials are sent only over https:// or to this machine".into()));
        }
        let mut authorization = None;
        if let Some(credentials) = credentials {
            let value = HeaderValue::from_str(&credentials.authorization());
            let mut value = value.map_err(|error| refused(error.to_string()))?;
            value.set_sensitive(true);
            authorization = Some(value);
            // They would be sent as well.
            base = net::without_password(&base);
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let shown = net::without_password(&base);
        net::install_tls_provider();
        let client = Client::builder()
            .timeout(*timeout)
            .user_agent(concat!("tracewise/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let runtime = Runtime::new(None).map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            client,
            authorization,
            base,
            shown: shown.as_str().trim_end_matches('/').to_owned(),
            limits: *limits,
            runtime,
            stop: stop.clone(),
        })
    }

    pub fn failed(&self, reason: impl Into<String>) -> Error {
        Error::Server { url: self.shown.clone(), reason: reason.into() }
    }

    /// Sends one request.
    pub fn get(&self, url: Url) -> Result<(StatusCode, Bytes), NoAnswer> {
        #[cfg(feature = "fuzzing")]
        if let Some(answer) = canned::next() {
            return answer;
        }
        let mut request = self.client.get(url);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let limits = self.limits;
        let answer = async move {
            let mut response = request.send().await?;
            let mut body = BytesMut::new();
            while let Some(chunk) = response.chunk().await? {
                let n_bytes = (body.len() + chunk.len()) as u64;
                limits.check_response(n_bytes).map_err(NoAnswer::TooLarge)?;
                body.extend_from_slice(&chunk);
            }
            Ok((response.status(), body.freeze()))
        };
        self.runtime.wait(&self.stop, answer).map_err(NoAnswer::Ended)?
    }

    /// Waits before a retry.
    pub fn pause(&self, length: Duration) {
        self.stop.wait(length);
    }

    pub fn no_answer(&self, cause: NoAnswer) -> Error {
        match cause {
            NoAnswer::Ended(error) => error,
            NoAnswer::Timeout => Error::Timeout { url: self.shown.clone() },
            NoAnswer::TooLarge(exceeded) => self.failed(exceeded.to_string()),
            NoAnswer::Failed { reason } => self.failed(reason),
        }
    }
}

/// Answers that are given instead of asking a server.
#[cfg(feature = "fuzzing")]
pub mod canned {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::{Bytes, NoAnswer, StatusCode};

    thread_local! {
        static ANSWERS: RefCell<Option<VecDeque<Bytes>>> = const { RefCell::new(None) };
    }

    /// From now on, requests of this thread get these answers, and then none.
    pub fn set(answers: &[&[u8]]) {
        ANSWERS.set(Some(answers.iter().map(|answer| Bytes::copy_from_slice(answer)).collect()));
    }

    pub(super) fn next() -> Option<Result<(StatusCode, Bytes), NoAnswer>> {
        let answer = |answers: &mut VecDeque<Bytes>| answers.pop_front().ok_or(NoAnswer::Timeout);
        ANSWERS
            .with_borrow_mut(|answers| answers.as_mut().map(answer).map(|next| Ok((StatusCode::OK, next?))))
    }
}
