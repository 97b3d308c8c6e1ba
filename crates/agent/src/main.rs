//! The program `tracewise-agent`.

mod args;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent::node::{Node, NodeSettings};
use agent::remote_write::{Pusher, Settings};
use agent::ring::Keep;
use agent::service::{self, Shared};
use agent::web::Server;
use agent::web::config::WebConfig;
use agent::web::listener::Listener;
use agent::web::places::Limits;
use agent::{doctor, health, hostname};
use anyhow::{Context, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use url::Url;
use workload::Stop;
use workload::{Millis, NodeName};

use args::{AgentCommand, Args, RemoteWriteArgs, Roots, ServeArgs};

/// How long remote write waits at most after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.command {
        Some(AgentCommand::Doctor { roots, json }) => examine(&roots, json),
        Some(AgentCommand::Health { url }) => ask(url),
        None => serve(args.serve).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Exit code 1 if there is something to change.
fn examine(roots: &Roots, json: bool) -> anyhow::Result<ExitCode> {
    let report = doctor::examine(&roots.procfs, &roots.cgroupfs, SystemTime::now().into())?;
    let text = if json { format!("{:#}\n", report.as_json()) } else { report.to_string() };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if report.advice.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ask(url: Url) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(health::check(url, false))?;
    Ok(ExitCode::SUCCESS)
}

fn serve(args: ServeArgs) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(args.log_level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
    if args.interval < Duration::from_millis(10) {
        bail!("--sample.interval is shorter than a tick of the kernel's clock; use at least 10ms");
    }
    let web = WebConfig::read(args.web_config.as_deref())?;
    let scheme = if web.tls().is_some() { "https" } else { "http" };
    let name = match &args.node {
        Some(name) => name.clone(),
        None => NodeName::new(hostname()).context("the hostname is none; use --node.name")?,
    };
    let node = Node::new(NodeSettings {
        name: name.clone(),
        procfs: args.roots.procfs,
        cgroupfs: args.roots.cgroupfs,
        collectors: args.collectors.enabled,
        interval: args.interval,
        job_interval: args.job_interval.max(args.interval),
        has_steps: args.has_steps,
        most_jobs: args.most_jobs,
    });
    let keep = Keep { time: Millis::from(args.keep), bytes: args.keep_bytes as usize };
    let shared = Arc::new(Shared::new(&node, keep, args.has_jobstats));
    let push = args
        .remote_write
        .url
        .is_some()
        .then(|| pusher(args.remote_write, args.keep, &name, &shared))
        .transpose()?;

    let limits =
        Limits { connections: args.most_connections, connections_per_peer: args.most_connections_per_client };
    let server = Server::new(shared.clone(), web, limits);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for address in &args.listen {
            let listener = Listener::bind(address).await?;
            tracing::info!("listening on {}", listener.address(scheme));
            tokio::spawn(server.clone().serve(listener));
        }
        let stop = Stop::default();
        let sampler = service::start(node, shared.clone(), stop.clone())?;
        let (is_over, over) = watch::channel(false);
        let pushing = push.map(|push| tokio::spawn(push.run(over)));
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.now();
        let _ = is_over.send(true);
        if let Some(pushing) = pushing {
            let _ = pushing.await;
        }
        if sampler.join().is_err() {
            bail!("the sampling thread failed");
        }
        Ok(())
    })
}

fn pusher(
    args: RemoteWriteArgs,
    keep: Duration,
    node: &NodeName,
    shared: &Arc<Shared>,
) -> anyhow::Result<Pusher> {
    // Shorter than readings are kept, so that a pause loses none.
    let longest_pause = LONGEST_PAUSE.min(keep / 4);
    let url = args.url.context("no URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        bail!("--remote-write.url has to begin with http:// or https://");
    }
    let has_credentials =
        args.bearer_token_file.is_some() || !url.username().is_empty() || url.password().is_some();
    if has_credentials && !args.allow_http && !net::is_confidential(&url) {
        bail!(
            "--remote-write.url: credentials are sent only over https:// or to this machine; if nobody can listen on the \
             network, add --remote-write.allow-http"
        );
    }
    let mut labels = args.labels;
    if let Some((name, _)) = labels.iter().enumerate().find_map(|(at, (name, value))| {
        labels[..at].iter().any(|(before, _)| before == name).then_some((name, value))
    }) {
        bail!("--remote-write.label={name}=… is given twice");
    }
    for (name, value) in [("instance", node.as_str()), ("job", "tracewise-agent")] {
        if !labels.iter().any(|(given, _)| given == name) {
            labels.push((name.to_owned(), value.to_owned()));
        }
    }
    let settings = Settings {
        url,
        interval: args.push_interval,
        longest_pause,
        protocol: args.protocol,
        labels,
        bearer_token_file: args.bearer_token_file,
    };
    Ok(Pusher::new(settings, shared.clone())?)
}
