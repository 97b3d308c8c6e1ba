//! `tracewise campaign label`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, bail};
use archive::Selection;
use report::text::show_duration;
use serde::Deserialize;
use workload::{JobId, Label, Set};

use crate::args::{LabelAddArgs, LabelCommand, LabelListArgs};
use crate::config::Config;
use crate::output::{print_json, print_table};
use crate::times::show_time;

pub fn run(command: &LabelCommand, config: &Config) -> anyhow::Result<ExitCode> {
    match command {
        LabelCommand::Add(args) => add(args, config),
        LabelCommand::List(args) => list(args, config),
    }
}

/// One row of the file of labels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    job: JobId,
    kind: String,
    set: Set,
    #[serde(default)]
    anomalous: Option<bool>,
}

fn add(args: &LabelAddArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.data.open_to_write(config)?;
    let file = || args.labels.display().to_string();
    let text = files::read(&args.labels, &config.limits())?;
    let mut reader = csv::Reader::from_reader(text.as_slice());
    let rows: Vec<Row> = reader.deserialize().collect::<Result<_, csv::Error>>().with_context(file)?;
    if rows.is_empty() {
        bail!("{}: it has no jobs; write one row per job with the columns job,kind,set", file());
    }
    let catalog = archive.catalog(Selection::default())?;
    let jobs: BTreeMap<&JobId, _> = catalog.jobs.iter().map(|job| (&job.job, job)).collect();
    let mut labels = Vec::new();
    for Row { job, kind, set, anomalous } in rows {
        let Some((seen, node)) = jobs.get(&job).and_then(|seen| Some((seen, seen.nodes.first()?))) else {
            bail!("{}: {} has no job {job}", file(), archive.address());
        };
        labels.push(Label {
            campaign: format!("{}-{set}", args.labels.file_stem().unwrap_or_default().to_string_lossy()),
            set,
            kind,
            anomalous,
            node: node.clone(),
            threads: Vec::new(),
            start: seen.first,
            end: seen.last,
            made_by: None,
            disturbance: None,
            job,
        });
    }
    archive.add_labels(&labels)?;
    if args.json {
        print_json(&labels)?;
    } else {
        show(&labels)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &LabelListArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.data.open(config)?;
    let labels = archive.labels()?;
    if args.json {
        print_json(&labels)?;
    } else if labels.is_empty() {
        bail!(
            "{} has no labels; `campaign run`, `campaign simulate` and `campaign label add` make them",
            archive.address()
        );
    } else {
        show(&labels)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints labels as a table.
pub fn show(labels: &[Label]) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = labels
        .iter()
        .map(|label| {
            vec![
                label.campaign.clone(),
                label.set.to_string(),
                label.job.to_string(),
                label.kind.clone(),
                if label.is_anomalous() { "yes".into() } else { String::new() },
                label.node.to_string(),
                label.threads.len().to_string(),
                show_time(label.start),
                show_duration((label.end - label.start).as_seconds()),
                label.disturbance.map_or_else(String::new, |fraction| format!("{:.1} %", fraction * 100.0)),
                label.made_by.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let header = [
        "CAMPAIGN",
        "SET",
        "JOB",
        "KIND",
        "ANOMALOUS",
        "NODE",
        ">THREADS",
        "START",
        ">LENGTH",
        ">DISTURBED",
        "MADE BY",
    ];
    print_table(&header, &rows)
}
