//! The registry of models: versions, which of them is the champion, and who promoted what when.
//!
//! Artifacts are directories below `models/`; everything else is in the metadata store.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use detect::{Calibration, TrainedDetector};
use learn::artifact::{Artifact, ArtifactError, DataOrigin};
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{Any, Connection, Row, Transaction};
use workload::Timestamp;

use crate::audit;
use crate::store::{Store, StoreError};
use crate::tokens::to_json;

const MODELS: &str = "models";
/// The longest name of a version.
const MAX_NAME: usize = 100;

/// Why the registry did not do what was asked. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("model {version} cannot be used: {reason}")]
    Unusable { version: String, reason: String },
    #[error("there is no earlier champion")]
    NoEarlier,
    #[error("{0:?} is not the name of a version: use letters, digits, `-`, `_` and `.`")]
    Name(String),
    #[error("model {0} exists already")]
    Exists(String),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl From<sqlx::Error> for RegistryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The use of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alias {
    /// It decides about events.
    Champion,
    /// It runs beside the champion, and may replace it.
    Challenger,
}

impl Alias {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Champion => "champion",
            Self::Challenger => "challenger",
        }
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Alias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "champion" => Ok(Self::Champion),
            "challenger" => Ok(Self::Challenger),
            _ => Err(format!("{text:?} is not `champion` or `challenger`")),
        }
    }
}

/// A version of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelVersion {
    /// The name of its directory.
    pub version: String,
    /// The detector, such as `hierarchy`.
    pub detector: String,
    pub added: Timestamp,
    /// The version that it was trained from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The data that it was trained with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataOrigin>,
    /// The version of Tracewise that trained it.
    pub product_version: String,
    pub weights_sha256: String,
    /// Measurements made when it was trained.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
}

/// How a model got an alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Move {
    Promoted,
    /// It had the alias before, and the model after it was given up.
    Restored,
}

/// One row of the history of an alias.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Promotion {
    pub number: i64,
    pub alias: Alias,
    pub version: String,
    pub what: Move,
    pub time: Timestamp,
    /// Who or what promoted it.
    pub actor: String,
    pub reason: String,
}

/// A promotion before it has a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewPromotion<'a> {
    pub alias: Alias,
    pub version: &'a str,
    pub what: Move,
    pub actor: &'a str,
    pub reason: &'a str,
}

/// A model that was read.
pub struct Loaded {
    pub model: ModelVersion,
    pub detector: TrainedDetector,
}

/// Versions of the model and their aliases.
#[derive(Debug, Clone)]
pub struct Registry {
    store: Store,
    folder: PathBuf,
}

impl Registry {
    /// The registry of a service with this data directory.
    pub fn new(store: Store, data: &Path) -> Self {
        Self { store, folder: data.join(MODELS) }
    }

    /// A file in the data directory that only one process at a time may lock.
    pub fn lock_path(&self, name: &str) -> PathBuf {
        self.folder.with_file_name(format!("{name}.lock"))
    }

    /// The directory of a version.
    pub fn path(&self, version: &str) -> PathBuf {
        self.folder.join(version)
    }

    /// All versions, the newest first.
    pub async fn versions(&self) -> Result<Vec<ModelVersion>, RegistryError> {
        let rows = sqlx::query("SELECT document FROM models ORDER BY number DESC")
            .fetch_all(self.store.readers())
            .await?;
        rows.iter().map(model).collect()
    }

    /// One version.
    pub async fn version(&self, version: &str) -> Result<ModelVersion, RegistryError> {
        let row = sqlx::query("SELECT document FROM models WHERE version = $1")
            .bind(version)
            .fetch_optional(self.store.readers())
            .await?;
        let missing = || StoreError::NotFound { what: format!("model {version}") };
        model(&row.ok_or_else(missing)?)
    }

