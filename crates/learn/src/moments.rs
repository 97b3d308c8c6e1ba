//! Means, deviations, correlations.

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of all there are, not of a sample of more.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// The one in the middle; zero where there is none.
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

/// The standard deviation of normal numbers whose median distance from their middle is one.
pub const NORMAL_WIDTH: f64 = 1.482_6;

/// The standard deviation that normal numbers would have with the same median distance from their median.
pub fn median_deviation(values: Vec<f64>) -> f64 {
    let centre = median(values.clone());
    NORMAL_WIDTH * median(values.into_iter().map(|value| (value - centre).abs()).collect())
}

/// Pearson's; zero where one side does not vary.
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (one, other): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let (a, b) = (mean(&one), mean(&other));
    let along: f64 = one.iter().zip(&other).map(|(x, y)| (x - a) * (y - b)).sum();
    let spread = deviation(&one) * deviation(&other) * one.len() as f64;
    if spread > 1e-12 { along / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_together_is_correlated_and_what_does_not_vary_is_not() {
        let numbers = [1.0, 2.0, 4.0, 3.0];
        assert!((correlation(numbers.iter().map(|x| (*x, 3.0 - 2.0 * x))) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(numbers.iter().map(|x| (*x, 5.0))), 0.0);
        assert_eq!((median(numbers.to_vec()), median(vec![3.0, 1.0, 2.0]), median(vec![])), (2.5, 2.0, 0.0));
        assert!((median_deviation(vec![1.0, 2.0, 3.0, 4.0, 900.0]) - 1.4826).abs() < 1e-9);
        assert_eq!((mean(&numbers), deviation(&[2.0, 4.0])), (2.5, 1.0));
    }
}
