//! Nodes as folders: every layout of control groups, and what is made of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::cgroup::CgroupCollector;
use agent::cgroup::tree::Hierarchy;
use agent::cgroup::usage::Io;
use agent::cpu::CpuCollector;
use agent::owner::Ownership;
use workload::{Millis, Timestamp};

pub fn node(name: &str) -> PathBuf {
    testbed::workspace().join("fixtures/nodes").join(name)
}

/// A collector that has looked once.
fn look(cgroup: &Path, proc: &Path) -> CgroupCollector {
    let mut collector = CgroupCollector::new(cgroup, proc).with_most_jobs(usize::MAX);
    let _ = collector.look(Timestamp(0));
    collector.read_usage(Timestamp(0), Millis::SECOND, Duration::MAX);
    collector
}

fn look_at(name: &str) -> CgroupCollector {
    look(&node(name).join("cgroup"), &node(name).join("proc"))
}

/// Jobs as `manager id cpus`, and the owner of each thread.
fn seen(name: &str) -> (Vec<String>, String) {
    let collector = look_at(name);
    let jobs = collector.jobs().map(|job| {
        let cpus = job.cpus.as_ref().map_or("anywhere".into(), |cpus| format!("on {cpus}"));
        format!("{} {} {cpus}", job.manager.name(), job.id)
    });
    let mut threads = CpuCollector::new(&node(name).join("proc")).read().unwrap();
    Ownership::of(collector.jobs().map(|job| &**job)).flag(&mut threads);
    let owners = threads.iter().map(|thread| match thread.owner.job() {
        Some(job) => job.to_string(),
        None => thread.owner.state().to_owned(),
    });
    (jobs.collect(), owners.collect::<Vec<_>>().join(" "))
}

#[test]
fn every_layout_gives_each_thread_its_owner() {
    let pod = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340";
    let pod_on = |cpus: &str| format!("kubernetes {pod} on {cpus}");
    let cases: [(&str, Vec<String>, String); 12] = [
        (
            "slurm-v2",
            vec!["slurm 42 on 0-3".into(), "slurm 43 on 4-5".into()],
            "42 42 42 42 43 43 nobody nobody".into(),
        ),
        (
            "slurm-multiple",
            vec!["slurm 7 on 2".into()],
            "nobody nobody 7 nobody nobody nobody nobody nobody".into(),
        ),
        (
            "slurm-sluid",
            vec!["slurm 3385 on 0-1".into(), "slurm s5K1KKYAYG5D01 on 2-3".into()],
            "3385 3385 s5K1KKYAYG5D01 s5K1KKYAYG5D01 nobody nobody nobody nobody".into(),
        ),
        (
            "slurm-shared",
            vec!["slurm 1 on 0-7".into(), "slurm 2 on 0-1".into()],
            "shared shared 1 1 1 1 1 1".into(),
        ),
        (
            "slurm-without-cpuset",
            vec!["slurm 5 anywhere".into(), "slurm 6 anywhere".into()],
            ["unknown"; 8].join(" "),
        ),
        ("slurm-v1", vec!["slurm 9 on 4-7".into()], "nobody nobody nobody nobody 9 9 9 9".into()),
        (
            "htcondor-v2",
            vec!["htcondor 120.3 on 0-1".into(), "htcondor slot1_2 on 2".into()],
            "120.3 120.3 slot1_2 nobody nobody nobody nobody nobody".into(),
        ),
        (
            "htcondor-v1",
            vec!["htcondor slot1 on 3".into()],
            "nobody nobody nobody slot1 nobody nobody nobody nobody".into(),
        ),
        (
            "kubernetes-systemd",
            vec![pod_on("6-7")],
            format!("nobody nobody nobody nobody nobody nobody {pod} {pod}"),
        ),
        (
            "kubernetes-cgroupfs",
            vec![pod_on("5")],
            format!("nobody nobody nobody nobody nobody {pod} nobody nobody"),
        ),
        (
            "pbs",
            vec!["pbs 123.server on 0-3".into(), "pbs 124.server on 4".into()],
            "123.server 123.server 123.server 123.server 124.server nobody nobody nobody".into(),
        ),
        (
            "systemd-slice",
            vec!["systemd batch.slice on 1-2".into()],
            "nobody batch.slice batch.slice nobody nobody nobody nobody nobody".into(),
        ),
    ];
    for (name, jobs, owners) in cases {
        assert_eq!(seen(name), (jobs, owners), "{name}");
    }
}

