//! Shows competitions, models and their aliases in MLflow.
//!
//! The metadata store is the truth and the outbox: the server is told, in order, what it has not accepted yet, so that
//! nothing is lost while it is away. Whatever is created there has a tag with our key and is looked up first, so that
//! nothing is there twice. Somebody who moves an alias in MLflow promotes a model here.

mod client;

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use lifecycle::{Alias, Candidate, Figures, ModelVersion, Night, Promotion, Registry, Store};
use serde_json::json;
use workload::{Millis, Timestamp};

pub use self::client::{Client, MlflowError, address};
use self::client::{Dataset, LoggedModel, Metric, NewRun, VERSION_TAG};
use crate::peer::rfc3339;
use crate::service::Service;

/// Items that are read from the store at a time.
const MAX_ITEMS: usize = 100;
/// Points of a curve.
const MAX_POINTS: usize = 100;
/// Who promotes a model whose alias was moved in MLflow.
const ACTOR: &str = "mlflow";

/// What was done in one round.
#[derive(Debug, Default)]
pub struct Round {
    /// Nights, models and promotions that the server accepted.
    pub n_sent: usize,
    /// What it refused for good.
    pub refused: Vec<String>,
    /// Aliases that somebody moved there.
    pub followed: Vec<Promotion>,
}

/// A server, and what it is told about.
pub struct Mirror<'a> {
    pub store: &'a Store,
    pub registry: &'a Registry,
    pub client: &'a Client,
}

