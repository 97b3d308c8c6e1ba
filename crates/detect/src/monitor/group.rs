//! Groups subjects that deviate at the same time: jobs that another job affects, and jobs of a node or of the cluster
//! that have something in common.

use std::collections::BTreeSet;

use workload::{NodeName, Timestamp};

use super::{Candidate, Judged, Monitor, Track, is_responsible};
use crate::event::{Event, EventChange, EventSubject};
use crate::evidence::{Evidence, Observation, Subject};

/// A job is affected by another if the logarithm of its strength is below this part of the other's.
const AFFECTED_PART: f64 = 0.4;
/// So many jobs, and this fraction of all, have to begin to deviate at once for one event of their node.
const NODE_QUORUM: Quorum = Quorum { n_jobs: 3, fraction: 0.6, n_nodes: 1 };
/// The same for the cluster, on so many nodes.
const CLUSTER_QUORUM: Quorum = Quorum { n_jobs: 5, fraction: 0.3, n_nodes: 2 };

/// Deviations that begin within this part of a window of each other begin at the same time.
const SAME_ONSET: i64 = 2;

/// A deviation that begins on several nodes at once has to last for so many windows, the first one included.
const SHARED_WINDOWS: i64 = 4;

/// How many jobs make an event of what they have in common.
struct Quorum {
    n_jobs: usize,
    fraction: f64,
    n_nodes: usize,
}

