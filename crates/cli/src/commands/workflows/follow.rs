//! `tracewise workflows follow`

use std::process::ExitCode;

use files::Limits;
use serde_json::json;
use workflows::classify::{TrainedClassifier, Verdict};
use workflows::read::follow::{RunFollower, Update};
use workflows::workflow::TaskAttempt;

use super::classify::{missing_inputs_warning, one_line, with_hint};
use crate::args::FollowArgs;
use crate::output::{eprint_note, print, print_json_line};
use crate::signals::stop_on_signals;

pub fn run(args: &FollowArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let classifier = args.model.as_deref().map(TrainedClassifier::read).transpose()?;
    let mut follower = RunFollower::open(&args.log, limits)?;
    let stop = stop_on_signals(None)?;
    loop {
        if let Some(update) = follower.poll()? {
            let mut messages = update.recording.warnings.clone();
            let mut verdict = None;
            match classifier.as_ref().map(|classifier| classifier.judge(&update.recording.run)) {
                Some(Ok(found)) => {
                    messages.extend(missing_inputs_warning(&found.missing_inputs));
                    verdict = Some(found);
                }
                Some(Err(reason)) => messages.push(with_hint(&reason)),
                None => {}
            }
            for message in messages.iter().filter(|message| follower.is_news(message)) {
                eprint_note(message);
            }
            show(&update, verdict.as_ref(), args.json)?;
        }
        if args.once || follower.is_over() || stop.wait(args.every) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn show(update: &Update, verdict: Option<&Verdict>, is_json: bool) -> anyhow::Result<()> {
    let run = &update.recording.run;
    let count =
        |is_such: &dyn Fn(&TaskAttempt) -> bool| run.attempts.iter().filter(|one| is_such(one)).count();
    let n_over = count(&|one| one.is_over());
    let n_failed = count(&|one| one.exit_code.is_some_and(|code| code != 0));
    let n_held = count(&|one| one.held_since.is_some());
    let n_removed = count(&|one| one.removed.is_some());
    let state = update.recording.state;
    if is_json {
        return print_json_line(&json!({
            "run": run.name, "seconds": run.makespan(), "attempts": run.attempts.len(), "over": n_over,
            "failed": n_failed, "held": n_held, "removed": n_removed, "state": state, "is_over": update.is_over,
            "verdict": verdict,
        }));
    }
    let more: String = [(n_held, "held"), (n_removed, "removed")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!(", {count} {what}"))
        .collect();
    print(&format!(
        "{:.0} s: {}, {n_over} of {} attempts over, {n_failed} failed{more}",
        run.makespan(),
        state.name(),
        run.attempts.len()
    ))?;
    match verdict {
        Some(verdict) => print(&format!("  {}", one_line(verdict))),
        None => Ok(()),
    }
}
