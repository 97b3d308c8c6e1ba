//! `--web.config.file`, in the format that Prometheus and its exporters share: TLS, client
//! certificates, hashed passwords, headers. It is read again when it or a certificate changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;
use tokio_rustls::TlsAcceptor;

use super::auth::{Admission, Hash, Users};
use super::guesses::Guesses;
use super::peer::Peer;

#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct WebConfigError {
    path: PathBuf,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    tls_server_config: Option<TlsFile>,
    http_server_config: HttpFile,
    basic_auth_users: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsFile {
    cert_file: PathBuf,
    key_file: PathBuf,
    #[serde(default)]
    client_auth_type: ClientAuth,
    client_ca_file: Option<PathBuf>,
    #[serde(default)]
    min_version: Version,
    max_version: Option<Version>,
}

/// Go's names for what a client has to show.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum ClientAuth {
    #[default]
    NoClientCert,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Version {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpFile {
    /// Accepted because files are shared with other exporters; the agent uses HTTP/1.1.
    #[serde(rename = "http2")]
    _http2: bool,
    headers: BTreeMap<String, String>,
}

/// The settings in force.
#[derive(Clone)]
struct InForce {
    tls: Option<TlsAcceptor>,
    users: Arc<Users>,
    headers: HeaderMap,
    /// The files they came from, and when each was changed.
    files: Vec<(PathBuf, Option<SystemTime>)>,
}

/// Who may connect, and how.
pub struct WebConfig {
    path: Option<PathBuf>,
    in_force: Mutex<Arc<InForce>>,
    /// Wrong passwords, which a changed file does not make undone.
    guesses: Guesses,
}

impl std::fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebConfig").field("path", &self.path).finish_non_exhaustive()
    }
}

impl WebConfig {
    /// Without a file: plain HTTP without authentication.
    pub fn read(path: Option<&Path>) -> Result<Self, WebConfigError> {
        let in_force = match path {
            Some(path) => InForce::read(path)?,
            None => InForce {
                tls: None,
                users: Arc::new(Users::new(BTreeMap::new())),
                headers: HeaderMap::new(),
                files: Vec::new(),
            },
        };
        Ok(Self {
            path: path.map(Path::to_owned),
            in_force: Mutex::new(Arc::new(in_force)),
            guesses: Guesses::new(Instant::now()),
        })
    }

    /// The settings, read again if a file has changed. Settings that cannot be read, or are less strict than
    /// the current ones, are not accepted; they are read again at their next change.
    fn in_force(&self) -> Arc<InForce> {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<_> = in_force.files.iter().map(|(path, _)| (path.clone(), modified(path))).collect();
        if let Some(path) = self.path.as_ref().filter(|_| now != in_force.files) {
            let new = InForce::read(path).and_then(|new| {
                if in_force.is_stricter_than(&new) {
                    let reason = "it has no TLS or no users any more; restart the agent if that is intended";
                    return Err(WebConfigError { path: path.clone(), reason: reason.into() });
                }
                Ok(new)
            });
            *in_force = match new {
                Ok(new) => Arc::new(new),
                Err(error) => {
                    tracing::warn!("{error}; the previous settings stay in force");
                    Arc::new(InForce { files: now, ..in_force.as_ref().clone() })
                }
            };
        }
        in_force.clone()
    }

    pub fn tls(&self) -> Option<TlsAcceptor> {
        self.in_force().tls.clone()
    }

    pub async fn admit(&self, headers: &HeaderMap, peer: Peer) -> Admission {
        let users = self.in_force().users.clone();
        users.admit(headers, peer, &self.guesses).await
    }

    /// Notes a failed login: how many to log now, if any.
    pub fn failures_to_log(&self, now: Instant) -> Option<u64> {
        self.guesses.to_log(now)
    }

