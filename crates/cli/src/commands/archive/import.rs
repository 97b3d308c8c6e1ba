//! `tracewise archive import`

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use archive::LoadReport;
use archive::source::{AgentImport, ColumnMap, CsvImport, Intake, PrometheusImport, PrometheusQuery};
use files::Limits;
use report::text::{show_bytes, show_count};
use serde::Serialize;
use workload::{Control, Timestamp};

use crate::args::{ImportArgs, Preset};
use crate::commands::open_or_create;
use crate::config::{Config, read_text};
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;
use crate::times::show_time;

#[derive(Serialize)]
struct Imported {
    source: String,
    #[serde(flatten)]
    report: LoadReport,
}

pub fn run(args: &ImportArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let address = args.into.as_deref().unwrap_or(&config.archive.address);
    let open = || open_or_create(address, config);
    let stop = stop_on_signals(None)?;
    let intake = Intake { limits: config.limits(), now: Timestamp::from(SystemTime::now()) };
    let mut imported = Vec::new();
    let mut done = |source: String, report: LoadReport| {
        let one = Imported { source, report };
        if !args.json {
            print(&summary(&one))?;
        }
        imported.push(one);
        anyhow::Ok(())
    };
    if let (Some(url), Some(from), Some(to)) = (&args.prometheus, args.from, args.to) {
        let query = PrometheusQuery {
            url: url.clone(),
            from,
            to,
            metric: args.metric.clone(),
            matchers: args.matchers.clone(),
            node_label: args.node_label.clone(),
            peer: args.access.peer_settings()?,
        };
        let import = PrometheusImport::survey(query, &intake, &stop)?;
        let progress = Progress::new(format!("importing from {}", import.address()));
        let tell = |done, total| progress.update(done, total);
        let report = import.load(&open()?, &Control::new(&stop, &tell))?;
        drop(progress);
        done(import.address().to_owned(), report)?;
    } else if !args.agent.is_empty() {
        let peer = args.access.peer_settings()?;
        for url in &args.agent {
            let import = AgentImport::fetch(url, args.from, &peer, &intake, &stop)?;
            let report = import.load(&open()?, &Control::new(&stop, &|_, _| {}))?;
            done(import.address().to_owned(), report)?;
        }
    } else {
        let (map, layout) = column_map(args, &intake.limits)?;
        for file in &args.files {
            std::fs::metadata(file).with_context(|| file.display().to_string())?;
        }
        for file in &args.files {
            let progress = Progress::new(format!("importing {}", file.display()));
            let tell = |done, total| progress.update(done, total);
            let import = CsvImport::survey(file, &map, &layout, args.job.clone(), &intake, &stop)?;
            let report = import.load(&open()?, &Control::new(&stop, &tell))?;
            drop(progress);
            done(file.display().to_string(), report)?;
        }
    }
    if args.json {
        print_json(&imported)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn column_map(args: &ImportArgs, limits: &Limits) -> anyhow::Result<(ColumnMap, String)> {
    match (&args.columns, args.preset) {
        (Some(file), _) => {
            let text = read_text(file, limits)?;
            let name = Path::new(file).display().to_string();
            Ok((ColumnMap::from_toml(&name, &text)?, format!("columns of {name}")))
        }
        (None, Some(Preset::Exathlon)) => Ok((ColumnMap::exathlon(), "preset exathlon".into())),
        (None, None) => anyhow::bail!("--preset or --columns is required for CSV files"),
    }
}

/// One line about an import.
fn summary(imported: &Imported) -> String {
    let LoadReport { nodes, readings, repeated, missing, first, last, bytes, .. } = &imported.report;
    let time = |time: &Option<Timestamp>| time.map(show_time).unwrap_or_default();
    let mut line = format!(
        "{}: {} readings of {nodes} node{} from {} to {}, {}",
        imported.source,
        show_count(*readings),
        if *nodes == 1 { "" } else { "s" },
        time(first),
        time(last),
        show_bytes(*bytes),
    );
    if *missing > 0 {
        line += &format!("; {} missing", show_count(*missing));
    }
    if *repeated > 0 {
        line += &format!("; {} occurred twice, the last one was kept", show_count(*repeated));
    }
    line
}
