//! What a window is like, in a few numbers for each channel but `other`: how much, how steady, how high and low, how
//! rough; and what share of the time at work was spent in the kernel, or waiting.

use crate::channel::N_RATES;

/// Steps over which a high or a low has to last.
const SHORT: usize = 5;
/// What is added to times before they are divided, so that the share of nothing in nothing is no noise.
const LEAST: f32 = 0.005;

/// Square roots, so that a little more where there was nothing counts as much as a lot more where there was a lot.
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
        let of_short = |sum: f32| (sum / short as f32).max(0.0).sqrt();
        found.extend([
            mean.max(0.0).sqrt(),
            variance.sqrt().sqrt(),
            of_short(low),
            of_short(high),
            (change / (n_steps - 1).max(1) as f32).sqrt(),
        ]);
    }
    let [user, system, iowait] = [0, 1, 2].map(|channel| {
        (0..n_steps).map(|step| window[step * n_channels + channel]).sum::<f32>() / n_steps as f32 + LEAST
    });
    found.extend([(system / (user + system)).sqrt(), (iowait / (user + system + iowait)).sqrt()]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_shows_in_the_high_and_hardly_in_the_mean() {
        let steady = [0.5, 0.1, 0.0, 0.4].repeat(100);
        let mut burst = steady.clone();
        (40..45).for_each(|step| burst[step * 4 + 2] = 0.4);
        let (before, after) = (features(&steady, 4), features(&burst, 4));
        assert_eq!(before[..10], after[..10], "user and system are as they were");
        assert!((after[10].powi(2) - 0.02).abs() < 1e-6, "the mean of iowait");
        assert!((after[13].powi(2) - 0.4).abs() < 1e-3 && after[12] == 0.0, "its high and its low");
        assert_eq!(before[1], 0.0);
    }
}
