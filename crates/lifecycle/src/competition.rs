//! The nightly competition: candidates are trained with the day's data and judged, together with the champion, on the
//! same held-out jobs and confirmed anomalies. It has three steps: [`Plan::make`] reads the store, [`Plan::hold`] computes
//! and blocks, [`Held::deploy`] writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::time::Instant;

use archive::Archive;
use detect::{
    ArchiveEvents, DetectError, DetectorKind, Event, EventSubject, Finding, HeldOut, KnownJobs, Library,
    Reading, Sampler, Scope, Span, Start, TrainedDetector, Training, TrainingData, TrainingStep, ValidConfig,
    WindowFilter,
};
use learn::artifact::Provenance;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, Row};
use workload::{Control, Millis, Set, Timestamp};

use crate::drift::Drift;
use crate::policy::{Figures, Policy};
use crate::registry::{Alias, Loaded, Registry, RegistryError};
use crate::store::{Store, StoreError};
use crate::tokens::to_json;
use crate::verdicts::{Standing, VettedEvent};

/// The newest confirmed anomalies that candidates are judged with, and how long each of them is looked at.
const MAX_ANOMALIES: usize = 40;
const MAX_ANOMALY: Millis = Millis::HOUR;
/// How long before an anomaly the detector sees its node, so that evidence can last.
const BEFORE: Millis = Millis(600_000);
/// Events may have begun this long before the data of the night.
const LONGEST_EVENT: Millis = Millis(7 * Millis::DAY.0);

/// What happens if the day has anomalies, or events that nobody looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnAnomalies {
    /// They are not learned from.
    #[default]
    Exclude,
    /// There is no competition, as in the paper.
    Skip,
}

/// How a night is held.
#[derive(Debug, Clone, PartialEq)]
pub struct NightSettings {
    pub candidates: Vec<DetectorKind>,
    /// Whether candidates are also trained from the weights of the champion.
    pub warm_start: bool,
    /// How much data is used, up to now.
    pub history: Millis,
    pub on_anomalies: OnAnomalies,
    /// Whether a person promotes the winner, which is challenger until then.
    pub needs_approval: bool,
    pub policy: Policy,
}

impl Default for NightSettings {
    fn default() -> Self {
        use DetectorKind::{Ae, Hierarchy, JobGnn, Pca, Vae};
        Self {
            candidates: vec![Ae, JobGnn, Vae, Hierarchy, Pca],
            warm_start: true,
            history: Millis::DAY,
            on_anomalies: OnAnomalies::Exclude,
            needs_approval: false,
            policy: Policy::default(),
        }
    }
}

/// Why there is no competition. The champion stays.
#[derive(Debug, thiserror::Error)]
pub enum NightError {
    #[error("another competition is under way")]
    Busy,
    #[error("the competition is skipped: {0}")]
    Skipped(String),
    #[error("none of the candidates could be trained: {0}")]
    NoCandidate(String),
    #[error(transparent)]
    Detect(#[from] DetectError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Files(#[from] files::Error),
}

impl From<StoreError> for NightError {
    fn from(error: StoreError) -> Self {
        Self::Registry(error.into())
    }
}

impl From<archive::Error> for NightError {
    fn from(error: archive::Error) -> Self {
        Self::Detect(error.into())
    }
}

/// The data and the opponents of a night.
pub struct Plan {
    pub from: Timestamp,
    pub to: Timestamp,
    /// What is not learned from.
    pub excluded: Vec<Span>,
    /// The confirmed anomalies that have to be found.
    pub anomalies: Vec<Event>,
    pub champion: Option<Loaded>,
    settings: NightSettings,
    /// Held until the end: there is one competition at a time.
    lock: File,
}

/// A candidate and how it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The detector, and where its weights started.
    pub name: String,
    /// Absent if it could not be trained.
    pub figures: Option<Figures>,
    /// Why it did not win, other than by its error.
    pub objection: Option<String>,
    pub training_seconds: f64,
    pub judging_seconds: f64,
}

