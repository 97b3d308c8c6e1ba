//! Where network calls run while their callers wait.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use workload::Stop;

use crate::error::{Error, Result};

const N_THREADS: usize = 2;
/// How often a caller that waits looks whether it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// A runtime that is given, or one that ends with its last user.
#[derive(Debug, Clone)]
pub struct Runtime {
    handle: Handle,
    _own: Option<Arc<OwnRuntime>>,
}

#[derive(Debug)]
struct OwnRuntime(Option<tokio::runtime::Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // Waiting for its threads here would panic in an async task. No call is under way any more.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Runtime {
    /// A runtime with threads of its own, unless one is given. One without threads is refused: a caller
    /// that blocks its only thread would wait for ever.
    pub fn new(given: Option<&Handle>) -> io::Result<Self> {
        if let Some(handle) = given {
            return match handle.runtime_flavor() {
                RuntimeFlavor::CurrentThread => Err(io::Error::other(
                    "a current-thread runtime cannot run calls that block; use a multi-thread one",
                )),
                _ => Ok(Self { handle: handle.clone(), _own: None }),
            };
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(N_THREADS)
            .thread_name("archive-io")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok(Self { handle, _own: Some(Arc::new(OwnRuntime(Some(runtime)))) })
    }

    /// Waits for a call, or until it is time to stop. In an async task it blocks the task's thread, and
    /// leaves the other tasks of a multi-thread runtime their turn.
    pub fn wait<T: Send + 'static>(
        &self,
        stop: &Stop,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        stop.check()?;
        #[cfg(feature = "fuzzing")]
        let call = match futures_util::FutureExt::now_or_never(call) {
            // Local files are read without other threads: an input takes microseconds.
            Some(done) => return Ok(done),
            None => std::future::pending(),
        };
        let (done, outcome) = sync_channel(1);
        let task = self.handle.spawn(async move {
            // Nobody listens any more where the caller has stopped.
            let _ = done.send(call.await);
        });
        let is_in_task = Handle::try_current()
            .is_ok_and(|current| current.runtime_flavor() != RuntimeFlavor::CurrentThread);
        let waited = if is_in_task {
            tokio::task::block_in_place(|| receive(&outcome, stop))
        } else {
            receive(&outcome, stop)
        };
        waited.inspect_err(|_| task.abort())
    }
}

fn receive<T>(outcome: &Receiver<T>, stop: &Stop) -> Result<T> {
    loop {
        match outcome.recv_timeout(STOP_INTERVAL) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => stop.check()?,
            Err(RecvTimeoutError::Disconnected) => return Err(Error::RuntimeEnded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(runtime: &Runtime) -> u32 {
        runtime.wait(&Stop::default(), async { 42 }).unwrap()
    }

    #[test]
    fn a_call_in_an_async_task_blocks_and_does_not_panic() {
        let multi = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let single = Builder::new_current_thread().enable_all().build().unwrap();
        single.block_on(async { assert_eq!(answer(&Runtime::new(None).unwrap()), 42) });
        // The task blocks the only thread of the runtime that its own call needs.
        let host = multi();
        let given = Runtime::new(Some(host.handle())).unwrap();
        host.block_on(async { tokio::spawn(async move { assert_eq!(answer(&given), 42) }).await.unwrap() });
        host.block_on(async {
            let own = Runtime::new(None).unwrap();
            tokio::task::spawn_blocking(move || assert_eq!(answer(&own), 42)).await.unwrap();
        });
    }

    #[test]
    fn a_runtime_without_threads_is_refused() {
        let single = Builder::new_current_thread().build().unwrap();
        assert!(Runtime::new(Some(single.handle())).is_err());
    }

    #[test]
    fn a_call_that_never_ends_is_stopped() {
        let stop = Stop::after(Some(Duration::from_millis(50)));
        let waited = Runtime::new(None).unwrap().wait(&stop, std::future::pending::<()>());
        assert!(matches!(waited, Err(Error::Stopped(_))));
    }
}