    /// Registers the artifact in the directory of a version.
    pub async fn add(
        &self,
        version: &str,
        metrics: BTreeMap<String, f64>,
        now: Timestamp,
    ) -> Result<ModelVersion, RegistryError> {
        let model = self.describe(version, metrics, now)?;
        let mut connection = self.store.writer().await?;
        let mut transaction = connection.begin().await?;
        self.insert(&mut transaction, &model).await?;
        transaction.commit().await?;
        Ok(model)
    }

    /// The artifact in the directory of a version, as it is registered.
    pub(crate) fn describe(
        &self,
        version: &str,
        metrics: BTreeMap<String, f64>,
        now: Timestamp,
    ) -> Result<ModelVersion, RegistryError> {
        check_name(version)?;
        let manifest = Artifact::manifest(&self.path(version))?;
        let detector = manifest.kind.strip_prefix("detect/").unwrap_or(&manifest.kind).to_owned();
        Ok(ModelVersion {
            version: version.to_owned(),
            detector,
            added: now,
            parent: manifest.provenance.parent,
            data: manifest.provenance.data,
            product_version: manifest.product_version,
            weights_sha256: manifest.weights_sha256,
            metrics,
        })
    }

    pub(crate) async fn insert(
        &self,
        transaction: &mut Transaction<'_, Any>,
        model: &ModelVersion,
    ) -> Result<(), RegistryError> {
        let known = sqlx::query("SELECT version FROM models WHERE version = $1")
            .bind(&model.version)
            .fetch_optional(&mut **transaction)
            .await?;
        if known.is_some() {
            return Err(RegistryError::Exists(model.version.clone()));
        }
        sqlx::query(
            "INSERT INTO models (version, number, document)
             VALUES ($1, (SELECT COALESCE(MAX(number), 0) + 1 FROM models), $2)",
        )
        .bind(&model.version)
        .bind(to_json(model)?)
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }

    /// Copies a model that was trained elsewhere, and registers it.
    pub async fn import(
        &self,
        source: &Path,
        version: &str,
        now: Timestamp,
    ) -> Result<ModelVersion, RegistryError> {
        check_name(version)?;
        let path = self.path(version);
        if path.exists() {
            return Err(RegistryError::Exists(version.to_owned()));
        }
        Artifact::read(source, "detect")?.write(&path)?;
        self.add(version, BTreeMap::new(), now).await
    }

