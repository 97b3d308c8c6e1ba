//! Giving verdicts: what a verdict would hide, the regions and the library that follow from the verdicts in force.
//!
//! These functions read the archive and examine windows, so they block for a moment.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use archive::Archive;
use detect::{
    EventSubject, EventWindow, KnownJobs, LabelledPoint, Library, MIN_KIND_WINDOWS, Reading, Scope, Span,
    TrainedDetector, event_windows,
};
use workload::{Control, JobId, Label, Millis, Set, Timestamp};

use crate::acceptance::{AcceptedRegion, AcceptedScope, NotAccepted};
use crate::competition::{spans_of, whole_job};
use crate::diagnoses::{self, Diagnosis, NewDiagnosis};
use crate::events::RecordedEvent;
use crate::registry::{Registry, RegistryError};
use crate::store::{Store, StoreError};
use crate::verdicts::{Answer, NewVerdict, Standing, Verdict, VettedEvent};

/// How far back a preview looks.
const PREVIEW: Millis = Millis(30 * Millis::DAY.0);
/// Confirmed anomalies that are kept in the library and that regions keep away from.
const MAX_ANOMALIES: usize = 40;
/// Normal windows that the library compares anomalies with, and the time that they are taken from.
const MAX_NORMAL: usize = 2_000;
const NORMAL_TIME: Millis = Millis(4 * Millis::HOUR.0);
/// The kind of normal windows in the library, and of anomalies that nobody named.
const NORMAL_KIND: &str = "normal";
const UNNAMED_KIND: &str = "anomaly";

/// Why a verdict was not given. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum VettingError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("event {id} cannot be called normal: {reason}")]
    NotAccepted { id: String, reason: NotAccepted },
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error("only an anomaly has a kind")]
    Kind,
    #[error(
        "a diagnosis needs {MIN_KIND_WINDOWS} windows of jobs, and the archive has {found} at the selected times"
    )]
    FewWindows { found: usize },
}

impl From<StoreError> for VettingError {
    fn from(error: StoreError) -> Self {
        Self::Registry(error.into())
    }
}

/// What calling an event normal would hide.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// Events of the last 30 days, the newest first.
    pub hidden: Vec<RecordedEvent>,
    /// Events of that time that other models found, and that cannot be compared.
    pub n_not_compared: usize,
}

/// Points of a library that were read before.
#[derive(Debug, Default)]
pub struct KnownPoints {
    /// Of labelled jobs.
    labelled: Option<Vec<LabelledPoint>>,
    /// By event.
    anomalies: BTreeMap<String, Vec<LabelledPoint>>,
    /// By the number of the diagnosis.
    diagnosed: BTreeMap<i64, Vec<LabelledPoint>>,
    normal: Option<Vec<LabelledPoint>>,
}

/// What verdicts are given with.
pub struct Vetting<'a> {
    pub store: &'a Store,
    pub registry: &'a Registry,
    pub archive: &'a Archive,
    /// Whether the labelled jobs of the archive are part of the library.
    pub uses_labels: bool,
    pub control: Control<'a>,
}

