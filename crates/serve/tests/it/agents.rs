//! Reading agents: every reading is stored once, also across restarts of both sides.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use agent::node::{Node, NodeSettings};
use agent::ring::Keep;
use agent::service::Shared;
use agent::web::Server;
use agent::web::config::WebConfig;
use agent::web::listener::Listener;
use agent::web::places::Limits;
use archive::{Archive, Replay, Selection, Settings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testbed::fake_node::FakeNode;
use testbed::free_port;
use workload::{Cpu, Millis, NodeName, NodeReading, Ticks, Timestamp};

use serve::Ignored;

use crate::{eventually, settings, started};

/// An agent whose readings are made by the test.
pub struct TestAgent {
    shared: Arc<Shared>,
    /// Its own, so that all of its connections end with it.
    runtime: tokio::runtime::Runtime,
    node: Node,
    fake: FakeNode,
}

impl TestAgent {
    pub fn start(folder: &Path, port: u16) -> Self {
        Self::start_with(folder, port, None)
    }

    /// With TLS and passwords, as `--web.config.file` says.
    fn start_with(folder: &Path, port: u16, web_config: Option<&Path>) -> Self {
        net::install_tls_provider();
        let fake = FakeNode::create(folder, 4);
        let name = NodeName::new("n1").unwrap();
        let node = Node::new(NodeSettings::for_recording(
            name,
            fake.proc(),
            fake.cgroup(),
            std::time::Duration::from_secs(1),
        ));
        let keep = Keep { time: Millis::HOUR, bytes: usize::MAX };
        let shared = Arc::new(Shared::new(&node, keep, false));
        let limits = Limits { connections: 10, connections_per_peer: 10 };
        let server = Server::new(shared.clone(), WebConfig::read(web_config).unwrap(), limits);
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move { server.serve(Listener::bind(&address).await.unwrap()).await });
        Self { shared, runtime, node, fake }
    }

    /// Reads the node once a second, from `first` on, and returns what was read.
    pub fn read(&mut self, first: Timestamp, n_readings: i64) -> Vec<NodeReading> {
        let mut readings = Vec::new();
        for second in 0..n_readings {
            self.fake.tick();
            let sample = self.node.sample(first + Millis::from_seconds(second));
            readings.push(sample.reading(&NodeName::new("n1").unwrap()));
            self.shared.publish(sample, 0);
        }
        readings
    }

    pub fn stop(self) {
        self.runtime.shutdown_background();
    }
}

/// The counters of each thread at each time.
fn ticks(readings: &[NodeReading]) -> Vec<(Timestamp, BTreeMap<Cpu, Ticks>)> {
    let of =
        |reading: &NodeReading| reading.threads.iter().map(|thread| (thread.cpu, thread.ticks)).collect();
    readings.iter().map(|reading| (reading.time, of(reading))).collect()
}

