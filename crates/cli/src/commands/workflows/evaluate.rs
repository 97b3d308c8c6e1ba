//! `tracewise workflows evaluate`

use std::collections::BTreeMap;
use std::process::ExitCode;

use workflows::Dataset;
use workflows::evaluate::{Figures, Protocol, evaluate, per_job, report};

use super::{missing_in_words, read_runs};
use crate::args::EvaluateRunsArgs;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;

pub fn run(args: &EvaluateRunsArgs) -> anyhow::Result<ExitCode> {
    let data = read_runs(&args.runs)?;
    if args.per_job {
        return tasks(&data, args);
    }
    let model = args.model.for_runs(&data);
    let settings = args.learning.settings(model)?;
    let has_batches = data.runs.iter().any(|run| run.batch.is_some());
    let protocols: Vec<Protocol> = match args.protocol {
        Some(protocol) => vec![protocol],
        None => {
            if !has_batches {
                eprint_note("leave-batch-out is left out: no run says of which batch it is");
            }
            if args.split.is_none() {
                eprint_note("authors is left out: there is no --split");
            }
            let is_possible = |protocol: &Protocol| match protocol {
                Protocol::Authors => args.split.is_some(),
                Protocol::Random => true,
                Protocol::LeaveBatchOut => has_batches,
            };
            Protocol::ALL.into_iter().filter(is_possible).collect()
        }
    };
    let mut all: Vec<Figures> = Vec::new();
    for protocol in protocols {
        let progress = Progress::new(format!("{}, {}", model.name(), protocol.name()));
        let tell = |done: usize, total: usize| progress.update(done as u64, total as u64);
        let found = evaluate(model, &data, protocol, args.split.as_deref(), &settings, args.nested, tell);
        drop(progress);
        match found {
            Ok(figures) => all.push(figures),
            Err(error) if args.protocol.is_none() => {
                eprint_note(&format!("{} is left out: {error}", protocol.name()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    for figures in &all {
        for (reason, count) in counted(&figures.left_out) {
            eprint_note(&format!("{}: folds that are left out: {count}, because {reason}", figures.protocol));
        }
        if let Some(words) = missing_in_words(&figures.missing) {
            eprint_note(&words);
        }
    }
    if all.is_empty() {
        anyhow::bail!("there is nothing to judge by");
    }
    if let Some(out) = &args.out {
        let origin = format!(
            "tracewise workflows evaluate --model {} --runs {}, seed {}",
            model.name(),
            args.runs.display(),
            args.learning.seed
        );
        eprint_note(&report::write(&all, out, &origin)?.display().to_string());
    }
    if args.json {
        match &all[..] {
            [one] => print_json(one)?,
            several => print_json(&several)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (header, rows) = report::table(&all);
    print_table(&header, &rows)?;
    for figures in &all {
        if !figures.conflicting.is_empty() {
            eprint_note(&format!("left out, filed under another label: {}", figures.conflicting.join(", ")));
        }
        print(&format!("\n{}", figures.protocol))?;
        let (header, rows) = report::confusion(figures);
        print_table(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows)?;
        let early: Vec<String> = figures
            .while_running
            .iter()
            .map(|(share, accuracy)| format!("{accuracy:.3} after {share} % of the run"))
            .collect();
        if !early.is_empty() {
            print(&format!("accuracy while it runs: {}", early.join(", ")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Each of some words once, with how often it is there.
fn counted(words: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    words.iter().for_each(|word| *counts.entry(word.as_str()).or_default() += 1);
    counts
}

fn tasks(data: &Dataset, args: &EvaluateRunsArgs) -> anyhow::Result<ExitCode> {
    let found = per_job::evaluate(data, args.learning.seed)?;
    if args.json {
        print_json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |name: &str, ranking: per_job::Ranking| {
        vec![name.to_owned(), format!("{:.3}", ranking.roc_auc), format!("{:.3}", ranking.average_precision)]
    };
    let rows = vec![
        vec!["random".into(), "0.500".into(), format!("{:.3}", found.troubled_share)],
        row("no labels, each task alone", found.alone),
        row("no labels, beside those on its machine", found.unsupervised),
        row("with labels, folds by run", found.supervised),
    ];
    print_table(&["TASKS RANKED", ">ROC AUC", ">AVERAGE PRECISION"], &rows)?;
    print(&format!(
        "\n{} tasks of {} runs, seed {}, {:.1} s",
        found.n_jobs, found.n_runs, found.seed, found.seconds
    ))?;
    Ok(ExitCode::SUCCESS)
}
