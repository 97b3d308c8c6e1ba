//! Pushes every reading to a server by remote write. Readings that the server does not accept are
//! sent again as long as the ring keeps them.

mod batch;
pub mod message;
mod pace;
mod sender;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::Url;
use tokio::sync::watch;
use workload::{NodeReading, ThreadReading, Timestamp, samples};

use crate::cpu::{Monotone, expose_owners, expose_seconds};
use crate::node::Sample;
use crate::service::Shared;
use batch::Ending;
pub use batch::{Batch, Outline};
use pace::{Pace, random};
pub use sender::{Failure, Sender, Target};

/// What one request holds at most; a reading is not divided.
const SAMPLES_PER_REQUEST: usize = 10_000;
/// A counter for each mode, and an owner.
const SAMPLES_PER_THREAD: usize = 9;
/// How long the last push may take when the agent ends.
const LAST_PUSH: Duration = Duration::from_secs(5);
/// A server that was away gets the readings of this many intervals at a time, so that it is not away again
/// as soon as all nodes of a cluster send what it missed.
const INTERVALS_PER_PUSH: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Version 2.0, or 1.0 where the server does not know it
    Auto,
    #[value(name = "1.0")]
    One,
    #[value(name = "2.0")]
    Two,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub url: Url,
    pub interval: Duration,
    /// The longest pause after failures.
    pub longest_pause: Duration,
    pub protocol: Protocol,
    /// Labels of every series.
    pub labels: Vec<(String, String)>,
    /// Read at every push, so that it can be replaced.
    pub bearer_token_file: Option<PathBuf>,
}

pub struct Pusher {
    settings: Settings,
    shared: Arc<Shared>,
    sender: Sender,
    /// The number of the first reading that the server has neither taken nor refused.
    next: u64,
    /// As they were in the last reading sent.
    threads: Vec<ThreadReading>,
    monotone: Monotone,
    /// The series of jobs and the node that were sent last, and when they were read.
    last: Option<(Timestamp, Outline)>,
    is_failing: bool,
}

impl Pusher {
    pub fn new(settings: Settings, shared: Arc<Shared>) -> reqwest::Result<Self> {
        let target =
            Target { url: settings.url.clone(), bearer_token_file: settings.bearer_token_file.clone() };
        let sender = Sender::with_protocol(target, settings.protocol)?;
        shared.pushed.is_on.store(true, Ordering::Relaxed);
        Ok(Self {
            settings,
            shared,
            sender,
            next: 0,
            threads: Vec::new(),
            monotone: Monotone::default(),
            last: None,
            is_failing: false,
        })
    }

