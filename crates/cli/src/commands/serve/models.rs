//! `tracewise models`

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use lifecycle::{Alias, Difference, ModelVersion, Move, Promotion, Registry, ShadowFigures};
use serde_json::json;
use workload::Timestamp;

use super::{actor, data_of, open_store, runtime};
use crate::args::{ModelsCommand, StoreArgs};
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::times::show_time;

const MAX_HISTORY: usize = 1_000;

pub fn run(command: ModelsCommand, config: &Config) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(run_async(command, config))
}

async fn run_async(command: ModelsCommand, config: &Config) -> anyhow::Result<ExitCode> {
    let now = Timestamp::from(SystemTime::now());
    match command {
        ModelsCommand::List { store, json } => {
            let registry = open(&store, config).await?;
            let models = registry.versions().await?;
            let holders = registry.holders().await?;
            if json { print_json(&json!(models))? } else { print_models(&models, &holders)? }
        }
        ModelsCommand::Show { version, store, json } => {
            let registry = open(&store, config).await?;
            let version = match version {
                Some(version) => version,
                None => registry.holder(Alias::Champion).await?.context("there is no champion yet")?.version,
            };
            let model = registry.version(&version).await?;
            let shadow = open_store(&store, config).await?.shadow_figures(&version).await?;
            let history = registry.history(Alias::Champion, MAX_HISTORY).await?;
            let history: Vec<&Promotion> = history.iter().filter(|one| one.version == version).collect();
            if json {
                print_json(&json!({ "model": model, "history": history, "shadow": shadow }))?;
            } else {
                print_model(&model, shadow.as_ref(), &history)?;
            }
        }
        ModelsCommand::Add { model, name, promote, store } => {
            let registry = open(&store, config).await?;
            let name = name.or_else(|| Some(model.file_name()?.to_str()?.to_owned()));
            let name = name.context("give the version a name with --name")?;
            let added = registry.import(Path::new(&model), &name, now).await?;
            print(&format!("{} is registered", added.version))?;
            if let Some(reason) = promote {
                print_promotion(&registry.promote(Alias::Champion, &name, &actor(), &reason, now).await?)?;
            }
        }
        ModelsCommand::Promote { version, reason, store } => {
            let registry = open(&store, config).await?;
            print_promotion(&registry.promote(Alias::Champion, &version, &actor(), &reason, now).await?)?;
        }
        ModelsCommand::Rollback { reason, store } => {
            print_promotion(&open(&store, config).await?.rollback(&actor(), &reason, now).await?)?;
        }
        ModelsCommand::History { at, store, json } => {
            let registry = open(&store, config).await?;
            let history = match at {
                Some(time) => registry.holder_at(Alias::Champion, time).await?.into_iter().collect(),
                None => registry.history(Alias::Champion, MAX_HISTORY).await?,
            };
            if json { print_json(&json!(history))? } else { print_history(&history)? }
        }
        ModelsCommand::Diff { before, after, store, json } => {
            let differences = open(&store, config).await?.differences(&before, &after).await?;
            if json {
                print_json(&json!(differences))?
            } else {
                print_differences(&differences, &before, &after)?
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn open(args: &StoreArgs, config: &Config) -> anyhow::Result<Registry> {
    Ok(Registry::new(open_store(args, config).await?, data_of(args, config)))
}

fn print_models(models: &[ModelVersion], holders: &[Promotion]) -> anyhow::Result<()> {
    let row = |model: &ModelVersion| {
        let aliases = holders.iter().filter(|holder| holder.version == model.version);
        let aliases: Vec<&str> = aliases.map(|holder| holder.alias.name()).collect();
        vec![
            model.version.clone(),
            aliases.join(","),
            model.detector.clone(),
            show_time(model.added),
            span(model),
            model.parent.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = models.iter().map(row).collect();
    print_table(&["VERSION", "ALIAS", "DETECTOR", "ADDED", "TRAINING DATA", "PARENT"], &rows)
}

/// The time of the training data.
fn span(model: &ModelVersion) -> String {
    match model.data.as_ref().and_then(|data| data.from.zip(data.to)) {
        Some((from, to)) => format!("{} to {}", show_time(from), show_time(to)),
        None => "unknown".into(),
    }
}

fn print_model(
    model: &ModelVersion,
    shadow: Option<&ShadowFigures>,
    history: &[&Promotion],
) -> anyhow::Result<()> {
    let mut rows = vec![
        vec!["version".into(), model.version.clone()],
        vec!["detector".into(), model.detector.clone()],
        vec!["added".into(), show_time(model.added)],
        vec!["training data".into(), span(model)],
        vec!["trained by".into(), format!("Tracewise {}", model.product_version)],
        vec!["SHA-256 of weights".into(), model.weights_sha256.clone()],
    ];
    let hash = model.data.as_ref().and_then(|data| data.sha256.clone());
    rows.extend(hash.map(|hash| vec!["SHA-256 of data".into(), hash]));
    rows.extend(model.parent.as_ref().map(|parent| vec!["trained from".into(), parent.clone()]));
    rows.extend(model.metrics.iter().map(|(name, value)| vec![name.clone(), format!("{value:.4}")]));
    if let Some(figures) = shadow {
        let text = format!(
            "{:.1} hours, {} events; the champion reported {}, of which it has {}; {} of {} confirmed anomalies",
            figures.hours,
            figures.n_events,
            figures.n_champion_events,
            figures.n_common,
            figures.n_confirmed_found,
            figures.n_confirmed
        );
        rows.push(vec!["in shadow mode".into(), text]);
    }
    print_table(&["", ""], &rows)?;
    if history.is_empty() {
        return print("\nit was never the champion");
    }
    print("")?;
    print_history(&history.iter().copied().cloned().collect::<Vec<_>>())
}

fn print_promotion(promotion: &Promotion) -> anyhow::Result<()> {
    print(&format!(
        "{} is the {}; a running service uses it in a few seconds",
        promotion.version, promotion.alias
    ))
}

fn print_history(history: &[Promotion]) -> anyhow::Result<()> {
    let row = |one: &Promotion| {
        let what = match one.what {
            Move::Promoted => "promoted",
            Move::Restored => "rolled back to",
        };
        vec![show_time(one.time), what.into(), one.version.clone(), one.actor.clone(), one.reason.clone()]
    };
    let rows: Vec<Vec<String>> = history.iter().map(row).collect();
    print_table(&["TIME", "", "VERSION", "BY", "REASON"], &rows)
}

fn print_differences(differences: &[Difference], before: &str, after: &str) -> anyhow::Result<()> {
    if differences.is_empty() {
        return print("they differ in their weights only, if at all");
    }
    let row = |one: &Difference| vec![one.name.clone(), one.before.clone(), one.after.clone()];
    let rows: Vec<Vec<String>> = differences.iter().map(row).collect();
    print_table(&["", before, after], &rows)
}
