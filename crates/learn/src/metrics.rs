//! How good scores are.

/// The chance that a positive has a higher score than a negative; ties count half. `None` unless there
/// are both.
pub fn roc_auc(scores: &[f64], is_positive: &[bool]) -> Option<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let n_positive = is_positive.iter().filter(|is_positive| **is_positive).count();
    let n_negative = is_positive.len() - n_positive;
    if n_positive == 0 || n_negative == 0 {
        return None;
    }
    let mut rank_sum = 0.0;
    let mut below = 0;
    for tied in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let rank = below as f64 + (tied.len() + 1) as f64 / 2.0;
        rank_sum += rank * tied.iter().filter(|index| is_positive[**index]).count() as f64;
        below += tied.len();
    }
    let least = (n_positive * (n_positive + 1)) as f64 / 2.0;
    Some((rank_sum - least) / (n_positive * n_negative) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_all_that_counts_and_ties_are_half() {
        let auc = |scores: &[f64]| roc_auc(scores, &[false, false, true, true]);
        assert_eq!(auc(&[0.1, 0.2, 0.3, 9.0]), Some(1.0));
        assert_eq!(auc(&[3.0, 2.0, 1.0, 0.0]), Some(0.0));
        assert_eq!(auc(&[1.0; 4]), Some(0.5));
        assert_eq!(auc(&[0.1, 0.35, 0.3, 0.8]), Some(0.75));
        assert_eq!(roc_auc(&[1.0], &[true]), None);
    }
}
