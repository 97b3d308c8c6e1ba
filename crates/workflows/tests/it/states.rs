//! Runs that do not go straight to their end: held, removed and repeated attempts, and runs that have only started.

use std::fs;
use std::path::{Path, PathBuf};

use files::Limits;
use workflows::Recording;
use workflows::draw::{Gantt, Part, Style, html, svg};
use workflows::read::follow::RunFollower;
use workflows::read::{RunState, read_one};
use workflows::workflow::{Span, TaskAttempt, TaskName};

const BEGUN: f64 = 1_700_000_000.0;

/// `a` is held for a minute while it runs. `b` is removed while it runs, submitted again, held, and removed from the queue.
/// `c` is held and not released. In seconds since the start: task, batch job, sequence, event.
const EVENTS: [(u32, &str, u32, &str); 15] = [
    (10, "a", 2, "SUBMIT"),
    (10, "b", 3, "SUBMIT"),
    (10, "c", 5, "SUBMIT"),
    (20, "a", 2, "EXECUTE"),
    (20, "b", 3, "EXECUTE"),
    (30, "a", 2, "JOB_HELD"),
    (40, "c", 5, "JOB_HELD"),
    (50, "b", 3, "JOB_ABORTED"),
    (60, "b", 4, "SUBMIT"),
    (70, "b", 4, "JOB_HELD"),
    (90, "a", 2, "JOB_RELEASED"),
    (95, "b", 4, "JOB_ABORTED"),
    (100, "a", 2, "EXECUTE"),
    (130, "a", 2, "JOB_TERMINATED"),
    // The reason of a hold may be logged later; it changes nothing.
    (131, "c", 5, "JOB_HELD_REASON"),
];

fn jobstate_log() -> String {
    let line = |(at, task, job, event): (u32, &str, u32, &str)| {
        format!("{} {task} {event} {job}.0 local - {job}\n", 1_700_000_000 + at)
    };
    "1700000000 INTERNAL *** DAGMAN_STARTED 1.0 ***\n".to_owned()
        + &EVENTS.map(line).concat()
        + "1700000132 a JOB_SUCCESS 0 local - 2\n"
}

fn dagman_out() -> String {
    let clock = |at: u32| format!("11/14/23 22:{:02}:{:02}", 13 + (20 + at) / 60, (20 + at) % 60);
    let line = |(at, task, job, event): (u32, &str, u32, &str)| {
        let at = clock(at);
        format!("{at} Event: ULOG_{event} for HTCondor Node {task} ({job}.0.0) {{{at}}}\n")
    };
    format!("{} ** condor_scheduniv_exec.1.0 (CONDOR_DAGMAN) STARTING UP\n", clock(0))
        + &EVENTS.map(line).concat()
}

fn event_log() -> String {
    let line = |(at, task, job, event): (u32, &str, u32, &str)| {
        let (code, text) = match event {
            "SUBMIT" => (0, format!("Job submitted from host: <10.0.0.1:9618>\n    DAG Node: {task}")),
            "EXECUTE" => (1, "Job executing on host: <10.0.0.8:9618>".into()),
            "JOB_TERMINATED" => (5, "Job terminated.\n\t(1) Normal termination (return value 0)".into()),
            "JOB_ABORTED" => (9, "Job was aborted by the user.\n\tvia condor_rm".into()),
            "JOB_HELD" => (12, "Job was held.\n\tdisk quota exceeded\n\tCode 16 Subcode 0".into()),
            "JOB_RELEASED" => (13, "Job was released.".into()),
            _ => (28, "Job ad information event triggered.".into()),
        };
        let (minute, second) = (13 + (20 + at) / 60, (20 + at) % 60);
        format!("{code:03} ({job:03}.000.000) 2023-11-14 22:{minute:02}:{second:02} {text}\n...\n")
    };
    EVENTS.map(line).concat()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

fn attempt<'a>(recording: &'a Recording, task: &str, number: u32) -> &'a TaskAttempt {
    let found = recording.run.attempts.iter().find(|one| one.task.0 == task && one.attempt == number);
    found.unwrap_or_else(|| panic!("no attempt {number} at {task}"))
}

fn span(start: f64, end: f64) -> Span {
    Span::new(BEGUN + start, BEGUN + end).unwrap()
}

#[test]
fn held_removed_and_repeated_attempts_are_the_same_in_every_log() {
    let folder = Folder::new();
    for (name, text) in
        [("jobstate.log", jobstate_log()), ("x.dag.dagman.out", dagman_out()), ("x.nodes.log", event_log())]
    {
        let found = read_one(&folder.file(name, &text), &Limits::default()).unwrap();
        assert_eq!(found.run.attempts.len(), 4, "{name}");
        let held = attempt(&found, "a", 1);
        assert_eq!(held.holds, [span(30.0, 90.0)], "{name}");
        assert_eq!((held.held_since, held.removed, held.exit_code.unwrap_or(0)), (None, None, 0), "{name}");
        assert_eq!(
            held.execution,
            Some(span(100.0, 130.0)),
            "{name}: what ran before the hold does not count"
        );
        let removed = attempt(&found, "b", 1);
        assert_eq!((removed.removed, removed.exit_code), (Some(BEGUN + 50.0), Some(-1)), "{name}");
        assert_eq!(removed.execution, Some(span(20.0, 50.0)), "{name}");
        let queued = attempt(&found, "b", 2);
        assert_eq!((queued.removed, queued.execution), (Some(BEGUN + 95.0), None), "{name}");
        assert_eq!(queued.holds, [span(70.0, 95.0)], "{name}: a hold ends when the task is removed");
        assert_eq!(queued.delays(BEGUN).queue, 35.0, "{name}");
        assert!(queued.is_over(), "{name}");
        let waiting = attempt(&found, "c", 1);
        assert_eq!((waiting.held_since, waiting.is_over()), (Some(BEGUN + 40.0), false), "{name}");
        assert!(waiting.holds.is_empty(), "{name}");
    }
}

