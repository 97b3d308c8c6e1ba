//! Real servers for tests: found, started on free ports, stopped; power losses; and hostile models. Used by tests only.
//!
//! `scripts/components` installs them. Where one is missing, a test is skipped and named in the
//! summary of `make test`; on CI, where all are installed, it fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its servers has failed")]

pub mod disk_trace;
pub mod fake_node;
pub mod hostile_model;
pub mod http;
pub mod slurm;
pub mod small_disk;

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The user without rights.
const NOBODY: u32 = 65_534;
const READY_WITHIN: Duration = Duration::from_secs(60);
const PORTS: Range<u16> = 20_000..32_000;

/// The directory of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Compares a generated file in `docs` with what it should be; writes it if TRACEWISE_UPDATE_DOCS is set.
pub fn check_document(name: &str, current: &str) {
    let path = workspace().join("docs").join(name);
    if std::fs::read_to_string(&path).unwrap_or_default() != current {
        if std::env::var_os("TRACEWISE_UPDATE_DOCS").is_some() {
            std::fs::write(path, current).unwrap();
        } else {
            panic!("docs/{name} is not current; run the tests with TRACEWISE_UPDATE_DOCS=1");
        }
    }
}

fn components() -> PathBuf {
    std::env::var_os("TRACEWISE_TEST_COMPONENTS")
        .map_or_else(|| workspace().join("target/components"), PathBuf::from)
}

/// Notes that the running test is skipped. Where every part is required, this fails it.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    if std::env::var_os("TRACEWISE_TEST_ALL").is_some() && !reason.starts_with("kernel:") {
        panic!("{reason}; `scripts/components` installs what tests need");
    }
    let path = workspace().join("target/skipped-tests");
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{test}: {reason}").unwrap();
}

/// A program of a component, or `None` after [`skip`].
pub fn program(path: &str) -> Option<PathBuf> {
    let program = components().join(path);
    if program.exists() {
        return Some(program);
    }
    skip(&format!("{path} is not installed"));
    None
}