    pub fn add_headers(&self, headers: &mut HeaderMap) {
        headers.extend(self.in_force().headers.clone());
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

impl InForce {
    fn is_stricter_than(&self, other: &Self) -> bool {
        (self.tls.is_some() && other.tls.is_none()) || (!self.users.is_empty() && other.users.is_empty())
    }

    fn read(path: &Path) -> Result<Self, WebConfigError> {
        // Before the content, so that a change in between is seen as one.
        let mut files = vec![(path.to_owned(), modified(path))];
        let refused = |reason: String| WebConfigError { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let file: File = if text.trim().is_empty() {
            File::default()
        } else {
            serde_saphyr::from_str(&text).map_err(|error| {
                let line = error.to_string();
                refused(line.lines().next().unwrap_or_default().to_owned())
            })?
        };
        let mut users = BTreeMap::new();
        for (user, hash) in file.basic_auth_users {
            let Some(hash) = Hash::parse(&hash) else {
                let advice = "write what `htpasswd -nBC 10 \"\" | tr -d ':\\n'` prints";
                return Err(refused(format!("the password of {user:?} is not a bcrypt hash; {advice}")));
            };
            users.insert(user, hash);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &file.http_server_config.headers {
            let header = (HeaderName::try_from(name), HeaderValue::try_from(value));
            let (Ok(name), Ok(value)) = header else {
                return Err(refused(format!("{name:?} is not a header")));
            };
            headers.insert(name, value);
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let tls = match &file.tls_server_config {
            Some(tls) => {
                let named = [&tls.cert_file, &tls.key_file].into_iter().chain(&tls.client_ca_file);
                let named = named.map(|file| folder.join(file));
                files.extend(named.map(|file| (file.clone(), modified(&file))));
                Some(TlsAcceptor::from(Arc::new(tls.server(folder).map_err(refused)?)))
            }
            None => None,
        };
        Ok(Self { tls, users: Arc::new(Users::new(users)), headers, files })
    }
}

impl TlsFile {
    /// Paths are relative to the directory of the configuration.
    fn server(&self, folder: &Path) -> Result<ServerConfig, String> {
        let certificates = |file: &Path| -> Result<Vec<CertificateDer<'static>>, String> {
            let path = folder.join(file);
            let wrong = |error: String| format!("{}: {error}", path.display());
            let all = CertificateDer::pem_file_iter(&path).map_err(|error| wrong(error.to_string()))?;
            let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
            if all.is_empty() { Err(wrong("it has no certificate".into())) } else { Ok(all) }
        };
        let key_path = folder.join(&self.key_file);
        let key = PrivateKeyDer::from_pem_file(&key_path)
            .map_err(|error| format!("{}: {error}", key_path.display()))?;
        let provider = net::tls_provider();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| error.to_string())?;
        let builder = match (self.client_auth_type, &self.client_ca_file) {
            (ClientAuth::NoClientCert, None) => builder.with_no_client_auth(),
            (ClientAuth::NoClientCert, Some(_)) => {
                return Err("client_ca_file needs a client_auth_type that verifies".into());
            }
            (_, None) => return Err("client_auth_type needs a client_ca_file".into()),
            (kind, Some(file)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match kind {
                    ClientAuth::VerifyClientCertIfGiven => verifier.allow_unauthenticated(),
                    ClientAuth::NoClientCert | ClientAuth::RequireAndVerifyClientCert => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
            }
        };
        builder
            .with_single_cert(certificates(&self.cert_file)?, key)
            .map_err(|error| format!("{} and {}: {error}", self.cert_file.display(), key_path.display()))
    }

    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
        let most = self.max_version.unwrap_or(Version::Tls13);
        let all = [(Version::Tls12, &rustls::version::TLS12), (Version::Tls13, &rustls::version::TLS13)];
        let wanted: Vec<_> = all
            .into_iter()
            .filter(|(version, _)| (self.min_version..=most).contains(version))
            .map(|(_, version)| version)
            .collect();
        if wanted.is_empty() { Err("min_version is above max_version".into()) } else { Ok(wanted) }
    }
}