/// How long the parts of a night took, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NightTimings {
    pub preparation: f64,
    pub training: f64,
    pub competition: f64,
    pub deployment: f64,
}

impl NightTimings {
    pub fn total(&self) -> f64 {
        self.preparation + self.training + self.competition + self.deployment
    }
}

/// A competition as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Night {
    pub number: i64,
    pub time: Timestamp,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Windows that candidates were trained with.
    pub n_windows: usize,
    /// Stretches of time that were not learned from.
    pub n_excluded: usize,
    pub champion_before: Option<String>,
    pub champion_figures: Option<Figures>,
    /// How the jobs of the night differ from those that the champion was trained with.
    #[serde(default)]
    pub drift: Option<Drift>,
    pub candidates: Vec<Candidate>,
    /// The version of the winner, if it is another than the champion.
    pub winner: Option<String>,
    /// Whether the winner waits for the approval of a person.
    pub needs_approval: bool,
    pub reason: String,
    pub timings: NightTimings,
}

/// The progress of a night.
#[derive(Debug, Clone, Copy)]
pub enum NightStep<'a> {
    Preparing,
    Training { candidate: &'a str, step: TrainingStep<'a> },
    Judging { candidate: &'a str },
}

/// A competition that has been held, and not been recorded yet.
pub struct Held {
    plan: Plan,
    night: Night,
    winner: Option<(TrainedDetector, Figures)>,
}

impl Plan {
    /// Decides what is learned from, and what is judged with.
    pub async fn make(
        store: &Store,
        registry: &Registry,
        settings: &NightSettings,
        now: Timestamp,
    ) -> Result<Self, NightError> {
        let lock = files::open_lock(&registry.lock_path())?;
        lock.try_lock().map_err(|_| NightError::Busy)?;
        let from = now - settings.history;
        let vetted = store.vetted_events(from - LONGEST_EVENT).await?;
        let suspect: Vec<&VettedEvent> = vetted
            .iter()
            .filter(|vetted| is_suspect(vetted) && vetted.event.event.span(now).to > from)
            .collect();
        if settings.on_anomalies == OnAnomalies::Skip && !suspect.is_empty() {
            let reason =
                format!("{} events of its data are anomalies, or nobody looked at them", suspect.len());
            return Err(NightError::Skipped(reason));
        }
        let mut excluded: Vec<Span> =
            suspect.iter().flat_map(|vetted| spans_of(&vetted.event.event, now)).collect();
        excluded.extend(store.exclusions().await?.iter().map(|exclusion| exclusion.span()));
        let all = store.vetted_events(Timestamp::MIN).await?.into_iter().rev();
        let anomalies = all.filter(|vetted| vetted.standing() == Standing::Anomaly);
        Ok(Self {
            from,
            to: now,
            excluded,
            anomalies: anomalies.map(|vetted| vetted.event.event).take(MAX_ANOMALIES).collect(),
            champion: registry.champion().await?,
            settings: settings.clone(),
            lock,
        })
    }

