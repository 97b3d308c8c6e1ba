//! `tracewise learn`

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use ::archive::{Archive, Settings};
use ::serve::learning::slurm::{SlurmNight, SlurmNightError};
use ::serve::learning::{in_background, line, outcome};
use ::serve::mlflow::{self, Client, Mirror};
use anyhow::{Context, bail};
use lifecycle::{
    Assignment, Cadence, CadenceAtSize, Candidate, Drift, Figures, Night, NightError, NightStep, Plan,
    Registry, Store,
};
use report::text::show_duration;
use url::Url;
use workload::{Control, Timestamp};

use super::{actor, archive_at, data_of, open_store, runtime};
use crate::args::{LearnCommand, NightArgs, StoreArgs, TrainOn};
use crate::commands::detect::{detector_settings, with_hint};
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::signals::stop_on_signals;
use crate::times::show_time;

pub fn run(command: LearnCommand, config: &Config) -> anyhow::Result<ExitCode> {
    match command {
        LearnCommand::Tonight { store, night, json } => tonight(&store, night, json, config)?,
        LearnCommand::Candidate { folder, number } => candidate(&folder, number)?,
        LearnCommand::Cadence { store, json } => {
            let nights = runtime()?.block_on(async {
                Ok::<_, anyhow::Error>(open_store(&store, config).await?.nights(Cadence::MAX_NIGHTS).await?)
            })?;
            let cadence =
                Cadence::of(&nights).context("no night has been held yet: tracewise learn tonight")?;
            if json { print_json(&cadence)? } else { print_cadence(&cadence)? }
        }
        LearnCommand::History { store, limit, json } => {
            let nights = runtime()?.block_on(async {
                Ok::<_, anyhow::Error>(open_store(&store, config).await?.nights(limit).await?)
            })?;
            if json { print_json(&nights)? } else { print_nights(&nights)? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tonight(args: &StoreArgs, how: NightArgs, json: bool, config: &Config) -> anyhow::Result<()> {
    // The service has the database open, on its own machine: SQLite is damaged if others use it through a shared file system.
    if std::env::var_os("SLURM_JOB_ID").is_some() && config.serve.store.is_empty() {
        bail!(
            "this is a Slurm job, which must not open the SQLite database of a service on another node: set serve.store = \
             \"postgres://…\", or run the command on the machine of the service"
        );
    }
    let (runtime, now) = (runtime()?, Timestamp::from(SystemTime::now()));
    let detector = detector_settings(config)?;
    let settings = config.serve.learning.night();
    let store = runtime.block_on(open_store(args, config))?;
    // Tasks on other machines start elsewhere.
    let data = std::path::absolute(data_of(args, config))?;
    let registry = Registry::new(store.clone(), &data);
    let stop = stop_on_signals(None)?;
    let address = archive_at(&data);
    let archive = Archive::open(&address, &Settings::default())?.with_stop(&stop);
    let plan = runtime.block_on(Plan::make(&store, &registry, &settings, now))?;
    eprint_note(&format!(
        "{} candidates; data from {} to {}; {} stretches of time are not learned from; {} confirmed anomalies",
        settings.candidates.len(),
        show_time(plan.from),
        show_time(plan.to),
        plan.excluded.len(),
        plan.anomalies.len(),
    ));
    let control = Control::new(&stop, &|_, _| {});
    let mut tell = |step: NightStep<'_>| line(step).iter().for_each(|line| eprint_note(line));
    let held = match how.on {
        TrainOn::Here => in_background(|| {
            plan.hold(&archive, &detector, detector.train.seed, control, &mut tell).map_err(explained)
        })?,
        TrainOn::Slurm => {
            let night = SlurmNight {
                program: std::env::current_exe()?,
                shared: data.join("nights"),
                options: how.options,
                deadline: how.deadline,
            };
            let held =
                night.hold(plan, (&archive, address), &registry, &detector, (&stop, control), &mut tell);
            held.map_err(|error| match error {
                SlurmNightError::Night(error) => explained(error),
                other => other.into(),
            })?
        }
    };
    let night = runtime.block_on(held.deploy(&store, &registry, &actor()))?;
    if let Some(url) = mlflow::address(&config.serve.mlflow)? {
        runtime.block_on(tell_mlflow(url, &store, &registry, config));
    }
    if json { print_json(&night) } else { print_night(&night) }
}

/// One of the candidates of a night that another process holds.
fn candidate(folder: &Path, number: usize) -> anyhow::Result<()> {
    let assignment = Assignment::read(folder)?;
    let stop = stop_on_signals(None)?;
    let archive = Archive::open(&assignment.archive, &Settings::default())?.with_stop(&stop);
    let control = Control::new(&stop, &|_, _| {});
    let tell = |step: NightStep<'_>| line(step).iter().for_each(|line| eprint_note(line));
    let candidate = assignment.enter(number, folder, &archive, control, tell).map_err(explained)?;
    print(&row(&candidate).join("  "))
}

fn explained(error: NightError) -> anyhow::Error {
    match error {
        NightError::Detect(error) => with_hint(error),
        other => other.into(),
    }
}

/// Shows the night in MLflow. If that fails, the service or the next night does so.
async fn tell_mlflow(url: Url, store: &Store, registry: &Registry, config: &Config) {
    let told = async {
        let client = Client::new(url, config.serve.mlflow.clone())?;
        Mirror { store, registry, client: &client }.round(Timestamp::from(SystemTime::now())).await
    };
    match told.await {
        Ok(round) => {
            round.refused.iter().for_each(|refused| eprint_note(&format!("MLflow refused {refused}")))
        }
        Err(error) => eprint_note(&format!("MLflow is told later: {error}")),
    }
}

fn print_night(night: &Night) -> anyhow::Result<()> {
    let champion = night.champion_before.as_ref().zip(night.champion_figures);
    let champion = champion.map(|(version, figures)| Candidate {
        name: format!("{version} (champion)"),
        figures: Some(figures),
        objection: None,
        epochs: Vec::new(),
        training_seconds: 0.0,
        judging_seconds: 0.0,
    });
    let rows: Vec<Vec<String>> = champion.iter().chain(&night.candidates).map(row).collect();
    print_table(&["CANDIDATE", ">ERROR", ">FOUND", ">FALSE/DAY", ">TRAINING", "OBJECTION"], &rows)?;
    if let Some(drift) = &night.drift {
        print(&format!("\n{}", drift_text(drift)))?;
    }
    print(&format!("\n{} ({})", outcome(night), show_duration(night.timings.total())))
}

/// What has changed since the champion was trained.
fn drift_text(drift: &Drift) -> String {
    let changed: Vec<String> = drift
        .distances
        .iter()
        .filter(|one| one.is_drift())
        .map(|one| format!("{} by {:.2} (chance: {:.2})", one.name, one.distance, one.threshold))
        .collect();
    let new: Vec<&str> = drift.new_jobs.iter().take(5).map(|job| job.as_str()).collect();
    let text = match (drift.distances.is_empty(), changed.is_empty()) {
        (true, _) => {
            format!("drift: unknown, because {} and {} jobs are too few", drift.n_reference, drift.n_jobs)
        }
        (_, true) => "drift: none; jobs are as when the champion was trained".to_owned(),
        _ => format!("drift, in standard deviations: {}", changed.join(", ")),
    };
    match drift.n_new {
        0 => text,
        count => format!("{text}\n{count} jobs resemble none of then, such as {}", new.join(", ")),
    }
}

fn row(candidate: &Candidate) -> Vec<String> {
    let figure =
        |show: &dyn Fn(&Figures) -> String| candidate.figures.as_ref().map_or_else(|| "–".into(), show);
    vec![
        candidate.name.clone(),
        figure(&|figures| format!("{:.5}", figures.reconstruction_error)),
        figure(&|figures| match figures.n_anomalies {
            0 => format!("{:.0} % of injected", 100.0 * figures.injected_found),
            all => format!("{} of {all}", figures.n_found),
        }),
        figure(&|figures| format!("{:.1}", figures.false_events_per_day())),
        show_duration(candidate.training_seconds),
        candidate.objection.clone().unwrap_or_default(),
    ]
}

fn print_cadence(cadence: &Cadence) -> anyhow::Result<()> {
    let total = cadence.timings.total();
    let part = |(name, seconds): (&str, f64)| {
        vec![name.into(), format!("{seconds:.1} s"), format!("{:.0} %", 100.0 * seconds / total.max(1e-9))]
    };
    print(&format!(
        "the last night: {} threads, {:.1} hours of data, {}\n",
        cadence.n_threads,
        cadence.hours,
        show_duration(total)
    ))?;
    print_table(&["PART", ">TIME", ">SHARE"], &cadence.timings.parts().map(part))?;
    let size = |one: &CadenceAtSize| {
        let shortest = show_duration(one.shortest_seconds);
        vec![one.n_threads.to_string(), show_duration(one.night_seconds), shortest]
    };
    print("")?;
    print_table(
        &[">THREADS", ">NIGHT", ">SHORTEST CADENCE"],
        &cadence.sizes.iter().map(size).collect::<Vec<_>>(),
    )?;
    let basis = match cadence.is_measured {
        true => format!(
            "{:.0} s and {:.0} s for every 1,000 threads, from {} nights of several sizes",
            cadence.fixed_seconds,
            1_000.0 * cadence.seconds_per_thread,
            cadence.n_nights
        ),
        false => "nights of one size only: the time is taken to be proportional to the threads".to_owned(),
    };
    print(&format!(
        "\n{basis}\none night a day is possible with up to {} threads, if learning may use half of the time",
        cadence.max_threads_nightly
    ))
}

fn print_nights(nights: &[Night]) -> anyhow::Result<()> {
    let row = |night: &Night| {
        let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "–".into());
        vec![
            show_time(night.time),
            version(&night.champion_before),
            version(&night.winner),
            show_duration(night.timings.total()),
            night.reason.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = nights.iter().map(row).collect();
    print_table(&["TIME", "CHAMPION BEFORE", "WINNER", ">TOOK", "REASON"], &rows)
}
