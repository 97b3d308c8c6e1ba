//! How far simulated jobs are from recorded ones: for each kind, a classifier is trained to tell their
//! windows apart. Beside it stands what it makes of the simplest simulator there is: the recorded seconds
//! themselves, in random order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use detect::analysis::CHANNELS;
use learn::Matrix;
use learn::boost::{BoostError, two_sample_scores};
use learn::metrics::roc_auc;
use learn::stats::{correlation, mean, std_dev};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use report::{Axis, Chart, Mark, Page, ReportError, ReportFolder, Series};
use serde::Serialize;

use crate::job_trace::JobTrace;

const FEATURES: [&str; 7] = ["mean", "deviation", "least", "most", "memory", "step", "slow deviation"];
/// Seconds that a slow change is a mean of.
const SLOW: usize = 10;
const LEAST_WINDOW: usize = 2 * SLOW;
const MOST_FOLDS: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error("recorded and simulated jobs have no kind in common with the same number of threads")]
    NothingInCommon,
    #[error("a window has at least {LEAST_WINDOW} s")]
    Window,
    #[error(transparent)]
    Boost(#[from] BoostError),
    #[error(transparent)]
    Report(#[from] ReportError),
}

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub window_seconds: usize,
    /// The mean over kinds of the area under the classifier's curve: 0.5 is as good as recorded, 1 is
    /// told apart always.
    pub auc: Option<f64>,
    /// The same of recorded seconds in random order.
    pub auc_of_shuffled: Option<f64>,
    pub kinds: Vec<KindComparison>,
}

#[derive(Debug, Clone, Serialize)]
pub struct KindComparison {
    pub kind: String,
    pub threads: usize,
    pub recorded_jobs: usize,
    pub recorded_windows: usize,
    pub simulated_windows: usize,
    /// Absent where fewer than two jobs were recorded: a classifier has to be judged by jobs that it has
    /// not seen.
    pub auc: Option<f64>,
    pub auc_of_shuffled: Option<f64>,
    /// For each channel, the means of recorded and of simulated seconds.
    pub means: BTreeMap<&'static str, [f64; 2]>,
    #[serde(skip)]
    distributions: Vec<[Vec<(f64, f64)>; 2]>,
}

/// Compares the jobs that both have.
pub fn compare(
    recorded: &[JobTrace],
    simulated: &[JobTrace],
    window_seconds: usize,
    seed: u64,
) -> Result<Comparison, CompareError> {
    if window_seconds < LEAST_WINDOW {
        return Err(CompareError::Window);
    }
    let is_long_enough = |job: &&JobTrace| job.settled().len() >= window_seconds;
    let shape = |job: &&JobTrace| (job.label.kind.clone(), job.label.threads.len());
    let shapes = |jobs: &[JobTrace]| {
        jobs.iter().filter(is_long_enough).map(|job| shape(&job)).collect::<BTreeSet<_>>()
    };
    let mut kinds = Vec::new();
    for wanted in shapes(recorded).intersection(&shapes(simulated)) {
        let is_wanted = |job: &&JobTrace| is_long_enough(job) && shape(job) == *wanted;
        let recorded: Vec<&JobTrace> = recorded.iter().filter(is_wanted).collect();
        let simulated: Vec<&JobTrace> = simulated.iter().filter(is_wanted).collect();
        kinds.push(compare_kind(&recorded, &simulated, window_seconds, seed)?);
    }
    if kinds.is_empty() {
        return Err(CompareError::NothingInCommon);
    }
    let over_kinds = |auc: fn(&KindComparison) -> Option<f64>| {
        let known: Vec<f64> = kinds.iter().filter_map(auc).collect();
        (!known.is_empty()).then(|| mean(&known))
    };
    let (auc, auc_of_shuffled) = (over_kinds(|kind| kind.auc), over_kinds(|kind| kind.auc_of_shuffled));
    Ok(Comparison { window_seconds, auc, auc_of_shuffled, kinds })
}

