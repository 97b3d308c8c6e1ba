//! Evaluation protocols: training and test runs never overlap, and mislabelled runs are reported.

use std::io::Write;

use files::Limits;
use workflows::Error;
use workflows::Recording;
use workflows::classify::{ClassifierKind, ClassifierSettings, TrainingPlan};
use workflows::dataset::{Dataset, NORMAL, Split};
use workflows::evaluate::{Evaluation, EvaluationPlan, Protocol, choose, evaluate, folds, per_job};
use workflows::read::table;
use workload::Stop;

use crate::made::{dataset, run};

fn evaluated(
    kind: ClassifierKind,
    data: &Dataset,
    settings: ClassifierSettings,
    protocol: Protocol,
) -> Evaluation {
    let training = TrainingPlan::new(kind, settings).unwrap();
    let plan = EvaluationPlan { training: &training, protocol, split: None, is_nested: false };
    evaluate(&plan, data, &Stop::default(), |_, _| {}).unwrap()
}

#[test]
fn an_evaluation_ends_soon_after_it_is_stopped() {
    let data = dataset(40);
    for (kind, is_nested) in
        [(ClassifierKind::Slowdown, false), (ClassifierKind::Slowdown, true), (ClassifierKind::Cnn, false)]
    {
        let training = TrainingPlan::new(kind, ClassifierSettings::default()).unwrap();
        let protocol = Protocol::LeaveBatchOut;
        let plan = EvaluationPlan { training: &training, protocol, split: None, is_nested };
        let stop = Stop::default();
        let stopped = stop.clone();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            stopped.now();
            std::time::Instant::now()
        });
        let found = evaluate(&plan, &data, &stop, |_, _| {});
        let requested = stopper.join().unwrap();
        assert!(matches!(found, Err(Error::Stopped(_))), "{}", kind.name());
        let waited = requested.elapsed().as_secs_f64();
        // A second on a quiet machine; tests share theirs with others.
        assert!(waited < 3.0, "{} ended {waited:.1} s later", kind.name());
    }
}

#[test]
fn no_fold_judges_its_training_runs_and_every_run_is_judged_once() {
    let data = dataset(10);
    for protocol in [Protocol::Random, Protocol::LeaveBatchOut] {
        let (folds, _) = folds(&data, protocol, None, 1).unwrap();
        let mut judged: Vec<usize> = folds.iter().flat_map(|fold| fold.test.clone()).collect();
        judged.sort_unstable();
        assert_eq!(judged, (0..data.runs.len()).collect::<Vec<_>>());
        for fold in &folds {
            assert!(fold.train.iter().all(|at| !fold.test.contains(at)));
            if protocol == Protocol::LeaveBatchOut {
                let batch = &data.runs[fold.test[0]].batch;
                assert!(
                    fold.train.iter().all(|at| data.runs[*at].batch != *batch),
                    "{batch:?} is in the training set"
                );
            }
        }
    }
}

#[test]
fn a_classifier_is_better_than_the_majority_class() {
    let data = dataset(10);
    let evaluation =
        evaluated(ClassifierKind::Slowdown, &data, ClassifierSettings::default(), Protocol::LeaveBatchOut);
    let majority = evaluation.majority_class_accuracy;
    assert!(evaluation.accuracy > 0.8 && evaluation.accuracy > majority + 0.3, "{evaluation:?}");
    assert_eq!(evaluation.confusion.iter().flatten().sum::<usize>(), data.runs.len());
    assert_eq!(evaluation.while_running.keys().copied().collect::<Vec<_>>(), ["25", "50", "75"]);
}

#[test]
fn hyper_parameters_of_a_fold_do_not_depend_on_its_test_runs() {
    let data = dataset(8);
    let (folds, _) = folds(&data, Protocol::LeaveBatchOut, None, 1).unwrap();
    let settings = ClassifierSettings { is_for_finished: true, ..ClassifierSettings::default() };
    let chosen = choose::for_folds(&data, &folds, settings.seed, &Stop::default(), &|_, _| {}).unwrap();
    assert_eq!(chosen.len(), folds.len());
    for (fold, chosen) in folds.iter().zip(&chosen) {
        let mut without = data.clone();
        for at in &fold.test {
            without.runs[*at].recording.run.attempts.clear();
        }
        let one = std::slice::from_ref(fold);
        let again = choose::for_folds(&without, one, settings.seed, &Stop::default(), &|_, _| {}).unwrap();
        assert_eq!(again, [*chosen]);
    }
    let training = TrainingPlan::new(ClassifierKind::Slowdown, settings).unwrap();
    let protocol = Protocol::LeaveBatchOut;
    let plan = EvaluationPlan { training: &training, protocol, split: None, is_nested: true };
    let evaluation = evaluate(&plan, &data, &Stop::default(), |_, _| {}).unwrap();
    assert_eq!(evaluation.chosen, chosen);
    assert!(evaluation.while_running.is_empty(), "it was trained for finished runs");
}

