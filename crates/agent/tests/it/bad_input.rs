//! Whatever the kernel, a disk or a user comes up with: no panic, and no wrong number in silence.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use agent::cgroup::{CgroupCollector, MOST_JOBS};
use agent::cpu::{self, CpuCollector};
use agent::exposition::{Format, Page};
use agent::node::{Collector, Node, NodeSettings};
use testbed::fake_node::FakeNode;
use workload::{Millis, NodeName, Owner, Timestamp};

fn node(fake: &FakeNode) -> Node {
    Node::new(NodeSettings {
        name: NodeName::new("n1").unwrap(),
        procfs: fake.proc(),
        cgroupfs: fake.cgroup(),
        collectors: Collector::ALL.to_vec(),
        interval: Duration::from_secs(1),
        job_interval: Duration::from_secs(1),
        has_steps: true,
        most_jobs: MOST_JOBS,
    })
}

fn page(node: &mut Node, second: i64) -> String {
    let mut page = Page::new(Format::Text, 0);
    node.sample(Timestamp::from_seconds(second)).expose(&mut page);
    page.finish()
}

#[test]
fn jobs_that_come_and_go_are_seen_at_the_next_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 4);
    let mut node = node(&fake);
    let owner =
        |node: &mut Node, second| node.sample(Timestamp::from_seconds(second)).threads[1].owner.clone();
    assert_eq!(owner(&mut node, 0), Owner::Nobody);
    fake.start_job(7, "0-1");
    assert_eq!(owner(&mut node, 1).job().unwrap().as_str(), "7");
    fake.end_job(7);
    assert_eq!(owner(&mut node, 2), Owner::Nobody);
    fake.start_job(8, "1-2");
    assert_eq!(owner(&mut node, 3).job().unwrap().as_str(), "8");
}

#[test]
fn a_job_is_confined_a_moment_after_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 4);
    let mut node = node(&fake);
    fake.start_job(7, "0-3");
    let group = fake.cgroup().join("system.slice/slurmstepd.scope/job_7");
    fs::write(group.join("cpuset.cpus"), "\n").unwrap();
    assert_eq!(node.sample(Timestamp::from_seconds(0)).threads[0].owner, Owner::Unknown);
    fs::write(group.join("cpuset.cpus"), "0-1\n").unwrap();
    fs::write(group.join("cpuset.cpus.effective"), "0-1\n").unwrap();
    let sample = node.sample(Timestamp::from_seconds(1));
    assert!(sample.threads[0].owner.job().is_some() && sample.threads[2].owner == Owner::Nobody);
    // Long after it has settled, it is moved.
    (2..60).for_each(|second| drop(node.sample(Timestamp::from_seconds(second))));
    fs::write(group.join("cpuset.cpus.effective"), "2-3\n").unwrap();
    (60..71).for_each(|second| drop(node.sample(Timestamp::from_seconds(second))));
    let sample = node.sample(Timestamp::from_seconds(71));
    assert!(sample.threads[0].owner == Owner::Nobody && sample.threads[2].owner.job().is_some());
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(7, "0");
    let mut node = node(&fake);
    (100_000..100_030).for_each(|second| drop(node.sample(Timestamp::from_seconds(second))));
    let memory = |node: &mut Node, second| {
        let sample = node.sample(Timestamp::from_seconds(second));
        sample.jobs[0].used.as_ref().unwrap().total.memory_bytes
    };
    let before = memory(&mut node, 50_000);
    fake.touch_job(7);
    assert_ne!(memory(&mut node, 50_002), before);
}

