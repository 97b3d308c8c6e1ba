//! `tracewise demo`: the service with a simulated cluster.

use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ::archive::{Archive, Settings};
use ::serve::{ServeSettings, Service, Simulation};
use anyhow::Context;
use campaign::simulate::schedule::{ClusterSettings, Variation};
use campaign::simulate::{CampaignCount, into_archive, recorded_model};
use detect::DetectorConfig;
use tokio::task::JoinHandle;
use workload::{Control, Millis, Set, Stop, Timestamp};

use super::{Signals, runtime, until_stopped, url};
use crate::args::DemoArgs;
use crate::commands::detect::events::{headline, print_event};
use crate::output::{eprint_note, print};
use crate::times::show_time;

/// The history: two campaigns for training, one for thresholds, and one with labelled anomalies, which events are
/// compared with.
const CAMPAIGN_HOURS: u64 = 3;
const HISTORY: [CampaignCount; 3] = [
    CampaignCount { set: Set::Train, count: 2 },
    CampaignCount { set: Set::Validation, count: 1 },
    CampaignCount { set: Set::Test, count: 1 },
];
/// How often it is looked whether a phase is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Jobs of the live cluster are numbered from here on, those of the history below.
const FIRST_LIVE_JOB: u64 = 100_000;
/// Fewer windows than by default, so that the first model is ready within a minute.
const MAX_WINDOWS: usize = 4_000;
const N_EPOCHS: usize = 12;

pub fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.speed > 0.0 && args.speed <= 1_000.0, "--speed must be between 0 and 1000");
    if args.data.join("metadata.db").exists() {
        std::fs::remove_dir_all(&args.data).with_context(|| args.data.display().to_string())?;
    }
    let mut settings = ServeSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], args.port)),
        data: args.data.clone(),
        cluster: "simulated cluster".into(),
        ..ServeSettings::default()
    };
    settings.scoring.first_training.0 = Duration::from_secs(CAMPAIGN_HOURS * 3_600);
    let mut detector = DetectorConfig { max_windows: MAX_WINDOWS, ..DetectorConfig::default() };
    detector.train.n_epochs = N_EPOCHS;
    let now = Timestamp::from(SystemTime::now()).floor(Millis::SECOND);
    let live = cluster(args, now, FIRST_LIVE_JOB);
    runtime()?.block_on(async {
        let signals = Signals::new()?;
        let simulation = Simulation { settings: live, speed: args.speed };
        let running = ::serve::start(settings.clone(), detector, Some(simulation)).await?;
        let url = url(&running);
        print(&format!("The page of the simulated cluster is at {url}"))?;
        eprint_note(
            "half a day of history is simulated and a model is trained on it; that takes about a minute",
        );
        if !args.no_open {
            open_page(&url);
        }
        let stop = Stop::default();
        let history = history(args, now, stop.clone());
        let printing = tokio::spawn(print_events(running.service.clone()));
        let phases = tokio::spawn(print_phases(running.service.clone(), history));
        let finished = until_stopped(running, signals, || Ok(settings.clone())).await;
        printing.abort();
        stop.now();
        let _ = phases.await;
        finished
    })
}

/// Prints events as they are opened and closed.
async fn print_events(service: Arc<Service>) -> anyhow::Result<()> {
    let mut changed = service.last_change.clone();
    let mut position = *changed.borrow_and_update();
    loop {
        changed.changed().await?;
        for change in service.store.changes_after(position, i64::MAX).await? {
            position = change.number;
            match change.what.as_str() {
                lifecycle::VETTED => {}
                "closed" => print(&format!("{}  over: {}", show_time(change.time), headline(&change.event)))?,
                _ => print_event(&change.event)?,
            }
        }
    }
}

/// Whether a phase is over.
type IsOver = fn(&Service) -> bool;

/// Prints how long it takes from the start to the first event, phase by phase.
async fn print_phases(service: Arc<Service>, history: JoinHandle<()>) {
    let begin = Instant::now();
    let mut phase = begin;
    let mut end = |name: &str| {
        let total = begin.elapsed().as_secs_f64();
        eprint_note(&format!("== {name}: {:.0} s ({total:.0} s in all)", phase.elapsed().as_secs_f64()));
        phase = Instant::now();
    };
    let _ = history.await;
    end("history");
    let mut stop = service.stop.clone();
    let phases: [(&str, IsOver); 3] = [
        ("first model", |service| service.scoring.model().is_some()),
        ("first score", |service| service.scoring.time().is_some()),
        ("first event", |service| *service.last_change.borrow() > 0),
    ];
    for (name, is_over) in phases {
        while !is_over(&service) {
            tokio::select! {
                _ = stop.changed() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        end(name);
    }
}

fn cluster(args: &DemoArgs, start: Timestamp, first_job: u64) -> ClusterSettings {
    ClusterSettings {
        n_nodes: args.nodes,
        threads_per_node: args.threads,
        campaign_seconds: CAMPAIGN_HOURS * 3_600,
        campaigns: ClusterSettings::campaigns(&HISTORY),
        seed: args.seed,
        load: 0.85,
        start,
        origin: start,
        first_job,
        is_busy_at_start: false,
        variation: Variation::default(),
    }
}

/// Simulates what happened before the start.
fn history(args: &DemoArgs, now: Timestamp, stop: Stop) -> JoinHandle<()> {
    let n_campaigns: usize = HISTORY.iter().map(|campaigns| campaigns.count).sum();
    let length = Millis::from_seconds((n_campaigns as u64 * CAMPAIGN_HOURS * 3_600) as i64 + 1);
    let settings = cluster(args, now - length, 1);
    let address = args.data.join("archive").to_string_lossy().into_owned();
    tokio::task::spawn_blocking(move || {
        let simulated =
            Archive::open(&address, &Settings::default()).map_err(anyhow::Error::from).and_then(|archive| {
                let model = recorded_model()?;
                Ok(into_archive(&settings, &model, &archive, &Control::new(&stop, &|_, _| {}))?)
            });
        if let Err(error) = simulated {
            tracing::error!("the history cannot be simulated: {error:#}");
        }
    })
}

/// Opens the page where there is a desktop.
fn open_page(url: &str) {
    if std::env::var_os("DISPLAY").is_some() || std::env::var_os("WAYLAND_DISPLAY").is_some() {
        let mut command = Command::new("xdg-open");
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without the program, the address on the screen is enough.
        let _ = command.spawn();
    }
}
