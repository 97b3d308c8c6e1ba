//! Whether a run can be judged at all: it has to be of the workflow that was learnt from, far enough, and say what runs are told
//! apart by.

use std::collections::{BTreeSet, HashSet};

use crate::workflow::{TaskAttempt, TaskRole, WorkflowRun};

use super::{Fitted, n_over};
use crate::features::Quantity;
use crate::read::kind::by_name;

/// The share of attempts from which on a run counts as over, for a model that knows no other.
const ALL_BUT_OVER: f64 = 0.875;

impl Fitted {
    /// Why a run cannot be judged: it is of another workflow than those that were learnt from, or not far enough.
    pub fn why_not(&self, run: &WorkflowRun) -> Option<String> {
        // Every workflow makes folders and moves files: those say nothing of which it is.
        let is_own = |kind: &str| by_name(kind).0 == TaskRole::Compute;
        let known: BTreeSet<&str> = self.usual.kinds().into_iter().filter(|kind| is_own(kind)).collect();
        let own: Vec<&TaskAttempt> =
            run.attempts.iter().filter(|one| one.role == TaskRole::Compute && is_own(&one.kind)).collect();
        let n_known = own.iter().filter(|one| known.contains(one.kind.as_str())).count();
        if !known.is_empty() && n_known * 2 < own.len() {
            return Some(format!(
                "{} is of another workflow: {n_known} of its {} computing tasks are of kinds that were learnt from ({})",
                run.name,
                own.len(),
                known.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        let n_over = n_over(run);
        let least = self.least_attempts.unwrap_or(self.n_attempts);
        let progress = n_over as f64 / least.max(1.0);
        if self.origin.settings.is_for_finished && progress < ALL_BUT_OVER {
            return Some(format!(
                "{n_over} of at least {least:.0} tasks of {} are over, and this model was taught for runs that are (--finished)",
                run.name
            ));
        }
        let earliest = self.early.iter().map(|early| early.progress).reduce(f64::min);
        let is_any_over = known.is_empty() || own.iter().any(|one| one.is_over());
        (!is_any_over || earliest.is_some_and(|earliest| progress < earliest / 2.0)).then(|| {
            format!("it is too early to judge {}: {n_over} of at least {least:.0} tasks are over", run.name)
        })
    }

    /// What a run says nothing of that was learnt from; a verdict without it is a guess.
    pub fn lacks(&self, run: &WorkflowRun) -> Vec<&'static str> {
        let over = || run.attempts.iter().filter(|one| one.execution.is_some());
        let kinds: HashSet<&str> = over().map(|one| one.kind.as_str()).collect();
        let is_usual =
            |quantity: Quantity| kinds.iter().any(|kind| self.usual.range(kind, quantity).is_some());
        let lacks = |quantity: Quantity, is_said: &dyn Fn(&TaskAttempt) -> bool| {
            (is_usual(quantity) && !over().any(is_said)).then(|| quantity.in_words())
        };
        // Charts show no processor's time.
        let cpu =
            lacks(Quantity::Cpu, &|one| one.cpu_seconds.is_some()).filter(|_| self.model.network().is_none());
        cpu.into_iter().chain(lacks(Quantity::StageIn, &|one| one.stage_in.is_some())).collect()
    }
}
