//! `tracewise detect explain`

use std::process::ExitCode;

use archive::Archive;
use detect::diagnosis::{Atlas, Likeness, place, point_of};
use detect::explain::{Explanation, explain, level_in_words};
use detect::{Trained, kinds_of};
use serde::Serialize;

use super::open;
use crate::args::ExplainArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
use crate::times::show_time;

/// Kinds that the terminal has room for.
const MOST_KINDS: usize = 2;

#[derive(Serialize)]
struct Case {
    node: String,
    cpu: u16,
    job: String,
    score: f64,
    threshold: f64,
    level: Option<&'static str>,
    explanation: Explanation,
    like: Vec<Likeness>,
}

pub fn run(args: &ExplainArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let (trained, archive) = args.look.open(config)?;
    let atlas = match &args.known {
        Some(known) => atlas(args, &trained, &open(Some(known), config)?)?,
        None => atlas(args, &trained, &archive)?,
    };
    let threshold = trained.thresholds.for_all.score;
    let mut cases: Vec<Case> = Vec::new();
    args.look.for_each(&trained, &archive, |moment| {
        for (thread, finding) in moment.threads.iter().zip(trained.examine(&moment)) {
            let is_wanted = args.job.as_ref().is_none_or(|job| *job == thread.job)
                && args.node.as_ref().is_none_or(|node| *node == thread.node);
            let lowest = cases.last().map_or(f64::MIN, |case| case.score);
            if !is_wanted || (cases.len() >= args.top && finding.score <= lowest) {
                continue;
            }
            let like = atlas.as_ref().map_or(Vec::new(), |atlas| atlas.likenesses(&point_of(&finding)));
            let case = Case {
                node: thread.node.to_string(),
                cpu: thread.cpu.0,
                job: thread.job.to_string(),
                score: finding.score,
                level: finding.level,
                threshold,
                explanation: explain(
                    &thread.values,
                    &finding.expected,
                    &trained.channels(),
                    moment.start,
                    trained.period,
                ),
                like,
            };
            // The strangest window of each thread of a job says enough.
            if let Some(known) = cases
                .iter()
                .position(|one| (&one.node, one.cpu, &one.job) == (&case.node, case.cpu, &case.job))
            {
                if cases[known].score >= case.score {
                    continue;
                }
                cases.remove(known);
            }
            cases.push(case);
            cases.sort_by(|a, b| b.score.total_cmp(&a.score));
            cases.truncate(args.top);
        }
        Ok(())
    })?;
    if args.json {
        print_json(&cases)?;
        return Ok(ExitCode::SUCCESS);
    }
    for case in &cases {
        let verdict = match case.score >= case.threshold {
            true => format!("{:.1} times the threshold", case.score / case.threshold),
            false => "below the threshold".to_owned(),
        };
        print(&format!(
            "{} cpu {}, job {}: score {:.4}, {verdict}",
            case.node, case.cpu, case.job, case.score
        ))?;
        print(&format!(
            "  {} to {}: {}",
            show_time(case.explanation.from),
            show_time(case.explanation.to),
            case.explanation.words
        ))?;
        if let Some(level) = case.level {
            print(&format!("  {}", level_in_words(level)))?;
        }
        if !case.like.is_empty() {
            print(&format!("  {}", likeness_in_words(&case.like)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn likeness_in_words(like: &[Likeness]) -> String {
    let named: Vec<String> = like
        .iter()
        .take(MOST_KINDS)
        .map(|one| format!("{} ({:.0} %)", one.kind, one.confidence * 100.0))
        .collect();
    match like.iter().any(|one| one.is_inside) {
        true => format!("like {}", named.join(", ")),
        false => format!("like no kind that is known; nearest are {}", named.join(", ")),
    }
}

/// Where known kinds lie, from the labelled jobs of an archive.
fn atlas(args: &ExplainArgs, trained: &Trained, known: &Archive) -> anyhow::Result<Option<Atlas>> {
    let mut kinds = kinds_of(&known.labels()?);
    // A job is not known by itself.
    kinds.retain(|job, _| args.job.as_ref() != Some(job));
    if kinds.is_empty() {
        return Ok(None);
    }
    trained.check_period(known)?;
    let mut placed = Vec::new();
    args.look.all().for_each(trained, known, |moment| {
        place(trained, &moment, &kinds, &mut placed);
        Ok(())
    })?;
    let atlas = Atlas::fit(&placed);
    if let Some((atlas, reliability)) = atlas.as_ref().and_then(|atlas| Some((atlas, atlas.reliability?))) {
        eprint_note(&format!(
            "{} known kinds; of jobs that were left out, {:.0} % of windows were nearest to their own (confidence {:.0} %)",
            atlas.kinds().len(),
            reliability.accuracy * 100.0,
            reliability.confidence * 100.0
        ));
    }
    Ok(atlas)
}
