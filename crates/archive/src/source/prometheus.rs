//! Imports raw samples with their own timestamps from Prometheus or a compatible server.
//!
//! Uses range selectors through `/api/v1/query`, for one node and a few minutes at a time.
//! `query_range` would fill in values after a missed scrape.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use files::Limits;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use workload::{
    Control, Cpu, JobId, Measure, Millis, Mode, ModeSet, NodeName, Owner, Source, Stop, ThreadReading, Ticks,
    Timestamp, metric,
};

use super::{Intake, MAX_AHEAD, nominal_period};
use crate::error::{Error, Result};
use crate::peer::{NoAnswer, Peer, PeerSettings};
use crate::{Archive, LoadReport, Loader};

const NODE_EXPORTER_METRIC: &str = "node_cpu_seconds_total";

const LONGEST_QUERY: Millis = Millis(10 * 60_000);
const SHORTEST_QUERY: Millis = Millis(10_000);
const RETRIES: u32 = 2;

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
                let asked = asked.and_then(|series| Ok((series, server.owners(&selector, at, end, period)?)));
                match asked {
                    Ok((series, owners)) => {
                        push_all(loader, node, &series, &owners, (at, end), ticks_per_second)?;
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

/// Who owned each thread, at the moments at which it was scraped.
struct Owners {
    of: BTreeMap<Cpu, BTreeMap<Timestamp, Owner>>,
    /// A scrape carries a reading that is younger than this.
    most_delay: Millis,
}

impl Owners {
    /// The owner that was scraped together with a reading: the counters carry the moment at which
    /// they were read, the owner that of the scrape, which comes after it.
    fn at(&self, cpu: Cpu, time: Timestamp) -> Owner {
        let scraped = self.of.get(&cpu).and_then(|owners| owners.range(time..).next());
        match scraped {
            Some((at, owner)) if *at - time <= self.most_delay => owner.clone(),
            _ => Owner::Unknown,
        }
    }
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
            let time = Timestamp((seconds * 1e3).round() as i64);
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

/// A metric with label matchers.
#[derive(Debug, Clone)]
struct Selector {
    metric: String,
    matchers: Option<String>,
}

impl Selector {
    fn with(&self, label: &str, value: &str) -> Self {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let more = format!("{label}=\"{quoted}\"");
        let matchers = self.matchers.as_ref().map_or_else(|| more.clone(), |had| format!("{had},{more}"));
        Self { metric: self.metric.clone(), matchers: Some(matchers) }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{{{}}}", self.metric, self.matchers.as_deref().unwrap_or_default())
    }
}

#[derive(Deserialize)]
struct Answer<T> {
    status: String,
    data: Option<T>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Matrix {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: Labels,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(default)]
    cpu: String,
    #[serde(default)]
    mode: String,
    jobid: Option<String>,
    /// Whether a thread is one job's, shared, nobody's or unknown.
    owner: Option<String>,
}

impl Labels {
    fn job(&self) -> Option<JobId> {
        self.jobid.as_deref().and_then(|job| JobId::new(job).ok())
    }

    fn owner(&self) -> Owner {
        match (self.owner.as_deref(), self.job()) {
            (Some("job"), Some(job)) => Owner::Job(job),
            (Some("nobody"), _) => Owner::Nobody,
            (Some("shared"), _) => Owner::Shared,
            _ => Owner::Unknown,
        }
    }
}

struct Failure {
    error: Error,
    /// The server refused because the response would be too large.
    is_too_much: bool,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

#[derive(Clone)]
struct Server(Peer);

impl Server {
    fn new(query: &PrometheusQuery, limits: &Limits, stop: &Stop) -> Result<Self> {
        Peer::new(&query.url, "http://prometheus:9090", &query.peer, limits, stop).map(Self)
    }

    fn failed(&self, reason: String) -> Error {
        self.0.failed(reason)
    }

    /// Sends a query, and retries where that may help.
    fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> Result<T, Failure> {
        let url = self
            .0
            .base
            .join(path)
            .map_err(|error| Failure { error: self.failed(error.to_string()), is_too_much: false })?;
        let mut tries = 0;
        loop {
            match self.get_once(&url, query) {
                Err(again) if again.is_passing && tries < RETRIES => {
                    tries += 1;
                    self.0.pause(Duration::from_millis(300) * tries);
                }
                Err(Refusal { failure, .. }) => return Err(failure),
                Ok(found) => return Ok(found),
            }
        }
    }

    fn get_once<T: DeserializeOwned>(&self, url: &Url, query: &[(&str, String)]) -> Result<T, Refusal> {
        let refusal = |reason: String, is_passing: bool, is_too_much: bool| Refusal {
            failure: Failure { error: self.failed(reason), is_too_much },
            is_passing,
        };
        let mut url = url.clone();
        url.query_pairs_mut().extend_pairs(query);
        let (status, body) = self.0.get(url).map_err(|cause| Refusal {
            is_passing: matches!(cause, NoAnswer::Failed { .. }),
            failure: Failure {
                is_too_much: matches!(cause, NoAnswer::TooLarge(_)),
                error: self.0.no_answer(cause),
            },
        })?;
        let answer: Option<Answer<T>> = serde_json::from_slice(&body).ok();
        match answer {
            Some(Answer { status: word, data: Some(data), .. })
                if status.is_success() && word == "success" =>
            {
                Ok(data)
            }
            Some(Answer { error: Some(error), .. }) => {
                let is_too_much = status == StatusCode::UNPROCESSABLE_ENTITY
                    && (error.contains("too many samples") || error.contains("limit"));
                Err(refusal(
                    format!("it responds with {status}: {error}"),
                    status.is_server_error(),
                    is_too_much,
                ))
            }
            _ if status.is_success() => Err(refusal(
                "its response is not that of a Prometheus API; check the address".into(),
                false,
                false,
            )),
            _ => {
                let hint = match status {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                        "; it needs a user and password, or a token"
                    }
                    StatusCode::NOT_FOUND => "; check the address and its path",
                    _ => "",
                };
                Err(refusal(format!("it responds with {status}{hint}"), status.is_server_error(), false))
            }
        }
    }

    fn range(query: &PrometheusQuery) -> [(&'static str, String); 2] {
        [("start", seconds(query.from)), ("end", seconds(query.to - Millis(1)))]
    }

    fn choose_metric(&self, query: &PrometheusQuery) -> Result<String> {
        if let Some(metric) = &query.metric {
            return Ok(metric.clone());
        }
        for name in [metric::CPU_SECONDS, NODE_EXPORTER_METRIC] {
            let selector = Selector { metric: name.into(), matchers: query.matchers.clone() };
            if !self.label_values(query, &selector, &query.node_label)?.is_empty() {
                return Ok(name.into());
            }
        }
        Err(Error::NoMetric {
            url: self.0.shown.clone(),
            metrics: vec![metric::CPU_SECONDS.into(), NODE_EXPORTER_METRIC.into()],
            node_label: query.node_label.clone(),
        })
    }

    fn label_values(&self, query: &PrometheusQuery, selector: &Selector, label: &str) -> Result<Vec<String>> {
        let mut parameters = vec![("match[]", selector.to_string())];
        parameters.extend(Self::range(query));
        Ok(self.get(&format!("api/v1/label/{label}/values"), &parameters)?)
    }

    /// The nodes and the label value of each. A port is left out of a name where that is clear.
    fn nodes(&self, query: &PrometheusQuery, selector: &Selector) -> Result<Vec<(NodeName, String)>> {
        let values = self.label_values(query, selector, &query.node_label)?;
        let host = |value: &str| match value.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => host.to_owned(),
            _ => value.to_owned(),
        };
        let mut n_with_host: HashMap<String, usize> = HashMap::new();
        values.iter().for_each(|value| *n_with_host.entry(host(value)).or_default() += 1);
        let mut nodes = Vec::new();
        for value in &values {
            let is_clear = n_with_host.get(&host(value)) == Some(&1);
            let name = if is_clear { host(value) } else { value.clone() };
            let node = NodeName::new(name).map_err(|error| self.failed(error.to_string()))?;
            nodes.push((node, value.clone()));
        }
        if nodes.is_empty() {
            return Err(self.failed(format!("it has no {selector} in that time range")));
        }
        Ok(nodes)
    }

    fn modes(&self, query: &PrometheusQuery, selector: &Selector) -> Result<ModeSet> {
        let values = self.label_values(query, selector, "mode")?;
        let modes: ModeSet = values.iter().filter_map(|name| Mode::from_name(name)).collect();
        if modes == ModeSet::EMPTY {
            return Err(self.failed(format!("{selector} has no label \"mode\" with modes of the kernel")));
        }
        Ok(modes)
    }

    /// How often a node was scraped: the median gap in the first time range that has samples.
    fn period(&self, query: &PrometheusQuery, selector: &Selector, node: &str) -> Result<Millis> {
        let selector = selector.with(&query.node_label, node).with("mode", "user");
        let mut at = query.from;
        while at < query.to {
            let end = (at + LONGEST_QUERY).min(query.to);
            let mut gaps: Vec<i64> = Vec::new();
            for one in self.samples(&selector, at, end)? {
                let times = one.values.iter().map(|(seconds, _)| (seconds * 1e3).round() as i64);
                let times: Vec<i64> = times.collect();
                gaps.extend(
                    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).filter(|gap| *gap > 0),
                );
            }
            if !gaps.is_empty() {
                gaps.sort_unstable();
                return Ok(nominal_period(gaps[gaps.len() / 2]));
            }
            at = end;
        }
        Ok(Millis::SECOND)
    }

    /// Who owned the threads of a node in `[from, to)`; other exporters have no owners.
    fn owners(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        period: Millis,
    ) -> Result<Owners, Failure> {
        let mut owners = Owners { of: BTreeMap::new(), most_delay: period };
        if selector.metric != metric::CPU_SECONDS {
            return Ok(owners);
        }
        let selector = Selector { metric: metric::CPU_OWNER.into(), matchers: selector.matchers.clone() };
        for one in self.samples(&selector, from, to + period)? {
            let Ok(cpu) = one.metric.cpu.parse() else { continue };
            let of_cpu = owners.of.entry(Cpu(cpu)).or_default();
            // Some servers show the mark that ends a series, which is not a one.
            for (seconds, _) in one.values.iter().filter(|(_, value)| value == "1") {
                of_cpu.insert(Timestamp((seconds * 1e3).round() as i64), one.metric.owner());
            }
        }
        Ok(owners)
    }

    /// The raw samples in `[from, to)`, and perhaps one more at `to`.
    fn samples(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Result<Vec<Series>, Failure> {
        // Versions differ in whether a range includes its start, so it starts a millisecond early.
        let query = format!("{selector}[{}ms]", (to - from).0 + 1);
        let matrix: Matrix = self.get("api/v1/query", &[("query", query), ("time", seconds(to))])?;
        Ok(matrix.result)
    }
}

struct Refusal {
    failure: Failure,
    is_passing: bool,
}

fn seconds(time: Timestamp) -> String {
    time.as_epoch_seconds().to_string()
}