/// What Ctrl-C does to a process.
pub fn interrupt(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

/// A port that is free now. It lies below those that the kernel gives to connections, so that no connection of
/// another test takes it before a server does.
pub fn free_port() -> u16 {
    static N_GIVEN: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at the same time begin at different ports.
    let first = std::process::id().wrapping_mul(97);
    loop {
        let number = first.wrapping_add(N_GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (number % u32::from(PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A server that is stopped, with its children, when this is dropped.
pub struct Server {
    command: Command,
    child: Child,
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a program, whose arguments may depend on its port and a folder of its own, and
    /// waits until it answers on that port.
    pub fn start(program: &Path, arguments: impl FnOnce(u16, &Path) -> Vec<String>) -> Self {
        let port = free_port();
        Self::start_on(port, program, |folder| arguments(port, folder))
    }

    /// The same on a port that was chosen before.
    pub fn start_on(port: u16, program: &Path, arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.args(arguments(folder.path()));
        Self::run(command, port, folder)
    }

    /// Runs a command in a folder and waits until it answers on a port.
    fn run(mut command: Command, port: u16, folder: tempfile::TempDir) -> Self {
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut server = Self { command, child, port, folder };
        server.wait_until_it_answers();
        server
    }

    /// Kills it; it keeps its files.
    pub fn kill(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Starts it again after it was killed.
    pub fn start_again(&mut self) {
        self.child = self.command.spawn().unwrap();
        self.wait_until_it_answers();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_answers(&mut self) {
        let program = PathBuf::from(self.command.get_program());
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{} ended with {status}: {}", program.display(), self.log());
            }
            assert!(begun.elapsed() < READY_WITHIN, "{} does not answer: {}", program.display(), self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Asks again and again until `ready` finds what it waits for.
pub fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(begun.elapsed() < READY_WITHIN, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A Prometheus that scrapes `targets` every second and starts with `openmetrics` in it.
pub fn prometheus(openmetrics: Option<&str>, targets: &[String]) -> Option<Server> {
    let program = program("prometheus/usr/bin/prometheus")?;
    let promtool = program.with_file_name("promtool");
    Some(Server::start(&program, |port, folder| {
        let data = folder.join("data");
        if let Some(text) = openmetrics {
            let input = folder.join("metrics.txt");
            std::fs::write(&input, text).unwrap();
            let status = Command::new(promtool)
                .args(["tsdb", "create-blocks-from", "openmetrics"])
                .args([&input, &data])
                .stdout(Stdio::null())
                .status();
            assert!(status.unwrap().success(), "promtool refused the samples");
        }
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: node\n  static_configs:\n  \
             - targets: [{}]\n",
            targets.join(", ")
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        vec![
            "--config.file=prometheus.yml".into(),
            format!("--storage.tsdb.path={}", data.display()),
            "--storage.tsdb.retention.time=100y".into(),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--web.enable-remote-write-receiver".into(),
        ]
    }))
}

/// The configuration of a scraper of one target, every second, as node `n1`.
fn scrape_config(target: &str) -> String {
    format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: node\n  static_configs:\n  \
         - {{targets: ['{target}'], labels: {{node: n1}}}}\n"
    )
}

/// A Prometheus that scrapes a target and sends what it gets to `url`.
pub fn prometheus_to(url: &str, target: &str) -> Option<Server> {
    let program = program("prometheus/usr/bin/prometheus")?;
    Some(Server::start(&program, |port, folder| {
        let queue = "  queue_config: {batch_send_deadline: 1s}\n";
        let config = format!("{}remote_write:\n- url: {url}\n{queue}", scrape_config(target));
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        vec![
            "--config.file=prometheus.yml".into(),
            "--storage.tsdb.path=data".into(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]
    }))
}

/// A vmagent that scrapes a target and sends what it gets to `url`.
pub fn vmagent_to(url: &str, target: &str) -> Option<Server> {
    let program = program("victoria-metrics/usr/bin/vmagent")?;
    Some(Server::start(&program, |port, folder| {
        std::fs::write(folder.join("scrape.yml"), scrape_config(target)).unwrap();
        vec![
            "-promscrape.config=scrape.yml".into(),
            format!("-remoteWrite.url={url}"),
            "-remoteWrite.tmpDataPath=queue".into(),
            "-remoteWrite.flushInterval=1s".into(),
            format!("-httpListenAddr=127.0.0.1:{port}"),
        ]
    }))
}

/// Problems that `promtool` finds in a page of metrics; empty if there are none.
pub fn promtool_check(page: &str) -> Option<String> {
    let program = program("prometheus/usr/bin/promtool")?;
    let mut child = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// An empty PostgreSQL. Its address is that of [`postgres_url`].
pub fn postgres() -> Option<Server> {
    let program = program("postgresql/usr/lib/postgresql/15/bin/postgres")?;
    let folder = tempfile::tempdir().unwrap();
    let libraries = components().join("postgresql/usr/lib/x86_64-linux-gnu");
    // PostgreSQL does not run as root.
    let is_root = rustix::process::geteuid().is_root();
    let command = |program: &Path| {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &libraries).env("PGDATA", folder.path().join("data"));
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    if is_root {
        std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let made = command(&program.with_file_name("initdb"))
        .args(["--auth=trust", "--username=tracewise", "--no-sync"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let port = free_port();
    let mut server = command(&program);
    server.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", "", "-F"]);
    Some(Server::run(server, port, folder))
}

/// The address of a database of [`postgres`].
pub fn postgres_url(server: &Server) -> String {
    format!("postgres://tracewise@127.0.0.1:{}/postgres", server.port)
}

pub fn node_exporter() -> Option<Server> {
    let program = program("prometheus-node-exporter/usr/bin/prometheus-node-exporter")?;
    Some(Server::start(&program, |port, _| {
        vec![
            "--collector.disable-defaults".into(),
            "--collector.cpu".into(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]
    }))
}

pub fn victoria_metrics() -> Option<Server> {
    let program = program("victoria-metrics/usr/bin/victoria-metrics")?;
    Some(Server::start(&program, |port, folder| {
        vec![
            format!("-httpListenAddr=127.0.0.1:{port}"),
            format!("-storageDataPath={}", folder.join("data").display()),
            "-retentionPeriod=120".into(),
            "-search.latencyOffset=0s".into(),
        ]
    }))
}

/// A VictoriaMetrics that scrapes a target every second, as node `n1`.
pub fn victoria_metrics_of(target: &str) -> Option<Server> {
    let program = program("victoria-metrics/usr/bin/victoria-metrics")?;
    Some(Server::start(&program, |port, folder| {
        std::fs::write(folder.join("scrape.yml"), scrape_config(target)).unwrap();
        vec![
            "-promscrape.config=scrape.yml".into(),
            format!("-httpListenAddr=127.0.0.1:{port}"),
            "-storageDataPath=data".into(),
        ]
    }))
}

/// An Alertmanager that tells nobody.
pub fn alertmanager_on(port: u16) -> Option<Server> {
    let program = program("alertmanager/usr/bin/prometheus-alertmanager")?;
    Some(Server::start_on(port, &program, |folder| {
        // It reads its templates from here.
        let usr = components().join("alertmanager/usr");
        std::os::unix::fs::symlink(usr, folder.join("usr")).unwrap();
        std::fs::write(folder.join("config.yml"), "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
            .unwrap();
        vec![
            "--config.file=config.yml".into(),
            "--storage.path=data".into(),
            "--cluster.listen-address=".into(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]
    }))
}

/// An OpenID provider that lets everybody in.
pub fn openid_provider() -> Option<Server> {
    let program = program("python/bin/oidc-provider-mock")?;
    Some(Server::start(&program, |port, _| vec!["--port".into(), port.to_string()]))
}

/// An MLflow server that keeps everything in its folder.
pub fn mlflow() -> Option<Server> {
    let program = program("python/bin/mlflow")?;
    Some(Server::start(&program, |port, folder| {
        let arguments = ["server", "--host", "127.0.0.1", "--workers", "1", "--serve-artifacts", "--port"];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.extend([port.to_string(), "--backend-store-uri".into(), "sqlite:///mlflow.db".into()]);
        arguments.extend(["--artifacts-destination".into(), folder.join("artifacts").display().to_string()]);
        arguments
    }))
}

/// An S3 service with one bucket.
pub fn s3(bucket: &str) -> Option<Server> {
    let program = program("python/bin/moto_server")?;
    let server = Server::start(&program, |port, _| {
        vec!["-H".into(), "127.0.0.1".into(), "-p".into(), port.to_string()]
    });
    let status = http::request(server.port, "PUT", &format!("/{bucket}"), "").0;
    assert_eq!(status, 200, "the bucket was not made");
    Some(server)
}

/// The Python in which pyarrow is installed.
pub fn python() -> Option<PathBuf> {
    program("python/bin/python")
}
