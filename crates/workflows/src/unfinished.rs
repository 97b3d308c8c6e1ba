//! Runs that are not over: what a log would have said at a moment.

use crate::workflow::{Span, TaskAttempt, WorkflowRun};

/// Shares of a run after which it is looked at, with their names.
pub const SHARES: [(&str, f64); 3] = [("25", 0.25), ("50", 0.5), ("75", 0.75)];

/// The run as it was known at a moment; what had not happened yet is not in it.
pub fn known_at(run: &WorkflowRun, moment: f64) -> WorkflowRun {
    let past = |at: Option<f64>| at.filter(|at| *at <= moment);
    let over = |span: Option<Span>| span.filter(|span| span.end() <= moment);
    let cut = |attempt: &TaskAttempt| {
        let execution = over(attempt.execution);
        let kept = |value: Option<f64>| value.filter(|_| execution.is_some());
        TaskAttempt {
            ready: past(attempt.ready),
            pre_script: over(attempt.pre_script),
            submitted: past(attempt.submitted),
            execution,
            running_since: past(attempt.execution.map(Span::start).or(attempt.running_since))
                .filter(|_| execution.is_none()),
            stage_in: over(attempt.stage_in).filter(|_| execution.is_some()),
            stage_out: over(attempt.stage_out).filter(|_| execution.is_some()),
            post_script: over(attempt.post_script),
            cpu_seconds: kept(attempt.cpu_seconds),
            stage_in_bytes: kept(attempt.stage_in_bytes),
            stage_out_bytes: kept(attempt.stage_out_bytes),
            exit_code: attempt.exit_code.filter(|_| execution.is_some()),
            ..attempt.clone()
        }
    };
    let has_begun = |attempt: &TaskAttempt| attempt.ready.is_some() || attempt.submitted.is_some();
    WorkflowRun {
        name: run.name.clone(),
        attempts: run.attempts.iter().map(cut).filter(has_begun).collect(),
        children: run.children.clone(),
    }
}

/// The run after a share of its time.
pub fn after(run: &WorkflowRun, share: f64) -> WorkflowRun {
    known_at(run, run.start().unwrap_or_default() + share * run.makespan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::TaskRole;

    #[test]
    fn what_has_not_happened_is_not_known() {
        let attempt = |at: f64| TaskAttempt {
            ready: Some(at),
            submitted: Some(at),
            execution: Span::new(at + 1.0, at + 10.0).ok(),
            exit_code: Some(0),
            ..TaskAttempt::new(format!("t_{at}"), TaskRole::Compute, "t", 1)
        };
        let run = WorkflowRun {
            attempts: vec![attempt(0.0), attempt(5.0), attempt(90.0)],
            ..WorkflowRun::default()
        };
        let half = after(&run, 0.12);
        assert_eq!(half.attempts.len(), 2);
        assert!(half.attempts[0].is_over() && !half.attempts[1].is_over());
        assert_eq!(half.attempts[1].running_since, Some(6.0));
        assert_eq!(after(&run, 1.0), run);
    }
}
