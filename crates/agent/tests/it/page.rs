//! What Prometheus gets to read.

use testbed::fake_node::FakeNode;
use testbed::http;

use crate::agent_on;
use crate::layouts::node;

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// A page without what differs from run to run.
fn settled(page: &str) -> String {
    let is_steady = |line: &&str| {
        !line.contains("process_")
            && !line.contains("duration_seconds{")
            && !line.contains("tracewise_ticks")
            && !line.contains("tracewise_ring_bytes ")
    };
    let without_time = |line: &str| {
        let is_moment = line.contains("timestamp_seconds") && !line.starts_with('#');
        let end =
            if is_moment { line.rfind(' ') } else { line.rfind(" 1").filter(|at| line.len() - at > 12) };
        format!("{}\n", end.map_or(line, |end| &line[..end]))
    };
    page.lines().filter(is_steady).map(without_time).collect()
}

#[test]
fn the_page_of_a_slurm_node() {
    let agent = agent_on(&node("slurm-v2"), &["--compat.jobstats", "--collector.cgroup.steps"]);
    let answer = http::get(agent.port, "/metrics", &[]);
    assert_eq!(answer.status, 200);
    assert!(answer.headers.contains("content-type: text/plain; version=0.0.4"), "{}", answer.headers);
    insta::assert_snapshot!("slurm-v2", settled(&answer.text()));
}

#[test]
fn every_layout_makes_a_page_that_promtool_finds_nothing_wrong_with() {
    for layout in ["slurm-v2", "slurm-v1", "slurm-sluid", "htcondor-v2", "kubernetes-systemd", "pbs"] {
        // What jobstats asks for has names that promtool would not give.
        let agent = agent_on(&node(layout), &["--collector.cgroup.steps"]);
        let page = http::get(agent.port, "/metrics", &[]).text();
        assert!(page.contains("tracewise_job_info{"), "{layout}: {page}");
        let Some(complaints) = testbed::promtool_check(&page) else { return };
        assert_eq!(complaints, "", "{layout}");
    }
}

#[test]
fn openmetrics_is_served_to_those_who_prefer_it() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let answer = http::get(agent.port, "/metrics", &[("Accept", OPENMETRICS)]);
    assert!(answer.headers.contains("content-type: application/openmetrics-text; version=1.0.0"));
    let page = answer.text();
    assert!(page.ends_with("# EOF\n"));
    assert!(page.contains("# TYPE tracewise_cpu_seconds counter\ntracewise_cpu_seconds_total{cpu=\"0\""));
    assert!(page.contains("# TYPE tracewise_job info\ntracewise_job_info{jobid=\"42\""));
}

#[test]
fn counters_carry_the_moment_of_their_sample_and_jobs_carry_none() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let page = http::get(agent.port, "/metrics", &[]).text();
    let line = |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let sampled = value(&line("tracewise_sample_timestamp_seconds "));
    assert_eq!(value(&line("tracewise_cpu_seconds_total{cpu=\"3\",mode=\"idle\"}")), sampled * 1e3);
    assert_eq!(line("tracewise_job_memory_bytes{jobid=\"42\"}").split(' ').count(), 2);
    assert_eq!(line("tracewise_cpu_owner_info{cpu=\"0\"").split(' ').count(), 2);
}

#[test]
fn a_page_is_compressed_for_those_who_ask() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let small = http::get(agent.port, "/metrics", &[("Accept-Encoding", "gzip")]);
    assert!(small.headers.contains("content-encoding: gzip"));
    let mut page = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&small.body[..]), &mut page).unwrap();
    assert!(page.contains("tracewise_cpu_seconds_total{") && page.len() > 3 * small.body.len());
}

#[test]
fn collectors_can_be_switched_off_and_a_broken_one_breaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 4);
    fake.start_job(42, "0-1");
    std::fs::remove_file(folder.path().join("proc/meminfo")).unwrap();
    std::fs::write(folder.path().join("proc/loadavg"), "garbled\n").unwrap();
    let agent = agent_on(folder.path(), &["--no-collector.pressure"]);
    let page = http::get(agent.port, "/metrics", &[]).text();
    let succeeds = |collector: &str| {
        let start = format!("tracewise_scrape_collector_success{{collector=\"{collector}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&start)).map(|value| value == "1")
    };
    assert_eq!((succeeds("cpu"), succeeds("cgroup"), succeeds("self")), (Some(true), Some(true), Some(true)));
    assert_eq!(
        (succeeds("memory"), succeeds("load"), succeeds("pressure")),
        (Some(false), Some(false), None)
    );
    assert!(page.contains("tracewise_cpu_owner_info{cpu=\"1\",owner=\"job\",jobid=\"42\"} 1"));
    assert!(!page.contains("tracewise_pressure") && !page.contains("tracewise_load1"));
}

#[test]
fn threads_that_are_shared_free_or_unknown_are_told_apart() {
    let owners = |layout: &str| {
        let agent = agent_on(&node(layout), &[]);
        let page = http::get(agent.port, "/metrics", &[]).text();
        let owner = |cpu: &str| {
            let start = format!("tracewise_cpu_owner_info{{cpu=\"{cpu}\",owner=\"");
            page.lines().find_map(|line| line.strip_prefix(&start)?.split('"').next()).unwrap().to_owned()
        };
        [owner("0"), owner("2"), owner("7")]
    };
    assert_eq!(owners("slurm-shared"), ["shared", "job", "job"]);
    assert_eq!(owners("slurm-v2"), ["job", "job", "nobody"]);
    assert_eq!(owners("slurm-without-cpuset"), ["unknown", "unknown", "unknown"]);
}

/// The families of a page as a table: name, kind, help.
fn families(page: &str) -> String {
    let mut table = String::from("| metric | kind | |\n|---|---|---|\n");
    let kinds: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| !name.starts_with("cgroup_") && !name.starts_with("tracewise_memory_"))
        .collect();
    for (name, kind) in kinds {
        let start = format!("# HELP {name} ");
        let help = page.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        table += &format!("| `{name}` | {kind} | {help} |\n");
    }
    table + "| `tracewise_memory_…` | gauge | Each line of /proc/meminfo, in bytes where it is a size. |\n"
}

#[test]
fn every_metric_is_documented() {
    let agent = agent_on(&node("slurm-v2"), &["--remote-write.url=http://127.0.0.1:1/"]);
    let table = families(&http::get(agent.port, "/metrics", &[]).text());
    let path = testbed::workspace().join("docs/agent.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, documented) = text.split_once("## Metrics\n\n").unwrap();
    if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
        std::fs::write(path, format!("{head}## Metrics\n\n{table}")).unwrap();
        return;
    }
    assert_eq!(documented, table, "INSTA_UPDATE=always cargo test -p agent writes it anew");
}
