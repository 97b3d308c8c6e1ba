//! Backtests: what a model would have reported in the past, found by the code that scores live.

use archive::Archive;
use detect::{
    ArchiveEvents, Calibration, DetectError, Event, KnownJobs, Library, Scope, Span, TrainedDetector,
};
use lifecycle::{RegionInForce, Standing, VettedEvent, is_same_event};
use serde::Serialize;
use workload::{Control, Timestamp};

/// Events that are returned.
const MAX_EVENTS: usize = 1_000;

/// What is tested.
pub struct BacktestQuery {
    pub version: String,
    pub detector: TrainedDetector,
    pub library: Library,
    /// What verdicts hide of this model's events.
    pub regions: Vec<RegionInForce>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// The events of that time that were recorded.
    pub recorded: Vec<VettedEvent>,
    /// Whether the thresholds are those of the model.
    pub is_own_budget: bool,
}

/// What a model would have reported.
#[derive(Debug, Serialize)]
pub struct Backtest {
    pub model: String,
    /// The budget of false events per day, and whether it is that of the model.
    pub false_events_per_day: Option<f64>,
    pub is_own_budget: bool,
    pub from: Timestamp,
    pub to: Timestamp,
    /// How much time was observed, and how many windows.
    pub hours: f64,
    pub windows: usize,
    /// In order of their opening.
    pub events: Vec<TestedEvent>,
    /// Events that were left out because there are too many.
    pub omitted: usize,
    /// Events that were reported then, and that this model would not report.
    pub missed: Vec<MissedEvent>,
}

/// Why another budget cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    #[error(
        "model {0} was calibrated before the thresholds of other budgets were kept; models that are trained from now on \
         know them"
    )]
    NotKept(String),
    #[error("model {version} knows the thresholds of {from} to {to} false events per day")]
    OutOfRange { version: String, from: f64, to: f64 },
}

#[derive(Debug, Serialize)]
pub struct TestedEvent {
    #[serde(flatten)]
    pub event: Event,
    /// Whether a verdict in force would hide it.
    pub is_hidden: bool,
    /// The event about the same thing that was recorded then, and what was said about it.
    pub recorded: Option<String>,
    pub standing: Option<Standing>,
}

#[derive(Debug, Serialize)]
pub struct MissedEvent {
    pub id: String,
    pub standing: Standing,
    pub opened: Timestamp,
    pub strength: f64,
    pub why: String,
}

impl BacktestQuery {
    /// Uses the thresholds of another budget of false events per day.
    pub fn use_budget(&mut self, false_events_per_day: f64) -> Result<(), BudgetError> {
        let calibration = self.detector.calibration.as_ref();
        let Some([from, to]) = calibration.and_then(Calibration::budgets) else {
            return Err(BudgetError::NotKept(self.version.clone()));
        };
        let other = calibration.and_then(|calibration| calibration.with_budget(false_events_per_day));
        let out_of_range = || BudgetError::OutOfRange { version: self.version.clone(), from, to };
        self.detector.calibration = Some(other.ok_or_else(out_of_range)?);
        self.is_own_budget = false;
        Ok(())
    }

    /// Scores the archive.
    pub fn run(self, archive: &Archive, control: Control<'_>) -> Result<Backtest, DetectError> {
        let filter =
            Scope { included: vec![Span::of_time(self.from, self.to)], excluded: Vec::new() }.filter();
        let known = KnownJobs::default();
        let found =
            ArchiveEvents { archive, detector: &self.detector, filter: &filter, known: &known, control }
                .find(self.library)?;
        let is_missed = |vetted: &&VettedEvent| {
            vetted.event.hidden_by.is_none()
                && !found.events.iter().any(|event| is_same_event(event, &vetted.event.event))
        };
        let missed = self.recorded.iter().filter(is_missed).map(missed).collect();
        let omitted = found.events.len().saturating_sub(MAX_EVENTS);
        let tested = |event: Event| {
            let same = self.recorded.iter().find(|vetted| is_same_event(&event, &vetted.event.event));
            TestedEvent {
                is_hidden: self.regions.iter().any(|one| one.region.hides(&event)),
                recorded: same.map(|vetted| vetted.event.event.id.clone()),
                standing: same.map(VettedEvent::standing),
                event,
            }
        };
        Ok(Backtest {
            model: self.version.clone(),
            false_events_per_day: self.detector.calibration.as_ref().map(|one| one.false_events_per_day),
            is_own_budget: self.is_own_budget,
            from: self.from,
            to: self.to,
            hours: found.hours,
            windows: found.n_windows,
            events: found.events.into_iter().take(MAX_EVENTS).map(tested).collect(),
            omitted,
            missed,
        })
    }
}

fn missed(vetted: &VettedEvent) -> MissedEvent {
    let event = &vetted.event.event;
    MissedEvent {
        id: event.id.clone(),
        standing: vetted.standing(),
        opened: event.opened,
        strength: event.strength,
        why: event.why.clone(),
    }
}
