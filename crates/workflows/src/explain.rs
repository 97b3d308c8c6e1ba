//! Explanations of verdicts: which tasks, which delay, how far from the baseline, and when.

use std::collections::{BTreeMap, HashMap};

use crate::workflow::{Span, TaskAttempt, WorkflowRun};
use learn::stats::median;
use serde::Serialize;

use crate::classify::Evidence;
use crate::classify::baseline::{Baseline, BaselineComparison};
use crate::dataset::NORMAL;
use crate::features::{Quantity, RunSummary};

/// One reason for a verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    pub kind: String,
    pub delay: &'static str,
    /// Tasks above the 95th percentile of the baseline; if there are none, all tasks of the kind.
    pub tasks: Vec<String>,
    /// The median of these tasks.
    pub observed_seconds: f64,
    /// The median of the baseline.
    pub baseline_seconds: f64,
    pub ratio: f64,
    /// When the first of these tasks started and the last one ended, in seconds since the epoch.
    pub start: f64,
    pub end: f64,
    /// Its fraction of all evidence for the verdict.
    pub weight: f64,
    pub text: String,
}

const MAX_REASONS: usize = 3;
/// Ratios in this range are not reported as a difference from the baseline.
const NEAR_BASELINE: std::ops::Range<f64> = 0.9..1.1;
/// The smallest ratio that is reported for a run that is healthy as a whole.
const MIN_REPORTED_RATIO: f64 = 1.25;
/// The fraction of tasks that may exceed the 95th percentile of the baseline if all is well.
const MAX_SLOW_FRACTION: f64 = 0.15;

/// The delay in seconds that a relative quantity is about.
fn in_seconds(quantity: Quantity) -> Quantity {
    match quantity {
        Quantity::RuntimePerCpuTime | Quantity::Execution => Quantity::Runtime,
        Quantity::StageInPerByte => Quantity::StageIn,
        Quantity::StageOutPerByte => Quantity::StageOut,
        other => other,
    }
}

/// Delays that are reported.
const REPORTED: [Quantity; 3] = [Quantity::Runtime, Quantity::StageIn, Quantity::StageOut];

/// The name of a class in a sentence.
fn class_name(class: &str) -> &str {
    match class {
        NORMAL => "healthy",
        "cpu" => "CPU",
        "hdd" => "disk",
        "loss" => "network",
        other => other,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The weightiest first.
    pub reasons: Vec<Reason>,
    /// Tasks that run longer than they should, by kind.
    pub overdue: Vec<Overdue>,
    /// All of it in one sentence.
    pub summary: String,
}

/// Explains why a run was judged to be of a class.
pub fn explain(
    summary: &RunSummary<'_>,
    baseline: &Baseline,
    class: &str,
    evidence: &Evidence,
) -> Explanation {
    let comparison = baseline.compare(summary);
    let places = places_by_kind(summary.run);
    let mut weights: BTreeMap<(&str, Quantity), f64> = BTreeMap::new();
    match evidence {
        Evidence::Features(features) => {
            for (feature, weight) in features.iter().filter(|(_, weight)| *weight > 0.0) {
                *weights.entry((&feature.kind, in_seconds(feature.quantity))).or_default() += weight;
            }
        }
        Evidence::Attempts(by_attempt) => {
            for ((place, attempt), weight) in summary.run.attempts.iter().enumerate().zip(by_attempt) {
                if let Some(quantity) = largest_ratio(&comparison, place) {
                    *weights.entry((&attempt.kind, quantity)).or_default() += weight.max(0.0);
                }
            }
        }
    }
    let sum: f64 = weights.values().sum();
    let mut reasons: Vec<Reason> = weights
        .into_iter()
        .filter_map(|((kind, quantity), weight)| {
            reason(&comparison, &places, (kind, quantity), weight / sum.max(1e-12))
        })
        .filter(|reason| class == NORMAL || reason.ratio > NEAR_BASELINE.end)
        .collect();
    reasons.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.kind.cmp(&b.kind)));
    reasons.truncate(MAX_REASONS);
    let overdue = overdue(summary.run, baseline);
    let summary = sentence(&comparison, &places, class, &reasons, &overdue);
    Explanation { reasons, overdue, summary }
}

