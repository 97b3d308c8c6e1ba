//! `tracewise campaign labels`

use std::process::ExitCode;

use anyhow::bail;
use report::text::show_duration;
use workload::Label;

use crate::args::LabelsArgs;
use crate::config::Config;
use crate::output::{print_json, print_table};
use crate::times::show_time;

pub fn run(args: &LabelsArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.data.open(config)?;
    let labels = archive.labels()?;
    if args.json {
        print_json(&labels)?;
    } else if labels.is_empty() {
        let address = archive.address();
        bail!("{address} has no labels: they come with `tracewise campaign run` and `campaign simulate`");
    } else {
        show(&labels)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn show(labels: &[Label]) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = labels
        .iter()
        .map(|label| {
            vec![
                label.campaign.clone(),
                label.set.to_string(),
                label.job.to_string(),
                label.kind.clone(),
                label.node.to_string(),
                label.threads.len().to_string(),
                show_time(label.start),
                show_duration((label.end - label.start).as_seconds()),
                label.disturbance.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0)),
                label.made_by.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let header =
        ["CAMPAIGN", "SET", "JOB", "KIND", "NODE", ">THREADS", "START", ">LENGTH", ">DISTURBED", "MADE BY"];
    print_table(&header, &rows)
}
