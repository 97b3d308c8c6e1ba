//! `tracewise campaign run`

use std::process::ExitCode;

use anyhow::Context;
use archive::Archive;
use campaign::Plan;
use campaign::run::{RunSettings, Step, Submit};
use report::text::{show_count, show_duration};

use crate::args::CampaignRunArgs;
use crate::commands::campaign::labels;
use crate::commands::{node_name, stop_on_ctrl_c};
use crate::config::Config;
use crate::output::{eprint_note, print_json};
use crate::progress::Progress;

/// On a disk, which the folder for temporary files often is not.
const SCRATCH: &str = "/var/tmp";

pub fn run(args: &CampaignRunArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let file = args.plan.display().to_string();
    let text = std::fs::read_to_string(&args.plan).with_context(|| file.clone())?;
    let cpus = campaign::jobs::allowed_cpus()?;
    let plan = Plan::from_toml(&file, &text, cpus.len())?;
    let settings = RunSettings {
        node: node_name(args.node.as_ref())?,
        cpus,
        procfs: args.roots.procfs.clone(),
        cgroupfs: args.roots.cgroupfs.clone(),
        scratch: args.scratch.clone().unwrap_or_else(|| SCRATCH.into()),
        submit: if args.submit.is_some() { Submit::Slurm } else { Submit::Here },
        even_if_busy: args.even_if_busy,
    };
    let address = args.into.as_deref().unwrap_or(&config.archive.address);
    let archive = Archive::open_or_create(address, &config.archive_settings())?;
    let stop = stop_on_ctrl_c(None)?;
    let progress = Progress::new(format!("recording into {address}"));
    let labels = campaign::run::run(&plan, &settings, &archive, &stop, |step| match step {
        Step::Begun { campaign, n_jobs } => {
            eprint_note(&format!("campaign {campaign}: {} jobs", show_count(n_jobs as u64)));
        }
        Step::Started { job, turn, .. } => {
            let length = show_duration(turn.length.as_secs_f64());
            eprint_note(&format!("  {job}  {} on {} threads for {length}", turn.kind, turn.n_threads));
        }
        Step::Ended { label } => {
            if let Some(share) = label.disturbance.filter(|share| *share > 0.02) {
                eprint_note(&format!("  {}  others took {:.1} % of its threads", label.job, share * 100.0));
            }
        }
        Step::Second { done, of } => progress.update(done.as_secs(), of.as_secs()),
    })?;
    drop(progress);
    if args.json {
        print_json(&labels)?;
    } else {
        labels::show(&labels)?;
    }
    Ok(ExitCode::SUCCESS)
}
