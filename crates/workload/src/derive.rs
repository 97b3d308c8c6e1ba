//! Derives rates from the counters of the kernel.
//!
//! A reading covers the time since the previous reading. `docs/archive.md` lists what happens when
//! counters are reset, CPUs come and go, seconds are missed or clocks jump; the tests below check it.

use crate::mode::{Mode, Ticks};
use crate::rates::Rates;
use crate::reading::{Measure, Source};
use crate::time::{Millis, Timestamp};
use crate::trace::{Coverage, OwnerNumber, Trace};

/// The kernel corrects its estimates of idle and iowait time downwards by less than this. A counter
/// that loses more has started again. node_exporter has the same bound.
const CORRECTION_SECONDS: u64 = 3;

/// Whether a counter that lost so many ticks was corrected, rather than started again.
pub fn is_correction(lost_ticks: u64, ticks_per_second: u32) -> bool {
    lost_ticks < CORRECTION_SECONDS * u64::from(ticks_per_second)
}

/// How rates are derived from readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Derivation {
    /// The length of a step of the trace.
    pub period: Millis,
    /// How many readings in a row may be missed before the steps between count as missing.
    pub max_missed: u32,
}

impl Default for Derivation {
    fn default() -> Self {
        Self { period: Millis::SECOND, max_missed: 5 }
    }
}

/// The meaning of the ticks of a reading: the part of a [`Source`] that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Whether ticks count since boot or per interval.
    pub measure: Measure,
    /// The resolution of the ticks.
    pub ticks_per_second: u32,
    /// How often the source reads.
    pub period: Millis,
}

impl Scale {
    /// Whether ticks of one can be subtracted from ticks of the other.
    #[inline]
    fn is_like(self, other: Self) -> bool {
        self.measure == other.measure && self.ticks_per_second == other.ticks_per_second
    }
}

impl From<&Source> for Scale {
    fn from(source: &Source) -> Self {
        Self { measure: source.measure, ticks_per_second: source.ticks_per_second, period: source.period }
    }
}

#[derive(Debug, Clone, Copy)]
struct Baseline {
    time: Timestamp,
    /// The step it falls into, counted from the epoch.
    step: i64,
    ticks: Ticks,
    scale: Scale,
}

/// Turns the readings of one thread, in order of time, into steps of its trace. It carries
/// over what it has seen, so that a long trace can be derived piece by piece.
#[derive(Debug, Clone)]
pub struct Deriver {
    period: Millis,
    max_missed: u32,
    /// The last reading of an earlier step.
    before: Option<Baseline>,
    /// The last reading.
    latest: Option<Baseline>,
}

impl Deriver {
    /// A deriver without any reading yet.
    pub fn new(derivation: &Derivation) -> Self {
        let Derivation { period, max_missed } = *derivation;
        Self { period, max_missed, before: None, latest: None }
    }

    /// Takes the next reading, with the owner's number in the trace. A reading that is not later
    /// than the last is ignored.
    pub fn push(
        &mut self,
        trace: &mut Trace,
        time: Timestamp,
        ticks: &Ticks,
        owner: OwnerNumber,
        scale: Scale,
    ) {
        match self.next_second(time, ticks, scale) {
            Some((step, rates)) => trace.set(step, rates, Coverage::Read, owner),
            None => self.push_any(trace, time, ticks, owner, scale),
        }
    }

