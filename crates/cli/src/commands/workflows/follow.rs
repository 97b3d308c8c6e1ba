//! `tracewise workflows follow`

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use workflows::Recording;
use workflows::classify::Fitted;
use workflows::read::follow::Follower;
use workflows::read::submit_folder::SubmitFolder;
use workflows::workflow::TaskAttempt;

use super::super::stop_on_ctrl_c;
use super::classify::{in_words, lack_in_words};
use crate::args::FollowArgs;
use crate::output::{eprint_note, print};

/// A log, or a folder with a log and more.
enum Source {
    Log(Follower),
    Folder(SubmitFolder),
}

impl Source {
    fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(if path.is_dir() {
            Self::Folder(SubmitFolder::open(path)?)
        } else {
            Self::Log(Follower::new(path)?)
        })
    }

    fn catch_up(&mut self) -> anyhow::Result<bool> {
        Ok(match self {
            Self::Log(log) => log.catch_up()?,
            Self::Folder(folder) => folder.catch_up()?,
        })
    }

    fn recording(&mut self, name: &str) -> anyhow::Result<Recording> {
        Ok(match self {
            Self::Log(log) => log.recording(name),
            Self::Folder(folder) => folder.recording()?,
        })
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Log(log) => log.assembly().is_over(),
            Self::Folder(folder) => folder.is_over(),
        }
    }
}

pub fn run(args: &FollowArgs) -> anyhow::Result<ExitCode> {
    let fitted = args.model.as_deref().map(Fitted::read).transpose()?;
    let name = args.log.file_stem().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned());
    let mut source = Source::open(&args.log)?;
    let mut said: HashSet<String> = HashSet::new();
    let stop = stop_on_ctrl_c(None)?;
    loop {
        if source.catch_up()? {
            let recording = source.recording(&name)?;
            let why_not = fitted.as_ref().and_then(|fitted| fitted.why_not(&recording.run));
            let lacking = fitted.as_ref().map_or_else(Vec::new, |fitted| fitted.lacks(&recording.run));
            let lacking = lack_in_words(&lacking).filter(|_| why_not.is_none());
            // A count that has grown is no news.
            let all = recording.warnings.iter().cloned().chain(why_not.clone()).chain(lacking);
            for words in all {
                let without_count = words.trim_start_matches(|c: char| c.is_ascii_digit());
                if said.insert(without_count.to_owned()) {
                    eprint_note(&words);
                }
            }
            let fitted = fitted.as_ref().filter(|_| why_not.is_none());
            tell(&recording, fitted, source.is_over(), args.json)?;
        }
        if args.once || source.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
        if stop.wait(args.every) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn tell(recording: &Recording, fitted: Option<&Fitted>, is_over: bool, is_json: bool) -> anyhow::Result<()> {
    let run = &recording.run;
    let count =
        |is_such: &dyn Fn(&TaskAttempt) -> bool| run.attempts.iter().filter(|one| is_such(one)).count();
    let n_over = count(&|one| one.is_over());
    let n_failed = count(&|one| one.exit_code.is_some_and(|code| code != 0));
    // Nothing can be said of delays before a task is over.
    let verdict = fitted.filter(|_| n_over > 0).map(|fitted| fitted.classify(run));
    if is_json {
        return print(&serde_json::to_string(&json!({
            "run": run.name, "seconds": run.makespan(), "attempts": run.attempts.len(), "over": n_over,
            "failed": n_failed, "is_over": is_over, "verdict": verdict,
        }))?);
    }
    let state = if is_over { "over" } else { "running" };
    print(&format!(
        "{:.0} s: {state}, {n_over} of {} attempts over, {n_failed} failed",
        run.makespan(),
        run.attempts.len()
    ))?;
    match verdict {
        Some(verdict) => print(&format!("  {}", in_words(&verdict))),
        None => Ok(()),
    }
}
