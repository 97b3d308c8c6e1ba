//! The scripted administrator of a rehearsal, who knows the labels of the simulation.

use detect::{Event, Span, TrainedDetector};
use lifecycle::{AcceptedScope, Answer, NewVerdict, VettingError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::label::family;
use workload::{JobId, Label, Millis, NodeName, Timestamp};

use super::{Day, NEW_KIND, RehearsalError, Stage};

/// How long the administrator takes.
const VERDICT_AFTER: Millis = Millis(900_000);
/// How long similar events stay hidden.
const ACCEPTED_FOR: Millis = Millis(30 * Millis::DAY.0);
/// More changes than there are at a time.
const MAX_CHANGES: i64 = 1_000;
const ADMINISTRATOR: &str = "administrator";

/// A day that is scored.
pub(super) struct Scored<'a> {
    pub version: &'a str,
    pub detector: &'a TrainedDetector,
    pub span: Span,
    pub labels: Vec<Label>,
}

impl Scored<'_> {
    fn label(&self, job: &JobId) -> Option<&Label> {
        self.labels.iter().find(|label| label.job == *job)
    }

    /// Whether an anomalous job runs on a node, or anywhere, in a time.
    pub fn is_disturbed(&self, node: Option<&NodeName>, from: Timestamp, to: Timestamp) -> bool {
        let mut anomalous = self.labels.iter().filter(|label| label.is_anomalous());
        anomalous
            .any(|label| label.start < to && label.end > from && node.is_none_or(|node| label.node == *node))
    }

    /// The anomalous job that explains an event: one of its jobs, or one that ran on its nodes.
    pub fn explanation(&self, event: &Event) -> Option<&Label> {
        let of_jobs = event.jobs.iter().filter_map(|job| self.label(job)).find(|label| label.is_anomalous());
        of_jobs.or_else(|| {
            let end = event.end.unwrap_or(event.opened);
            let overlaps = |label: &Label| label.start < end && label.end > event.start;
            let is_there = |label: &Label| event.nodes.contains(&label.node) || event.node.is_none();
            let is_wide = event.subject != detect::EventSubject::Job;
            self.labels
                .iter()
                .find(|label| is_wide && label.is_anomalous() && overlaps(label) && is_there(label))
        })
    }
}

/// Gives verdicts by the labels of a simulation, sometimes wrong ones.
pub(super) struct Administrator {
    rng: Xoshiro256PlusPlus,
    error_rate: f64,
    /// Events, and when they are answered.
    waiting: Vec<(Timestamp, String)>,
    /// The number of the last change of events that was noticed.
    last_change: i64,
    has_accepted_new_kind: bool,
}

impl Administrator {
    pub fn new(seed: u64, error_rate: f64) -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6164_6d69),
            error_rate,
            waiting: Vec::new(),
            last_change: 0,
            has_accepted_new_kind: false,
        }
    }

    /// Notices the events that were opened, or that no verdict hides any more.
    pub fn listen(&mut self, stage: &Stage<'_>, now: Timestamp) -> Result<(), RehearsalError> {
        for change in stage.runtime.block_on(stage.store.changes_after(self.last_change, MAX_CHANGES))? {
            self.last_change = change.number;
            if matches!(change.what.as_str(), "opened" | "shown") {
                self.waiting.push((now + VERDICT_AFTER, change.event.id));
            }
        }
        Ok(())
    }

    /// Answers what is due. Returns whether an anomaly was confirmed.
    pub fn answer(
        &mut self,
        stage: &Stage<'_>,
        scored: &Scored<'_>,
        now: Timestamp,
        day: &mut Day,
    ) -> Result<bool, RehearsalError> {
        let (due, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(time, _)| *time <= now);
        self.waiting = waiting;
        let mut has_anomaly = false;
        for (time, id) in due {
            let Some(recorded) = stage.runtime.block_on(stage.store.event(&id))? else { continue };
            let is_answered = !stage.runtime.block_on(stage.store.verdicts_of(&id))?.is_empty();
            if recorded.hidden_by.is_some() || is_answered {
                continue;
            }
            let explanation = scored.explanation(&recorded.event);
            let is_new_kind =
                |job: &JobId| scored.label(job).is_some_and(|label| family(&label.kind) == NEW_KIND);
            let is_of_new_kind =
                explanation.is_none() && recorded.event.jobs.first().is_some_and(is_new_kind);
            day.new_kind_events[usize::from(self.has_accepted_new_kind)] += usize::from(is_of_new_kind);
            let is_wrong = self.rng.random_bool(self.error_rate);
            let is_anomaly = explanation.is_some() != is_wrong;
            let kind = explanation.map_or("other", |label| family(&label.kind));
            let verdict = NewVerdict {
                event: id,
                answer: if is_anomaly { Answer::Anomaly } else { Answer::Normal },
                kind: is_anomaly.then(|| kind.to_owned()),
                comment: String::new(),
                actor: ADMINISTRATOR.into(),
                scope: AcceptedScope::Cluster,
                expires: time + ACCEPTED_FOR,
            };
            match stage.runtime.block_on(stage.vetting().give(&verdict, time)) {
                Ok(_) => {
                    day.verdicts += 1;
                    day.wrong_verdicts += usize::from(is_wrong);
                    has_anomaly |= is_anomaly;
                    self.has_accepted_new_kind |= is_of_new_kind && !is_anomaly;
                }
                Err(VettingError::NotAccepted { .. }) => day.refused_verdicts += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(has_anomaly)
    }
}
