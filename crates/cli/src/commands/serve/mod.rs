//! `tracewise serve`

pub mod demo;
pub mod exclude;
pub mod health;
pub mod learn;
pub mod models;
pub mod rehearse;
pub mod review;
pub mod token;

use std::path::Path;
use std::process::ExitCode;

use ::serve::{Running, ServeSettings, Supervisor};
use anyhow::Context;
use lifecycle::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{ServeArgs, StoreArgs};
use crate::config::Config;
use crate::output::print;
use crate::owner::refuse_root;

/// Threads for requests; scoring has its own.
const N_REQUEST_THREADS: usize = 2;
/// Who changes the state of the service on the command line.
const ACTOR: &str = "command line";

pub fn run(args: &ServeArgs, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    runtime()?.block_on(async {
        let signals = Signals::new()?;
        let settings_at_start = settings(args, &config);
        refuse_root(&settings_at_start.data)?;
        let running = ::serve::start(settings_at_start, config.detector, None).await?;
        let cluster = running.service.settings().cluster.clone();
        print(&format!("Tracewise serves {cluster} at {}", url(&running)))?;
        until_stopped(running, signals, || Ok(settings(args, &Config::load(file)?))).await
    })
}

/// The settings of the configuration and of the command line.
fn settings(args: &ServeArgs, config: &Config) -> ServeSettings {
    let mut settings = config.serve.clone();
    if let Some(listen) = args.listen {
        settings.listen = listen;
    }
    if let Some(data) = &args.data {
        settings.data.clone_from(data);
    }
    settings.agents.targets.extend(args.agents.iter().cloned());
    settings
}

/// The metadata store of the service.
async fn open_store(args: &StoreArgs, config: &Config) -> anyhow::Result<Store> {
    refuse_root(data_of(args, config))?;
    if !config.serve.store.is_empty() {
        return Ok(Store::open(&config.serve.store).await?);
    }
    let data = data_of(args, config);
    files::create_dirs(data)?;
    Ok(Store::open_file(&data.join("metadata.db")).await?)
}

/// The data directory of the service.
fn data_of<'a>(args: &'a StoreArgs, config: &'a Config) -> &'a Path {
    args.data.as_ref().unwrap_or(&config.serve.data)
}

/// The address of the archive of the service.
fn archive_of(args: &StoreArgs, config: &Config) -> String {
    archive_at(data_of(args, config))
}

fn archive_at(data: &Path) -> String {
    data.join("archive").to_string_lossy().into_owned()
}

/// Who gives verdicts and promotes models on the command line.
fn actor() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    user.ok().filter(|user| !user.is_empty()).unwrap_or_else(|| ACTOR.to_owned())
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(N_REQUEST_THREADS)
        .thread_name("http")
        .enable_all()
        .build();
    runtime.context("cannot start threads")
}

/// The address of the page.
fn url(running: &Running) -> String {
    let scheme = if running.service.is_tls { "https" } else { "http" };
    format!("{scheme}://{}/", running.address)
}

/// The signals that the service obeys. They are taken before it says that it runs.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Runs until SIGINT or SIGTERM. SIGHUP reads the settings again.
async fn until_stopped(
    running: Running,
    mut signals: Signals,
    settings: impl Fn() -> anyhow::Result<ServeSettings>,
) -> anyhow::Result<ExitCode> {
    let supervisor = Supervisor::from_environment();
    let ready = || supervisor.ready(&format!("listening on {}", running.address));
    ready();
    loop {
        tokio::select! {
            _ = signals.interrupt.recv() => break,
            _ = signals.terminate.recv() => break,
            _ = signals.hang_up.recv() => {
                supervisor.reloading();
                match settings().and_then(|settings| Ok(running.reload(settings)?)) {
                    Ok(lines) if lines.is_empty() => tracing::info!("the settings have not changed"),
                    Ok(lines) => lines.iter().for_each(|line| tracing::info!("settings: {line}")),
                    Err(error) => tracing::error!("the settings stay as they are: {error:#}"),
                }
                ready();
            }
        }
    }
    supervisor.stopping();
    running.stop().await;
    Ok(ExitCode::SUCCESS)
}
