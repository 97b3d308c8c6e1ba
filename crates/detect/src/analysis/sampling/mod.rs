//! The sampling interval: the longest at which kinds of jobs still separate, by the silhouette of their windows
//! in the plane of the first two principal components.

mod report;
mod separation;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use archive::{Archive, Selection};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use workload::{Control, Millis, Rates};

use super::{AnalysisError, CHANNELS};
use crate::stretch::{Kinds, Stretches};
pub use report::write;
use separation::{Sampled, separation};

/// Windows by default: of this length, or of as many samples where the archive has a shorter period.
const DEFAULT_WINDOW: Millis = Millis::from_seconds(120);
const DEFAULT_SAMPLES: i64 = 120;
/// The intervals that are compared by default: the archive's sampling period, and its multiples among these.
const DEFAULT_INTERVALS: [Millis; 10] = [
    Millis(100),
    Millis(200),
    Millis(500),
    Millis(1_000),
    Millis(2_000),
    Millis(5_000),
    Millis(10_000),
    Millis(15_000),
    Millis(30_000),
    Millis(60_000),
];
/// More kinds than a chart can show.
const MAX_KINDS: usize = 24;
/// Windows start at every twelfth of their length.
const STARTS_PER_WINDOW: usize = 12;

#[derive(Debug, Clone)]
pub struct SamplingSettings {
    /// The length of a window at every interval; by default 120 s, or 120 samples if those are shorter.
    pub window: Option<Millis>,
    /// By default the archive's sampling period, and 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30 and 60 s where they are
    /// longer multiples of it and fit into the window.
    pub intervals: Option<Vec<Millis>>,
    /// Windows of each kind that are kept, chosen at random.
    pub windows_per_kind: usize,
    /// Windows in each random subset.
    pub subset: usize,
    /// Random subsets per interval.
    pub repeats: usize,
    pub components: usize,
    pub seed: u64,
}

