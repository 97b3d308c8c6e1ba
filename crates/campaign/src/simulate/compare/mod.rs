//! Compares simulated with recorded jobs. For each kind, a classifier is trained to separate their windows; its
//! AUC is 0.5 if the simulator is as good as another recording, and 1 if every window gives it away. The baseline
//! is the AUC against the recorded windows with their seconds shuffled.

mod report;

use std::collections::{BTreeMap, BTreeSet};

use ::report::ReportError;
use detect::analysis::CHANNELS;
use learn::Matrix;
use learn::boost::{BoostError, two_sample_scores};
use learn::metrics::roc_auc;
use learn::stats::{correlation, mean, std_dev};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use workload::{Stop, Stopped};

use crate::job_trace::JobTrace;
pub use report::write;

/// The features of each channel of a window.
const FEATURES: [&str; 7] = [
    "mean",
    "standard deviation",
    "minimum",
    "maximum",
    "autocorrelation",
    "mean step",
    "standard deviation of means over 10 s",
];
/// Seconds over which slow changes are averaged.
const SLOW_SECONDS: usize = 10;
const MIN_WINDOW_SECONDS: usize = 2 * SLOW_SECONDS;
const MAX_FOLDS: usize = 5;
/// Windows of each side that the classifier gets at most, so that a fit takes less than a second.
const MAX_WINDOWS: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error("recorded and simulated jobs have no kind in common with the same number of threads")]
    NothingInCommon,
    #[error("a window of {0} s is too short; it needs at least {MIN_WINDOW_SECONDS} s")]
    WindowTooShort(usize),
    #[error(transparent)]
    Boost(#[from] BoostError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

#[derive(Debug, Clone, Copy)]
pub struct CompareSettings {
    pub window_seconds: usize,
    pub seed: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub window_seconds: usize,
    /// Mean over kinds of the AUC of the classifier.
    pub auc: Option<f64>,
    /// The same for recorded windows with shuffled seconds.
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
    /// Absent where fewer than two jobs were recorded: the classifier has to be tested on jobs it was not
    /// trained on.
    pub auc: Option<f64>,
    pub auc_of_shuffled: Option<f64>,
    /// By channel, the means of recorded and of simulated seconds.
    pub means: BTreeMap<&'static str, [f64; 2]>,
    #[serde(skip)]
    distributions: Vec<[Vec<(f64, f64)>; 2]>,
}

/// Compares the kinds that both have with the same number of threads.
pub fn compare(
    recorded: &[JobTrace],
    simulated: &[JobTrace],
    settings: &CompareSettings,
    stop: &Stop,
) -> Result<Comparison, CompareError> {
    let window_seconds = settings.window_seconds;
    if window_seconds < MIN_WINDOW_SECONDS {
        return Err(CompareError::WindowTooShort(window_seconds));
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
        kinds.push(compare_kind(&recorded, &simulated, settings, stop)?);
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
    settings: &CompareSettings,
    stop: &Stop,
) -> Result<KindComparison, CompareError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    let shuffled: Vec<JobTrace> = recorded
        .iter()
        .map(|job| {
            let mut job = (*job).clone();
            job.seconds.shuffle(&mut rng);
            job
        })
        .collect();
    let mut real = windows(recorded, settings.window_seconds);
    let n_recorded = real.len();
    let mut synthetic = windows(simulated, settings.window_seconds);
    let mut shuffled = windows(&shuffled.iter().collect::<Vec<_>>(), settings.window_seconds);
    // As many of each, so that the classifier gains nothing by preferring one class.
    synthetic.shuffle(&mut rng);
    synthetic.truncate(n_recorded);
    for windows in [&mut real, &mut synthetic, &mut shuffled] {
        if windows.len() > MAX_WINDOWS {
            windows.shuffle(&mut rng);
            windows.truncate(MAX_WINDOWS);
        }
    }
    let n_folds = recorded.len().min(MAX_FOLDS);
    let auc_against = |others: &[Window]| {
        stop.check()?;
        if n_folds < 2 { Ok(None) } else { cross_validated_auc(&real, others, n_folds, settings.seed) }
    };
    let both = [recorded, simulated];
    Ok(KindComparison {
        kind: recorded[0].label.kind.clone(),
        threads: recorded[0].label.threads.len(),
        recorded_jobs: recorded.len(),
        recorded_windows: n_recorded,
        simulated_windows: synthetic.len(),
        auc: auc_against(&synthetic)?,
        auc_of_shuffled: auc_against(&shuffled)?,
        means: (0..CHANNELS.len())
            .map(|channel| (CHANNELS[channel], both.map(|jobs| mean(&values(jobs, channel)))))
            .collect(),
        distributions: (0..CHANNELS.len())
            .map(|channel| both.map(|jobs| distribution(jobs, channel)))
            .collect(),
    })
}

/// The features of a window of one thread, and the index of its job.
struct Window {
    features: Vec<f32>,
    job: usize,
}

/// Mean over folds of the AUC; each fold is scored by trees that were trained on the jobs of the others. `None` if there
/// are too few windows for that.
fn cross_validated_auc(
    real: &[Window],
    others: &[Window],
    n_folds: usize,
    seed: u64,
) -> Result<Option<f64>, CompareError> {
    let all = || real.iter().chain(others);
    let is_other: Vec<bool> = (0..real.len() + others.len()).map(|index| index >= real.len()).collect();
    let folds: Vec<usize> = all().map(|window| window.job % n_folds).collect();
    let has_both = |fold: usize| {
        let outside =
            || folds.iter().zip(&is_other).filter(move |(of, _)| **of != fold).map(|(_, other)| *other);
        outside().any(|other| other) && outside().any(|other| !other)
    };
    if !(0..n_folds).all(has_both) {
        return Ok(None);
    }
    let values: Vec<f32> = all().flat_map(|window| window.features.iter().copied()).collect();
    let points = Matrix::new(values, real[0].features.len());
    let scores = two_sample_scores(&points, &is_other, &folds, seed, &Stop::default())?;
    let of_fold = |fold: usize| {
        let inside: Vec<usize> = (0..folds.len()).filter(|index| folds[*index] == fold).collect();
        let scores: Vec<f64> = inside.iter().map(|index| scores[*index]).collect();
        roc_auc(&scores, &inside.iter().map(|index| is_other[*index]).collect::<Vec<_>>())
    };
    let aucs: Vec<f64> = (0..n_folds).filter_map(of_fold).collect();
    Ok((!aucs.is_empty()).then(|| mean(&aucs)))
}

/// Windows of all threads, each overlapping the one before by two thirds.
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

/// The features of each channel, the correlations with the next thread of the job, and whether it is the first
/// thread.
fn features(window: &[Vec<[f32; 4]>], thread: usize) -> Vec<f32> {
    let series = |channel: usize, thread: usize| -> Vec<f64> {
        window.iter().map(|second| f64::from(second[thread][channel])).collect()
    };
    let mut features = Vec::new();
    for channel in 0..CHANNELS.len() {
        let values = series(channel, thread);
        let slow: Vec<f64> = values.chunks_exact(SLOW_SECONDS).map(mean).collect();
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

/// The cumulative distribution, at every percentile.
fn distribution(jobs: &[&JobTrace], channel: usize) -> Vec<(f64, f64)> {
    let mut sorted = values(jobs, channel);
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| (sorted[(sorted.len() - 1) * percent / 100], percent as f64 / 100.0);
    (0..=100).map(at).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use workload::{JobId, Label};

    use super::super::recorded_model;
    use super::super::sampler::JobSampler;
    use super::*;
    use crate::job_trace::tests::label;

    const SETTINGS: CompareSettings = CompareSettings { window_seconds: 60, seed: 0 };

    fn sampled(kind: &str, name: &str, seeds: std::ops::Range<u64>) -> Vec<JobTrace> {
        let model = Arc::new(recorded_model().unwrap().kinds[kind].clone());
        let one = |seed: u64| {
            let mut sampler = JobSampler::new(Arc::clone(&model), 2, seed);
            let seconds = (0..400).map(|_| {
                let mut second = vec![[0.0; 4]; 2];
                sampler.second([0.0; 3], |thread, rates| second[thread] = rates);
                second
            });
            let label = Label { job: JobId::new(seed.to_string()).unwrap(), ..label(name, 2) };
            JobTrace::of(label, seconds.collect())
        };
        seeds.map(one).collect()
    }

    #[test]
    fn samples_of_one_model_cannot_be_separated_and_those_of_two_can() {
        let recorded = sampled("good-io", "x", 0..8);
        let auc = |others: &[JobTrace]| {
            compare(&recorded, others, &SETTINGS, &Stop::default()).unwrap().auc.unwrap()
        };
        let same = auc(&sampled("good-io", "x", 10..18));
        assert!((same - 0.5).abs() < 0.07, "{same}");
        let other = auc(&sampled("np", "x", 10..18));
        assert_eq!(other, 1.0);
    }

    #[test]
    fn what_cannot_be_compared_is_rejected() {
        let (one, other) = (sampled("good-io", "x", 0..2), sampled("good-io", "y", 0..2));
        let stop = Stop::default();
        assert!(matches!(compare(&one, &other, &SETTINGS, &stop), Err(CompareError::NothingInCommon)));
        let short = CompareSettings { window_seconds: 5, seed: 0 };
        assert!(matches!(compare(&one, &one, &short, &stop), Err(CompareError::WindowTooShort(5))));
        stop.now();
        assert!(matches!(compare(&one, &one, &SETTINGS, &stop), Err(CompareError::Stopped(_))));
    }
}
