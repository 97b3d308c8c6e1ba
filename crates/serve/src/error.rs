//! Why the service cannot start or go on.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::settings::SettingsError;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("[serve] {0}")]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Directory(#[from] files::Error),
    #[error(transparent)]
    Store(#[from] lifecycle::StoreError),
    #[error(transparent)]
    Registry(#[from] lifecycle::RegistryError),
    #[error(transparent)]
    Detector(#[from] detect::DetectError),
    #[error(transparent)]
    Workflows(#[from] workflows::Error),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(
        "{0} can be reached from other machines, and there are no tokens: create one with `tracewise token add`, or listen \
         on 127.0.0.1"
    )]
    NoTokens(SocketAddr),
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Simulate(#[from] campaign::simulate::SimulateError),
    #[error("cannot make HTTP requests: {0}")]
    Client(String),
}
