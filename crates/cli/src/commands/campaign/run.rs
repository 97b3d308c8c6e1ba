//! `tracewise campaign run`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use campaign::Plan;
use campaign::run::{RunError, RunEvent, RunSettings, Submit};
use campaign::slurm::SlurmError;
use report::text::{show_count, show_duration};

use super::{job_runner, label};
use crate::args::CampaignRunArgs;
use crate::commands::{node_name, open_or_create};
use crate::config::{Config, read_text};
use crate::output::{eprint_note, print_json};
use crate::progress::Progress;
use crate::signals::{exit_status, stop_on_signals};

/// On a disk; the directory for temporary files often is not.
const SCRATCH: &str = "/var/tmp";
/// The kernel counts CPU time in ticks of this length.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Disturbance above this fraction is reported.
const NOTABLE_DISTURBANCE: f64 = 0.02;

pub fn run(args: &CampaignRunArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if args.interval < SHORTEST_INTERVAL {
        bail!("--interval has to be at least {SHORTEST_INTERVAL:?}, the resolution of the kernel's counters");
    }
    let file = args.plan.display().to_string();
    let text = read_text(&args.plan, &config.limits())?;
    let cpus = campaign::jobs::allowed_cpus()?;
    let plan = Plan::from_toml(&file, &text, cpus.len())?;
    let settings = RunSettings {
        node: node_name(args.node.as_ref())?,
        cpus,
        procfs: args.roots.procfs.clone(),
        cgroupfs: args.roots.cgroupfs.clone(),
        scratch: args.scratch.clone().unwrap_or_else(|| SCRATCH.into()),
        submit: if args.submit.is_some() { Submit::Slurm } else { Submit::Here },
        interval: args.interval,
        even_if_busy: args.even_if_busy,
        runner: job_runner()?,
    };
    let address = args.into.as_deref().unwrap_or(&config.archive.address);
    let archive = open_or_create(address, config)?;
    let stop = stop_on_signals(None)?;
    let progress = Progress::new(format!("recording into {address}"));
    let show = |event: RunEvent<'_>| match event {
        RunEvent::CampaignStarted { campaign, n_jobs } => {
            eprint_note(&format!("campaign {campaign}: {} jobs", show_count(n_jobs as u64)));
        }
        RunEvent::JobStarted { id, job, .. } => {
            let length = show_duration(job.length.as_secs_f64());
            eprint_note(&format!("  {id}  {} on {} threads for {length}", job.kind, job.n_threads));
        }
        RunEvent::JobEnded { label } => {
            if let Some(fraction) = label.disturbance.filter(|fraction| *fraction > NOTABLE_DISTURBANCE) {
                let percent = fraction * 100.0;
                eprint_note(&format!("  {}  other processes took {percent:.1} % of its threads", label.job));
            }
        }
        RunEvent::Progress { done, total } => progress.update(done.as_secs(), total.as_secs()),
    };
    let outcome = campaign::run::run(&plan, &settings, &archive, &stop, show);
    drop(progress);
    let labels = match outcome {
        Err(error @ RunError::Stopped(_)) => {
            eprint_note(&error.to_string());
            return Ok(ExitCode::from(exit_status()));
        }
        outcome => outcome.map_err(with_hint)?,
    };
    if args.json {
        print_json(&labels)?;
    } else {
        label::show(&labels)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds what the user can do about an error.
fn with_hint(error: RunError) -> anyhow::Error {
    let hint = match &error {
        RunError::KnownCampaign(_) => "rename it in the plan, or record into another archive",
        RunError::OtherJobs(_) | RunError::Busy(_) => {
            "--even-if-busy runs it all the same; labels then record how much each job was disturbed"
        }
        RunError::NoRoom { .. } => "free some space, or lower `quota` in the plan",
        RunError::NoDisk { .. } => "name a directory on a disk with --scratch",
        RunError::Slurm(SlurmError::NotRun { .. }) => "is Slurm installed here?",
        RunError::Slurm(SlurmError::NotSeen(_)) => "`tracewise agent doctor` checks what the agent can see",
        _ => return error.into(),
    };
    anyhow!("{error}; {hint}")
}
