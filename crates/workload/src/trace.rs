//! Traces: the series of rates of a thread, and windows of it.

use crate::id::ThreadId;
use crate::rates::Rates;
use crate::reading::Owner;
use crate::time::{Millis, Timestamp};

/// What is known about one step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coverage {
    /// A reading fell into this step.
    Read,
    /// No reading fell into this step; the next reading covers it.
    Bridged,
    /// No reading covers this step.
    Missing,
}

/// A trace that is moved ahead forgets owners when it has more of them.
const MAX_IDLE_OWNERS: usize = 16;

/// An owner's number in one trace: see [`Trace::owner_number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerNumber(u32);

/// The rates of one thread at regular steps, from `start` on.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    thread: ThreadId,
    start: Timestamp,
    period: Millis,
    /// The first step, counted from the epoch.
    first_step: i64,
    rates: Vec<Rates>,
    coverage: Vec<Coverage>,
    owners: Vec<Owner>,
    owner_of_step: Vec<u32>,
}

impl Trace {
    /// A trace without any known step. `start` is rounded down to a whole period.
    pub fn new(thread: ThreadId, start: Timestamp, period: Millis, n_steps: usize) -> Self {
        Self {
            thread,
            start: start.floor(period),
            period,
            first_step: start.0.div_euclid(period.0),
            rates: vec![Rates::IDLE; n_steps],
            coverage: vec![Coverage::Missing; n_steps],
            owners: vec![Owner::Unknown],
            owner_of_step: vec![0; n_steps],
        }
    }

    /// The thread.
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// When the first step begins.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The length of a step.
    pub fn period(&self) -> Millis {
        self.period
    }

    /// The number of steps.
    pub fn len(&self) -> usize {
        self.rates.len()
    }

    /// Whether it has no steps.
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// When step `index` begins.
    pub fn time(&self, index: usize) -> Timestamp {
        self.start + Millis(self.period.0 * index as i64)
    }

    /// What is known about a step.
    pub fn coverage(&self, index: usize) -> Coverage {
        self.coverage[index]
    }

    /// The rates of a step, unless it is missing.
    pub fn rates(&self, index: usize) -> Option<Rates> {
        (self.coverage[index] != Coverage::Missing).then(|| self.rates[index])
    }

    /// Who owned the thread in a step.
    pub fn owner(&self, index: usize) -> &Owner {
        &self.owners[self.owner_of_step[index] as usize]
    }

    /// The steps into which a reading fell.
    pub fn read_steps(&self) -> impl Iterator<Item = (Timestamp, Rates, &Owner)> {
        (0..self.len())
            .filter(|index| self.coverage[*index] == Coverage::Read)
            .map(|index| (self.time(index), self.rates[index], self.owner(index)))
    }

    /// How many steps have each kind of coverage: read, bridged, missing.
    pub fn coverage_counts(&self) -> [usize; 3] {
        let count = |kind| self.coverage.iter().filter(|coverage| **coverage == kind).count();
        [count(Coverage::Read), count(Coverage::Bridged), count(Coverage::Missing)]
    }

    /// Consecutive steps of this trace; `None` if they leave the trace or contain a missing step.
    pub fn window(&self, first: usize, len: usize) -> Option<Window<'_>> {
        let stretch = self.coverage.get(first..first.checked_add(len)?)?;
        let whole = len > 0 && !stretch.contains(&Coverage::Missing);
        whole.then_some(Window { trace: self, first, len })
    }

    /// Every window of `len` steps that begins on a multiple of `stride` and has no missing step.
    pub fn windows(&self, len: usize, stride: usize) -> impl Iterator<Item = Window<'_>> {
        let firsts = (0..self.len()).step_by(stride.max(1));
        firsts.filter_map(move |first| self.window(first, len))
    }

    /// The number of an owner in this trace.
    pub fn owner_number(&mut self, owner: &Owner) -> OwnerNumber {
        let known = self.owners.iter().rposition(|one| one == owner);
        let number = known.unwrap_or_else(|| {
            self.owners.push(owner.clone());
            self.owners.len() - 1
        });
        OwnerNumber(number as u32)
    }

    /// Moves the trace ahead in time: drops the steps before `start` and adds as many unknown ones at its end.
    pub fn advance(&mut self, start: Timestamp) {
        let first_step = start.0.div_euclid(self.period.0);
        let Ok(n_ahead) = usize::try_from(first_step - self.first_step) else { return };
        let n_kept = self.rates.len().saturating_sub(n_ahead);
        let n_dropped = self.rates.len() - n_kept;
        self.rates.rotate_left(n_dropped);
        self.rates[n_kept..].fill(Rates::IDLE);
        self.coverage.rotate_left(n_dropped);
        self.coverage[n_kept..].fill(Coverage::Missing);
        self.owner_of_step.rotate_left(n_dropped);
        self.owner_of_step[n_kept..].fill(0);
        (self.first_step, self.start) = (first_step, Timestamp(first_step * self.period.0));
        if self.owners.len() > MAX_IDLE_OWNERS {
            self.forget_owners();
        }
    }

    /// Forgets the owners of steps that were dropped.
    fn forget_owners(&mut self) {
        let known = std::mem::replace(&mut self.owners, vec![Owner::Unknown]);
        let mut numbers: Vec<Option<u32>> = vec![None; known.len()];
        numbers[0] = Some(0);
        for owner in &mut self.owner_of_step {
            let number = numbers[*owner as usize].get_or_insert_with(|| {
                self.owners.push(known[*owner as usize].clone());
                self.owners.len() as u32 - 1
            });
            *owner = *number;
        }
    }

    /// Sets a step, counted from the epoch. Steps outside the trace are ignored.
    #[inline]
    pub(crate) fn set(&mut self, step: i64, rates: Rates, coverage: Coverage, owner: OwnerNumber) {
        let Ok(index) = usize::try_from(step - self.first_step) else { return };
        if index < self.rates.len() {
            self.rates[index] = rates;
            self.coverage[index] = coverage;
            self.owner_of_step[index] = owner.0;
        }
    }
}

