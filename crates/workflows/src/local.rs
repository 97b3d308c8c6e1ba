//! A small workflow that runs on this machine, with or without a real fault, to record labelled runs without a cluster.
//! Parts of a dataset are fetched over the loopback interface, processed, written, read again and combined.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::graph::{Dependency, Graph};
use crate::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};
use rustix::time::{ClockId, clock_gettime};
use workload::Stop;

use crate::error::{Error, Result};
use crate::inject::{Fault, Machine};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSettings {
    /// Parts of the dataset; each is a task.
    pub n_parts: usize,
    /// Tasks that run at the same time.
    pub n_workers: usize,
    /// Bytes of a part.
    pub part_bytes: usize,
    /// How often a part is processed.
    pub n_rounds: usize,
}

impl Default for LocalSettings {
    fn default() -> Self {
        let n_workers = thread::available_parallelism().map_or(2, usize::from);
        Self { n_parts: 8, n_workers, part_bytes: 16 << 20, n_rounds: 12 }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The CPU time of this thread so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs the workflow once in a temporary directory below `scratch`.
pub fn run(
    name: &str,
    scratch: &Path,
    fault: Option<Fault>,
    settings: LocalSettings,
    stop: &Stop,
) -> Result<WorkflowRun> {
    let directory = temporary_directory(scratch)?;
    let _fault = fault.map(|fault| RunningFault::start(fault, &directory.0)).transpose()?;
    let server = Server::start(settings.part_bytes)?;
    let ready = now();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Result<TaskAttempt>>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in 0..settings.n_workers.max(1) {
            let (next, done, directory, server) = (&next, &done, &directory.0, &server);
            scope.spawn(move || {
                loop {
                    let part = next.fetch_add(1, Ordering::Relaxed);
                    if part >= settings.n_parts || stop.is_set() {
                        return;
                    }
                    let attempt = count(part, worker, ready, server.port, directory, settings);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(attempt);
                }
            });
        }
    });
    stop.check()?;
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut attempts = done.into_iter().collect::<Result<Vec<_>>>()?;
    attempts.sort_by(|a, b| a.task.cmp(&b.task));
    let gather = gather(&attempts, &directory.0, settings)?;
    let mut graph = Graph::default();
    graph.add(Dependency::new(attempts.iter().map(|attempt| attempt.task.0.clone()), [GATHER]));
    attempts.push(gather);
    Ok(WorkflowRun { name: name.to_owned(), attempts, graph })
}

const GATHER: &str = "gather_0";

fn part_path(directory: &Path, part: usize) -> PathBuf {
    directory.join(format!("part{part}"))
}

/// Fetches, processes and writes one part.
fn count(
    part: usize,
    worker: usize,
    ready: f64,
    port: u16,
    directory: &Path,
    settings: LocalSettings,
) -> Result<TaskAttempt> {
    let path = part_path(directory, part);
    let io = |error: std::io::Error| Error::file(&path, error);
    let start = now();
    let mut data = Vec::with_capacity(settings.part_bytes);
    TcpStream::connect(("127.0.0.1", port))
        .and_then(|mut stream| stream.read_to_end(&mut data))
        .map_err(io)?;
    let fetched = now();
    let before = cpu_seconds();
    let mut sum = part as u64;
    for _ in 0..settings.n_rounds {
        for byte in &mut data {
            sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(*byte));
            *byte = (sum >> 56) as u8;
        }
    }
    let mut file = File::create(&path).map_err(io)?;
    file.write_all(&data).and_then(|()| file.sync_all()).map_err(io)?;
    let cpu = cpu_seconds() - before;
    let end = now();
    Ok(TaskAttempt {
        host: Some(format!("worker-{worker}")),
        ready: Some(ready),
        submitted: Some(ready),
        execution: Span::new(start, end.max(start)).ok(),
        stage_in: Span::new(start, fetched.clamp(start, end.max(start))).ok(),
        cpu_seconds: Some(cpu),
        stage_in_bytes: Some(data.len() as f64),
        exit_code: Some(0),
        ..TaskAttempt::new(format!("count_{part}"), TaskRole::Compute, "count", 1)
    })
}

/// Reads all parts and combines them into one file.
fn gather(parts: &[TaskAttempt], directory: &Path, settings: LocalSettings) -> Result<TaskAttempt> {
    let path = directory.join("whole");
    let io = |error: std::io::Error| Error::file(&path, error);
    let ready = parts.iter().filter_map(TaskAttempt::end).fold(0.0, f64::max);
    let (start, before) = (now().max(ready), cpu_seconds());
    let mut whole = File::create(&path).map_err(io)?;
    for part in 0..settings.n_parts {
        let data = fs::read(part_path(directory, part)).map_err(io)?;
        whole.write_all(&data).map_err(io)?;
    }
    whole.sync_all().map_err(io)?;
    Ok(TaskAttempt {
        host: Some("worker-0".into()),
        ready: Some(ready),
        submitted: Some(ready),
        execution: Span::new(start, now().max(start)).ok(),
        cpu_seconds: Some(cpu_seconds() - before),
        exit_code: Some(0),
        ..TaskAttempt::new(GATHER, TaskRole::Compute, "gather", 1)
    })
}

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn temporary_directory(scratch: &Path) -> Result<Scratch> {
    let path = scratch.join(format!(".tracewise-workflow-{}-{:x}", std::process::id(), (now() * 1e6) as u64));
    fs::create_dir_all(&path).map_err(Error::io(&path))?;
    Ok(Scratch(path))
}

