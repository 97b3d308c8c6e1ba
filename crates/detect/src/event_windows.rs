//! The windows of an event, read from an archive: what a verdict about it is a verdict about.

use std::ops::ControlFlow;

use archive::Archive;
use workload::{Control, Owner, Timestamp};

use crate::archive_windows::Reading;
use crate::detector::Finding;
use crate::event::{Event, EventSubject};
use crate::split::{Scope, Span};
use crate::trained::TrainedDetector;
use crate::usage::JobUsage;
use crate::window::WindowBatch;

/// About how many windows of an event are used.
const N_WINDOWS: usize = 200;

/// One window of an event.
#[derive(Debug, Clone)]
pub struct EventWindow {
    pub start: Timestamp,
    pub owner: Owner,
    pub finding: Finding,
    pub usage: Option<JobUsage>,
}

impl Event {
    /// Where and when it was, up to `now` if it is still open. The windows of its job are meant, or of its node.
    pub fn span(&self, now: Timestamp) -> Span {
        Span {
            from: self.start,
            to: self.end.unwrap_or(now).max(self.opened),
            node: self.node.clone(),
            job: self.jobs.first().filter(|_| self.subject == EventSubject::Job).cloned(),
        }
    }
}

/// The windows of an event as a detector sees them, at times that are evenly chosen if there are many. Empty if the archive
/// does not have them any more.
pub fn event_windows(
    event: &Event,
    detector: &TrainedDetector,
    archive: &Archive,
    now: Timestamp,
    control: Control<'_>,
) -> archive::Result<Vec<EventWindow>> {
    let span = event.span(now);
    // Detectors with a graph need the other threads of the node.
    let scope = Scope { included: vec![Span { job: None, ..span.clone() }], excluded: Vec::new() };
    let (mut spec, filter) = (detector.event_spec(), scope.filter());
    let n_times = (((span.to - span.from).0 - spec.length().0) / spec.stride_length().0).max(1) as usize;
    spec.stride *= (n_times * event.threads.len().max(1)).div_ceil(N_WINDOWS).max(1);
    let is_of_event = |owner: &Owner| match (&span.job, event.subject) {
        (Some(job), _) => owner.job() == Some(job),
        (None, EventSubject::Node) if event.jobs.is_empty() => owner.job().is_none(),
        _ => true,
    };
    let mut windows = Vec::new();
    let reading = Reading { archive, filter: &filter, spec: &spec, control };
    reading.for_each_batch::<archive::Error>(|batch| {
        if batch.threads().iter().any(|thread| is_of_event(&thread.owner)) {
            windows.extend(of_batch(&batch, detector, is_of_event));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(windows)
}

fn of_batch(
    batch: &WindowBatch,
    detector: &TrainedDetector,
    is_wanted: impl Fn(&Owner) -> bool,
) -> Vec<EventWindow> {
    let findings = detector.examine(batch).into_iter().zip(batch.threads());
    let wanted = findings.filter(|(_, thread)| is_wanted(&thread.owner));
    wanted
        .map(|(finding, thread)| EventWindow {
            start: batch.start(),
            owner: thread.owner.clone(),
            finding,
            usage: batch.usage_of(thread).cloned(),
        })
        .collect()
}
