//! Events: what administrators are told, once each.

use std::fmt;

use learn::artifact::hexadecimal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use workload::{Cpu, JobId, NodeName, Timestamp};

use crate::evidence::{Evidence, Subject};
use crate::kind_classifier::KindMatch;

/// The number of hexadecimal digits of an id.
const ID_DIGITS: usize = 16;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventSubject {
    Job,
    Node,
    Cluster,
}

impl fmt::Display for EventSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job => "job",
            Self::Node => "node",
            Self::Cluster => "cluster",
        })
    }
}

/// An anomaly, from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The same for the same subject and start, live or from an archive.
    pub id: String,
    pub subject: EventSubject,
    /// Where it began; absent for the cluster.
    pub node: Option<NodeName>,
    /// All nodes that it has reached.
    pub nodes: Vec<NodeName>,
    /// The responsible job first, then those that it affects.
    pub jobs: Vec<JobId>,
    /// The threads that deviate on `node`.
    pub threads: Vec<Cpu>,
    /// The start of the first window that deviated.
    pub start: Timestamp,
    /// Absent while it is open.
    pub end: Option<Timestamp>,
    /// When there was enough evidence.
    pub opened: Timestamp,
    /// The largest evidence in units of its threshold: above 1.
    pub strength: f64,
    /// The source of the evidence that opened it.
    pub level: Evidence,
    pub channels: Vec<String>,
    /// The most similar known kinds, the most likely first.
    pub kinds: Vec<KindMatch>,
    /// The probability that the evidence exceeds the threshold, given how uncertain both are.
    pub certainty: f64,
    pub why: String,
    /// The embedding of the window that opened it, to compare events of one model. It is not part of the JSON.
    #[serde(skip)]
    pub embedding: Vec<f32>,
}

impl Event {
    pub fn is_open(&self) -> bool {
        self.end.is_none()
    }
}

/// The id of an event: a hash of its subject and start.
pub fn event_id(subject: &Subject, start: Timestamp) -> String {
    let mut digits = hexadecimal(&Sha256::digest(format!("{subject:?} {}", start.0)));
    digits.truncate(ID_DIGITS);
    digits
}

/// What happened to an event.
#[derive(Debug, Clone, PartialEq)]
pub enum EventChange {
    Opened(Event),
    /// It deviates again soon after it was closed.
    Reopened(Event),
    Closed(Event),
}

impl EventChange {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Opened(_) => "opened",
            Self::Reopened(_) => "reopened",
            Self::Closed(_) => "closed",
        }
    }

    pub fn event(&self) -> &Event {
        match self {
            Self::Opened(event) | Self::Reopened(event) | Self::Closed(event) => event,
        }
    }
}