    /// Trains and judges all candidates. It uses the current rayon pool.
    pub fn hold(
        self,
        archive: &Archive,
        config: &ValidConfig,
        seed: u64,
        control: Control<'_>,
        mut tell: impl FnMut(NightStep<'_>),
    ) -> Result<Held, NightError> {
        let begin = Instant::now();
        tell(NightStep::Preparing);
        let scope =
            Scope { included: vec![Span::of_time(self.from, self.to)], excluded: self.excluded.clone() };
        let sampler = Sampler::of_scope(archive, scope, config, seed, control)?;
        let data = sampler.training_data()?;
        let judge = Judge { archive, test: sampler.filter(Set::Test), anomalies: &self.anomalies, control };
        let mut timings = NightTimings { preparation: begin.elapsed().as_secs_f64(), ..Default::default() };
        let begin = Instant::now();
        let champion_figures = match &self.champion {
            Some(champion) => {
                tell(NightStep::Judging { candidate: &champion.model.version });
                Some(judge.figures(&champion.detector)?)
            }
            None => None,
        };
        timings.competition += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let drift = self.drift(archive, seed, control)?;
        timings.preparation += begin.elapsed().as_secs_f64();
        let mut candidates = Vec::new();
        let mut detectors: Vec<Option<TrainedDetector>> = Vec::new();
        for (kind, parent) in self.entrants(config) {
            let trained = detectors.iter().flatten().find(|other| has_same_network(other, kind));
            let (start, name) = match (parent, trained) {
                (Some(parent), _) => (Start::From(parent), format!("{kind}, from the champion")),
                (None, Some(trained)) => (Start::Trained(trained), kind.to_string()),
                (None, None) => (Start::Random, kind.to_string()),
            };
            let training = Training { kind, config, seed, checkpoint: None, start, control };
            let entered = enter(&training, name, &data, &sampler, &judge, &mut tell)?;
            timings.training += entered.candidate.training_seconds;
            timings.competition += entered.candidate.judging_seconds;
            candidates.push(entered.candidate);
            detectors.push(entered.detector);
        }
        if candidates.iter().all(|candidate| candidate.figures.is_none()) {
            let first = candidates.into_iter().next().and_then(|candidate| candidate.objection);
            return Err(NightError::NoCandidate(first.unwrap_or_else(|| "there are none".into())));
        }
        let figures: Vec<Option<Figures>> = candidates.iter().map(|candidate| candidate.figures).collect();
        let decision = self.settings.policy.decide(champion_figures.as_ref(), &figures);
        for (candidate, objection) in candidates.iter_mut().zip(decision.objections) {
            // Why it could not be trained says more.
            candidate.objection = candidate.objection.take().or(objection);
        }
        let night = Night {
            number: 0,
            time: self.to,
            from: self.from,
            to: self.to,
            n_windows: data.train.n_windows(),
            n_excluded: self.excluded.len(),
            champion_before: self.champion.as_ref().map(|champion| champion.model.version.clone()),
            champion_figures,
            drift,
            reason: match decision.winner {
                Some(winner) => format!("{}: {}", candidates[winner].name, decision.reason),
                None => decision.reason,
            },
            candidates,
            winner: None,
            needs_approval: self.settings.needs_approval,
            timings,
        };
        let winner = decision.winner.and_then(|winner| detectors.swap_remove(winner).zip(figures[winner]));
        Ok(Held { plan: self, night, winner })
    }

    /// How the data differs from that which the champion was trained with.
    fn drift(&self, archive: &Archive, seed: u64, control: Control<'_>) -> Result<Option<Drift>, NightError> {
        let Some(Loaded { detector, .. }) = &self.champion else { return Ok(None) };
        let Some((from, to)) = detector.data.as_ref().and_then(|data| data.from.zip(data.to)) else {
            return Ok(None);
        };
        let scope =
            |from, to| Scope { included: vec![Span::of_time(from, to)], excluded: self.excluded.clone() };
        let (reference, day) = (scope(from, to), scope(self.from.max(to), self.to));
        Ok(Some(Drift::between(archive, detector, reference, day, seed, control)?))
    }

    /// The detectors that take part, each from random weights and perhaps from those of the champion.
    fn entrants(&self, config: &ValidConfig) -> Vec<(DetectorKind, Option<&TrainedDetector>)> {
        let mut entrants = Vec::new();
        for kind in &self.settings.candidates {
            entrants.push((*kind, None));
            let parent = self.champion.as_ref().map(|champion| &champion.detector);
            let is_same = |parent: &&TrainedDetector| parent.kind == *kind && parent.can_start(*kind, config);
            if let Some(parent) = parent.filter(|parent| self.settings.warm_start && is_same(parent)) {
                entrants.push((*kind, Some(parent)));
            }
        }
        entrants
    }
}

impl Held {
    /// Writes the winner, makes it champion or challenger, and records the night.
    pub async fn deploy(self, store: &Store, registry: &Registry, actor: &str) -> Result<Night, NightError> {
        let begin = Instant::now();
        let Self { plan, mut night, winner } = self;
        if let Some((detector, figures)) = winner {
            let version = format!("v{}", night.time.0 / 1_000);
            let parent = night.champion_before.clone();
            detector.write(&registry.path(&version), &Provenance { parent, ..Provenance::at(night.time) })?;
            registry.add(&version, metrics(figures), night.time).await?;
            let alias = if plan.settings.needs_approval { Alias::Challenger } else { Alias::Champion };
            let reason = format!("won the competition: {}", night.reason);
            registry.promote(alias, &version, actor, &reason, night.time).await?;
            night.winner = Some(version);
        }
        night.timings.deployment = begin.elapsed().as_secs_f64();
        store.record_night(&mut night).await?;
        drop(plan.lock);
        Ok(night)
    }
}

/// The figures of a night as metrics of a model.
fn metrics(figures: Figures) -> BTreeMap<String, f64> {
    BTreeMap::from([
        ("reconstruction_error".to_owned(), figures.reconstruction_error),
        ("false_events_per_day".to_owned(), figures.false_events_per_day()),
        ("found".to_owned(), figures.found()),
        ("injected_found".to_owned(), figures.injected_found),
    ])
}

/// A candidate that was trained and judged.
struct Entered {
    candidate: Candidate,
    detector: Option<TrainedDetector>,
}

/// Trains and judges a candidate. One that cannot be trained does not end the night; a request to stop does.
fn enter(
    training: &Training<'_>,
    name: String,
    data: &TrainingData,
    sampler: &Sampler<'_>,
    judge: &Judge<'_>,
    tell: &mut impl FnMut(NightStep<'_>),
) -> Result<Entered, NightError> {
    let begin = Instant::now();
    let trained = training.fit(data, &HeldOut::Archive(sampler), |step| {
        tell(NightStep::Training { candidate: &name, step });
    });
    let training_seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let outcome = trained.and_then(|detector| {
        tell(NightStep::Judging { candidate: &name });
        Ok((judge.figures(&detector)?, detector))
    });
    let judging_seconds = begin.elapsed().as_secs_f64();
    let candidate = Candidate { name, figures: None, objection: None, training_seconds, judging_seconds };
    match outcome {
        Ok((figures, detector)) => Ok(Entered {
            candidate: Candidate { figures: Some(figures), ..candidate },
            detector: Some(detector),
        }),
        Err(error @ DetectError::Stopped(_)) => Err(error.into()),
        Err(error) => Ok(Entered {
            candidate: Candidate { objection: Some(error.to_string()), ..candidate },
            detector: None,
        }),
    }
}

/// Whether a candidate from random weights would get the same network as one that has been trained: the hierarchy is
/// built on an autoencoder of single threads.
fn has_same_network(trained: &TrainedDetector, kind: DetectorKind) -> bool {
    trained.kind == DetectorKind::Ae && kind == DetectorKind::Hierarchy
}

/// Judges detectors, all in the same way.
struct Judge<'a> {
    archive: &'a Archive,
    /// Held-out normal jobs.
    test: &'a WindowFilter,
    anomalies: &'a [Event],
    control: Control<'a>,
}

impl Judge<'_> {
    fn figures(&self, detector: &TrainedDetector) -> Result<Figures, DetectError> {
        let (mut error, mut n_windows) = (0.0, 0);
        let spec = detector.window_spec(detector.config.window);
        let reading =
            Reading { archive: self.archive, filter: self.test, spec: &spec, control: self.control };
        reading.for_each_batch::<DetectError>(|batch| {
            let findings = detector.examine(&batch);
            n_windows += findings.len();
            error += findings.iter().map(Finding::error).sum::<f64>();
            Ok(ControlFlow::Continue(()))
        })?;
        let normal = self.events(detector, self.test)?;
        let spans = self.anomalies.iter().map(|event| {
            let span = event.span(event.opened + MAX_ANOMALY);
            Span { job: None, from: span.from - BEFORE, to: span.to.min(span.from + MAX_ANOMALY), ..span }
        });
        let scope = Scope { included: spans.collect(), excluded: Vec::new() };
        let raised = if self.anomalies.is_empty() {
            Vec::new()
        } else {
            self.events(detector, &scope.filter())?.events
        };
        let is_found = |anomaly: &&Event| raised.iter().any(|event| is_same(anomaly, event));
        Ok(Figures {
            reconstruction_error: error / n_windows as f64,
            n_false_events: normal.events.len(),
            hours: normal.hours,
            n_found: self.anomalies.iter().filter(is_found).count(),
            n_anomalies: self.anomalies.len(),
            injected_found: injected_found(detector),
        })
    }

