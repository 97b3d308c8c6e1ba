//! Listening on a Unix socket, which only its owner and group may use.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::layouts::node;
use crate::program;

struct Agent(Child);

impl Agent {
    fn start(socket: &Path) -> Self {
        Self(command(socket).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Ends it as systemd does.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(socket: &Path) -> Command {
    let folder = node("slurm-v2");
    let mut command = Command::new(program());
    command
        .arg(format!("--web.listen-address=unix:{}", socket.display()))
        .arg(format!("--path.procfs={}", folder.join("proc").display()))
        .arg(format!("--path.cgroupfs={}", folder.join("cgroup").display()));
    command
}

fn get(socket: &Path, path: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn page(socket: &Path) -> String {
    testbed::eventually("a page", || {
        get(socket, "/metrics").filter(|page| page.contains("tracewise_job_info{jobid=\"42\""))
    })
}

fn temporary() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("http.sock");
    (folder, socket)
}

#[test]
fn a_unix_socket_serves_the_same_page_and_is_removed_at_the_end() {
    let (_folder, socket) = temporary();
    let agent = Agent::start(&socket);
    assert!(page(&socket).starts_with("HTTP/1.0 200 OK"));
    let found = fs::metadata(&socket).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o777, 0o660);
    agent.stop();
    assert!(!socket.exists());
}

#[test]
fn a_socket_that_a_killed_agent_left_is_replaced() {
    let (_folder, socket) = temporary();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let agent = Agent::start(&socket);
    page(&socket);
    agent.stop();
}

#[test]
fn what_is_in_use_or_not_a_socket_stays_as_it_is() {
    let (folder, socket) = temporary();
    let said = |expected: &str| {
        let output = command(&socket).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{said}");
    };
    fs::write(&socket, "precious").unwrap();
    said("is not a socket");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();

    let target = folder.path().join("target");
    drop(UnixListener::bind(&target).unwrap());
    std::os::unix::fs::symlink(&target, &socket).unwrap();
    said("is not a socket");
    assert!(target.exists());
    fs::remove_file(&socket).unwrap();

    let _other = UnixListener::bind(&socket).unwrap();
    said("another process does");
    assert!(socket.exists());
    let relative = Command::new(program()).arg("--web.listen-address=unix:http.sock").output().unwrap();
    assert!(String::from_utf8(relative.stderr).unwrap().contains("unix:/run/tracewise-agent/http.sock"));
}
