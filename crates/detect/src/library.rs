//! The labelled jobs that events are compared with.

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
    classifier: Option<KindClassifier>,
}

impl Library {
    pub fn new(points: Vec<LabelledPoint>, known: KnownJobs) -> Self {
        let classifier = KindClassifier::fit(&points);
        Self { points, known, classifier }
    }

    /// The labelled jobs without some of them.
    #[must_use]
    pub fn without(self, is_left_out: impl Fn(&JobId) -> bool) -> Self {
        let points = self.points.into_iter().filter(|point| !is_left_out(&point.job)).collect();
        Self::new(points, self.known)
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