/// Consecutive steps of one trace, without a missing step.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    trace: &'a Trace,
    first: usize,
    len: usize,
}

impl<'a> Window<'a> {
    /// The thread.
    pub fn thread(&self) -> &'a ThreadId {
        &self.trace.thread
    }

    /// When the window begins.
    pub fn start(&self) -> Timestamp {
        self.trace.time(self.first)
    }

    /// The rates of its steps.
    pub fn rates(&self) -> &'a [Rates] {
        &self.trace.rates[self.first..self.first + self.len]
    }

    /// Who owned the thread, if the owner did not change.
    pub fn owner(&self) -> Option<&'a Owner> {
        let owners = &self.trace.owner_of_step[self.first..self.first + self.len];
        let same = owners.windows(2).all(|pair| pair[0] == pair[1]);
        same.then(|| self.trace.owner(self.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Cpu, NodeName};
    use proptest::prelude::*;

    fn trace(coverage: &[Coverage]) -> Trace {
        let thread = ThreadId { node: NodeName::new("n1").unwrap(), cpu: Cpu(0) };
        let mut trace = Trace::new(thread, Timestamp(0), Millis::SECOND, coverage.len());
        for (step, kind) in coverage.iter().enumerate() {
            trace.set(step as i64, Rates::IDLE, *kind, OwnerNumber(0));
        }
        trace
    }

    fn any_coverage() -> impl Strategy<Value = Coverage> {
        prop_oneof![4 => Just(Coverage::Read), 1 => Just(Coverage::Bridged), 1 => Just(Coverage::Missing)]
    }

    proptest! {
        #[test]
        fn a_window_is_a_stretch_of_its_trace_without_missing_steps(
            coverage in prop::collection::vec(any_coverage(), 0..60), len in 1usize..20, stride in 1usize..7,
        ) {
            let trace = trace(&coverage);
            let found: Vec<usize> =
                trace.windows(len, stride).map(|window| (window.start().0 / 1_000) as usize).collect();
            let expected: Vec<usize> = (0..coverage.len())
                .step_by(stride)
                .filter(|first| first + len <= coverage.len())
                .filter(|first| !coverage[*first..first + len].contains(&Coverage::Missing))
                .collect();
            prop_assert_eq!(found, expected);
            for window in trace.windows(len, stride) {
                prop_assert_eq!(window.rates().len(), len);
            }
        }
    }

    #[test]
    fn a_trace_that_is_moved_ahead_keeps_its_last_steps_and_their_owners() {
        let mut trace = trace(&[Coverage::Read; 10]);
        for job in 0..40i64 {
            let owner = Owner::Job(crate::JobId::new(job.to_string()).unwrap());
            let number = trace.owner_number(&owner);
            let busy = Rates::from_parts(job as f64, 0.0, 0.0, 100.0);
            trace.set(10 + job, busy, Coverage::Read, number);
            trace.advance(Timestamp((job + 2) * 1_000));
            let number = trace.owner_number(&owner);
            trace.set(10 + job, busy, Coverage::Read, number);
            assert_eq!((trace.start(), trace.len()), (Timestamp((job + 2) * 1_000), 10));
            assert_eq!(trace.owner(8), &owner);
            assert_eq!(trace.coverage(9), Coverage::Missing);
        }
        assert!(trace.owners.len() <= MAX_IDLE_OWNERS + 2, "{}", trace.owners.len());
        assert_eq!(trace.rates(5).unwrap().as_array()[0], 0.36);
        trace.advance(Timestamp(0));
        assert_eq!(trace.start(), Timestamp(41_000), "a trace does not go back");
        trace.advance(Timestamp(10_000_000));
        assert_eq!(trace.coverage_counts(), [0, 0, 10]);
    }

    #[test]
    fn a_window_cannot_be_empty_or_leave_its_trace() {
        let trace = trace(&[Coverage::Read; 3]);
        assert!(trace.window(0, 0).is_none());
        assert!(trace.window(1, 3).is_none());
        assert!(trace.window(usize::MAX, 2).is_none());
        assert!(trace.window(0, 3).is_some());
    }
}
