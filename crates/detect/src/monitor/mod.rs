//! Turns window batches into events: scores, compares with thresholds, groups, opens and closes.
//!
//! A subject (a job on a node, the unowned threads of a node, a node, the cluster) opens an event when evidence exceeds
//! its threshold for as long as the detector's confirmation. The event closes when nothing has come near the threshold
//! for a window, or when the job has ended, and the same event opens again if that happens soon after. A job that
//! deviates much less than another on its node at the same time is affected by it, and part of its event.

mod group;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use workload::{JobId, Millis, NodeName, Timestamp};

use crate::calibration::{Calibration, Threshold};
use crate::data::KnownJobs;
use crate::detector::Finding;
use crate::error::DetectError;
use crate::event::{Event, EventChange, EventSubject, event_id};
use crate::evidence::{Evidence, Observation, Subject, Sustained, observe};
use crate::library::Library;
use crate::progress::Progress;
use crate::regions::Regions;
use crate::trained::TrainedDetector;
use crate::why::{Opening, Reasons, certainty};
use crate::window::WindowBatch;

/// An event closes when its evidence stays below this part of the threshold.
const CLOSE_BELOW: f64 = 0.8;
/// An event that deviates again within this time is opened again.
const REOPEN_WITHIN: Millis = Millis(900_000);
/// A node that sends nothing for this long has disappeared, and its events are closed.
const NODE_GONE: Millis = Millis(300_000);
/// Strengths are finite numbers.
const MAX_STRENGTH: f64 = 1e9;

/// A batch that has been examined and compared with thresholds.
struct Judged<'b> {
    batch: &'b WindowBatch,
    findings: &'b mut [Finding],
    evaluated: &'b BTreeMap<Subject, Evaluated>,
    /// The end of its windows.
    end: Timestamp,
}

/// A subject whose evidence has lasted.
#[derive(Clone, Copy)]
struct Candidate<'e> {
    ratio: f64,
    observation: &'e Observation,
}

/// What is remembered of a subject.
#[derive(Debug, Clone)]
struct Track {
    /// The start of the first window of those that exceed the threshold now, of evidence that need not last, and of
    /// evidence that has to.
    first_above: Option<Timestamp>,
    first_lasting: Option<Timestamp>,
    /// The largest ratios to a threshold in the last window, of evidence that need not last, and of evidence that has to.
    ratios: [f64; 2],
    /// The end of the last window that came near the threshold.
    last_near: Option<Timestamp>,
    last_seen: Timestamp,
    /// The event that it is part of.
    event: Option<String>,
}

impl Track {
    /// The start of the first window that exceeds the threshold of some evidence.
    fn first(&self, evidence: Evidence) -> Option<Timestamp> {
        if evidence.is_lasting() { self.first_lasting } else { self.first_above }
    }

    /// The largest ratio to a threshold in the last window, of evidence that has to last as long as this.
    fn ratio(&self, evidence: Evidence) -> f64 {
        self.ratios[usize::from(evidence.is_lasting())]
    }

    fn new(last_seen: Timestamp) -> Self {
        Self {
            first_above: None,
            first_lasting: None,
            ratios: [0.0; 2],
            last_near: None,
            last_seen,
            event: None,
        }
    }
}

/// The evidence about a subject in one batch.
#[derive(Debug, Clone)]
struct Evaluated {
    /// The largest ratio to a threshold. Evidence that has to last for longer than a window counts once it has.
    now: f64,
    /// The largest ratio of this batch alone, of evidence that need not last, and of evidence that has to.
    brief: f64,
    long: f64,
    /// The largest ratio that has lasted, and its observation.
    lasting: Option<(f64, Observation)>,
}

