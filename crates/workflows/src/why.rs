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
        let (value, range) = usual.compared(attempt, delays, quantity)?;
        Some((quantity, (value + 1.0) / (range.median + 1.0)))
    };
    let ratios = TOLD.into_iter().filter_map(ratio);
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
        .filter_map(|(attempt, delays)| Some((attempt, usual.compared(attempt, delays, quantity)?.0)))
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
fn is_as_usual(run: &WorkflowRun, delays: &[Delays], usual: &Usual, quantity: Quantity) -> bool {
    let compare = |(attempt, delays): (&TaskAttempt, &Delays)| {
        let (value, range) = usual.compared(attempt, delays, quantity)?;
        (range.median > 0.0).then(|| (value / range.median, value > range.high * AS_USUAL.end))
    };
    let (ratios, is_slow): (Vec<f64>, Vec<bool>) =
        run.attempts.iter().zip(delays).filter_map(compare).unzip();
    let n_slow = is_slow.iter().filter(|is_slow| **is_slow).count() as f64;
    !ratios.is_empty() && n_slow <= MOST_SLOW * is_slow.len() as f64 && AS_USUAL.contains(&median(ratios))
}

/// The slowest of a run, whatever was made of it: of kinds of which more tasks are slow than usually are.
fn slowest(run: &WorkflowRun, delays: &[Delays], usual: &Usual) -> Option<Reason> {
    let mut kinds: Vec<&str> = run.attempts.iter().map(|attempt| attempt.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let n_of = |kind: &str| run.attempts.iter().filter(|attempt| attempt.kind == kind).count() as f64;
    let all = kinds.iter().flat_map(|kind| TOLD.map(|quantity| (*kind, quantity)));
    let found = all.filter_map(|(kind, quantity)| reason(run, delays, usual, kind, quantity, 0.0));
    let is_slow = |reason: &Reason| {
        reason.ratio > WORTH_TELLING && reason.tasks.len() as f64 > MOST_SLOW * n_of(&reason.kind)
    };
    found.filter(is_slow).max_by(|a, b| a.ratio.total_cmp(&b.ratio))
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
pub fn overdue(run: &WorkflowRun, usual: &Usual) -> Vec<Overdue> {
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

fn sentence(run: &WorkflowRun, delays: &[Delays], usual: &Usual, class: &str, found: &[Reason]) -> String {
    let name = in_words(class);
    let late = overdue(run, usual);
    let is_late = !late.is_empty();
    let late = late.iter().map(Overdue::words);
    if class == NORMAL {
        let slowest = slowest(run, delays, usual).map(|slowest| slowest.words);
        let parts: Vec<String> = late.chain(slowest).collect();
        return match parts.is_empty() {
            true => format!("all delays as usual: {name}"),
            false => format!("{}; as a whole {name}", parts.join("; ")),
        };
    }
    let mut parts: Vec<String> = late.chain(found.iter().map(|reason| reason.words.clone())).collect();
    if parts.is_empty() {
        parts.push("the pattern of delays, none of which is unusual alone".into());
    }
    for quantity in [Quantity::Cpu, Quantity::StageIn, Quantity::Run] {
        let is_told = found.iter().any(|reason| reason.delay == quantity.in_words());
        let is_told = is_told || quantity == Quantity::Run && is_late;
        if !is_told && is_as_usual(run, delays, usual, quantity) {
            parts.push(format!("{} as usual", quantity.in_words()));
        }
    }
    format!("{}: {name}", parts.join("; "))
}