impl Monitor<'_> {
    /// Opens events of nodes, and of the cluster, on which many jobs begin to deviate at the same time.
    pub(super) fn open_common(
        &mut self,
        judged: &mut Judged<'_>,
        candidates: &[Candidate<'_>],
    ) -> Vec<EventChange> {
        let Judged { batch, evaluated, end, .. } = *judged;
        let mut changes = Vec::new();
        let nodes: BTreeSet<&NodeName> = batch.threads().iter().map(|thread| &thread.node).collect();
        let of_nodes = nodes.into_iter().map(|node| (Subject::Node { node: node.clone() }, NODE_QUORUM));
        // The cluster first: it explains its nodes.
        for (common, quorum) in std::iter::once((Subject::Cluster, CLUSTER_QUORUM)).chain(of_nodes) {
            let is_part = |subject: &Subject| {
                subject.job().is_some() && common.node().is_none_or(|node| subject.node() == Some(node))
            };
            let is_deviating = |subject: &Subject| {
                is_part(subject) && (self.is_new(subject, end) || self.has_waited(subject, end))
            };
            let jobs: Vec<&Candidate<'_>> =
                candidates.iter().filter(|one| is_deviating(&one.observation.subject)).collect();
            let n_jobs = evaluated.keys().filter(|subject| is_part(subject)).count();
            let n_nodes =
                jobs.iter().map(|one| one.observation.subject.node()).collect::<BTreeSet<_>>().len();
            let n_enough = quorum.n_jobs.max((n_jobs as f64 * quorum.fraction).ceil() as usize);
            let is_quorum = jobs.len() >= n_enough && n_nodes >= quorum.n_nodes;
            let is_known = |event: &Event| {
                let is_about_jobs = !event.jobs.is_empty();
                is_about_jobs && is_responsible(event, &common) || event.subject == EventSubject::Cluster
            };
            let has_common_cause = common.node().is_some() && self.have_common_cause(&jobs);
            if !(is_quorum || has_common_cause) || self.open_events().any(is_known) {
                continue;
            }
            let strongest = jobs[0];
            if self.may_pass(strongest.observation, end) {
                continue;
            }
            let observation = Observation { subject: common.clone(), ..strongest.observation.clone() };
            let Some(change) = self.open_event(judged, &observation, strongest.ratio) else { continue };
            let id = change.event().id.clone();
            for one in jobs {
                changes.extend(self.attach(&one.observation.subject, &id));
            }
            let event = self.events[&id].clone();
            changes.push(match change {
                EventChange::Reopened(_) => EventChange::Reopened(event),
                _ => EventChange::Opened(event),
            });
        }
        changes
    }

    /// Whether at least two jobs of a node, none of them part of an event yet, deviate at the same moment, by the same
    /// evidence and about as much.
    fn have_common_cause(&self, jobs: &[&Candidate<'_>]) -> bool {
        let Some((strongest, others)) = jobs.split_first() else { return false };
        let is_alike = |one: &Candidate<'_>| {
            one.observation.evidence == strongest.observation.evidence
                && one.ratio.ln() >= AFFECTED_PART * strongest.ratio.ln()
        };
        let is_in_no_event = |one: &Candidate<'_>| {
            self.tracks.get(&one.observation.subject).is_none_or(|track| track.event.is_none())
        };
        !others.is_empty()
            && others.iter().all(|one| is_alike(one))
            && jobs.iter().all(|one| is_in_no_event(one))
    }

    /// Whether a job began to deviate at the same time as that of an event, and by the same evidence: what many jobs of a
    /// cluster share, such as storage, is reported once. Memory and CPU time of others are a job's own.
    pub(super) fn has_same_cause(&self, observation: &Observation, event: &Event) -> bool {
        let evidence = observation.evidence;
        let first = self.tracks.get(&observation.subject).and_then(|track| track.first(evidence));
        can_be_shared(evidence)
            && observation.subject.job().is_some()
            && !event.jobs.is_empty()
            && event.level == observation.evidence
            && first.is_some_and(|first| self.is_same_onset(first, event.start))
    }

    /// Whether a job may deviate only because of a short disturbance of what nodes share, such as a stall of storage: a
    /// job of another node began to deviate at the same time and about as much, and neither has lasted yet.
    pub(super) fn may_pass(&self, observation: &Observation, end: Timestamp) -> bool {
        let Observation { subject: Subject::Job { node, job }, evidence, .. } = observation else {
            return false;
        };
        let own = self.tracks.get(&observation.subject);
        let Some((first, ratio)) = own.and_then(|own| Some((own.first(*evidence)?, own.ratio(*evidence))))
        else {
            return false;
        };
        let is_alike = |(subject, track): (&Subject, &Track)| {
            let is_elsewhere =
                subject.node() != Some(node) && subject.job().is_some_and(|other| other != job);
            let began = track.first(*evidence).filter(|_| is_elsewhere);
            began.is_some_and(|began| self.is_same_onset(began, first))
                && track.ratio(*evidence) > 1.0
                && track.ratio(*evidence).ln() >= AFFECTED_PART * ratio.ln()
        };
        can_be_shared(*evidence)
            && (end - first).0 < SHARED_WINDOWS * self.length.0
            && self.tracks.iter().any(is_alike)
    }

    fn is_same_onset(&self, one: Timestamp, other: Timestamp) -> bool {
        (one - other).0.abs() <= self.length.0 / SAME_ONSET
    }

    /// Whether a subject began to deviate within the last two windows.
    pub(super) fn is_new(&self, subject: &Subject, end: Timestamp) -> bool {
        let first = self.tracks.get(subject).and_then(|track| track.first_above.or(track.first_lasting));
        first.is_some_and(|first| (end - first).0 <= 2 * self.length.0)
    }

    /// Whether a subject is part of no event only because its deviation might have passed.
    fn has_waited(&self, subject: &Subject, end: Timestamp) -> bool {
        let track = self.tracks.get(subject).filter(|track| track.event.is_none());
        let first = track.and_then(|track| track.first_above.or(track.first_lasting));
        first.is_some_and(|first| (end - first).0 <= (SHARED_WINDOWS + 1) * self.length.0)
    }

    /// An event that was just opened, and what it means for weaker events that began on its node shortly before: those
    /// jobs were affected first.
    pub(super) fn absorb(&mut self, change: EventChange) -> Vec<EventChange> {
        let (id, opened) = (change.event().id.clone(), change.event().opened);
        let is_recent = |event: &Event| {
            event.is_open() && event.id != id && (opened - event.opened).0 <= 2 * self.length.0
        };
        let recent: BTreeSet<String> =
            self.events.values().filter(|event| is_recent(event)).map(|event| event.id.clone()).collect();
        let of_recent = |(subject, track): (&Subject, &Track)| {
            let event = self.events.get(track.event.as_ref().filter(|id| recent.contains(*id))?)?;
            let is_weaker = self.is_covered(subject, event.strength, &id) && is_responsible(event, subject);
            is_weaker.then(|| subject.clone())
        };
        let affected: Vec<Subject> = self.tracks.iter().filter_map(of_recent).collect();
        let mut changes = Vec::new();
        for subject in affected {
            changes.extend(self.attach(&subject, &id));
        }
        changes.push(match change {
            EventChange::Opened(_) => EventChange::Opened(self.events[&id].clone()),
            other => other,
        });
        changes
    }

    /// Whether an open event explains that a subject deviates: it is about the same job, or about one on the same node
    /// that deviates much more.
    pub(super) fn is_covered(&self, subject: &Subject, ratio: f64, id: &str) -> bool {
        let Some(event) = self.events.get(id).filter(|event| event.is_open()) else { return false };
        // Memory and CPU time of others are a job's own, and do not explain what its neighbours do.
        let is_own = matches!(event.level, Evidence::Memory | Evidence::ForeignCpu);
        let is_weaker = !is_own && ratio.ln() < AFFECTED_PART * event.strength.ln();
        let is_cluster = event.subject == EventSubject::Cluster;
        match subject {
            Subject::Cluster => true,
            Subject::Node { node } => is_cluster || event.nodes.contains(node),
            Subject::Job { node, job } => {
                // What begins to deviate together with the cluster, or with other jobs of a node, is part of it.
                let is_common =
                    is_cluster || event.subject == EventSubject::Node && event.nodes.contains(node);
                let is_part = event.jobs.contains(job) || self.is_new(subject, event.opened);
                // An event of threads without a job explains nothing about jobs.
                event.jobs.first() == Some(job)
                    || !event.jobs.is_empty() && is_common && is_part
                    || !event.jobs.is_empty() && event.nodes.contains(node) && is_weaker
            }
            Subject::Unowned { node } | Subject::Unattributed { node } => {
                event.nodes.contains(node) && is_weaker
            }
        }
    }

    /// Makes a subject part of an event. An event of its own is over.
    pub(super) fn attach(&mut self, subject: &Subject, id: &str) -> Option<EventChange> {
        let track = self.tracks.get_mut(subject)?;
        let own = track.event.replace(id.to_owned()).filter(|own| own != id);
        let near = track.last_near.unwrap_or(track.last_seen);
        let event = self.events.get_mut(id)?;
        if let Some(job) = subject.job().filter(|job| !event.jobs.contains(job)) {
            event.jobs.push(job.clone());
        }
        if let Some(node) = subject.node().filter(|node| !event.nodes.contains(node)) {
            event.nodes.push(node.clone());
        }
        let own = self.events.get_mut(&own?).filter(|own| own.is_open() && is_responsible(own, subject))?;
        own.end = Some(near);
        Some(EventChange::Closed(own.clone()))
    }
}

/// Whether jobs of several nodes can have evidence in common. Memory and CPU time of others are a job's own.
fn can_be_shared(evidence: Evidence) -> bool {
    matches!(evidence, Evidence::Error | Evidence::LastingError) || evidence.level().is_some()
}