/// Turns the findings of a detector into events.
pub struct Monitor<'a> {
    detector: &'a TrainedDetector,
    calibration: &'a Calibration,
    known: &'a KnownJobs,
    library: Library,
    regions: Option<Regions>,
    sustained: Sustained,
    tracks: BTreeMap<Subject, Track>,
    /// Open events, and those that may be opened again.
    events: BTreeMap<String, Event>,
    /// Nodes have their own clocks.
    progress: Progress,
    /// The length of a window.
    length: Millis,
    /// The evidence of the last batch.
    strengths: BTreeMap<Subject, f64>,
}

impl<'a> Monitor<'a> {
    /// `known` decides which thresholds apply, if there are thresholds per kind. The library's bad kinds raise events
    /// on their own.
    pub fn new(
        detector: &'a TrainedDetector,
        known: &'a KnownJobs,
        library: Library,
    ) -> Result<Self, DetectError> {
        let calibration = detector.calibration.as_ref().ok_or(DetectError::NotCalibrated)?;
        let probability = calibration.probability(Evidence::Region);
        let regions = Regions::fit(&library.region_points(), &library.known, probability);
        Ok(Self {
            detector,
            calibration,
            known,
            library,
            regions,
            sustained: Sustained::new(detector.confirmation()),
            tracks: BTreeMap::new(),
            events: BTreeMap::new(),
            progress: Progress::new(detector.event_spec().length()),
            length: detector.event_spec().length(),
            strengths: BTreeMap::new(),
        })
    }

    /// Compares events with other labelled jobs from now on.
    pub fn use_library(&mut self, library: Library) {
        let probability = self.calibration.probability(Evidence::Region);
        self.regions = Regions::fit(&library.region_points(), &library.known, probability);
        self.library = library;
    }

    /// Continues with events that were open when another monitor ended, which had seen windows up to `time`.
    pub fn resume(&mut self, open: Vec<Event>, time: Timestamp) {
        for event in open {
            let subject = match (event.subject, event.node.clone(), event.jobs.first()) {
                (EventSubject::Job, Some(node), Some(job)) => Subject::Job { node, job: job.clone() },
                (EventSubject::Node, Some(node), Some(_)) => Subject::Node { node },
                (EventSubject::Node, Some(node), None) => Subject::Unowned { node },
                _ => Subject::Cluster,
            };
            let track = self.tracks.entry(subject).or_insert_with(|| Track::new(time));
            track.last_near = Some(time);
            track.event = Some(event.id.clone());
            self.events.insert(event.id.clone(), event);
        }
    }

    /// The evidence of the last batch about each subject, in units of its threshold: above 1 is anomalous.
    pub fn strengths(&self) -> &BTreeMap<Subject, f64> {
        &self.strengths
    }

    /// The events that are open.
    pub fn open_events(&self) -> impl Iterator<Item = &Event> {
        self.events.values().filter(|event| event.is_open())
    }

    /// The number of subjects that are remembered.
    pub fn n_tracked(&self) -> usize {
        self.tracks.len()
    }

    /// Examines a batch and returns what happened to events.
    pub fn observe(&mut self, batch: &WindowBatch) -> Vec<EventChange> {
        let findings = self.detector.examine(batch);
        self.decide(batch, findings)
    }

    /// Decides about a batch that has been examined.
    pub fn decide(&mut self, batch: &WindowBatch, mut findings: Vec<Finding>) -> Vec<EventChange> {
        let end = batch.start() + self.length;
        let mut changes = Vec::new();
        for windows in batch.nodes() {
            let node = &batch.threads()[windows.start].node;
            if self.progress.last(node).is_some_and(|last| end + self.length < last) {
                // Its clock was set back: nothing that is remembered of it can be compared with what comes.
                changes.extend(self.forget_node(node));
            }
            self.progress.advance(node, end);
        }
        self.progress.update();
        let evaluated = self.evaluate(batch, &findings, end);
        self.update_tracks(&evaluated, batch.start(), end);
        changes.extend(self.close(batch, end));
        changes.extend(self.open(Judged { batch, findings: &mut findings, evaluated: &evaluated, end }));
        self.forget(end);
        self.strengths = evaluated.into_iter().map(|(subject, one)| (subject, one.now)).collect();
        changes
    }

