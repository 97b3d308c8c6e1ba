//! How often to look: at which interval the kinds of jobs can still be told apart, by the silhouette of
//! their windows in the plane of the first principal components.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use archive::{Archive, Selection};
use learn::stats::{mean, std_dev};
use learn::{Matrix, Pca, silhouette};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use report::text::{show_bytes, show_count};
use report::{Axis, Chart, Mark, Page, ReportFolder, Series};
use serde::Serialize;
use workload::Rates;

use super::{AnalysisError, CHANNELS};
use crate::stretch::{Kinds, Stretches};

const DAY_SECONDS: f64 = 86_400.0;
const MOST_KINDS: usize = 24;

#[derive(Debug, Clone)]
pub struct SamplingSettings {
    /// Seconds that a window spans, whatever the interval.
    pub window_seconds: u64,
    /// Seconds between two samples.
    pub intervals: Vec<u64>,
    /// Windows of each kind that are kept at most, drawn by chance.
    pub windows_a_kind: usize,
    /// Windows in each random subset.
    pub subset: usize,
    pub repeats: usize,
    pub components: usize,
    pub seed: u64,
}

impl Default for SamplingSettings {
    fn default() -> Self {
        Self {
            window_seconds: 120,
            intervals: vec![1, 2, 5, 10, 15, 30, 60],
            windows_a_kind: 400,
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
    pub window_seconds: u64,
    pub repeats: usize,
    pub subset: usize,
    pub seed: u64,
    pub kinds: Vec<KindWindows>,
    /// Kinds without a window.
    pub too_short: Vec<String>,
    /// How many rare kinds were left out.
    pub left_out: usize,
    pub intervals: Vec<Interval>,
    pub advice: Advice,
}

#[derive(Debug, Clone, Serialize)]
pub struct KindWindows {
    pub kind: String,
    pub windows: usize,
}

/// What one interval buys, and what it costs.
#[derive(Debug, Clone, Serialize)]
pub struct Interval {
    pub seconds: u64,
    /// Mean and standard deviation of the silhouette over the repeats.
    pub silhouette: f64,
    pub spread: f64,
    /// Share of the variance that the components explain.
    pub explained: f64,
    /// A thread's day.
    pub samples_a_day: u64,
    pub bytes_a_day: u64,
    #[serde(skip)]
    scatter: Vec<(usize, f64, f64)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    pub interval_seconds: u64,
    pub silhouette: f64,
    pub reason: String,
}

/// Draws from a stream so that all have the same chance to be kept.
struct Reservoir {
    kept: Vec<Vec<f32>>,
    n_seen: usize,
}

impl Reservoir {
    fn offer(&mut self, most: usize, rng: &mut Xoshiro256PlusPlus, make: impl FnOnce() -> Vec<f32>) {
        self.n_seen += 1;
        if self.kept.len() < most {
            self.kept.push(make());
        } else {
            let place = rng.random_range(0..self.n_seen);
            if place < most {
                self.kept[place] = make();
            }
        }
    }
}

/// Analyses an archive.
pub fn analyse(
    archive: &Archive,
    kinds: &Kinds,
    settings: &SamplingSettings,
    progress: impl FnMut(u64, u64),
) -> Result<SamplingReport, AnalysisError> {
    let stretches = Stretches::of(archive, kinds)?;
    if stretches.period.0 % 1_000 != 0 {
        let period = stretches.period.0;
        return Err(AnalysisError::Settings(format!(
            "the archive was read every {period} ms, not in whole seconds"
        )));
    }
    let period = (stretches.period.0 / 1_000) as u64;
    let window_seconds = settings.window_seconds;
    let intervals: Vec<u64> =
        settings.intervals.iter().copied().filter(|interval| interval.is_multiple_of(period)).collect();
    if let Some(long) = intervals.iter().find(|interval| window_seconds < **interval) {
        return Err(AnalysisError::Settings(format!(
            "an interval of {long} s does not fit into a window of {window_seconds} s; ask for a longer --window"
        )));
    }
    if intervals.is_empty() {
        return Err(AnalysisError::Settings(format!(
            "the archive was read every {period} s, and no interval asked for is a multiple of that"
        )));
    }
    let n_steps = (window_seconds / period) as usize;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    let mut found: BTreeMap<String, Reservoir> = BTreeMap::new();
    let mut longest = 0;
    stretches.for_each(
        |stretch| {
            longest = longest.max(stretch.rates.len());
            let reservoir = found
                .entry(stretch.kind.to_owned())
                .or_insert_with(|| Reservoir { kept: Vec::new(), n_seen: 0 });
            for window in stretch.rates.windows(n_steps).step_by((n_steps / 12).max(1)) {
                reservoir.offer(settings.windows_a_kind, &mut rng, || flattened(window));
            }
        },
        progress,
    )?;
    if found.is_empty() {
        return Err(AnalysisError::NoJobs);
    }
    let is_usable = |reservoir: &Reservoir| reservoir.kept.len() >= 2;
    let too_short = found.iter().filter(|(_, r)| !is_usable(r)).map(|(name, _)| name.clone()).collect();
    found.retain(|_, reservoir| is_usable(reservoir));
    let left_out = keep_most_common(&mut found);
    match found.len() {
        0 => {
            let (wanted, longest) = (n_steps * period as usize, longest * period as usize);
            return Err(AnalysisError::TooShort { wanted, longest, what: "a shorter --window" });
        }
        1 => return Err(AnalysisError::OneKind(found.keys().next().cloned().unwrap_or_default())),
        _ => {}
    }
    let kinds =
        found.iter().map(|(kind, r)| KindWindows { kind: kind.clone(), windows: r.kept.len() }).collect();
    let groups: Vec<usize> = found
        .values()
        .enumerate()
        .flat_map(|(group, reservoir)| std::iter::repeat_n(group, reservoir.kept.len()))
        .collect();
    let windows: Vec<&Vec<f32>> = found.values().flat_map(|reservoir| &reservoir.kept).collect();
    if windows.iter().all(|window| *window == windows[0]) {
        return Err(AnalysisError::Constant);
    }
    // Subsets have to differ for their spread to mean anything.
    let subset = settings.subset.min(groups.len() * 3 / 5).max(2);
    let bytes_a_sample = bytes_a_sample(archive)?;
    let mut outcomes = Vec::new();
    for interval in intervals {
        let points = at_interval(&windows, (interval / period) as usize);
        let cost = Cost { interval, bytes_a_sample };
        outcomes.push(measure(&points, &groups, subset, settings, &cost)?);
    }
    let advice = advise(&outcomes);
    let (address, repeats, seed) = (archive.address().to_owned(), settings.repeats, settings.seed);
    let intervals = outcomes;
    Ok(SamplingReport {
        archive: address,
        window_seconds,
        repeats,
        subset,
        seed,
        kinds,
        too_short,
        left_out,
        intervals,
        advice,
    })
}

/// Drops the kinds that were seen least, where there are more than a picture can tell apart; returns how
/// many.
fn keep_most_common(found: &mut BTreeMap<String, Reservoir>) -> usize {
    let mut counts: Vec<usize> = found.values().map(|reservoir| reservoir.n_seen).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let Some(least) = counts.get(MOST_KINDS) else { return 0 };
    let n_before = found.len();
    found.retain(|_, reservoir| reservoir.n_seen > *least);
    n_before - found.len()
}

/// The channels of a window, step by step.
fn flattened(window: &[Rates]) -> Vec<f32> {
    window.iter().flat_map(|rates| rates.as_array()[..CHANNELS.len()].iter().copied()).collect()
}

/// Windows as they would be if counters had been read every so many steps: means over those steps, without
/// what is left at the end.
fn at_interval(windows: &[&Vec<f32>], n_steps: usize) -> Matrix {
    let width = CHANNELS.len();
    let n_columns = windows[0].len() / (n_steps * width) * width;
    let mut values = Vec::with_capacity(windows.len() * n_columns);
    for window in windows {
        for steps in window.chunks_exact(n_steps * width) {
            for channel in 0..width {
                let sum: f32 = steps.iter().skip(channel).step_by(width).sum();
                values.push(sum / n_steps as f32);
            }
        }
    }
    Matrix::new(values, n_columns)
}

struct Cost {
    interval: u64,
    bytes_a_sample: f64,
}

fn measure(
    points: &Matrix,
    groups: &[usize],
    subset: usize,
    settings: &SamplingSettings,
    cost: &Cost,
) -> Result<Interval, AnalysisError> {
    let components = settings.components.min(points.n_columns());
    let pca = Pca::fit(points, components)?;
    let projected = pca.transform(points);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ cost.interval);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    let mut scores = Vec::with_capacity(settings.repeats);
    while scores.len() < settings.repeats {
        order.shuffle(&mut rng);
        let chosen = &order[..subset];
        let chosen_groups: Vec<usize> = chosen.iter().map(|index| groups[*index]).collect();
        // A draw of one kind alone says nothing; the draw is repeated.
        if chosen_groups.iter().any(|group| *group != chosen_groups[0]) {
            scores.push(silhouette(&projected.select(chosen), &chosen_groups)?);
        }
    }
    let samples = DAY_SECONDS / cost.interval as f64;
    let scatter = order[..subset].iter().map(|index| {
        let row = projected.row(*index);
        (groups[*index], f64::from(row[0]), f64::from(row.get(1).copied().unwrap_or(0.0)))
    });
    Ok(Interval {
        seconds: cost.interval,
        silhouette: mean(&scores),
        spread: std_dev(&scores),
        explained: pca.explained_share.iter().sum(),
        samples_a_day: samples.round() as u64,
        bytes_a_day: (samples * cost.bytes_a_sample).round() as u64,
        scatter: scatter.collect(),
    })
}

/// What a sample of one thread takes in this archive.
fn bytes_a_sample(archive: &Archive) -> Result<f64, AnalysisError> {
    let catalog = archive.catalog(Selection::default())?;
    Ok(catalog.bytes() as f64 / catalog.readings().max(1) as f64)
}

/// The longest interval that separates as well as the best, but for chance.
fn advise(intervals: &[Interval]) -> Advice {
    let better = |a: &&Interval, b: &&Interval| a.silhouette.total_cmp(&b.silhouette);
    let Some(best) = intervals.iter().max_by(better) else {
        return Advice { interval_seconds: 1, silhouette: 0.0, reason: String::new() };
    };
    let finest = intervals.iter().min_by_key(|interval| interval.seconds).unwrap_or(best);
    if best.silhouette <= 0.0 {
        let reason = format!(
            "kinds of jobs do not separate at any interval (best: {:.3} at {} s), so this cannot say how often to \
             look; the shortest interval loses least",
            best.silhouette, best.seconds
        );
        return Advice { interval_seconds: finest.seconds, silhouette: finest.silhouette, reason };
    }
    let is_as_good = |interval: &&Interval| interval.silhouette >= best.silhouette - best.spread;
    let chosen = intervals.iter().filter(is_as_good).max_by_key(|interval| interval.seconds).unwrap_or(best);
    let mut reason = format!(
        "kinds of jobs separate with a silhouette of {:.3} ± {:.3}, as well as at the best interval ({} s: {:.3})",
        chosen.silhouette, chosen.spread, best.seconds, best.silhouette
    );
    if chosen.seconds != finest.seconds {
        let share = chosen.bytes_a_day as f64 / finest.bytes_a_day.max(1) as f64;
        reason += &format!(
            "; that is {:.0} % of the samples and bytes of one every {} s. What is shorter than {} s cannot be \
             seen then: an anomaly that comes and goes faster asks for a shorter interval",
            share * 100.0,
            finest.seconds,
            chosen.seconds
        );
    }
    Advice { interval_seconds: chosen.seconds, silhouette: chosen.silhouette, reason }
}

/// Writes `sampling.html`, `sampling.json` and the charts; returns the path of the page.
pub fn write(report: &SamplingReport, folder: &Path, origin: &str) -> Result<PathBuf, AnalysisError> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("How often to look", origin);
    let advice = &report.advice;
    page.lead(format!("Sample every {} s: {}.", advice.interval_seconds, advice.reason));
    page.text(format!(
        "Windows of {} s as they would have been read at each interval; their principal components; the \
         silhouette of the kinds there, on {} random subsets of {} windows (seed {}).",
        report.window_seconds, report.repeats, report.subset, report.seed
    ));
    let points =
        report.intervals.iter().map(|interval| (interval.seconds as f64, interval.silhouette)).collect();
    let mut series = Series::new("silhouette", Mark::LineAndDots, points);
    series.spread = report.intervals.iter().map(|interval| interval.spread).collect();
    let ticks = report.intervals.iter().map(|interval| interval.seconds as f64);
    let chart = Chart::new(
        "How well kinds of jobs separate",
        Axis::log("sampling interval (s)").with_ticks(ticks),
        Axis::linear("silhouette"),
    )
    .with(series)
    .note(advice.interval_seconds as f64, format!("advised: {} s", advice.interval_seconds));
    let svg = folder.chart("silhouette", &chart)?;
    page.figure(svg, "Mean over the repeats; bars are one standard deviation.");
    let rows = report.intervals.iter().map(|interval| {
        vec![
            format!("{} s", interval.seconds),
            format!("{:.3}", interval.silhouette),
            format!("{:.3}", interval.spread),
            format!("{:.0} %", interval.explained * 100.0),
            show_count(interval.samples_a_day),
            show_bytes(interval.bytes_a_day),
        ]
    });
    page.table(
        &[
            "interval",
            ">silhouette",
            ">spread",
            ">explained",
            ">samples a thread's day",
            ">bytes a thread's day",
        ],
        rows.collect(),
    );
    page.heading("Windows in the plane");
    let finest = report.intervals.iter().min_by_key(|interval| interval.seconds);
    let advised = report.intervals.iter().find(|interval| interval.seconds == advice.interval_seconds);
    let mut shown: Vec<&Interval> = finest.into_iter().chain(advised).collect();
    shown.dedup_by_key(|interval| interval.seconds);
    for interval in shown {
        let svg = folder.chart(&format!("pca-{}s", interval.seconds), &scatter(report, interval))?;
        page.figure(svg, format!("One dot a window, sampled every {} s.", interval.seconds));
    }
    let windows = report.kinds.iter().map(|kind| vec![kind.kind.clone(), kind.windows.to_string()]);
    page.table(&["kind", ">windows"], windows.collect());
    if !report.too_short.is_empty() {
        page.text(format!("Without a whole window, and left out: {}.", report.too_short.join(", ")));
    }
    if report.left_out > 0 {
        page.text(format!("{} kinds that were seen least are left out.", report.left_out));
    }
    Ok(folder.page("sampling", &page, report)?)
}

