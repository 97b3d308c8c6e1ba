//! Nightly learning: models compete at a time of day, beside live scoring.

pub mod slurm;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use archive::Archive;
use detect::{DetectorConfig, DetectorKind, TrainingStep};
use lifecycle::{
    Night, NightError, NightSettings, NightStep, OnAnomalies, Plan, Policy, ShadowOutcome, judge_shadow,
};
use serde::{Deserialize, Serialize};
use workload::{Control, Millis, Stop, Timestamp};

use crate::error::ServeError;
use crate::service::Service;
use crate::settings::{Length, SettingsError};

/// How often the clock and the settings are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Who promotes the winner.
const ACTOR: &str = "competition";
/// The niceness of threads that train: scoring comes first.
const NICENESS: i32 = 10;

/// When and how models compete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearningSettings {
    /// The time of day at which models compete, in UTC, such as `02:00`; empty for never.
    pub at: String,
    /// The detectors that take part; `pca` always does.
    pub candidates: Vec<DetectorKind>,
    /// Whether a detector of the champion's kind is also trained from the champion's weights.
    pub warm_start: bool,
    /// How much data is used, up to now.
    pub history: Length,
    /// What happens if the data has anomalies, or events without a verdict: `exclude` their jobs, or `skip` the night.
    pub on_anomalies: OnAnomalies,
    /// Whether a person has to promote the winner.
    pub needs_approval: bool,
    /// For how long the winner scores beside the champion, without reporting anything, before it replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Length>,
    /// How much smaller than the champion's the fraction of anomalies that a winner finds may be.
    pub found_margin: f64,
    /// How many more false events than the champion a winner may raise on held-out jobs.
    pub false_events_margin: usize,
}

impl Default for LearningSettings {
    fn default() -> Self {
        let NightSettings { candidates, warm_start, on_anomalies, needs_approval, policy, .. } =
            NightSettings::default();
        Self {
            at: "02:00".into(),
            candidates,
            warm_start,
            history: Length(Duration::from_secs(24 * 3_600)),
            on_anomalies,
            needs_approval,
            shadow: None,
            found_margin: policy.found_margin,
            false_events_margin: policy.false_events_margin,
        }
    }
}

impl LearningSettings {
    pub fn check(&self) -> Result<(), SettingsError> {
        let range = |name, from, to| Err(SettingsError::Range { name, from, to });
        if !self.at.is_empty() && self.time_of_day().is_none() {
            return Err(SettingsError::TimeOfDay(self.at.clone()));
        }
        if !(Duration::from_secs(3_600)..=Duration::from_secs(90 * 86_400)).contains(&self.history.0) {
            return range("learning.history", "1h", "90 days");
        }
        if self.shadow.is_some_and(|shadow| shadow.0 > Duration::from_secs(30 * 86_400)) {
            return range("learning.shadow", "1ms", "30 days");
        }
        if !(0.0..=1.0).contains(&self.found_margin) {
            return range("learning.found_margin", "0", "1");
        }
        Ok(())
    }

    /// The time since midnight; `None` for never.
    fn time_of_day(&self) -> Option<Millis> {
        let (hour, minute) = self.at.split_once(':')?;
        let number = |text: &str| text.parse::<i64>().ok().filter(|_| text.len() == 2);
        let (hour, minute) = (number(hour)?, number(minute)?);
        (hour < 24 && minute < 60).then(|| Millis((hour * 60 + minute) * 60_000))
    }

    /// How the next night is held.
    pub fn night(&self) -> NightSettings {
        let mut candidates = self.candidates.clone();
        if !candidates.contains(&DetectorKind::Pca) {
            candidates.push(DetectorKind::Pca);
        }
        NightSettings {
            candidates,
            warm_start: self.warm_start,
            history: Millis::from(self.history.0),
            on_anomalies: self.on_anomalies,
            needs_approval: self.needs_approval,
            shadow: self.shadow.map_or(Millis(0), |shadow| Millis::from(shadow.0)),
            policy: Policy {
                found_margin: self.found_margin,
                false_events_margin: self.false_events_margin,
                ..Policy::default()
            },
        }
    }

    /// Whether a time of day has passed between two moments.
    fn is_due(&self, last: Timestamp, now: Timestamp) -> bool {
        self.time_of_day().is_some_and(|at| {
            let today = now.floor(Millis::DAY) + at;
            let latest = if today <= now { today } else { today - Millis::DAY };
            latest > last
        })
    }
}

/// Holds competitions until the service stops.
pub struct Nights {
    pub service: Arc<Service>,
    pub archive: Archive,
    pub detector: DetectorConfig,
    pub runtime: tokio::runtime::Handle,
    pub stop: Stop,
}

impl Nights {
    pub fn start(self) -> Result<std::thread::JoinHandle<()>, ServeError> {
        let work = move || self.run();
        std::thread::Builder::new().name("nights".into()).spawn(work).map_err(ServeError::Thread)
    }

