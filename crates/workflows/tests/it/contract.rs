//! What every classifier keeps.

use learn::artifact::Provenance;
use workflows::classify::{FitSettings, Fitted, Model};
use workflows::dataset::NORMAL;
use workflows::unfinished::after;
use workflows::workflow::{Span, TaskAttempt, TaskRole};

use crate::made::{dataset, run};

/// AlexNet and VGG-16 are left to the comparison with torchvision: their artifacts are hundreds of megabytes.
const MODELS: [Model; 6] =
    [Model::Cnn, Model::EfficientnetLite0, Model::Trees, Model::Centroid, Model::Slowdown, Model::Usual];

fn fit(model: Model) -> Fitted {
    let data = dataset(10);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let n_epochs = match model {
        Model::Cnn => Some(12),
        _ => None,
    };
    let settings = FitSettings { seed: 3, n_epochs, ..FitSettings::default() };
    Fitted::fit(model, &data.select(&all), &[], &settings, |_| {}).unwrap()
}

#[test]
fn every_classifier_judges_better_than_chance_says_why_and_can_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(14);
    for model in MODELS {
        let fitted = fit(model);
        let path = folder.path().join(model.name());
        fitted.write(&path, &Provenance::default()).unwrap();
        let kept = Fitted::read(&path).unwrap();
        let (mut n_right, mut n_all) = (0, 0);
        for one in data.runs.iter().filter(|one| !one.name().ends_with('0')) {
            let run = &one.recording.run;
            let chances = fitted.chances(run);
            assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{}: {chances:?}", model.name());
            assert_eq!(kept.chances(run), chances, "{} is another after it was kept", model.name());
            let verdict = fitted.classify(run);
            assert!(!verdict.why.because.is_empty() && verdict.probabilities.len() == fitted.classes.len());
            let is_right = match model {
                Model::Usual => (verdict.class == NORMAL) == (one.class() == NORMAL),
                _ => verdict.class == one.class(),
            };
            n_right += usize::from(is_right);
            n_all += 1;
        }
        assert!(n_right * 10 > n_all * 7, "{}: {n_right} of {n_all}", model.name());
    }
}

#[test]
fn the_same_seed_makes_the_same_classifier() {
    for model in [Model::Cnn, Model::Slowdown, Model::Trees] {
        let other = run("other", 77);
        assert_eq!(fit(model).chances(&other), fit(model).chances(&other), "{}", model.name());
    }
}

#[test]
fn runs_that_are_not_over_and_runs_of_other_workflows_are_judged_too() {
    for model in MODELS {
        let fitted = fit(model);
        for share in [0.0, 0.1, 0.5, 0.9] {
            let verdict = fitted.classify(&after(&run("early", 5), share));
            assert!(verdict.probabilities.values().all(|chance| chance.is_finite()), "{}", model.name());
        }
        let mut foreign = run("foreign", 6);
        foreign.attempts.iter_mut().for_each(|attempt| attempt.kind = format!("other {}", attempt.kind));
        assert!(fitted.classify(&foreign).probabilities.values().all(|chance| chance.is_finite()));
        let why_not = fitted.why_not(&foreign).unwrap();
        assert!(
            why_not.contains("0 of its 9 computing tasks are of kinds that were learnt from (count, gather)"),
            "{why_not}"
        );
        // Every workflow has those; they do not make it the same one.
        foreign.attempts.push(TaskAttempt::new("create_dir_0", TaskRole::Auxiliary, "create_dir", 1));
        assert!(fitted.why_not(&foreign).unwrap().contains("another workflow"));
        assert_eq!(fitted.why_not(&run("known", 6)), None);
        let hardly = after(&run("known", 6), 0.2);
        assert!(fitted.why_not(&hardly).unwrap().contains("too early to judge known"), "{}", model.name());
    }
}

#[test]
fn a_classifier_for_runs_that_are_over_says_so_of_others() {
    let data = dataset(6);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let settings = FitSettings { is_for_finished: true, ..FitSettings::default() };
    let fitted = Fitted::fit(Model::Slowdown, &data.select(&all), &[], &settings, |_| {}).unwrap();
    let mut half = run("half", 6);
    half.attempts.truncate(6);
    assert!(fitted.why_not(&half).unwrap().contains("6 of at least 9 tasks of half are over"));
    assert_eq!(fitted.why_not(&run("whole", 6)), None);
}

#[test]
fn a_manifest_with_other_classes_than_the_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    fit(Model::Centroid).write(&path, &Provenance::default()).unwrap();
    let manifest = path.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["body"]["classes"].as_array_mut().unwrap().pop();
    std::fs::write(&manifest, json.to_string()).unwrap();
    let refused = Fitted::read(&path).err().unwrap().to_string();
    assert!(refused.contains("names other classes"), "{refused}");
}

