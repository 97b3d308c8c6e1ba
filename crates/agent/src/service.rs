//! The sampling thread, which reads the node on a steady clock, and the state that it shares with the
//! exporters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use workload::{Millis, NodeName, Timestamp};

use crate::cgroup::jobstats;
use crate::counts::{Pushed, Served};
use crate::cpu::Monotone;
use crate::exposition::{Family, Format, Kind, Page, Sink};
use crate::node::{Collector, Node, Sample};
use crate::ring::{Keep, Ring};
use crate::sampler::Sampler;
use workload::Stop;

/// The agent is unhealthy after this many intervals without a sample.
const LATE_AFTER: u32 = 5;
const LATE_AT_LEAST: Duration = Duration::from_secs(5);

/// What the sampling thread shares.
#[derive(Debug)]
pub struct Shared {
    pub node: NodeName,
    pub interval: Duration,
    has_jobstats: bool,
    latest: RwLock<Option<Arc<Sample>>>,
    ring: Mutex<Ring>,
    monotone: Mutex<Monotone>,
    n_ticks: AtomicU64,
    n_missed: AtomicU64,
    page_size: AtomicU64,
    pub pushed: Pushed,
    pub served: Arc<Served>,
}

impl Shared {
    pub fn new(node: &Node, keep: Keep, has_jobstats: bool) -> Self {
        let settings = node.settings();
        Self {
            node: settings.name.clone(),
            interval: settings.interval,
            has_jobstats,
            latest: RwLock::new(None),
            ring: Mutex::new(Ring::new(node.source(), keep)),
            monotone: Mutex::default(),
            n_ticks: AtomicU64::new(0),
            n_missed: AtomicU64::new(0),
            page_size: AtomicU64::new(0),
            pushed: Pushed::default(),
            served: Arc::default(),
        }
    }

    pub fn latest(&self) -> Option<Arc<Sample>> {
        self.latest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a sample to the page and the ring. The ring has the uncorrected counters.
    pub fn publish(&self, mut sample: Sample, n_missed: u64) {
        if !sample.threads.is_empty() {
            self.ring().push(&sample.reading(&self.node));
        }
        self.monotone.lock().unwrap_or_else(PoisonError::into_inner).hold(&mut sample.threads);
        self.n_ticks.fetch_add(1, Ordering::Relaxed);
        self.n_missed.store(n_missed, Ordering::Relaxed);
        *self.latest.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sample));
    }

    /// Why the agent is unhealthy, if it is.
    pub fn problem(&self, now: Timestamp) -> Option<String> {
        let Some(latest) = self.latest() else { return Some("no sample yet".into()) };
        let age = now - latest.time;
        let late = Millis::from((self.interval * LATE_AFTER).max(LATE_AT_LEAST));
        if age > late {
            return Some(format!("the last sample is {} ms old", age.0));
        }
        let failed = latest.outcomes.iter().find(|outcome| outcome.collector == Collector::Cpu);
        failed.and_then(|outcome| outcome.error.clone())
    }

    /// The page of metrics.
    pub fn page(&self, format: Format) -> String {
        let capacity = self.page_size.load(Ordering::Relaxed) as usize;
        let mut page = Page::new(format, capacity + capacity / 8);
        self.expose_own(&mut page);
        if let Some(latest) = self.latest() {
            latest.expose(&mut page);
            if self.has_jobstats {
                jobstats::expose(&latest.jobs, &mut page);
            }
        }
        let page = page.finish();
        self.page_size.store(page.len() as u64, Ordering::Relaxed);
        page
    }

    pub fn expose_own(&self, sink: &mut impl Sink) {
        sink.family(Family {
            name: "tracewise_build_info",
            kind: Kind::Info,
            help: "Which agent this is, and the node it reads.",
        });
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("node", self.node.as_str())];
        sink.sample(&labels, 1.0, None);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let mut one = |name, kind, value, help| {
            sink.family(Family { name, kind, help });
            sink.sample(&[], value, None);
        };
        one("tracewise_ticks_total", Kind::Counter, count(&self.n_ticks), "Times the node was read.");
        one(
            "tracewise_ticks_missed_total",
            Kind::Counter,
            count(&self.n_missed),
            "Times the node should have been read and was not: the agent was busy, or the machine slept.",
        );
        let ring_bytes = self.ring().n_bytes() as f64;
        one("tracewise_ring_bytes", Kind::Gauge, ring_bytes, "Memory of the readings kept for /samples.");
        self.pushed.expose(sink);
        self.served.expose(sink);
    }
}

/// Reads the node in a thread of its own until it is stopped.
pub fn start(mut node: Node, shared: Arc<Shared>, stop: Stop) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        // The first sample is taken at once, so that there is something to see.
        shared.publish(node.sample(SystemTime::now().into()), 0);
        let mut sampler = Sampler::new(shared.interval);
        let mut warnings = Warnings::default();
        while let Some(now) = sampler.wait(&stop) {
            let sample = node.sample(now);
            warnings.note(&sample);
            shared.publish(sample, sampler.missed());
        }
    };
    std::thread::Builder::new().name("sampler".into()).spawn(work)
}

/// Logs what goes wrong when it begins and when it ends, not every second between.
#[derive(Debug, Default)]
struct Warnings(BTreeMap<&'static str, String>);

impl Warnings {
    fn note(&mut self, sample: &Sample) {
        for outcome in &sample.outcomes {
            let name = outcome.collector.name();
            match &outcome.error {
                Some(error) if self.0.get(name) != Some(error) => {
                    tracing::warn!("collector {name}: {error}");
                    self.0.insert(name, error.clone());
                }
                None if self.0.remove(name).is_some() => tracing::info!("collector {name}: works again"),
                _ => {}
            }
        }
    }
}
