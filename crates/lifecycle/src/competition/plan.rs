//! One night: what is learned from, who takes part, who wins, and what is written.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use archive::{Archive, Selection};
use detect::{DetectorConfig, Event, EventSubject, Scope, Span, TrainedDetector, ValidConfig};
use learn::artifact::{DataOrigin, Provenance};
use sqlx::Connection;
use workload::{Control, JobId, Millis, Timestamp};

use super::arena::{Arena, Entered, Entrant};
use super::assignment::Assignment;
use super::{Night, NightError, NightSettings, NightStep, NightTimings, OnAnomalies, record};
use crate::diagnoses::Diagnosis;
use crate::drift::Drift;
use crate::policy::Figures;
use crate::registry::{Alias, Loaded, Move, NewPromotion, Registry, RegistryError};
use crate::store::Store;
use crate::verdicts::{Standing, VettedEvent};

/// The newest confirmed anomalies that candidates are judged with.
const MAX_ANOMALIES: usize = 40;
/// Events may have begun this long before the time that is looked at.
pub(crate) const LONGEST_EVENT: Millis = Millis(7 * Millis::DAY.0);

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

/// A competition that has been held, and not been recorded yet.
pub struct Held {
    plan: Plan,
    night: Night,
    winner: Option<(TrainedDetector, Figures)>,
}

/// What is known before candidates take part.
struct Prepared {
    n_windows: usize,
    n_threads: usize,
    data: DataOrigin,
    champion_figures: Option<Figures>,
    drift: Option<Drift>,
    timings: NightTimings,
}

impl Plan {
    /// Decides what is learned from, and what is judged with.
    pub async fn make(
        store: &Store,
        registry: &Registry,
        settings: &NightSettings,
        now: Timestamp,
    ) -> Result<Self, NightError> {
        let lock = files::open_lock(&registry.lock_path("learn"))?;
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
        let diagnoses = store.diagnoses().await?;
        let anomalous = diagnoses.iter().filter(|diagnosis| diagnosis.is_anomalous);
        let jobs = anomalous.flat_map(Diagnosis::jobs);
        excluded.extend(jobs.map(|job| whole_job(job.clone())));
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
        let arena = Arena::new(archive, self.scope(), &self.anomalies, config, seed, control)?;
        let prepared = self.prepare(&arena, archive, seed, control, begin, &mut tell)?;
        let champion = self.champion.as_ref().map(|champion| &champion.detector);
        let mut entered: Vec<Entered> = Vec::new();
        for entrant in self.entrants(config) {
            entered.push(arena.enter(entrant, champion, &entered, &mut tell)?);
        }
        self.decide(prepared, entered)
    }

    /// What other processes need to train and judge the candidates.
    pub fn assignment(
        &self,
        archive: String,
        registry: &Registry,
        config: &DetectorConfig,
        seed: u64,
    ) -> Result<Assignment, NightError> {
        let valid = config.clone().validate().map_err(detect::DetectError::from)?;
        Ok(Assignment {
            archive,
            scope: self.scope(),
            anomalies: self.anomalies.clone(),
            champion: self.champion.as_ref().map(|champion| registry.path(&champion.model.version)),
            entrants: self.entrants(&valid),
            detector: config.clone(),
            seed,
        })
    }

