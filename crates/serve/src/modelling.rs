//! The model in use: the first one is trained here, and promotions and verdicts are followed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use archive::Archive;
use detect::{DetectorConfig, Library};
use lifecycle::{Alias, KnownPoints, Loaded, RegistryError, Vetting};
use workload::{Control, Millis, Stop, Timestamp};

use crate::error::ServeError;
use crate::models::{self, Model};
use crate::service::Service;

/// How often the archive is asked whether there is enough data for the first model.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often the registry is asked whether there is another champion.
const LOOK_FOR_CHAMPION_EVERY: Duration = Duration::from_secs(2);
/// Who promotes the first model.
const ACTOR: &str = "service";

/// The verdicts that the library in use contains.
#[derive(Default)]
struct Verdicts {
    /// A number that changes with every verdict.
    state: Option<i64>,
    points: KnownPoints,
}

/// Finds the champion, trains the first model, and notices when there is another champion.
pub struct Modelling {
    pub service: Arc<Service>,
    pub archive: Archive,
    pub detector: DetectorConfig,
    pub runtime: tokio::runtime::Handle,
    pub stop: Stop,
}

impl Modelling {
    pub fn start(self, models: SyncSender<Model>) -> Result<std::thread::JoinHandle<()>, ServeError> {
        let work = move || self.run(&models);
        std::thread::Builder::new().name("model".into()).spawn(work).map_err(ServeError::Thread)
    }

    fn run(&self, models: &SyncSender<Model>) {
        // The last promotion that was looked at, and the model that it led to.
        let (mut seen, mut in_use) = (None, None);
        let mut verdicts = Verdicts::default();
        // The number of the promotion that made the challenger.
        let mut challenger = None;
        let mut has_failed = false;
        while !self.stop.is_set() {
            match self.champion(&mut seen, in_use.as_deref()) {
                Ok(Some(loaded)) => {
                    in_use = Some(loaded.model.version.clone());
                    verdicts = Verdicts::default();
                    let model = self.prepared(loaded, &mut verdicts);
                    // Scoring has ended: the service is stopping.
                    if models.send(model).is_err() {
                        return;
                    }
                }
                Ok(None) if in_use.is_none() && self.train_first() => continue,
                Ok(None) => {
                    has_failed = false;
                    self.follow_verdicts(&mut verdicts);
                    self.follow_challenger(&mut challenger);
                }
                Err(error) => {
                    if !has_failed {
                        tracing::warn!("the champion cannot be looked up: {error}");
                    }
                    has_failed = true;
                }
            }
            if self.stop.wait(if in_use.is_some() { LOOK_FOR_CHAMPION_EVERY } else { LOOK_EVERY }) {
                return;
            }
        }
    }

    /// The champion, if there was a promotion since the last look and it is another than the one in use.
    fn champion(
        &self,
        seen: &mut Option<i64>,
        in_use: Option<&str>,
    ) -> Result<Option<Loaded>, RegistryError> {
        let registry = &self.service.registry;
        let loaded = self.runtime.block_on(async {
            let mut holder = registry.holder(Alias::Champion).await?;
            if holder.is_none() {
                // Models that were there before the registry was, or were copied by hand.
                let now = Timestamp::from(SystemTime::now());
                if let Some(newest) = registry.adopt(now).await?.last() {
                    let reason = "found in the data directory";
                    match registry.promote(Alias::Champion, newest, ACTOR, reason, now).await {
                        Ok(promotion) => holder = Some(promotion),
                        Err(error @ RegistryError::Unusable { .. }) => tracing::error!("{error}"),
                        Err(error) => return Err(error),
                    }
                }
            }
            let number = holder.map(|holder| holder.number);
            if number.is_none() || number == *seen {
                return Ok(None);
            }
            let champion = registry.champion().await?;
            *seen = number;
            Ok(champion)
        })?;
        Ok(loaded.filter(|loaded| Some(loaded.model.version.as_str()) != in_use))
    }

