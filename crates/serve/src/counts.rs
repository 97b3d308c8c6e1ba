//! What the service counts about itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::exposition::{Family, Kind, Sink};

/// Where readings come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// Read from agents.
    Agent,
    /// Received by remote write.
    RemoteWrite,
    /// Read from a Prometheus.
    Prometheus,
    /// A simulated cluster.
    Simulated,
}

impl Input {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::RemoteWrite => "remote_write",
            Self::Prometheus => "prometheus",
            Self::Simulated => "simulated",
        }
    }
}

/// Why something that was received is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// A reading of a node that another input, agent or server delivers.
    OtherInput,
    /// A reading that was received before.
    Duplicate,
    /// A reading from the future, of before 1970, or of a node whose name is too long.
    Time,
    /// A sample of a metric that is not needed.
    Metric,
    /// A sample that does not belong to any node or thread.
    Labels,
    /// A sample that came too late for its reading.
    Late,
}

impl Ignored {
    pub const fn reason(self) -> &'static str {
        match self {
            Self::OtherInput => "other_input",
            Self::Duplicate => "duplicate",
            Self::Time => "time",
            Self::Metric => "metric",
            Self::Labels => "labels",
            Self::Late => "late",
        }
    }
}

/// A stage of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Store,
    Buffer,
    Score,
    /// Scoring by the challenger.
    Shadow,
    Record,
}

impl Stage {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Buffer => "buffer",
            Self::Score => "score",
            Self::Shadow => "shadow",
            Self::Record => "record",
        }
    }
}

/// Deliveries to a receiver of alerts.
#[derive(Debug, Clone, Default)]
pub struct Told {
    pub n_sent: u64,
    /// Requests that failed and are made again.
    pub n_failures: u64,
    /// Changes that it refused for good.
    pub n_refused: u64,
    /// Changes that it has not been told yet.
    pub n_waiting: i64,
}

/// Counters of the service.
#[derive(Debug, Default)]
pub struct Counts {
    received: Mutex<BTreeMap<Input, u64>>,
    ignored: Mutex<BTreeMap<Ignored, u64>>,
    seconds: Mutex<BTreeMap<Stage, (Duration, u64)>>,
    told: Mutex<BTreeMap<String, Told>>,
    pub scored_windows: AtomicU64,
    pub skipped_batches: AtomicU64,
    pub stride_millis: AtomicU64,
    /// From the end of the last scored windows to their scores.
    pub lag_millis: AtomicU64,
    pub lost_readings: AtomicU64,
    pub failed_pulls: AtomicU64,
    pub failed_discoveries: AtomicU64,
    pub failed_polls: AtomicU64,
    pub exported_samples: AtomicU64,
    pub failed_exports: AtomicU64,
    pub refused_requests: AtomicU64,
    pub waiting_batches: AtomicU64,
    pub waiting_arrivals: AtomicU64,
    pub events_opened: AtomicU64,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Counts {
    pub fn receive(&self, input: Input, n_readings: u64) {
        *self.received.lock().unwrap_or_else(PoisonError::into_inner).entry(input).or_default() += n_readings;
    }

    pub fn ignore(&self, reason: Ignored, amount: u64) {
        if amount > 0 {
            *self.ignored.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += amount;
        }
    }

    /// How much was not used for a reason.
    pub fn ignored(&self, reason: Ignored) -> u64 {
        let ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        ignored.get(&reason).copied().unwrap_or(0)
    }

    pub fn spend(&self, stage: Stage, time: Duration) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = seconds.entry(stage).or_default();
        *spent = (spent.0 + time, spent.1 + 1);
    }