impl Default for SamplingSettings {
    fn default() -> Self {
        Self {
            window: None,
            intervals: None,
            windows_per_kind: 400,
            subset: 500,
            repeats: 30,
            components: 2,
            seed: 0,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct SamplingReport {
    pub archive: String,
    /// The sampling period of the archive.
    pub period_seconds: f64,
    pub window_seconds: f64,
    pub repeats: usize,
    pub subset: usize,
    pub seed: u64,
    pub kinds: Vec<KindWindows>,
    /// Kinds with fewer than two windows.
    pub too_short: Vec<String>,
    /// The number of rare kinds that were left out.
    pub left_out: usize,
    pub intervals: Vec<Interval>,
    pub advice: Advice,
}

#[derive(Debug, Clone, Serialize)]
pub struct KindWindows {
    pub kind: String,
    pub windows: usize,
}

/// How well kinds separate at one interval, and what it costs per thread.
#[derive(Debug, Clone, Serialize)]
pub struct Interval {
    pub seconds: f64,
    /// Mean of the silhouette over the repeats.
    pub silhouette: f64,
    /// Its standard deviation.
    pub spread: f64,
    /// The fraction of the variance that the components explain.
    pub explained: f64,
    /// Of one thread.
    pub samples_per_day: u64,
    pub bytes_per_day: u64,
    /// The labels of the axes of the scatter plot.
    #[serde(skip)]
    axes: [String; 2],
    #[serde(skip)]
    scatter: Vec<Dot>,
}

/// A window in the plane of the first two components.
#[derive(Debug, Clone, Copy)]
struct Dot {
    kind: usize,
    x: f64,
    y: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    pub interval_seconds: f64,
    pub silhouette: f64,
    pub reason: String,
}

/// A uniform random sample of a stream (reservoir sampling).
#[derive(Default)]
struct Reservoir {
    kept: Vec<Vec<f32>>,
    n_seen: usize,
}

impl Reservoir {
    fn offer(&mut self, capacity: usize, rng: &mut Xoshiro256PlusPlus, item: impl FnOnce() -> Vec<f32>) {
        self.n_seen += 1;
        if self.kept.len() < capacity {
            self.kept.push(item());
        } else {
            let place = rng.random_range(0..self.n_seen);
            if place < capacity {
                self.kept[place] = item();
            }
        }
    }

    fn is_usable(&self) -> bool {
        self.kept.len() >= 2
    }
}

/// Analyzes how well the kinds of an archive separate at each sampling interval.
pub fn analyze(
    archive: &Archive,
    kinds: &Kinds,
    settings: &SamplingSettings,
    control: &Control<'_>,
) -> Result<SamplingReport, AnalysisError> {
    let stretches = Stretches::of(archive, kinds)?;
    let grid = Grid::new(settings, stretches.period())?;
    let mut found = gather(&stretches, settings, grid.n_steps, control)?;
    let too_short =
        found.iter().filter(|(_, kind)| !kind.is_usable()).map(|(name, _)| name.clone()).collect();
    found.retain(|_, kind| kind.is_usable());
    let left_out = keep_most_common(&mut found);
    if found.len() == 1 {
        return Err(AnalysisError::OneKind(found.keys().next().cloned().unwrap_or_default()));
    }
    let kinds =
        found.iter().map(|(kind, r)| KindWindows { kind: kind.clone(), windows: r.kept.len() }).collect();
    let kind_of_window = found.values().enumerate();
    let sampled = Sampled {
        windows: found.values().flat_map(|reservoir| &reservoir.kept).collect(),
        kinds: kind_of_window.flat_map(|(kind, r)| std::iter::repeat_n(kind, r.kept.len())).collect(),
        bytes_per_sample: bytes_per_sample(archive)?,
    };
    if sampled.windows.iter().all(|window| *window == sampled.windows[0]) {
        return Err(AnalysisError::Constant);
    }
    // Subsets have to differ for their standard deviation to mean anything.
    let settings = &SamplingSettings {
        subset: settings.subset.min(sampled.kinds.len() * 3 / 5).max(2),
        ..settings.clone()
    };
    let mut intervals = Vec::new();
    for interval in grid.intervals {
        intervals.push(separation(&sampled, interval, grid.period, settings, control)?);
    }
    Ok(SamplingReport {
        archive: archive.address().to_owned(),
        period_seconds: grid.period.as_seconds(),
        window_seconds: grid.window.as_seconds(),
        repeats: settings.repeats,
        subset: settings.subset,
        seed: settings.seed,
        kinds,
        too_short,
        left_out,
        advice: advise(&intervals)?,
        intervals,
    })
}

/// The window and the intervals for an archive of one sampling period.
#[derive(Debug, Clone, PartialEq)]
struct Grid {
    period: Millis,
    window: Millis,
    /// Steps per window.
    n_steps: usize,
    intervals: Vec<Millis>,
}

impl Grid {
    fn new(settings: &SamplingSettings, period: Millis) -> Result<Self, AnalysisError> {
        let default = DEFAULT_WINDOW.min(Millis(period.0 * DEFAULT_SAMPLES));
        let window = settings.window.unwrap_or(default);
        let is_multiple = |interval: &Millis| interval.0 > 0 && interval.0 % period.0 == 0;
        let intervals = match &settings.intervals {
            Some(intervals) => intervals.clone(),
            None => {
                let longer = DEFAULT_INTERVALS.into_iter().filter(|interval| *interval > period);
                let longer = longer.filter(|interval| is_multiple(interval) && *interval <= window);
                std::iter::once(period).chain(longer).collect()
            }
        };
        let n_steps = usize::try_from(window.0 / period.0).unwrap_or(0);
        if intervals.is_empty() || settings.repeats == 0 || n_steps == 0 {
            return Err(AnalysisError::NothingToDo);
        }
        if let Some(interval) = intervals.iter().find(|interval| !is_multiple(interval)) {
            return Err(AnalysisError::IntervalNotMultiple {
                interval_seconds: interval.as_seconds(),
                period_seconds: period.as_seconds(),
            });
        }
        if let Some(interval) = intervals.iter().find(|interval| **interval > window) {
            return Err(AnalysisError::IntervalTooLong {
                interval_seconds: interval.as_seconds(),
                window_seconds: window.as_seconds(),
            });
        }
        Ok(Self { period, window, n_steps, intervals })
    }
}

/// Windows of each kind, chosen at random. At least one kind has two of them.
fn gather(
    stretches: &Stretches<'_>,
    settings: &SamplingSettings,
    n_steps: usize,
    control: &Control<'_>,
) -> Result<BTreeMap<String, Reservoir>, AnalysisError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    let mut found: BTreeMap<String, Reservoir> = BTreeMap::new();
    let mut longest = 0;
    stretches.for_each(control, |stretch| -> Result<_, AnalysisError> {
        longest = longest.max(stretch.rates.len());
        let reservoir = found.entry(stretch.kind.to_owned()).or_default();
        for window in stretch.rates.windows(n_steps).step_by((n_steps / STARTS_PER_WINDOW).max(1)) {
            reservoir.offer(settings.windows_per_kind, &mut rng, || flattened(window));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if found.is_empty() {
        return Err(AnalysisError::NoJobs);
    }
    if !found.values().any(Reservoir::is_usable) {
        let seconds = |n_steps: usize| n_steps as f64 * stretches.period().as_seconds();
        let (wanted_seconds, longest_seconds) = (seconds(n_steps), seconds(longest));
        return Err(AnalysisError::TooShort { wanted_seconds, longest_seconds });
    }
    Ok(found)
}

/// Removes the rarest kinds where there are more than a chart can show; returns how many.
fn keep_most_common(found: &mut BTreeMap<String, Reservoir>) -> usize {
    let mut by_count: Vec<(usize, String)> =
        found.iter().map(|(kind, reservoir)| (reservoir.n_seen, kind.clone())).collect();
    by_count.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let rare = by_count.get(MAX_KINDS..).unwrap_or_default();
    for (_, kind) in rare {
        found.remove(kind);
    }
    rare.len()
}

/// The channels of a window, step by step.
fn flattened(window: &[Rates]) -> Vec<f32> {
    window.iter().flat_map(|rates| rates.as_array()[..CHANNELS.len()].iter().copied()).collect()
}

/// Bytes per sample of one thread in this archive.
fn bytes_per_sample(archive: &Archive) -> Result<f64, AnalysisError> {
    let catalog = archive.catalog(Selection::default())?;
    Ok(catalog.bytes() as f64 / catalog.readings().max(1) as f64)
}

/// The longest interval whose silhouette is within one standard deviation of the best.
fn advise(intervals: &[Interval]) -> Result<Advice, AnalysisError> {
    let best = intervals.iter().max_by(|a, b| a.silhouette.total_cmp(&b.silhouette));
    let shortest = intervals.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let (Some(best), Some(shortest)) = (best, shortest) else {
        return Err(AnalysisError::NothingToDo);
    };
    if best.silhouette <= 0.0 {
        let reason = format!(
            "job kinds do not separate at any interval (best: {:.3} at {} s), so no interval can be recommended; the shortest \
             one loses the least information",
            best.silhouette, best.seconds
        );
        return Ok(Advice { interval_seconds: shortest.seconds, silhouette: shortest.silhouette, reason });
    }
    let is_as_good = |interval: &&Interval| interval.silhouette >= best.silhouette - best.spread;
    let as_good = intervals.iter().filter(is_as_good);
    let chosen = as_good.max_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or(best);
    let mut reason = format!(
        "job kinds separate with a silhouette of {:.3} ± {:.3}, as well as at the best interval ({} s: {:.3})",
        chosen.silhouette, chosen.spread, best.seconds, best.silhouette
    );
    if chosen.seconds > shortest.seconds {
        let fraction = chosen.bytes_per_day as f64 / shortest.bytes_per_day.max(1) as f64;
        reason += &format!(
            "; this needs {:.0} % of the samples and bytes of sampling every {} s. Anomalies shorter than {} s are not \
             visible at this interval",
            fraction * 100.0,
            shortest.seconds,
            chosen.seconds
        );
    }
    Ok(Advice { interval_seconds: chosen.seconds, silhouette: chosen.silhouette, reason })
}

#[cfg(test)]
mod tests {
    use workload::Stop;

    use super::*;
    use crate::analysis::recording::Recording;

    #[test]
    fn a_longer_interval_is_advised_only_if_kinds_separate_as_well() {
        let interval = |seconds: f64, silhouette: f64| Interval {
            seconds,
            silhouette,
            spread: 0.02,
            explained: 1.0,
            samples_per_day: (86_400.0 / seconds) as u64,
            bytes_per_day: (1e6 / seconds) as u64,
            axes: [String::new(), String::new()],
            scatter: Vec::new(),
        };
        let worse = [interval(1.0, 0.70), interval(10.0, 0.60), interval(60.0, 0.30)];
        assert_eq!(advise(&worse).unwrap().interval_seconds, 1.0);
        let equal = [interval(0.1, 0.70), interval(1.0, 0.69), interval(60.0, 0.30)];
        let advice = advise(&equal).unwrap();
        assert_eq!(advice.interval_seconds, 1.0);
        assert!(advice.reason.contains("10 % of the samples"), "{}", advice.reason);
        let none = [interval(1.0, -0.2), interval(10.0, -0.1)];
        assert_eq!(advise(&none).unwrap().interval_seconds, 1.0);
        assert!(matches!(advise(&[]), Err(AnalysisError::NothingToDo)));
    }

    #[test]
    fn the_rarest_kinds_are_left_out() {
        let kind =
            |index: usize| (format!("{index:02}"), Reservoir { kept: Vec::new(), n_seen: index.min(3) });
        let mut found: BTreeMap<String, Reservoir> = (0..MAX_KINDS + 4).map(kind).collect();
        assert_eq!(keep_most_common(&mut found), 4);
        let left_out = ["00", "01", "02"];
        assert!(found.len() == MAX_KINDS && left_out.iter().all(|kind| !found.contains_key(*kind)));
        assert_eq!(keep_most_common(&mut found), 0);
    }

    #[test]
    fn defaults_follow_from_the_period_of_the_archive() {
        let grid = |period| {
            let grid = Grid::new(&SamplingSettings::default(), Millis(period)).unwrap();
            let seconds: Vec<f64> = grid.intervals.iter().map(|interval| interval.as_seconds()).collect();
            (grid.window.as_seconds(), grid.n_steps, seconds)
        };
        assert_eq!(grid(1_000), (120.0, 120, vec![1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0]));
        assert_eq!(grid(100), (12.0, 120, vec![0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]));
        assert_eq!(grid(15_000), (120.0, 8, vec![15.0, 30.0, 60.0]));
        assert_eq!(grid(250), (30.0, 120, vec![0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0]));
    }

    #[test]
    fn an_interval_that_cannot_be_compared_is_rejected() {
        let grid = |interval: i64, window: i64| {
            let settings = SamplingSettings {
                intervals: Some(vec![Millis(interval)]),
                window: Some(Millis(window)),
                ..SamplingSettings::default()
            };
            Grid::new(&settings, Millis(1_000))
        };
        assert!(grid(2_000, 10_000).is_ok());
        let finer = grid(100, 10_000).unwrap_err().to_string();
        assert_eq!(finer, "an interval of 0.1 s is not a multiple of the archive's sampling period, 1 s");
        assert!(matches!(grid(20_000, 10_000), Err(AnalysisError::IntervalTooLong { .. })));
        assert!(matches!(grid(1_000, 500), Err(AnalysisError::NothingToDo)));
        assert!(matches!(grid(0, 10_000), Err(AnalysisError::IntervalNotMultiple { .. })));
    }

    /// Two jobs on two threads: the user rate of one alternates every two steps, that of the other does not.
    fn alternating_and_steady(period: Millis) -> Recording {
        let mut recording = Recording::new(period);
        for step in 0..2_000 {
            let alternating = if step % 4 < 2 { 0.9 } else { 0.1 };
            recording.step(step, &[(Some("1"), alternating), (Some("2"), 0.5)]);
        }
        recording
    }

    #[test]
    fn kinds_that_differ_only_within_0_4_s_separate_only_at_shorter_intervals() {
        let recording = alternating_and_steady(Millis(100));
        let settings = SamplingSettings {
            intervals: Some([100, 200, 400, 800].map(Millis).to_vec()),
            window: Some(Millis(4_000)),
            ..SamplingSettings::default()
        };
        let report =
            analyze(&recording.archive(), &Kinds::default(), &settings, &Control::default()).unwrap();
        assert_eq!(report.period_seconds, 0.1);
        let silhouettes: Vec<f64> = report.intervals.iter().map(|interval| interval.silhouette).collect();
        assert!(silhouettes[0] > 0.4 && silhouettes[2].abs() < 0.1, "{silhouettes:?}");
        assert_eq!(report.advice.interval_seconds, 0.1);
        assert_eq!(report.intervals[0].samples_per_day, 864_000);
    }

    #[test]
    fn kinds_that_differ_in_their_mean_separate_at_every_interval() {
        let mut recording = Recording::new(Millis::SECOND);
        for step in 0..2_000 {
            let noise = 0.01 * (step * 7 % 11) as f64;
            recording.step(step, &[(Some("1"), 0.8 + noise), (Some("2"), 0.2 + noise)]);
        }
        let settings = SamplingSettings::default();
        let report =
            analyze(&recording.archive(), &Kinds::default(), &settings, &Control::default()).unwrap();
        assert!(report.intervals.iter().all(|interval| interval.silhouette > 0.9));
        assert_eq!(report.advice.interval_seconds, 60.0);
    }

    #[test]
    fn an_analysis_can_be_stopped() {
        let recording = alternating_and_steady(Millis::SECOND);
        let stop = Stop::default();
        // Everything has been read by then.
        let after_reading = |done, total| {
            if done == total {
                stop.now();
            }
        };
        let control = Control::new(&stop, &after_reading);
        let outcome =
            analyze(&recording.archive(), &Kinds::default(), &SamplingSettings::default(), &control);
        assert!(matches!(outcome, Err(AnalysisError::Stopped(_))), "{outcome:?}");
    }
}