    /// The events that are open at the end.
    pub fn finish(self) -> Vec<Event> {
        self.events.into_values().filter(Event::is_open).collect()
    }

    fn kind_of(&self, subject: &Subject) -> Option<&str> {
        subject.job().and_then(|job| self.known.kind_of_job(job))
    }

    fn threshold(&self, evidence: Evidence, subject: &Subject) -> Option<f64> {
        match evidence {
            Evidence::Region => self.regions.as_ref().map(|regions| regions.threshold),
            _ => self.calibrated(evidence, subject).map(|threshold| threshold.value),
        }
    }

    fn calibrated(&self, evidence: Evidence, subject: &Subject) -> Option<&Threshold> {
        self.calibration.threshold(evidence, self.kind_of(subject))
    }

    fn evaluate(
        &mut self,
        batch: &WindowBatch,
        findings: &[Finding],
        end: Timestamp,
    ) -> BTreeMap<Subject, Evaluated> {
        let mut all: BTreeMap<Subject, Evaluated> = BTreeMap::new();
        for observation in observe(batch, findings, self.regions.as_ref()) {
            let lasting = self.sustained.push(end, &observation);
            let Some(threshold) = self.threshold(observation.evidence, &observation.subject) else {
                continue;
            };
            let nothing = Evaluated { now: 0.0, brief: 0.0, long: 0.0, lasting: None };
            let of_subject = all.entry(observation.subject.clone()).or_insert(nothing);
            let ratio = observation.value / threshold;
            if observation.evidence.is_lasting() {
                of_subject.long = of_subject.long.max(ratio);
                of_subject.now = of_subject.now.max(lasting.map_or(0.0, |value| value / threshold));
            } else {
                of_subject.brief = of_subject.brief.max(ratio);
                of_subject.now = of_subject.now.max(ratio);
            }
            if let Some(ratio) = lasting.map(|value| value / threshold)
                && of_subject.lasting.as_ref().is_none_or(|(known, _)| ratio > *known)
            {
                of_subject.lasting = Some((ratio, observation));
            }
        }
        all
    }

    fn update_tracks(&mut self, evaluated: &BTreeMap<Subject, Evaluated>, start: Timestamp, end: Timestamp) {
        for (subject, one) in evaluated {
            let track = self.tracks.entry(subject.clone()).or_insert_with(|| Track::new(end));
            track.last_seen = end;
            track.ratios = [one.brief, one.long];
            // An event that was opened by what lasts goes on as long as that does.
            if one.brief.max(one.long) > CLOSE_BELOW {
                track.last_near = Some(end);
            }
            for (ratio, first) in [(one.brief, &mut track.first_above), (one.long, &mut track.first_lasting)]
            {
                match ratio {
                    1.0.. => drop(first.get_or_insert(start)),
                    ..=CLOSE_BELOW => *first = None,
                    _ => {}
                }
            }
            if let Some(event) = track.event.as_ref().and_then(|id| self.events.get_mut(id)) {
                event.strength = event.strength.max(one.now.min(MAX_STRENGTH));
            }
        }
    }

