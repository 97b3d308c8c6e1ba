//! What every classifier guarantees.

use std::path::Path;

use learn::artifact::Provenance;
use workflows::Error;
use workflows::classify::{
    ClassifierKind, ClassifierSettings, MissingInput, NotApplicable, TrainedClassifier, TrainingPlan,
};
use workflows::dataset::NORMAL;
use workflows::unfinished::first_fraction;
use workflows::workflow::{Span, TaskAttempt, TaskRole};
use workload::Stop;

use crate::made::{dataset, run};

/// AlexNet and VGG-16 are only compared with torchvision: their artifacts are hundreds of megabytes.
const KINDS: [ClassifierKind; 6] = [
    ClassifierKind::Cnn,
    ClassifierKind::EfficientnetLite0,
    ClassifierKind::Trees,
    ClassifierKind::Centroid,
    ClassifierKind::Slowdown,
    ClassifierKind::Baseline,
];

fn train(kind: ClassifierKind) -> TrainedClassifier {
    let data = dataset(10);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let n_epochs = (kind == ClassifierKind::Cnn).then_some(12);
    let settings = ClassifierSettings { seed: 3, n_epochs, ..ClassifierSettings::default() };
    let plan = TrainingPlan::new(kind, settings).unwrap();
    TrainedClassifier::train(&plan, &data.select(&all), &[], &Stop::default(), |_| {}).unwrap()
}

#[test]
fn every_classifier_is_better_than_chance_explains_itself_and_can_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(14);
    for kind in KINDS {
        let classifier = train(kind);
        let path = folder.path().join(kind.name());
        classifier.write(&path, &Provenance::default()).unwrap();
        let stored = TrainedClassifier::read(&path).unwrap();
        let (mut n_right, mut n_all) = (0, 0);
        for one in data.runs.iter().filter(|one| !one.name().ends_with('0')) {
            let run = &one.recording.run;
            let probabilities = classifier.probabilities(run);
            let sum: f64 = probabilities.iter().sum();
            assert!((sum - 1.0).abs() < 1e-6, "{}: {probabilities:?}", kind.name());
            assert_eq!(stored.probabilities(run), probabilities, "{} differs after storing", kind.name());
            let verdict = classifier.judge(run).unwrap();
            assert!(!verdict.explanation.summary.is_empty() && verdict.missing_inputs.is_empty());
            assert_eq!(verdict.probabilities.len(), classifier.classes.len());
            n_right += usize::from(match kind {
                ClassifierKind::Baseline => (verdict.class == NORMAL) == (one.class() == NORMAL),
                _ => verdict.class == one.class(),
            });
            n_all += 1;
        }
        assert!(n_right * 10 > n_all * 7, "{}: {n_right} of {n_all}", kind.name());
    }
}

#[test]
fn the_same_seed_trains_the_same_classifier() {
    for kind in [ClassifierKind::Cnn, ClassifierKind::Slowdown, ClassifierKind::Trees] {
        let other = run("other", 77);
        assert_eq!(train(kind).probabilities(&other), train(kind).probabilities(&other), "{}", kind.name());
    }
}

#[test]
fn runs_of_another_workflow_and_runs_that_have_hardly_started_are_not_judged() {
    for kind in KINDS {
        let classifier = train(kind);
        let mut foreign = run("foreign", 6);
        for attempt in &mut foreign.attempts {
            attempt.kind = format!("other {}", attempt.kind);
        }
        let expected = NotApplicable::OtherWorkflow {
            run: "foreign".into(),
            n_known: 0,
            n_tasks: 9,
            known_kinds: vec!["count".into(), "gather".into()],
        };
        assert_eq!(classifier.judge(&foreign), Err(expected), "{}", kind.name());
        // Every workflow has auxiliary tasks; they do not make it the same workflow.
        foreign.attempts.push(TaskAttempt::new("create_dir_0", TaskRole::Auxiliary, "create_dir", 1));
        assert!(matches!(classifier.judge(&foreign), Err(NotApplicable::OtherWorkflow { .. })));
        assert!(classifier.judge(&run("known", 6)).is_ok());
        for fraction in [0.0, 0.1, 0.2] {
            let found = classifier.judge(&first_fraction(&run("known", 6), fraction));
            assert!(matches!(found, Err(NotApplicable::TooEarly { .. })), "{}: {found:?}", kind.name());
        }
        let late = first_fraction(&run("known", 6), 0.9);
        let verdict = classifier.judge(&late).unwrap();
        assert!(verdict.probabilities.values().all(|probability| probability.is_finite()));
    }
}

