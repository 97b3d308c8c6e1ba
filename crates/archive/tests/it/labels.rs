//! Job ids are unique, a campaign belongs to one set, and sets do not overlap in time: also when
//! several writers add labels at once.

use std::sync::Barrier;

use archive::{Archive, Error, Selection};
use workload::{Control, Cpu, JobId, Label, Set, Timestamp};

use crate::{START, create, load, node, reading, source};

pub fn label(campaign: &str, set: Set, job: &str, seconds: std::ops::Range<i64>) -> Label {
    Label {
        campaign: campaign.into(),
        set,
        kind: "np".into(),
        anomalous: None,
        job: JobId::new(job).unwrap(),
        node: node("n1"),
        threads: vec![Cpu(1)],
        start: Timestamp::from_seconds(START + seconds.start),
        end: Timestamp::from_seconds(START + seconds.end),
        made_by: None,
        disturbance: None,
    }
}

/// Why labels were refused.
fn refusal(outcome: archive::Result<()>) -> String {
    match outcome {
        Err(error @ Error::Labels { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn jobs(archive: &Archive) -> Vec<String> {
    archive.labels().unwrap().iter().map(|label| label.job.to_string()).collect()
}

#[test]
fn labels_that_contradict_the_archive_or_each_other_are_refused_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    archive
        .add_labels(&[label("monday", Set::Train, "1", 0..10), label("monday", Set::Train, "2", 5..20)])
        .unwrap();
    let good = label("friday", Set::Test, "9", 200..210);
    let cases = [
        (label("tuesday", Set::Train, "2", 30..40), "job 2 has a label already"),
        (label("monday", Set::Test, "3", 30..40), "campaign monday cannot be both train and test"),
        (label("tuesday", Set::Test, "3", 19..40), "overlap in time"),
        (label("tuesday", Set::Test, "3", 40..40), "job 3 has no length"),
        (label("friday", Set::Test, "9", 220..230), "job 9 has a label already"),
        (label("saturday", Set::Validation, "3", 205..207), "overlap in time"),
    ];
    for (bad, reason) in cases {
        let refused = refusal(archive.add_labels(&[good.clone(), bad.clone()]));
        assert!(refused.contains(reason), "{refused}");
        let mut loader = archive.loader(source()).unwrap();
        loader.push_node(&reading("n1", 0)).unwrap();
        let refused = refusal(loader.add_labels(&[good.clone(), bad]));
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(jobs(&archive), ["1", "2"]);
    }
    archive.add_labels(&[good, label("tuesday", Set::Test, "3", 20..40)]).unwrap();
    assert_eq!(jobs(&archive), ["1", "2", "3", "9"]);
}

#[test]
fn an_import_whose_labels_have_become_wrong_meanwhile_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut loader = archive.loader(source()).unwrap();
    loader.push_node(&reading("n1", 0)).unwrap();
    loader.add_labels(&[label("monday", Set::Train, "1", 0..10)]).unwrap();
    assert!(jobs(&archive).is_empty(), "not visible before the readings are");
    archive.add_labels(&[label("tuesday", Set::Test, "2", 5..20)]).unwrap();
    assert!(refusal(loader.finish().map(drop)).contains("overlap in time"));
    assert_eq!(jobs(&archive), ["2"]);
    assert!(archive.snapshot(Selection::default()).unwrap().nodes().is_empty());
}

#[test]
fn of_writers_that_contradict_each_other_one_wins() {
    const N_WRITERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..20);
    for round in 0..10i64 {
        let seconds = round * 1_000..round * 1_000 + 500;
        let barrier = Barrier::new(N_WRITERS);
        // Half of them claim the same job; all of them claim the same time, for two sets.
        let write = |writer: usize| {
            let set = if writer.is_multiple_of(2) { Set::Train } else { Set::Test };
            let job = format!("{round}-{}", writer / 4);
            let own = Archive::open(archive.address(), &archive::Settings::default()).unwrap();
            barrier.wait();
            own.add_labels(&[label(&format!("{round} {set}"), set, &job, seconds.clone())])
        };
        let outcomes: Vec<archive::Result<()>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..N_WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let added: Vec<Label> = archive.labels().unwrap();
        let added: Vec<&Label> =
            added.iter().filter(|label| label.campaign.starts_with(&format!("{round} "))).collect();
        let n_won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(n_won, added.len());
        assert!((1..=2).contains(&n_won), "{outcomes:?}");
        assert!(added.iter().all(|label| label.set == added[0].set), "{added:?}");
        assert!(added.len() == 1 || added[0].job != added[1].job, "{added:?}");
        for outcome in outcomes.into_iter().filter(|outcome| outcome.is_err()) {
            refusal(outcome);
        }
    }
    assert!(archive.verify(&Control::default()).unwrap().problems.is_empty());
}

#[test]
fn labels_that_contradict_each_other_are_found_by_verify() {
    let folder = tempfile::tempdir().unwrap();
    let one = create(&folder.path().join("one"));
    let other = create(&folder.path().join("other"));
    one.add_labels(&[label("monday", Set::Train, "1", 0..10)]).unwrap();
    other.add_labels(&[label("tuesday", Set::Test, "2", 5..20)]).unwrap();
    assert!(one.verify(&Control::default()).unwrap().problems.is_empty());
    // As if two writers on machines without locks had added them.
    for entry in std::fs::read_dir(folder.path().join("other/labels")).unwrap() {
        let path = entry.unwrap().path();
        let copy = folder.path().join("one/labels").join(path.file_name().unwrap());
        std::fs::copy(path, copy).unwrap();
    }
    let problems = one.verify(&Control::default()).unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].problem.contains("overlap in time"), "{}", problems[0].problem);
}