pub fn archived(folder: &Path) -> Vec<NodeReading> {
    let address = folder.join("data/archive").to_string_lossy().into_owned();
    let archive = Archive::open(&address, &Settings::default()).unwrap();
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    Replay::new(&snapshot, None).unwrap().map(|replayed| replayed.unwrap().reading).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reading_is_stored_once_across_restarts_of_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(3_000);
    let at = |second: i64| begin + Millis::from_seconds(second);
    let mut agent = TestAgent::start(&folder.path().join("node"), port);
    let mut expected = agent.read(begin, 300);
    let mut settings = settings(folder.path());
    settings.agents.targets = vec![format!("127.0.0.1:{port}")];
    let n_stored = async || {
        let folder = folder.path().to_owned();
        tokio::task::spawn_blocking(move || archived(&folder).len()).await.unwrap()
    };
    let all_are_stored = async |n_readings: usize| {
        eventually("all readings in the archive", async || n_stored().await >= n_readings).await;
    };

    let running = started(settings.clone(), None).await;
    all_are_stored(300).await;
    expected.extend(agent.read(at(300), 100));
    all_are_stored(400).await;
    running.stop().await;

    // While the service is down, the agent goes on; more readings than one response holds are waiting.
    expected.extend(agent.read(at(400), 1_500));
    let running = started(settings.clone(), None).await;
    all_are_stored(1_900).await;
    running.stop().await;

    // The position was lost, as in a crash before it was written: what the archive has is not stored again.
    std::fs::remove_file(settings.data.join("positions.json")).unwrap();
    let running = started(settings.clone(), None).await;
    expected.extend(agent.read(at(1_900), 50));
    all_are_stored(1_950).await;

    // The agent starts anew.
    agent.stop();
    eventually("the end of the agent", async || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok())
        .await;
    let mut agent = TestAgent::start(&folder.path().join("again"), port);
    expected.extend(agent.read(at(1_950), 50));
    all_are_stored(2_000).await;
    assert_eq!(running.service.counts.lost_readings.load(std::sync::atomic::Ordering::Relaxed), 0);
    running.stop().await;
    agent.stop();

    let stored = archived(folder.path());
    assert_eq!(stored.len(), expected.len(), "nothing is stored twice");
    assert!(ticks(&stored) == ticks(&expected), "stored counters are those of the agent");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_tls_and_a_password_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    write("cert.pem", &certificate.pem());
    write("key.pem", &key.serialize_pem());
    let hash = bcrypt::hash("secret", 4).unwrap();
    let web_config = write(
        "web.yml",
        &format!(
            "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  tracewise: {hash}\n"
        ),
    );
    let port = free_port();
    let mut agent = TestAgent::start_with(&folder.path().join("node"), port, Some(&web_config));
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(600);
    agent.read(begin, 50);

    let mut settings = settings(folder.path());
    let list =
        format!("[{{\"targets\": [\"localhost:{port}\"], \"labels\": {{\"__scheme__\": \"https\"}}}}]");
    settings.agents.file_sd = vec![write("nodes.json", &list)];
    let running = started(settings.clone(), None).await;
    let failed = || running.service.counts.failed_pulls.load(std::sync::atomic::Ordering::Relaxed);
    eventually("a refusal of an unknown authority", async || failed() > 0).await;
    // Both are given while the service runs; first a wrong password.
    settings.agents.ca_file = Some(write("ca.pem", &authority.pem()));
    settings.agents.user = "tracewise".into();
    settings.agents.password_file = Some(write("password", "wrong\n"));
    running.reload(settings).unwrap();
    let before = failed();
    eventually("a refusal of the password", async || failed() > before).await;
    assert!(archived(folder.path()).is_empty());
    write("password", "secret\n");
    let path = folder.path().to_owned();
    eventually("the readings", async || {
        let path = path.clone();
        tokio::task::spawn_blocking(move || archived(&path).len()).await.unwrap() >= 50
    })
    .await;
    running.stop().await;
    agent.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_that_call_themselves_the_same_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port()];
    let mut agents = ports.map(|port| TestAgent::start(&folder.path().join(port.to_string()), port));
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(600);
    let read: Vec<Vec<NodeReading>> = agents.iter_mut().map(|agent| agent.read(begin, 50)).collect();
    let mut settings = settings(folder.path());
    settings.agents.targets = ports.map(|port| format!("127.0.0.1:{port}")).into();
    let running = started(settings, None).await;
    let counts = running.service.counts.clone();
    eventually("the readings of one, and not of the other", async || {
        counts.ignored(Ignored::OtherInput) >= 50
    })
    .await;
    running.stop().await;
    agents.into_iter().for_each(TestAgent::stop);
    let stored = ticks(&archived(folder.path()));
    assert!(read.iter().any(|one| ticks(one) == stored), "all readings are of one agent");
}

/// Answers every request for samples in a way that no agent of this version does.
async fn strange_agent(headers: Vec<(&'static str, &'static str)>, body: Vec<u8>) -> String {
    let answer = move || {
        let mut response = axum::response::Response::new(axum::body::Body::from(body.clone()));
        for (name, value) in &headers {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        std::future::ready(response)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let routes = axum::Router::new().route("/samples", axum::routing::get(answer));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_other_versions_are_reported_and_harm_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut agent = TestAgent::start(&folder.path().join("node"), port);
    let now = Timestamp::from(SystemTime::now()).floor(Millis::SECOND);
    // An hour ahead, and an hour back.
    let jumps = [
        agent.read(now - Millis::from_seconds(300), 100),
        agent.read(now + Millis::HOUR, 100),
        agent.read(now - Millis::from_seconds(200), 100),
    ];
    let position = ("tracewise-position", "00000000000000aa-7");
    let mut settings = settings(folder.path());
    settings.agents.targets = vec![
        strange_agent(vec![], b"TWSMPL\0\x02".to_vec()).await,
        strange_agent(vec![position], b"TWSMPL\0\x63 from the future".to_vec()).await,
        strange_agent(vec![position], [b"TWSMPL\0\x02".as_slice(), &[0xff; 40]].concat()).await,
        strange_agent(vec![("tracewise-position", "seven")], Vec::new()).await,
        format!("127.0.0.1:{port}"),
    ];
    let running = started(settings, None).await;
    let counts = running.service.counts.clone();
    eventually("failures of all four", async || {
        counts.failed_pulls.load(std::sync::atomic::Ordering::Relaxed) >= 4
    })
    .await;
    let path = folder.path().to_owned();
    eventually("the readings of the good agent", async || {
        let path = path.clone();
        tokio::task::spawn_blocking(move || archived(&path).len()).await.unwrap() >= 200
    })
    .await;
    assert_eq!(counts.ignored(Ignored::Time), 100, "readings an hour ahead are counted");
    running.stop().await;
    agent.stop();
    let expected = [ticks(&jumps[0]), ticks(&jumps[2])].concat();
    assert!(ticks(&archived(folder.path())) == expected, "all others are stored");
}
