//! A real Prometheus, a real VictoriaMetrics and a real node_exporter.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use archive::{Archive, Selection, Settings};
use testbed::http;
use workload::{JobId, JobReading, NodeName, Timestamp, metric};

use crate::{export, json_of, run, stdout_of, tracewise};

/// Now, at a whole second, with room behind for the samples.
fn start() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 - 3_600
}

/// A counter of seconds: two threads of two nodes for ten minutes, one scrape of node a missed. Job
/// 42 is on cpu 1 of node a during the second half, as [`owners`] has it.
fn samples(metric: &str, start: i64, mut line: impl FnMut(&str, f64, i64)) {
    for node in ["a", "b"] {
        for cpu in 0..2 {
            for second in (0..600).filter(|second| node != "a" || *second != 100) {
                let user = 0.01 * (second * (cpu + 2)) as f64;
                for (mode, value) in [("user", user), ("idle", second as f64 - user), ("iowait", 0.0)] {
                    let labels =
                        format!("{metric}{{instance=\"{node}:9100\",cpu=\"{cpu}\",mode=\"{mode}\"}}");
                    line(&labels, 5_000.0 + value, start + second);
                }
            }
        }
    }
}

fn openmetrics(metric: &str, start: i64) -> String {
    let mut text = format!("# TYPE {} counter\n", metric.trim_end_matches("_total"));
    samples(metric, start, |labels, value, time| writeln!(text, "{labels} {value:.2} {time}").unwrap());
    text + "# EOF\n"
}

/// Who owns the threads of these nodes, scraped some time after they were read.
fn owners(start: i64) -> String {
    let mut text = "# TYPE tracewise_cpu_owner info\n".to_owned();
    for (node, cpu) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        for second in 0..600 {
            let is_owned = (node, cpu) == ("a", 1) && second >= 300;
            let owner = if is_owned { "owner=\"job\",jobid=\"42\"" } else { "owner=\"nobody\"" };
            let labels = format!("instance=\"{node}:9100\",cpu=\"{cpu}\",{owner}");
            writeln!(text, "tracewise_cpu_owner_info{{{labels}}} 1 {}.4", start + second).unwrap();
        }
    }
    text
}

const NODE_MEMORY: u64 = 540_622_716_928;

/// When the files of job 42 are read: every ten seconds, for the last time after the import ends.
fn read_times(start: i64) -> impl Iterator<Item = Timestamp> {
    (0..31).map(move |n_read| Timestamp(start * 1_000 + 309_900 + n_read * 10_000))
}

/// What they have then. Some samples are no counts, so that the import cannot have them.
fn job_values(n_read: usize) -> [Result<u64, &'static str>; metric::JOB_COUNTS.len()] {
    std::array::from_fn(|index| match (n_read, index) {
        (3, 0) => Err("NaN"),
        (4, 2) => Err("1e17"),
        (5, 7) => Err("-1"),
        (_, index) => Ok((n_read as u64 + 1) * (index as u64 + 1) * 1_000_003),
    })
}

/// Job 42 of node a, as each scrape sees it: what was read last, at the time of the scrape in milliseconds.
fn job_samples(start: i64, mut line: impl FnMut(&str, &str, i64)) {
    for (index, name) in metric::JOB_COUNTS.into_iter().enumerate() {
        for (n_read, read) in read_times(start).enumerate() {
            let value = match job_values(n_read)[index] {
                Ok(usec) if name.ends_with("_seconds_total") => (usec as f64 / 1e6).to_string(),
                Ok(bytes) => bytes.to_string(),
                Err(other) => other.to_owned(),
            };
            let labels = format!("{name}{{instance=\"a:9100\",jobid=\"42\"}}");
            (0..10).for_each(|scrape| line(&labels, &value, read.0 + 500 + scrape * 1_000));
        }
    }
    for read in read_times(start) {
        let labels = format!("{}{{instance=\"a:9100\",jobid=\"42\"}}", metric::JOB_READ_TIME);
        let value = (read.0 as f64 / 1e3).to_string();
        (0..10).for_each(|scrape| line(&labels, &value, read.0 + 500 + scrape * 1_000));
    }
    for second in 0..600 {
        let labels = format!("{}{{instance=\"a:9100\"}}", metric::NODE_MEMORY);
        line(&labels, &NODE_MEMORY.to_string(), (start + second) * 1_000);
    }
}