    /// Opens events for subjects whose evidence has lasted, the strongest first.
    fn open(&mut self, mut judged: Judged<'_>) -> Vec<EventChange> {
        let lasting = judged.evaluated.values().filter_map(|one| one.lasting.as_ref());
        let mut candidates: Vec<Candidate<'_>> = lasting
            .filter(|(ratio, _)| *ratio > 1.0)
            .map(|(ratio, observation)| Candidate { ratio: *ratio, observation })
            .collect();
        // Jobs explain what their node and the cluster have in common.
        let order = |one: &Candidate<'_>| (rank(&one.observation.subject), -one.ratio);
        candidates.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
        let end = judged.end;
        let mut changes = self.open_common(&mut judged, &candidates);
        for Candidate { ratio, observation } in candidates {
            let subject = &observation.subject;
            let own = self.tracks.get(subject).and_then(|track| track.event.clone());
            if let Some(id) = &own {
                let is_own = |event: &Event| event.is_open() && is_responsible(event, subject);
                if self.events.get(id).is_some_and(is_own) || self.is_covered(subject, ratio, id) {
                    continue;
                }
            }
            let covering = self.open_events().find(|event| {
                self.is_covered(subject, ratio, &event.id) || self.has_same_cause(observation, event)
            });
            match (covering.map(|event| event.id.clone()), subject) {
                (Some(_), Subject::Node { .. } | Subject::Cluster) => {}
                (Some(id), _) => changes.extend(self.attach(subject, &id)),
                (None, _) if self.may_pass(observation, end) => {}
                (None, _) => {
                    let opened = self.open_event(&mut judged, observation, ratio);
                    if let Some(change) = opened {
                        changes.extend(self.absorb(change));
                    }
                }
            }
        }
        changes
    }

    fn open_event(
        &mut self,
        judged: &mut Judged<'_>,
        observation: &Observation,
        ratio: f64,
    ) -> Option<EventChange> {
        let Judged { batch, evaluated, end, .. } = *judged;
        let subject = &observation.subject;
        let known = self.tracks.get(subject).and_then(|track| track.event.clone());
        if let Some(event) =
            known.and_then(|id| self.events.get_mut(&id)).filter(|event| is_responsible(event, subject))
        {
            event.end = None;
            return Some(EventChange::Reopened(event.clone()));
        }
        let threshold = self.threshold(observation.evidence, subject)?;
        let track = self.tracks.entry(subject.clone()).or_insert_with(|| Track::new(end));
        let start = track.first(observation.evidence).unwrap_or(batch.start());
        let id = event_id(subject, start);
        track.event = Some(id.clone());
        let finding = judged.findings[observation.window].clone();
        let certainty =
            certainty(ratio, self.calibrated(observation.evidence, subject), observation.evidence, &finding);
        let kinds = self.library.kinds(subject.job(), &finding, batch, observation.window);
        let threshold = (threshold - observation.evidence.floor()).max(0.0);
        let opening = Opening {
            detector: self.detector,
            batch,
            findings: judged.findings,
            observation,
            threshold,
            kinds: &kinds,
            known: &self.library.known,
        };
        let Reasons { why, channels, threads } = opening.reasons();
        let jobs: Vec<JobId> = match subject {
            Subject::Job { job, .. } => vec![job.clone()],
            Subject::Node { node } => strongest_jobs(evaluated, |subject| subject.node() == Some(node)),
            Subject::Cluster => strongest_jobs(evaluated, |_| true).into_iter().take(1).collect(),
            Subject::Unowned { .. } | Subject::Unattributed { .. } => Vec::new(),
        };
        let event = Event {
            id: id.clone(),
            subject: match subject {
                Subject::Job { .. } => EventSubject::Job,
                Subject::Cluster => EventSubject::Cluster,
                _ => EventSubject::Node,
            },
            node: subject.node().cloned(),
            nodes: subject.node().cloned().into_iter().collect(),
            jobs,
            threads,
            start,
            end: None,
            opened: end,
            strength: ratio.min(MAX_STRENGTH),
            level: observation.evidence,
            channels,
            kinds,
            certainty,
            why,
            embedding: finding.embedding,
        };
        self.events.insert(id, event.clone());
        Some(EventChange::Opened(event))
    }

