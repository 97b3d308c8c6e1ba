//! Which windows belong to training, validation and test: by label, or by the amount of data where there are none; and
//! which part of an archive is used at all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use archive::Archive;
use serde::{Deserialize, Serialize};
use workload::{Control, JobId, Label, NodeName, Owner, Set, Timestamp};

use crate::archive_windows::Reading;
use crate::window::WindowSpec;

/// Without labels, the fractions of the data that are used for training and for validation.
const TRAIN_FRACTION: f64 = 0.6;
const VALIDATION_FRACTION: f64 = 0.2;
/// Whole jobs are not assigned to sets if one of the sets would have less than this fraction of the data.
const MIN_FRACTION: f64 = 0.1;

/// Selects windows by their owner and time.
#[derive(Debug, Clone)]
pub enum WindowFilter {
    All,
    /// The jobs that labels put into a set. Threads without a job belong to the set whose campaign was running.
    Labelled {
        sets: BTreeMap<JobId, Set>,
        campaigns: Vec<Campaign>,
        set: Set,
    },
    /// The jobs, or the stretch of time, of a set in an archive without labels.
    Unlabelled {
        split: Split,
        set: Set,
    },
    /// Windows of a part of the archive that pass another filter as well.
    Within {
        scope: Arc<Scope>,
        filter: Box<Self>,
    },
}

/// A stretch of time: of a job, of a node, or of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub from: Timestamp,
    pub to: Timestamp,
    pub node: Option<NodeName>,
    pub job: Option<JobId>,
}

impl Span {
    /// A stretch of time of the whole cluster.
    pub fn of_time(from: Timestamp, to: Timestamp) -> Self {
        Self { from, to, node: None, job: None }
    }

    fn concerns(&self, node: &NodeName, owner: &Owner) -> bool {
        self.node.as_ref().is_none_or(|of| of == node)
            && self.job.as_ref().is_none_or(|of| owner.job() == Some(of))
    }

    /// Whether it has a moment in common with a stretch of time.
    pub fn overlaps(&self, start: Timestamp, end: Timestamp) -> bool {
        start < self.to && end > self.from
    }
}

/// A part of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Windows that lie within one of these are used.
    pub included: Vec<Span>,
    /// Windows that overlap with one of these are not.
    pub excluded: Vec<Span>,
}

impl Scope {
    fn contains(&self, node: &NodeName, owner: &Owner, start: Timestamp, end: Timestamp) -> bool {
        let is_within = |span: &Span| start >= span.from && end <= span.to && span.concerns(node, owner);
        let is_excluded = |span: &Span| span.overlaps(start, end) && span.concerns(node, owner);
        self.included.iter().any(is_within) && !self.excluded.iter().any(is_excluded)
    }

    /// All of its windows.
    pub fn filter(self) -> WindowFilter {
        WindowFilter::Within { scope: Arc::new(self), filter: Box::new(WindowFilter::All) }
    }
}

/// The time of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    set: Set,
    from: Timestamp,
    to: Timestamp,
}

impl WindowFilter {
    /// The windows of a set: by label, or by the amount of data in an archive without labels.
    pub fn of_set(
        archive: &Archive,
        labels: &[Label],
        set: Set,
        spec: &WindowSpec,
        control: Control<'_>,
    ) -> archive::Result<Self> {
        if labels.is_empty() {
            return Ok(Self::Unlabelled { split: Split::of(archive, &Self::All, spec, control)?, set });
        }
        Ok(Self::labelled(labels, set))
    }

    /// The windows of a set in a part of an archive, whatever labels say.
    pub fn of_scope(
        archive: &Archive,
        scope: Scope,
        set: Set,
        spec: &WindowSpec,
        control: Control<'_>,
    ) -> archive::Result<Self> {
        let all = scope.filter();
        let split = Split::of(archive, &all, spec, control)?;
        Ok(match all {
            Self::Within { scope, .. } => {
                Self::Within { scope, filter: Box::new(Self::Unlabelled { split, set }) }
            }
            other => other,
        })
    }

    /// The windows that labels put into a set.
    pub fn labelled(labels: &[Label], set: Set) -> Self {
        let sets = labels.iter().map(|label| (label.job.clone(), label.set)).collect();
        let mut spans: BTreeMap<&str, Campaign> = BTreeMap::new();
        for label in labels {
            let campaign = spans.entry(&label.campaign).or_insert_with(|| Campaign {
                set: label.set,
                from: label.start,
                to: label.end,
            });
            campaign.from = campaign.from.min(label.start);
            campaign.to = campaign.to.max(label.end);
        }
        Self::Labelled { sets, campaigns: spans.into_values().collect(), set }
    }

    /// The filter of another set, split in the same way.
    #[must_use]
    pub fn for_set(&self, set: Set) -> Self {
        match self.clone() {
            Self::All => Self::All,
            Self::Labelled { sets, campaigns, .. } => Self::Labelled { sets, campaigns, set },
            Self::Unlabelled { split, .. } => Self::Unlabelled { split, set },
            Self::Within { scope, filter } => Self::Within { scope, filter: Box::new(filter.for_set(set)) },
        }
    }