/// The places of the attempts of each kind.
type PlacesByKind<'a> = HashMap<&'a str, Vec<usize>>;

fn places_by_kind(run: &WorkflowRun) -> PlacesByKind<'_> {
    let mut places = PlacesByKind::new();
    for (place, attempt) in run.attempts.iter().enumerate() {
        places.entry(&attempt.kind).or_default().push(place);
    }
    places
}

/// The delay of an attempt that exceeds the baseline by the largest factor.
fn largest_ratio(comparison: &BaselineComparison<'_>, place: usize) -> Option<Quantity> {
    let ratio = |quantity: Quantity| {
        let (value, range) = comparison.of(place, quantity)?;
        Some((quantity, (value + 1.0) / (range.median + 1.0)))
    };
    let ratios = REPORTED.into_iter().filter_map(ratio);
    ratios.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(quantity, _)| quantity)
}

fn reason(
    comparison: &BaselineComparison<'_>,
    places: &PlacesByKind<'_>,
    (kind, quantity): (&str, Quantity),
    weight: f64,
) -> Option<Reason> {
    let range = comparison.baseline.range(kind, quantity)?;
    let value = |place: &usize| Some((&comparison.run.attempts[*place], comparison.of(*place, quantity)?.0));
    let of_kind: Vec<(&TaskAttempt, f64)> =
        places.get(kind).into_iter().flatten().filter_map(value).collect();
    let slow: Vec<(&TaskAttempt, f64)> =
        of_kind.iter().copied().filter(|(_, value)| *value > range.p95).collect();
    let reported = if slow.is_empty() { &of_kind } else { &slow };
    if reported.is_empty() {
        return None;
    }
    let observed = median(reported.iter().map(|(_, value)| *value).collect());
    let ratio = (observed + 0.5) / (range.median + 0.5);
    let spans: Vec<Span> = reported.iter().filter_map(|(attempt, _)| attempt.execution).collect();
    let start = spans.iter().map(|span| span.start()).min_by(f64::total_cmp).unwrap_or_default();
    let end = spans.iter().map(|span| span.end()).max_by(f64::total_cmp).unwrap_or_default();
    let which = match (reported.len(), of_kind.len()) {
        (1, 1) => format!("the {kind} task"),
        (all, of) if all == of => format!("all {all} {kind} tasks"),
        (some, of) => format!("{some} of {of} {kind} tasks"),
    };
    let (name, expected) = (quantity.name(), range.median);
    let text = if NEAR_BASELINE.contains(&ratio) {
        format!("{name} of {which} near the baseline ({observed:.0} s, baseline {expected:.0} s)")
    } else {
        format!("{name} of {which} {ratio:.1} × the baseline ({observed:.0} s instead of {expected:.0} s)")
    };
    Some(Reason {
        kind: kind.to_owned(),
        delay: name,
        tasks: reported.iter().map(|(attempt, _)| attempt.task.0.clone()).collect(),
        observed_seconds: observed,
        baseline_seconds: expected,
        ratio,
        start,
        end,
        weight,
        text,
    })
}

/// Whether a quantity is near the baseline over all kinds: in the median, and in nearly all tasks.
fn is_near_baseline(comparison: &BaselineComparison<'_>, quantity: Quantity) -> bool {
    let known = comparison.all(quantity).filter(|(_, _, range)| range.median > 0.0);
    let (ratios, is_slow): (Vec<f64>, Vec<bool>) =
        known.map(|(_, value, range)| (value / range.median, value > range.p95 * NEAR_BASELINE.end)).unzip();
    let n_slow = is_slow.iter().filter(|is_slow| **is_slow).count() as f64;
    !ratios.is_empty()
        && n_slow <= MAX_SLOW_FRACTION * is_slow.len() as f64
        && NEAR_BASELINE.contains(&median(ratios))
}

