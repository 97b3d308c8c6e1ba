//! Why a verdict is what it is: which tasks, which delay, when; in words that a person can act on.

use std::collections::BTreeMap;

use crate::workflow::{Span, TaskAttempt, WorkflowRun};
use learn::stats::median;
use serde::Serialize;

use crate::classify::Evidence;
use crate::classify::usual::{Contrast, Usual};
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
/// How many times the usual is told of a run that is healthy as a whole.
const WORTH_TELLING: f64 = 1.25;
/// Tasks that may be slower than nineteen in twenty usually are, for all to be as usual.
const MOST_SLOW: f64 = 0.15;

/// Delays that are seen in seconds, for what is judged by ratios.
fn in_seconds(quantity: Quantity) -> Quantity {
    match quantity {
        Quantity::Stretch | Quantity::Length => Quantity::Run,
        Quantity::StageInSlowness => Quantity::StageIn,
        Quantity::StageOutSlowness => Quantity::StageOut,
        other => other,
    }
}

/// Delays that are told of.
const TOLD: [Quantity; 3] = [Quantity::Run, Quantity::StageIn, Quantity::StageOut];

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

/// Why a verdict is what it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Why {
    /// The weightiest first.
    pub reasons: Vec<Reason>,
    /// Tasks that still run and should not, by kind.
    pub overdue: Vec<Overdue>,
    /// All of it in one sentence.
    pub because: String,
}

pub fn why(run: &WorkflowRun, usual: &Usual, class: &str, evidence: &Evidence) -> Why {
    let contrast = usual.beside(run);
    let mut weights: BTreeMap<(&str, Quantity), f64> = BTreeMap::new();
    match evidence {
        Evidence::Features(features) => {
            for (feature, weight) in features.iter().filter(|(_, weight)| *weight > 0.0) {
                *weights.entry((&feature.kind, in_seconds(feature.quantity))).or_default() += weight;
            }
        }
        Evidence::Attempts(by_attempt) => {
            for ((at, attempt), weight) in run.attempts.iter().enumerate().zip(by_attempt) {
                if let Some(quantity) = most_unusual(&contrast, at) {
                    *weights.entry((&attempt.kind, quantity)).or_default() += weight.max(0.0);
                }
            }
        }
    }
    let sum: f64 = weights.values().sum();
    let mut found: Vec<Reason> = weights
        .into_iter()
        .filter_map(|((kind, quantity), weight)| reason(&contrast, kind, quantity, weight / sum.max(1e-12)))
        .filter(|reason| class == NORMAL || reason.ratio > AS_USUAL.end)
        .collect();
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.kind.cmp(&b.kind)));
    found.truncate(MOST_REASONS);
    let overdue = overdue(run, usual);
    let because = sentence(&contrast, class, &found, &overdue);
    Why { reasons: found, overdue, because }
}

fn most_unusual(contrast: &Contrast<'_>, at: usize) -> Option<Quantity> {
    let ratio = |quantity: Quantity| {
        let (value, range) = contrast.of(at, quantity)?;
        Some((quantity, (value + 1.0) / (range.median + 1.0)))
    };
    let ratios = TOLD.into_iter().filter_map(ratio);
    ratios.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(quantity, _)| quantity)
}