fn scatter(report: &SamplingReport, interval: &Interval) -> Chart {
    let title = format!("Principal components of windows, every {} s", interval.seconds);
    let mut chart = Chart::new(title, Axis::linear("first component"), Axis::linear("second component"));
    for (group, kind) in report.kinds.iter().enumerate() {
        let points = interval.scatter.iter().filter(|point| point.0 == group);
        let points = points.map(|point| (point.1, point.2)).collect();
        chart = chart.with(Series::new(&kind.kind, Mark::Dots, points));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_less_often_gives_means() {
        let window = vec![0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 0.2, 0.2, 0.2, 0.4, 0.4, 0.4];
        let points = at_interval(&[&window], 2);
        assert_eq!(points.n_columns(), 6);
        let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        let expected = [0.5, 0.5, 0.5, 0.3, 0.3, 0.3];
        assert!(points.row(0).iter().zip(expected).all(|(found, wanted)| close(*found, wanted)));
        let thrice = at_interval(&[&window], 3);
        assert!(thrice.n_columns() == 3 && close(thrice.row(0)[0], 0.4), "the fourth step is left out");
    }

    #[test]
    fn a_longer_interval_is_advised_only_if_it_separates_as_well() {
        let interval = |seconds, silhouette| Interval {
            seconds,
            silhouette,
            spread: 0.02,
            explained: 1.0,
            samples_a_day: 86_400 / seconds,
            bytes_a_day: 1_000_000 / seconds,
            scatter: Vec::new(),
        };
        let worse = [interval(1, 0.70), interval(10, 0.60), interval(60, 0.30)];
        assert_eq!(advise(&worse).interval_seconds, 1);
        let equal = [interval(1, 0.70), interval(10, 0.69), interval(60, 0.30)];
        let advice = advise(&equal);
        assert_eq!(advice.interval_seconds, 10);
        assert!(advice.reason.contains("10 % of the samples"), "{}", advice.reason);
    }
}
