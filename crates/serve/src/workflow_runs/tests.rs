//! Training, and labels, with runs on disk.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use workload::Stop;

use super::*;

/// A run of twelve tasks in the format of Nextflow. A task takes `seconds`.
fn nextflow(seconds: u32) -> String {
    let mut text = String::from("task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\n");
    for task in 0..12 {
        let (minute, own) = (task / 4 * 2, seconds + task % 3);
        let name = ["ALIGN", "SORT", "CALL"][task as usize / 4];
        text += &format!(
            "{task}\t0a/{task}\t{task}\t{name} (s{task})\tCOMPLETED\t0\t2026-11-01 10:{minute:02}:00.000\t{}s\t{own}s\n",
            own + 2
        );
    }
    text
}

fn name(text: &str) -> UploadName {
    UploadName::new(text).unwrap()
}

fn add(runs: &WorkflowRuns, named: &str, seconds: u32, label: Option<&str>) {
    let new = runs.uploads.begin(&name(named)).unwrap();
    fs::write(new.path(), nextflow(seconds)).unwrap();
    runs.add(new, "ann").unwrap();
    if let Some(label) = label {
        runs.label(&name(named), RunLabel::new(label, String::new(), "ann")).unwrap();
    }
}

/// Six healthy runs, six with a fault, and one without a label.
fn labelled(data: &Path) -> WorkflowRuns {
    let runs = WorkflowRuns::open(data, None).unwrap();
    for run in 0..6 {
        add(&runs, &format!("a{run}.txt"), 20 + run, Some("normal"));
        add(&runs, &format!("b{run}.txt"), 60 + run, Some("cpu"));
    }
    add(&runs, "new.txt", 63, None);
    runs
}

fn class(runs: &WorkflowRuns, named: &str) -> Option<String> {
    runs.uploads.find(&name(named)).unwrap().about.content.class
}

fn train(runs: &WorkflowRuns) -> Result<ClassifierInUse, UploadError> {
    let turn = runs.turn().unwrap();
    runs.train(&turn, Control::new(&Stop::default(), &|_, _| {}), |_| Ok(()))
}

fn go_back(runs: &WorkflowRuns) -> Option<ClassifierInUse> {
    let turn = runs.turn().unwrap();
    runs.go_back(&turn, Control::new(&Stop::default(), &|_, _| {}), || Ok(())).unwrap()
}

#[test]
fn training_that_is_cancelled_while_runs_are_judged_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = labelled(folder.path());
    let stop = Stop::default();
    let n_reports = AtomicU64::new(0);
    let progress = |done: u64, total: u64| {
        if 2 * done > total {
            n_reports.fetch_add(1, Ordering::Relaxed);
            stop.now();
        }
    };
    let turn = runs.turn().unwrap();
    let cancelled = runs.train(&turn, Control::new(&stop, &progress), |_| panic!("it was cancelled"));
    assert!(cancelled.is_err());
    assert_eq!(n_reports.into_inner(), 1, "it ends at once");
    assert_eq!(runs.classifier(), None);
    assert_eq!(class(&runs, "new.txt"), None);
    assert!(!folder.path().join("workflow-classifier").exists());
    assert_eq!(WorkflowRuns::open(folder.path(), None).unwrap().classifier(), None);
}

#[test]
fn a_training_that_cannot_be_noted_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = labelled(folder.path());
    let turn = runs.turn().unwrap();
    let stop = Stop::default();
    let control = Control::new(&stop, &|_, _| {});
    assert!(runs.train(&turn, control, |_| Err(unusable("no audit log"))).is_err());
    assert_eq!((runs.classifier(), class(&runs, "new.txt")), (None, None));
}

#[test]
fn a_run_that_cannot_be_read_does_not_undo_a_training() {
    let folder = tempfile::tempdir().unwrap();
    let runs = labelled(folder.path());
    add(&runs, "damaged.txt", 20, None);
    fs::write(folder.path().join("workflows/damaged.txt/damaged.txt"), "no log").unwrap();
    let trained = train(&runs).unwrap();
    assert_eq!((trained.n_runs, trained.from), (12, ClassifierSource::Labels));
    assert!(trained.trained.is_some_and(|time| time > 1.7e9));
    assert_eq!(class(&runs, "new.txt").as_deref(), Some("cpu"));
    assert_eq!(class(&runs, "damaged.txt"), None);
    let again = WorkflowRuns::open(folder.path(), None).unwrap();
    assert_eq!(
        again.classifier().map(|one| one.n_runs),
        Some(12),
        "disk and memory have the same classifier"
    );
}

#[test]
fn one_classifier_is_trained_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let runs = WorkflowRuns::open(folder.path(), None).unwrap();
    let turn = runs.turn().unwrap();
    assert!(runs.turn().is_none());
    drop(turn);
    assert!(runs.turn().is_some());
}

