//! A rehearsal: simulated days through the code of the service, with the clock as a parameter. Events are recorded, a
//! scripted administrator gives verdicts, and models compete every night.

mod administrator;
pub mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use archive::{Archive, Settings};
use campaign::plan::PlannedCampaign;
use campaign::simulate::schedule::{ClusterSettings, Variation};
use campaign::simulate::{SimulateError, into_archive, recorded_model};
use detect::{
    ArchiveEvents, DetectError, DetectorKind, Event, EventChange, KnownJobs, Library, Monitor, Scope, Span,
    Subject, TrainedDetector, ValidConfig,
};
use lifecycle::{
    Distance, KnownPoints, NightError, NightSettings, Plan, RecordedEvent, Registry, RegistryError, Store,
    StoreError, Vetting, VettingError,
};
use serde::Serialize;
use workload::label::family;
use workload::{Control, Label, Millis, Set, Timestamp};

use self::administrator::{Administrator, Scored};
use crate::scoring::stronger;

/// The first day begins on a Monday morning.
const FIRST_MORNING: Timestamp = Timestamp(1_767_600_000_000);
/// Days with anomalous jobs, the day on which behaviour changes, and the first day of a new kind of job.
const ANOMALOUS_DAYS: [u32; 4] = [2, 3, 5, 7];
const DAY_OF_CHANGE: u32 = 4;
const DAY_OF_NEW_KIND: u32 = 6;
/// The harmless kind that is new, and the change of behaviour: two standard deviations of the usual drift.
const NEW_KIND: &str = "mpi-steady";
const CHANGE: [f32; 3] = [0.0, 0.25, 0.5];
/// How often verdicts are applied again to events that are open, as in the service.
const APPLY_EVERY: Millis = Millis(60_000);
/// An anomaly counts if it lasts at least for so many windows.
const DETECTABLE_WINDOWS: i64 = 3;
/// Within so many windows an event is in time.
const PROMPT_WINDOWS: i64 = 2;
const COMPETITION: &str = "competition";

#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    #[error(transparent)]
    Detect(#[from] DetectError),
    #[error(transparent)]
    Night(#[from] NightError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Vetting(#[from] VettingError),
}

impl From<StoreError> for RehearsalError {
    fn from(error: StoreError) -> Self {
        Self::Registry(error.into())
    }
}

/// What is rehearsed.
#[derive(Debug, Clone)]
pub struct RehearsalSettings {
    pub n_days: u32,
    pub n_nodes: u32,
    pub threads_per_node: u16,
    /// How much of each day is simulated.
    pub hours: f64,
    pub seed: u64,
    /// The fraction of verdicts that are wrong.
    pub error_rate: f64,
    pub detector: ValidConfig,
    /// The kind of the first model, which is trained with the first day, and how the nights after that are held.
    pub first: DetectorKind,
    pub night: NightSettings,
}

/// One day of a rehearsal.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Day {
    pub day: u32,
    /// The champion during the day, and its detector; absent on the first day.
    pub champion: Option<String>,
    pub detector: Option<String>,
    /// Anomalous jobs that lasted long enough to be detected.
    pub anomalous_jobs: usize,
    /// Those that raised an event, and those whose event was not hidden by a verdict.
    pub raised: usize,
    pub found: usize,
    /// The found ones whose event was opened within two windows of their start.
    pub in_time: usize,
    /// The median time from the start of an anomalous job to its event, in seconds.
    pub median_delay: Option<f64>,
    /// By kind: found, and all.
    pub by_kind: BTreeMap<String, [usize; 2]>,
    /// Events that were reported, and those of them that no anomalous job explains.
    pub events: usize,
    pub false_events: usize,
    /// Events that verdicts hid.
    pub hidden_events: usize,
    pub false_alarms: FalseAlarms,
    /// False events of the new harmless kind: before a verdict about one, and after it.
    pub new_kind_events: [usize; 2],
    pub verdicts: usize,
    pub wrong_verdicts: usize,
    /// Verdicts that could not be given.
    pub refused_verdicts: usize,
    /// Quantities whose distribution over jobs has changed since the champion was trained, and how many jobs are new.
    pub drift: Vec<String>,
    pub new_jobs: usize,
    /// What the night decided.
    pub winner: Option<String>,
    pub decision: String,
    pub simulation_seconds: f64,
    pub scoring_seconds: f64,
    pub competition_seconds: f64,
}

