//! The HTTP API of a Prometheus, as far as imports use it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use files::Limits;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use workload::{Cpu, JobId, Millis, Mode, ModeSet, NodeName, Owner, Stop, Timestamp, metric};

use super::{LONGEST_QUERY, NODE_EXPORTER_METRIC, PrometheusQuery};
use crate::error::{Error, Result};
use crate::peer::{NoAnswer, Peer};
use crate::source::nominal_period;

const RETRIES: u32 = 2;

/// Who owned each thread, at the moments at which it was scraped.
pub struct Owners {
    pub of: BTreeMap<Cpu, BTreeMap<Timestamp, Owner>>,
    /// A scrape carries a reading that is younger than this.
    pub most_delay: Millis,
}

impl Owners {
    /// The owner that was scraped together with a reading: the counters carry the moment at which
    /// they were read, the owner that of the scrape, which comes after it.
    pub fn at(&self, cpu: Cpu, time: Timestamp) -> Owner {
        let scraped = self.of.get(&cpu).and_then(|owners| owners.range(time..).next());
        match scraped {
            Some((at, owner)) if *at - time <= self.most_delay => owner.clone(),
            _ => Owner::Unknown,
        }
    }
}

/// A metric with label matchers.
#[derive(Debug, Clone)]
pub struct Selector {
    pub metric: String,
    pub matchers: Option<String>,
}

impl Selector {
    pub fn with(&self, label: &str, value: &str) -> Self {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let more = format!("{label}=\"{quoted}\"");
        let matchers = self.matchers.as_ref().map_or_else(|| more.clone(), |had| format!("{had},{more}"));
        Self { metric: self.metric.clone(), matchers: Some(matchers) }
    }

    /// The same matchers for metrics of other names. Names of metrics have no special characters.
    fn of_any(&self, names: &[&str]) -> Self {
        let named = format!("__name__=~\"{}\"", names.join("|"));
        let matchers = self.matchers.as_ref().map_or_else(|| named.clone(), |had| format!("{named},{had}"));
        Self { metric: String::new(), matchers: Some(matchers) }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{{{}}}", self.metric, self.matchers.as_deref().unwrap_or_default())
    }
}

#[derive(Deserialize)]
pub struct Answer<T> {
    status: String,
    data: Option<T>,
    error: Option<String>,
}

#[derive(Deserialize)]
pub struct Matrix {
    result: Vec<Series>,
}

#[derive(Deserialize)]
pub struct Series {
    pub metric: Labels,
    #[serde(default)]
    pub values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
pub struct Labels {
    /// The name of the metric.
    #[serde(rename = "__name__", default)]
    pub name: String,
    #[serde(default)]
    pub cpu: String,
    #[serde(default)]
    pub mode: String,
    jobid: Option<String>,
    /// Whether a thread is one job's, shared, nobody's or unknown.
    owner: Option<String>,
}

impl Labels {
    pub fn job(&self) -> Option<JobId> {
        self.jobid.as_deref().and_then(|job| JobId::new(job).ok())
    }

    pub fn owner(&self) -> Owner {
        match (self.owner.as_deref(), self.job()) {
            (Some("job"), Some(job)) => Owner::Job(job),
            (Some("nobody"), _) => Owner::Nobody,
            (Some("shared"), _) => Owner::Shared,
            _ => Owner::Unknown,
        }
    }
}

pub struct Failure {
    pub error: Error,
    /// The server refused because the response would be too large.
    pub is_too_much: bool,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

#[derive(Clone)]
pub struct Server(pub Peer);

impl Server {
    pub fn new(query: &PrometheusQuery, limits: &Limits, stop: &Stop) -> Result<Self> {
        Peer::new(&query.url, "http://prometheus:9090", &query.peer, limits, stop).map(Self)
    }

    pub fn failed(&self, reason: String) -> Error {
        self.0.failed(reason)
    }

    /// Sends a query, and retries where that may help.
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> Result<T, Failure> {
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

    pub fn get_once<T: DeserializeOwned>(&self, url: &Url, query: &[(&str, String)]) -> Result<T, Refusal> {
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

    pub fn range(query: &PrometheusQuery) -> [(&'static str, String); 2] {
        [("start", seconds(query.from)), ("end", seconds(query.to - Millis(1)))]
    }

    pub fn choose_metric(&self, query: &PrometheusQuery) -> Result<String> {
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

    pub fn label_values(
        &self,
        query: &PrometheusQuery,
        selector: &Selector,
        label: &str,
    ) -> Result<Vec<String>> {
        let mut parameters = vec![("match[]", selector.to_string())];
        parameters.extend(Self::range(query));
        Ok(self.get(&format!("api/v1/label/{label}/values"), &parameters)?)
    }

    /// The nodes and the label value of each. A port is left out of a name where that is clear.
    pub fn nodes(&self, query: &PrometheusQuery, selector: &Selector) -> Result<Vec<(NodeName, String)>> {
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

    pub fn modes(&self, query: &PrometheusQuery, selector: &Selector) -> Result<ModeSet> {
        let values = self.label_values(query, selector, "mode")?;
        let modes: ModeSet = values.iter().filter_map(|name| Mode::from_name(name)).collect();
        if modes == ModeSet::EMPTY {
            return Err(self.failed(format!("{selector} has no label \"mode\" with modes of the kernel")));
        }
        Ok(modes)
    }

    /// How often a node was scraped: the median gap in the first time range that has samples.
    pub fn period(&self, query: &PrometheusQuery, selector: &Selector, node: &str) -> Result<Millis> {
        let selector = selector.with(&query.node_label, node).with("mode", "user");
        let mut at = query.from;
        while at < query.to {
            let end = (at + LONGEST_QUERY).min(query.to);
            let mut gaps: Vec<i64> = Vec::new();
            for one in self.samples(&selector, at, end)? {
                let times: Vec<i64> = one.values.iter().map(|(seconds, _)| time_of(*seconds).0).collect();
                gaps.extend(times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0));
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
    pub fn owners(
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
                of_cpu.insert(time_of(*seconds), one.metric.owner());
            }
        }
        Ok(owners)
    }

    /// What the agent says of a node's jobs and memory in `[from, to)`; other exporters have no jobs.
    pub fn jobs(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Result<Vec<Series>, Failure> {
        if selector.metric != metric::CPU_SECONDS {
            return Ok(Vec::new());
        }
        let names = [&metric::JOB_COUNTS[..], &[metric::JOB_READ_TIME, metric::NODE_MEMORY]].concat();
        self.samples(&selector.of_any(&names), from, to)
    }

    /// The raw samples in `[from, to)`, and perhaps one more at `to`.
    pub fn samples(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Series>, Failure> {
        // Versions differ in whether a range includes its start, so it starts a millisecond early.
        let query = format!("{selector}[{}ms]", (to - from).0 + 1);
        let matrix: Matrix = self.get("api/v1/query", &[("query", query), ("time", seconds(to))])?;
        let mut series = matrix.result;
        // A server may answer with more than it was asked for.
        for one in &mut series {
            one.values.retain(|(seconds, _)| (from..=to).contains(&time_of(*seconds)));
        }
        Ok(series)
    }
}

pub struct Refusal {
    failure: Failure,
    is_passing: bool,
}

pub fn time_of(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1e3).round() as i64)
}

pub fn seconds(time: Timestamp) -> String {
    time.as_epoch_seconds().to_string()
}
