//! Control groups that look like jobs and were not made by root.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::cgroup::{CgroupCollector, MOST_JOBS, SkipReason};
use agent::doctor;
use agent::exposition::{Format, Page};
use agent::node::{Node, NodeSettings};
use testbed::fake_node::FakeNode;
use workload::{NodeName, Owner, Timestamp};

const USER: u32 = 1_000;

/// Makes groups that claim to be a job of root without a cpuset, and returns the path of the group.
fn forge(fake: &FakeNode, path: &str) -> PathBuf {
    let group = fake.cgroup().join(path);
    fs::create_dir_all(&group).unwrap();
    for (name, text) in [
        ("cgroup.procs", "1\n"),
        ("cgroup.events", "populated 1\n"),
        ("memory.current", "1099511627776\n"),
        ("cpuset.cpus", "\n"),
    ] {
        fs::write(group.join(name), text).unwrap();
    }
    group
}

/// Gives a folder, and what is above it up to `top`, to a user.
fn give(folder: &Path, top: &Path) {
    let mut folder = folder;
    while folder != top {
        chown(folder, Some(USER), Some(USER)).unwrap();
        folder = folder.parent().unwrap();
    }
}

fn seen(fake: &FakeNode) -> (Vec<String>, Owner) {
    let settings = NodeSettings::for_recording(
        NodeName::new("n1").unwrap(),
        fake.proc(),
        fake.cgroup(),
        Duration::from_secs(1),
    );
    let sample = Node::new(settings).sample(Timestamp(0));
    let ids = sample.jobs.iter().map(|job| job.id.to_string()).collect();
    (ids, sample.threads[1].owner.clone())
}

#[test]
fn a_group_below_the_slice_of_users_is_no_job() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(42, "0");
    let before = seen(&fake);
    assert_eq!(before, (vec!["42".to_owned()], Owner::Nobody));
    let delegated = "user.slice/user-1000.slice/user@1000.service";
    for path in ["slurm/uid_0/job_4711", "x_slurmstepd.scope/job_4712", "torque/4713.server", "app.slice"] {
        forge(&fake, &format!("{delegated}/{path}"));
    }
    assert_eq!(seen(&fake), before);
}

#[test]
fn a_group_in_a_folder_of_another_user_is_no_job_wherever_it_lies() {
    if !rustix::process::geteuid().is_root() {
        return; // The next test needs no other user.
    }
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(42, "0");
    let before = seen(&fake);
    let system = fake.cgroup().join("system.slice");
    let in_service = forge(&fake, "system.slice/unit1.service/slurm/uid_0/job_4711");
    give(&in_service, &system);
    let in_nest = forge(&fake, "system.slice/x_slurmstepd.scope/job_4712");
    give(in_nest.parent().unwrap(), &system);
    assert_eq!(seen(&fake), before);

    let report = doctor::examine(&fake.proc(), &fake.cgroup(), Timestamp(0)).unwrap();
    let said = report.to_string();
    for path in ["system.slice/unit1.service", "system.slice/x_slurmstepd.scope"] {
        assert!(said.contains(&format!("skipped {path}: it does not belong to root")), "{said}");
    }
    assert!(said.contains("! system.slice/x_slurmstepd.scope does not belong to root"), "{said}");
}

#[test]
fn a_nest_that_is_given_away_later_loses_its_jobs_at_once() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(42, "0");
    let mut collector = CgroupCollector::new(&fake.cgroup(), &fake.proc());
    collector.look(Timestamp::from_seconds(0)).unwrap();
    assert_eq!(collector.jobs().count(), 1);
    chown(fake.cgroup().join("system.slice/slurmstepd.scope"), Some(USER), None).unwrap();
    collector.look(Timestamp::from_seconds(1)).unwrap();
    assert_eq!(collector.jobs().count(), 0);
}

#[test]
fn a_job_whose_own_folder_was_handed_to_its_user_is_still_a_job() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNode::create(folder.path(), 2);
    // As HTCondor does it.
    let slot = forge(&fake, "system.slice/htcondor/condor_slot1_2@n1.slice/condor_slot1_2@n1.scope");
    chown(&slot, Some(USER), Some(USER)).unwrap();
    assert_eq!(seen(&fake).0, ["slot1_2"]);
}

#[test]
fn the_owner_of_the_root_is_the_one_who_may_make_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(42, "0");
    let uid = fs::metadata(fake.cgroup()).unwrap().uid();
    let n_jobs = |uid| {
        let mut collector = CgroupCollector::new(&fake.cgroup(), &fake.proc()).with_owner(uid);
        collector.look(Timestamp(0)).unwrap();
        collector.jobs().count()
    };
    assert_eq!((n_jobs(uid), n_jobs(uid + 1)), (1, 0));
}

#[test]
fn more_jobs_than_are_exposed_are_counted_and_those_found_first_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(500, "0");
    let mut settings = NodeSettings::for_recording(
        NodeName::new("n1").unwrap(),
        fake.proc(),
        fake.cgroup(),
        Duration::from_secs(1),
    );
    settings.most_jobs = 3;
    let mut node = Node::new(settings);
    let at = Timestamp::from_seconds;
    assert_eq!(node.sample(at(0)).threads[1].owner, Owner::Nobody);
    (100..110).for_each(|job| fake.start_job(job, "0"));
    let ids = |sample: &agent::node::Sample| -> Vec<String> {
        sample.jobs.iter().map(|job| job.id.to_string()).collect()
    };
    let sample = node.sample(at(1));
    assert_eq!(ids(&sample), ["100", "101", "500"]);
    assert_eq!(sample.n_skipped[SkipReason::TooMany as usize], 8);
    assert_eq!(sample.threads[1].owner, Owner::Unknown, "a job that is left out may run there");
    let mut page = Page::new(Format::Text, 0);
    sample.expose(&mut page);
    assert!(page.finish().contains("tracewise_jobs_skipped{reason=\"too_many\"} 8\n"));

    (100..108).for_each(|job| fake.end_job(job));
    let sample = (2..30).map(|second| node.sample(at(second))).last().unwrap();
    assert_eq!(ids(&sample), ["108", "109", "500"]);
    assert_eq!(sample.n_skipped[SkipReason::TooMany as usize], 0);
    assert_eq!(sample.threads[1].owner, Owner::Nobody);
}

#[test]
fn the_doctor_says_when_jobs_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNode::create(folder.path(), 2);
    for job in 0..MOST_JOBS + 5 {
        forge(&fake, &format!("system.slice/slurmstepd.scope/job_{job}"));
    }
    let report = doctor::examine(&fake.proc(), &fake.cgroup(), Timestamp(0)).unwrap();
    let said = report.to_string();
    assert!(said.contains("5 jobs are left out") && said.contains("--collector.cgroup.max-jobs"), "{said}");
}

#[test]
fn a_user_cannot_make_any_number_of_series_out_of_steps() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(42, "0");
    let step = fake.cgroup().join("system.slice/slurmstepd.scope/job_42/step_0");
    (0..3_000).for_each(|task| fs::create_dir(step.join(format!("task_{task}"))).unwrap());
    let mut collector = CgroupCollector::new(&fake.cgroup(), &fake.proc()).with_steps(true);
    collector.look(Timestamp(0)).unwrap();
    let read = collector.read_usage(Timestamp(0), workload::Millis::SECOND, Duration::MAX);
    assert_eq!(read[0].used.as_ref().unwrap().steps.len(), 1_000);
}