#[test]
fn the_replaced_classifier_is_kept_and_the_configured_one_comes_back() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(&labelled(other.path())).unwrap();
    let configured = other.path().join("workflow-classifier");
    drop(labelled(folder.path()));
    let runs = WorkflowRuns::open(folder.path(), Some(&configured)).unwrap();
    assert_eq!(runs.classifier().unwrap().from, ClassifierSource::Settings);
    train(&runs).unwrap();
    add(&runs, "more.txt", 61, Some("cpu"));
    assert_eq!(train(&runs).unwrap().n_runs, 13);
    let previous = folder.path().join("workflow-classifier-previous");
    assert_eq!(TrainedClassifier::read(&previous).unwrap().origin.n_runs, 12);
    let before = go_back(&runs).unwrap();
    assert_eq!((before.n_runs, before.from), (12, ClassifierSource::Settings));
    assert_eq!(runs.classifier(), Some(before.clone()));
    assert_eq!(TrainedClassifier::read(&previous).unwrap().origin.n_runs, 13);
    let again = WorkflowRuns::open(folder.path(), Some(&configured)).unwrap();
    assert_eq!(again.classifier(), Some(before));
    assert_eq!(class(&again, "new.txt").as_deref(), Some("cpu"));
    // Without a classifier, runs have no class.
    let again = WorkflowRuns::open(folder.path(), None).unwrap();
    train(&again).unwrap();
    assert_eq!(go_back(&again), None);
    assert_eq!((again.classifier(), class(&again, "new.txt")), (None, None));
}

#[test]
fn a_damaged_classifier_is_not_used_and_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    train(&labelled(folder.path())).unwrap();
    let path = folder.path().join("workflow-classifier");
    for damage in ["manifest.json", "weights.safetensors"] {
        fs::write(path.join(damage), "no").unwrap();
        let runs = WorkflowRuns::open(folder.path(), None).unwrap();
        assert_eq!(runs.classifier(), None, "{damage}");
        train(&runs).unwrap();
        assert!(WorkflowRuns::open(folder.path(), None).unwrap().classifier().is_some(), "{damage}");
    }
    fs::remove_file(path.join("manifest.json")).unwrap();
    let runs = WorkflowRuns::open(folder.path(), None).unwrap();
    assert_eq!(runs.classifier(), None);
    train(&runs).unwrap();
}

#[test]
fn labels_of_several_people_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let runs = WorkflowRuns::open(folder.path(), None).unwrap();
    add(&runs, "a.txt", 20, None);
    let of = |label: &str, actor| RunLabel::new(label, String::new(), actor);
    let counts = |runs: &WorkflowRuns| {
        runs.uploads.find(&name("a.txt")).unwrap().about.content.label().map(|label| label.label.clone())
    };
    let withdraw = |actor| runs.withdraw_label(&name("a.txt"), actor).unwrap().is_some();
    runs.label(&name("a.txt"), of("cpu", "bob")).unwrap();
    runs.label(&name("a.txt"), of("normal", "ann")).unwrap();
    let saved = runs.label(&name("a.txt"), of("normal", "ann")).unwrap();
    assert_eq!(saved.about.content.labels.len(), 2, "saying it twice is the same");
    assert!(withdraw("ann"));
    assert_eq!(counts(&runs).as_deref(), Some("cpu"));
    assert!(!withdraw("ann"), "nobody withdraws the label of somebody else");
    assert_eq!(counts(&runs).as_deref(), Some("cpu"));
    runs.label(&name("a.txt"), of("hdd", "ann")).unwrap();
    assert!(withdraw("bob"));
    assert_eq!(counts(&runs).as_deref(), Some("hdd"), "a later label is not concerned");
    for number in 0..MAX_LABELS + 5 {
        runs.label(&name("a.txt"), of(&format!("l{number}"), "ann")).unwrap();
    }
    let labels = runs.uploads.find(&name("a.txt")).unwrap().about.content.labels;
    assert_eq!((labels.len(), &*labels[0].label), (MAX_LABELS, "l5"));
}

#[test]
fn documents_with_one_label_are_read() {
    let with = |label: &str| {
        let text = format!("{{\"seconds\": 1.0, \"attempts\": 2, \"failed\": 0, \"class\": null{label}}}");
        serde_json::from_str::<RunContent>(&text).unwrap().labels
    };
    let label =
        RunLabel { label: "cpu".into(), comment: "x".into(), actor: "bob".into(), time: Timestamp(5) };
    let text = serde_json::to_string(&label).unwrap();
    assert_eq!(with(&format!(", \"label\": {text}")), std::slice::from_ref(&label));
    assert_eq!(with(&format!(", \"labels\": [{text}]")), [label]);
    assert!(with(", \"label\": null").is_empty() && with("").is_empty());
}

#[test]
fn tasks_of_subworkflows_are_grouped_by_their_node() {
    let path = testbed::workspace().join("fixtures/workflows/hierarchical");
    let recording = workflows::read::read_one(&path, &LIMITS).unwrap();
    let chart = RunChart::new(&recording);
    let nodes = ["", "pegasus-plan_diamond_ID0000002", "subdag_report_ID0000003"];
    assert_eq!(chart.workflows, nodes);
    for (task, workflow) in chart.task.iter().zip(&chart.workflow) {
        let expected = task.rsplit_once('/').map_or("", |(node, _)| node);
        assert_eq!(chart.workflows[*workflow], expected, "{task}");
    }
    assert_eq!(chart.workflow.iter().filter(|workflow| **workflow == 1).count(), 3);
}

#[test]
fn slashes_in_other_names_do_not_make_subworkflows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    fs::write(&path, nextflow(20).replace("(s", "(run/s")).unwrap();
    let chart = RunChart::new(&workflows::read::read_one(&path, &LIMITS).unwrap());
    assert!(chart.task[0].contains('/'));
    assert_eq!(chart.workflows, [""]);
}
