//! Whether a classifier applies to a run: the run has to be of the same workflow as the training set, far enough
//! advanced, and contain the inputs that the classifier relies on.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;

use super::TrainedClassifier;
use crate::features::Quantity;
use crate::read::kind;
use crate::workflow::{TaskAttempt, TaskRole, WorkflowRun};

/// The fraction of tasks from which on a run counts as finished.
const FINISHED_FRACTION: f64 = 0.875;

/// Why a classifier cannot judge a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApplicable {
    /// Most compute tasks are of kinds that the training set does not have.
    #[error("{run} is a run of another workflow: {n_known} of its {n_tasks} compute tasks are of known kinds ({})", .known_kinds.join(", "))]
    OtherWorkflow { run: String, n_known: usize, n_tasks: usize, known_kinds: Vec<String> },
    /// Too few tasks are over.
    #[error("it is too early to judge {run}: {n_over} of at least {n_expected} tasks are over")]
    TooEarly { run: String, n_over: usize, n_expected: usize },
    /// The run goes on, and the classifier was trained for finished runs.
    #[error(
        "{run} is not finished: {n_over} of at least {n_expected} tasks are over, and the classifier was trained for finished runs"
    )]
    NotFinished { run: String, n_over: usize, n_expected: usize },
    /// All inputs that distinguish faults are missing.
    #[error("{run} has neither CPU times nor staging times, which the classifier needs")]
    MissingInputs { run: String },
}

/// An input that the training set has and a run lacks. A verdict without it is less certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingInput {
    CpuTime,
    StageIn,
}

impl MissingInput {
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuTime => Quantity::Cpu.name(),
            Self::StageIn => Quantity::StageIn.name(),
        }
    }
}

/// The attempts whose execution is over.
pub(super) fn n_over(run: &WorkflowRun) -> usize {
    run.attempts.iter().filter(|attempt| attempt.is_over()).count()
}

impl TrainedClassifier {
    /// Checks whether the classifier applies to a run, and returns the inputs that the run lacks.
    pub(super) fn applicability(&self, run: &WorkflowRun) -> Result<Vec<MissingInput>, NotApplicable> {
        // Every workflow creates directories and moves files, so only compute tasks identify a workflow.
        let is_own = |kind: &str| kind::from_name(kind).0 == TaskRole::Compute;
        let known: BTreeSet<&str> = self.baseline.kinds().into_iter().filter(|kind| is_own(kind)).collect();
        let own: Vec<&TaskAttempt> =
            run.attempts.iter().filter(|one| one.role == TaskRole::Compute && is_own(&one.kind)).collect();
        let n_known = own.iter().filter(|one| known.contains(one.kind.as_str())).count();
        if !known.is_empty() && n_known * 2 < own.len() {
            return Err(NotApplicable::OtherWorkflow {
                run: run.name.clone(),
                n_known,
                n_tasks: own.len(),
                known_kinds: known.into_iter().map(str::to_owned).collect(),
            });
        }
        let n_over = n_over(run);
        let n_expected = self.min_attempts.unwrap_or(self.median_attempts).max(1.0);
        let progress = n_over as f64 / n_expected;
        let (run_name, n_expected) = (run.name.clone(), n_expected as usize);
        if self.origin.settings.is_for_finished && progress < FINISHED_FRACTION {
            return Err(NotApplicable::NotFinished { run: run_name, n_over, n_expected });
        }
        let earliest = self.early.iter().map(|early| early.progress).reduce(f64::min);
        let is_any_over = known.is_empty() || own.iter().any(|one| one.is_over());
        if !is_any_over || earliest.is_some_and(|earliest| progress < earliest / 2.0) {
            return Err(NotApplicable::TooEarly { run: run_name, n_over, n_expected });
        }
        let (missing, is_all) = self.missing_inputs(run);
        if is_all { Err(NotApplicable::MissingInputs { run: run_name }) } else { Ok(missing) }
    }

    /// The inputs that the run lacks, and whether these are all that the classifier relies on.
    fn missing_inputs(&self, run: &WorkflowRun) -> (Vec<MissingInput>, bool) {
        let over = || run.attempts.iter().filter(|one| one.execution.is_some());
        let kinds: HashSet<&str> = over().map(|one| one.kind.as_str()).collect();
        let is_expected =
            |quantity: Quantity| kinds.iter().any(|kind| self.baseline.range(kind, quantity).is_some());
        let (mut missing, mut n_expected) = (Vec::new(), 0);
        // Charts do not show CPU time, so networks do not need it.
        if self.kind.network().is_none() && is_expected(Quantity::Cpu) {
            n_expected += 1;
            if !over().any(|one| one.cpu_seconds.is_some()) {
                missing.push(MissingInput::CpuTime);
            }
        }
        if is_expected(Quantity::StageIn) {
            n_expected += 1;
            if !over().any(|one| one.stage_in.is_some()) {
                missing.push(MissingInput::StageIn);
            }
        }
        let is_all = n_expected > 1 && missing.len() == n_expected;
        (missing, is_all)
    }
}
