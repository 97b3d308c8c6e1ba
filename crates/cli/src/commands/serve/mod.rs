//! `tracewise serve`

pub mod demo;
pub mod token;

use std::process::ExitCode;

use ::serve::Running;
use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ServeArgs;
use crate::config::Config;
use crate::output::print;

/// Threads for requests; scoring has its own.
const N_REQUEST_THREADS: usize = 2;

pub fn run(args: &ServeArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let mut settings = config.serve.clone();
    if let Some(listen) = args.listen {
        settings.listen = listen;
    }
    if let Some(data) = &args.data {
        settings.data.clone_from(data);
    }
    settings.agents.targets.extend(args.agents.iter().cloned());
    runtime()?.block_on(async {
        let running = ::serve::start(settings, config.detector.clone(), None).await?;
        print(&format!("Tracewise serves {} at {}", running.service.settings.cluster, url(&running)))?;
        until_stopped(running).await
    })
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

/// Runs until SIGINT or SIGTERM.
async fn until_stopped(running: Running) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    running.stop().await;
    Ok(ExitCode::SUCCESS)
}