impl Vetting<'_> {
    /// What calling an event normal would have hidden in the last 30 days.
    pub async fn preview(
        &self,
        id: &str,
        scope: AcceptedScope,
        now: Timestamp,
    ) -> Result<Preview, VettingError> {
        let event = self.event(id).await?;
        let detector = self.registry.load(&event.model)?;
        let region = self.region(&event, &event.model, &detector, scope, now).await?;
        let (mut hidden, mut n_not_compared) = (Vec::new(), 0);
        for vetted in self.store.vetted_events(now - PREVIEW).await?.into_iter().rev() {
            let other = vetted.event;
            if other.model != event.model {
                n_not_compared += 1;
            } else if other.event.id != id && region.hides(&other.event) {
                hidden.push(other);
            }
        }
        Ok(Preview { hidden, n_not_compared })
    }

    /// Gives a verdict, which takes effect at once.
    pub async fn give(&self, new: &NewVerdict, now: Timestamp) -> Result<Verdict, VettingError> {
        if new.kind.is_some() && new.answer != Answer::Anomaly {
            return Err(VettingError::Kind);
        }
        let event = self.event(&new.event).await?;
        let mut regions = Vec::new();
        if new.answer == Answer::Normal {
            let mut detectors = BTreeMap::from([(event.model.clone(), self.registry.load(&event.model)?)]);
            if let Some(champion) = self.registry.champion().await? {
                detectors.entry(champion.model.version).or_insert(champion.detector);
            }
            for (model, detector) in detectors {
                let region = self.region(&event, &model, &detector, new.scope, now).await?;
                regions.push((model, region));
            }
        }
        self.check()?;
        Ok(self.store.give_verdict(new, &regions, now).await?)
    }

    /// Names windows, which takes effect at once. The archive has to have them.
    pub async fn diagnose(&self, new: &NewDiagnosis, now: Timestamp) -> Result<Diagnosis, VettingError> {
        let champion = self.registry.champion().await?.ok_or(VettingError::FewWindows { found: 0 })?;
        let NewDiagnosis { kind, window_length, windows, .. } = new;
        let (detector, archive) = (&champion.detector, self.archive);
        let points = diagnoses::points(kind, windows, *window_length, detector, archive, self.control)?;
        if points.len() < MIN_KIND_WINDOWS {
            return Err(VettingError::FewWindows { found: points.len() });
        }
        self.check()?;
        Ok(self.store.add_diagnosis(new, now).await?)
    }

    /// Computes the regions of earlier verdicts for another model, before it is used.
    pub async fn add_regions(
        &self,
        model: &str,
        detector: &TrainedDetector,
        now: Timestamp,
    ) -> Result<(), VettingError> {
        for (verdict, event) in self.store.verdicts_without_region(model, now).await? {
            match self.region(&event, model, detector, verdict.scope, now).await {
                Ok(region) => self.store.add_region(verdict.number, model, &region).await?,
                Err(VettingError::NotAccepted { id, reason }) => {
                    tracing::warn!("model {model} does not hide events like {id}: {reason}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The confirmed anomalies and the diagnoses, and normal windows beside them, as a detector sees them. Events are
    /// compared with them.
    /// `known` keeps what was read for the same detector before.
    pub async fn library(
        &self,
        detector: &TrainedDetector,
        known: &mut KnownPoints,
        now: Timestamp,
    ) -> Result<Library, VettingError> {
        let mut labels = if self.uses_labels { self.archive.labels()? } else { Vec::new() };
        let has_labels = !labels.is_empty();
        if has_labels && known.labelled.is_none() {
            known.labelled = Some(LabelledPoint::of_archive(detector, self.archive, self.control)?);
        }
        let mut points: Vec<LabelledPoint> = known.labelled.iter().flatten().cloned().collect();
        let vetted = self.store.vetted_events(Timestamp::MIN).await?;
        let confirmed: Vec<&VettedEvent> = confirmed(&vetted).take(MAX_ANOMALIES).collect();
        let diagnoses = self.store.diagnoses().await?;
        for diagnosis in &diagnoses {
            let found = match known.diagnosed.entry(diagnosis.number) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(diagnosis.points(detector, self.archive, self.control)?),
            };
            points.extend(found.iter().cloned());
            labels.extend(diagnosis.labels());
        }
        let mut with_normal_windows = BTreeSet::new();
        for vetted in &confirmed {
            let event = &vetted.event.event;
            let Some(job) = event.jobs.first().filter(|_| event.subject == EventSubject::Job) else {
                continue;
            };
            let kind = vetted.kind().unwrap_or(UNNAMED_KIND);
            if !known.anomalies.contains_key(&event.id) {
                let windows = event_windows(event, detector, self.archive, now, self.control)?;
                let point = |window: &EventWindow| {
                    LabelledPoint::new(kind, job, &window.finding, window.usage.as_ref())
                };
                known.anomalies.insert(event.id.clone(), windows.iter().map(point).collect());
            }
            let of_event = known.anomalies.get(&event.id).into_iter().flatten();
            points.extend(of_event.map(|point| LabelledPoint { kind: kind.to_owned(), ..point.clone() }));
            labels.extend(label(vetted, kind, job, now));
            if !event.level.is_of_windows() {
                with_normal_windows.insert(job.clone());
            }
        }
        // Labelled jobs show what is normal.
        let has_known = !confirmed.is_empty() || !diagnoses.is_empty();
        if known.normal.is_none() && has_known && !has_labels {
            let mut suspects: Vec<Span> =
                vetted.iter().flat_map(|vetted| spans_of(&vetted.event.event, now)).collect();
            let jobs = diagnoses.iter().flat_map(Diagnosis::jobs);
            suspects.extend(jobs.map(|job| whole_job(job.clone())));
            known.normal = Some(self.normal_points(detector, suspects)?);
        }
        points.extend(known.normal.iter().flatten().cloned());
        Ok(Library::new(points, KnownJobs::new(&labels)).with_normal_windows(with_normal_windows))
    }

    /// Windows of jobs that no event was about, from the end of the time that a detector was trained with.
    fn normal_points(
        &self,
        detector: &TrainedDetector,
        excluded: Vec<Span>,
    ) -> Result<Vec<LabelledPoint>, VettingError> {
        let Some(to) = detector.data.as_ref().and_then(|data| data.to) else { return Ok(Vec::new()) };
        let filter = Scope { included: vec![Span::of_time(to - NORMAL_TIME, to)], excluded }.filter();
        let spec = detector.window_spec(detector.config.window);
        let reading = Reading { archive: self.archive, filter: &filter, spec: &spec, control: self.control };
        let mut points = Vec::new();
        reading.for_each_batch::<archive::Error>(|batch| {
            let findings = detector.examine(&batch);
            for (thread, finding) in batch.threads().iter().zip(&findings) {
                if let Some(job) = thread.job() {
                    points.push(LabelledPoint::new(NORMAL_KIND, job, finding, batch.usage_of(thread)));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let every = points.len().div_ceil(MAX_NORMAL).max(1);
        Ok(points.into_iter().step_by(every).collect())
    }

    /// Nothing is recorded for somebody who does not wait for the answer any more.
    fn check(&self) -> Result<(), VettingError> {
        Ok(self.control.check().map_err(archive::Error::from)?)
    }

    async fn event(&self, id: &str) -> Result<RecordedEvent, VettingError> {
        let missing = || StoreError::NotFound { what: format!("event {id}") };
        Ok(self.store.event(id).await?.ok_or_else(missing)?)
    }

    /// The region around an event in the space of a model.
    async fn region(
        &self,
        event: &RecordedEvent,
        model: &str,
        detector: &TrainedDetector,
        scope: AcceptedScope,
        now: Timestamp,
    ) -> Result<AcceptedRegion, VettingError> {
        let id = event.event.id.clone();
        let windows = event_windows(&event.event, detector, self.archive, now, self.control)?;
        let vetted = self.store.vetted_events(Timestamp::MIN).await?;
        let mut anomalies: Vec<(&str, Vec<f32>)> = Vec::new();
        for vetted in confirmed(&vetted).filter(|vetted| vetted.event.event.id != id).take(MAX_ANOMALIES) {
            let anomaly = &vetted.event.event;
            // An event that was opened by other evidence is not hidden, however similar its windows are.
            if anomaly.level != event.event.level {
                continue;
            }
            if vetted.event.model == model {
                anomalies.push((&anomaly.id, anomaly.embedding.clone()));
                continue;
            }
            // The window that another model opened it with, as this one sees it.
            let windows = event_windows(anomaly, detector, self.archive, now, self.control)?;
            let strongest = windows.iter().max_by(|a, b| a.finding.score.total_cmp(&b.finding.score));
            anomalies.extend(strongest.map(|window| (anomaly.id.as_str(), window.finding.embedding.clone())));
        }
        let length = detector.event_spec().length();
        let anomalies = anomalies.iter().map(|(id, embedding)| (*id, embedding.as_slice()));
        AcceptedRegion::around(&event.event, &windows, scope, length, anomalies)
            .map_err(|reason| VettingError::NotAccepted { id, reason })
    }
}

/// The confirmed anomalies, the newest first.
fn confirmed(vetted: &[VettedEvent]) -> impl Iterator<Item = &VettedEvent> {
    vetted.iter().rev().filter(|vetted| vetted.standing() == Standing::Anomaly)
}

/// A confirmed anomaly as the label of its job.
fn label(vetted: &VettedEvent, kind: &str, job: &JobId, now: Timestamp) -> Option<Label> {
    let event = &vetted.event.event;
    Some(Label {
        campaign: "verdicts".into(),
        set: Set::Test,
        kind: kind.to_owned(),
        anomalous: Some(true),
        job: job.clone(),
        node: event.node.clone()?,
        threads: event.threads.clone(),
        start: event.start,
        end: event.end.unwrap_or(now),
        made_by: None,
        disturbance: None,
    })
}
