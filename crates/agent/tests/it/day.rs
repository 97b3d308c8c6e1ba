//! Time is an argument: hours of many jobs pass in seconds, and nothing grows.

use std::time::Duration;

use agent::exposition::Format;
use agent::node::{Collector, Node, NodeSettings};
use agent::ring::Keep;
use agent::service::Shared;
use testbed::fake_node::FakeNode;
use workload::{Millis, NodeName, Timestamp};

#[test]
fn series_and_readings_do_not_grow_with_the_number_of_jobs_that_have_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 8);
    let mut node = Node::new(NodeSettings {
        name: NodeName::new("n1").unwrap(),
        procfs: fake.proc(),
        cgroupfs: fake.cgroup(),
        collectors: Collector::ALL.to_vec(),
        interval: Duration::from_secs(1),
        job_interval: Duration::from_secs(10),
        has_steps: false,
        most_jobs: agent::cgroup::MOST_JOBS,
    });
    let shared = Shared::new(&node, Keep { time: Millis(600_000), bytes: usize::MAX }, true);
    let n_series = || shared.page(Format::Text).lines().filter(|line| !line.starts_with('#')).count();
    let mut after_warm_up = None;
    // Two hours; a job starts every 20 seconds and runs for 60.
    for second in 0..7_200u64 {
        if second % 20 == 0 {
            fake.start_job(second, &(second / 20 % 8).to_string());
            if second >= 60 {
                fake.end_job(second - 60);
            }
        }
        fake.tick();
        shared.publish(node.sample(Timestamp::from_seconds(second as i64)), 0);
        if second == 1_215 {
            after_warm_up = Some((n_series(), shared.ring().n_bytes()));
        }
    }
    let (series_then, bytes_then) = after_warm_up.unwrap();
    let (series_now, bytes_now) = (n_series(), shared.ring().n_bytes());
    assert_eq!(shared.latest().unwrap().jobs.len(), 3);
    assert_eq!(series_now, series_then);
    assert!(bytes_now < bytes_then * 3 / 2, "{bytes_then} bytes grew to {bytes_now}");
}