fn job_openmetrics(start: i64) -> String {
    let mut text = String::new();
    let mut family = String::new();
    job_samples(start, |labels, value, time| {
        let name = labels.split('{').next().unwrap_or_default();
        if name != family {
            let bare = name.trim_end_matches("_total");
            let kind = if bare == name { "gauge" } else { "counter" };
            writeln!(text, "# TYPE {bare} {kind}").unwrap();
            family = name.to_owned();
        }
        writeln!(text, "{labels} {value} {}.{:03}", time / 1_000, time % 1_000).unwrap();
    });
    text
}

/// Every reading of a job within the import is there once, with the time at which it was read.
fn check_jobs(archive: &Path, start: i64) {
    let archive = Archive::open(archive.to_str().unwrap(), &Settings::default()).unwrap();
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    let readings = |node: &str| snapshot.job_readings(&NodeName::new(node).unwrap()).unwrap();
    let expected = read_times(start).enumerate().take(30).map(|(n_read, time)| {
        let mut counts = [None; JobReading::N_COUNTS];
        for (count, value) in counts.iter_mut().zip(job_values(n_read)) {
            *count = value.ok();
        }
        counts[JobReading::N_COUNTS - 1] = Some(NODE_MEMORY);
        (time, JobReading::from_counts(JobId::new("42").unwrap(), counts))
    });
    assert_eq!(readings("a"), expected.collect::<Vec<_>>());
    assert!(readings("b").is_empty());
}

/// An import of the stretch from `from` to `to`, in epoch seconds.
fn import_command(url: &str, from: i64, to: i64, archive: &Path) -> Command {
    let mut command = tracewise();
    command.args(["archive", "import", "--prometheus", url, "--into"]).arg(archive);
    command.args(["--from", &from.to_string(), "--to", &to.to_string()]);
    command
}

fn import(url: &str, start: i64, archive: &Path) -> serde_json::Value {
    json_of(import_command(url, start, start + 600, archive).arg("--json"))
}