    /// A model with what it needs before it is used: regions of earlier verdicts, and jobs to compare events with.
    fn prepared(&self, loaded: Loaded, verdicts: &mut Verdicts) -> Model {
        let now = Timestamp::from(SystemTime::now());
        let (model, detector) = (&loaded.model.version, &loaded.detector);
        let state = self.runtime.block_on(self.service.store.verdict_state());
        let vetting = self.vetting();
        let prepared = self.runtime.block_on(async {
            vetting.add_regions(model, detector, now).await?;
            vetting.library(detector, &mut verdicts.points, now).await
        });
        verdicts.state = state.ok();
        let library = prepared.unwrap_or_else(|error| {
            tracing::warn!("events are not compared with earlier ones: {error}");
            Library::default()
        });
        Model { version: loaded.model.version, detector: Arc::new(loaded.detector), library }
    }

    /// Uses the verdicts that were given since the last look.
    fn follow_verdicts(&self, verdicts: &mut Verdicts) {
        let Some(model) = self.service.scoring.current_model() else { return };
        let now = Timestamp::from(SystemTime::now());
        let state = match self.runtime.block_on(self.service.store.verdict_state()) {
            Ok(state) if verdicts.state == Some(state) => return,
            Ok(state) => state,
            // It is asked again soon.
            Err(_) => return,
        };
        let vetting = self.vetting();
        match self.runtime.block_on(vetting.library(&model.detector, &mut verdicts.points, now)) {
            Ok(library) => self.service.scoring.use_library(library),
            Err(error) => tracing::warn!("events are not compared with the last verdicts: {error}"),
        }
        verdicts.state = Some(state);
    }

    /// Puts another challenger into shadow mode, or none. A challenger that cannot be read is left out.
    fn follow_challenger(&self, seen: &mut Option<i64>) {
        let registry = &self.service.registry;
        // It is asked again soon.
        let Ok(holder) = self.runtime.block_on(registry.challenger()) else { return };
        let number = holder.as_ref().map(|holder| holder.number);
        if number == *seen {
            return;
        }
        *seen = number;
        let challenger = holder.and_then(|holder| {
            let model = self.runtime.block_on(registry.version(&holder.version));
            let loaded = model.and_then(|model| {
                let detector = registry.load(&model.version)?;
                Ok(Loaded { model, detector })
            });
            loaded.inspect_err(|error| tracing::warn!("{error}; it is not in shadow mode")).ok()
        });
        let model = challenger.map(|loaded| self.prepared(loaded, &mut Verdicts::default()));
        self.service.scoring.use_challenger(model);
    }

    fn vetting(&self) -> Vetting<'_> {
        let Service { store, registry, .. } = &*self.service;
        let control = Control::new(&self.stop, &|_, _| {});
        Vetting { store, registry, archive: &self.archive, uses_labels: true, control }
    }

    /// Trains the first model if there is enough data, and returns whether there is one now.
    fn train_first(&self) -> bool {
        let settings = self.service.settings();
        let archive = self.archive.with_stop(&self.stop);
        let needed = Millis::from(settings.scoring.first_training.0);
        match models::recorded(&archive) {
            Ok(recorded) if recorded >= needed => {
                let tell =
                    |step: &str| self.service.set_training(format!("training the first model: {step}"));
                tell("reading the archive");
                let registry = &self.service.registry;
                let trained =
                    models::train(&archive, registry, &settings.scoring, &self.detector, &self.stop, tell);
                let promoted = trained.and_then(|version| {
                    let now = Timestamp::from(SystemTime::now());
                    self.runtime.block_on(async {
                        registry.add(&version, BTreeMap::new(), now).await?;
                        registry.promote(Alias::Champion, &version, ACTOR, "the first model", now).await?;
                        Ok(())
                    })
                });
                match promoted {
                    Ok(()) => return true,
                    Err(_) if self.stop.is_set() => {}
                    Err(error) => {
                        tracing::error!("the first model cannot be trained: {error}");
                        self.service.set_training(format!("the first model cannot be trained yet: {error}"));
                    }
                }
            }
            Ok(recorded) => self.service.set_training(format!(
                "collecting data: {:.0} of {:.0} min for the first model",
                recorded.as_seconds() / 60.0,
                needed.as_seconds() / 60.0
            )),
            Err(error) => tracing::warn!("{error}"),
        }
        false
    }
}
