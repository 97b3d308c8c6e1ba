//! The labelled jobs that events are compared with.

use std::collections::BTreeSet;

use workload::JobId;

use crate::data::KnownJobs;
use crate::detector::Finding;
use crate::kind_classifier::{KindClassifier, KindMatch, LabelledPoint};
use crate::window::WindowBatch;

/// The number of kinds that an event names.
const MAX_KINDS: usize = 3;

/// Labelled jobs that events are compared with.
#[derive(Debug, Clone, Default)]
pub struct Library {
    pub(crate) points: Vec<LabelledPoint>,
    pub(crate) known: KnownJobs,
    /// Anomalous jobs whose windows look like normal ones.
    with_normal_windows: BTreeSet<JobId>,
    classifier: Option<KindClassifier>,
}

impl Library {
    pub fn new(points: Vec<LabelledPoint>, known: KnownJobs) -> Self {
        let classifier = KindClassifier::fit(&points);
        Self { points, known, with_normal_windows: BTreeSet::new(), classifier }
    }

    /// Names anomalous jobs whose windows look like normal ones, because only their memory is anomalous. They have a name,
    /// and their windows are not known to be bad.
    #[must_use]
    pub fn with_normal_windows(self, jobs: BTreeSet<JobId>) -> Self {
        Self { with_normal_windows: jobs, ..self }
    }

    /// The points that regions are fitted to.
    pub(crate) fn region_points(&self) -> Vec<LabelledPoint> {
        let is_used = |point: &&LabelledPoint| !self.with_normal_windows.contains(&point.job);
        self.points.iter().filter(is_used).cloned().collect()
    }

    /// The labelled jobs without some of them.
    #[must_use]
    pub fn without(self, is_left_out: impl Fn(&JobId) -> bool) -> Self {
        let points = self.points.into_iter().filter(|point| !is_left_out(&point.job)).collect();
        Self::new(points, self.known).with_normal_windows(self.with_normal_windows)
    }

    /// The most similar kinds; a job does not vouch for itself.
    pub(crate) fn kinds(
        &self,
        job: Option<&JobId>,
        finding: &Finding,
        batch: &WindowBatch,
        window: usize,
    ) -> Vec<KindMatch> {
        let usage = batch.usage_of(&batch.threads()[window]);
        let is_labelled = |job: &&JobId| self.points.iter().any(|point| point.job == **job);
        let mut kinds = match job.filter(is_labelled) {
            Some(job) => {
                KindClassifier::without_job(&self.points, job).map(|one| one.classify(finding, usage))
            }
            None => self.classifier.as_ref().map(|one| one.classify(finding, usage)),
        }
        .unwrap_or_default();
        kinds.truncate(MAX_KINDS);
        kinds
    }
}
