//! Quality of anomaly scores: areas under curves, and counts at a threshold.

/// The area under the ROC curve: the probability that a positive has a higher score than a negative; ties
/// count half. Nothing unless there are both.
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

/// Average precision: the area under the precision-recall curve, by steps. Nothing without a positive.
pub fn pr_auc(scores: &[f64], is_positive: &[bool]) -> Option<f64> {
    let n_positive = is_positive.iter().filter(|is_positive| **is_positive).count();
    if n_positive == 0 {
        return None;
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let (mut found, mut seen, mut area) = (0, 0, 0.0);
    for tied in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let more = tied.iter().filter(|index| is_positive[**index]).count();
        found += more;
        seen += tied.len();
        area += more as f64 / n_positive as f64 * found as f64 / seen as f64;
    }
    Some(area)
}

/// The greatest number of points of a curve.
const MAX_POINTS: usize = 200;

/// False alarm rate, recall and precision as the threshold falls, thinned out for drawing.
pub fn curve(scores: &[f64], is_positive: &[bool]) -> Vec<CurvePoint> {
    let n_positive = is_positive.iter().filter(|is_positive| **is_positive).count() as f64;
    let n_negative = is_positive.len() as f64 - n_positive;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let (mut hits, mut false_alarms) = (0.0, 0.0);
    let mut points = Vec::new();
    for tied in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let more = tied.iter().filter(|index| is_positive[**index]).count() as f64;
        hits += more;
        false_alarms += tied.len() as f64 - more;
        points.push(CurvePoint {
            false_alarms: false_alarms / n_negative.max(1.0),
            recall: hits / n_positive.max(1.0),
            precision: hits / (hits + false_alarms),
        });
    }
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    let last = points.len().saturating_sub(1);
    points
        .into_iter()
        .enumerate()
        .filter(|(at, _)| at % step == 0 || *at == last)
        .map(|(_, point)| point)
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    pub false_alarms: f64,
    pub recall: f64,
    pub precision: f64,
}

/// Detection quality at one threshold.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct AtThreshold {
    pub precision: f64,
    pub recall: f64,
    pub f1: f64,
    /// The fraction of negatives that are alarms.
    pub false_alarms: f64,
}

/// Detection quality if scores at or above the threshold are alarms.
pub fn at_threshold(scores: &[f64], is_positive: &[bool], threshold: f64) -> AtThreshold {
    let count = |alarm: bool, positive: bool| {
        let is_such = |(score, is_positive): &(&f64, &bool)| {
            (**score >= threshold) == alarm && **is_positive == positive
        };
        scores.iter().zip(is_positive).filter(is_such).count() as f64
    };
    let fraction = |part: f64, rest: f64| if part + rest > 0.0 { part / (part + rest) } else { 0.0 };
    let (hits, misses, false_alarms, quiet) =
        (count(true, true), count(false, true), count(true, false), count(false, false));
    let (precision, recall) = (fraction(hits, false_alarms), fraction(hits, misses));
    let f1 = if hits > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 };
    AtThreshold { precision, recall, f1, false_alarms: fraction(false_alarms, quiet) }
}

/// Thresholds at which [`vus_pr`] samples a curve, as in the authors' implementation.
const N_THRESHOLDS: usize = 250;

/// VUS-PR, the volume under the precision-recall surface over tolerances of up to `max_tolerance` steps around
/// each anomaly, for scores in order of time (Paparrizos et al.: Volume Under the Surface, PVLDB 15(11),
/// 2022). Nothing without an anomaly.
pub fn vus_pr(scores: &[f64], is_anomalous: &[bool], max_tolerance: usize) -> Option<f64> {
    if !is_anomalous.contains(&true) {
        return None;
    }
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let last = scores.len() - 1;
    let thresholds: Vec<f64> =
        (0..N_THRESHOLDS).map(|index| sorted[index * last / (N_THRESHOLDS - 1)]).collect();
    let areas = (0..=max_tolerance).map(|tolerance| range_pr(scores, is_anomalous, tolerance, &thresholds));
    Some(areas.sum::<f64>() / (max_tolerance + 1) as f64)
}

