//! Stored classifiers of the first format version: they load, and give the probabilities that they gave when they were
//! written (`fixtures/artifact/workflows-v1-expected.json`).

use std::collections::BTreeMap;

use files::Limits;
use workflows::classify::{ClassifierKind, TrainedClassifier};
use workflows::read::read_one;

#[test]
fn stored_classifiers_of_version_1_give_the_same_probabilities() {
    let fixtures = testbed::workspace().join("fixtures/artifact");
    let expected = std::fs::read(fixtures.join("workflows-v1-expected.json")).unwrap();
    let expected: BTreeMap<String, BTreeMap<String, Vec<f64>>> = serde_json::from_slice(&expected).unwrap();
    assert_eq!(expected.len(), 3);
    for (name, by_label) in expected {
        let classifier = TrainedClassifier::read(&fixtures.join(&name)).unwrap();
        for (label, probabilities) in by_label {
            let run = read_one(&fixtures.join(format!("workflows-v1-runs/{label}.csv")), &Limits::default())
                .unwrap()
                .run;
            let found = classifier.probabilities(&run);
            assert_eq!(found.len(), probabilities.len(), "{name}, {label}");
            for (found, expected) in found.iter().zip(&probabilities) {
                assert!((found - expected).abs() < 1e-6, "{name}, {label}: {found} is not {expected}");
            }
        }
    }
}

#[test]
fn a_stored_classifier_judges_and_names_the_fault() {
    let fixtures = testbed::workspace().join("fixtures/artifact");
    let classifier = TrainedClassifier::read(&fixtures.join("workflows-v1")).unwrap();
    assert_eq!(classifier.classes, ["normal", "cpu", "hdd", "loss"]);
    for label in ["normal", "cpu_3", "hdd_20", "loss_3"] {
        let run = read_one(&fixtures.join(format!("workflows-v1-runs/{label}.csv")), &Limits::default())
            .unwrap()
            .run;
        let verdict = classifier.judge(&run).unwrap();
        assert_eq!(verdict.class, workflows::dataset::class_of(label));
    }
    // `baseline` was called `usual`, and its class `unusual`, when this one was stored.
    let baseline = TrainedClassifier::read(&fixtures.join("workflows-usual-v1")).unwrap();
    assert_eq!((baseline.kind, &baseline.classes[1][..]), (ClassifierKind::Baseline, "anomalous"));
}
