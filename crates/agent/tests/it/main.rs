//! The agent as a whole: on nodes made of files, beside real servers, on this machine's own kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod day;
mod forged;
mod hostile_receiver;
mod kernel;
mod layouts;
mod limits;
mod page;
mod prometheus;
mod remote_write;
mod slurm;
mod unix_socket;
mod unprivileged;
mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use testbed::fake_node::FakeNode;
use testbed::{Server, http};

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_tracewise-agent"))
}

/// An agent that reads the node in `folder`, once it has done so.
fn agent_on(folder: &Path, arguments: &[&str]) -> Server {
    let server = Server::start(&program(), |port, _| {
        let mut all = vec![
            format!("--web.listen-address=127.0.0.1:{port}"),
            format!("--path.procfs={}", folder.join("proc").display()),
            format!("--path.cgroupfs={}", folder.join("cgroup").display()),
            "--node.name=n1".into(),
        ];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        all
    });
    let is_plain = !arguments.iter().any(|argument| argument.starts_with("--web.config.file"));
    if is_plain {
        testbed::eventually("a first sample", || {
            (http::get(server.port, "/healthz", &[]).status == 200).then_some(())
        });
    }
    server
}

/// A node in which a second passes every second, until it is dropped.
struct LiveNode {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveNode {
    fn start(mut node: FakeNode, tick: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                node.tick();
                std::thread::sleep(tick);
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for LiveNode {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
