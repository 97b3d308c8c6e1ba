//! Imports raw samples with their own timestamps from Prometheus or a compatible server.
//!
//! Uses range selectors through `/api/v1/query`, for one node and a few minutes at a time.
//! `query_range` would fill in values after a missed scrape.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod jobs;
mod server;

use std::collections::{BTreeMap, BTreeSet};

use workload::{
    Control, Cpu, JobId, Measure, Millis, Mode, ModeSet, NodeName, Owner, Source, Stop, ThreadReading, Ticks,
    Timestamp,
};

use self::jobs::push_jobs;
use self::server::{Owners, Selector, Series, Server, time_of};
use super::{Intake, MAX_AHEAD};
use crate::error::{Error, Result};
use crate::peer::PeerSettings;
use crate::{Archive, LoadReport, Loader};

const NODE_EXPORTER_METRIC: &str = "node_cpu_seconds_total";

const LONGEST_QUERY: Millis = Millis(10 * 60_000);
const SHORTEST_QUERY: Millis = Millis(10_000);
/// How long after its files were read a job is looked for: they are scraped or pushed at some interval.
const JOB_DELAY: Millis = Millis(60_000);

/// The kernel's clock ticks, in which Linux exporters count.
const KERNEL_TICKS: u32 = 100;
/// For counters that are finer than the kernel's ticks.
const FINE_TICKS: u32 = 1_000_000;

/// What to import.
#[derive(Debug, Clone)]
pub struct PrometheusQuery {
    /// The address of the server.
    pub url: String,
    /// Start of the time range.
    pub from: Timestamp,
    /// End of the time range; samples at this time are left out.
    pub to: Timestamp,
    /// The counter of CPU seconds; detected if not given.
    pub metric: Option<String>,
    /// Further label matchers, such as `cluster="a"`.
    pub matchers: Option<String>,
    /// The label that names the node.
    pub node_label: String,
    /// How the server is reached.
    pub peer: PeerSettings,
}

/// A time range of a Prometheus that has samples.
pub struct PrometheusImport {
    query: PrometheusQuery,
    server: Server,
    selector: Selector,
    /// Each node with the value of its label.
    nodes: Vec<(NodeName, String)>,
    modes: ModeSet,
}

impl PrometheusImport {
    /// Finds out which nodes there are.
    pub fn survey(query: PrometheusQuery, intake: &Intake, stop: &Stop) -> Result<Self> {
        let server = Server::new(&query, &intake.limits, stop)?;
        Self::of(server, query, intake)
    }

    fn of(server: Server, query: PrometheusQuery, intake: &Intake) -> Result<Self> {
        if query.from >= query.to {
            return Err(server.failed("the time range is empty: it ends before it starts".into()));
        }
        // Samples outside of the range are not used, so none can be of the future.
        let query = PrometheusQuery { to: query.to.min(intake.now + MAX_AHEAD), ..query };
        if query.from >= query.to {
            return Err(server.failed("the time range is in the future".into()));
        }
        let metric = server.choose_metric(&query)?;
        let selector = Selector { metric, matchers: query.matchers.clone() };
        let nodes = server.nodes(&query, &selector)?;
        let modes = server.modes(&query, &selector)?;
        Ok(Self { query, server, selector, nodes, modes })
    }

    /// The address, without a password.
    pub fn address(&self) -> &str {
        &self.server.0.shown
    }

    /// Loads the samples. Progress is counted in thousandths of a node; stopped, it leaves nothing.
    pub fn load(&self, archive: &Archive, control: &Control<'_>) -> Result<LoadReport> {
        let archive = archive.with_stop(control.stop());
        let loaded = match self.load_as(&archive, KERNEL_TICKS, control) {
            Err(LoadError::FinerTicks) => self.load_as(&archive, FINE_TICKS, control),
            done => done,
        };
        loaded.map_err(|error| match error {
            LoadError::Other(error) => error,
            LoadError::FinerTicks => self.server.failed("its counters are not seconds of CPU time".into()),
        })
    }