/// The area for one tolerance.
fn range_pr(scores: &[f64], is_anomalous: &[bool], tolerance: usize, thresholds: &[f64]) -> f64 {
    let weights = softened(is_anomalous, tolerance);
    let ranges = ranges(&weights);
    let n_strict = is_anomalous.iter().filter(|is_anomalous| **is_anomalous).count() as f64;
    let n_positive = (n_strict + weights.iter().sum::<f64>()) / 2.0;
    let (mut area, mut before) = (0.0, 0.0);
    for threshold in thresholds {
        let (mut hits, mut alarms) = (0.0, 0.0);
        for (score, weight) in scores.iter().zip(&weights) {
            if score >= threshold {
                hits += weight;
                alarms += 1.0;
            }
        }
        let is_met =
            |range: &std::ops::Range<usize>| scores[range.clone()].iter().any(|score| score >= threshold);
        let met = ranges.iter().filter(|range| is_met(range)).count() as f64 / ranges.len() as f64;
        let recall = (hits / n_positive).min(1.0) * met;
        let precision = if alarms > 0.0 { hits / alarms } else { 1.0 };
        area += (recall - before) * precision;
        before = recall;
    }
    area
}

/// Labels that are one inside an anomaly and fall off up to half the tolerance around it.
fn softened(is_anomalous: &[bool], tolerance: usize) -> Vec<f64> {
    let mut weights: Vec<f64> =
        is_anomalous.iter().map(|is_anomalous| f64::from(u8::from(*is_anomalous))).collect();
    if tolerance == 0 {
        return weights;
    }
    let strict = weights.clone();
    for range in ranges(&strict) {
        for distance in 1..=tolerance / 2 {
            let weight = (1.0 - distance as f64 / tolerance as f64).sqrt();
            let around = [range.start.checked_sub(distance), Some(range.end - 1 + distance)];
            for place in around.into_iter().flatten().filter(|place| *place < strict.len()) {
                weights[place] = f64::min(1.0, weights[place] + weight);
            }
        }
    }
    weights
}

/// The ranges with any weight.
fn ranges(weights: &[f64]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut start = None;
    for (place, weight) in weights.iter().chain(std::iter::once(&0.0)).enumerate() {
        match (start, *weight > 0.0) {
            (None, true) => start = Some(place),
            (Some(first), false) => {
                found.push(first..place);
                start = None;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roc_auc_depends_on_the_order_alone_and_ties_count_half() {
        let auc = |scores: &[f64]| roc_auc(scores, &[false, false, true, true]);
        assert_eq!(auc(&[0.1, 0.2, 0.3, 9.0]), Some(1.0));
        assert_eq!(auc(&[3.0, 2.0, 1.0, 0.0]), Some(0.0));
        assert_eq!(auc(&[1.0; 4]), Some(0.5));
        assert_eq!(auc(&[0.1, 0.35, 0.3, 0.8]), Some(0.75));
        assert_eq!(roc_auc(&[1.0], &[true]), None);
    }

    #[test]
    fn precision_and_recall_agree_with_the_definition() {
        let is_positive = [true, false, true, false, false];
        let scores = [0.9, 0.8, 0.7, 0.2, 0.1];
        assert!((pr_auc(&scores, &is_positive).unwrap() - (0.5 + 0.5 * 2.0 / 3.0)).abs() < 1e-12);
        let curve = curve(&scores, &is_positive);
        assert_eq!(curve[1], CurvePoint { false_alarms: 1.0 / 3.0, recall: 0.5, precision: 0.5 });
        assert_eq!(curve[4], CurvePoint { false_alarms: 1.0, recall: 1.0, precision: 0.4 });
        let found = at_threshold(&scores, &is_positive, 0.75);
        assert_eq!((found.precision, found.recall, found.f1), (0.5, 0.5, 0.5));
        assert!((found.false_alarms - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_volume_is_one_for_perfect_scores_and_small_for_noise() {
        let is_anomalous: Vec<bool> =
            (0..400).map(|at| (100..120).contains(&at) || (300..310).contains(&at)).collect();
        let truth: Vec<f64> = is_anomalous.iter().map(|is| f64::from(u8::from(*is))).collect();
        assert!(vus_pr(&truth, &is_anomalous, 0).unwrap() > 0.99);
        let noise: Vec<f64> = (0..400).map(|at| (f64::from(at) * 0.618_034).fract()).collect();
        assert!(vus_pr(&noise, &is_anomalous, 10).unwrap() < 0.2);
        assert_eq!(vus_pr(&noise, &[false; 400], 5), None);
    }
}