#[test]
fn a_classifier_for_finished_runs_does_not_judge_others() {
    let data = dataset(6);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let settings = ClassifierSettings { is_for_finished: true, ..ClassifierSettings::default() };
    let plan = TrainingPlan::new(ClassifierKind::Slowdown, settings).unwrap();
    let classifier =
        TrainedClassifier::train(&plan, &data.select(&all), &[], &Stop::default(), |_| {}).unwrap();
    let mut half = run("half", 6);
    half.attempts.truncate(6);
    let expected = NotApplicable::NotFinished { run: "half".into(), n_over: 6, n_expected: 9 };
    assert_eq!(classifier.judge(&half), Err(expected));
    assert!(classifier.judge(&run("whole", 6)).is_ok());
}

#[test]
fn a_manifest_with_other_classes_than_the_weights_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    train(ClassifierKind::Centroid).write(&path, &Provenance::default()).unwrap();
    let manifest = path.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["body"]["classes"].as_array_mut().unwrap().pop();
    std::fs::write(&manifest, json.to_string()).unwrap();
    let rejected = TrainedClassifier::read(&path).err().unwrap().to_string();
    assert!(rejected.contains("different classes"), "{rejected}");
}

#[test]
fn a_fault_of_a_few_tasks_is_anomalous_and_its_delay_is_not_called_near_the_baseline() {
    let classifier = train(ClassifierKind::Baseline);
    let mut slow = run("slow", 5);
    for attempt in &mut slow.attempts[..2] {
        let execution = attempt.execution.unwrap();
        attempt.execution = Span::new(execution.start(), execution.end() + 200.0).ok();
        attempt.stage_out = None;
    }
    let verdict = classifier.judge(&slow).unwrap();
    assert_eq!(verdict.class, "anomalous");
    let summary = &verdict.explanation.summary;
    assert!(summary.starts_with("runtime of 2 of 8 count tasks"), "{summary}");
    assert!(!summary.contains("runtime near the baseline"), "{summary}");
    let healthy = classifier.judge(&run("healthy", 5)).unwrap();
    let found = (healthy.class.as_str(), healthy.explanation.summary.as_str());
    assert_eq!(found, (NORMAL, "all delays near the baseline: healthy"));
}

#[test]
fn overdue_tasks_are_named_and_missing_inputs_are_reported() {
    let classifier = train(ClassifierKind::Slowdown);
    let mut hung = run("hung", 5);
    let since = hung.attempts[3].execution.take().unwrap().start();
    hung.attempts[3].running_since = Some(since);
    hung.attempts[8].execution = Span::new(since + 900.0, since + 930.0).ok();
    let verdict = classifier.judge(&hung).unwrap();
    assert_eq!(verdict.explanation.overdue[0].tasks, ["count_ID0000003"]);
    let summary = &verdict.explanation.summary;
    assert!(summary.starts_with("count_ID0000003 is still running after 930 s (baseline"), "{summary}");
    for attempt in &mut hung.attempts {
        attempt.stage_in = None;
    }
    let verdict = classifier.judge(&hung).unwrap();
    assert_eq!(verdict.missing_inputs, [MissingInput::StageIn]);
    // A runtime that includes staging is not compared with one that does not.
    let is_runtime =
        |reason: &workflows::explain::Reason| reason.delay == "runtime" && reason.kind == "count";
    assert!(!verdict.explanation.reasons.iter().any(is_runtime));
    for attempt in &mut hung.attempts {
        attempt.cpu_seconds = None;
    }
    assert_eq!(classifier.judge(&hung), Err(NotApplicable::MissingInputs { run: "hung".into() }));
}

