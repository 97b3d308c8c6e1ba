//! The service: its parts, and how they start and stop.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent::web::config::WebConfig;
use archive::{Archive, Settings};
use campaign::simulate::schedule::ClusterSettings;
use detect::DetectorConfig;
use lifecycle::{Registry, Store};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use workload::{Stop, Timestamp};

use crate::alerts::Alerts;
use crate::counts::{Counts, add};
use crate::error::ServeError;
use crate::export;
use crate::http;
use crate::http::limits::Buckets;
use crate::http::oidc::Pending;
use crate::http::queries::Queries;
use crate::ingest::Ingest;
use crate::input::poll::Poll;
use crate::input::pull::Pull;
use crate::input::simulated;
use crate::job_traces::JobTraces;
use crate::learning::Nights;
use crate::mlflow;
use crate::modelling::Modelling;
use crate::models;
use crate::operations::Operations;
use crate::recorder;
use crate::reload::reloaded;
use crate::remote_write::receive::Receiving;
use crate::scoring::{Scoring, Shared};
use crate::settings::ServeSettings;
use crate::workflow_runs::WorkflowRuns;

/// Deliveries that may wait for the thread that cuts windows.
const MAX_WAITING: usize = 64;
/// Queries of a sort at a time.
const MAX_QUERIES: usize = 2;
/// A batch that is being scored when the service stops may take so long; after that it is scored after the restart.
const LAST_BATCH: Duration = Duration::from_secs(3);

/// A simulated cluster, and how fast it runs.
#[derive(Debug, Clone)]
pub struct Simulation {
    pub settings: ClusterSettings,
    pub speed: f64,
}

/// What requests are answered from.
pub struct Service {
    settings: watch::Receiver<Arc<ServeSettings>>,
    pub store: Store,
    pub registry: Registry,
    pub scoring: Arc<Shared>,
    pub counts: Arc<Counts>,
    pub receiving: Receiving,
    pub archive: Archive,
    /// Requests and failed logins of each address.
    pub requests: Buckets,
    pub failures: Buckets,
    /// Logins through a provider that are under way.
    pub logins: Pending,
    /// Long operations that clients have started.
    pub operations: Operations,
    pub job_traces: JobTraces,
    pub workflow_runs: WorkflowRuns,
    /// Queries of the archive, of stored files, and those that verdicts need: none waits for another.
    pub queries: Queries,
    pub stored_queries: Queries,
    pub vetting: Queries,
    pub web_config: WebConfig,
    pub is_tls: bool,
    pub last_change: watch::Receiver<i64>,
    pub stop: watch::Receiver<bool>,
    training: Mutex<String>,
}

impl Service {
    /// The settings in force.
    pub fn settings(&self) -> Arc<ServeSettings> {
        self.settings.borrow().clone()
    }

    /// Tells when other settings are in force.
    pub fn watch_settings(&self) -> watch::Receiver<Arc<ServeSettings>> {
        self.settings.clone()
    }

