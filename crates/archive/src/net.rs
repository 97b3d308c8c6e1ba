//! What all network calls of this crate share.

use std::future::Future;
use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, StatusCode, Url};
use tokio::runtime::{Builder, Runtime};

use workload::{Stop, Stopped};

use crate::error::{Error, Result};

static RUNTIME: LazyLock<Mutex<Option<Arc<Runtime>>>> = LazyLock::new(Mutex::default);

/// The runtime on which network calls wait: one for the process, started when first needed.
pub fn runtime() -> io::Result<Arc<Runtime>> {
    let mut slot = RUNTIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(runtime) = slot.as_ref() {
        return Ok(runtime.clone());
    }
    let runtime =
        Builder::new_multi_thread().worker_threads(2).thread_name("archive-io").enable_all().build()?;
    Ok(slot.insert(Arc::new(runtime)).clone())
}

/// How often a call that waits looks whether it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a call, or until it is time to stop.
pub async fn until<T>(stop: &Stop, call: impl Future<Output = T>) -> Result<T, Stopped> {
    stop.check()?;
    let stopped = async {
        while !stop.is_set() {
            tokio::time::sleep(STOP_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        outcome = call => Ok(outcome),
        () = stopped => Err(Stopped),
    }
}

/// Chooses the cryptography for TLS, unless the program has chosen already.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What went wrong on the wire, and whether asking again may help.
fn in_words(error: &reqwest::Error) -> (String, bool) {
    if error.is_timeout() {
        return ("it does not answer in time; raise --timeout or ask for less".into(), false);
    }
    if error.is_connect() {
        return ("cannot connect; is it running, and is the address right?".into(), true);
    }
    if error.is_body() || error.is_decode() {
        return ("its answer was cut off".into(), true);
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    (format!("asking failed: {cause}"), true)
}

/// A server that is asked over HTTP.
pub struct Peer {
    client: Client,
    pub base: Url,
    /// The address without a password.
    pub shown: String,
    runtime: Arc<Runtime>,
    stop: Stop,
}

/// Why there is no answer.
pub enum NoAnswer {
    Stopped,
    /// What went wrong on the wire, and whether asking again may help.
    Failed {
        reason: String,
        is_passing: bool,
    },
}

impl Peer {
    /// `example` is how its address is written.
    pub fn new(url: &str, example: &str, timeout: Duration, stop: &Stop) -> Result<Self> {
        let refused = |reason: String| {
            let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
            Error::Server { url: host.to_owned(), reason }
        };
        let mut base =
            Url::parse(url).map_err(|error| refused(format!("{error}; write it like {example}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(refused("only http:// and https:// can be asked".into()));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut shown = base.clone();
        let _ = shown.set_password(None);
        let _ = shown.set_username("");
        install_tls();
        let client = Client::builder()
            .timeout(timeout)
            .user_agent(concat!("tracewise/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let runtime = runtime().map_err(|error| refused(error.to_string()))?;
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

    /// Asks once.
    pub fn get(&self, url: Url) -> Result<(StatusCode, Bytes), NoAnswer> {
        let answer = async {
            let response = self.client.get(url).send().await?;
            let status = response.status();
            response.bytes().await.map(|body| (status, body))
        };
        let answered = self.runtime.block_on(until(&self.stop, answer)).map_err(|_| NoAnswer::Stopped)?;
        answered.map_err(|error| {
            let (reason, is_passing) = in_words(&error);
            NoAnswer::Failed { reason, is_passing }
        })
    }

    /// Waits before asking again.
    pub fn pause(&self, length: Duration) {
        self.stop.wait(length);
    }

    pub fn no_answer(&self, cause: NoAnswer) -> Error {
        match cause {
            NoAnswer::Stopped => Error::Stopped(Stopped),
            NoAnswer::Failed { reason, .. } => self.failed(reason),
        }
    }
}
