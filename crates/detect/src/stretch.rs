//! Stretches: the steps of one thread that one job owned without a gap, with the kind of that job.

use std::collections::{BTreeMap, BTreeSet};

use archive::{Archive, Selection};
use workload::{Derivation, JobId, Label, Millis, NodeName, Owner, Rates, Set, ThreadId, Timestamp, Trace};

/// The name of each job's kind.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    known: BTreeMap<JobId, (String, Option<Set>)>,
    sets: Option<BTreeSet<Set>>,
}

impl Kinds {
    /// Kinds by label. A job without one is a kind of its own, unless there are labels at all.
    pub fn from_labels(labels: &[Label]) -> Self {
        let known = labels.iter().map(|label| (label.job.clone(), (label.kind.clone(), Some(label.set))));
        Self { known: known.collect(), sets: None }
    }

    /// Kinds by the names that a scheduler has for jobs.
    pub fn from_names(names: impl IntoIterator<Item = (JobId, String)>) -> Self {
        Self { known: names.into_iter().map(|(job, name)| (job, (name, None))).collect(), sets: None }
    }

    /// Only labelled jobs of these sets.
    #[must_use]
    pub fn only(mut self, sets: impl IntoIterator<Item = Set>) -> Self {
        self.sets = Some(sets.into_iter().collect());
        self
    }

    fn kind<'a>(&'a self, job: &'a JobId) -> Option<&'a str> {
        match self.known.get(job) {
            Some((kind, set)) => {
                let is_wanted = |set: Set| self.sets.as_ref().is_none_or(|sets| sets.contains(&set));
                set.is_none_or(is_wanted).then_some(kind)
            }
            None => self.known.is_empty().then(|| job.as_str()),
        }
    }
}

/// What one job did on one thread, step by step.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    pub kind: &'a str,
    pub job: &'a JobId,
    pub thread: &'a ThreadId,
    pub rates: &'a [Rates],
}

/// The stretches of an archive, a node's day at a time.
#[derive(Debug)]
pub struct Stretches<'a> {
    archive: &'a Archive,
    kinds: &'a Kinds,
    days: Vec<(NodeName, Timestamp)>,
    pub period: Millis,
}

impl<'a> Stretches<'a> {
    pub fn of(archive: &'a Archive, kinds: &'a Kinds) -> archive::Result<Self> {
        let snapshot = archive.snapshot(Selection::default())?;
        let mut days = Vec::new();
        let mut period = Millis::SECOND;
        for node in snapshot.nodes() {
            let Some((first, last)) = snapshot.bounds(&node) else { continue };
            period = period.max(snapshot.period(&node));
            let mut day = first.floor(Millis::DAY);
            while day <= last {
                days.push((node.clone(), day));
                day = day + Millis::DAY;
            }
        }
        Ok(Self { archive, kinds, days, period })
    }

    /// Visits every stretch, and tells how many of how many days are done.
    pub fn for_each(
        &self,
        mut visit: impl FnMut(Stretch<'_>),
        mut progress: impl FnMut(u64, u64),
    ) -> archive::Result<()> {
        for (index, (node, day)) in self.days.iter().enumerate() {
            let selection = Selection { from: *day, to: *day + Millis::DAY, ..Selection::default() };
            let selection = Selection { node: Some(node.clone()), ..selection };
            let derivation = Derivation { period: self.period, ..Derivation::default() };
            for trace in self.archive.snapshot(selection)?.traces(node, &derivation)? {
                self.cut(&trace, &mut visit);
            }
            progress(index as u64 + 1, self.days.len() as u64);
        }
        Ok(())
    }

    fn cut(&self, trace: &Trace, visit: &mut impl FnMut(Stretch<'_>)) {
        let owner_at = |index: usize| trace.rates(index).map(|_| trace.owner(index));
        let mut first = 0;
        while first < trace.len() {
            let owner = owner_at(first);
            let mut end = first + 1;
            while end < trace.len() && owner_at(end) == owner {
                end += 1;
            }
            if let Some((Owner::Job(job), window)) = owner.zip(trace.window(first, end - first))
                && let Some(kind) = self.kinds.kind(job)
            {
                visit(Stretch { kind, job, thread: trace.thread(), rates: window.rates() });
            }
            first = end;
        }
    }
}