    /// Registers directories that nobody has registered, in the order of their names.
    pub async fn adopt(&self, now: Timestamp) -> Result<Vec<String>, RegistryError> {
        let known = self.versions().await?;
        let mut found: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_new = known.iter().all(|model| model.version != name) && check_name(&name).is_ok();
            if is_new && entry.path().join("manifest.json").exists() {
                found.push(name);
            }
        }
        found.sort();
        let mut adopted = Vec::new();
        for version in found {
            match self.add(&version, BTreeMap::new(), now).await {
                Ok(_) => adopted.push(version),
                Err(error @ RegistryError::Store(_)) => return Err(error),
                Err(error) => tracing::error!("model {version} is not registered: {error}"),
            }
        }
        Ok(adopted)
    }

    /// Gives an alias to a version, after its artifact was read as a whole.
    pub async fn promote(
        &self,
        alias: Alias,
        version: &str,
        actor: &str,
        reason: &str,
        now: Timestamp,
    ) -> Result<Promotion, RegistryError> {
        self.version(version).await?;
        self.load(version)?;
        let promotion = NewPromotion { alias, version, what: Move::Promoted, actor, reason };
        self.give_alone(promotion, now).await
    }

    /// Makes the champion before this one the champion again.
    pub async fn rollback(
        &self,
        actor: &str,
        reason: &str,
        now: Timestamp,
    ) -> Result<Promotion, RegistryError> {
        let champions = self.champions().await?;
        let [.., earlier, _] = &champions[..] else { return Err(RegistryError::NoEarlier) };
        self.load(earlier)?;
        let (alias, what) = (Alias::Champion, Move::Restored);
        self.give_alone(NewPromotion { alias, version: earlier, what, actor, reason }, now).await
    }

    /// Gives an alias in a transaction of its own.
    async fn give_alone(&self, new: NewPromotion<'_>, now: Timestamp) -> Result<Promotion, RegistryError> {
        let mut connection = self.store.writer().await?;
        let mut transaction = connection.begin().await?;
        let promotion = self.give(&mut transaction, new, now).await?;
        transaction.commit().await?;
        Ok(promotion)
    }

    pub(crate) async fn give(
        &self,
        transaction: &mut Transaction<'_, Any>,
        new: NewPromotion<'_>,
        now: Timestamp,
    ) -> Result<Promotion, RegistryError> {
        let NewPromotion { alias, version, what, actor, reason } = new;
        let row = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM promotions")
            .fetch_one(&mut **transaction)
            .await?;
        let promotion = Promotion {
            number: row.try_get::<i64, _>(0)? + 1,
            alias,
            version: version.to_owned(),
            what,
            time: now,
            actor: actor.to_owned(),
            reason: reason.to_owned(),
        };
        sqlx::query(
            "INSERT INTO promotions (number, alias, version, what, time_ms, actor, reason)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(promotion.number)
        .bind(alias.name())
        .bind(version)
        .bind(what.name())
        .bind(now.0)
        .bind(actor)
        .bind(reason)
        .execute(&mut **transaction)
        .await?;
        let detail = format!("{version} as {alias}: {reason}");
        audit::append(transaction, now, actor, what.name(), &detail).await?;
        Ok(promotion)
    }

    /// The models that were registered after the one with this number, in order, with their numbers.
    pub async fn versions_after(
        &self,
        number: i64,
        limit: usize,
    ) -> Result<Vec<(i64, ModelVersion)>, RegistryError> {
        let rows =
            sqlx::query("SELECT number, document FROM models WHERE number > $1 ORDER BY number LIMIT $2")
                .bind(number)
                .bind(limit as i64)
                .fetch_all(self.store.readers())
                .await?;
        rows.iter().map(|row| Ok((row.try_get("number")?, model(row)?))).collect()
    }

    /// The promotions after a number, in order.
    pub async fn promotions_after(&self, number: i64, limit: usize) -> Result<Vec<Promotion>, RegistryError> {
        let rows = sqlx::query("SELECT * FROM promotions WHERE number > $1 ORDER BY number LIMIT $2")
            .bind(number)
            .bind(limit as i64)
            .fetch_all(self.store.readers())
            .await?;
        rows.iter().map(promotion).collect()
    }

    /// The history of an alias, the newest first.
    pub async fn history(&self, alias: Alias, limit: usize) -> Result<Vec<Promotion>, RegistryError> {
        let rows = sqlx::query("SELECT * FROM promotions WHERE alias = $1 ORDER BY number DESC LIMIT $2")
            .bind(alias.name())
            .bind(limit as i64)
            .fetch_all(self.store.readers())
            .await?;
        rows.iter().map(promotion).collect()
    }

    /// Who had an alias at a time.
    pub async fn holder_at(&self, alias: Alias, time: Timestamp) -> Result<Option<Promotion>, RegistryError> {
        let row = sqlx::query(
            "SELECT * FROM promotions WHERE alias = $1 AND time_ms <= $2 ORDER BY number DESC LIMIT 1",
        )
        .bind(alias.name())
        .bind(time.0)
        .fetch_optional(self.store.readers())
        .await?;
        row.as_ref().map(promotion).transpose()
    }

    /// Who has an alias.
    pub async fn holder(&self, alias: Alias) -> Result<Option<Promotion>, RegistryError> {
        self.holder_at(alias, Timestamp::MAX).await
    }

    /// The challenger, if it became one after the champion was promoted: only then may it replace the champion.
    pub async fn challenger(&self) -> Result<Option<Promotion>, RegistryError> {
        let champion = self.holder(Alias::Champion).await?;
        let challenger = self.holder(Alias::Challenger).await?;
        Ok(challenger.filter(|challenger| {
            champion.is_none_or(|champion| {
                champion.number < challenger.number && champion.version != challenger.version
            })
        }))
    }

    /// The promotions in force, of all aliases.
    pub async fn holders(&self) -> Result<Vec<Promotion>, RegistryError> {
        let mut holders = Vec::new();
        for alias in [Alias::Champion, Alias::Challenger] {
            holders.extend(self.holder(alias).await?);
        }
        Ok(holders)
    }

    /// The champions that were not given up, the one in force last.
    async fn champions(&self) -> Result<Vec<String>, RegistryError> {
        let mut champions: Vec<String> = Vec::new();
        for promotion in self.history(Alias::Champion, usize::MAX >> 1).await?.into_iter().rev() {
            match promotion.what {
                Move::Promoted if champions.last() == Some(&promotion.version) => {}
                Move::Promoted => champions.push(promotion.version),
                Move::Restored => drop(champions.pop()),
            }
        }
        Ok(champions)
    }

    /// Reads a model, which has to raise events.
    pub fn load(&self, version: &str) -> Result<TrainedDetector, RegistryError> {
        let unusable = |reason: String| RegistryError::Unusable { version: version.to_owned(), reason };
        let detector =
            TrainedDetector::read(&self.path(version)).map_err(|error| unusable(error.to_string()))?;
        match detector.calibration {
            Some(_) => Ok(detector),
            None => Err(unusable("it has no thresholds".into())),
        }
    }

    /// The thresholds of a version; `None` if it has none.
    pub async fn calibration(&self, version: &str) -> Result<Option<Calibration>, RegistryError> {
        let model = self.version(version).await?;
        let manifest = Artifact::manifest(&self.path(&model.version))?;
        let unusable = |error: serde_json::Error| RegistryError::Unusable {
            version: version.to_owned(),
            reason: error.to_string(),
        };
        let calibration = manifest.body.get("calibration").cloned();
        calibration.map(serde_json::from_value).transpose().map(Option::flatten).map_err(unusable)
    }

    /// The champion, or the last one before it that can be read.
    pub async fn champion(&self) -> Result<Option<Loaded>, RegistryError> {
        for version in self.champions().await?.into_iter().rev() {
            match self.load(&version) {
                Ok(detector) => {
                    return Ok(Some(Loaded { model: self.version(&version).await?, detector }));
                }
                Err(error) => tracing::error!("{error}; the champion before it is used"),
            }
        }
        Ok(None)
    }
}

impl Move {
    const fn name(self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::Restored => "restored",
        }
    }
}

/// A name that is a name of a directory, and nothing else.
fn check_name(version: &str) -> Result<(), RegistryError> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let is_name = !version.is_empty() && version.len() <= MAX_NAME && !version.starts_with('.');
    if is_name && version.chars().all(is_plain) {
        return Ok(());
    }
    Err(RegistryError::Name(version.to_owned()))
}

fn model(row: &AnyRow) -> Result<ModelVersion, RegistryError> {
    let document: String = row.try_get("document")?;
    let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
    Ok(serde_json::from_str(&document).map_err(damaged)?)
}

fn promotion(row: &AnyRow) -> Result<Promotion, RegistryError> {
    let what = match row.try_get::<String, _>("what")?.as_str() {
        "restored" => Move::Restored,
        _ => Move::Promoted,
    };
    Ok(Promotion {
        number: row.try_get("number")?,
        alias: row.try_get::<String, _>("alias")?.parse().map_err(StoreError::Damaged)?,
        version: row.try_get("version")?,
        what,
        time: Timestamp(row.try_get("time_ms")?),
        actor: row.try_get("actor")?,
        reason: row.try_get("reason")?,
    })
}