fn reason(contrast: &Contrast<'_>, kind: &str, quantity: Quantity, weight: f64) -> Option<Reason> {
    let range = contrast.usual.range(kind, quantity)?;
    let of_kind = contrast.all(quantity).filter(|(attempt, ..)| attempt.kind == kind);
    let of_kind: Vec<(&TaskAttempt, f64)> = of_kind.map(|(attempt, value, _)| (attempt, value)).collect();
    let slow: Vec<(&TaskAttempt, f64)> =
        of_kind.iter().copied().filter(|(_, value)| *value > range.high).collect();
    let told = if slow.is_empty() { &of_kind } else { &slow };
    if told.is_empty() {
        return None;
    }
    let found = median(told.iter().map(|(_, value)| *value).collect());
    let ratio = (found + 0.5) / (range.median + 0.5);
    let start = contrast.run.start().unwrap_or_default();
    let spans: Vec<Span> = told.iter().filter_map(|(attempt, _)| attempt.execution).collect();
    let from = spans.iter().map(|span| span.start() - start).fold(f64::INFINITY, f64::min);
    let to = spans.iter().map(|span| span.end() - start).fold(0.0, f64::max);
    let which = match (told.len(), of_kind.len()) {
        (1, 1) => format!("the {kind} task"),
        (all, of) if all == of => format!("all {all} {kind} tasks"),
        (some, of) => format!("{some} of {of} {kind} tasks"),
    };
    let how =
        if AS_USUAL.contains(&ratio) { "as usual".to_owned() } else { format!("{ratio:.1} times the usual") };
    let words =
        format!("{} of {which} {how} ({found:.0} s, usually {:.0} s)", quantity.in_words(), range.median);
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

/// Whether a quantity is as usual over all kinds: in the middle, and in nearly all tasks.
fn is_as_usual(contrast: &Contrast<'_>, quantity: Quantity) -> bool {
    let known = contrast.all(quantity).filter(|(_, _, range)| range.median > 0.0);
    let (ratios, is_slow): (Vec<f64>, Vec<bool>) =
        known.map(|(_, value, range)| (value / range.median, value > range.high * AS_USUAL.end)).unzip();
    let n_slow = is_slow.iter().filter(|is_slow| **is_slow).count() as f64;
    !ratios.is_empty() && n_slow <= MOST_SLOW * is_slow.len() as f64 && AS_USUAL.contains(&median(ratios))
}

/// The slowest of a run, whatever was made of it: of kinds of which more tasks are slow than usually are.
fn slowest(contrast: &Contrast<'_>) -> Option<Reason> {
    let mut n_known: BTreeMap<(&str, Quantity), f64> = BTreeMap::new();
    for quantity in TOLD {
        for (attempt, ..) in contrast.all(quantity) {
            *n_known.entry((&attempt.kind, quantity)).or_default() += 1.0;
        }
    }
    let is_slow = |reason: &Reason, n_known: f64| {
        reason.ratio > WORTH_TELLING && reason.tasks.len() as f64 > MOST_SLOW * n_known
    };
    let found = n_known.into_iter().filter_map(|((kind, quantity), n_known)| {
        reason(contrast, kind, quantity, 0.0).filter(|reason| is_slow(reason, n_known))
    });
    found.max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// Tasks of a kind that still run after more time than nineteen in twenty take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overdue {
    pub kind: String,
    pub tasks: Vec<String>,
    /// Seconds that they have run for, in the middle, at the last moment that is known.
    pub seconds: f64,
    pub usual: f64,
}

impl Overdue {
    fn words(&self) -> String {
        let who = match &self.tasks[..] {
            [one] => format!("{one} still runs"),
            several => format!("{} {} tasks still run", several.len(), self.kind),
        };
        format!("{who} after {:.0} s, usually {:.0} s", self.seconds, self.usual)
    }
}

/// What should be over by now, the most tasks first.
fn overdue(run: &WorkflowRun, usual: &Usual) -> Vec<Overdue> {
    let Some(now) = run.end() else { return Vec::new() };
    let mut by_kind: BTreeMap<&str, (Vec<String>, Vec<f64>)> = BTreeMap::new();
    for attempt in &run.attempts {
        let (Some(since), Some(range)) =
            (attempt.running_since, usual.range(&attempt.kind, Quantity::Length))
        else {
            continue;
        };
        if (now - since + 1.0).ln() > range.high + AS_USUAL.end.ln() {
            let (tasks, seconds) = by_kind.entry(&attempt.kind).or_default();
            tasks.push(attempt.task.0.clone());
            seconds.push(now - since);
        }
    }
    let overdue = |(kind, (tasks, seconds)): (&str, (Vec<String>, Vec<f64>))| Overdue {
        kind: kind.to_owned(),
        tasks,
        seconds: median(seconds),
        usual: usual.range(kind, Quantity::Length).map_or(0.0, |range| range.median.exp() - 1.0),
    };
    let mut found: Vec<Overdue> = by_kind.into_iter().map(overdue).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.tasks.len()));
    found
}

fn sentence(contrast: &Contrast<'_>, class: &str, found: &[Reason], late: &[Overdue]) -> String {
    let name = in_words(class);
    let is_late = !late.is_empty();
    let late = late.iter().map(Overdue::words);
    let is_known = TOLD.into_iter().any(|quantity| contrast.all(quantity).next().is_some());
    if class == NORMAL {
        let parts: Vec<String> = late.chain(slowest(contrast).map(|slowest| slowest.words)).collect();
        return match (parts.is_empty(), is_known) {
            (true, true) => format!("all delays as usual: {name}"),
            (true, false) => format!("no delay that could be held against the usual: {name}"),
            (false, _) => format!("{}; as a whole {name}", parts.join("; ")),
        };
    }
    let mut parts: Vec<String> = late.chain(found.iter().map(|reason| reason.words.clone())).collect();
    if parts.is_empty() {
        parts.push("the pattern of delays, none of which is unusual alone".into());
    }
    for quantity in [Quantity::Cpu, Quantity::StageIn, Quantity::Run] {
        let is_told = found.iter().any(|reason| reason.delay == quantity.in_words());
        let is_told = is_told || quantity == Quantity::Run && is_late;
        if !is_told && is_as_usual(contrast, quantity) {
            parts.push(format!("{} as usual", quantity.in_words()));
        }
    }
    format!("{}: {name}", parts.join("; "))
}
