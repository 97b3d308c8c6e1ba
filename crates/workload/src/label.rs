//! Labels: the known kind of a job, and the set that it is used for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{Cpu, JobId, NodeName};
use crate::time::Timestamp;

/// What the jobs of a campaign are used for. Test data is used neither for training nor for model selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// Detectors are trained on it.
    Train,
    /// Thresholds and hyper-parameters are chosen on it.
    Validation,
    /// Detectors are evaluated on it.
    Test,
}

impl Set {
    /// Every set.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One job of a campaign, on the threads of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// The campaign that the job belongs to.
    pub campaign: String,
    /// What the job is used for.
    pub set: Set,
    /// What the job is, such as `np` or `bad-io`.
    pub kind: String,
    /// Whether the job is an anomaly; absent in labels that were written before this field existed
    /// (see [`Label::is_anomalous`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomalous: Option<bool>,
    /// The job.
    pub job: JobId,
    /// The node that it ran on.
    pub node: NodeName,
    /// The threads that it owned.
    pub threads: Vec<Cpu>,
    /// When it started.
    pub start: Timestamp,
    /// The time of its last reading.
    pub end: Timestamp,
    /// How the job was made, if there is more than one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// The fraction of its threads' time that other processes took, including the recording; absent if it
    /// was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<f64>,
}

/// The kinds that are anomalous where a label does not say so.
pub const ANOMALOUS_KINDS: [&str; 7] =
    ["bad-io", "cpu-hog", "memory-pressure", "stuck-rank", "throttled", "leak", "runaway"];

impl Label {
    /// Whether the job is an anomaly: as the label says, or else by the name of its kind.
    pub fn is_anomalous(&self) -> bool {
        self.anomalous.unwrap_or_else(|| ANOMALOUS_KINDS.contains(&family(&self.kind)))
    }
}

/// A fault that was injected into part of a job's trace, on the threads of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// The kind of fault.
    #[serde(alias = "trouble")]
    pub fault: String,
    /// The fraction of time that was moved between modes.
    pub strength: f32,
    /// The job.
    pub job: JobId,
    /// The node.
    pub node: NodeName,
    /// The threads.
    pub threads: Vec<Cpu>,
    /// First moment of the fault.
    pub start: Timestamp,
    /// First moment after the fault.
    pub end: Timestamp,
}

/// The name that kinds share which differ in size only: a kind without the number at its end, so that
/// `mpi-2` and `mpi-16` are both `mpi`.
pub fn family(kind: &str) -> &str {
    match kind.rsplit_once('-') {
        Some((family, size)) if !family.is_empty() && size.parse::<u32>().is_ok() => family,
        _ => kind,
    }
}

/// Sorts labels by start and job.
pub fn sort(labels: &mut [Label]) {
    labels.sort_by(|a, b| (a.start, &a.job).cmp(&(b.start, &b.job)));
}

/// Two labels of different sets that overlap in time, if there are any.
pub fn overlapping_sets(labels: &[Label]) -> Option<(&Label, &Label)> {
    let mut by_start: Vec<&Label> = labels.iter().collect();
    by_start.sort_by_key(|label| label.start);
    // For each set, the label that ends last of those that have started.
    let mut last: [Option<&Label>; 3] = [None; 3];
    for label in by_start {
        for set in Set::ALL.into_iter().filter(|set| *set != label.set) {
            if let Some(other) = last[set as usize].filter(|other| other.end > label.start) {
                return Some((other, label));
            }
        }
        let own = &mut last[label.set as usize];
        if own.is_none_or(|known| known.end < label.end) {
            *own = Some(label);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(set: Set, start: i64, end: i64) -> Label {
        Label {
            campaign: set.to_string(),
            set,
            kind: "np".into(),
            anomalous: None,
            job: JobId::new(format!("{set}-{start}")).unwrap(),
            node: NodeName::new("n1").unwrap(),
            threads: vec![Cpu(0)],
            start: Timestamp::from_seconds(start),
            end: Timestamp::from_seconds(end),
            made_by: None,
            disturbance: None,
        }
    }

    #[test]
    fn only_different_sets_can_overlap() {
        let apart = [label(Set::Train, 0, 10), label(Set::Train, 5, 20), label(Set::Test, 20, 30)];
        assert_eq!(overlapping_sets(&apart), None);
        let within = [label(Set::Train, 0, 100), label(Set::Train, 5, 10), label(Set::Test, 50, 60)];
        let (one, other) = overlapping_sets(&within).unwrap();
        assert_eq!((one.set, other.set), (Set::Train, Set::Test));
    }

    #[test]
    fn a_label_that_does_not_say_so_is_anomalous_by_its_kind() {
        let of = |kind: &str, anomalous| Label { kind: kind.into(), anomalous, ..label(Set::Test, 0, 1) };
        assert!(of("bad-io", None).is_anomalous());
        assert!(!of("bad-io", Some(false)).is_anomalous());
        assert!(of("my-own-kind", Some(true)).is_anomalous());
        assert!(!of("my-own-kind", None).is_anomalous());
    }

    #[test]
    fn kinds_that_differ_in_size_are_one_family() {
        for (kind, expected) in
            [("mpi-2", "mpi"), ("mpi-16", "mpi"), ("good-io", "good-io"), ("np", "np"), ("-3", "-3")]
        {
            assert_eq!(family(kind), expected);
        }
    }

    #[test]
    fn times_are_epoch_seconds_and_absent_words_are_left_out() {
        let text = serde_json::to_string(&label(Set::Train, 12, 40)).unwrap();
        assert!(text.contains(r#""start":12,"end":40}"#), "{text}");
        assert_eq!(serde_json::from_str::<Label>(&text).unwrap(), label(Set::Train, 12, 40));
    }
}