#[test]
fn a_job_that_has_ended_does_not_count_and_is_said_to_be_skipped() {
    let collector = look_at("slurm-v2");
    let skipped: Vec<String> = collector.skipped().map(|skipped| skipped.path).collect();
    assert_eq!(skipped, ["system.slice/slurmstepd.scope/job_40"]);
    assert_eq!(collector.trees().hierarchy, Hierarchy::Unified);
}

#[test]
fn what_jobs_use_is_read_in_both_versions() {
    let usage = |collector: &CgroupCollector, at: usize| {
        collector.jobs().nth(at).unwrap().used.clone().unwrap().total
    };
    let collector = look_at("slurm-v2");
    let used = usage(&collector, 0);
    assert_eq!(used.memory_bytes, Some(1 << 30));
    assert_eq!(used.memory_limit_bytes, Some(4 << 30));
    assert_eq!(used.io_pressure.some_usec, Some(1234));
    assert_eq!((used.cpu_user_usec, used.cpu_system_usec), (Some(3_000_000), Some(1_000_000)));
    assert_eq!(
        (used.throttled_usec, used.periods, used.throttled_periods),
        (Some(250_000), Some(10), Some(1))
    );
    assert_eq!((used.anon_bytes, used.file_bytes), (Some(800_000_000), Some(200_000_000)));
    assert_eq!(used.io, Some(Io { read_bytes: 181_224, write_bytes: 4_120, reads: 4, writes: 2 }));
    assert_eq!((used.tasks, used.oom_kills, used.swap_bytes), (Some(17), Some(0), Some(0)));
    assert_eq!(usage(&collector, 1).memory_limit_bytes, None, "no limit is absent");
    let collector = look_at("slurm-v1");
    let used = usage(&collector, 0);
    assert_eq!((used.memory_bytes, used.memory_limit_bytes), (Some(1 << 20), None));
    assert_eq!(used.cpu_pressure.some_usec, None);
    assert_eq!((used.cpu_user_usec, used.cpu_system_usec), (Some(3_000_000), Some(1_000_000)));
    assert_eq!((used.throttled_usec, used.throttled_periods), (Some(250_000), Some(1)));
    assert_eq!(
        (used.anon_bytes, used.file_bytes, used.swap_bytes),
        (Some(524_288), Some(262_144), Some(4_096))
    );
    assert_eq!(used.io, Some(Io { read_bytes: 4_096, write_bytes: 8_192, reads: 1, writes: 2 }));
    assert_eq!((used.tasks, used.oom_kills), (Some(5), None));
    assert_eq!(collector.jobs().next().unwrap().uid, Some(1000));
}

#[test]
fn a_missing_root_or_odd_names_are_no_reason_to_panic() {
    let folder = tempfile::tempdir().unwrap();
    let look = || look(&folder.path().join("cgroup"), folder.path());
    assert_eq!(look().trees().hierarchy, Hierarchy::Absent);
    let scope = folder.path().join("cgroup/system.slice/slurmstepd.scope");
    for name in ["job_1\"}\n{", "job_", "job_99999999999999999999", "s\u{fffd}", "job_7"] {
        std::fs::create_dir_all(scope.join(name)).unwrap();
        std::fs::write(scope.join(name).join("cgroup.procs"), "1\nhalf a li").unwrap();
        std::fs::write(scope.join(name).join("cpuset.cpus.effective"), "0-").unwrap();
        std::fs::write(scope.join(name).join("memory.current"), "12 apples").unwrap();
    }
    std::fs::write(folder.path().join("cgroup/cgroup.controllers"), "cpuset\n").unwrap();
    let collector = look();
    let ids: Vec<&str> = collector.jobs().map(|job| job.id.as_str()).collect();
    assert_eq!(ids, ["7", "99999999999999999999"]);
    assert!(collector.jobs().all(|job| job.cpus.is_none()));
    assert!(collector.jobs().all(|job| job.used.as_ref().unwrap().total.memory_bytes.is_none()));
}

#[test]
fn ten_thousand_jobs_are_found_in_reasonable_time() {
    let folder = tempfile::tempdir().unwrap();
    let scope = folder.path().join("system.slice/slurmstepd.scope");
    for job in 0..10_000 {
        let group = scope.join(format!("job_{job}"));
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), "1\n").unwrap();
    }
    std::fs::write(folder.path().join("cgroup.controllers"), "cpuset\n").unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(look(folder.path(), folder.path()).jobs().count(), 10_000);
    assert!(begun.elapsed().as_secs_f64() < 20.0, "{:?}", begun.elapsed());
}
