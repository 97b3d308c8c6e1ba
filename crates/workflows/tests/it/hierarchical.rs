//! Submit directories with sub-workflows.

use std::fs;
use std::path::Path;

use files::Limits;
use workflows::draw::Gantt;
use workflows::read::follow::RunFollower;
use workflows::read::read_one;
use workflows::workflow::{Span, TaskName, TaskRole, WorkflowRun};

const INNER: &str = "pegasus-plan_diamond_ID0000002";
const REPORT: &str = "subdag_report_ID0000003";

fn fixture() -> std::path::PathBuf {
    testbed::workspace().join("fixtures/workflows/hierarchical")
}

fn names(run: &WorkflowRun) -> Vec<&str> {
    run.attempts.iter().map(|attempt| attempt.task.0.as_str()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() { copy(&entry, &target) } else { _ = fs::copy(&entry, &target).unwrap() }
    }
}

#[test]
fn the_root_workflow_is_read_and_contains_its_subworkflows() {
    let recording = read_one(&fixture(), &Limits::default()).unwrap();
    assert_eq!(recording.warnings, [""; 0]);
    let run = &recording.run;
    assert_eq!(run.name, "outer-0");
    let expected = [
        "create_dir_outer_0_local",
        "fetch_ID0000001",
        INNER,
        REPORT,
        "wc_ID0000004",
        "pegasus-plan_diamond_ID0000002/create_dir_inner_0_local",
        "pegasus-plan_diamond_ID0000002/fetch_ID0000001",
        "pegasus-plan_diamond_ID0000002/findrange_ID0000002",
        "subdag_report_ID0000003/plot_ID0000001",
        "subdag_report_ID0000003/render_ID0000002",
    ];
    assert_eq!(names(run), expected);
    assert!(run.attempts.iter().all(|attempt| attempt.is_over() && attempt.exit_code == Some(0)));
    assert_eq!(run.makespan(), 263.0);
    // Tasks of the same name keep their own records.
    let [outer, inner] = [&run.attempts[1], &run.attempts[6]];
    assert_eq!((outer.cpu_seconds, inner.cpu_seconds), (Some(25.0), Some(5.0)));
    assert_eq!(inner.host.as_deref(), Some("worker-3.example"));
    assert_eq!((outer.kind.as_str(), inner.kind.as_str()), ("fetch", "fetch"));
    let node = &run.attempts[2];
    assert_eq!((node.role, node.kind.as_str()), (TaskRole::Auxiliary, "sub-workflow"));
    assert_eq!(node.pre_script.map(Span::seconds), Some(6.0));
    // The first task of a sub-workflow is ready when its DAGMan has started.
    assert_eq!(run.attempts[5].ready, Some(1_700_000_063.0));
}

#[test]
fn the_graph_leads_through_a_subworkflow() {
    let run = read_one(&fixture(), &Limits::default()).unwrap().run;
    let children = |task: &str| -> Vec<&str> {
        let task = TaskName(task.into());
        let found = run.graph.dependencies().iter().filter(|one| one.parents.contains(&task));
        found.flat_map(|one| &one.children).map(|child| child.0.as_str()).collect()
    };
    let first = format!("{INNER}/create_dir_inner_0_local");
    assert!(children("fetch_ID0000001").contains(&first.as_str()));
    let last = children("pegasus-plan_diamond_ID0000002/findrange_ID0000002");
    assert!(last.contains(&REPORT) && last.contains(&INNER), "{last:?}");
    let critical: Vec<String> =
        Gantt::new(&run).rows.into_iter().filter(|row| row.is_critical).map(|row| row.task).collect();
    assert!(critical.iter().any(|task| task == "pegasus-plan_diamond_ID0000002/findrange_ID0000002"));
    assert!(critical.iter().any(|task| task == "create_dir_outer_0_local"), "{critical:?}");
}

#[test]
fn a_growing_run_shows_a_subworkflow_as_soon_as_it_is_planned() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run0001");
    copy(&fixture(), &path);
    let inner = path.join("00/00/blackdiamond_ID0000002.000");
    let hidden = directory.path().join("hidden");
    fs::rename(&inner, &hidden).unwrap();
    let log = fs::read_to_string(path.join("jobstate.log")).unwrap();
    let split = log.find("1700000170").unwrap();
    fs::write(path.join("jobstate.log"), &log[..split]).unwrap();
    let mut follower = RunFollower::open(&path, &Limits::default()).unwrap();
    let update = follower.poll().unwrap().unwrap();
    assert!(
        !update.is_over
            && !names(&update.recording.run).iter().any(|name| name.starts_with(INNER) && name.contains('/'))
    );
    assert_eq!(update.recording.run.attempts[2].running_since, Some(1_700_000_062.0));
    assert!(follower.poll().unwrap().is_none(), "nothing was appended");
    fs::rename(&hidden, &inner).unwrap();
    let update = follower.poll().unwrap().unwrap();
    assert!(names(&update.recording.run).contains(&"pegasus-plan_diamond_ID0000002/findrange_ID0000002"));
    assert!(!update.is_over, "the end of a sub-workflow is not the end of the run");
    fs::write(path.join("jobstate.log"), &log).unwrap();
    let update = follower.poll().unwrap().unwrap();
    assert!(update.is_over);
    let mut whole = read_one(&fixture(), &Limits::default()).unwrap().run;
    let mut followed = update.recording.run;
    for run in [&mut whole, &mut followed] {
        run.attempts.sort_by(|a, b| a.task.cmp(&b.task));
    }
    assert_eq!(followed, whole);
}

#[test]
fn a_subworkflow_that_is_planned_again_tries_its_tasks_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run0001");
    copy(&fixture(), &path);
    let inner = path.join("00/00/blackdiamond_ID0000002.000");
    copy(&inner, &path.join("00/00/blackdiamond_ID0000002.001"));
    let run = read_one(&path, &Limits::default()).unwrap().run;
    let task = "pegasus-plan_diamond_ID0000002/findrange_ID0000002";
    let numbers: Vec<u32> =
        run.attempts.iter().filter(|one| one.task.0 == task).map(|one| one.attempt).collect();
    assert_eq!(numbers, [1, 2]);
}
