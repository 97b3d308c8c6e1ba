//! Signals that end a command: the first asks it to stop, and within five seconds it has ended, whatever it waits for.
//! Every command survives that as it survives a crash.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use workload::Stop;

/// How long a command may take to finish what it has begun.
const GRACE: Duration = Duration::from_secs(5);
/// As shells have it: 128 + SIGINT, SIGTERM or SIGHUP.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;
const HUNG_UP: u8 = 129;

static STATUS: AtomicU8 = AtomicU8::new(INTERRUPTED);

/// The exit status of a command that was stopped, by the signal that stopped it.
pub fn exit_status() -> u8 {
    STATUS.load(Ordering::Relaxed)
}

/// Stops at the first SIGINT, SIGTERM or SIGHUP, or after some time. A second signal ends the process at once.
pub fn stop_on_signals(length: Option<Duration>) -> anyhow::Result<Stop> {
    let stop = Stop::after(length);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("signals cannot be handled")?;
    let mut signals = {
        let _within = runtime.enter();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Signals { interrupt: interrupt?, terminate: terminate?, hangup: hangup? }
    };
    let asked = stop.clone();
    let wait = async move {
        let status = signals.next().await;
        STATUS.store(status, Ordering::Relaxed);
        asked.now();
        let status = tokio::time::timeout(GRACE, signals.next()).await.unwrap_or(status);
        std::process::exit(status.into())
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(stop)
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Waits for a signal and gives the exit status that belongs to it.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
            _ = self.hangup.recv() => HUNG_UP,
        }
    }
}