fn compare_kind(
    recorded: &[&JobTrace],
    simulated: &[&JobTrace],
    window_seconds: usize,
    seed: u64,
) -> Result<KindComparison, CompareError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shuffled: Vec<JobTrace> = recorded
        .iter()
        .map(|job| {
            let mut job = (*job).clone();
            job.seconds.shuffle(&mut rng);
            job
        })
        .collect();
    let real = windows(recorded, window_seconds);
    let mut synthetic = windows(simulated, window_seconds);
    // As many of each, so that one class is not the better guess.
    synthetic.shuffle(&mut rng);
    synthetic.truncate(real.len());
    let n_folds = recorded.len().min(MOST_FOLDS);
    let told_apart = |others: &[Window]| match n_folds {
        0 | 1 => Ok(None),
        _ => auc_of(&real, others, n_folds, seed),
    };
    let both = [recorded, simulated];
    Ok(KindComparison {
        kind: recorded[0].label.kind.clone(),
        threads: recorded[0].label.threads.len(),
        recorded_jobs: recorded.len(),
        recorded_windows: real.len(),
        simulated_windows: synthetic.len(),
        auc: told_apart(&synthetic)?,
        auc_of_shuffled: told_apart(&windows(&shuffled.iter().collect::<Vec<_>>(), window_seconds))?,
        means: (0..CHANNELS.len())
            .map(|channel| (CHANNELS[channel], both.map(|jobs| mean(&values(jobs, channel)))))
            .collect(),
        distributions: (0..CHANNELS.len())
            .map(|channel| both.map(|jobs| distribution(jobs, channel)))
            .collect(),
    })
}

/// A window of one thread, as numbers that say what it looks like, and the number of its job.
struct Window {
    features: Vec<f32>,
    job: usize,
}

/// The mean over folds, each scored by trees that have seen none of its jobs.
fn auc_of(
    real: &[Window],
    others: &[Window],
    n_folds: usize,
    seed: u64,
) -> Result<Option<f64>, CompareError> {
    let all = || real.iter().chain(others);
    let is_other: Vec<bool> = (0..real.len() + others.len()).map(|index| index >= real.len()).collect();
    let folds: Vec<usize> = all().map(|window| window.job % n_folds).collect();
    let values: Vec<f32> = all().flat_map(|window| window.features.iter().copied()).collect();
    let points = Matrix::new(values, real[0].features.len());
    let scores = two_sample_scores(&points, &is_other, &folds, seed, &workload::Stop::default())?;
    let of_fold = |fold: usize| {
        let inside: Vec<usize> = (0..folds.len()).filter(|index| folds[*index] == fold).collect();
        let scores: Vec<f64> = inside.iter().map(|index| scores[*index]).collect();
        roc_auc(&scores, &inside.iter().map(|index| is_other[*index]).collect::<Vec<_>>())
    };
    let aucs: Vec<f64> = (0..n_folds).filter_map(of_fold).collect();
    Ok((!aucs.is_empty()).then(|| mean(&aucs)))
}

fn windows(jobs: &[&JobTrace], length: usize) -> Vec<Window> {
    let mut windows = Vec::new();
    for (job, trace) in jobs.iter().enumerate() {
        for window in trace.settled().windows(length).step_by(length / 3) {
            let of_threads = (0..trace.label.threads.len()).map(|thread| features(window, thread));
            windows.extend(of_threads.map(|features| Window { features, job }));
        }
    }
    windows
}

fn features(window: &[Vec<[f32; 4]>], thread: usize) -> Vec<f32> {
    let series = |channel: usize, thread: usize| -> Vec<f64> {
        window.iter().map(|second| f64::from(second[thread][channel])).collect()
    };
    let mut features = Vec::new();
    for channel in 0..CHANNELS.len() {
        let values = series(channel, thread);
        let slow: Vec<f64> = values.chunks_exact(SLOW).map(mean).collect();
        let steps: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        features.extend([
            mean(&values),
            std_dev(&values),
            values.iter().copied().fold(f64::MAX, f64::min),
            values.iter().copied().fold(f64::MIN, f64::max),
            correlation(values.windows(2).map(|pair| (pair[0], pair[1]))),
            mean(&steps),
            std_dev(&slow),
        ]);
    }
    let next = (thread + 1) % window[0].len();
    for channel in 0..2 {
        let pairs = series(channel, thread).into_iter().zip(series(channel, next));
        features.push(if next == thread { 0.0 } else { correlation(pairs) });
    }
    features.push(f64::from(u8::from(thread == 0)));
    features.into_iter().map(|feature| feature as f32).collect()
}

fn values(jobs: &[&JobTrace], channel: usize) -> Vec<f64> {
    let seconds = jobs.iter().flat_map(|job| job.settled()).flatten();
    seconds.map(|rates| f64::from(rates[channel])).collect()
}

/// The cumulative distribution at a hundred places.
fn distribution(jobs: &[&JobTrace], channel: usize) -> Vec<(f64, f64)> {
    let mut sorted = values(jobs, channel);
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| (sorted[(sorted.len() - 1) * percent / 100], percent as f64 / 100.0);
    (0..=100).map(at).collect()
}