/// Follows the store until the service stops, with the settings of the time.
pub async fn run(service: Arc<Service>) {
    let mut settings = service.watch_settings();
    let mut stop = service.stop.clone();
    loop {
        let mlflow = settings.borrow_and_update().mlflow.clone();
        let client = match address(&mlflow) {
            Ok(Some(url)) => Client::new(url, mlflow),
            _ => Err(MlflowError::Request("it is not configured".into())),
        };
        let following = async {
            match &client {
                Ok(client) => follow(&service, client).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = following => {}
            changed = settings.changed() => if changed.is_err() { return },
            _ = stop.changed() => return,
        }
    }
}

async fn follow(service: &Service, client: &Client) {
    let mirror = Mirror { store: &service.store, registry: &service.registry, client };
    let url = &client.settings().url;
    let mut is_failing = false;
    loop {
        match mirror.round(Timestamp::from(SystemTime::now())).await {
            Ok(round) => {
                if is_failing {
                    tracing::info!("{url}: MLflow accepts what is new again");
                }
                is_failing = false;
                round.refused.iter().for_each(|refused| tracing::error!("{url}: MLflow refused {refused}"));
                for promotion in round.followed {
                    let Promotion { alias, version, .. } = promotion;
                    tracing::info!("{url}: model {version} was made {alias} in MLflow, and is {alias} now");
                }
            }
            Err(error) => {
                if !is_failing {
                    tracing::warn!("{url}: MLflow is told later: {error}");
                }
                is_failing = true;
            }
        }
        tokio::time::sleep(client.settings().every.0).await;
    }
}

impl Mirror<'_> {
    /// Tells the server what is new, and follows aliases that were moved there. Another process may be doing so.
    pub async fn round(&self, now: Timestamp) -> Result<Round, MlflowError> {
        let Some(_lock) = self.lock()? else { return Ok(Round::default()) };
        let mut round = Round::default();
        // A model is registered together with its night, and promoted later: what is read last has the others.
        let promotions =
            self.registry.promotions_after(self.position("promotions").await?, MAX_ITEMS).await?;
        let models = self.registry.versions_after(self.position("models").await?, MAX_ITEMS).await?;
        let nights = self.store.nights_after(self.position("nights").await?, MAX_ITEMS).await?;
        if !(promotions.is_empty() && models.is_empty() && nights.is_empty()) {
            let experiment = self.client.experiment().await?;
            for night in nights {
                let sent = self.send_night(&experiment, &night).await;
                self.note("nights", night.number, format!("night {}", night.number), sent, &mut round)
                    .await?;
            }
            for (number, model) in models {
                let sent = self.send_model(&experiment, &model).await;
                self.note("models", number, format!("model {}", model.version), sent, &mut round).await?;
            }
            for promotion in promotions {
                let sent = self.send_promotion(&promotion).await;
                let Promotion { number, version, alias, .. } = promotion;
                self.note("promotions", number, format!("{alias} {version}"), sent, &mut round).await?;
            }
        }
        round.followed = self.follow_aliases(now).await?;
        Ok(round)
    }

    /// One process tells the server at a time.
    fn lock(&self) -> Result<Option<File>, MlflowError> {
        let failed = |error: files::Error| MlflowError::Lock(error.to_string());
        let lock = files::open_lock(&self.registry.lock_path("mlflow")).map_err(failed)?;
        Ok(lock.try_lock().is_ok().then_some(lock))
    }

    /// The name of this server and of a sequence in the list of receivers.
    fn receiver(&self, sequence: &str) -> String {
        let settings = self.client.settings();
        format!("mlflow {} {} {sequence}", settings.url.trim_end_matches('/'), settings.experiment)
    }

    async fn position(&self, sequence: &str) -> Result<i64, MlflowError> {
        Ok(self.store.delivered_since_the_first(&self.receiver(sequence)).await?)
    }

    /// Goes on to the next item, unless the server may accept this one later.
    async fn note(
        &self,
        sequence: &str,
        number: i64,
        what: String,
        sent: Result<(), MlflowError>,
        round: &mut Round,
    ) -> Result<(), MlflowError> {
        match sent {
            Ok(()) => round.n_sent += 1,
            Err(error) if error.is_final() => round.refused.push(format!("{what}: {error}")),
            Err(error) => return Err(error),
        }
        Ok(self.store.set_delivered(&self.receiver(sequence), number).await?)
    }

    /// A run for the night, and one below it for each candidate.
    async fn send_night(&self, experiment: &str, night: &Night) -> Result<(), MlflowError> {
        let key = format!("night-{}", night.number);
        let new = NewRun { key: &key, name: &key, start: night.time, parent: None };
        let parent = self.client.run(experiment, &new).await?;
        let mut metrics = Vec::new();
        metrics.extend(night.champion_figures.iter().flat_map(|figures| metrics_of("champion_", figures)));
        let timings = &night.timings;
        metrics
            .extend(timings.parts().map(|(part, seconds)| Metric::new(format!("{part}_seconds"), seconds)));
        for distance in night.drift.iter().flat_map(|drift| &drift.distances) {
            metrics.push(Metric::new(format!("drift_{}", metric_name(&distance.name)), distance.distance));
        }
        let name = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".into());
        let params = [
            ("from", rfc3339(night.from)),
            ("to", rfc3339(night.to)),
            ("windows", night.n_windows.to_string()),
            ("excluded", night.n_excluded.to_string()),
            ("champion_before", name(&night.champion_before)),
            ("winner", name(&night.winner)),
        ];
        let tags = [("mlflow.note.content", night.reason.clone())];
        self.client.log(&parent, night.time, &metrics, &params, &tags).await?;
        for candidate in &night.candidates {
            self.send_candidate(experiment, night, &parent, candidate).await?;
        }
        let end = night.time + Millis((timings.total() * 1e3) as i64);
        self.client.end_run(&parent, end, false).await
    }

    async fn send_candidate(
        &self,
        experiment: &str,
        night: &Night,
        parent: &str,
        candidate: &Candidate,
    ) -> Result<(), MlflowError> {
        let key = format!("night-{}: {}", night.number, candidate.name);
        let new = NewRun { key: &key, name: &candidate.name, start: night.time, parent: Some(parent) };
        let run = self.client.run(experiment, &new).await?;
        let mut metrics = curves(candidate);
        metrics.extend(candidate.figures.iter().flat_map(|figures| metrics_of("", figures)));
        metrics.push(Metric::new("training_seconds", candidate.training_seconds));
        metrics.push(Metric::new("judging_seconds", candidate.judging_seconds));
        let (detector, start) =
            candidate.name.split_once(", ").unwrap_or((&candidate.name, "from random weights"));
        let params = [("detector", detector.to_owned()), ("start", start.to_owned())];
        let mut tags: Vec<(&str, String)> = Vec::new();
        tags.extend(candidate.objection.clone().map(|objection| ("mlflow.note.content", objection)));
        if night.winning_candidate.as_ref() == Some(&candidate.name) {
            tags.extend(night.winner.clone().map(|version| (VERSION_TAG, version)));
        }
        self.client.log(&run, night.time, &metrics, &params, &tags).await?;
        if let Some(dataset) = night.data.as_ref().and_then(dataset) {
            self.client.log_dataset(&run, &dataset).await?;
        }
        let seconds = candidate.training_seconds + candidate.judging_seconds;
        let end = night.time + Millis((seconds * 1e3) as i64);
        self.client.end_run(&run, end, candidate.figures.is_none()).await
    }

    /// A logged model with its files, and a version of the registered model.
    async fn send_model(&self, experiment: &str, model: &ModelVersion) -> Result<(), MlflowError> {
        let version = &model.version;
        if self.client.find_version(version).await?.is_some() {
            return Ok(());
        }
        let run = match self.client.find_run(experiment, VERSION_TAG, version).await? {
            Some(run) => run,
            None => self.run_of(experiment, model).await?,
        };
        let params = [
            ("detector", model.detector.clone()),
            ("product_version", model.product_version.clone()),
            ("weights_sha256", model.weights_sha256.clone()),
        ];
        let logged = self.client.logged_model(experiment, &run, version, &params).await?;
        if !logged.is_ready {
            self.upload(model, &logged, &run).await?;
        }
        let data = model.data.as_ref().and_then(dataset);
        let fields = match &data {
            Some(data) => {
                json!({ "model_id": logged.id, "dataset_name": data.name, "dataset_digest": data.digest })
            }
            None => json!({ "model_id": logged.id }),
        };
        let metrics: Vec<Metric> =
            model.metrics.iter().map(|(name, value)| Metric::new(metric_name(name), *value)).collect();
        // The run has the same metrics without a model; the server tells them apart by their times.
        self.client.log_metrics(&run, model.added + Millis(1), &metrics, &fields).await?;
        let description = match &model.parent {
            Some(parent) => format!("{}, trained while {parent} was champion", model.detector),
            None => model.detector.clone(),
        };
        self.client.register(version, &logged, &run, &description).await
    }

    /// The run of a model that won no competition.
    async fn run_of(&self, experiment: &str, model: &ModelVersion) -> Result<String, MlflowError> {
        let key = format!("model-{}", model.version);
        let new = NewRun { key: &key, name: &key, start: model.added, parent: None };
        let run = self.client.run(experiment, &new).await?;
        let params = [("detector", model.detector.clone())];
        self.client.log(&run, model.added, &[], &params, &[(VERSION_TAG, model.version.clone())]).await?;
        if let Some(dataset) = model.data.as_ref().and_then(dataset) {
            self.client.log_dataset(&run, &dataset).await?;
        }
        self.client.end_run(&run, model.added, false).await?;
        Ok(run)
    }

    async fn upload(&self, model: &ModelVersion, logged: &LoggedModel, run: &str) -> Result<(), MlflowError> {
        let folder = self.registry.path(&model.version);
        for name in ["manifest.json", "weights.safetensors"] {
            let path = folder.join(name);
            let content = tokio::fs::read(&path)
                .await
                .map_err(|source| MlflowError::File { path: path.display().to_string(), source })?;
            self.client.upload(logged, name, content).await?;
        }
        // MLflow's own loaders need a `python_function` flavour, which this is not.
        let description = json!({
            "flavors": { "tracewise": {
                "detector": model.detector, "version": model.version, "product_version": model.product_version,
            } },
            "utc_time_created": rfc3339(model.added),
            "model_uuid": logged.id, "model_id": logged.id, "run_id": run,
            "mlflow_version": self.client.server_version().await?,
        });
        // JSON is YAML.
        self.client.upload(logged, "MLmodel", description.to_string()).await?;
        self.client.finish_model(logged, run).await
    }

    async fn send_promotion(&self, promotion: &Promotion) -> Result<(), MlflowError> {
        let Some(registered) = self.client.find_version(&promotion.version).await? else {
            return Err(MlflowError::Unknown(promotion.version.clone()));
        };
        let alias = promotion.alias.name();
        let tags = [
            ("tracewise.promoted_by", promotion.actor.clone()),
            ("tracewise.reason", promotion.reason.clone()),
        ];
        self.client.tag_version(&registered.number, &tags).await?;
        self.client.set_alias(alias, &registered.number).await
    }

    /// Promotes models that got an alias in MLflow. An alias that is not there was never set, and means nothing.
    async fn follow_aliases(&self, now: Timestamp) -> Result<Vec<Promotion>, MlflowError> {
        let mut followed = Vec::new();
        for alias in [Alias::Champion, Alias::Challenger] {
            let Some(holder) = self.registry.holder(alias).await? else { continue };
            let position = self.position("promotions").await?;
            if !self.registry.promotions_after(position, 1).await?.is_empty() {
                continue;
            }
            let there = self.client.alias(alias.name()).await?.and_then(|there| there.version);
            let Some(there) = there.filter(|there| *there != holder.version) else { continue };
            match self.registry.promote(alias, &there, ACTOR, "the alias was moved in MLflow", now).await {
                Ok(promotion) => followed.push(promotion),
                // The alias there is set back.
                Err(error) => {
                    tracing::error!("MLflow has {there} as {alias}, which stays {}: {error}", holder.version);
                    self.send_promotion(&holder).await?;
                }
            }
        }
        Ok(followed)
    }
}

fn dataset(data: &learn::artifact::DataOrigin) -> Option<Dataset> {
    let hash = data.sha256.as_ref()?;
    Some(Dataset::new("archive".into(), hash, data.address.clone()))
}

fn metrics_of(prefix: &str, figures: &Figures) -> Vec<Metric> {
    figures.metrics().map(|(name, value)| Metric::new(format!("{prefix}{name}"), value)).into()
}

/// The losses of all epochs, or of some if there are many.
fn curves(candidate: &Candidate) -> Vec<Metric> {
    let every = candidate.epochs.len().div_ceil(MAX_POINTS).max(1);
    let points = candidate.epochs.iter().enumerate().step_by(every);
    let both = points.flat_map(|(at, epoch)| {
        let metric = |key: &str, value| Metric { step: at + 1, ..Metric::new(key, value) };
        [metric("loss", epoch.training), metric("validation_loss", epoch.validation)]
    });
    both.collect()
}

/// A name with the characters that MLflow allows.
fn metric_name(name: &str) -> String {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "_-./ ".contains(character);
    name.chars().map(|character| if is_allowed(character) { character } else { '_' }).collect()
}