    fn run(&self) {
        let mut last = Timestamp::from(SystemTime::now());
        // The challenger that was refused last, so that it is logged once.
        let mut refused = None;
        while !self.stop.wait(LOOK_EVERY) {
            let (settings, now) = (self.service.settings(), Timestamp::from(SystemTime::now()));
            self.judge_shadow(&settings.learning.night(), now, &mut refused);
            if !settings.learning.is_due(last, now) {
                continue;
            }
            last = now;
            tracing::info!("models compete");
            match self.hold(&settings.learning.night(), now) {
                Ok(night) => tracing::info!("{}", outcome(&night)),
                Err(_) if self.stop.is_set() => return,
                Err(error) => tracing::warn!("the champion stays: {error}"),
            }
        }
    }

    /// Promotes a challenger that has done well beside the champion.
    fn judge_shadow(&self, settings: &NightSettings, now: Timestamp, refused: &mut Option<String>) {
        let Service { store, registry, .. } = &*self.service;
        match self.runtime.block_on(judge_shadow(store, registry, settings, ACTOR, now)) {
            Ok(None) => {}
            Ok(Some(ShadowOutcome::Promoted(promotion))) => {
                tracing::info!("model {} is the champion: {}", promotion.version, promotion.reason);
            }
            Ok(Some(ShadowOutcome::Refused { version, objection })) => {
                if refused.as_ref() != Some(&version) {
                    tracing::warn!(
                        "model {version} is not promoted after its time in shadow mode: {objection}"
                    );
                }
                *refused = Some(version);
            }
            Err(error) => tracing::warn!("the challenger cannot be judged: {error}"),
        }
    }

    fn hold(&self, settings: &NightSettings, now: Timestamp) -> Result<Night, NightError> {
        let Service { store, registry, .. } = &*self.service;
        let config = self.detector.clone().validate().map_err(detect::DetectError::from)?;
        let plan = self.runtime.block_on(Plan::make(store, registry, settings, now))?;
        let control = Control::new(&self.stop, &|_, _| {});
        let archive = self.archive.with_stop(&self.stop);
        let held = in_background(|| {
            plan.hold(&archive, &config, config.train.seed, control, |step| {
                if let Some(line) = line(step) {
                    tracing::debug!("{line}");
                }
            })
        })?;
        self.runtime.block_on(held.deploy(store, registry, ACTOR))
    }
}

/// Computes in threads of low priority.
pub fn in_background<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let be_nice = |_| {
        // It only asks for less than its share.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    };
    match rayon::ThreadPoolBuilder::new().start_handler(be_nice).build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}

/// What a night decided, in a sentence.
pub fn outcome(night: &Night) -> String {
    match &night.winner {
        Some(version) if night.needs_approval => {
            format!("model {version} has won and waits for approval: {}", night.reason)
        }
        Some(version) if night.shadow_hours > 0.0 && night.champion_before.is_some() => format!(
            "model {version} has won and scores beside the champion for {:.1} hours first: {}",
            night.shadow_hours, night.reason
        ),
        Some(version) => format!("model {version} is the champion: {}", night.reason),
        None => format!("the champion stays: {}", night.reason),
    }
}

/// A step of a night as a line; not every one is worth a line.
pub fn line(step: NightStep<'_>) -> Option<String> {
    match step {
        NightStep::Preparing => Some("reading the data".into()),
        NightStep::Judging { candidate } => Some(format!("{candidate}: judging")),
        NightStep::Training { candidate, step: TrainingStep::Epoch(epoch) } => Some(format!(
            "{candidate}: epoch {} of {}, validation {:.5}",
            epoch.epoch, epoch.n_epochs, epoch.validation
        )),
        NightStep::Training { candidate, step: TrainingStep::Calibrating } => {
            Some(format!("{candidate}: setting thresholds"))
        }
        NightStep::Training { step: TrainingStep::Resumed { .. }, .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_is_due_once_a_day() {
        let settings = |at: &str| LearningSettings { at: at.into(), ..LearningSettings::default() };
        let at = |hours: f64| Timestamp((hours * 3_600_000.0) as i64) + Millis(20_000 * Millis::DAY.0);
        let two = settings("02:00");
        assert!(two.is_due(at(1.9), at(2.0)) && two.is_due(at(1.0), at(5.0)));
        assert!(!two.is_due(at(2.0), at(25.9)) && two.is_due(at(2.0), at(26.1)));
        assert!(!settings("").is_due(at(0.0), at(100.0)));
        for wrong in ["2:00", "24:00", "02:60", "02", "a:b", "02:00:00"] {
            assert!(settings(wrong).check().is_err(), "{wrong}");
        }
        assert!(settings("23:59").check().is_ok());
    }
}