#[test]
fn names_cannot_break_out_of_a_label() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNode::create(folder.path(), 2);
    let name = "pbs_jobs.service/jobid/1.x\"} 1\\n";
    let group = fake.cgroup().join(name);
    fs::create_dir_all(&group).unwrap();
    for (file, text) in [("cgroup.procs", "1\n"), ("cpuset.cpus", "0\n"), ("cpuset.cpus.effective", "0\n")] {
        fs::write(group.join(file), text).unwrap();
    }
    let page = page(&mut node(&fake), 0);
    assert!(
        page.contains(r#"tracewise_cpu_owner_info{cpu="0",owner="job",jobid="1.x\"} 1\\n"} 1"#),
        "{page}"
    );
    if let Some(complaints) = testbed::promtool_check(&page) {
        assert_eq!(complaints, "");
    }
}

#[test]
fn without_control_groups_owners_are_unknown_and_that_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(7, "0");
    let mut node = node(&fake);
    let away = folder.path().join("away");
    node.sample(Timestamp::from_seconds(0));
    fs::rename(fake.cgroup(), &away).unwrap();
    let sample = node.sample(Timestamp::from_seconds(20));
    let outcome = sample.outcomes.iter().find(|outcome| outcome.collector == Collector::Cgroup).unwrap();
    assert!(outcome.error.as_ref().unwrap().contains("no control groups"));
    assert_eq!(sample.threads[1].owner, Owner::Unknown);
    fs::rename(&away, fake.cgroup()).unwrap();
    assert_eq!(node.sample(Timestamp::from_seconds(21)).threads[1].owner, Owner::Nobody);
}

#[test]
fn a_user_cannot_stop_the_clock_or_take_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNode::create(folder.path(), 2);
    let slot = "condor_execute_slot1@n1";
    let group = fake.cgroup().join(format!("htcondor/{slot}.slice/{slot}.scope"));
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cgroup.procs"), "77\n").unwrap();
    let cwd = fake.proc().join("77/cwd");
    fs::create_dir_all(&cwd).unwrap();
    let status = std::process::Command::new("mkfifo").arg(cwd.join(".job.ad")).status().unwrap();
    assert!(status.success());
    let sample = node(&fake).sample(Timestamp::from_seconds(0));
    assert_eq!(sample.jobs[0].id.as_str(), "slot1");
    fs::remove_file(cwd.join(".job.ad")).unwrap();
    fs::write(folder.path().join("ad"), "ClusterId = 1\nProcId = 0\n").unwrap();
    std::os::unix::fs::symlink(folder.path().join("ad"), cwd.join(".job.ad")).unwrap();
    assert_eq!(node(&fake).sample(Timestamp::from_seconds(0)).jobs[0].id.as_str(), "slot1");
    // A title counts only in the group of the step's daemon.
    let job = fake.cgroup().join("system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0");
    fs::create_dir_all(&job).unwrap();
    fs::write(job.join("cgroup.procs"), "78\n").unwrap();
    fs::create_dir_all(fake.proc().join("78")).unwrap();
    fs::write(fake.proc().join("78/cmdline"), "slurmstepd: [1.batch]\0").unwrap();
    let sample = node(&fake).sample(Timestamp::from_seconds(0));
    assert!(sample.jobs.iter().any(|job| job.id.as_str() == "s5K1KKYAYG5D00"));
}

#[test]
fn a_job_with_two_groups_is_shown_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 4);
    fake.start_job(7, "0-1");
    let system = fake.cgroup().join("system.slice");
    let copy = system.join("n2_slurmstepd.scope/job_7");
    fs::create_dir_all(&copy).unwrap();
    for name in ["cgroup.procs", "cgroup.events", "cpuset.cpus", "cpuset.cpus.effective", "memory.current"] {
        fs::copy(system.join("slurmstepd.scope/job_7").join(name), copy.join(name)).unwrap();
    }
    let page = page(&mut node(&fake), 0);
    assert_eq!(page.matches("tracewise_job_info{jobid=\"7\"").count(), 1);
    assert!(page.contains("tracewise_jobs_skipped{reason=\"repeated\"} 1"));
    assert!(page.contains("tracewise_cpu_owner_info{cpu=\"0\",owner=\"job\",jobid=\"7\"} 1"));
}