fn check_rates(archive: &Path, start: i64, owned: bool) {
    let rows = export(archive.to_str().unwrap(), |command| command);
    let mut n_rows = 0;
    for line in rows.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let second = cells[0].parse::<i64>().unwrap() - start;
        let cpu: f64 = cells[2].parse().unwrap();
        let rates: Vec<f64> = cells[4..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert!((rates[0] - 0.01 * (cpu + 2.0)).abs() < 1e-6, "{line}");
        assert!((rates.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{line}");
        let is_owned = owned && cells[1] == "a" && cells[2] == "1" && second >= 300;
        assert_eq!(cells[3], if is_owned { "42" } else { "" }, "{line}");
        assert!(!(cells[1] == "a" && second == 100), "a scrape that was missed was invented: {line}");
        n_rows += 1;
    }
    assert_eq!(n_rows, 2 * 598 + 2 * 599);
}

#[test]
fn raw_samples_come_out_of_prometheus_as_they_were_scraped() {
    let start = start();
    let Some(server) = testbed::prometheus(Some(&openmetrics("node_cpu_seconds_total", start)), &[]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let report = import(&server.url(), start, folder.path());
    assert_eq!(report[0]["readings"], 2 * 599 + 2 * 600);
    assert_eq!(report[0]["missing"], 0);
    check_rates(folder.path(), start, false);
    let list = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(folder.path()));
    assert_eq!(list["nodes"][0]["period_seconds"], 1.0);
}

#[test]
fn the_agents_counters_are_joined_with_their_owners() {
    let start = start();
    let counters = openmetrics("tracewise_cpu_seconds_total", start);
    let metrics = owners(start) + &job_openmetrics(start) + &counters;
    let Some(server) = testbed::prometheus(Some(&metrics), &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    // It starts so early that it takes two queries, and scrapes of one reading of the job are in both.
    let report = json_of(import_command(&server.url(), start - 95, start + 600, folder.path()).arg("--json"));
    assert_eq!(report[0]["readings"], 2 * 599 + 2 * 600);
    assert_eq!(report[0]["repeated"], 0);
    check_rates(folder.path(), start, true);
    check_jobs(folder.path(), start);
    let of_job = export(folder.path().to_str().unwrap(), |command| command.args(["--job", "42"]));
    assert_eq!(of_job.lines().count() - 1, 300);
}

/// Samples in VictoriaMetrics, without owners.
fn write_to_victoria_metrics(port: u16, metric: &str, start: i64) {
    let mut text = String::new();
    samples(metric, start, |labels, value, time| {
        writeln!(text, "{labels} {value:.2} {}", time * 1_000).unwrap();
    });
    job_samples(start, |labels, value, time| writeln!(text, "{labels} {value} {time}").unwrap());
    let (status, _) = http::request(port, "POST", "/api/v1/import/prometheus", &text);
    assert_eq!(status, 204);
    http::request(port, "GET", "/internal/force_flush", "");
}

#[test]
fn victoria_metrics_answers_like_prometheus() {
    let Some(server) = testbed::victoria_metrics() else { return };
    let start = start();
    write_to_victoria_metrics(server.port, "node_cpu_seconds_total", start);
    let folder = tempfile::tempdir().unwrap();
    let report = import(&server.url(), start, folder.path());
    assert_eq!(report[0]["readings"], 2 * 599 + 2 * 600);
    check_rates(folder.path(), start, false);
    assert!(!folder.path().join("cgroup").exists(), "counters of node_exporter came with the agent's jobs");
}

#[test]
fn victoria_metrics_has_the_agents_jobs_too() {
    let Some(server) = testbed::victoria_metrics() else { return };
    let start = start();
    write_to_victoria_metrics(server.port, "tracewise_cpu_seconds_total", start);
    let folder = tempfile::tempdir().unwrap();
    import(&server.url(), start, folder.path());
    check_rates(folder.path(), start, false);
    check_jobs(folder.path(), start);
}

#[test]
fn a_node_exporter_scraped_by_prometheus_is_imported() {
    let Some(exporter) = testbed::node_exporter() else { return };
    let target = format!("127.0.0.1:{}", exporter.port);
    let Some(server) = testbed::prometheus(None, std::slice::from_ref(&target)) else { return };
    let count = "/api/v1/query?query=count_over_time(node_cpu_seconds_total%7Bcpu=%220%22,mode=%22idle%22%7D%5B1m%5D)";
    testbed::eventually("a handful of scrapes", || {
        let (_, body) = http::request(server.port, "GET", count, "");
        let answer: serde_json::Value = serde_json::from_str(&body).ok()?;
        let n_scrapes: u32 = answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()?;
        (n_scrapes >= 6).then_some(())
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + 1;
    let folder = tempfile::tempdir().unwrap();
    stdout_of(&mut import_command(&server.url(), now - 120, now, folder.path()));
    let list = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(folder.path()));
    assert_eq!(list["nodes"][0]["node"], "127.0.0.1");
    assert_eq!(list["nodes"][0]["period_seconds"], 1.0);
    let threads = list["nodes"][0]["threads"].as_u64().unwrap() as usize;
    let rows = export(folder.path().to_str().unwrap(), |command| command);
    assert!(rows.lines().count() > 4 * threads, "{rows}");
}

#[test]
fn a_stretch_without_samples_is_said_to_be_empty() {
    let Some(server) = testbed::prometheus(None, &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = run(&mut import_command(&server.url(), 1_700_000_000, 1_700_000_600, folder.path()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("no metric tracewise_cpu_seconds_total or node_cpu_seconds_total"), "{said}");
}
