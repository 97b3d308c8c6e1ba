//! Why a verdict is what it is: which tasks, which delay, when; in words that a person can act on.

use std::collections::BTreeMap;

use learn::moments::median;
use serde::Serialize;
use workload::workflow::{Delays, Span, TaskAttempt, WorkflowRun};

use crate::classify::Evidence;
use crate::classify::usual::Usual;
use crate::dataset::NORMAL;
use crate::features::Quantity;

/// One thing that led to a verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    pub kind: String,
    pub delay: &'static str,
    /// Tasks that took longer than nineteen in twenty usually do; where there is no such task, all of the kind.
    pub tasks: Vec<String>,
    /// Seconds, in the middle.
    pub found: f64,
    pub usual: f64,
    pub ratio: f64,
    /// From when to when these tasks ran, in seconds since the start of the run.
    pub from: f64,
    pub to: f64,
    /// How much it counts, as a share of all that speaks for the verdict.
    pub weight: f64,
    pub words: String,
}

/// Reasons that are told.
const MOST_REASONS: usize = 3;
/// Less than this is as usual.
const AS_USUAL: std::ops::Range<f64> = 0.9..1.1;

/// Delays that are seen in seconds, for what is judged by ratios.
fn in_seconds(quantity: Quantity) -> Quantity {
    match quantity {
        Quantity::Stretch | Quantity::Length => Quantity::Run,
        Quantity::StageInSlowness => Quantity::StageIn,
        Quantity::StageOutSlowness => Quantity::StageOut,
        other => other,
    }
}

/// What is wrong, as a person would call it.
fn in_words(class: &str) -> &str {
    match class {
        NORMAL => "healthy",
        "cpu" => "CPU",
        "hdd" => "disk",
        "loss" => "network",
        other => other,
    }
}

/// The reasons of a verdict, the weightiest first, and all of it in a sentence.
pub fn reasons(run: &WorkflowRun, usual: &Usual, class: &str, evidence: &Evidence) -> (Vec<Reason>, String) {
    let delays = run.delays();
    let mut weights: BTreeMap<(&str, Quantity), f64> = BTreeMap::new();
    match evidence {
        Evidence::Features(features) => {
            for (feature, weight) in features.iter().filter(|(_, weight)| *weight > 0.0) {
                *weights.entry((&feature.kind, in_seconds(feature.quantity))).or_default() += weight;
            }
        }
        Evidence::Attempts(by_attempt) => {
            for ((attempt, delays), weight) in run.attempts.iter().zip(&delays).zip(by_attempt) {
                if let Some(quantity) = most_unusual(attempt, delays, usual) {
                    *weights.entry((&attempt.kind, quantity)).or_default() += weight.max(0.0);
                }
            }
        }
    }
    let sum: f64 = weights.values().sum();
    let mut found: Vec<Reason> = weights
        .into_iter()
        .filter_map(|((kind, quantity), weight)| {
            reason(run, &delays, usual, kind, quantity, weight / sum.max(1e-12))
        })
        .filter(|reason| class == NORMAL || reason.ratio > AS_USUAL.end)
        .collect();
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.kind.cmp(&b.kind)));
    found.truncate(MOST_REASONS);
    let because = sentence(run, &delays, usual, class, &found);
    (found, because)
}

fn most_unusual(attempt: &TaskAttempt, delays: &Delays, usual: &Usual) -> Option<Quantity> {
    let ratio = |quantity: Quantity| {
        let (value, range) = (quantity.of(attempt, delays)?, usual.range(&attempt.kind, quantity)?);
        Some((quantity, (value + 1.0) / (range.median + 1.0)))
    };
    let ratios = [Quantity::Run, Quantity::StageIn, Quantity::StageOut].into_iter().filter_map(ratio);
    ratios.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(quantity, _)| quantity)
}

fn reason(
    run: &WorkflowRun,
    delays: &[Delays],
    usual: &Usual,
    kind: &str,
    quantity: Quantity,
    weight: f64,
) -> Option<Reason> {
    let range = usual.range(kind, quantity)?;
    let of_kind: Vec<(&TaskAttempt, f64)> = run
        .attempts
        .iter()
        .zip(delays)
        .filter(|(attempt, _)| attempt.kind == kind)
        .filter_map(|(attempt, delays)| Some((attempt, quantity.of(attempt, delays)?)))
        .collect();
    let slow: Vec<(&TaskAttempt, f64)> =
        of_kind.iter().copied().filter(|(_, value)| *value > range.high).collect();
    let told = if slow.is_empty() { &of_kind } else { &slow };
    if told.is_empty() {
        return None;
    }
    let found = median(told.iter().map(|(_, value)| *value).collect());
    let ratio = (found + 0.5) / (range.median + 0.5);
    let start = run.start().unwrap_or_default();
    let spans: Vec<Span> = told.iter().filter_map(|(attempt, _)| attempt.execution).collect();
    let from = spans.iter().map(|span| span.start() - start).fold(f64::INFINITY, f64::min);
    let to = spans.iter().map(|span| span.end() - start).fold(0.0, f64::max);
    let count = if told.len() == of_kind.len() {
        format!("all {}", told.len())
    } else {
        format!("{} of {}", told.len(), of_kind.len())
    };
    let how =
        if AS_USUAL.contains(&ratio) { "as usual".to_owned() } else { format!("{ratio:.1} times the usual") };
    let words = format!(
        "{} of {count} {kind} tasks {how} ({found:.0} s, usually {:.0} s)",
        quantity.in_words(),
        range.median
    );
    Some(Reason {
        kind: kind.to_owned(),
        delay: quantity.in_words(),
        tasks: told.iter().map(|(attempt, _)| attempt.task.0.clone()).collect(),
        found,
        usual: range.median,
        ratio,
        from: if from.is_finite() { from } else { 0.0 },
        to,
        weight,
        words,
    })
}

/// The middle of how many times the usual a quantity is, over all kinds.
fn overall(run: &WorkflowRun, delays: &[Delays], usual: &Usual, quantity: Quantity) -> Option<f64> {
    let ratio = |(attempt, delays): (&TaskAttempt, &Delays)| {
        let (value, range) = (quantity.of(attempt, delays)?, usual.range(&attempt.kind, quantity)?);
        (range.median > 0.0).then(|| value / range.median)
    };
    let ratios: Vec<f64> = run.attempts.iter().zip(delays).filter_map(ratio).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

fn sentence(run: &WorkflowRun, delays: &[Delays], usual: &Usual, class: &str, found: &[Reason]) -> String {
    let name = in_words(class);
    if class == NORMAL {
        return match found
            .iter()
            .max_by(|a, b| a.ratio.total_cmp(&b.ratio))
            .filter(|most| most.ratio > AS_USUAL.end)
        {
            Some(most) => {
                format!("nothing beyond what healthy runs show; the most is {}: {name}", most.words)
            }
            None => format!("all delays as usual: {name}"),
        };
    }
    let mut parts: Vec<String> = found.iter().map(|reason| reason.words.clone()).collect();
    if parts.is_empty() {
        parts.push("the pattern of delays, none of which is unusual alone".into());
    }
    for quantity in [Quantity::Cpu, Quantity::StageIn, Quantity::Run] {
        let is_told = found.iter().any(|reason| reason.delay == quantity.in_words());
        let is_usual = overall(run, delays, usual, quantity).is_some_and(|ratio| AS_USUAL.contains(&ratio));
        if !is_told && is_usual {
            parts.push(format!("{} as usual", quantity.in_words()));
        }
    }
    format!("{}: {name}", parts.join("; "))
}
