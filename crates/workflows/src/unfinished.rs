//! Unfinished runs: a run as its log would have shown it at an earlier time.

use crate::workflow::{Span, TaskAttempt, WorkflowRun};

/// The fractions of a run's duration at which it is judged, with their names.
pub const FRACTIONS: [(&str, f64); 3] = [("25", 0.25), ("50", 0.5), ("75", 0.75)];

/// The run without everything that happened after a time.
pub fn known_at(run: &WorkflowRun, time: f64) -> WorkflowRun {
    let past = |at: Option<f64>| at.filter(|at| *at <= time);
    let over = |span: Option<Span>| span.filter(|span| span.end() <= time);
    let truncated = |attempt: &TaskAttempt| {
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
            holds: attempt.holds.iter().copied().filter(|span| span.end() <= time).collect(),
            held_since: attempt
                .holds
                .iter()
                .find(|span| (span.start()..span.end()).contains(&time))
                .map(|span| span.start())
                .or(past(attempt.held_since)),
            removed: past(attempt.removed),
            exit_code: attempt.exit_code.filter(|_| execution.is_some() || past(attempt.removed).is_some()),
            ..attempt.clone()
        }
    };
    let has_begun = |attempt: &TaskAttempt| attempt.ready.is_some() || attempt.submitted.is_some();
    WorkflowRun {
        name: run.name.clone(),
        attempts: run.attempts.iter().map(truncated).filter(has_begun).collect(),
        graph: run.graph.clone(),
    }
}

/// The run after a fraction of its duration.
pub fn first_fraction(run: &WorkflowRun, fraction: f64) -> WorkflowRun {
    known_at(run, run.start().unwrap_or_default() + fraction * run.makespan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::TaskRole;

    #[test]
    fn later_events_are_unknown() {
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
        let half = first_fraction(&run, 0.12);
        assert_eq!(half.attempts.len(), 2);
        assert!(half.attempts[0].is_over() && !half.attempts[1].is_over());
        assert_eq!(half.attempts[1].running_since, Some(6.0));
        assert_eq!(first_fraction(&run, 1.0), run);
    }

    #[test]
    fn a_hold_is_open_until_it_ends_and_a_removal_is_unknown_before_it() {
        let removed = TaskAttempt {
            submitted: Some(0.0),
            holds: vec![Span::new(10.0, 20.0).unwrap()],
            removed: Some(30.0),
            exit_code: Some(-1),
            ..TaskAttempt::new("t", TaskRole::Compute, "t", 1)
        };
        let run = WorkflowRun { attempts: vec![removed], ..WorkflowRun::default() };
        let at = |time: f64| known_at(&run, time).attempts.remove(0);
        assert_eq!((at(15.0).held_since, at(15.0).held_seconds()), (Some(10.0), 0.0));
        assert_eq!((at(25.0).held_since, at(25.0).held_seconds()), (None, 10.0));
        assert!(at(25.0).removed.is_none() && !at(25.0).is_over());
        assert_eq!(known_at(&run, 30.0), run);
    }
}
