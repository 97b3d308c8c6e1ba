//! Evaluation: what is learnt from and what is judged never overlap, and what is filed wrongly is named.

use std::io::Write;

use workflows::Recording;
use workflows::classify::{FitSettings, Model};
use workflows::dataset::{Dataset, NORMAL, Split};
use workflows::evaluate::{Protocol, choose, evaluate, folds, per_job};
use workflows::read::table;

use crate::made::{dataset, run};

#[test]
fn no_fold_judges_what_it_learnt_from_and_all_runs_are_judged_once() {
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
                    "{batch:?} is learnt from"
                );
            }
        }
    }
}

#[test]
fn figures_of_a_classifier_are_better_than_the_commonest_class() {
    let data = dataset(10);
    let figures = evaluate(
        Model::Slowdown,
        &data,
        Protocol::LeaveBatchOut,
        None,
        &FitSettings::default(),
        false,
        |_, _| {},
    )
    .unwrap();
    assert!(figures.accuracy > 0.8 && figures.accuracy > figures.commonest_accuracy + 0.3, "{figures:?}");
    assert_eq!(figures.confusion.iter().flatten().sum::<usize>(), data.runs.len());
    assert_eq!(figures.while_running.keys().copied().collect::<Vec<_>>(), ["25", "50", "75"]);
}

#[test]
fn what_is_chosen_for_a_fold_does_not_depend_on_what_it_judges() {
    let data = dataset(8);
    let (folds, _) = folds(&data, Protocol::LeaveBatchOut, None, 1).unwrap();
    let settings = FitSettings { is_for_finished: true, ..FitSettings::default() };
    let chosen = choose::for_folds(&data, &folds, &settings, &|_, _| {}).unwrap();
    assert_eq!(chosen.len(), folds.len());
    for (fold, chosen) in folds.iter().zip(&chosen) {
        let mut without = data.clone();
        fold.test.iter().for_each(|at| without.runs[*at].recording.run.attempts.clear());
        let again = choose::for_folds(&without, std::slice::from_ref(fold), &settings, &|_, _| {}).unwrap();
        assert_eq!(again, [*chosen]);
    }
    let figures =
        evaluate(Model::Slowdown, &data, Protocol::LeaveBatchOut, None, &settings, true, |_, _| {}).unwrap();
    assert_eq!(figures.chosen, chosen);
    assert!(figures.while_running.is_empty(), "nothing was learnt of runs that go on");
}

#[test]
fn folds_that_cannot_be_learnt_from_are_named_and_the_others_go_on() {
    let mut data = dataset(4);
    // All healthy runs are of one batch: without it there is nothing to tell trouble from.
    for run in data.runs.iter_mut().filter(|run| run.class() == NORMAL) {
        run.batch = Some("20260101T000000Z".into());
    }
    let settings = FitSettings { is_for_finished: true, ..FitSettings::default() };
    let figures =
        evaluate(Model::Slowdown, &data, Protocol::LeaveBatchOut, None, &settings, false, |_, _| {}).unwrap();
    assert_eq!((figures.left_out.len(), figures.n_folds, figures.n_runs), (1, 6, 12));
    assert!(figures.left_out[0].contains("told from healthy runs"));
}

#[test]
fn a_run_that_a_person_has_labelled_is_what_they_say() {
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
fn runs_are_read_from_folders_and_archives_and_conflicts_are_left_out() {
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
    let data = Dataset::read(&runs).unwrap();
    assert_eq!(data.runs.len(), 8);
    assert!(
        data.warnings.iter().any(|warning| warning.contains("filed under cpu_2 and hdd_50")),
        "{:?}",
        data.warnings
    );
    assert!(data.warnings.iter().any(|warning| warning.contains("broken-run0009.csv is left out")));
    let packed = folder.path().join("runs.tar.zst");
    let mut archive =
        tar::Builder::new(zstd::Encoder::new(std::fs::File::create(&packed).unwrap(), 1).unwrap());
    archive.append_dir_all("runs", &runs).unwrap();
    archive.into_inner().unwrap().finish().unwrap();
    assert_eq!(Dataset::read(&packed).unwrap().runs, data.runs);
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
    let split = Split::read(&split, &data).unwrap();
    assert_eq!(split.conflicting, ["made-20260102T000000Z-run0000"]);
    assert_eq!((split.train.len(), split.test.len()), (2, 1));
}

#[test]
fn troubled_tasks_are_found_among_their_neighbours() {
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
    let found = per_job::evaluate(&data, 0).unwrap();
    assert!(found.unsupervised.roc_auc > 0.8 && found.supervised.roc_auc > 0.9, "{found:?}");
}

#[test]
fn without_names_for_trouble_runs_are_usual_or_not() {
    let data = dataset(10);
    let settings = FitSettings::default();
    let figures = evaluate(Model::Usual, &data, Protocol::Random, None, &settings, false, |_, _| {}).unwrap();
    assert_eq!(figures.classes, ["normal", "unusual"]);
    assert!(figures.binary_balanced_accuracy > 0.8, "{figures:?}");
}