    /// Closes events whose subjects have calmed down, ended or disappeared.
    fn close(&mut self, batch: &WindowBatch, end: Timestamp) -> Vec<EventChange> {
        let seen: BTreeSet<&NodeName> = batch.threads().iter().map(|thread| &thread.node).collect();
        let (length, ended_after) = (self.length, self.detector.confirmation().brief);
        let mut subjects: BTreeMap<&str, (bool, Timestamp)> = BTreeMap::new();
        for (subject, track) in &self.tracks {
            let Some(id) = &track.event else { continue };
            // The cluster has no clock of its own.
            let is_here = subject.node().is_some_and(|node| seen.contains(node));
            let has_ended = is_here && (end - track.last_seen).0 > ended_after.0;
            let is_calm = track.last_near.is_none_or(|near| (track.last_seen - near).0 >= length.0);
            let silent_for = subject.node().map_or(Millis(0), |node| self.progress.silent_for(node));
            let near = track.last_near.unwrap_or(track.last_seen).min(track.last_seen);
            let of_event = subjects.entry(id).or_insert((true, near));
            of_event.0 &= has_ended || is_calm || silent_for.0 > NODE_GONE.0;
            of_event.1 = of_event.1.max(near);
        }
        let mut changes = Vec::new();
        for (id, (is_over, near)) in subjects {
            if let Some(event) = self.events.get_mut(id).filter(|event| is_over && event.is_open()) {
                event.end = Some(near);
                changes.push(EventChange::Closed(event.clone()));
            }
        }
        changes
    }

    /// Closes the events of a node and forgets all that is known about it.
    fn forget_node(&mut self, node: &NodeName) -> Vec<EventChange> {
        let mut changes = Vec::new();
        for event in
            self.events.values_mut().filter(|event| event.is_open() && event.node.as_ref() == Some(node))
        {
            event.end = Some(self.progress.last(node).unwrap_or(event.opened));
            changes.push(EventChange::Closed(event.clone()));
        }
        self.tracks.retain(|subject, _| subject.node() != Some(node));
        self.sustained.forget_before(|subject| {
            if subject.node() == Some(node) { Timestamp::MAX } else { Timestamp::MIN }
        });
        changes
    }

    /// Forgets what can no longer change.
    fn forget(&mut self, end: Timestamp) {
        self.progress.forget(Millis::DAY);
        let progress = &self.progress;
        let oldest = |node: Option<&NodeName>| {
            node.and_then(|node| progress.last(node)).unwrap_or(end) - REOPEN_WITHIN
        };
        self.events.retain(|_, event| event.end.is_none_or(|end| end >= oldest(event.node.as_ref())));
        let events = &self.events;
        self.tracks.retain(|subject, track| {
            track.event = track.event.take().filter(|id| events.contains_key(id));
            track.event.is_some() || track.last_seen >= oldest(subject.node())
        });
        self.sustained.forget_before(|subject| oldest(subject.node()));
    }
}

/// Jobs and threads first, then nodes, then the cluster.
fn rank(subject: &Subject) -> u8 {
    match subject {
        Subject::Job { .. } | Subject::Unowned { .. } | Subject::Unattributed { .. } => 0,
        Subject::Node { .. } => 1,
        Subject::Cluster => 2,
    }
}

/// The jobs that deviate, the strongest first; all of them if none deviates by itself.
fn strongest_jobs(
    evaluated: &BTreeMap<Subject, Evaluated>,
    is_wanted: impl Fn(&Subject) -> bool,
) -> Vec<JobId> {
    let wanted = evaluated.iter().filter(|(subject, _)| is_wanted(subject));
    let mut jobs: Vec<(&JobId, f64)> =
        wanted.filter_map(|(subject, one)| Some((subject.job()?, one.now))).collect();
    jobs.sort_by(|a, b| b.1.total_cmp(&a.1));
    let n_deviating = jobs.iter().take_while(|(_, strength)| *strength > 1.0).count();
    let n_named = if n_deviating == 0 { jobs.len() } else { n_deviating };
    jobs.into_iter().take(n_named).map(|(job, _)| job.clone()).collect()
}

/// Whether an event is about a subject itself, and not about others that affect it.
fn is_responsible(event: &Event, subject: &Subject) -> bool {
    match subject {
        Subject::Job { job, .. } => event.subject == EventSubject::Job && event.jobs.first() == Some(job),
        Subject::Cluster => event.subject == EventSubject::Cluster,
        _ => event.subject == EventSubject::Node && event.node.as_ref() == subject.node(),
    }
}
