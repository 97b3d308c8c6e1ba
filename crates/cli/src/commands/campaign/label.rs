//! `tracewise campaign label`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, bail};
use archive::Selection;
use serde::Deserialize;
use workload::{JobId, Label, Set};

use crate::args::LabelArgs;
use crate::commands::campaign::labels;
use crate::config::Config;
use crate::output::print_json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    job: JobId,
    kind: String,
    set: Set,
    #[serde(default)]
    anomalous: Option<bool>,
}

pub fn run(args: &LabelArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.data.open(config)?;
    let shown = || args.known.display().to_string();
    let mut reader = csv::Reader::from_path(&args.known).with_context(shown)?;
    let known: Vec<Known> = reader.deserialize().collect::<Result<_, csv::Error>>().with_context(shown)?;
    if known.is_empty() {
        bail!("{}: there is no job in it; write the columns job,kind,set", shown());
    }
    let catalog = archive.catalog(Selection::default())?;
    let jobs: BTreeMap<&JobId, _> = catalog.jobs.iter().map(|job| (&job.job, job)).collect();
    let mut new = Vec::new();
    for Known { job, kind, set, anomalous } in known {
        let Some((seen, node)) = jobs.get(&job).and_then(|seen| Some((seen, seen.nodes.first()?))) else {
            bail!("{}: {} has no job {job}", shown(), archive.address());
        };
        new.push(Label {
            campaign: format!("{}-{set}", args.known.file_stem().unwrap_or_default().to_string_lossy()),
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
    archive.add_labels(&new)?;
    if args.json {
        print_json(&new)?;
    } else {
        labels::show(&new)?;
    }
    Ok(ExitCode::SUCCESS)
}
