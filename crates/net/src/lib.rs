//! What every network client and server of Tracewise shares: the TLS provider, credentials, and addresses
//! and errors that can be shown to people.

mod credentials;

pub use credentials::{Credentials, CredentialsError, Secret, is_confidential, is_loopback};

use std::error::Error;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use url::Url;

/// The cryptography of every TLS connection.
pub fn tls_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Makes [`tls_provider`] the default of the process, which HTTP clients need. A default that is
/// already installed stays.
pub fn install_tls_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The innermost cause of an error. HTTP clients wrap it in layers that say little.
pub fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

/// An address without its user and password.
#[must_use]
pub fn without_password(url: &Url) -> Url {
    let mut shown = url.clone();
    // Neither can fail where there is a user or a password to remove.
    let _ = shown.set_password(None);
    let _ = shown.set_username("");
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("layer {depth}")]
    struct Layer {
        depth: u32,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn the_root_cause_is_the_innermost_error() {
        let inner = Layer { depth: 2, source: None };
        let outer =
            Layer { depth: 0, source: Some(Box::new(Layer { depth: 1, source: Some(Box::new(inner)) })) };
        assert_eq!(root_cause(&outer).to_string(), "layer 2");
        assert_eq!(root_cause(&Layer { depth: 7, source: None }).to_string(), "layer 7");
    }

    #[test]
    fn a_shown_address_has_no_password() {
        for text in ["http://user:secret@host:9090/x", "http://secret@host:9090/x", "http://host:9090/x"] {
            assert_eq!(without_password(&Url::parse(text).unwrap()).as_str(), "http://host:9090/x");
        }
    }

    #[test]
    fn installing_the_provider_twice_is_not_an_error() {
        install_tls_provider();
        install_tls_provider();
        assert!(CryptoProvider::get_default().is_some());
    }
}