    /// Whether some window between these times, of a node or of any, may pass the filter.
    pub(crate) fn reaches(&self, node: Option<&NodeName>, from: Timestamp, to: Timestamp) -> bool {
        let is_of = |span: &Span| span.node.is_none() || node.is_none() || span.node.as_ref() == node;
        match self {
            Self::Within { scope, .. } => {
                scope.included.iter().any(|span| span.overlaps(from, to) && is_of(span))
            }
            _ => true,
        }
    }

    /// Whether some window of a job may pass the filter.
    pub fn contains_job(&self, job: &JobId) -> bool {
        match self {
            Self::All => true,
            Self::Labelled { sets, set, .. } => sets.get(job) == Some(set),
            Self::Unlabelled { split, set } => {
                split.jobs.as_ref().is_none_or(|jobs| jobs.get(job) == Some(set))
            }
            Self::Within { filter, .. } => filter.contains_job(job),
        }
    }

    /// Whether a window passes the filter.
    pub fn contains(&self, node: &NodeName, owner: &Owner, start: Timestamp, end: Timestamp) -> bool {
        match (self, owner) {
            (Self::All, _) => true,
            (Self::Within { scope, filter }, _) => {
                scope.contains(node, owner, start, end) && filter.contains(node, owner, start, end)
            }
            (Self::Labelled { .. }, Owner::Job(job)) => self.contains_job(job),
            (Self::Labelled { campaigns, set, .. }, _) => campaigns
                .iter()
                .any(|campaign| campaign.set == *set && start >= campaign.from && end <= campaign.to),
            (Self::Unlabelled { split: Split { jobs: Some(_), .. }, .. }, Owner::Job(job)) => {
                self.contains_job(job)
            }
            (Self::Unlabelled { split, set }, _) => split.contains(*set, start, end),
        }
    }
}

/// How an archive without labels is split: whole jobs in the order of their starts, so that each set has its
/// fraction of the windows. Where jobs are too few or too long for that, time decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    train_end: Timestamp,
    validation_end: Timestamp,
    /// The set of each job; absent if time decides.
    jobs: Option<BTreeMap<JobId, Set>>,
}

impl Split {
    /// Reads the archive once to see how much data there is when, and of which jobs.
    fn of(
        archive: &Archive,
        filter: &WindowFilter,
        spec: &WindowSpec,
        control: Control<'_>,
    ) -> archive::Result<Self> {
        let spec = WindowSpec { stride: spec.n_steps, job_channels: Vec::new(), ..spec.clone() };
        let reading = Reading { archive, filter, spec: &spec, control };
        let mut windows: Vec<(Timestamp, Owner)> = Vec::new();
        reading.for_each_batch::<archive::Error>(|batch| {
            windows.extend(batch.threads().iter().map(|thread| (batch.start(), thread.owner.clone())));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self::of_windows(&windows))
    }

    /// The split of windows that are sorted by time.
    fn of_windows(windows: &[(Timestamp, Owner)]) -> Self {
        let at = |fraction: f64| {
            let index = (windows.len() as f64 * fraction) as usize;
            windows.get(index).or(windows.last()).map_or(Timestamp(0), |(start, _)| *start)
        };
        let (train_end, validation_end) = (at(TRAIN_FRACTION), at(TRAIN_FRACTION + VALIDATION_FRACTION));
        let split = Self { train_end, validation_end, jobs: None };
        let mut jobs = BTreeMap::new();
        let mut n_windows: BTreeMap<Set, usize> = BTreeMap::new();
        for (start, owner) in windows {
            let set = match owner {
                Owner::Job(job) => *jobs.entry(job.clone()).or_insert_with(|| split.set_at(*start)),
                _ => split.set_at(*start),
            };
            *n_windows.entry(set).or_default() += 1;
        }
        let min_windows = windows.len() as f64 * MIN_FRACTION;
        let sets_with_jobs: BTreeSet<Set> = jobs.values().copied().collect();
        let is_enough = |set: &Set| n_windows.get(set).is_some_and(|count| *count as f64 >= min_windows);
        let has_all = sets_with_jobs.len() == Set::ALL.len() && Set::ALL.iter().all(is_enough);
        Self { jobs: has_all.then_some(jobs), ..split }
    }

    fn set_at(&self, time: Timestamp) -> Set {
        if time < self.train_end {
            Set::Train
        } else if time < self.validation_end {
            Set::Validation
        } else {
            Set::Test
        }
    }

    fn contains(&self, set: Set, start: Timestamp, end: Timestamp) -> bool {
        match set {
            Set::Train => end <= self.train_end,
            Set::Validation => start >= self.train_end && end <= self.validation_end,
            Set::Test => start >= self.validation_end,
        }
    }
}

#[cfg(test)]
mod tests {
    use workload::Cpu;

