//! Where clients connect: TCP ports and Unix sockets.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::Mode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::peer::Peer;

/// What a Unix socket is not to be: open to other users, or executable.
const SOCKET_UMASK: u32 = 0o117;

/// An address as it is given on the command line.
#[derive(Debug, Clone)]
pub enum ListenAddress {
    /// `host:port` or `:port`: addresses to try in order.
    Tcp(Vec<String>),
    /// `unix:/path`.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = Path::new(path);
            return if path.is_absolute() {
                Ok(Self::Unix(path.components().collect()))
            } else {
                Err("write it like unix:/run/tracewise-agent/http.sock".into())
            };
        }
        match text.rsplit_once(':') {
            // Where IPv6 is switched off, the other is tried.
            Some(("", port)) if port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")]))
            }
            Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Self::Tcp(vec![text.to_owned()])),
            _ => Err("write it like :9742, 10.0.0.1:9742 or unix:/run/tracewise-agent/http.sock".into()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}: {source}")]
    Refused { address: String, source: io::Error },
    #[error("cannot listen on {path}: it exists and is not a socket")]
    NotASocket { path: PathBuf },
    #[error("cannot listen on {path}: another process does")]
    InUse { path: PathBuf },
}

#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A connection of either kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    pub async fn bind(address: &ListenAddress) -> Result<Self, ListenError> {
        match address {
            ListenAddress::Tcp(addresses) => bind_first(addresses).await,
            ListenAddress::Unix(path) => bind_socket(path).await,
        }
    }

    /// The address for people; `scheme` is `http` or `https`.
    pub fn address(&self, scheme: &str) -> String {
        match self {
            Self::Tcp(listener) => {
                let address = listener.local_addr().as_ref().map(SocketAddr::to_string).unwrap_or_default();
                format!("{scheme}://{address}")
            }
            Self::Unix(_, file) => format!("unix:{}", file.path.display()),
        }
    }

    pub async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Box::new(stream), Peer::at(address)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|found| found.uid());
                Ok((Box::new(stream), Peer::User(user)))
            }
        }
    }
}

/// Listens on the first address that works.
async fn bind_first(addresses: &[String]) -> Result<Listener, ListenError> {
    let mut failed = ListenError::Refused {
        address: addresses.join(", "),
        source: io::Error::new(io::ErrorKind::InvalidInput, "no address"),
    };
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(Listener::Tcp(listener)),
            Err(source) => failed = ListenError::Refused { address: address.clone(), source },
        }
    }
    Err(failed)
}

async fn bind_socket(path: &Path) -> Result<Listener, ListenError> {
    let refused = |source| ListenError::Refused { address: path.display().to_string(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => match UnixStream::connect(path).await {
            // It was left by a process that was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(refused)?;
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(refused(error)),
            _ => return Err(ListenError::InUse { path: path.to_owned() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(refused(error)),
    }
    // By the umask, so that there is no moment at which it is open to others.
    let umask = rustix::process::umask(Mode::from_raw_mode(SOCKET_UMASK));
    let bound = UnixListener::bind(path);
    rustix::process::umask(umask);
    let listener = bound.map_err(refused)?;
    let inode = fs::symlink_metadata(path).map_err(refused)?.ino();
    Ok(Listener::Unix(listener, SocketFile { path: path.to_owned(), inode }))
}

/// The file of a Unix socket, removed when this is dropped unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
