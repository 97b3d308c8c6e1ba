//! The nightly competition: candidates are trained with the day's data and judged, together with the champion, on the
//! same held-out jobs and confirmed anomalies. It has three steps: [`Plan::make`] reads the store, [`Plan::hold`] computes
//! and blocks, [`Held::deploy`] writes. With an [`Assignment`], other processes train the candidates.

mod arena;
mod assignment;
mod judge;
mod plan;

use std::path::PathBuf;

use detect::{DetectError, DetectorKind, TrainingStep};
use learn::artifact::DataOrigin;
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};
use workload::{Millis, Timestamp};

pub use self::arena::Entrant;
pub use self::assignment::Assignment;
pub use self::plan::{Held, Plan};
pub(crate) use self::plan::{LONGEST_EVENT, spans_of, whole_job};
use crate::drift::Drift;
use crate::policy::{Figures, Policy};
use crate::registry::RegistryError;
use crate::store::{Store, StoreError};
use crate::tokens::to_json;

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
    /// For how long the winner scores beside the champion before it replaces it; 0 for not at all.
    pub shadow: Millis,
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
            shadow: Millis(0),
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
    #[error("assignment {path}: {reason}")]
    Assignment { path: PathBuf, reason: String },
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

/// A candidate and how it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The detector, and where its weights started.
    pub name: String,
    /// Absent if it could not be trained.
    pub figures: Option<Figures>,
    /// Why it did not win, other than by its error.
    pub objection: Option<String>,
    /// The course of its training; empty if it has no network.
    #[serde(default)]
    pub epochs: Vec<EpochLoss>,
    pub training_seconds: f64,
    pub judging_seconds: f64,
}

/// The losses of one pass through the training data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochLoss {
    pub training: f64,
    pub validation: f64,
}

/// How long the parts of a night took, in seconds: reading the data, comparing it with that of the champion, training,
/// judging, and putting the winner into use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NightTimings {
    #[serde(default)]
    pub collection: f64,
    pub preparation: f64,
    pub training: f64,
    pub competition: f64,
    pub deployment: f64,
}

impl NightTimings {
    /// The parts by name, in order.
    pub fn parts(&self) -> [(&'static str, f64); 5] {
        [
            ("collection", self.collection),
            ("preparation", self.preparation),
            ("training", self.training),
            ("competition", self.competition),
            ("deployment", self.deployment),
        ]
    }

    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }
}

/// A competition as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Night {
    pub number: i64,
    pub time: Timestamp,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Windows that candidates were trained with, and where they come from.
    pub n_windows: usize,
    /// Hardware threads of the cluster; 0 if it is not known.
    #[serde(default)]
    pub n_threads: usize,
    #[serde(default)]
    pub data: Option<DataOrigin>,
    /// Stretches of time that were not learned from.
    pub n_excluded: usize,
    pub champion_before: Option<String>,
    pub champion_figures: Option<Figures>,
    /// How the jobs of the night differ from those that the champion was trained with.
    #[serde(default)]
    pub drift: Option<Drift>,
    pub candidates: Vec<Candidate>,
    /// The name of the candidate that won, if one did, and its version.
    #[serde(default)]
    pub winning_candidate: Option<String>,
    pub winner: Option<String>,
    /// Whether the winner waits for the approval of a person.
    pub needs_approval: bool,
    /// For how many hours the winner scores beside the champion first.
    #[serde(default)]
    pub shadow_hours: f64,
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

/// Records a competition, and numbers it.
async fn record(transaction: &mut Transaction<'_, Any>, night: &mut Night) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM competitions").fetch_one(&mut **transaction);
    night.number = row.await?.try_get::<i64, _>(0)? + 1;
    sqlx::query("INSERT INTO competitions (number, time_ms, document) VALUES ($1, $2, $3)")
        .bind(night.number)
        .bind(night.time.0)
        .bind(to_json(night)?)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

impl Store {
    /// The competitions after a number, in order.
    pub async fn nights_after(&self, number: i64, limit: usize) -> Result<Vec<Night>, StoreError> {
        let rows =
            sqlx::query("SELECT document FROM competitions WHERE number > $1 ORDER BY number LIMIT $2")
                .bind(number)
                .bind(limit as i64)
                .fetch_all(self.readers())
                .await?;
        rows.iter().map(night).collect()
    }

    /// The last competitions, the newest first.
    pub async fn nights(&self, limit: usize) -> Result<Vec<Night>, StoreError> {
        let rows = sqlx::query("SELECT document FROM competitions ORDER BY number DESC LIMIT $1")
            .bind(limit as i64)
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(night).collect()
    }
}

fn night(row: &AnyRow) -> Result<Night, StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
    serde_json::from_str(&row.try_get::<String, _>("document")?).map_err(damaged)
}
