//! `tracewise detect evaluate`

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use detect::evaluate::report::{Member, Report, write};
use detect::evaluate::{Test, evaluate, floor};
use detect::inject::{cases, contaminate};
use detect::{Data, Trained, anomalous_kinds};
use workload::Set;

use super::open;
use crate::args::EvaluateArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;

pub fn run(args: &EvaluateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if !(0.0..=0.5).contains(&args.contaminate) {
        bail!("--contaminate lies between zero and one half");
    }
    if args.ensemble == 0 {
        bail!("--ensemble is at least one");
    }
    let archive = open(args.data.as_deref(), config)?;
    let detector = &config.detector;
    let seed = args.seed.unwrap_or(detector.train.seed);
    let progress = Progress::new(format!("reading {}", archive.address()));
    let tell = |_: Set, done, total| progress.update(done, total);
    let mut data = Data::read(&archive, detector, seed, tell)?;
    let sample = Data::read_set(&archive, Set::Test, detector, seed, tell)?;
    drop(progress);
    if args.contaminate > 0.0 {
        let n_bad = contaminate(&mut data.train, args.contaminate, seed);
        eprint_note(&format!("trouble was put into {n_bad} of {} training windows", data.train.n_windows()));
    }
    let mut test = Test {
        sample: &sample,
        kinds: &data.kinds,
        anomalous_kinds: anomalous_kinds(&archive.labels()?),
        cases: &[],
    };
    let cases = cases(&test.normal_moments(), seed);
    test.cases = &cases;
    let Some(floor) = floor(&data.train, &test, seed) else {
        bail!("{}: there is nothing to judge by", archive.address())
    };
    let mut models = args.models.clone();
    models.sort_unstable();
    models.dedup();
    let mut members = Vec::new();
    for model in models {
        // What has no beginning at random is the same every time.
        let n_members = if model.is_random() { args.ensemble } else { 1 };
        for member in 0..n_members as u64 {
            let begun = Instant::now();
            let trained = Trained::fit(&data, model, detector, seed + member, None, |_| {})?;
            let train_seconds = begun.elapsed().as_secs_f64();
            let evaluation = evaluate(&trained, &test);
            eprint_note(&format!(
                "{:10} {} of {n_members}  normal error {:.5}  {}  {:.0} s",
                model.name(),
                member + 1,
                evaluation.normal_error,
                evaluation.all.map_or(String::new(), |all| format!("AUC {:.4}", all.roc_auc)),
                train_seconds
            ));
            members.push(Member { model, seed: seed + member, train_seconds, evaluation, trained });
        }
    }
    let report = Report::new(&data, &test, floor, members);
    if let Some(out) = &args.out {
        let origin = format!("tracewise detect evaluate --data {}, seed {seed}", archive.address());
        eprint_note(&write(&report, &data, &test, out, &origin)?.display().to_string());
    }
    if args.json {
        print_json(&report.numbers())?;
    } else {
        let (header, rows) = report.table();
        print_table(&header, &rows)?;
        print(&format!("\n{}", report.in_words()))?;
    }
    Ok(ExitCode::SUCCESS)
}
