//! `tracewise detect explain`

use std::collections::BTreeMap;
use std::process::ExitCode;

use ::detect::{Explanation, KindClassifier, KindMatch, KnownJobs, Level, Monitor, RankedWindow, Ranking};
use archive::Archive;
use serde::Serialize;
use workload::{Cpu, JobId, NodeName};

use super::{Applied, labelled_points, with_hint};
use crate::args::ExplainArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
use crate::signals::stop_on_signals;
use crate::times::show_time;

/// The number of kinds that are named on the terminal.
const MAX_KINDS: usize = 2;

#[derive(Serialize)]
struct ExplainedWindow {
    node: NodeName,
    cpu: Cpu,
    job: JobId,
    score: f64,
    threshold: f64,
    is_alarm: bool,
    level: Option<Level>,
    explanation: Explanation,
    kinds: Vec<KindMatch>,
}

pub fn run(args: &ExplainArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let applied = Applied::open(&args.model, config)?;
    let detector = &applied.detector;
    let stop = stop_on_signals(None)?;
    let opened;
    let reference = match &args.reference {
        Some(address) => {
            opened = Archive::open(address, &config.archive_settings())?;
            detector.check_period(&opened).map_err(with_hint)?;
            &opened
        }
        None => &applied.archive,
    };
    let points = labelled_points(detector, reference, &stop)?;
    note_reliability(KindClassifier::fit(&points).as_ref());
    let mut ranking = Ranking::new(args.top);
    applied.for_each(&stop, |batch| {
        ranking.add(detector, &batch, |job, node| {
            args.job.as_ref().is_none_or(|only| only == job)
                && args.node.as_ref().is_none_or(|only| only == node)
        });
        Ok(())
    })?;
    let known = KnownJobs::new(&applied.archive.labels()?);
    let monitor = Monitor { detector, known: &known, classifier: None };
    let mut explained = Vec::new();
    let mut classifiers: BTreeMap<JobId, Option<KindClassifier>> = BTreeMap::new();
    for RankedWindow { node, cpu, job, finding, explanation } in ranking.into_windows() {
        let classifier =
            classifiers.entry(job.clone()).or_insert_with(|| KindClassifier::without_job(&points, &job));
        explained.push(ExplainedWindow {
            threshold: monitor.threshold(&job),
            is_alarm: monitor.is_alarm(&job, &finding),
            kinds: classifier.as_ref().map_or(Vec::new(), |classifier| classifier.classify(&finding)),
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
    let ExplainedWindow { node, cpu, job, score, threshold, explanation, .. } = window;
    let relation = if window.is_alarm { "above" } else { "below" };
    print(&format!(
        "{node} cpu {}, job {job}: score {score:.4}, {relation} the threshold {threshold:.4}",
        cpu.0
    ))?;
    let (from, to) = (show_time(explanation.from), show_time(explanation.to));
    print(&format!("  {from} to {to}: {}", explanation.text))?;
    if !window.kinds.is_empty() {
        print(&format!("  {}", kinds_text(&window.kinds)))?;
    }
    Ok(())
}

/// The most similar kinds. Confidence is only meaningful for a window inside the region of a kind.
pub fn kinds_text(kinds: &[KindMatch]) -> String {
    if kinds.iter().any(|kind| kind.is_inside) {
        let likely = kinds.iter().take(MAX_KINDS).filter(|kind| kind.confidence >= 0.01);
        let named: Vec<String> =
            likely.map(|kind| format!("{} ({:.0} %)", kind.kind, kind.confidence * 100.0)).collect();
        return format!("similar to {}", named.join(", "));
    }
    let nearest = kinds.iter().min_by(|a, b| a.distance.total_cmp(&b.distance));
    let nearest = nearest.map_or(String::new(), |kind| {
        format!("; the nearest is {}, {:.1} times its radius away", kind.kind, kind.distance)
    });
    format!("outside the region of every known kind{nearest}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_outside_every_region_gets_no_percentage() {
        let kind = |name: &str, confidence, distance: f64| KindMatch {
            kind: name.into(),
            confidence,
            distance,
            is_inside: distance <= 1.0,
        };
        assert_eq!(
            kinds_text(&[kind("bad-io", 0.97, 0.8), kind("np", 0.03, 4.0)]),
            "similar to bad-io (97 %), np (3 %)"
        );
        assert_eq!(
            kinds_text(&[kind("bad-io", 1.0, 3.2), kind("np", 0.0, 9.0)]),
            "outside the region of every known kind; the nearest is bad-io, 3.2 times its radius away"
        );
    }
}
