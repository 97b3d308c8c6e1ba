//! Tells systemd about the state of the service (`sd_notify`), if it was started by systemd.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where systemd listens.
#[derive(Debug, Clone)]
pub struct Supervisor(Option<OsString>);

impl Supervisor {
    /// The supervisor that the environment names, if there is one.
    pub fn from_environment() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET"))
    }

    /// The service answers requests.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The service reads its settings again.
    pub fn reloading(&self) {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", time.tv_sec * 1_000_000 + time.tv_nsec / 1_000));
    }

    /// The service ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        let Some(path) = &self.0 else { return };
        let sent = address(path)
            .and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
        if let Err(error) = sent {
            tracing::warn!("cannot notify systemd: {error}");
        }
    }
}

/// A path, or a name in the abstract namespace, which begins with an @.
fn address(path: &OsString) -> std::io::Result<SocketAddr> {
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_told_at_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listening = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor(Some(path.into_os_string()));
        let received = || {
            let mut buffer = [0; 200];
            let n_bytes = listening.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..n_bytes]).into_owned()
        };
        supervisor.ready("listening");
        assert_eq!(received(), "READY=1\nSTATUS=listening");
        supervisor.reloading();
        assert!(received().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        supervisor.stopping();
        assert_eq!(received(), "STOPPING=1");
        Supervisor(None).stopping();
    }
}