    fn events(
        &self,
        detector: &TrainedDetector,
        filter: &WindowFilter,
    ) -> Result<detect::FoundEvents, DetectError> {
        let known = KnownJobs::default();
        let archive_events =
            ArchiveEvents { archive: self.archive, detector, filter, known: &known, control: self.control };
        archive_events.find(Library::default())
    }
}

/// Whether an event is about the same anomaly as another.
fn is_same(anomaly: &Event, event: &Event) -> bool {
    let span = anomaly.span(anomaly.opened + MAX_ANOMALY);
    let end = event.end.unwrap_or(span.to.max(event.opened));
    let is_where = match anomaly.subject {
        EventSubject::Job => anomaly.jobs.first().is_some_and(|job| event.jobs.contains(job)),
        _ => anomaly.node.as_ref().is_none_or(|node| event.nodes.contains(node)),
    };
    is_where && span.overlaps(event.start, end)
}

/// The fraction of injected faults that a detector finds at its budget.
fn injected_found(detector: &TrainedDetector) -> f64 {
    let Some(calibration) = &detector.calibration else { return 0.0 };
    let nearest = detect::BUDGETS
        .iter()
        .enumerate()
        .min_by(|a, b| {
            let distance = |budget: f64| (budget / calibration.false_events_per_day).ln().abs();
            distance(*a.1).total_cmp(&distance(*b.1))
        })
        .map_or(0, |(index, _)| index);
    let injected = || calibration.found.iter().filter(|found| found.is_injected);
    let n_jobs: usize = injected().map(|found| found.n_jobs).sum();
    let n_found: usize = injected().map(|found| found.n_found[nearest]).sum();
    if n_jobs == 0 { 0.0 } else { n_found as f64 / n_jobs as f64 }
}

