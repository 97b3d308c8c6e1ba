//! Descriptive statistics of plain slices: mean, median, quantiles, deviations, correlation, softmax.

use std::ops::{Add, Div, Sub};

/// The arithmetic mean; zero for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The population standard deviation (divided by n, not n − 1); zero for no values.
pub fn std_dev(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// Distances between the distribution functions of two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distances {
    /// The largest difference (Kolmogorov-Smirnov).
    pub ks: f64,
    /// The area between them: how far values have to be moved, in the mean, to turn one sample into the other.
    pub wasserstein: f64,
}

/// Distances of two sorted samples.
pub fn distances(one: &[f64], other: &[f64]) -> Distances {
    if one.is_empty() || other.is_empty() {
        let ks = if one.len() == other.len() { 0.0 } else { 1.0 };
        return Distances { ks, wasserstein: 0.0 };
    }
    let (mut a, mut b) = (0, 0);
    let (mut largest, mut area) = (0f64, 0.0);
    let mut last = one[0].min(other[0]);
    while a < one.len() || b < other.len() {
        let next = match (one.get(a), other.get(b)) {
            (Some(one), Some(other)) => one.min(*other),
            (Some(value), None) | (None, Some(value)) => *value,
            (None, None) => break,
        };
        let apart = (a as f64 / one.len() as f64 - b as f64 / other.len() as f64).abs();
        area += apart * (next - last);
        a += one[a..].iter().take_while(|value| **value == next).count();
        b += other[b..].iter().take_while(|value| **value == next).count();
        largest = largest.max((a as f64 / one.len() as f64 - b as f64 / other.len() as f64).abs());
        last = next;
    }
    Distances { ks: largest, wasserstein: area }
}

/// The median; the mean of the two central values if their number is even, zero for no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if values.len().is_multiple_of(2) => (lower + upper) / 2.0,
        _ => upper,
    }
}

/// The value at the rank nearest to `fraction` of the way through `sorted`; zero for no values.
/// Does not interpolate, so the result is always one of the values.
pub fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    sorted[((last as f64 * fraction.clamp(0.0, 1.0)).round() as usize).min(last)]
}

/// The standard deviation of a normal distribution whose median absolute deviation is one.
pub const MAD_TO_STD: f64 = 1.482_6;

/// A robust standard deviation: the median absolute deviation from the median (MAD), scaled so that it
/// equals the standard deviation of normally distributed values.
pub fn mad_std(values: Vec<f64>) -> f64 {
    let centre = median(values.clone());
    MAD_TO_STD * median(values.into_iter().map(|value| (value - centre).abs()).collect())
}

/// Pearson's correlation coefficient; zero if either side is constant.
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (one, other): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let (a, b) = (mean(&one), mean(&other));
    let covariance: f64 = one.iter().zip(&other).map(|(x, y)| (x - a) * (y - b)).sum();
    let scale = std_dev(&one) * std_dev(&other) * one.len() as f64;
    if scale > 1e-12 { covariance / scale } else { 0.0 }
}

/// The square of the Euclidean distance between two points.
pub fn squared_distance<T: Copy + Sub<Output = T> + Into<f64>>(one: &[T], other: &[T]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (*a - *b).into().powi(2)).sum()
}

/// `f32` or `f64`.
pub trait Real: Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Div<Output = Self> {
    const ZERO: Self;
    const LOWEST: Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = Self::MIN;

    fn exp(self) -> Self {
        Self::exp(self)
    }

