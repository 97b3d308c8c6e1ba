//! `tracewise exclude`

use std::process::ExitCode;
use std::time::SystemTime;

use detect::Span;
use lifecycle::Exclusion;
use workload::Timestamp;

use super::{actor, open_store, runtime};
use crate::args::ExcludeCommand;
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::times::show_time;

pub fn run(command: ExcludeCommand, config: &Config) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(run_async(command, config))
}

async fn run_async(command: ExcludeCommand, config: &Config) -> anyhow::Result<ExitCode> {
    let now = Timestamp::from(SystemTime::now());
    match command {
        ExcludeCommand::Add { node, from, to, reason, store } => {
            anyhow::ensure!(from < to, "--from must be before --to");
            let span = Span { node, ..Span::of_time(from, to) };
            let added =
                open_store(&store, config).await?.add_exclusion(&span, &reason, &actor(), now).await?;
            print(&format!("exclusion {} is in force from the next competition on", added.number))?;
        }
        ExcludeCommand::List { store, json } => {
            let exclusions = open_store(&store, config).await?.exclusions().await?;
            if json { print_json(&exclusions)? } else { print_exclusions(&exclusions)? }
        }
        ExcludeCommand::Remove { number, store } => {
            open_store(&store, config).await?.remove_exclusion(number, &actor(), now).await?;
            print(&format!("exclusion {number} is removed"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_exclusions(exclusions: &[Exclusion]) -> anyhow::Result<()> {
    let row = |one: &Exclusion| {
        vec![
            one.number.to_string(),
            one.node.as_ref().map_or_else(|| "all".into(), ToString::to_string),
            show_time(one.from),
            show_time(one.to),
            one.actor.clone(),
            one.reason.clone(),
        ]
    };
    print_table(
        &[">NUMBER", "NODE", "FROM", "TO", "BY", "REASON"],
        &exclusions.iter().map(row).collect::<Vec<_>>(),
    )
}
