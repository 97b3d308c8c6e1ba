//! Stretches: consecutive steps of one thread that the same job owned, with the kind of that job.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use archive::{Archive, Selection};
use workload::{
    Control, Derivation, JobId, Label, Millis, NodeName, Owner, Rates, Set, Stopped, ThreadId, Timestamp,
    Trace,
};

/// The kind of each job, and which jobs are wanted.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    known: BTreeMap<JobId, KnownJob>,
    sets: Option<BTreeSet<Set>>,
}

#[derive(Debug, Clone)]
struct KnownJob {
    kind: String,
    set: Option<Set>,
}

impl Kinds {
    /// Kinds by label. Jobs without a label are left out; if there are no labels at all, each job is a kind of
    /// its own.
    pub fn from_labels(labels: &[Label]) -> Self {
        let job = |label: &Label| KnownJob { kind: label.kind.clone(), set: Some(label.set) };
        Self { known: labels.iter().map(|label| (label.job.clone(), job(label))).collect(), sets: None }
    }

    /// Kinds by the job names of a scheduler.
    pub fn from_names(names: impl IntoIterator<Item = (JobId, String)>) -> Self {
        let known = names.into_iter().map(|(job, kind)| (job, KnownJob { kind, set: None }));
        Self { known: known.collect(), sets: None }
    }

    /// Keeps only labelled jobs of these sets.
    #[must_use]
    pub fn only(mut self, sets: impl IntoIterator<Item = Set>) -> Self {
        self.sets = Some(sets.into_iter().collect());
        self
    }

    fn kind<'a>(&'a self, job: &'a JobId) -> Option<&'a str> {
        let Some(known) = self.known.get(job) else {
            return self.known.is_empty().then(|| job.as_str());
        };
        let is_wanted = |set: Set| self.sets.as_ref().is_none_or(|sets| sets.contains(&set));
        known.set.is_none_or(is_wanted).then_some(&known.kind)
    }
}

/// The rates of one thread while one job owned it, without a gap.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    pub kind: &'a str,
    pub job: &'a JobId,
    pub thread: &'a ThreadId,
    pub rates: &'a [Rates],
}

/// The stretches of an archive. They are read in pieces of at most a day of one node, at whose borders
/// stretches are cut.
#[derive(Debug)]
pub struct Stretches<'a> {
    archive: &'a Archive,
    kinds: &'a Kinds,
    pieces: Vec<Piece>,
    period: Millis,
}

#[derive(Debug, Clone)]
struct Piece {
    node: NodeName,
    from: Timestamp,
    to: Timestamp,
}

impl<'a> Stretches<'a> {
    pub fn of(archive: &'a Archive, kinds: &'a Kinds) -> archive::Result<Self> {
        let snapshot = archive.snapshot(Selection::default())?;
        let nodes = snapshot.nodes();
        let period = nodes.iter().map(|node| snapshot.period(node)).max().unwrap_or(Millis::SECOND);
        let length = piece_length(period);
        let mut pieces = Vec::new();
        for node in nodes {
            let Some((first, last)) = snapshot.bounds(&node) else { continue };
            let mut from = first.floor(length);
            while from <= last {
                let to = from + length;
                pieces.push(Piece { node: node.clone(), from, to });
                from = to;
            }
        }
        Ok(Self { archive, kinds, pieces, period })
    }

    /// The time between two steps: the sampling period of the archive. If nodes were sampled at different
    /// periods, it is the longest of them.
    pub fn period(&self) -> Millis {
        self.period
    }