    /// Decides with the results of other processes, which are in the directory of the assignment. `wait` returns when no
    /// more results are expected; meanwhile the champion is judged here.
    pub fn gather(
        self,
        assignment: &Assignment,
        folder: &Path,
        archive: &Archive,
        control: Control<'_>,
        mut tell: impl FnMut(NightStep<'_>),
        wait: impl FnOnce() -> Result<(), NightError>,
    ) -> Result<Held, NightError> {
        let begin = Instant::now();
        tell(NightStep::Preparing);
        let config = assignment.detector.clone().validate().map_err(detect::DetectError::from)?;
        let arena = Arena::new(archive, self.scope(), &self.anomalies, &config, assignment.seed, control)?;
        let prepared = self.prepare(&arena, archive, assignment.seed, control, begin, &mut tell)?;
        wait()?;
        self.decide(prepared, assignment.results(folder))
    }

    /// What is learned from.
    fn scope(&self) -> Scope {
        Scope { included: vec![Span::of_time(self.from, self.to)], excluded: self.excluded.clone() }
    }

    /// Judges the champion and compares the data with that which it was trained with.
    fn prepare(
        &self,
        arena: &Arena<'_>,
        archive: &Archive,
        seed: u64,
        control: Control<'_>,
        begin: Instant,
        tell: &mut impl FnMut(NightStep<'_>),
    ) -> Result<Prepared, NightError> {
        let mut timings = NightTimings { collection: begin.elapsed().as_secs_f64(), ..Default::default() };
        let begin = Instant::now();
        let champion_figures = match &self.champion {
            Some(champion) => {
                tell(NightStep::Judging { candidate: &champion.model.version });
                Some(arena.judge().figures(&champion.detector)?)
            }
            None => None,
        };
        timings.competition += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let drift = self.drift(archive, seed, control)?;
        let (n_windows, data) = (arena.data.train.n_windows(), arena.data.origin());
        let selection = Selection { from: self.from, to: self.to, ..Selection::default() };
        let n_threads = archive.catalog(selection)?.nodes.iter().map(|node| node.threads).sum();
        timings.preparation = begin.elapsed().as_secs_f64();
        Ok(Prepared { n_windows, n_threads, data, champion_figures, drift, timings })
    }

    /// Finds the winner.
    fn decide(self, prepared: Prepared, entered: Vec<Entered>) -> Result<Held, NightError> {
        let Prepared { n_windows, n_threads, data, champion_figures, drift, mut timings } = prepared;
        let (mut candidates, mut detectors) = (Vec::new(), Vec::new());
        for Entered { candidate, detector } in entered {
            timings.training += candidate.training_seconds;
            timings.competition += candidate.judging_seconds;
            candidates.push(candidate);
            detectors.push(detector);
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
        let winning_candidate = decision.winner.map(|winner| candidates[winner].name.clone());
        let night = Night {
            number: 0,
            time: self.to,
            from: self.from,
            to: self.to,
            n_windows,
            n_threads,
            data: Some(data),
            n_excluded: self.excluded.len(),
            champion_before: self.champion.as_ref().map(|champion| champion.model.version.clone()),
            champion_figures,
            drift,
            reason: match &winning_candidate {
                Some(name) => format!("{name}: {}", decision.reason),
                None => decision.reason,
            },
            candidates,
            winning_candidate,
            winner: None,
            needs_approval: self.settings.needs_approval,
            shadow_hours: self.settings.shadow.as_seconds() / 3_600.0,
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
    fn entrants(&self, config: &ValidConfig) -> Vec<Entrant> {
        let champion = self.champion.as_ref().map(|champion| &champion.detector);
        let mut entrants = Vec::new();
        for kind in self.settings.candidates.iter().copied() {
            entrants.push(Entrant { kind, from_champion: false });
            let can_start =
                champion.is_some_and(|champion| champion.kind == kind && champion.can_start(kind, config));
            if self.settings.warm_start && can_start {
                entrants.push(Entrant { kind, from_champion: true });
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
        let mut model = None;
        if let Some((detector, figures)) = winner {
            let version = format!("v{}", night.time.0 / 1_000);
            let parent = night.champion_before.clone();
            detector.write(&registry.path(&version), &Provenance { parent, ..Provenance::at(night.time) })?;
            // Read as a whole before it is promoted.
            registry.load(&version)?;
            model = Some(registry.describe(
                &version,
                figures.metrics().map(|(name, value)| (name.to_owned(), value)).into(),
                night.time,
            )?);
            night.winner = Some(version);
        }
        night.timings.deployment = begin.elapsed().as_secs_f64();
        // One transaction: a model that won is never without its night.
        let mut connection = store.writer().await?;
        let mut transaction = connection.begin().await.map_err(RegistryError::from)?;
        if let Some(model) = &model {
            registry.insert(&mut transaction, model).await?;
            // Without a champion there is nothing to compare it with, and nothing that scores.
            let waits = plan.settings.needs_approval || plan.settings.shadow.0 > 0 && plan.champion.is_some();
            let promotion = NewPromotion {
                alias: if waits { Alias::Challenger } else { Alias::Champion },
                version: &model.version,
                what: Move::Promoted,
                actor,
                reason: &format!("won the competition: {}", night.reason),
            };
            registry.give(&mut transaction, promotion, night.time).await?;
        }
        record(&mut transaction, &mut night).await?;
        transaction.commit().await.map_err(RegistryError::from)?;
        drop(plan.lock);
        Ok(night)
    }
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
        return event.jobs.iter().cloned().map(whole_job).collect();
    }
    vec![span]
}

/// A job at all times and on all nodes.
pub(crate) fn whole_job(job: JobId) -> Span {
    Span { job: Some(job), node: None, from: Timestamp::MIN, to: Timestamp::MAX }
}
