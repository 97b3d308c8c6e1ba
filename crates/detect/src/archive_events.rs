//! The events of an archive: the same as those of a stream with its readings.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use archive::Archive;
use workload::Control;

use crate::archive_windows::Reading;
use crate::data::{Examiner, KnownJobs};
use crate::detector::Finding;
use crate::error::DetectError;
use crate::event::{Event, EventChange};
use crate::library::Library;
use crate::monitor::Monitor;
use crate::split::WindowFilter;
use crate::trained::TrainedDetector;
use crate::window::WindowBatch;

/// An archive to find events in.
pub struct ArchiveEvents<'a> {
    pub archive: &'a Archive,
    pub detector: &'a TrainedDetector,
    pub filter: &'a WindowFilter,
    pub known: &'a KnownJobs,
    pub control: Control<'a>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct FoundEvents {
    /// In order of their starts.
    pub events: Vec<Event>,
    pub n_windows: usize,
    /// How much time was observed.
    pub hours: f64,
}

impl ArchiveEvents<'_> {
    /// Finds the events. Those that still deviated at the end of the archive are open.
    pub fn find(&self, library: Library) -> Result<FoundEvents, DetectError> {
        let mut monitor = Monitor::new(self.detector, self.known, library)?;
        let mut found: BTreeMap<String, Event> = BTreeMap::new();
        let (mut n_windows, mut n_batches) = (0, 0);
        self.observe(&mut monitor, |_, batch, changes| {
            n_windows += batch.threads().len();
            n_batches += 1;
            for change in changes {
                let event = change.event().clone();
                found.insert(event.id.clone(), event);
            }
        })?;
        // Strengths and affected jobs of open events may have changed since they were opened.
        found.extend(monitor.finish().into_iter().map(|event| (event.id.clone(), event)));
        let mut events: Vec<Event> = found.into_values().collect();
        events.sort_by(|a, b| (a.opened, &a.id).cmp(&(b.opened, &b.id)));
        let stride = self.detector.event_spec().stride_length();
        let hours = f64::from(n_batches) * stride.as_seconds() / 3_600.0;
        Ok(FoundEvents { events, n_windows, hours })
    }

    /// Lets a monitor observe the archive, and tells after each batch what happened to events.
    pub fn observe<'m>(
        &self,
        monitor: &mut Monitor<'m>,
        mut visit: impl FnMut(&mut Monitor<'m>, &WindowBatch, Vec<EventChange>),
    ) -> Result<(), DetectError> {
        let (detector, spec) = (self.detector, self.detector.event_spec());
        let examine = |batch: &WindowBatch| detector.examine(batch);
        let mut decide = |batch: &WindowBatch, findings: Vec<Finding>| {
            let changes = monitor.decide(batch, findings);
            visit(monitor, batch, changes);
        };
        let mut examiner = Examiner { examine: &examine, stop: self.control.stop(), waiting: Vec::new() };
        let reading =
            Reading { archive: self.archive, filter: self.filter, spec: &spec, control: self.control };
        reading.for_each_batch::<DetectError>(|batch| {
            examiner.push(batch, &mut decide)?;
            Ok(ControlFlow::Continue(()))
        })?;
        examiner.flush(&mut decide)
    }
}