/// Whether an event is not to be learned from.
fn is_suspect(vetted: &VettedEvent) -> bool {
    match vetted.standing() {
        Standing::Normal => false,
        Standing::Unvetted => vetted.event.hidden_by.is_none(),
        Standing::Anomaly | Standing::Unsure | Standing::Disputed => true,
    }
}

/// What is not learned from because of an event: its jobs as a whole, or its node or the cluster while it lasted.
pub(crate) fn spans_of(event: &Event, now: Timestamp) -> Vec<Span> {
    let span = event.span(now);
    if event.subject == EventSubject::Job {
        let whole = |job| Span { job: Some(job), node: None, from: Timestamp::MIN, to: Timestamp::MAX };
        return event.jobs.iter().cloned().map(whole).collect();
    }
    vec![span]
}

impl Store {
    /// Records a competition, and numbers it.
    async fn record_night(&self, night: &mut Night) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let row =
            sqlx::query("SELECT COALESCE(MAX(number), 0) FROM competitions").fetch_one(&mut *transaction);
        night.number = row.await?.try_get::<i64, _>(0)? + 1;
        sqlx::query("INSERT INTO competitions (number, time_ms, document) VALUES ($1, $2, $3)")
            .bind(night.number)
            .bind(night.time.0)
            .bind(to_json(night)?)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    /// The last competitions, the newest first.
    pub async fn nights(&self, limit: usize) -> Result<Vec<Night>, StoreError> {
        let rows = sqlx::query("SELECT document FROM competitions ORDER BY number DESC LIMIT $1")
            .bind(limit as i64)
            .fetch_all(self.readers())
            .await?;
        let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
        let night = |row: &sqlx::any::AnyRow| {
            serde_json::from_str(&row.try_get::<String, _>("document")?).map_err(damaged)
        };
        rows.iter().map(night).collect()
    }
}