/// How many false alarms are left after each way of suppressing them. Subjects on nodes with an anomalous job do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct FalseAlarms {
    /// Every window in which the evidence about a subject exceeds its threshold.
    pub windows: usize,
    /// A subject is reported once, until it is below its threshold again.
    pub stretches: usize,
    /// Evidence has to last, and what has one cause is one event.
    pub events: usize,
    /// Events that verdicts do not hide.
    pub reported: usize,
}

/// The progress of a rehearsal.
#[derive(Debug, Clone, Copy)]
pub enum RehearsalStep<'a> {
    Simulating { day: u32 },
    Scoring { day: u32 },
    Competing { day: u32 },
    Done(&'a Day),
}

/// Where a rehearsal is held.
struct Stage<'a> {
    settings: &'a RehearsalSettings,
    archive: Archive,
    store: Store,
    registry: Registry,
    runtime: tokio::runtime::Handle,
    control: Control<'a>,
}

/// Rehearses in an empty directory. It blocks, and uses the current rayon pool.
pub fn rehearse(
    settings: &RehearsalSettings,
    folder: &Path,
    runtime: &tokio::runtime::Handle,
    control: Control<'_>,
    mut tell: impl FnMut(RehearsalStep<'_>),
) -> Result<Vec<Day>, RehearsalError> {
    let archive = folder.join("archive");
    let store = runtime.block_on(Store::open_file(&folder.join("metadata.db")))?;
    let stage = Stage {
        settings,
        archive: Archive::open_or_create(&archive.to_string_lossy(), &Settings::default())?,
        registry: Registry::new(store.clone(), folder),
        store,
        runtime: runtime.clone(),
        control,
    };
    let mut administrator = Administrator::new(settings.seed, settings.error_rate);
    let mut open: Vec<Event> = Vec::new();
    let mut days = Vec::new();
    for number in 1..=settings.n_days {
        let day = stage.day(number, &mut open, &mut administrator, &mut tell)?;
        tell(RehearsalStep::Done(&day));
        days.push(day);
    }
    runtime.block_on(stage.store.close());
    Ok(days)
}

impl Stage<'_> {
    fn day(
        &self,
        number: u32,
        open: &mut Vec<Event>,
        administrator: &mut Administrator,
        tell: &mut impl FnMut(RehearsalStep<'_>),
    ) -> Result<Day, RehearsalError> {
        let morning = FIRST_MORNING + Millis(Millis::DAY.0 * i64::from(number - 1));
        let evening = morning + Millis((self.settings.hours * Millis::HOUR.0 as f64) as i64);
        let mut day = Day { day: number, ..Day::default() };
        tell(RehearsalStep::Simulating { day: number });
        let begin = Instant::now();
        let labels = self.simulate(number, morning, evening)?;
        day.simulation_seconds = begin.elapsed().as_secs_f64();
        let champion = self.runtime.block_on(self.registry.champion())?;
        let champion_is_missing = champion.is_none();
        if let Some(champion) = champion {
            tell(RehearsalStep::Scoring { day: number });
            let begin = Instant::now();
            day.champion = Some(champion.model.version.clone());
            day.detector = Some(champion.model.detector.clone());
            let span = Span::of_time(morning, evening);
            let scored =
                Scored { version: &champion.model.version, detector: &champion.detector, span, labels };
            *open = self.score(&scored, std::mem::take(open), administrator, &mut day)?;
            self.count(&scored, &mut day)?;
            day.scoring_seconds = begin.elapsed().as_secs_f64();
        }
        tell(RehearsalStep::Competing { day: number });
        let begin = Instant::now();
        // The service trains its first model without a competition.
        let first = NightSettings { candidates: vec![self.settings.first], ..self.settings.night.clone() };
        let night = if champion_is_missing { &first } else { &self.settings.night };
        let plan = Plan::make(&self.store, &self.registry, night, evening);
        let plan = self.runtime.block_on(plan)?;
        let seed = self.settings.seed.wrapping_add(u64::from(number));
        match plan.hold(&self.archive, &self.settings.detector, seed, self.control, |_| {}) {
            Ok(held) => {
                let deployed = held.deploy(&self.store, &self.registry, COMPETITION);
                let night = self.runtime.block_on(deployed)?;
                (day.winner, day.decision) = (night.winner, night.reason);
                let drift = night.drift.unwrap_or_default();
                day.new_jobs = drift.n_new;
                day.drift =
                    drift.distances.into_iter().filter(Distance::is_drift).map(|one| one.name).collect();
            }
            Err(error @ (NightError::Detect(DetectError::Stopped(_)) | NightError::Registry(_))) => {
                return Err(error.into());
            }
            // The champion stays; the service would log this.
            Err(error) => day.decision = error.to_string(),
        }
        day.competition_seconds = begin.elapsed().as_secs_f64();
        Ok(day)
    }

    fn simulate(
        &self,
        number: u32,
        morning: Timestamp,
        evening: Timestamp,
    ) -> Result<Vec<Label>, RehearsalError> {
        let is_anomalous = ANOMALOUS_DAYS.contains(&number);
        let cluster = ClusterSettings {
            n_nodes: self.settings.n_nodes,
            threads_per_node: self.settings.threads_per_node,
            campaign_seconds: ((evening - morning).0 / 1_000) as u64,
            campaigns: vec![PlannedCampaign {
                name: format!("day-{number}"),
                // Only campaigns of the test set have anomalies.
                set: if is_anomalous { Set::Test } else { Set::Train },
            }],
            seed: self.settings.seed,
            load: 0.7,
            start: morning,
            origin: FIRST_MORNING,
            first_job: 1,
            is_busy_at_start: false,
            variation: Variation {
                left_out: (number < DAY_OF_NEW_KIND).then(|| NEW_KIND.to_owned()),
                shift: if number >= DAY_OF_CHANGE { CHANGE } else { Default::default() },
            },
        };
        let (_, labels) = into_archive(&cluster, &recorded_model()?, &self.archive, &self.control)?;
        Ok(labels)
    }

    /// Scores a day, records its events and lets the administrator answer. Returns the events that are open at the end.
    fn score(
        &self,
        scored: &Scored<'_>,
        open: Vec<Event>,
        administrator: &mut Administrator,
        day: &mut Day,
    ) -> Result<Vec<Event>, RehearsalError> {
        let Scored { version, detector, span, .. } = scored;
        let vetting = self.vetting();
        self.runtime.block_on(vetting.add_regions(version, detector, span.from))?;
        let mut points = KnownPoints::default();
        let library = self.library(detector, &mut points, span.from)?;
        let known = KnownJobs::default();
        let mut monitor = Monitor::new(detector, &known, library)?;
        monitor.resume(open, span.from);
        let filter = Scope { included: vec![span.clone()], excluded: Vec::new() }.filter();
        let archive_events = ArchiveEvents {
            archive: &self.archive,
            detector,
            filter: &filter,
            known: &known,
            control: self.control,
        };
        let length = detector.event_spec().length();
        let mut above: BTreeSet<Subject> = BTreeSet::new();
        let (mut recorded, mut next_look) = (BTreeMap::new(), span.from);
        let mut failed: Option<RehearsalError> = None;
        archive_events.observe(&mut monitor, |monitor, batch, changes| {
            if failed.is_some() {
                return;
            }
            let now = batch.start() + length;
            let exceeds = |(subject, strength): &(&Subject, &f64)| {
                **strength > 1.0 && !scored.is_disturbed(subject.node(), batch.start(), now)
            };
            let exceeding: BTreeSet<Subject> =
                monitor.strengths().iter().filter(exceeds).map(|(subject, _)| subject.clone()).collect();
            day.false_alarms.windows += exceeding.len();
            day.false_alarms.stretches += exceeding.difference(&above).count();
            above = exceeding;
            let stronger = stronger(monitor, &mut recorded);
            let outcome = self.record(&changes, &stronger, version, now, &mut next_look).and_then(|()| {
                administrator.listen(self, now)?;
                let has_new_anomaly = administrator.answer(self, scored, now, day)?;
                if has_new_anomaly {
                    monitor.use_library(self.library(detector, &mut points, now)?);
                }
                Ok(())
            });
            failed = outcome.err();
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        administrator.answer(self, scored, Timestamp::MAX, day)?;
        Ok(monitor.finish())
    }

    /// Records what happened to events, and from time to time which of them verdicts hide now.
    fn record(
        &self,
        changes: &[EventChange],
        stronger: &[Event],
        model: &str,
        now: Timestamp,
        next_look: &mut Timestamp,
    ) -> Result<(), RehearsalError> {
        self.runtime.block_on(async {
            for change in changes {
                self.store.record(change, model, now).await?;
            }
            for event in stronger {
                self.store.update_open(event).await?;
            }
            if now >= *next_look {
                self.store.apply_verdicts(now).await?;
                *next_look = now + APPLY_EVERY;
            }
            Ok(())
        })
    }

    fn library(
        &self,
        detector: &TrainedDetector,
        points: &mut KnownPoints,
        now: Timestamp,
    ) -> Result<Library, RehearsalError> {
        Ok(self.runtime.block_on(self.vetting().library(detector, points, now))?)
    }

    fn vetting(&self) -> Vetting<'_> {
        // The labels of the simulation are what the administrator knows, and not the service.
        let uses_labels = false;
        let Self { store, registry, archive, control, .. } = self;
        Vetting { store, registry, archive, uses_labels, control: *control }
    }

    /// Compares the events of a day with its labels.
    fn count(&self, scored: &Scored<'_>, day: &mut Day) -> Result<(), RehearsalError> {
        let events = self.runtime.block_on(self.store.vetted_events(scored.span.from))?;
        let length = scored.detector.event_spec().length();
        let shortest = Millis(DETECTABLE_WINDOWS * length.0);
        let (mut delays, mut reported) = (Vec::new(), BTreeSet::new());
        for vetted in &events {
            let RecordedEvent { event, hidden_by, .. } = &vetted.event;
            // Accepted itself, and not hidden because it resembles another.
            let is_hidden = hidden_by.is_some() && vetted.verdicts.is_empty();
            let is_false = scored.explanation(event).is_none();
            day.false_alarms.events += usize::from(is_false);
            day.false_alarms.reported += usize::from(is_false && !is_hidden);
            if is_hidden {
                day.hidden_events += 1;
            } else {
                day.events += 1;
                day.false_events += usize::from(is_false);
                reported.insert(event.id.as_str());
            }
        }
        let anomalous = scored.labels.iter().filter(|label| label.is_anomalous());
        for label in anomalous.filter(|label| label.end - label.start >= shortest) {
            day.anomalous_jobs += 1;
            let kind = day.by_kind.entry(family(&label.kind).to_owned()).or_default();
            kind[1] += 1;
            let about = events.iter().map(|vetted| &vetted.event.event);
            let mut about = about.filter(|event| scored.explanation(event) == Some(label)).peekable();
            day.raised += usize::from(about.peek().is_some());
            if let Some(first) = about.find(|event| reported.contains(event.id.as_str())) {
                day.found += 1;
                kind[0] += 1;
                let delay = first.opened - label.start;
                day.in_time += usize::from(delay.0 <= PROMPT_WINDOWS * length.0);
                delays.push(delay.as_seconds());
            }
        }
        delays.sort_by(f64::total_cmp);
        day.median_delay = delays.get(delays.len() / 2).copied();
        Ok(())
    }
}
