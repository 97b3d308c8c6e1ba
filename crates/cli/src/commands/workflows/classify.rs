//! `tracewise workflows classify`

use std::process::ExitCode;

use serde_json::json;
use workflows::classify::{Fitted, Verdict};

use super::warn;
use crate::args::ClassifyArgs;
use crate::output::{eprint_note, print, print_json};

pub fn run(args: &ClassifyArgs) -> anyhow::Result<ExitCode> {
    let fitted = Fitted::read(&args.model)?;
    let (mut verdicts, mut is_good) = (Vec::new(), true);
    for path in &args.runs {
        match workflows::read::read(path) {
            Ok(recordings) => {
                for recording in &recordings {
                    warn(path, &recording.warnings);
                    if let Some(reason) = fitted.why_not(&recording.run) {
                        eprint_note(&format!("{}: {reason}", path.display()));
                        is_good = false;
                        continue;
                    }
                    warn(path, lack_in_words(&fitted.lacks(&recording.run)).as_slice());
                    verdicts.push((path, fitted.classify(&recording.run)));
                }
            }
            Err(error) => {
                eprint_note(&error.to_string());
                is_good = false;
            }
        }
    }
    if args.json {
        let all: Vec<_> = verdicts
            .iter()
            .map(|(path, verdict)| {
                let mut one = json!(verdict);
                one["file"] = json!(path);
                one
            })
            .collect();
        print_json(&all)?;
    } else {
        for (_, verdict) in &verdicts {
            print(&in_words(verdict))?;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is said of a log that does not have all that a model was taught by.
pub fn lack_in_words(lacking: &[&str]) -> Option<String> {
    (!lacking.is_empty()).then(|| {
        format!(
            "it says nothing of {}, which runs are told apart by: the verdict is less sure than it looks",
            lacking.join(" and ")
        )
    })
}

pub fn in_words(verdict: &Verdict) -> String {
    let chance = verdict.probabilities.get(&verdict.class).copied().unwrap_or_default();
    format!("{}: {} ({:.0} %): {}", verdict.run, verdict.class, chance * 100.0, verdict.why.because)
}