    fn push_any(
        &mut self,
        trace: &mut Trace,
        time: Timestamp,
        ticks: &Ticks,
        owner: OwnerNumber,
        scale: Scale,
    ) {
        let step = time.0.div_euclid(self.period.0);
        let mut reading = Baseline { time, step, ticks: *ticks, scale };
        if let Some(latest) = self.latest {
            if time <= latest.time {
                return;
            }
            if latest.step == step && latest.scale.is_like(scale) {
                if scale.measure == Measure::Interval {
                    reading.ticks = sum(&latest.ticks, ticks);
                }
            } else {
                self.before = self.latest;
            }
        }
        let told = match scale.measure {
            Measure::Counter => match self.before.map(|before| (before, spent_since(&before, &reading))) {
                None | Some((_, Spent::Reset)) => None,
                Some((_, Spent::Nothing)) => return,
                Some((before, Spent::Ticks(spent))) => self.counted(&before, &reading, &spent),
            },
            Measure::Interval => self.reported(&reading),
        };
        self.latest = Some(reading);
        let Some((rates, n_steps)) = told else { return };
        for bridged in step - n_steps + 1..step {
            trace.set(bridged, rates, Coverage::Bridged, owner);
        }
        trace.set(step, rates, Coverage::Read, owner);
    }

    /// The case that nearly every reading is, without finding its step by division: it falls into
    /// the step after the last, and a counter has grown by about a step's worth of ticks.
    #[inline]
    fn next_second(&mut self, time: Timestamp, ticks: &Ticks, scale: Scale) -> Option<(i64, Rates)> {
        let latest = self.latest.as_ref()?;
        let (begin, period) = ((latest.step + 1) * self.period.0, self.period.0);
        let follows = time.0 >= begin && time.0 < begin + period;
        if !follows || !scale.is_like(latest.scale) {
            return None;
        }
        let is_counter = scale.measure == Measure::Counter;
        let before = if is_counter { latest.ticks } else { Ticks::default() };
        let spent: [i64; Mode::COUNT] =
            std::array::from_fn(|mode| ticks.0[mode].wrapping_sub(before.0[mode]) as i64);
        // A counter that fell leaves its highest bit set; one beyond all reason leaves others.
        let is_out_of_range = spent.iter().fold(0, |bits, ticks| bits | *ticks as u64) >> 48 != 0;
        let total: i64 = spent.iter().fold(0, |sum, ticks| sum.wrapping_add(*ticks));
        let is_more = total.wrapping_mul(2_000) >= 3 * i64::from(scale.ticks_per_second) * period;
        if is_out_of_range || total <= 0 || (is_counter && is_more) {
            return None;
        }
        let in_mode = |mode: Mode| spent[mode as usize];
        let user = (in_mode(Mode::User) + in_mode(Mode::Nice)) as f64;
        let (system, iowait) = (in_mode(Mode::System) as f64, in_mode(Mode::Iowait) as f64);
        let step = latest.step + 1;
        std::mem::swap(&mut self.before, &mut self.latest);
        self.latest = Some(Baseline { time, step, ticks: *ticks, scale });
        Some((step, Rates::from_parts(user, system, iowait, total as f64)))
    }

    /// The longest time that a reading can cover, in milliseconds.
    fn longest(&self, scale: Scale) -> f64 {
        (f64::from(self.max_missed) + 1.5) * scale.period.max(self.period).0 as f64
    }

    /// Rates and number of steps for a counter: as many steps as the ticks account for, so
    /// that a clock that jumped ahead does not stretch a second into an hour.
    fn counted(&self, before: &Baseline, reading: &Baseline, spent: &Ticks) -> Option<(Rates, i64)> {
        let rates = Rates::from_ticks(spent)?;
        let accounted_ms = spent.total() as f64 * 1e3 / f64::from(reading.scale.ticks_per_second);
        if accounted_ms >= self.longest(reading.scale) {
            return None;
        }
        let accounted_steps = (accounted_ms / self.period.0 as f64).round() as i64;
        Some((rates, accounted_steps.clamp(1, (reading.step - before.step).max(1))))
    }

    /// Rates and number of steps for an interval: the time since the reading before it, or its
    /// own period if that is too long ago.
    fn reported(&self, reading: &Baseline) -> Option<(Rates, i64)> {
        let rates = Rates::from_ticks(&reading.ticks)?;
        let since = self.before.map(|before| (reading.time - before.time).0 as f64);
        let covered_ms = since.filter(|ms| *ms < self.longest(reading.scale));
        let covered_ms = covered_ms.unwrap_or(reading.scale.period.0 as f64);
        let elapsed_steps = self.before.map_or(i64::MAX, |before| reading.step - before.step);
        let n_steps = (covered_ms / self.period.0 as f64).round() as i64;
        Some((rates, n_steps.clamp(1, elapsed_steps.max(1))))
    }
}