/// Writes `comparison.html`, `comparison.json` and the charts; returns the path of the page.
pub fn write(comparison: &Comparison, folder: &Path, origin: &str) -> Result<PathBuf, CompareError> {
    let folder = ReportFolder::create(folder)?;
    let shown = |auc: Option<f64>| auc.map_or_else(|| "–".into(), |auc| format!("{auc:.3}"));
    let mut page = Page::new("How far simulated jobs are from recorded ones", origin);
    page.lead(format!(
        "A classifier tells simulated windows from recorded ones with an area under the curve of {} (0.5: not at all, \
         1: always), and recorded seconds in random order with {}.",
        shown(comparison.auc),
        shown(comparison.auc_of_shuffled)
    ));
    page.text(format!(
        "Gradient-boosted trees for each kind, on windows of {} s of one thread: for each channel {}; the correlation \
         with the next thread of the job; whether it is the first. Each recorded job is scored by trees that have not \
         seen it. If the simulator was fitted to this very recording, it had an advantage that another recording would \
         not give it. Kinds of which one job was recorded cannot be judged.",
        comparison.window_seconds,
        FEATURES.join(", ")
    ));
    let rows = comparison.kinds.iter().map(|kind| {
        let counts = [kind.threads, kind.recorded_jobs, kind.recorded_windows].map(|count| count.to_string());
        let mut row = vec![kind.kind.clone()];
        row.extend(counts);
        row.extend([shown(kind.auc), shown(kind.auc_of_shuffled)]);
        row.extend(CHANNELS.iter().map(|channel| {
            let [recorded, simulated] = kind.means[channel];
            format!("{recorded:.3} / {simulated:.3}")
        }));
        row
    });
    let header = [
        "kind",
        ">threads",
        ">jobs",
        ">windows",
        ">simulated?",
        ">shuffled?",
        ">user (rec / sim)",
        ">system",
        ">iowait",
    ];
    page.table(&header, rows.collect());
    for kind in &comparison.kinds {
        for (channel, [recorded, simulated]) in CHANNELS.iter().zip(&kind.distributions) {
            let is_flat = |points: &Vec<(f64, f64)>| points.last().is_none_or(|last| last.0 < 0.02);
            if is_flat(recorded) && is_flat(simulated) {
                continue;
            }
            let what = format!("{} on {} threads", kind.kind, kind.threads);
            let share = Axis::linear("share of seconds not above").including([0.0, 1.0]);
            let rate = Axis::linear("rate").including([0.0, 1.0]);
            let chart = Chart::new(format!("{what}: {channel} rate of a second"), rate, share)
                .with(Series::new("recorded", Mark::Line, recorded.clone()))
                .with(Series::new("simulated", Mark::Line, simulated.clone()));
            let svg = folder.chart(&format!("{}-{}-{channel}", kind.kind, kind.threads), &chart)?;
            page.figure(svg, format!("Cumulative distribution of the {channel} rate of {what}."));
        }
    }
    Ok(folder.page("comparison", &page, comparison)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use workload::{Cpu, JobId, Label, NodeName, Set, Timestamp};

    use super::super::draw::JobDraw;
    use super::super::recorded_model;
    use super::*;

    fn draws(kind: &str, name: &str, seeds: std::ops::Range<u64>) -> Vec<JobTrace> {
        let model = Arc::new(recorded_model().unwrap().kinds[kind].clone());
        let one = |seed: u64| {
            let mut draw = JobDraw::new(Arc::clone(&model), 2, seed);
            let seconds = (0..400).map(|_| {
                let mut second = vec![[0.0; 4]; 2];
                draw.second([0.0; 3], |thread, rates| second[thread] = rates);
                second
            });
            let label = Label {
                campaign: "a".into(),
                set: Set::Train,
                kind: name.into(),
                anomalous: None,
                job: JobId::new(seed.to_string()).unwrap(),
                node: NodeName::new("n1").unwrap(),
                threads: vec![Cpu(0), Cpu(1)],
                start: Timestamp(0),
                end: Timestamp::from_seconds(400),
                made_by: None,
                disturbance: None,
            };
            JobTrace { label, seconds: seconds.collect(), memory: Vec::new() }
        };
        seeds.map(one).collect()
    }

    #[test]
    fn two_draws_of_one_model_are_alike_and_those_of_two_are_not() {
        let auc =
            |others: &[JobTrace]| compare(&draws("good-io", "x", 0..4), others, 60, 0).unwrap().auc.unwrap();
        let same = auc(&draws("good-io", "x", 10..14));
        assert!((same - 0.5).abs() < 0.2, "{same}");
        let other = auc(&draws("np", "x", 10..14));
        assert!(other > 0.95, "{other}");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let (one, other) = (draws("good-io", "x", 0..2), draws("good-io", "y", 0..2));
        assert!(matches!(compare(&one, &other, 60, 0), Err(CompareError::NothingInCommon)));
        assert!(matches!(compare(&one, &one, 5, 0), Err(CompareError::Window)));
    }
}