    /// Visits every stretch, until the visitor breaks or fails, or `control` stops it.
    pub fn for_each<E>(
        &self,
        control: &Control<'_>,
        mut visit: impl FnMut(Stretch<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E>
    where
        E: From<archive::Error> + From<Stopped>,
    {
        let archive = self.archive.with_stop(control.stop());
        let derivation = Derivation { period: self.period, ..Derivation::default() };
        for (index, Piece { node, from, to }) in self.pieces.iter().enumerate() {
            let selection =
                Selection { node: Some(node.clone()), from: *from, to: *to, ..Selection::default() };
            for trace in archive.snapshot(selection)?.traces(node, &derivation)? {
                control.check()?;
                if self.visit_trace(&trace, &mut visit)?.is_break() {
                    return Ok(());
                }
            }
            control.report(index as u64 + 1, self.pieces.len() as u64)?;
        }
        Ok(())
    }

    fn visit_trace<E>(
        &self,
        trace: &Trace,
        visit: &mut impl FnMut(Stretch<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
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
                && visit(Stretch { kind, job, thread: trace.thread(), rates: window.rates() })?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            first = end;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A day at one second and above; less below that, so that a piece has as many steps, but at least an hour.
fn piece_length(period: Millis) -> Millis {
    Millis(Millis::DAY.0 / Millis::SECOND.0 * period.0).clamp(Millis::HOUR, Millis::DAY)
}

#[cfg(test)]
mod tests {
    use workload::Stop;

    use super::*;
    use crate::analysis::recording::{Recording, START};

    fn collect(archive: &Archive, kinds: &Kinds) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        Stretches::of(archive, kinds)
            .unwrap()
            .for_each(&Control::default(), |stretch| -> archive::Result<ControlFlow<()>> {
                found.push((stretch.kind.to_owned(), stretch.rates.len()));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        found.sort();
        found
    }

    /// Jobs 1 and 2 own a thread each, twice, with nobody in between.
    fn recording() -> Recording {
        let mut recording = Recording::new(Millis::SECOND);
        for step in 0..100 {
            let first = match step {
                0..40 => Some("1"),
                40..50 => None,
                _ => Some("1"),
            };
            recording.step(step, &[(first, 0.5), ((!(60..80).contains(&step)).then_some("2"), 0.2)]);
        }
        recording
    }

    #[test]
    fn a_stretch_ends_where_the_owner_changes() {
        let recording = recording();
        let found = collect(&recording.archive(), &Kinds::default());
        // The first reading only starts the counters.
        let expected = [("1", 39), ("1", 50), ("2", 20), ("2", 59)];
        assert_eq!(found, expected.map(|(kind, steps)| (kind.to_owned(), steps)));
    }

    #[test]
    fn a_stretch_ends_where_readings_are_missing() {
        let mut recording = Recording::new(Millis::SECOND);
        for step in (0..50).chain(100..150) {
            recording.step(step, &[(Some("1"), 0.5)]);
        }
        // The first reading after the gap only starts the counters again.
        let found = collect(&recording.archive(), &Kinds::default());
        assert_eq!(found.iter().map(|(_, steps)| *steps).collect::<Vec<_>>(), [49, 49]);
    }

    #[test]
    fn labels_decide_which_jobs_are_visited_and_what_kind_they_are() {
        let recording = recording();
        let archive = recording.archive();
        let kinds = |sets: &[Set]| {
            let labels = [recording.label("1", "np", Set::Train), recording.label("2", "idle", Set::Test)];
            Kinds::from_labels(&labels).only(sets.iter().copied())
        };
        let names = |found: Vec<(String, usize)>| found.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(names(collect(&archive, &kinds(&[Set::Train]))), ["np", "np"]);
        assert_eq!(names(collect(&archive, &kinds(&[Set::Test]))), ["idle", "idle"]);
        assert_eq!(names(collect(&archive, &kinds(&Set::ALL))).len(), 4);
        let only_first = [recording.label("1", "np", Set::Train)];
        assert_eq!(names(collect(&archive, &Kinds::from_labels(&only_first))), ["np", "np"]);
        let named = Kinds::from_names([(JobId::new("2").unwrap(), "lammps".to_owned())]);
        assert_eq!(names(collect(&archive, &named)), ["lammps", "lammps"]);
    }

    #[test]
    fn the_period_is_that_of_the_archive() {
        for period in [Millis(100), Millis(1_000), Millis(15_000)] {
            let mut recording = Recording::new(period);
            for step in 0..20 {
                recording.step(step, &[(Some("1"), 0.5)]);
            }
            let (archive, kinds) = (recording.archive(), Kinds::default());
            assert_eq!(Stretches::of(&archive, &kinds).unwrap().period(), period);
            assert_eq!(collect(&archive, &kinds), [("1".to_owned(), 19)]);
        }
    }

    #[test]
    fn pieces_have_at_most_as_many_steps_as_a_day_of_seconds() {
        let mut recording = Recording::new(Millis::SECOND);
        assert_eq!(START.floor(Millis::DAY), START);
        let midnight = Millis::DAY.0 / Millis::SECOND.0;
        for step in midnight - 10..midnight + 10 {
            recording.step(step, &[(Some("1"), 0.5)]);
        }
        // Ten readings before midnight, of which the first only starts the counters.
        let found = collect(&recording.archive(), &Kinds::default());
        assert_eq!(found.iter().map(|(_, steps)| *steps).collect::<Vec<_>>(), [9, 10]);
        assert_eq!(piece_length(Millis(100)), Millis(8_640_000));
        assert_eq!(piece_length(Millis(10)), Millis::HOUR);
        assert_eq!(piece_length(Millis(60_000)), Millis::DAY);
    }

    #[test]
    fn a_visitor_can_break_and_fail_and_a_visit_can_be_stopped() {
        let (recording, kinds) = (recording(), Kinds::default());
        let archive = recording.archive();
        let stretches = Stretches::of(&archive, &kinds).unwrap();
        let mut n_visited = 0;
        let outcome = stretches.for_each(&Control::default(), |_| -> archive::Result<ControlFlow<()>> {
            n_visited += 1;
            Ok(ControlFlow::Break(()))
        });
        assert!(outcome.is_ok() && n_visited == 1);
        let failed = stretches.for_each(&Control::default(), |_| -> archive::Result<ControlFlow<()>> {
            Err(archive::Error::Nothing { what: "a test".into() })
        });
        assert!(matches!(failed, Err(archive::Error::Nothing { .. })));
        let stop = Stop::default();
        stop.now();
        let stopped = stretches.for_each(&Control::new(&stop, &|_, _| {}), |_| -> archive::Result<_> {
            Ok(ControlFlow::Continue(()))
        });
        assert!(matches!(stopped, Err(archive::Error::Stopped(_))), "{stopped:?}");
    }
}