    /// Pushes until `stop` changes, and once more then.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(self.settings.interval, self.settings.longest_pause);
        let mut pause = pace.first_pause(random());
        let readings_per_interval =
            self.settings.interval.as_nanos().div_ceil(self.shared.interval.as_nanos().max(1));
        let n_most = usize::try_from(readings_per_interval).unwrap_or(usize::MAX);
        let n_most = n_most.saturating_mul(INTERVALS_PER_PUSH as usize);
        loop {
            let is_over = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                _ = stop.changed() => true,
            };
            if is_over {
                let _ = tokio::time::timeout(LAST_PUSH, self.push(usize::MAX)).await;
                return;
            }
            self.push(n_most).await;
            pause = pace.pause(!self.is_failing, random());
        }
    }

    /// Sends new readings until there are none or about `n_most` are sent. Stops at the first request that
    /// fails; the next push continues there.
    async fn push(&mut self, n_most: usize) {
        let mut outcome = Ok(());
        let mut n_sent = 0;
        while outcome.is_ok() && n_sent < n_most {
            let (next, mut readings) = self.next_readings();
            if readings.is_empty() {
                break;
            }
            n_sent += readings.len();
            // The next counters are compared with those that were delivered.
            let mut monotone = self.monotone.clone();
            readings.iter_mut().for_each(|reading| monotone.hold(&mut reading.threads));
            let batch = self.batch(&readings);
            outcome = self.deliver(&batch).await;
            if outcome.is_ok() {
                self.next = next;
                self.monotone = monotone;
                self.threads =
                    readings.into_iter().next_back().map(|reading| reading.threads).unwrap_or_default();
            }
        }
        if outcome.is_ok()
            && let Some(latest) = self.shared.latest()
        {
            let is_new = self.last.as_ref().is_none_or(|(time, _)| *time != latest.time);
            if is_new {
                let (batch, outline) = self.batch_of_the_rest(&latest);
                outcome = self.deliver(&batch).await;
                if outcome.is_ok() {
                    self.last = Some((latest.time, outline));
                }
            }
        }
        match (&outcome, self.is_failing) {
            (Err(reason), false) => {
                tracing::warn!("{}: {reason}; will retry", self.sender.address());
            }
            (Ok(()), true) => tracing::info!("{}: accepts samples again", self.sender.address()),
            _ => {}
        }
        self.is_failing = outcome.is_err();
    }

    /// The oldest readings that have not been sent, as many as fit into a request, and the number of the
    /// one after them.
    fn next_readings(&self) -> (u64, Vec<NodeReading>) {
        let mut readings: Vec<NodeReading> = Vec::new();
        let Some((first, segment)) = self.shared.ring().segment_from(self.next) else {
            return (self.next, readings);
        };
        let mut n_samples = 0;
        let n_sent = self.next.saturating_sub(first) as usize;
        for (_, reading) in samples::read_segment(&segment.bytes()).flatten().skip(n_sent) {
            n_samples += reading.threads.len() * SAMPLES_PER_THREAD;
            if n_samples > SAMPLES_PER_REQUEST && !readings.is_empty() {
                break;
            }
            readings.push(reading);
        }
        let next = first.max(self.next) + readings.len() as u64;
        (next, readings)
    }

    fn labels(&self) -> Vec<(String, String)> {
        self.settings.labels.clone()
    }

    fn batch(&self, readings: &[NodeReading]) -> Batch {
        let mut batch = Batch::new(self.labels());
        let mut before: &[ThreadReading] = &self.threads;
        for reading in readings {
            expose_seconds(&reading.threads, reading.time, &mut batch);
            let has_changed = |thread: &&ThreadReading| {
                let now = reading.threads.iter().find(|now| now.cpu == thread.cpu);
                now.is_none_or(|now| now.owner != thread.owner)
            };
            let ended: Vec<ThreadReading> = before.iter().filter(has_changed).cloned().collect();
            expose_owners(&ended, Some(reading.time), &mut Ending(&mut batch));
            expose_owners(&reading.threads, Some(reading.time), &mut batch);
            before = &reading.threads;
        }
        batch
    }

    /// What is not in the ring: jobs, and the node as a whole, as they are now. Series that were there last
    /// time and are not any more are ended.
    fn batch_of_the_rest(&self, latest: &Sample) -> (Batch, Outline) {
        let mut batch = Batch::new(self.labels());
        batch.set_time(latest.time);
        self.shared.expose_own(&mut batch);
        latest.expose_rest(&mut batch);
        let outline = batch.outline();
        if let Some((_, last)) = &self.last {
            batch.end_those_not_there(last);
        }
        (batch, outline)
    }

    /// Sends a batch. One that the server refuses for good is counted, and done with.
    async fn deliver(&mut self, batch: &Batch) -> Result<(), String> {
        let n_samples = batch.n_samples() as u64;
        if n_samples == 0 {
            return Ok(());
        }
        let pushed = &self.shared.clone().pushed;
        match self.sender.send(batch).await {
            Ok(()) => {
                pushed.samples.fetch_add(n_samples, Ordering::Relaxed);
                Ok(())
            }
            Err(Failure::Final(reason)) => {
                pushed.refused.fetch_add(n_samples, Ordering::Relaxed);
                tracing::warn!("{} rejects {n_samples} samples: {reason}", self.sender.address());
                Ok(())
            }
            Err(Failure::Passing(reason)) => {
                pushed.failures.fetch_add(1, Ordering::Relaxed);
                Err(reason)
            }
        }
    }
}