/// Serves parts on a port of the loopback interface.
struct Server {
    port: u16,
    is_over: std::sync::Arc<AtomicBool>,
}

impl Server {
    fn start(part_bytes: usize) -> Result<Self> {
        let wrong = |source: std::io::Error| Error::Loopback { source };
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(wrong)?;
        let port = listener.local_addr().map_err(wrong)?.port();
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let flag = std::sync::Arc::clone(&is_over);
        thread::spawn(move || {
            let data: std::sync::Arc<Vec<u8>> =
                std::sync::Arc::new((0..part_bytes).map(|at| at as u8).collect());
            for stream in listener.incoming() {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                let data = std::sync::Arc::clone(&data);
                if let Ok(mut stream) = stream {
                    thread::spawn(move || stream.write_all(&data));
                }
            }
        });
        Ok(Self { port, is_over })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the listener, so that it notices the flag.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// A real fault that lasts until it is dropped.
struct RunningFault {
    is_over: std::sync::Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
    has_loss: bool,
}

impl RunningFault {
    fn start(fault: Fault, directory: &Path) -> Result<Self> {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let mut running = Self { is_over, threads: Vec::new(), has_loss: false };
        match fault {
            Fault::Cpu { cores } => {
                for _ in 0..cores {
                    let flag = std::sync::Arc::clone(&running.is_over);
                    running.threads.push(thread::spawn(move || {
                        while !flag.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    }));
                }
            }
            // The cap is not enforced: the lower it is, the more threads compete for the disk.
            Fault::Disk { write_mb_per_second } => {
                let n_writers = Machine::default().disk_slowdown(write_mb_per_second).ceil();
                for at in 0..n_writers.clamp(1.0, MAX_WRITERS) as usize {
                    let flag = std::sync::Arc::clone(&running.is_over);
                    let path = directory.join(format!("writer{at}"));
                    running.threads.push(thread::spawn(move || keep_writing(&path, &flag)));
                }
            }
            Fault::Loss { percent } => {
                netem(&["add", "dev", "lo", "root", "netem", "loss", &format!("{percent}%")])?;
                running.has_loss = true;
            }
        }
        Ok(running)
    }
}

/// Threads that compete for the disk.
const MAX_WRITERS: f64 = 64.0;

/// Writes and syncs until the flag is set.
fn keep_writing(path: &Path, is_over: &AtomicBool) {
    let block = vec![0x5a; 4 << 20];
    while !is_over.load(Ordering::Relaxed) {
        let written = File::create(path).and_then(|mut file| {
            for _ in 0..8 {
                file.write_all(&block)?;
                file.sync_data()?;
            }
            Ok(())
        });
        if written.is_err() {
            return;
        }
    }
}

fn netem(arguments: &[&str]) -> Result<()> {
    let output = Command::new("tc").arg("qdisc").args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(Error::PacketLoss {
            reason: format!(
                "tc failed with {:?}; it needs CAP_NET_ADMIN and the netem kernel module",
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
            ),
        }),
        Err(error) => Err(Error::PacketLoss { reason: format!("tc (iproute2) cannot be run: {error}") }),
    }
}

impl Drop for RunningFault {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if self.has_loss {
            let _ = netem(&["del", "dev", "lo", "root"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_fault_is_recorded() {
        let scratch = std::env::temp_dir();
        let settings = LocalSettings { n_parts: 3, n_workers: 2, part_bytes: 1 << 16, n_rounds: 1 };
        let found = run(
            "local-run0001",
            &scratch,
            Some(Fault::Disk { write_mb_per_second: 50.0 }),
            settings,
            &Stop::default(),
        )
        .unwrap();
        assert_eq!(found.attempts.len(), 4);
        for attempt in &found.attempts {
            assert!(attempt.execution.is_some() && attempt.exit_code == Some(0), "{attempt:?}");
        }
        let parts = found.attempts.iter().filter(|attempt| attempt.kind == "count");
        assert!(parts.clone().all(|attempt| attempt.stage_in_bytes == Some(65_536.0)));
        let last = found.attempts.last().unwrap();
        assert!(parts.filter_map(TaskAttempt::end).all(|end| end <= last.ready.unwrap() + 1e-9));
    }
}