    fn load_as(
        &self,
        archive: &Archive,
        ticks_per_second: u32,
        control: &Control<'_>,
    ) -> Result<LoadReport, LoadError> {
        let source = Source {
            origin: format!("{} {}", self.server.0.shown, self.selector.metric),
            measure: Measure::Counter,
            ticks_per_second,
            modes: self.modes,
            period: Millis::SECOND,
        };
        let mut loader = archive.loader(source)?;
        self.push_nodes(&mut loader, ticks_per_second, control)?;
        control.report(1, 1).map_err(Error::from)?;
        Ok(loader.finish()?)
    }

    /// Gives the samples of all nodes to a loader.
    fn push_nodes(
        &self,
        loader: &mut Loader,
        ticks_per_second: u32,
        control: &Control<'_>,
    ) -> Result<(), LoadError> {
        let Self { query, server, selector, nodes, .. } = self;
        let span = (query.to - query.from).0;
        for (done, (node, label)) in nodes.iter().enumerate() {
            let period = server.period(query, selector, label)?;
            loader.set_period(node, period);
            let mut at = query.from;
            let mut length = LONGEST_QUERY;
            while at < query.to {
                let share = (at - query.from).0 as f64 / span as f64;
                let done = ((done as f64 + share) * 1_000.0) as u64;
                control.report(done, nodes.len() as u64 * 1_000).map_err(Error::from)?;
                let end = (at + length).min(query.to);
                let selector = selector.with(&query.node_label, label);
                let asked = server.samples(&selector, at, end);
                let asked = asked.and_then(|series| {
                    let owners = server.owners(&selector, at, end, period)?;
                    // What was read before the end of the whole range may be scraped after it.
                    let delay = if end == query.to { JOB_DELAY.max(period).min(length) } else { Millis(0) };
                    let jobs = server.jobs(&selector, at, end + delay)?;
                    Ok((series, owners, jobs))
                });
                match asked {
                    Ok((series, owners, jobs)) => {
                        push_all(loader, node, &series, &owners, (at, end), ticks_per_second)?;
                        push_jobs(loader, node, &jobs, &(query.from..query.to))?;
                        at = end;
                    }
                    Err(error) if error.is_too_much && length > SHORTEST_QUERY => {
                        length = Millis(length.0 / 2)
                    }
                    Err(error) => return Err(error.error.into()),
                }
            }
        }
        Ok(())
    }
}

enum LoadError {
    /// The counters are finer than was assumed: start again.
    FinerTicks,
    Other(Error),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The samples of a moment, as far as they are there.
#[derive(Default)]
struct Partial {
    ticks: Ticks,
    modes: BTreeSet<Mode>,
    job: Option<JobId>,
}

fn push_all(
    loader: &mut Loader,
    node: &NodeName,
    series: &[Series],
    owners: &Owners,
    (from, to): (Timestamp, Timestamp),
    ticks_per_second: u32,
) -> Result<(), LoadError> {
    let mut threads: BTreeMap<Cpu, BTreeMap<Timestamp, Partial>> = BTreeMap::new();
    let mut modes: BTreeMap<Cpu, BTreeSet<Mode>> = BTreeMap::new();
    for one in series {
        let (Some(mode), Ok(cpu)) = (Mode::from_name(&one.metric.mode), one.metric.cpu.parse()) else {
            continue;
        };
        modes.entry(Cpu(cpu)).or_default().insert(mode);
        let job = one.metric.job();
        let moments = threads.entry(Cpu(cpu)).or_default();
        for (seconds, value) in &one.values {
            let time = time_of(*seconds);
            if !(from..to).contains(&time) {
                continue;
            }
            let exact = value.parse::<f64>().unwrap_or(f64::NAN) * f64::from(ticks_per_second);
            if !exact.is_finite() || exact < 0.0 {
                continue;
            }
            if (exact - exact.round()).abs() > 1e-3 && ticks_per_second == KERNEL_TICKS {
                return Err(LoadError::FinerTicks);
            }
            let partial = moments.entry(time).or_default();
            partial.ticks[mode] = exact.round() as u64;
            partial.modes.insert(mode);
            partial.job = partial.job.take().or_else(|| job.clone());
        }
    }
    for (cpu, moments) in threads {
        for (time, partial) in moments {
            if partial.modes.len() < modes[&cpu].len() {
                loader.note_missing(1);
                continue;
            }
            let owner = partial.job.map_or_else(|| owners.at(cpu, time), Owner::Job);
            loader.push(node, time, &ThreadReading { cpu, ticks: partial.ticks, owner })?;
        }
    }
    Ok(())
}
