//! Evaluates events: which anomalous jobs raise one at the budget in force, how soon, and how many events are false.

use std::collections::BTreeMap;

use learn::stats::median;
use serde::Serialize;
use workload::label::family;
use workload::{Label, Millis, Timestamp};

use crate::archive_events::FoundEvents;
use crate::event::Event;

/// The events of one anomalous kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindEvents {
    pub kind: String,
    pub n_jobs: usize,
    /// Jobs that are part of an event.
    pub n_found: usize,
    /// Jobs that an event names as responsible.
    pub n_responsible: usize,
    /// The median time from the start of the job to the event.
    pub median_delay_seconds: Option<f64>,
}

/// The events of a test set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventEvaluation {
    pub hours: f64,
    pub kinds: Vec<KindEvents>,
    pub n_events: usize,
    /// Events without any anomalous job.
    pub n_false: usize,
    pub false_per_day: f64,
    pub median_delay_seconds: Option<f64>,
    pub false_events: Vec<Event>,
}

impl EventEvaluation {
    /// Compares events with labels of the same time. Kinds that differ in size only are taken together.
    pub fn new(found: &FoundEvents, labels: &[Label], window: Millis) -> Self {
        let anomalous: Vec<&Label> = labels.iter().filter(|label| label.is_anomalous()).collect();
        let mut by_kind: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        for label in &anomalous {
            by_kind.entry(family(&label.kind)).or_default().push(Outcome::of(label, &found.events, window));
        }
        let mut all_delays = Vec::new();
        let mut kinds = Vec::new();
        for (kind, outcomes) in by_kind {
            let delays: Vec<f64> = outcomes.iter().filter_map(|one| one.delay_seconds).collect();
            all_delays.extend(&delays);
            kinds.push(KindEvents {
                kind: kind.to_owned(),
                n_jobs: outcomes.len(),
                n_found: delays.len(),
                n_responsible: outcomes.iter().filter(|one| one.is_responsible).count(),
                median_delay_seconds: median_of(delays),
            });
        }
        let is_false = |event: &&Event| !anomalous.iter().any(|label| is_about(event, label, window));
        let false_events: Vec<Event> = found.events.iter().filter(is_false).cloned().collect();
        Self {
            hours: found.hours,
            kinds,
            n_events: found.events.len(),
            n_false: false_events.len(),
            false_per_day: false_events.len() as f64 / (found.hours / 24.0).max(f64::MIN_POSITIVE),
            median_delay_seconds: median_of(all_delays),
            false_events,
        }
    }

    /// The fraction of anomalous jobs that were found.
    pub fn found_fraction(&self) -> Option<f64> {
        let n_jobs: usize = self.kinds.iter().map(|kind| kind.n_jobs).sum();
        let n_found: usize = self.kinds.iter().map(|kind| kind.n_found).sum();
        (n_jobs > 0).then(|| n_found as f64 / n_jobs as f64)
    }
}

fn median_of(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

/// What happened to one anomalous job.
struct Outcome {
    /// Absent if it was not found.
    delay_seconds: Option<f64>,
    is_responsible: bool,
}

impl Outcome {
    fn of(label: &Label, events: &[Event], window: Millis) -> Self {
        let about: Vec<&Event> = events.iter().filter(|event| is_about(event, label, window)).collect();
        let delay = |event: &&Event| (event.opened - label.start).as_seconds().max(0.0);
        let first = about.iter().map(delay).min_by(f64::total_cmp);
        let is_responsible = about.iter().any(|event| event.jobs.first().is_none_or(|job| *job == label.job));
        Self { delay_seconds: first, is_responsible }
    }
}

/// Whether an event names the job of a label, or for a process without a job its threads, at the time of the label.
fn is_about(event: &Event, label: &Label, window: Millis) -> bool {
    let end = event.end.unwrap_or(Timestamp::MAX).max(event.opened + window);
    let overlaps = event.start <= label.end && end >= label.start;
    let is_on_threads = || {
        event.node.as_ref() == Some(&label.node)
            && event.threads.iter().any(|cpu| label.threads.contains(cpu))
    };
    overlaps && (event.jobs.contains(&label.job) || event.jobs.is_empty() && is_on_threads())
}
