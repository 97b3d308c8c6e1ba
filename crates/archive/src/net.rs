//! What all network calls of this crate share.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tokio::runtime::{Builder, Runtime};

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

/// Chooses the cryptography for TLS, unless the program has chosen already.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What went wrong on the wire, and whether asking again may help.
pub fn in_words(error: &reqwest::Error) -> (String, bool) {
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