    use super::*;

    fn label(campaign: &str, job: &str, set: Set, start: i64, end: i64) -> Label {
        Label {
            campaign: campaign.into(),
            set,
            kind: "np".into(),
            anomalous: None,
            job: JobId::new(job).unwrap(),
            node: NodeName::new("n1").unwrap(),
            threads: vec![Cpu(0)],
            start: Timestamp(start),
            end: Timestamp(end),
            made_by: None,
            disturbance: None,
        }
    }

    fn node() -> NodeName {
        NodeName::new("n1").unwrap()
    }

    fn job(name: &str) -> Owner {
        Owner::Job(JobId::new(name).unwrap())
    }

    #[test]
    fn labels_decide_for_jobs_and_campaigns_for_threads_without_one() {
        let labels = [
            label("a", "1", Set::Train, 100, 200),
            label("a", "2", Set::Train, 150, 400),
            label("b", "3", Set::Test, 500, 600),
        ];
        let train = WindowFilter::labelled(&labels, Set::Train);
        let times = (Timestamp(120), Timestamp(180));
        assert!(train.contains(&node(), &job("1"), times.0, times.1));
        assert!(!train.contains(&node(), &job("3"), times.0, times.1));
        assert!(!train.contains(&node(), &job("unlabelled"), times.0, times.1));
        assert!(
            train.contains(&node(), &Owner::Nobody, times.0, times.1),
            "no job owned it during campaign a"
        );
        assert!(!train.contains(&node(), &Owner::Nobody, Timestamp(350), Timestamp(450)));
        assert!(
            !train.contains(&node(), &Owner::Nobody, Timestamp(520), Timestamp(560)),
            "campaign b is for testing"
        );
        assert!(WindowFilter::labelled(&labels, Set::Test).contains(
            &node(),
            &Owner::Unknown,
            Timestamp(520),
            Timestamp(560)
        ));
    }

    /// A window every second, each of a job that lasts `job_length` windows.
    fn windows(n_windows: i64, job_length: i64, time: impl Fn(i64) -> i64) -> Vec<(Timestamp, Owner)> {
        (0..n_windows).map(|at| (Timestamp(time(at)), job(&(at / job_length).to_string()))).collect()
    }

    fn counts(windows: &[(Timestamp, Owner)]) -> [usize; 3] {
        let split = Split::of_windows(windows);
        Set::ALL.map(|set| {
            let filter = WindowFilter::Unlabelled { split: split.clone(), set };
            windows.iter().filter(|(start, owner)| filter.contains(&node(), owner, *start, *start)).count()
        })
    }

    #[test]
    fn the_amount_of_data_decides_also_with_a_weekend_in_between() {
        let even = windows(1_000, 10, |at| at);
        assert_eq!(counts(&even), [600, 200, 200]);
        let with_gap = windows(1_000, 10, |at| if at < 700 { at } else { at + 1_000_000 });
        assert_eq!(counts(&with_gap), [600, 200, 200]);
    }

    #[test]
    fn a_job_is_in_one_set_unless_jobs_are_too_long() {
        let [train, validation, test] = counts(&windows(1_000, 90, |at| at));
        assert_eq!(train + validation + test, 1_000);
        assert!(train % 90 == 0 && validation % 90 == 0, "{train} {validation}");
        let one_job = counts(&windows(1_000, 1_000, |at| at));
        assert!(one_job.iter().all(|count| *count >= 199), "time decides: {one_job:?}");
    }

    #[test]
    fn an_empty_archive_has_empty_sets() {
        assert_eq!(counts(&[]), [0, 0, 0]);
    }

    #[test]
    fn a_scope_contains_what_is_included_and_not_excluded() {
        let at = |seconds: i64| Timestamp(seconds * 1_000);
        let other = NodeName::new("n2").unwrap();
        let scope = Scope {
            included: vec![Span::of_time(at(100), at(500))],
            excluded: vec![
                Span { node: Some(other.clone()), ..Span::of_time(at(0), at(300)) },
                Span { job: Some(JobId::new("bad").unwrap()), ..Span::of_time(at(150), at(160)) },
            ],
        };
        let filter = scope.filter();
        let contains = |node: &NodeName, owner: &Owner, start: i64| {
            filter.contains(node, owner, at(start), at(start + 50))
        };
        assert!(contains(&node(), &job("1"), 100) && contains(&node(), &Owner::Nobody, 450));
        assert!(!contains(&node(), &job("1"), 99) && !contains(&node(), &job("1"), 451));
        assert!(!contains(&other, &job("1"), 299) && contains(&other, &job("1"), 300));
        assert!(!contains(&node(), &job("bad"), 110) && contains(&node(), &job("bad"), 160));
        assert!(contains(&node(), &job("1"), 110), "another job at the same time");
        assert!(filter.reaches(None, at(499), at(600)) && !filter.reaches(Some(&node()), at(500), at(600)));
    }
}