    fn ln(self) -> Self {
        Self::ln(self)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = Self::MIN;

    fn exp(self) -> Self {
        Self::exp(self)
    }

    fn ln(self) -> Self {
        Self::ln(self)
    }
}

/// Replaces scores (logits, or logarithms of unnormalised probabilities) by their softmax, which sums to
/// one. Returns the logarithm of the sum of the exponentials of the scores.
pub fn softmax_in_place<T: Real>(scores: &mut [T]) -> T {
    let largest = scores.iter().fold(T::LOWEST, |most, score| if *score > most { *score } else { most });
    let mut sum = T::ZERO;
    for score in scores.iter_mut() {
        // Relative to the largest, so that no exponential overflows.
        *score = (*score - largest).exp();
        sum = sum + *score;
    }
    for score in scores.iter_mut() {
        *score = *score / sum;
    }
    largest + sum.ln()
}

/// [`softmax_in_place`] on a copy of the scores.
///
/// # Panics
/// If there are not as many places as scores.
pub fn softmax_into<T: Real>(scores: &[T], out: &mut [T]) -> T {
    out.copy_from_slice(scores);
    softmax_in_place(out)
}

/// The softmax of some scores.
pub fn softmax(scores: &[f64]) -> Vec<f64> {
    let mut probabilities = scores.to_vec();
    softmax_in_place(&mut probabilities);
    probabilities
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn distances_of_samples_are_those_of_textbooks() {
        let half = distances(&[0.0, 0.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0]);
        assert_eq!(half, Distances { ks: 0.5, wasserstein: 0.5 });
        assert_eq!(distances(&[1.0, 2.0], &[1.0, 2.0]), Distances { ks: 0.0, wasserstein: 0.0 });
        assert_eq!(distances(&[], &[1.0]).ks, 1.0);
    }

    #[test]
    fn a_linear_relation_is_fully_correlated_and_a_constant_is_not() {
        let numbers = [1.0, 2.0, 4.0, 3.0];
        assert!((correlation(numbers.iter().map(|x| (*x, 3.0 - 2.0 * x))) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(numbers.iter().map(|x| (*x, 5.0))), 0.0);
    }

    #[test]
    fn summaries_of_small_samples_are_exact() {
        let numbers = [1.0, 2.0, 4.0, 3.0];
        assert_eq!((mean(&numbers), std_dev(&[2.0, 4.0])), (2.5, 1.0));
        assert_eq!(median(numbers.to_vec()), 2.5);
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![])), (2.0, 0.0));
        assert!((mad_std(vec![1.0, 2.0, 3.0, 4.0, 900.0]) - 1.4826).abs() < 1e-9);
        assert_eq!((quantile(&[1.0, 2.0, 3.0], 0.5), quantile(&[1.0, 2.0, 3.0], 0.9)), (2.0, 3.0));
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 1.0)), (0.0, 7.0));
        assert_eq!(squared_distance(&[0.0f32, 3.0], &[4.0, 0.0]), 25.0);
    }

    #[test]
    fn softmax_of_large_scores_does_not_overflow() {
        assert_eq!(softmax(&[1e6, 1e6]), [0.5, 0.5]);
        let mut scores = [1.0f32.ln(), 3.0f32.ln()];
        let log_sum = softmax_in_place(&mut scores);
        assert!((scores[1] - 0.75).abs() < 1e-6 && (log_sum - 4.0f32.ln()).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn softmax_sums_to_one_keeps_the_order_and_ignores_a_shift(
            scores in proptest::collection::vec(-50.0f64..50.0, 1..20),
            shift in -1e3f64..1e3,
        ) {
            let found = softmax(&scores);
            prop_assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let shifted = softmax(&scores.iter().map(|score| score + shift).collect::<Vec<_>>());
            for (a, b) in found.iter().zip(&shifted) {
                prop_assert!((a - b).abs() < 1e-9);
            }
            for (i, j) in (0..scores.len()).zip(1..scores.len()) {
                prop_assert_eq!(scores[i] < scores[j], found[i] < found[j]);
            }
        }

        #[test]
        fn quantiles_and_the_median_lie_between_the_extremes(
            values in proptest::collection::vec(-1e6f64..1e6, 1..50),
            fraction in 0.0f64..=1.0,
        ) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
            prop_assert!((least..=most).contains(&quantile(&sorted, fraction)));
            prop_assert!((least..=most).contains(&median(values)));
        }
    }
}