#[test]
fn an_unreadable_folder_is_reported_and_the_rest_is_read() {
    if rustix::process::geteuid().is_root() {
        // Root reads everything; a folder that is a file cannot be listed by anyone.
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        let mut collector = CgroupCollector::new(folder.path(), folder.path());
        collector.look(Timestamp(0)).unwrap();
        let scope = folder.path().join("system.slice/slurmstepd.scope");
        fs::create_dir_all(scope.join("job_1")).unwrap();
        collector.look(Timestamp(20_000)).unwrap();
        fs::remove_dir_all(&scope).unwrap();
        fs::write(&scope, "").unwrap();
        let error = collector.look(Timestamp(21_000)).unwrap_err().to_string();
        assert!(error.contains("slurmstepd.scope"), "{error}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 4);
    fake.start_job(7, "0");
    let hidden = fake.cgroup().join("system.slice/unit1.service");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).unwrap();
    let mut collector = CgroupCollector::new(&fake.cgroup(), &fake.proc());
    let error = collector.look(Timestamp(0)).unwrap_err().to_string();
    assert!(error.contains("unit1.service"), "{error}");
    assert_eq!(collector.jobs().count(), 1);
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn files_that_vanish_or_are_garbled_leave_values_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 4);
    fake.start_job(7, "0");
    let group = fake.cgroup().join("system.slice/slurmstepd.scope/job_7");
    fs::remove_file(group.join("memory.peak")).unwrap();
    fs::write(group.join("memory.current"), "12").unwrap();
    fs::write(group.join("cpu.stat"), "user_usec 12\nsystem_usec 3").unwrap();
    fs::write(group.join("io.stat"), [0xff, 0xfe, b'\n']).unwrap();
    let page = page(&mut node(&fake), 0);
    assert!(page.contains("tracewise_job_cpu_user_seconds_total{jobid=\"7\"} 0.000012\n"));
    for absent in ["memory_bytes", "memory_peak_bytes", "cpu_system_seconds_total", "io_read_bytes_total"] {
        assert!(!page.contains(&format!("tracewise_job_{absent}{{")), "{absent}");
    }
}

#[test]
fn a_stat_file_that_is_cut_short_is_no_thread_with_wrong_counters() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNode::create(folder.path(), 8);
    let text = fs::read_to_string(fake.proc().join("stat")).unwrap();
    let whole = cpu::parse(&text);
    for length in 0..text.len() {
        for (found, expected) in cpu::parse(&text[..length]).iter().zip(&whole) {
            assert_eq!(found, expected);
        }
    }
    fs::write(fake.proc().join("stat"), "").unwrap();
    assert!(CpuCollector::new(&fake.proc()).read().unwrap_err().to_string().contains("no line for any CPU"));
}

#[test]
fn ten_thousand_jobs_cost_no_more_than_their_share() {
    let folder = tempfile::tempdir().unwrap();
    let scope = folder.path().join("system.slice/slurmstepd.scope");
    for job in 0..10_000 {
        let group = scope.join(format!("job_{job}"));
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "1\n").unwrap();
        fs::write(group.join("memory.current"), "4096\n").unwrap();
    }
    fs::write(folder.path().join("cgroup.controllers"), "cpuset\n").unwrap();
    let mut collector = CgroupCollector::new(folder.path(), folder.path()).with_most_jobs(usize::MAX);
    collector.look(Timestamp(0)).unwrap();
    assert_eq!(collector.jobs().count(), 10_000);
    // However little time there is, all of them get their turn.
    let mut second = 0;
    let mut n_read = 0;
    while n_read < 10_000 {
        second += 1;
        assert!(second < 10_000, "{n_read} jobs read");
        let now = Timestamp::from_seconds(second);
        n_read += collector.read_usage(now, Millis(1_000_000_000), Duration::from_millis(2)).len();
    }
    assert!(second > 2, "all at once");
    assert!(collector.jobs().all(|job| job.used.as_ref().unwrap().total.memory_bytes == Some(4096)));
}