#[test]
fn trouble_of_a_few_tasks_is_unusual_and_nothing_is_said_to_be_as_usual_that_is_not() {
    let fitted = fit(Model::Usual);
    let mut slow = run("slow", 5);
    for attempt in &mut slow.attempts[..2] {
        let execution = attempt.execution.unwrap();
        attempt.execution = Span::new(execution.start(), execution.end() + 200.0).ok();
        attempt.stage_out = None;
    }
    let verdict = fitted.classify(&slow);
    assert_eq!(verdict.class, "unusual");
    assert!(verdict.why.because.starts_with("run time of 2 of 8 count tasks"), "{}", verdict.why.because);
    assert!(!verdict.why.because.contains("run time as usual"), "{}", verdict.why.because);
    let healthy = fitted.classify(&run("healthy", 5));
    assert_eq!(
        (healthy.class.as_str(), healthy.why.because.as_str()),
        (NORMAL, "all delays as usual: healthy")
    );
}

#[test]
fn tasks_that_run_on_and_on_are_named_and_what_is_not_logged_is_known_to_be_missing() {
    let fitted = fit(Model::Slowdown);
    let mut hung = run("hung", 5);
    let since = hung.attempts[3].execution.take().unwrap().start();
    hung.attempts[3].running_since = Some(since);
    hung.attempts[8].execution = Span::new(since + 900.0, since + 930.0).ok();
    let verdict = fitted.classify(&hung);
    assert_eq!(verdict.why.overdue[0].tasks, ["count_ID0000003"]);
    assert!(
        verdict.why.because.starts_with("count_ID0000003 still runs after 930 s, usually"),
        "{}",
        verdict.why.because
    );
    assert!(fitted.lacks(&hung).is_empty());
    hung.attempts.iter_mut().for_each(|attempt| (attempt.cpu_seconds, attempt.stage_in) = (None, None));
    assert_eq!(fitted.lacks(&hung), ["CPU time", "stage-in"]);
    // Run time that includes staging is not held against run time that does not.
    assert!(
        !fitted
            .classify(&hung)
            .why
            .reasons
            .iter()
            .any(|reason| reason.delay == "run time" && reason.kind == "count")
    );
}

#[test]
fn what_cannot_be_learnt_from_is_refused_in_a_line() {
    let data = dataset(4);
    let healthy: Vec<usize> = (0..data.runs.len()).filter(|at| data.runs[*at].class() == NORMAL).collect();
    let fit = |model, runs: &[usize]| {
        Fitted::fit(model, &data.select(runs), &[], &FitSettings::default(), |_| {})
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(fit(Model::Slowdown, &healthy).contains("use --model usual"));
    assert!(fit(Model::Trees, &healthy[..1]).contains("the least"));
    let troubled: Vec<usize> = (0..data.runs.len()).filter(|at| data.runs[*at].class() != NORMAL).collect();
    assert!(fit(Model::Slowdown, &troubled).contains("label some `normal`"));
}

#[test]
fn reasons_name_the_tasks_the_delay_and_the_trouble() {
    let data = dataset(10);
    let fitted = fit(Model::Slowdown);
    let lossy = data.runs.iter().find(|one| one.class() == "loss").unwrap();
    let verdict = fitted.classify(&lossy.recording.run);
    assert_eq!(verdict.class, "loss");
    let first = &verdict.why.reasons[0];
    assert_eq!((first.kind.as_str(), first.delay), ("count", "stage-in"));
    assert!(first.ratio > 2.0 && first.tasks.len() >= 6 && first.to > first.from, "{first:?}");
    assert!(
        verdict.why.because.contains("stage-in of") && verdict.why.because.ends_with(": network"),
        "{}",
        verdict.why.because
    );
}

#[test]
fn a_classifier_of_the_first_version_is_still_read_and_judges_the_same() {
    let golden = testbed::workspace().join("fixtures/artifact/workflows-v1");
    if std::env::var_os("TRACEWISE_WRITE_GOLDEN").is_some() {
        let data = dataset(6);
        let all: Vec<usize> = (0..data.runs.len()).collect();
        let settings = FitSettings { seed: 3, ..FitSettings::default() };
        Fitted::fit(Model::Slowdown, &data.select(&all), &[], &settings, |_| {})
            .unwrap()
            .write(&golden, &Provenance::default())
            .unwrap();
    }
    let fitted = Fitted::read(&golden).unwrap();
    assert_eq!(fitted.classes, ["normal", "cpu", "hdd", "loss"]);
    for one in dataset(10).runs {
        assert_eq!(fitted.classify(&one.recording.run).class, one.class(), "{}", one.name());
    }
}
