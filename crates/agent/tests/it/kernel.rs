//! This machine's own kernel: its counters, and control groups made for the occasion.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use agent::cgroup::CgroupCollector;
use agent::node::{Collector, Node, NodeSettings};
use testbed::slurm::remove_groups;
use workload::{Millis, Mode, NodeName, Timestamp};

/// A tree of version 2 in which this user may make groups.
fn writable_tree() -> Option<PathBuf> {
    let trees = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let tree = trees.into_iter().find(|tree| tree.join("cgroup.controllers").exists())?;
    let probe = tree.join(format!("tracewise-probe-{}", std::process::id()));
    fs::create_dir(&probe).ok()?;
    fs::remove_dir(&probe).unwrap();
    Some(tree.to_owned())
}

struct Busy {
    child: Child,
    group: PathBuf,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The kernel lets go of a process a moment after it has ended.
        for _ in 0..50 {
            remove_groups(&self.group);
            if !self.group.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_real_group_of_version_2_is_a_job_with_cpu_time_and_pressure() {
    let Some(tree) = writable_tree() else {
        return testbed::skip("kernel: no control groups of version 2 that this user may write to");
    };
    let scope = tree.join(format!("tw{}_slurmstepd.scope", std::process::id()));
    let group = scope.join("job_4711/step_0/user/task_0");
    fs::create_dir_all(&group).unwrap();
    let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let busy = Busy { child, group: scope.clone() };
    fs::write(group.join("cgroup.procs"), busy.child.id().to_string()).unwrap();

    let mut collector = CgroupCollector::new(Path::new("/sys/fs/cgroup"), Path::new("/proc"));
    let mut used = |second| {
        let now = Timestamp::from_seconds(second);
        collector.look(now).unwrap();
        collector.read_usage(now, Millis::SECOND, Duration::MAX);
        let job = collector.jobs().find(|job| job.id.as_str() == "4711").cloned();
        job.map(|job| job.used.clone().unwrap().total)
    };
    let before = used(0).expect("the job is found");
    std::thread::sleep(Duration::from_millis(300));
    let after = used(10).expect("the job is still there");
    assert!(after.cpu_user_usec > before.cpu_user_usec, "{before:?} {after:?}");
    assert!(after.cpu_pressure.some_usec.is_some());
    drop(busy);
    assert_eq!(used(11), None);
}

#[test]
fn a_busy_thread_of_this_machine_is_seen_to_be_busy() {
    let mut node = Node::new(NodeSettings {
        name: NodeName::new("here").unwrap(),
        procfs: "/proc".into(),
        cgroupfs: "/sys/fs/cgroup".into(),
        collectors: Collector::ALL.to_vec(),
        interval: Duration::from_secs(1),
        job_interval: Duration::from_secs(1),
        has_steps: false,
        most_jobs: agent::cgroup::MOST_JOBS,
    });
    let user = |node: &mut Node, second| {
        let sample = node.sample(Timestamp::from_seconds(second));
        assert!(sample.outcomes.iter().all(|outcome| outcome.error.is_none()), "{:?}", sample.outcomes);
        sample.threads.iter().map(|thread| thread.ticks[Mode::User]).sum::<u64>()
    };
    let before = user(&mut node, 0);
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        std::hint::spin_loop();
    }
    assert!(user(&mut node, 1) >= before + 10);
}
