//! `tracewise detect explain`

use std::collections::BTreeMap;
use std::process::ExitCode;

use ::detect::{Explanation, KindClassifier, KindMatch, KnownJobs, Level, RankedWindow, Ranking};
use serde::Serialize;
use workload::{Cpu, JobId, NodeName};

use super::events::kinds_text;
use super::{Applied, labelled_points, reference_of};
use crate::args::ExplainArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
use crate::signals::stop_on_signals;
use crate::times::show_time;

#[derive(Serialize)]
struct ExplainedWindow {
    node: NodeName,
    cpu: Cpu,
    /// Absent if no single job owned the thread.
    job: Option<JobId>,
    score: f64,
    /// Above 1, the window exceeds a threshold of events.
    strength: f64,
    level: Option<Level>,
    explanation: Explanation,
    kinds: Vec<KindMatch>,
}

pub fn run(args: &ExplainArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let applied = Applied::open(&args.windows, config)?;
    let detector = &applied.detector;
    let stop = stop_on_signals(None)?;
    let reference = reference_of(&applied.archive, args.reference.as_deref(), detector, config)?;
    let points = labelled_points(detector, &reference, &stop)?;
    note_reliability(KindClassifier::fit(&points).as_ref());
    let mut ranking = Ranking::new(args.top);
    applied.for_each(&stop, |batch| {
        ranking.add(detector, &batch, |thread| {
            args.job.as_ref().is_none_or(|only| thread.job() == Some(only))
                && args.node.as_ref().is_none_or(|only| *only == thread.node)
        });
        Ok(())
    })?;
    let known = KnownJobs::new(&applied.archive.labels()?);
    let mut explained = Vec::new();
    let mut classifiers: BTreeMap<Option<JobId>, Option<KindClassifier>> = BTreeMap::new();
    for RankedWindow { node, cpu, owner, finding, usage, explanation } in ranking.into_windows() {
        let job = owner.job().cloned();
        let classifier = classifiers.entry(job.clone()).or_insert_with(|| match &job {
            Some(job) => KindClassifier::without_job(&points, job),
            None => KindClassifier::fit(&points),
        });
        let kinds = classifier.as_ref().map(|classifier| classifier.classify(&finding, usage.as_ref()));
        explained.push(ExplainedWindow {
            strength: detector
                .strength(&finding, job.as_ref().and_then(|job| known.kind_of_job(job)))
                .unwrap_or(0.0),
            kinds: kinds.unwrap_or_default(),
            score: finding.score,
            level: finding.level,
            node,
            cpu,
            job,
            explanation,
        });
    }
    if args.json {
        print_json(&explained)?;
        return Ok(ExitCode::SUCCESS);
    }
    for window in &explained {
        print_window(window)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_window(window: &ExplainedWindow) -> anyhow::Result<()> {
    let ExplainedWindow { node, cpu, job, score, strength, explanation, .. } = window;
    let job = job.as_ref().map_or("no job".to_owned(), |job| format!("job {job}"));
    print(&format!("{node} cpu {}, {job}: score {score:.4}, {strength:.2} times the threshold", cpu.0))?;
    let (from, to) = (show_time(explanation.from), show_time(explanation.to));
    print(&format!("  {from} to {to}: {}", explanation.text))?;
    if !window.kinds.is_empty() {
        print(&format!("  {}", kinds_text(&window.kinds)))?;
    }
    Ok(())
}

fn note_reliability(classifier: Option<&KindClassifier>) {
    if let Some((classifier, reliability)) = classifier.and_then(|one| Some((one, one.reliability?))) {
        eprint_note(&format!(
            "{} known kinds; on held-out jobs {:.0} % of windows are classified correctly (mean confidence {:.0} %)",
            classifier.kinds().len(),
            reliability.accuracy * 100.0,
            reliability.confidence * 100.0
        ));
    }
}
