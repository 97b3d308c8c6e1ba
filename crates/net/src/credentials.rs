//! What a client proves its identity with. Secrets come from files or the environment, and are never printed.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use url::{Host, Url};

/// A secret is a line, not a document.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
/// The permission of everyone else to read.
const READABLE_BY_OTHERS: u32 = 0o004;

#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{origin}: a secret is one line of printable ASCII characters")]
    NotASecret { origin: String },
    #[error("a user name has no colon and no control characters")]
    User,
}

/// A password or a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// `origin` names where the text comes from, for error messages.
    pub fn new(text: &str, origin: &str) -> Result<Self, CredentialsError> {
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() || !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(CredentialsError::NotASecret { origin: origin.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }

    /// Reads a file with one line, and warns if everyone on the machine can read it too.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let read = || -> std::io::Result<(String, bool)> {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            let is_exposed = metadata.is_file() && metadata.permissions().mode() & READABLE_BY_OTHERS != 0;
            let mut text = String::new();
            file.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
            Ok((text, is_exposed))
        };
        let (text, is_exposed) =
            read().map_err(|source| CredentialsError::Io { path: path.to_owned(), source })?;
        if is_exposed {
            tracing::warn!("{}: everyone on this machine can read this secret", path.display());
        }
        Self::new(&text, &path.display().to_string())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A user with a password, or a bearer token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Basic { user: String, password: Secret },
    Bearer(Secret),
}

impl Credentials {
    pub fn basic(user: &str, password: Secret) -> Result<Self, CredentialsError> {
        if user.chars().any(|c| c == ':' || c.is_control()) {
            return Err(CredentialsError::User);
        }
        Ok(Self(Kind::Basic { user: user.to_owned(), password }))
    }

    pub fn bearer(token: Secret) -> Self {
        Self(Kind::Bearer(token))
    }

    /// The value of the header `Authorization`.
    pub fn authorization(&self) -> String {
        match &self.0 {
            Kind::Basic { user, password } => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{}", password.0)))
            }
            Kind::Bearer(token) => format!("Bearer {}", token.0),
        }
    }
}

/// Whether an address is that of this machine, whatever its network is.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Whether others on the network cannot read what is sent there: over TLS, or to this machine.
pub fn is_confidential(url: &Url) -> bool {
    url.scheme() == "https" || is_loopback(url)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn secrets_make_headers_and_are_not_printed() {
        let password = Secret::new("open sesame\n", "test").unwrap();
        let basic = Credentials::basic("me", password).unwrap();
        assert_eq!(basic.authorization(), "Basic bWU6b3BlbiBzZXNhbWU=");
        let bearer = Credentials::bearer(Secret::new("t0ken", "test").unwrap());
        assert_eq!(bearer.authorization(), "Bearer t0ken");
        for shown in [format!("{basic:?}"), format!("{bearer:?}")] {
            assert!(!shown.contains("sesame") && !shown.contains("t0ken"), "{shown}");
        }
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        for bad in ["", "\n", "two\nlines", "tab\t", "caf\u{e9}"] {
            let error = Secret::new(bad, "TRACEWISE_PASSWORD").unwrap_err().to_string();
            assert!(error.starts_with("TRACEWISE_PASSWORD: "), "{error}");
        }
        let secret = Secret::new("x", "test").unwrap();
        assert!(
            Credentials::basic("a:b", secret.clone()).is_err() && Credentials::basic("a\r", secret).is_err()
        );
    }

    #[test]
    fn a_secret_is_the_line_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "t0ken\r\n").unwrap();
        assert_eq!(Secret::read(&path).unwrap(), Secret::new("t0ken", "test").unwrap());
        let error = Secret::read(&dir.path().join("nowhere")).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
        assert!(Secret::read(Path::new("/dev/zero")).is_err());
    }

    #[test]
    fn only_tls_and_this_machine_are_confidential() {
        let is_confidential = |url: &str| is_confidential(&Url::parse(url).unwrap());
        for url in ["https://s3.example.org", "http://127.0.0.1:9000", "http://[::1]/", "http://localhost:1/"]
        {
            assert!(is_confidential(url), "{url}");
        }
        for url in [
            "http://s3.example.org",
            "http://10.0.0.1/",
            "http://localhost.evil.org/",
            "http://127.0.0.1.nip.io/",
        ] {
            assert!(!is_confidential(url), "{url}");
        }
    }
}