    /// What the service is doing, in a sentence.
    pub fn state(&self) -> String {
        match (self.scoring.model(), self.scoring.time()) {
            (Some(model), Some(_)) => format!("scoring with model {model}"),
            (Some(model), None) => format!("model {model} is ready; the first windows are not complete yet"),
            (None, _) => self.training.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Notes that somebody at an address failed to log in.
    pub fn note_failure(&self, address: IpAddr) {
        self.failures.take(address, Instant::now());
        add(&self.counts.refused_requests, 1);
    }

    pub(crate) fn set_training(&self, state: String) {
        *self.training.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// A service that runs.
pub struct Running {
    pub address: SocketAddr,
    pub service: Arc<Service>,
    settings: watch::Sender<Arc<ServeSettings>>,
    stop: watch::Sender<bool>,
    /// Ends simulation and training.
    stop_threads: Stop,
    inputs: Vec<tokio::task::JoinHandle<()>>,
    outputs: Vec<tokio::task::JoinHandle<()>>,
    listening: tokio::task::JoinHandle<()>,
    recording: tokio::task::JoinHandle<()>,
    scoring: std::thread::JoinHandle<()>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Keeps the ingest thread running.
    ingest: Ingest,
}

/// Starts the service in the current runtime.
pub async fn start(
    settings: ServeSettings,
    detector: DetectorConfig,
    simulation: Option<Simulation>,
) -> Result<Running, ServeError> {
    settings.check()?;
    let data = settings.data.clone();
    files::create_dirs(&data)?;
    let store = match settings.store.as_str() {
        "" => Store::open_file(&data.join("metadata.db")).await?,
        url => Store::open(url).await?,
    };
    if !settings.listen.ip().is_loopback() && !store.has_tokens().await? {
        return Err(ServeError::NoTokens(settings.listen));
    }
    let listener = TcpListener::bind(settings.listen).await;
    let listener = listener.map_err(|source| ServeError::Listen { address: settings.listen, source })?;
    let address =
        listener.local_addr().map_err(|source| ServeError::Listen { address: settings.listen, source })?;
    let web_config = WebConfig::read(settings.web_config.as_deref())
        .map_err(|error| ServeError::Client(error.to_string()))?;
    let archive_path = data.join("archive");
    let archive = blocking(move || {
        Archive::open_or_create(&archive_path.to_string_lossy(), &Settings::default())
            .map_err(ServeError::from)
    })
    .await?;
    let (of_runs, model) = (data.clone(), settings.workflow_model.clone());
    let workflow_runs =
        blocking(move || WorkflowRuns::open(&of_runs, model.as_deref()).map_err(ServeError::from)).await?;
    let (stop, stopped) = watch::channel(false);
    let (last_change, changed) = watch::channel(store.last_change().await?);
    let counts = Arc::new(Counts::default());
    let of_archive = archive.clone();
    let archived = blocking(move || models::last_readings(&of_archive).map_err(ServeError::from)).await?;
    let (readings, to_score) = sync_channel(MAX_WAITING);
    let (ingest, storing) = Ingest::start(&archive, readings, counts.clone())?;
    let (receiving, assembling) = Receiving::start(
        data.join("remote-write"),
        archived.clone(),
        ingest.clone(),
        counts.clone(),
        tokio::runtime::Handle::current(),
    )?;
    let (scoring_settings, alerting) = (settings.scoring.clone(), settings.cluster.clone());
    let limits = settings.limits.clone();
    let (settings, in_force) = watch::channel(Arc::new(settings));
    let service = Arc::new(Service {
        archive: archive.clone(),
        requests: Buckets::of_requests(limits.requests_per_second),
        failures: Buckets::of_failures(limits.failed_logins),
        logins: Pending::default(),
        operations: Operations::default(),
        job_traces: JobTraces::open(data.join("job-traces"))?,
        workflow_runs,
        queries: Queries::new(MAX_QUERIES),
        stored_queries: Queries::new(MAX_QUERIES),
        vetting: Queries::new(MAX_QUERIES),
        receiving,
        is_tls: web_config.tls().is_some(),
        settings: in_force.clone(),
        store: store.clone(),
        registry: Registry::new(store.clone(), &data),
        scoring: Arc::default(),
        counts: counts.clone(),
        web_config,
        last_change: changed,
        stop: stopped.clone(),
        training: Mutex::new("collecting data".into()),
    });
    let (records, to_record) = mpsc::unbounded_channel();
    let following = recorder::follow(store.clone(), last_change.clone(), stopped.clone());
    let recording = tokio::spawn(recorder::record(to_record, store.clone(), last_change, counts.clone()));
    let (models, to_use) = sync_channel(1);
    let stop_threads = Stop::default();
    let scoring = Scoring {
        readings: to_score,
        models: to_use,
        records,
        open: store.open_events().await?.into_iter().map(|one| one.event).collect(),
        stopped_at: archived.values().copied().max().unwrap_or(Timestamp(0)),
        archive: archive.clone(),
        stride: scoring_settings.stride.0,
        n_threads: scoring_settings.threads,
        shared: service.scoring.clone(),
        counts: counts.clone(),
        stop: stop_threads.clone(),
    };
    let scoring = scoring.start()?;
    let mut threads = vec![storing, assembling];
    let model = Modelling {
        service: service.clone(),
        archive: archive.with_stop(&stop_threads),
        detector: detector.clone(),
        runtime: tokio::runtime::Handle::current(),
        stop: stop_threads.clone(),
    };
    threads.push(model.start(models)?);
    let nights = Nights {
        service: service.clone(),
        archive: archive.clone(),
        detector,
        runtime: tokio::runtime::Handle::current(),
        stop: stop_threads.clone(),
    };
    threads.push(nights.start()?);
    let mut inputs = Vec::new();
    let pull = Pull::new(in_force.clone(), &data, archived.clone(), ingest.clone(), counts.clone())?;
    inputs.push(tokio::spawn(pull.run(stopped.clone())));
    let poll = Poll { settings: in_force.clone(), archived, ingest: ingest.clone(), counts: counts.clone() };
    let polling = poll.run(stopped.clone());
    inputs.push(tokio::spawn(async move {
        if let Err(error) = polling.await {
            tracing::error!("no Prometheus is read: {error}");
        }
    }));
    let alerts = Alerts {
        settings: in_force,
        cluster: alerting,
        store: store.clone(),
        last_change: service.last_change.clone(),
        counts,
    };
    let outputs = vec![
        tokio::spawn(following),
        tokio::spawn(alerts.run(stopped.clone())),
        tokio::spawn(export::run(service.clone())),
        tokio::spawn(mlflow::run(service.clone())),
    ];
    if let Some(simulation) = simulation {
        threads.push(simulate(simulation, archive, ingest.clone(), stop_threads.clone())?);
    }
    let listening = tokio::spawn(http::listen(listener, service.clone(), stopped));
    Ok(Running {
        address,
        service,
        settings,
        stop,
        stop_threads,
        inputs,
        outputs,
        listening,
        recording,
        scoring,
        threads,
        ingest,
    })
}

impl Running {
    /// Uses other settings from now on, as far as that is possible. Returns a line for each difference.
    pub fn reload(&self, new: ServeSettings) -> Result<Vec<String>, ServeError> {
        new.check()?;
        let (used, lines) = reloaded(&self.service.settings(), new);
        self.settings.send_replace(Arc::new(used));
        Ok(lines)
    }

    /// Stops the inputs first and then the stages behind them, so that every acknowledged reading is stored.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.stop_threads.now();
        self.service.operations.end();
        for input in self.inputs {
            let _ = input.await;
        }
        let _ = self.listening.await;
        self.service.receiving.close();
        drop(self.ingest);
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        });
        let _ = joined.await;
        let deadline = Instant::now() + LAST_BATCH;
        while !self.scoring.is_finished() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if self.scoring.is_finished() {
            let _ = self.recording.await;
        } else {
            self.recording.abort();
        }
        for output in self.outputs {
            let _ = output.await;
        }
        self.service.store.close().await;
    }
}

/// Runs blocking work outside of the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

fn simulate(
    simulation: Simulation,
    archive: Archive,
    ingest: Ingest,
    stop: Stop,
) -> Result<std::thread::JoinHandle<()>, ServeError> {
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        let Simulation { settings, speed } = simulation;
        if let Err(error) = simulated::run(&settings, &archive, speed, &ingest, &runtime, &stop) {
            tracing::error!("the simulated cluster has stopped: {error}");
        }
    };
    std::thread::Builder::new().name("simulated".into()).spawn(work).map_err(ServeError::Thread)
}