#[test]
fn training_sets_that_lack_runs_or_classes_are_rejected() {
    let data = dataset(4);
    let select = |is_healthy: bool| -> Vec<usize> {
        (0..data.runs.len()).filter(|at| (data.runs[*at].class() == NORMAL) == is_healthy).collect()
    };
    let (healthy, faulty) = (select(true), select(false));
    let train = |kind, runs: &[usize]| {
        let plan = TrainingPlan::new(kind, ClassifierSettings::default()).unwrap();
        TrainedClassifier::train(&plan, &data.select(runs), &[], &Stop::default(), |_| {}).err()
    };
    let (slowdown, trees) = (ClassifierKind::Slowdown, ClassifierKind::Trees);
    assert!(matches!(train(slowdown, &healthy), Some(Error::SingleClass { .. })));
    assert!(matches!(train(trees, &healthy[..1]), Some(Error::TooFewRuns { found: 1, .. })));
    assert!(matches!(train(trees, &[]), Some(Error::TooFewRuns { found: 0, .. })));
    for kind in [slowdown, ClassifierKind::Baseline] {
        assert!(matches!(train(kind, &faulty), Some(Error::NoHealthyRuns { .. })));
    }
    assert_eq!(ClassifierKind::recommended_for(&data), slowdown);
}

#[test]
fn a_training_ends_when_it_is_stopped() {
    let data = dataset(4);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let stop = Stop::default();
    stop.now();
    for kind in KINDS {
        let plan = TrainingPlan::new(kind, ClassifierSettings::default()).unwrap();
        let found = TrainedClassifier::train(&plan, &data.select(&all), &[], &stop, |_| {});
        assert!(matches!(found, Err(Error::Stopped(_))), "{}", kind.name());
    }
}

#[test]
fn reasons_name_the_tasks_the_delay_and_the_fault() {
    let data = dataset(10);
    let classifier = train(ClassifierKind::Slowdown);
    let lossy = data.runs.iter().find(|one| one.class() == "loss").unwrap();
    let verdict = classifier.judge(&lossy.recording.run).unwrap();
    assert_eq!(verdict.class, "loss");
    let first = &verdict.explanation.reasons[0];
    assert_eq!((first.kind.as_str(), first.delay), ("count", "stage_in"));
    assert!(first.ratio > 2.0 && first.tasks.len() >= 6 && first.end > first.start, "{first:?}");
    let summary = &verdict.explanation.summary;
    assert!(summary.contains("stage_in of") && summary.ends_with(": network"), "{summary}");
}

#[test]
fn no_value_in_a_stored_classifier_makes_it_panic_hang_or_fill_memory() {
    let store = |kind: &str, dir: &Path| {
        train(kind.parse().unwrap()).write(dir, &Provenance::default()).unwrap();
    };
    let data = dataset(3);
    let use_model = |dir: &Path| {
        let classifier = TrainedClassifier::read(dir).map_err(|error| error.to_string())?;
        for run in data.runs.iter().step_by(5).map(|one| &one.recording.run) {
            classifier.probabilities(run);
            let _ = classifier.judge(run);
            let _ = classifier.judge(&first_fraction(run, 0.5));
        }
        Ok(())
    };
    let kinds = KINDS.into_iter().filter(|kind| *kind != ClassifierKind::EfficientnetLite0);
    let kinds: Vec<&str> = kinds.map(ClassifierKind::name).collect();
    let test = "contract::no_value_in_a_stored_classifier_makes_it_panic_hang_or_fill_memory";
    testbed::hostile_model::assert_harmless(test, &kinds, store, use_model);
}
