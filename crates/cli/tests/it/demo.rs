//! The demo as its visitors see it: the page in a real browser, and the dashboards on a real Prometheus that scrapes it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent::node::{Collector, Node, NodeSettings};
use agent::ring::Keep;
use agent::service::Shared;
use agent::web::Server;
use agent::web::config::WebConfig;
use agent::web::listener::Listener;
use agent::web::places::Limits;
use serde_json::Value;
use testbed::{free_port, http, workspace};
use workload::{Millis, NodeName, Timestamp};

use crate::tracewise;

/// The first event opens two to four minutes after the start.
const PATIENCE: Duration = Duration::from_secs(480);

/// `tracewise demo`, stopped when dropped.
struct Demo {
    child: Child,
    port: u16,
    /// What it has told people so far.
    notes: Arc<Mutex<Vec<String>>>,
    _data: tempfile::TempDir,
}

impl Demo {
    fn start() -> Self {
        let (data, port) = (tempfile::tempdir().unwrap(), free_port());
        let options = ["--nodes", "3", "--threads", "16", "--no-open", "--port", &port.to_string()];
        let mut command = tracewise();
        command.arg("demo").args(options).arg("--data").arg(data.path().join("data"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.contains(&port.to_string()), "{line}");
        assert!(begin.elapsed() < Duration::from_secs(10), "the page answers within 10 s");
        // Read everything that it prints later, so that it never waits for a reader.
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(drop));
        let notes = Arc::new(Mutex::new(Vec::new()));
        let (lines, into) = (BufReader::new(child.stderr.take().unwrap()).lines(), notes.clone());
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| into.lock().unwrap().push(line))
        });
        Self { child, port, notes, _data: data }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &str) -> Value {
        serde_json::from_slice(&http::get(self.port, path, &[]).body).unwrap()
    }

    /// Waits until there is an event.
    fn wait_for_an_event(&self) {
        let begin = Instant::now();
        while self.get("/api/v1/events")["items"][0]["id"].is_null() {
            let state = self.get("/api/v1/cluster");
            assert!(begin.elapsed() < PATIENCE, "there is no event yet: {state}");
            std::thread::sleep(Duration::from_secs(1));
        }
        let phases = testbed::eventually("the time to the first event", || {
            let notes = self.notes.lock().unwrap();
            let phases = notes.iter().filter_map(|line| line.strip_prefix("== ")?.split_once(": "));
            let phases: Vec<(String, String)> =
                phases.map(|(name, time)| (name.into(), time.into())).collect();
            (phases.len() == 4).then_some(phases)
        });
        let names: Vec<&str> = phases.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["history", "first model", "first score", "first event"]);
        for (name, time) in &phases {
            let seconds: u64 = time.split_once(" s (").and_then(|(number, _)| number.parse().ok()).unwrap();
            assert!(seconds < PATIENCE.as_secs(), "{name}: {time}");
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent that reads a fixture, for the queries about nodes and jobs.
fn agent(runtime: &tokio::runtime::Runtime) -> u16 {
    let (port, fixture) = (free_port(), workspace().join("fixtures/nodes/slurm-v2"));
    let (proc, cgroup) = (fixture.join("proc"), fixture.join("cgroup"));
    let name = NodeName::new("n1").unwrap();
    let settings = NodeSettings::for_recording(name, proc, cgroup, Duration::from_secs(1));
    let mut node = Node::new(NodeSettings { collectors: Collector::ALL.to_vec(), ..settings });
    let keep = Keep { time: Millis::HOUR, bytes: usize::MAX };
    let shared = Arc::new(Shared::new(&node, keep, false));
    let limits = Limits { connections: 10, connections_per_peer: 10 };
    let server = Server::new(shared.clone(), WebConfig::read(None).unwrap(), limits);
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    runtime.spawn(async move { server.serve(Listener::bind(&address).await.unwrap()).await });
    runtime.spawn(async move {
        loop {
            shared.publish(node.sample(Timestamp::from(std::time::SystemTime::now())), 0);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    port
}

/// A Prometheus that scrapes a service and an agent every second, with our rules.
fn prometheus(demo: &Demo, agent: u16) -> Option<testbed::Server> {
    let program = testbed::program("prometheus/usr/bin/prometheus")?;
    let rules = workspace().join("deploy/prometheus/rules/tracewise.yaml");
    Some(testbed::Server::start(&program, |port, folder| {
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\nscrape_configs:\n\
             - job_name: tracewise\n  honor_labels: true\n  static_configs: [{{targets: ['127.0.0.1:{}']}}]\n\
             - job_name: tracewise-agent\n  static_configs:\n  - targets: ['127.0.0.1:{agent}']\n    \
             labels: {{cluster: 'simulated cluster', node: n001}}\n",
            demo.port
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        vec![
            "--config.file=prometheus.yml".into(),
            "--storage.tsdb.path=data".into(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]
    }))
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The end-to-end tests of the web UI.
fn tests_of_the_page() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(workspace().join("ui/e2e"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".test.js"))
        .collect();
    files.sort();
    files
}

#[test]
fn the_demo_has_an_anomaly_a_page_that_works_and_data_for_every_dashboard() {
    let Some(browser) = testbed::program("chromium/run") else { return };
    let demo = Demo::start();
    if http::get(demo.port, "/", &[]).status != 200 {
        testbed::skip("the web UI was not built: scripts/ui builds it");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let prometheus = prometheus(&demo, agent(&runtime));
    demo.wait_for_an_event();
    let mut node = Command::new("node");
    node.args(["--test", "--test-concurrency=1"]).args(tests_of_the_page());
    node.env("TRACEWISE_URL", demo.url()).env("CHROMIUM", browser);
    run(node.env("TRACEWISE", env!("CARGO_BIN_EXE_tracewise")));
    // By now it has been scraped for longer than the ranges of the queries.
    if let Some(prometheus) = prometheus {
        run(python(&workspace().join("deploy/grafana/check.py")).args(["--prometheus", &prometheus.url()]));
    }
}

fn python(script: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(script);
    command
}

#[test]
fn dashboards_and_rules_are_current_and_valid() {
    let Some(prometheus) = testbed::program("prometheus/usr/bin/prometheus") else { return };
    let deploy = workspace().join("deploy");
    run(python(&deploy.join("grafana/generate.py")).arg("--check"));
    run(&mut python(&deploy.join("grafana/check.py")));
    let promtool = prometheus.with_file_name("promtool");
    let rules = deploy.join("prometheus/rules");
    run(Command::new(&promtool).args(["check", "rules", "tracewise.yaml"]).current_dir(&rules));
    run(Command::new(&promtool).args(["test", "rules", "tests.yaml"]).current_dir(&rules));
}
