//! Summary features of a window: for each channel except `other`, its mean, spread, lowest and highest short
//! stretch, and roughness; then the fractions of active time spent in the kernel and waiting for I/O.

use crate::channel::N_RATES;

/// Steps over which the lowest and highest means are taken.
const SHORT: usize = 5;
/// Added to times before a division, so that 0/0 does not become noise.
const MIN_RATE: f32 = 0.005;

/// The name of each feature, in the order of [`features`]; the last is the reconstruction error, which the
/// hierarchy appends.
pub fn feature_names(channels: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for (_, channel) in channels.iter().enumerate().filter(|(index, _)| *index != N_RATES - 1) {
        for feature in ["mean", "standard deviation of", "lowest 5-step mean of", "highest 5-step mean of"] {
            names.push(format!("{feature} {channel}"));
        }
        names.push(format!("step-to-step change of {channel}"));
    }
    names.push("system fraction of busy time".into());
    names.push("iowait fraction of active time".into());
    names.push("root mean squared reconstruction error".into());
    names
}

/// Features as square roots, so that a small change near zero counts as much as a large change of a large value.
pub fn features(window: &[f32], n_channels: usize) -> Vec<f32> {
    let n_steps = window.len() / n_channels;
    let mut found = Vec::new();
    for channel in (0..n_channels).filter(|channel| *channel != N_RATES - 1) {
        let at = |step: usize| window[step * n_channels + channel];
        let mean = (0..n_steps).map(at).sum::<f32>() / n_steps as f32;
        let variance = (0..n_steps).map(|step| (at(step) - mean).powi(2)).sum::<f32>() / n_steps as f32;
        let change = (1..n_steps).map(|step| (at(step) - at(step - 1)).abs()).sum::<f32>();
        let short = SHORT.min(n_steps);
        let (mut low, mut high) = (f32::MAX, 0f32);
        let mut sum = 0.0;
        for step in 0..n_steps {
            sum += at(step);
            if step + 1 >= short {
                (low, high) = (low.min(sum), high.max(sum));
                sum -= at(step + 1 - short);
            }
        }
        let root_of_short = |sum: f32| (sum / short as f32).max(0.0).sqrt();
        found.extend([
            mean.max(0.0).sqrt(),
            variance.sqrt().sqrt(),
            root_of_short(low),
            root_of_short(high),
            (change / (n_steps - 1).max(1) as f32).sqrt(),
        ]);
    }
    let [user, system, iowait] = [0, 1, 2].map(|channel| {
        (0..n_steps).map(|step| window[step * n_channels + channel]).sum::<f32>() / n_steps as f32 + MIN_RATE
    });
    found.extend([(system / (user + system)).sqrt(), (iowait / (user + system + iowait)).sqrt()]);
    found
}

/// The features of single threads whose spread over a job's threads describes the job: the means of user, system and
/// iowait, and how much user varies.
const SPREAD_OF: [usize; 4] = [0, 5, 10, 1];

/// The number of features of a job, given that of a window.
pub const fn n_job_features(n_features: usize) -> usize {
    n_features + SPREAD_OF.len()
}

/// The description of a job: the mean description of its threads, and how much they differ.
pub fn job_features(threads: &[Vec<f32>]) -> Vec<f32> {
    let n_threads = threads.len() as f32;
    let n_features = threads.first().map_or(0, Vec::len);
    let mean = |axis: usize| threads.iter().map(|thread| thread[axis]).sum::<f32>() / n_threads;
    let spread = |axis: usize| {
        let mean = mean(axis);
        (threads.iter().map(|thread| (thread[axis] - mean).powi(2)).sum::<f32>() / n_threads).sqrt()
    };
    (0..n_features).map(mean).chain(SPREAD_OF.map(spread)).collect()
}

/// The names of the features of a job, given those of a window.
pub fn job_feature_names(names: &[String]) -> Vec<String> {
    let spread = SPREAD_OF.iter().map(|axis| format!("difference between threads in {}", names[*axis]));
    names.iter().cloned().chain(spread).collect()
}

/// The fourth root of a reconstruction error: like the other features, the square root of an amplitude.
pub fn error_feature(error: f64) -> f32 {
    (error as f32).max(0.0).sqrt().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_shows_in_the_highest_short_mean_and_hardly_in_the_mean() {
        let steady = [0.5, 0.1, 0.0, 0.4].repeat(100);
        let mut burst = steady.clone();
        for step in 40..45 {
            burst[step * 4 + 2] = 0.4;
        }
        let (before, after) = (features(&steady, 4), features(&burst, 4));
        assert_eq!(before[..10], after[..10], "user and system are unchanged");
        assert!((after[10].powi(2) - 0.02).abs() < 1e-6, "the mean of iowait");
        assert!((after[13].powi(2) - 0.4).abs() < 1e-3 && after[12] == 0.0, "its highest and lowest mean");
        assert_eq!(before[1], 0.0);
    }

    #[test]
    fn every_feature_has_a_name() {
        let channels = ["user", "system", "iowait", "other", "memory"];
        assert_eq!(feature_names(&channels).len(), features(&[0.2; 50], 5).len() + 1);
        assert_eq!(feature_names(&channels)[13], "highest 5-step mean of iowait");
        assert_eq!(feature_names(&channels)[15], "mean memory");
    }
}
