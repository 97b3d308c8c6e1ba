//! The evidence of `slowdown` comes from the view that decided.

use workflows::classify::slowdown::{Slowdown, SlowdownSettings, View};
use workflows::classify::{
    Classifier, ClassifierKind, ClassifierSettings, Evidence, TrainedClassifier, TrainingPlan, TrainingSet,
    most_likely,
};
use workflows::features::{Feature, Quantity, RunSummary};
use workload::Stop;

use crate::made::dataset;

fn slowdown(settings: SlowdownSettings) -> (workflows::Dataset, Slowdown) {
    let data = dataset(10);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let runs = data.select(&all);
    let training = TrainingSet::new(&runs, &[], &data.classes());
    let slowdown = Slowdown::fit(&training, settings, 1, &Stop::default()).unwrap();
    (data.clone(), slowdown)
}

fn features(evidence: Evidence) -> Vec<(Feature, f64)> {
    match evidence {
        Evidence::Features(features) => features,
        Evidence::Attempts(_) => panic!("slowdown has evidence by feature"),
    }
}

/// Features that only memory has.
fn is_of_memory(feature: &Feature) -> bool {
    !Quantity::BATCH_INVARIANT.contains(&feature.quantity)
}

#[test]
fn evidence_is_that_of_the_view_that_decided() {
    let always_memory = SlowdownSettings { novelty: 1.0, ..SlowdownSettings::default() };
    let never_memory =
        SlowdownSettings { novelty: -1.0, min_probability: 0.0, ..SlowdownSettings::default() };
    for (settings, view) in [(always_memory, View::Memory), (never_memory, View::BatchInvariant)] {
        let (data, slowdown) = slowdown(settings);
        for one in &data.runs {
            let run = RunSummary::new(&one.recording.run);
            let (decided, probabilities) = slowdown.decide(&run);
            assert_eq!(decided, view);
            let class = most_likely(&probabilities);
            let evidence = features(slowdown.evidence(&run, class));
            assert_eq!(evidence.iter().any(|(feature, _)| is_of_memory(feature)), view == View::Memory);
            let weight = |class: usize| -> f64 {
                features(slowdown.evidence(&run, class)).iter().map(|(_, weight)| weight).sum()
            };
            let strongest = (0..slowdown.n_classes()).max_by(|a, b| weight(*a).total_cmp(&weight(*b)));
            if view == View::Memory {
                assert_eq!(strongest, Some(class), "the evidence argues for the verdict on {}", one.name());
            }
        }
    }
}

#[test]
fn an_explanation_argues_for_the_verdict_of_memory() {
    let data = dataset(10);
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let slowdown = SlowdownSettings { novelty: 1.0, ..SlowdownSettings::default() };
    let settings = ClassifierSettings { slowdown, is_for_finished: true, ..ClassifierSettings::default() };
    let plan = TrainingPlan::new(ClassifierKind::Slowdown, settings).unwrap();
    let classifier =
        TrainedClassifier::train(&plan, &data.select(&all), &[], &Stop::default(), |_| {}).unwrap();
    for one in data.runs.iter().filter(|one| one.class() != "normal") {
        let verdict = classifier.judge(&one.recording.run).unwrap();
        assert_eq!(verdict.class, one.class());
        let delays: Vec<&str> = verdict.explanation.reasons.iter().map(|reason| reason.delay).collect();
        let expected = match one.class() {
            "cpu" => "runtime",
            "hdd" => "runtime",
            _ => "stage_in",
        };
        assert!(delays.contains(&expected), "{}: {}", one.class(), verdict.explanation.summary);
    }
}