fn sum(a: &Ticks, b: &Ticks) -> Ticks {
    let mut sum = *a;
    sum.0.iter_mut().zip(b.0).for_each(|(ticks, more)| *ticks = ticks.saturating_add(more));
    sum
}

enum Spent {
    Ticks(Ticks),
    /// No counter moved: the reading repeats the one before.
    Nothing,
    /// The counters started again, so there is no difference.
    Reset,
}

fn spent_since(before: &Baseline, now: &Baseline) -> Spent {
    if !before.scale.is_like(now.scale) {
        return Spent::Reset;
    }
    let mut spent = Ticks::default();
    for mode in Mode::ALL {
        spent[mode] = match now.ticks[mode].checked_sub(before.ticks[mode]) {
            Some(ticks) => ticks,
            None => {
                let lost = before.ticks[mode] - now.ticks[mode];
                let estimated = matches!(mode, Mode::Idle | Mode::Iowait);
                if !estimated || !is_correction(lost, now.scale.ticks_per_second) {
                    return Spent::Reset;
                }
                0
            }
        };
    }
    if spent.total() == 0 { Spent::Nothing } else { Spent::Ticks(spent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Cpu, JobId, NodeName, ThreadId};
    use crate::reading::Owner;
    use proptest::prelude::*;

    const KERNEL: Scale = Scale { measure: Measure::Counter, ticks_per_second: 100, period: Millis::SECOND };
    const PERCENT: Scale =
        Scale { measure: Measure::Interval, ticks_per_second: 1_000, period: Millis::SECOND };

    /// Ticks with so many in user and the rest in idle.
    fn ticks(user: u64, idle: u64) -> Ticks {
        Ticks([user, 0, 0, idle, 0, 0, 0, 0])
    }

    fn derive(scale: Scale, n_steps: usize, readings: &[(i64, Ticks)]) -> Trace {
        let thread = ThreadId { node: NodeName::new("n1").unwrap(), cpu: Cpu(0) };
        let mut trace = Trace::new(thread, Timestamp(0), Millis::SECOND, n_steps);
        let mut deriver = Deriver::new(&Derivation::default());
        let nobody = trace.owner_number(&Owner::Nobody);
        for (ms, ticks) in readings {
            deriver.push(&mut trace, Timestamp(*ms), ticks, nobody, scale);
        }
        trace
    }

    /// The user rate of each step, in percent; `None` where the step is missing.
    fn user(trace: &Trace) -> Vec<Option<i32>> {
        (0..trace.len()).map(|i| trace.rates(i).map(|r| (r.user() * 100.0).round() as i32)).collect()
    }

    #[test]
    fn a_counter_needs_two_readings_to_tell_anything() {
        let trace = derive(KERNEL, 3, &[(0, ticks(0, 0)), (1_000, ticks(30, 70)), (2_000, ticks(30, 170))]);
        assert_eq!(user(&trace), [None, Some(30), Some(0)]);
    }

    #[test]
    fn an_interval_tells_at_once() {
        let trace = derive(PERCENT, 2, &[(0, ticks(300, 700)), (1_000, ticks(51, 950))]);
        assert_eq!(user(&trace), [Some(30), Some(5)]);
    }

    #[test]
    fn a_missed_second_gets_the_mean_of_the_time_it_was_part_of() {
        let trace = derive(KERNEL, 4, &[(0, ticks(0, 0)), (1_000, ticks(0, 100)), (3_000, ticks(100, 200))]);
        assert_eq!(user(&trace), [None, Some(0), Some(50), Some(50)]);
        assert_eq!(trace.coverage(2), Coverage::Bridged);
        assert_eq!(trace.coverage(3), Coverage::Read);
    }

    #[test]
    fn too_many_missed_seconds_are_missing_and_the_next_reading_only_sets_the_baseline() {
        let trace =
            derive(KERNEL, 10, &[(0, ticks(0, 0)), (8_000, ticks(400, 400)), (9_000, ticks(500, 400))]);
        assert_eq!(user(&trace)[..9], [None; 9]);
        assert_eq!(user(&trace)[9], Some(100));
    }

    #[test]
    fn five_missed_readings_are_bridged_and_six_are_not() {
        let gap = |seconds: i64| {
            derive(KERNEL, 9, &[(0, ticks(0, 0)), (seconds * 1_000, ticks(0, 100 * seconds as u64))])
        };
        assert_eq!(gap(6).coverage_counts(), [1, 5, 3]);
        assert_eq!(gap(7).coverage_counts(), [0, 0, 9]);
    }

    #[test]
    fn after_a_reset_nothing_is_told_until_there_are_two_readings_again() {
        let readings =
            [(0, ticks(500, 500)), (1_000, ticks(550, 550)), (2_000, ticks(3, 5)), (3_000, ticks(13, 95))];
        assert_eq!(user(&derive(KERNEL, 4, &readings)), [None, Some(50), None, Some(10)]);
    }

    #[test]
    fn a_small_correction_of_idle_downwards_is_no_reset() {
        let trace = derive(KERNEL, 2, &[(0, ticks(0, 1_000)), (1_000, ticks(100, 995))]);
        assert_eq!(user(&trace), [None, Some(100)]);
    }

    #[test]
    fn a_large_fall_of_idle_alone_is_a_reset() {
        let trace = derive(KERNEL, 2, &[(0, ticks(0, 1_000)), (1_000, ticks(100, 20))]);
        assert_eq!(user(&trace), [None, None]);
    }

    #[test]
    fn a_clock_that_jumps_ahead_does_not_stretch_a_second() {
        let trace =
            derive(KERNEL, 62, &[(0, ticks(0, 0)), (60_000, ticks(40, 60)), (61_000, ticks(40, 160))]);
        assert_eq!(trace.coverage_counts(), [2, 0, 60]);
        assert_eq!(user(&trace)[60..], [Some(40), Some(0)]);
    }

    #[test]
    fn a_reading_that_repeats_the_counters_says_nothing() {
        let readings = [(0, ticks(0, 0)), (1_000, ticks(0, 0)), (2_000, ticks(100, 100))];
        let trace = derive(KERNEL, 3, &readings);
        assert_eq!(user(&trace), [None, Some(50), Some(50)]);
    }

    #[test]
    fn the_last_reading_of_a_second_speaks_for_it() {
        let readings =
            [(0, ticks(0, 0)), (500, ticks(10, 40)), (1_100, ticks(20, 90)), (1_600, ticks(60, 100))];
        let trace = derive(KERNEL, 2, &readings);
        assert_eq!(user(&trace), [None, Some(45)]);
    }

    #[test]
    fn intervals_within_one_step_add_up() {
        let trace = derive(PERCENT, 1, &[(0, ticks(100, 0)), (500, ticks(0, 300))]);
        assert_eq!(user(&trace), [Some(25)]);
    }

    #[test]
    fn a_slow_source_bridges_its_own_period() {
        let slow = Scale { period: Millis(15_000), ..KERNEL };
        let trace = derive(slow, 31, &[(0, ticks(0, 0)), (15_000, ticks(750, 750))]);
        assert_eq!(trace.coverage_counts(), [1, 14, 16]);
    }

    #[test]
    fn a_fast_source_is_summed_up_in_each_step() {
        let fast = Scale { period: Millis(100), ..KERNEL };
        let readings: Vec<(i64, Ticks)> =
            (0..30).map(|i| (i * 100, ticks(i as u64 * 3, i as u64 * 7))).collect();
        assert_eq!(user(&derive(fast, 3, &readings)), [None, Some(30), Some(30)]);
    }

    #[test]
    fn another_resolution_is_another_counter() {
        let thread = ThreadId { node: NodeName::new("n1").unwrap(), cpu: Cpu(0) };
        let mut trace = Trace::new(thread, Timestamp(0), Millis::SECOND, 2);
        let mut deriver = Deriver::new(&Derivation::default());
        let fine = Scale { ticks_per_second: 1_000, ..KERNEL };
        let nobody = trace.owner_number(&Owner::Nobody);
        deriver.push(&mut trace, Timestamp(0), &ticks(0, 100), nobody, KERNEL);
        deriver.push(&mut trace, Timestamp(1_000), &ticks(0, 2_000), nobody, fine);
        assert_eq!(trace.coverage_counts(), [0, 0, 2]);
    }

    #[test]
    fn a_step_belongs_to_the_owner_at_its_end() {
        let thread = ThreadId { node: NodeName::new("n1").unwrap(), cpu: Cpu(0) };
        let mut trace = Trace::new(thread, Timestamp(0), Millis::SECOND, 3);
        let mut deriver = Deriver::new(&Derivation::default());
        let job = Owner::Job(JobId::new("17").unwrap());
        for (second, owner) in [&Owner::Nobody, &job, &Owner::Nobody].into_iter().enumerate() {
            let now = ticks(0, 100 * second as u64);
            let owner = trace.owner_number(owner);
            deriver.push(&mut trace, Timestamp(second as i64 * 1_000), &now, owner, KERNEL);
        }
        assert_eq!((trace.owner(1), trace.owner(2)), (&job, &Owner::Nobody));
        assert_eq!(trace.window(1, 2).unwrap().owner(), None);
        assert_eq!(trace.window(1, 1).unwrap().owner(), Some(&job));
    }

    proptest! {
        #[test]
        fn the_quick_way_agrees_with_the_general_one(
            readings in prop::collection::vec(
                (prop_oneof![Just(1_000i64), 900i64..1_100, 1i64..4_000], prop::array::uniform8(0u64..40),
                 prop::bool::weighted(0.05)), 0..60),
            interval in any::<bool>(),
        ) {
            let scale = if interval { PERCENT } else { KERNEL };
            let thread = ThreadId { node: NodeName::new("n1").unwrap(), cpu: Cpu(0) };
            let mut traces = [(); 2].map(|()| Trace::new(thread.clone(), Timestamp(0), Millis::SECOND, 300));
            let mut derivers = [(); 2].map(|()| Deriver::new(&Derivation::default()));
            let nobody = traces.each_mut().map(|trace| trace.owner_number(&Owner::Nobody))[0];
            let (mut time, mut now) = (Timestamp(0), Ticks::default());
            for (gap, spent, reset) in readings {
                time = time + Millis(gap);
                now = if reset || interval { Ticks(spent) } else { sum(&now, &Ticks(spent)) };
                derivers[0].push(&mut traces[0], time, &now, nobody, scale);
                derivers[1].push_any(&mut traces[1], time, &now, nobody, scale);
            }
            prop_assert_eq!(&traces[0], &traces[1]);
        }

        #[test]
        fn whatever_happens_to_the_counters_known_steps_sum_to_one(
            readings in prop::collection::vec(
                (1i64..20_000, prop::array::uniform8(prop_oneof![0u64..300, 0u64..1 << 60])), 0..40),
            interval in any::<bool>(),
        ) {
            let mut at = 0;
            let readings: Vec<(i64, Ticks)> =
                readings.into_iter().map(|(gap, ticks)| { at += gap; (at, Ticks(ticks)) }).collect();
            let trace = derive(if interval { PERCENT } else { KERNEL }, 400, &readings);
            for step in 0..trace.len() {
                if let Some(rates) = trace.rates(step) {
                    prop_assert!(Rates::new(*rates.as_array()).is_ok(), "{:?}", rates);
                }
            }
            let [read, _, _] = trace.coverage_counts();
            prop_assert!(read <= readings.len());
        }
    }
}
