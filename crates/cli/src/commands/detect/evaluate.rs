//! `tracewise detect evaluate`

use std::process::ExitCode;

use ::detect::evaluate::report::write;
use ::detect::evaluate::{Experiment, ExperimentStep};
use anyhow::bail;
use workload::Control;

use super::{detector_settings, with_hint};
use crate::args::EvaluateArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &EvaluateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if !(0.0..=0.5).contains(&args.contaminate) {
        bail!("--contaminate must be between 0 and 0.5");
    }
    if args.ensemble == 0 {
        bail!("--ensemble must be at least 1");
    }
    let archive = args.data.open(config)?;
    let settings = detector_settings(config)?;
    let seed = args.seed.unwrap_or(settings.train.seed);
    let stop = stop_on_signals(None)?;
    let experiment = Experiment {
        archive: &archive,
        detectors: &args.detectors,
        config: &settings,
        n_members: args.ensemble,
        seed,
        contamination: args.contaminate,
    };
    let data = {
        let progress = Progress::new(format!("reading {}", archive.address()));
        let report = |done, total| progress.update(done, total);
        experiment.read(Control::new(&stop, &report), note).map_err(with_hint)?
    };
    let (report, test) = experiment.run(&data, Control::new(&stop, &|_, _| {}), note)?;
    if let Some(out) = &args.out {
        let origin = format!("tracewise detect evaluate --data {}, seed {seed}", archive.address());
        eprint_note(&write(&report, &data.training, &test, out, &origin)?.display().to_string());
    }
    if args.json {
        print_json(&report.numbers())?;
    } else {
        let (header, rows) = report.table();
        print_table(&header, &rows)?;
        print(&format!("\n{}", report.summary()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn note(step: ExperimentStep<'_>) {
    match step {
        ExperimentStep::Contaminated { n_windows, n_total } => {
            eprint_note(&format!("injected faults into {n_windows} of {n_total} training windows"));
        }
        ExperimentStep::Member { kind, member, n_members, train_seconds, evaluation } => {
            eprint_note(&format!(
                "{:10} {member} of {n_members}  error on normal windows {:.5}  {}  {train_seconds:.0} s",
                kind.name(),
                evaluation.normal_error,
                evaluation.all.map_or(String::new(), |all| format!("AUC {:.4}", all.roc_auc)),
            ));
        }
    }
}
