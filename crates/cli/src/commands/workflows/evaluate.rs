//! `tracewise workflows evaluate`

use std::collections::BTreeMap;
use std::process::ExitCode;

use files::Limits;
use workflows::evaluate::{Evaluation, EvaluationPlan, Protocol, evaluate, per_job, report};
use workflows::{Dataset, Split};
use workload::Stop;

use super::{missing_runs_warning, read_runs, training_plan, with_hint};
use crate::args::EvaluateRunsArgs;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &EvaluateRunsArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let data = read_runs(&args.runs, limits)?;
    let stop = stop_on_signals(None)?;
    if args.per_job {
        return rank_tasks(&data, args, &stop);
    }
    let training = training_plan(args.classifier, &args.training, &data)?;
    let name = training.kind().name();
    let has_split = args.split.is_some();
    let protocols: Vec<Protocol> = match args.protocol {
        Some(protocol) => vec![protocol],
        None => {
            for protocol in Protocol::ALL.into_iter().filter(|one| !one.is_possible(&data, has_split)) {
                let needs = if protocol == Protocol::Authors { "--split" } else { "runs with batches" };
                eprint_note(&format!("{} is skipped: it needs {needs}", protocol.name()));
            }
            Protocol::ALL.into_iter().filter(|one| one.is_possible(&data, has_split)).collect()
        }
    };
    let is_used = protocols.contains(&Protocol::Authors);
    let split = args.split.as_deref().filter(|_| is_used);
    let split = split.map(|path| Split::read(path, &data, limits)).transpose()?;
    let mut all: Vec<Evaluation> = Vec::new();
    for protocol in protocols {
        let progress = Progress::new(format!("{name}, {}", protocol.name()));
        let update = |done: usize, total: usize| progress.update(done as u64, total as u64);
        let plan =
            EvaluationPlan { training: &training, protocol, split: split.as_ref(), is_nested: args.nested };
        let found = evaluate(&plan, &data, &stop, update);
        drop(progress);
        match found {
            Ok(evaluation) => all.push(evaluation),
            Err(error) if args.protocol.is_none() && !error.is_stopped() => {
                eprint_note(&format!("{} is skipped: {error}", protocol.name()));
            }
            Err(error) => return Err(with_hint(error)),
        }
    }
    for evaluation in &all {
        for (reason, count) in counted(&evaluation.skipped_folds) {
            eprint_note(&format!("{}: {count} folds are skipped: {reason}", evaluation.protocol));
        }
        if let Some(warning) = missing_runs_warning(&evaluation.missing) {
            eprint_note(&warning);
        }
    }
    if all.is_empty() {
        anyhow::bail!("no protocol could be evaluated");
    }
    if let Some(out) = &args.out {
        let origin = format!(
            "tracewise workflows evaluate --classifier {name} --runs {}, seed {}",
            args.runs.display(),
            args.training.seed
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
    for evaluation in &all {
        if !evaluation.conflicting.is_empty() {
            eprint_note(&format!(
                "skipped, because the split and the data have different labels: {}",
                evaluation.conflicting.join(", ")
            ));
        }
        print(&format!("\n{}", evaluation.protocol))?;
        let (header, rows) = report::confusion(evaluation);
        print_table(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows)?;
        let certain = &evaluation.certain;
        if certain.coverage < 1.0 {
            print(&format!(
                "cannot tell {:.1} % of the runs; accuracy on the others: {:.3}",
                100.0 * (1.0 - certain.coverage),
                certain.accuracy
            ))?;
        }
        let early: Vec<String> = evaluation
            .while_running
            .iter()
            .map(|(percent, accuracy)| format!("{accuracy:.3} after {percent} % of the run"))
            .collect();
        if !early.is_empty() {
            print(&format!("accuracy while it runs: {}", early.join(", ")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How often each text occurs.
fn counted(texts: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for text in texts {
        *counts.entry(text.as_str()).or_default() += 1;
    }
    counts
}

fn rank_tasks(data: &Dataset, args: &EvaluateRunsArgs, stop: &Stop) -> anyhow::Result<ExitCode> {
    let found = per_job::evaluate(data, args.training.seed, stop)?;
    if args.json {
        print_json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |name: &str, ranking: per_job::Ranking| {
        vec![name.to_owned(), format!("{:.3}", ranking.roc_auc), format!("{:.3}", ranking.average_precision)]
    };
    let rows = vec![
        vec!["random".into(), "0.500".into(), format!("{:.3}", found.anomalous_fraction)],
        row("no labels, each task alone", found.alone),
        row("no labels, with the tasks on its host", found.within_run),
        row("no labels, with its host in runs near in time", found.unsupervised),
        row("with labels, folds by run", found.supervised),
    ];
    print_table(&["TASKS RANKED", ">ROC AUC", ">AVERAGE PRECISION"], &rows)?;
    print(&format!(
        "\n{} tasks of {} runs, seed {}, {:.1} s",
        found.n_jobs, found.n_runs, found.seed, found.seconds
    ))?;
    Ok(ExitCode::SUCCESS)
}
