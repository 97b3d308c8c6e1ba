//! Judging: what a detector does on held-out normal jobs and on confirmed anomalies.

use std::ops::ControlFlow;

use archive::Archive;
use detect::{
    ArchiveEvents, DetectError, Event, EventSubject, Finding, KnownJobs, Library, Reading, Scope, Span,
    TrainedDetector, WindowFilter,
};
use workload::{Control, Millis};

use crate::policy::Figures;

/// How long an anomaly is looked at.
const MAX_ANOMALY: Millis = Millis::HOUR;
/// How long before an anomaly the detector sees its node, so that evidence can last.
const BEFORE: Millis = Millis(600_000);

/// Judges detectors, all in the same way.
pub struct Judge<'a> {
    pub archive: &'a Archive,
    /// Held-out normal jobs.
    pub test: &'a WindowFilter,
    pub anomalies: &'a [Event],
    pub control: Control<'a>,
}

impl Judge<'_> {
    /// What a detector does on the held-out jobs and on the anomalies.
    pub fn figures(&self, detector: &TrainedDetector) -> Result<Figures, DetectError> {
        let (mut error, mut n_windows) = (0.0, 0);
        let spec = detector.window_spec(detector.config.window);
        let reading =
            Reading { archive: self.archive, filter: self.test, spec: &spec, control: self.control };
        reading.for_each_batch::<DetectError>(|batch| {
            let findings = detector.examine(&batch);
            n_windows += findings.len();
            error += findings.iter().map(Finding::error).sum::<f64>();
            Ok(ControlFlow::Continue(()))
        })?;
        let normal = self.events(detector, self.test)?;
        let spans = self.anomalies.iter().map(|event| {
            let span = event.span(event.opened + MAX_ANOMALY);
            Span { job: None, from: span.from - BEFORE, to: span.to.min(span.from + MAX_ANOMALY), ..span }
        });
        let scope = Scope { included: spans.collect(), excluded: Vec::new() };
        let raised = if self.anomalies.is_empty() {
            Vec::new()
        } else {
            self.events(detector, &scope.filter())?.events
        };
        let is_found = |anomaly: &&Event| raised.iter().any(|event| is_same(anomaly, event));
        Ok(Figures {
            reconstruction_error: error / n_windows as f64,
            n_false_events: normal.events.len(),
            hours: normal.hours,
            n_found: self.anomalies.iter().filter(is_found).count(),
            n_anomalies: self.anomalies.len(),
            injected_found: injected_found(detector),
        })
    }

    fn events(
        &self,
        detector: &TrainedDetector,
        filter: &WindowFilter,
    ) -> Result<detect::FoundEvents, DetectError> {
        let known = KnownJobs::default();
        let archive_events =
            ArchiveEvents { archive: self.archive, detector, filter, known: &known, control: self.control };
        archive_events.find(Library::default())
    }
}

/// Whether an event is about the same anomaly as another.
fn is_same(anomaly: &Event, event: &Event) -> bool {
    let span = anomaly.span(anomaly.opened + MAX_ANOMALY);
    let end = event.end.unwrap_or(span.to.max(event.opened));
    let is_where = match anomaly.subject {
        EventSubject::Job => anomaly.jobs.first().is_some_and(|job| event.jobs.contains(job)),
        _ => anomaly.node.as_ref().is_none_or(|node| event.nodes.contains(node)),
    };
    is_where && span.overlaps(event.start, end)
}

/// The fraction of injected faults that a detector finds at its budget.
fn injected_found(detector: &TrainedDetector) -> f64 {
    let Some(calibration) = &detector.calibration else { return 0.0 };
    let nearest = detect::BUDGETS
        .iter()
        .enumerate()
        .min_by(|a, b| {
            let distance = |budget: f64| (budget / calibration.false_events_per_day).ln().abs();
            distance(*a.1).total_cmp(&distance(*b.1))
        })
        .map_or(0, |(index, _)| index);
    let injected = || calibration.found.iter().filter(|found| found.is_injected);
    let n_jobs: usize = injected().map(|found| found.n_jobs).sum();
    let n_found: usize = injected().map(|found| found.n_found[nearest]).sum();
    if n_jobs == 0 { 0.0 } else { n_found as f64 / n_jobs as f64 }
}