    /// Updates the counts of a receiver of alerts.
    pub fn tell(&self, receiver: &str, change: impl FnOnce(&mut Told)) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        change(told.entry(receiver.to_owned()).or_default());
    }

    fn expose_told(&self, sink: &mut impl Sink) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        type Number = fn(&Told) -> f64;
        let families: [(&str, Kind, &str, Number); 4] = [
            (
                "tracewise_serve_alerts_sent_total",
                Kind::Counter,
                "Changes of events that a receiver was told.",
                |told| told.n_sent as f64,
            ),
            (
                "tracewise_serve_alert_failures_total",
                Kind::Counter,
                "Requests to a receiver of alerts that failed and are made again.",
                |told| told.n_failures as f64,
            ),
            (
                "tracewise_serve_alerts_refused_total",
                Kind::Counter,
                "Changes of events that a receiver refused for good.",
                |told| told.n_refused as f64,
            ),
            (
                "tracewise_serve_alerts_waiting",
                Kind::Gauge,
                "Changes of events that a receiver has not been told yet.",
                |told| told.n_waiting as f64,
            ),
        ];
        for (name, kind, help, number) in families {
            sink.family(Family { name, kind, help });
            for (receiver, told) in &*told {
                sink.sample(&[("receiver", receiver)], number(told), None);
            }
        }
    }

    /// The seconds spent in each stage, and how often.
    pub fn timings(&self) -> BTreeMap<&'static str, (f64, u64)> {
        let seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.iter().map(|(stage, (time, count))| (stage.name(), (time.as_secs_f64(), *count))).collect()
    }

    pub fn expose(&self, sink: &mut impl Sink) {
        let family = |name, kind, help| Family { name, kind, help };
        sink.family(family(
            "tracewise_serve_readings_total",
            Kind::Counter,
            "Readings of nodes that were received.",
        ));
        for (input, count) in &*self.received.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.sample(&[("input", input.name())], *count as f64, None);
        }
        sink.family(family(
            "tracewise_serve_ignored_total",
            Kind::Counter,
            "Readings and samples that were received and not used.",
        ));
        for (reason, count) in &*self.ignored.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.sample(&[("reason", reason.reason())], *count as f64, None);
        }
        sink.family(family(
            "tracewise_serve_stage_seconds_total",
            Kind::Counter,
            "Time spent in each stage of the pipeline.",
        ));
        for (stage, (seconds, _)) in self.timings() {
            sink.sample(&[("stage", stage)], seconds, None);
        }
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let counters = [
            (
                "tracewise_serve_scored_windows_total",
                Kind::Counter,
                of(&self.scored_windows),
                "Windows that were scored.",
            ),
            (
                "tracewise_serve_skipped_batches_total",
                Kind::Counter,
                of(&self.skipped_batches),
                "Window batches that were left out because scoring was too slow.",
            ),
            (
                "tracewise_serve_stride_seconds",
                Kind::Gauge,
                of(&self.stride_millis) / 1e3,
                "Time from one scored window to the next; it grows when scoring is too slow.",
            ),
            (
                "tracewise_serve_lag_seconds",
                Kind::Gauge,
                of(&self.lag_millis) / 1e3,
                "Time from the last sample of the windows that were scored last to their scores.",
            ),
            (
                "tracewise_serve_lost_readings_total",
                Kind::Counter,
                of(&self.lost_readings),
                "Readings that agents no longer had when they were asked.",
            ),
            (
                "tracewise_serve_failed_pulls_total",
                Kind::Counter,
                of(&self.failed_pulls),
                "Requests to agents that failed.",
            ),
            (
                "tracewise_serve_failed_discoveries_total",
                Kind::Counter,
                of(&self.failed_discoveries),
                "Lists of agents, and addresses in them, that could not be used when they were read.",
            ),
            (
                "tracewise_serve_failed_polls_total",
                Kind::Counter,
                of(&self.failed_polls),
                "Queries to Prometheus servers that failed.",
            ),
            (
                "tracewise_serve_exported_samples_total",
                Kind::Counter,
                of(&self.exported_samples),
                "Samples that were sent by remote write.",
            ),
            (
                "tracewise_serve_failed_exports_total",
                Kind::Counter,
                of(&self.failed_exports),
                "Requests by remote write that failed.",
            ),
            (
                "tracewise_serve_refused_requests_total",
                Kind::Counter,
                of(&self.refused_requests),
                "Requests of clients that exceeded a limit or failed to log in.",
            ),
            (
                "tracewise_serve_waiting_arrivals",
                Kind::Gauge,
                of(&self.waiting_arrivals),
                "Deliveries that wait to be stored.",
            ),
            (
                "tracewise_serve_waiting_batches",
                Kind::Gauge,
                of(&self.waiting_batches),
                "Window batches that wait to be scored.",
            ),
            (
                "tracewise_serve_events_total",
                Kind::Counter,
                of(&self.events_opened),
                "Events that were opened.",
            ),
        ];
        for (name, kind, value, help) in counters {
            sink.family(family(name, kind, help));
            sink.sample(&[], value, None);
        }
        self.expose_told(sink);
    }
}
