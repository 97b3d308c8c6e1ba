//! `tracewise workflows classify`

use std::process::ExitCode;

use files::Limits;
use serde_json::json;
use workflows::classify::{MissingInput, NotApplicable, TrainedClassifier, Verdict};

use super::warn;
use crate::args::ClassifyArgs;
use crate::output::{eprint_note, print, print_json};

pub fn run(args: &ClassifyArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let classifier = TrainedClassifier::read(&args.model)?;
    let (mut verdicts, mut is_complete) = (Vec::new(), true);
    for path in &args.runs {
        let recordings = match workflows::read::read(path, limits) {
            Ok(recordings) => recordings,
            Err(error) => {
                eprint_note(&error.to_string());
                is_complete = false;
                continue;
            }
        };
        for recording in &recordings {
            warn(path, &recording.warnings);
            match classifier.judge(&recording.run) {
                Ok(verdict) => {
                    warn(path, missing_inputs_warning(&verdict.missing_inputs).as_slice());
                    verdicts.push((path, verdict));
                }
                Err(reason) => {
                    warn(path, &[with_hint(&reason)]);
                    is_complete = false;
                }
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
            print(&one_line(verdict))?;
        }
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn with_hint(reason: &NotApplicable) -> String {
    let hint = match reason {
        NotApplicable::MissingInputs { .. } => {
            " (hint: the submit directory has them in the records of kickstart; logs alone do not)"
        }
        NotApplicable::NotFinished { .. } => " (hint: the model was trained with --finished)",
        NotApplicable::OtherWorkflow { .. } | NotApplicable::TooEarly { .. } => "",
    };
    format!("{reason}{hint}")
}

pub fn missing_inputs_warning(missing: &[MissingInput]) -> Option<String> {
    let names: Vec<&str> = missing.iter().map(|input| input.name()).collect();
    (!names.is_empty()).then(|| {
        format!("the run lacks {}; the verdict is less certain than its probability", names.join(" and "))
    })
}

pub fn one_line(verdict: &Verdict) -> String {
    let probability = verdict.probabilities.get(&verdict.class).copied().unwrap_or_default();
    let summary = &verdict.explanation.summary;
    let percent = probability * 100.0;
    if verdict.is_certain {
        format!("{}: {} ({percent:.0} %): {summary}", verdict.run, verdict.class)
    } else {
        format!("{}: cannot tell; most likely {} ({percent:.0} %): {summary}", verdict.run, verdict.class)
    }
}