#[test]
fn holds_and_removals_are_drawn() {
    let folder = Folder::new();
    let found = read_one(&folder.file("jobstate.log", &jobstate_log()), &Limits::default()).unwrap();
    let gantt = Gantt::new(&found.run);
    let held = |task: &str, number: u32| {
        let row = gantt.rows.iter().find(|row| row.task == task && row.attempt == number).unwrap();
        row.parts().filter(|(part, ..)| *part == Part::Held).map(|(_, start, end)| end - start).sum::<f64>()
    };
    assert_eq!([held("a", 1), held("b", 1), held("b", 2)], [60.0, 0.0, 25.0]);
    let chart = svg(&gantt, Style::Named, 800.0);
    for text in ["b (removed)", "b (attempt 2, removed)", "c (held)"] {
        assert!(chart.contains(text), "{text}");
    }
    let page = html(&gantt);
    assert!(page.contains("\"s\":\"removed\"") && page.contains("\"s\":\"held\""), "{page}");
}

fn running_and_empty(path: &Path) {
    let found = read_one(path, &Limits::default()).unwrap();
    assert_eq!((found.state, found.run.attempts.len()), (RunState::Running, 0), "{}", path.display());
    assert_eq!(found.run.makespan(), 0.0);
    let gantt = Gantt::new(&found.run);
    assert!(svg(&gantt, Style::Named, 800.0).ends_with("</svg>") && html(&gantt).ends_with("</html>"));
}

#[test]
fn a_run_that_has_only_started_is_read_and_running() {
    let folder = Folder::new();
    let started = "1700000000 INTERNAL *** DAGMAN_STARTED 1.0 ***\n";
    let dagman = "11/14/23 22:13:20 ** condor_scheduniv_exec.1.0 (CONDOR_DAGMAN) STARTING UP\n";
    let graph = "JOB a a.sub\nJOB b b.sub\nPARENT a CHILD b\n";
    for (directory, files) in [
        ("monitored", vec![("jobstate.log", started), ("x.dag", graph)]),
        ("alone", vec![("x.dag.dagman.out", dagman), ("x.dag", graph)]),
        // The monitor has created its log, but not written anything.
        ("early", vec![("jobstate.log", ""), ("x.dag.dagman.out", dagman), ("x.dag", graph)]),
    ] {
        for (name, text) in files {
            folder.file(&format!("{directory}/{name}"), text);
        }
        let path = folder.0.path().join(directory);
        running_and_empty(&path);
        let archive = folder.0.path().join(format!("{directory}.tar"));
        let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
        builder.append_dir_all("run0001", &path).unwrap();
        builder.into_inner().unwrap();
        running_and_empty(&archive);
    }
    running_and_empty(&folder.0.path().join("monitored/jobstate.log"));
    running_and_empty(&folder.0.path().join("alone/x.dag.dagman.out"));
    running_and_empty(&folder.file("monitor/jobstate.log", "1700000000 INTERNAL *** MONITORD_STARTED ***\n"));
    // The tasks that follow are found, and so is the end.
    let log = folder.0.path().join("early/jobstate.log");
    let mut follower = RunFollower::open(log.parent().unwrap(), &Limits::default()).unwrap();
    assert!(follower.poll().unwrap().is_none());
    fs::write(&log, format!("{started}1700000010 a SUBMIT 2.0 local - 1\n")).unwrap();
    let update = follower.poll().unwrap().unwrap();
    assert_eq!((update.recording.state, update.recording.run.attempts.len()), (RunState::Running, 1));
    let planned = update.recording.run.graph.tasks().any(|task| *task == TaskName("b".into()));
    assert!(planned && !update.is_over);
    let end = "1700000099 INTERNAL *** DAGMAN_FINISHED 1 ***\n";
    fs::write(&log, format!("{started}1700000010 a SUBMIT 2.0 local - 1\n{end}")).unwrap();
    assert_eq!(follower.poll().unwrap().unwrap().recording.state, RunState::Ended);
    // Something that has not even started is no run.
    folder.file("planned/jobstate.log", "");
    folder.file("planned/x.dag", graph);
    let error = read_one(&folder.0.path().join("planned"), &Limits::default()).unwrap_err().to_string();
    assert!(error.contains("no submitted task"), "{error}");
}

#[test]
fn a_log_alone_says_what_cannot_be_judged() {
    let submit = testbed::workspace().join("fixtures/workflows/submit");
    let lacks = |path: &Path| {
        let warnings = read_one(path, &Limits::default()).unwrap().warnings;
        warnings.into_iter().filter(|warning| warning.contains("cannot be judged")).collect::<Vec<_>>()
    };
    for name in ["jobstate.log", "blackdiamond-0.dag.dagman.out"] {
        let found = lacks(&submit.join(name));
        assert_eq!(found.len(), 1, "{name}");
        assert!(found[0].contains("hosts") && found[0].contains("byte counts") && !found[0].contains('\n'));
    }
    for name in ["", "blackdiamond-0.stampede.db"] {
        assert!(lacks(&submit.join(name)).is_empty(), "{name}");
    }
}