#[test]
fn a_fold_without_healthy_runs_is_skipped_and_the_others_are_judged() {
    let mut data = dataset(4);
    // All healthy runs are of one batch.
    for run in data.runs.iter_mut().filter(|run| run.class() == NORMAL) {
        run.batch = Some("20260101T000000Z".into());
    }
    let settings = ClassifierSettings { is_for_finished: true, ..ClassifierSettings::default() };
    let evaluation = evaluated(ClassifierKind::Slowdown, &data, settings, Protocol::LeaveBatchOut);
    assert_eq!((evaluation.skipped_folds.len(), evaluation.n_folds, evaluation.n_runs), (1, 6, 12));
    assert!(evaluation.skipped_folds[0].contains("needs healthy runs"));
}

#[test]
fn a_new_label_replaces_the_old_one() {
    let mut data = dataset(4);
    let (n_runs, known) = (data.runs.len(), data.runs[5].recording.clone());
    assert_eq!(
        (data.label(known, "hdd_5"), data.runs[5].label.as_str(), data.runs.len()),
        (5, "hdd_5", n_runs)
    );
    assert_eq!(data.warnings.len(), 1);
    let other = Recording { run: run("other-run0001", 99), ..Recording::default() };
    assert_eq!((data.label(other, "cpu_2"), data.runs.len()), (n_runs, n_runs + 1));
}

#[test]
fn runs_are_read_from_directories_and_archives_and_conflicts_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let write = |label: &str, name: &str, seed: u64| {
        let path = folder.path().join("runs").join(label);
        std::fs::create_dir_all(&path).unwrap();
        let file = std::fs::File::create(path.join(format!("{name}.csv"))).unwrap();
        table::write(&run(name, seed), &[], file).unwrap();
    };
    for at in 0..4 {
        write("normal", &format!("made-20260101T000000Z-run000{at}"), at);
        write("cpu_2", &format!("made-20260102T000000Z-run000{at}"), 10 + at);
    }
    write("hdd_50", "made-20260102T000000Z-run0001", 11);
    // Another run that was given the same name.
    write("loss_1", "made-20260102T000000Z-run0003", 99);
    std::fs::write(folder.path().join("runs/normal/broken-run0009.csv"), "a,b\n1,2\n").unwrap();
    let runs = folder.path().join("runs");
    let data = Dataset::read(&runs, &Limits::default()).unwrap();
    assert_eq!(data.runs.len(), 8);
    assert!(
        data.warnings.iter().any(|warning| warning.contains("has the labels cpu_2 and hdd_50")),
        "{:?}",
        data.warnings
    );
    assert!(data.warnings.iter().any(|warning| warning.contains("broken-run0009.csv is skipped")));
    let packed = folder.path().join("runs.tar.zst");
    let mut archive =
        tar::Builder::new(zstd::Encoder::new(std::fs::File::create(&packed).unwrap(), 1).unwrap());
    archive.append_dir_all("runs", &runs).unwrap();
    archive.into_inner().unwrap().finish().unwrap();
    assert_eq!(Dataset::read(&packed, &Limits::default()).unwrap().runs, data.runs);
    // The split has one run under another label than the data.
    let split = folder.path().join("split.csv");
    let mut file = std::fs::File::create(&split).unwrap();
    writeln!(file, "split,label,main_label,run").unwrap();
    for (part, label, name) in [
        ("train", "normal", "made-20260101T000000Z-run0000"),
        ("train", "hdd_50", "made-20260102T000000Z-run0000"),
        ("train", "cpu_2", "made-20260102T000000Z-run0002"),
        ("test", "normal", "made-20260101T000000Z-run0001"),
    ] {
        writeln!(file, "{part},{label},x,{name}").unwrap();
    }
    let split = Split::read(&split, &data, &Limits::default()).unwrap();
    assert_eq!(split.conflicting, ["made-20260102T000000Z-run0000"]);
    assert_eq!((split.train.len(), split.test.len()), (2, 1));
}

#[test]
fn anomalous_tasks_are_ranked_first() {
    let mut data = dataset(12);
    for one in &mut data.runs {
        let is_such = one.class() == "cpu";
        let labels = one
            .recording
            .run
            .attempts
            .iter()
            .map(|attempt| (is_such && attempt.kind == "count").then(|| "cpu_3".into()));
        one.recording.labels = labels.collect();
    }
    let found = per_job::evaluate(&data, 0, &Stop::default()).unwrap();
    assert!(found.unsupervised.roc_auc > 0.8 && found.supervised.roc_auc > 0.9, "{found:?}");
}

#[test]
fn a_baseline_separates_healthy_from_anomalous_runs() {
    let data = dataset(10);
    let settings = ClassifierSettings::default();
    let evaluation = evaluated(ClassifierKind::Baseline, &data, settings, Protocol::Random);
    assert_eq!(evaluation.classes, ["normal", "anomalous"]);
    assert!(evaluation.binary_balanced_accuracy > 0.8, "{evaluation:?}");
}
