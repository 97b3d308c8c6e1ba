//! Series on their way to a server, in both versions of the protocol. Names and values are kept once,
//! in a table of symbols, as version 2 sends them.

use std::collections::{BTreeMap, HashMap};

use prost::Message;
use workload::Timestamp;

use super::message::{v1, v2};
use crate::exposition::{Family, Kind, Sink};

/// The NaN by which Prometheus knows that a series has ended.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// The labels of a series, as numbers of symbols in turn: name, value, name, value.
type Labels = Vec<u32>;

/// The series of a batch, without their samples.
#[derive(Debug)]
pub struct Outline {
    symbols: Vec<String>,
    series: Vec<Labels>,
}

/// Samples of many series: the content of one request.
#[derive(Debug)]
pub struct Batch {
    /// Labels that every series has, sorted with the others.
    shared: Vec<(String, String)>,
    symbols: Vec<String>,
    numbers: HashMap<String, u32>,
    series: BTreeMap<Labels, Series>,
    family: (String, Kind, u32),
    /// The time of samples that carry none of their own.
    time: Timestamp,
    n_samples: usize,
}

#[derive(Debug)]
struct Series {
    kind: Kind,
    help: u32,
    samples: Vec<(f64, Timestamp)>,
}

impl Batch {
    pub fn new(shared: Vec<(String, String)>) -> Self {
        let mut batch = Self {
            shared,
            symbols: Vec::new(),
            numbers: HashMap::new(),
            series: BTreeMap::new(),
            family: (String::new(), Kind::Gauge, 0),
            time: Timestamp(0),
            n_samples: 0,
        };
        // The protocol wants the empty text to be the first symbol.
        batch.symbol("");
        batch
    }

    /// What samples without a time are to carry.
    pub fn set_time(&mut self, time: Timestamp) {
        self.time = time;
    }

    pub fn n_samples(&self) -> usize {
        self.n_samples
    }

    fn symbol(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.symbols.len() as u32;
        self.symbols.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn push(&mut self, labels: Labels, value: f64, time: Timestamp) {
        let (_, kind, help) = self.family;
        let series = self.series.entry(labels).or_insert_with(|| Series { kind, help, samples: Vec::new() });
        series.samples.push((value, time));
        self.n_samples += 1;
    }

    /// Which series there are.
    pub fn outline(&self) -> Outline {
        Outline { symbols: self.symbols.clone(), series: self.series.keys().cloned().collect() }
    }

    /// Marks the end of series that were there before and are not now.
    pub fn end_those_not_there(&mut self, before: &Outline) {
        for labels in &before.series {
            let labels: Labels =
                labels.iter().map(|number| self.symbol(&before.symbols[*number as usize])).collect();
            if !self.series.contains_key(&labels) {
                self.family = (String::new(), Kind::Gauge, 0);
                self.push(labels, STALE, self.time);
            }
        }
    }

    pub fn encode(&self, version: Version) -> Vec<u8> {
        match version {
            Version::One => self.version_1().encode_to_vec(),
            Version::Two => self.version_2().encode_to_vec(),
        }
    }

    fn version_1(&self) -> v1::WriteRequest {
        let text = |number: &u32| self.symbols[*number as usize].clone();
        let timeseries = self.series.iter().map(|(labels, series)| v1::TimeSeries {
            labels: labels
                .chunks_exact(2)
                .map(|pair| v1::Label { name: text(&pair[0]), value: text(&pair[1]) })
                .collect(),
            samples: series
                .samples
                .iter()
                .map(|(value, time)| v1::Sample { value: *value, timestamp: time.0 })
                .collect(),
        });
        v1::WriteRequest { timeseries: timeseries.collect() }
    }

    fn version_2(&self) -> v2::Request {
        let timeseries = self.series.iter().map(|(labels, series)| v2::TimeSeries {
            labels_refs: labels.clone(),
            samples: series
                .samples
                .iter()
                .map(|(value, time)| v2::Sample { value: *value, timestamp: time.0 })
                .collect(),
            metadata: Some(v2::Metadata {
                kind: match series.kind {
                    Kind::Counter => v2::COUNTER,
                    Kind::Gauge => v2::GAUGE,
                    Kind::Info => v2::INFO,
                },
                help_ref: series.help,
                unit_ref: 0,
            }),
        });
        v2::Request { symbols: self.symbols.clone(), timeseries: timeseries.collect() }
    }
}

impl Sink for Batch {
    fn family(&mut self, family: Family<'_>) {
        let help = self.symbol(family.help);
        self.family = (family.name.to_owned(), family.kind, help);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64, time: Option<Timestamp>) {
        let name = std::mem::take(&mut self.family.0);
        let shared = std::mem::take(&mut self.shared);
        let mut all: Vec<(&str, &str)> = vec![("__name__", &name)];
        // A label without a value is the same as none.
        all.extend(labels.iter().filter(|(_, value)| !value.is_empty()));
        // A label of the series' own counts more than one that all have.
        let is_free = |name: &str| labels.iter().all(|(own, _)| *own != name);
        let shared_labels = shared.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.extend(shared_labels.filter(|(name, _)| is_free(name)));
        all.sort_unstable();
        let mut numbers = Labels::with_capacity(all.len() * 2);
        for (name, value) in all {
            numbers.push(self.symbol(name));
            numbers.push(self.symbol(value));
        }
        self.family.0 = name;
        self.shared = shared;
        self.push(numbers, value, time.unwrap_or(self.time));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

impl Version {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::One => "application/x-protobuf",
            Self::Two => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    pub const fn number(self) -> &'static str {
        match self {
            Self::One => "0.1.0",
            Self::Two => "2.0.0",
        }
    }
}

/// Ends series: writes a stale marker for every sample.
pub struct Ending<'a>(pub &'a mut Batch);

impl Sink for Ending<'_> {
    fn family(&mut self, family: Family<'_>) {
        self.0.family(family);
    }

    fn sample(&mut self, labels: &[(&str, &str)], _: f64, time: Option<Timestamp>) {
        self.0.sample(labels, STALE, time);
    }
}