/// The largest slowdown regardless of the verdict, among kinds with more slow tasks than the baseline.
fn slowest(comparison: &BaselineComparison<'_>, places: &PlacesByKind<'_>) -> Option<Reason> {
    let mut n_tasks: BTreeMap<(&str, Quantity), f64> = BTreeMap::new();
    for quantity in REPORTED {
        for (attempt, ..) in comparison.all(quantity) {
            *n_tasks.entry((&attempt.kind, quantity)).or_default() += 1.0;
        }
    }
    let is_slow = |reason: &Reason, n_tasks: f64| {
        reason.ratio > MIN_REPORTED_RATIO && reason.tasks.len() as f64 > MAX_SLOW_FRACTION * n_tasks
    };
    let found = n_tasks.into_iter().filter_map(|((kind, quantity), n_tasks)| {
        reason(comparison, places, (kind, quantity), 0.0).filter(|reason| is_slow(reason, n_tasks))
    });
    found.max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// Tasks of one kind that have been running longer than the 95th percentile of the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overdue {
    pub kind: String,
    pub tasks: Vec<String>,
    /// How long they have been running, in the median.
    pub running_seconds: f64,
    pub baseline_seconds: f64,
}

impl Overdue {
    fn text(&self) -> String {
        let who = match &self.tasks[..] {
            [one] => format!("{one} is still running"),
            several => format!("{} {} tasks are still running", several.len(), self.kind),
        };
        format!("{who} after {:.0} s (baseline {:.0} s)", self.running_seconds, self.baseline_seconds)
    }
}

/// Overdue tasks, the kind with the most tasks first.
fn overdue(run: &WorkflowRun, baseline: &Baseline) -> Vec<Overdue> {
    let Some(now) = run.end() else { return Vec::new() };
    let mut by_kind: BTreeMap<&str, (Vec<String>, Vec<f64>)> = BTreeMap::new();
    for attempt in &run.attempts {
        let (Some(since), Some(range)) =
            (attempt.running_since, baseline.range(&attempt.kind, Quantity::Execution))
        else {
            continue;
        };
        if (now - since + 1.0).ln() > range.p95 + NEAR_BASELINE.end.ln() {
            let (tasks, seconds) = by_kind.entry(&attempt.kind).or_default();
            tasks.push(attempt.task.0.clone());
            seconds.push(now - since);
        }
    }
    let overdue = |(kind, (tasks, seconds)): (&str, (Vec<String>, Vec<f64>))| Overdue {
        kind: kind.to_owned(),
        tasks,
        running_seconds: median(seconds),
        baseline_seconds: baseline
            .range(kind, Quantity::Execution)
            .map_or(0.0, |range| range.median.exp() - 1.0),
    };
    let mut found: Vec<Overdue> = by_kind.into_iter().map(overdue).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.tasks.len()));
    found
}

fn sentence(
    comparison: &BaselineComparison<'_>,
    places: &PlacesByKind<'_>,
    class: &str,
    reasons: &[Reason],
    overdue: &[Overdue],
) -> String {
    let name = class_name(class);
    let has_overdue = !overdue.is_empty();
    let overdue = overdue.iter().map(Overdue::text);
    let is_comparable = REPORTED.into_iter().any(|quantity| comparison.all(quantity).next().is_some());
    if class == NORMAL {
        let parts: Vec<String> =
            overdue.chain(slowest(comparison, places).map(|slowest| slowest.text)).collect();
        return match (parts.is_empty(), is_comparable) {
            (true, true) => format!("all delays near the baseline: {name}"),
            (true, false) => format!("no delay can be compared with the baseline: {name}"),
            (false, _) => format!("{}; as a whole {name}", parts.join("; ")),
        };
    }
    let mut parts: Vec<String> = overdue.chain(reasons.iter().map(|reason| reason.text.clone())).collect();
    if parts.is_empty() {
        parts.push("the combination of delays, each of them near the baseline".into());
    }
    for quantity in [Quantity::Cpu, Quantity::StageIn, Quantity::Runtime] {
        let is_reported = reasons.iter().any(|reason| reason.delay == quantity.name())
            || quantity == Quantity::Runtime && has_overdue;
        if !is_reported && is_near_baseline(comparison, quantity) {
            parts.push(format!("{} near the baseline", quantity.name()));
        }
    }
    format!("{}: {name}", parts.join("; "))
}
