//! Stored classifiers of workflow runs, with the right hash of their weights: a classifier that is read can be used.
#![no_main]

use std::sync::LazyLock;

use files::{Limited, Limits};
use libfuzzer_sys::fuzz_target;
use workflows::Recording;
use workflows::classify::TrainedClassifier;
use workflows::read::table;
use workflows::unfinished::first_fraction;

static RUN: LazyLock<Recording> = LazyLock::new(|| {
    let text = include_bytes!("../../../fixtures/artifact/workflows-v1-runs/cpu_3.csv");
    let text = Limited::new(text.as_slice(), &Limits::default());
    let mut meter = text.meter();
    table::read("run", text, &mut meter).expect("a run")
});

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let run = &RUN.run;
    let classifier = TrainedClassifier::read(&fuzz::model(bytes));
    fuzz::expect(classifier.is_ok());
    let Ok(classifier) = classifier else { return };
    assert_eq!(classifier.probabilities(run).len(), classifier.classes.len());
    let _ = (classifier.judge(run), classifier.judge(&first_fraction(run, 0.5)));
});
