//! Who gets an answer, and over which kind of connection.

use std::fs;
use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::{Certificate, Client, Identity};
use testbed::http;

use crate::layouts::node;
use crate::{agent_on, program};

/// The password "secret", hashed at the least cost.
fn hash() -> String {
    bcrypt::hash("secret", 4).unwrap()
}

pub fn basic(user: &str, password: &str) -> String {
    use base64::Engine;
    let credentials = base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {credentials}")
}

#[test]
fn a_page_for_people_says_what_there_is() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let page = http::get(agent.port, "/", &[]);
    assert!(page.headers.contains("content-type: text/html"));
    let text = page.text();
    for part in ["n1: 8 hardware threads, 2 jobs; healthy", "/metrics", "/samples", "/healthz"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(http::get(agent.port, "/healthz", &[]).text(), "ok\n");
    assert_eq!(health(agent.port), (Some(0), String::new()));
    let (code, said) = health(testbed::free_port());
    assert_eq!(code, Some(1));
    assert!(said.contains("does not respond: Connection refused"), "{said}");
    assert_eq!(http::get(agent.port, "/nothing", &[]).status, 404);
    assert_eq!(http::request(agent.port, "POST", "/metrics", "x").0, 405);
}

#[test]
fn a_node_that_cannot_be_read_is_not_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let agent = testbed::Server::start(&program(), |port, _| {
        vec![
            format!("--web.listen-address=127.0.0.1:{port}"),
            format!("--path.procfs={}", folder.path().display()),
        ]
    });
    let answer = testbed::eventually("a complaint", || {
        let answer = http::get(agent.port, "/healthz", &[]);
        (!answer.text().contains("no sample yet")).then_some(answer)
    });
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("stat: No such file"), "{}", answer.text());
    let (code, said) = health(agent.port);
    assert_eq!(code, Some(1));
    assert!(said.contains("503 Service Unavailable: ") && said.contains("stat: No such file"), "{said}");
    assert!(http::get(agent.port, "/metrics", &[]).text().contains("collector=\"cpu\"} 0"));
}

#[test]
fn passwords_are_asked_for_and_can_be_changed_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yml");
    fs::write(&file, format!("basic_auth_users:\n  prometheus: {}\n", hash())).unwrap();
    let agent = agent_on(&node("slurm-v2"), &[&format!("--web.config.file={}", file.display())]);
    let status = |user: &str, password: &str| {
        http::get(agent.port, "/metrics", &[("Authorization", &basic(user, password))]).status
    };
    let stranger = http::get(agent.port, "/metrics", &[]);
    assert_eq!(stranger.status, 401);
    assert_eq!(health(agent.port), (Some(0), String::new()), "it responds, so it is well");
    assert!(stranger.headers.contains("www-authenticate: basic") && !stranger.text().contains("tracewise_"));
    assert_eq!(status("prometheus", "secret"), 200);
    assert_eq!(status("prometheus", "secret"), 200);
    assert_eq!((status("prometheus", "wrong"), status("nobody", "secret")), (401, 401));

    let changed = format!(
        "basic_auth_users:\n  other: {}\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n",
        hash()
    );
    fs::write(&file, changed).unwrap();
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(2))
        .unwrap();
    assert_eq!((status("prometheus", "secret"), status("other", "secret")), (401, 200));
    assert!(http::get(agent.port, "/", &[]).headers.contains("x-frame-options: deny"));
    // What cannot be understood changes nothing, and neither does a file that lets everyone in.
    for text in ["basic_auth_users: [", "", "http_server_config: {}\n"] {
        fs::write(&file, text).unwrap();
        assert_eq!((status("other", "secret"), status("other", "wrong")), (200, 401), "{text:?}");
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key, as PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

fn write_all(folder: &Path, files: &[(&str, &str)]) {
    files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
}

#[test]
fn tls_and_client_certificates_are_as_exporters_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost");
    let config = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_ca_file: ca.pem\n  \
                  client_auth_type: RequireAndVerifyClientCert\n  min_version: TLS13\n";
    let files = [
        ("cert.pem", certificate.as_str()),
        ("key.pem", &key),
        ("ca.pem", &authority.pem()),
        ("web.yml", config),
    ];
    write_all(folder.path(), &files);
    let file = folder.path().join("web.yml");
    let agent = agent_on(&node("slurm-v2"), &[&format!("--web.config.file={}", file.display())]);
    testbed::eventually("an address in the log", || agent.log().contains("https://127.0.0.1").then_some(()));

    net::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |client: reqwest::Result<Client>| {
        let url = format!("https://localhost:{}/healthz", agent.port);
        runtime.block_on(async { client?.get(url).send().await?.text().await })
    };
    let root = || Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let client = || {
        Client::builder().tls_certs_only([root()]).resolve("localhost", ([127, 0, 0, 1], agent.port).into())
    };
    let (own, own_key) = authority.issue("prometheus");
    let identity = Identity::from_pem(format!("{own}{own_key}").as_bytes()).unwrap();
    let answer = testbed::eventually("a first sample", || {
        let answer = ask(client().identity(identity.clone()).build()).unwrap();
        (answer != "no sample yet\n").then_some(answer)
    });
    assert_eq!(answer, "ok\n");
    assert!(ask(client().build()).is_err(), "a client without certificate was answered");
    let stranger = Authority::new().issue("prometheus");
    let identity = Identity::from_pem(format!("{}{}", stranger.0, stranger.1).as_bytes()).unwrap();
    assert!(ask(client().identity(identity).build()).is_err(), "a stranger's certificate was accepted");
}

#[test]
fn health_is_asked_on_this_machine_whatever_name_the_certificate_has() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = Authority::new().issue("n001.example.org");
    let config = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n";
    let files = [("cert.pem", certificate.as_str()), ("key.pem", &key), ("web.yml", config)];
    write_all(folder.path(), &files);
    let file = folder.path().join("web.yml");
    let agent = agent_on(&node("slurm-v2"), &[&format!("--web.config.file={}", file.display())]);
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{}/healthz", agent.port);
        let said = testbed::eventually("a first sample", || {
            let (code, said) = health_at(&url);
            (!said.contains("no sample yet")).then_some((code, said))
        });
        assert_eq!(said, (Some(0), String::new()));
    }
    // What another machine says has to be its own; so does what is asked under another address.
    let every = agent_everywhere(&file);
    let Some(address) = other_address() else { return };
    let url: reqwest::Url = format!("https://{address}:{}/metrics", every.port).parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(agent::health::check(url.clone(), false)).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    runtime.block_on(agent::health::check(url, true)).unwrap();
}

/// An agent on every interface.
fn agent_everywhere(web_config: &Path) -> testbed::Server {
    testbed::Server::start(&program(), |port, _| {
        vec![
            format!("--web.listen-address=:{port}"),
            format!("--web.config.file={}", web_config.display()),
            format!("--path.procfs={}", node("slurm-v2").join("proc").display()),
            format!("--path.cgroupfs={}", node("slurm-v2").join("cgroup").display()),
        ]
    })
}

/// The address of this machine that is not loopback, if it has one.
fn other_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: the kernel only chooses the address.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip())
}

#[test]
fn a_mistake_in_the_configuration_gets_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let said = |text: &str| {
        fs::write(folder.path().join("web.yml"), text).unwrap();
        let mut command = Command::new(program());
        let output = command.arg("--web.config.file").arg(folder.path().join("web.yml")).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    for (text, expected) in [
        ("basic_auth_users:\n  a: secret\n", "not a bcrypt hash"),
        ("basic_auth_user:\n  a: b\n", "basic_auth_user"),
        ("tls_server_config:\n  cert_file: no.pem\n  key_file: no.pem\n", "no.pem"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  min_version: TLS10\n", "TLS10"),
    ] {
        assert!(said(text).contains(expected), "{}", said(text));
    }
    for (arguments, expected) in [
        (vec!["--web.listen-address=9742"], "write it like :9742"),
        (vec!["--sample.interval=1ms"], "at least 10ms"),
        (vec!["--remote-write.url=ftp://x"], "http"),
        (
            vec!["--remote-write.url=http://x", "--remote-write.label=a=b", "--remote-write.label=a=c"],
            "twice",
        ),
        (vec!["--remote-write.label=a-b=c", "--remote-write.url=http://x"], "write it like cluster=a"),
        (
            vec!["--remote-write.url=http://x", "--remote-write.bearer-token-file=t"],
            "--remote-write.allow-http",
        ),
        (vec!["--remote-write.url=http://user:secret@10.0.0.1:9090/"], "--remote-write.allow-http"),
    ] {
        let output = Command::new(program()).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{said}");
    }
}

#[test]
fn the_help_is_as_it_is_documented() {
    let help = |arguments: &[&str]| {
        let output = Command::new(program()).args(arguments).env("COLUMNS", "100").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    insta::assert_snapshot!("help", help(&["--help"]));
    insta::assert_snapshot!("help-doctor", help(&["doctor", "--help"]));
    insta::assert_snapshot!("help-health", help(&["health", "--help"]));
}

/// The exit code of `tracewise-agent health`, and what it says.
fn health(port: u16) -> (Option<i32>, String) {
    health_at(&format!("http://127.0.0.1:{port}/healthz"))
}

fn health_at(url: &str) -> (Option<i32>, String) {
    let output = Command::new(program()).args(["health", "--url", url]).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn the_doctor_is_part_of_the_agent() {
    let folder = node("slurm-without-cpuset");
    let mut command = Command::new(program());
    command.arg("doctor").arg("--path.procfs").arg(folder.join("proc"));
    let output = command.arg("--path.cgroupfs").arg(folder.join("cgroup")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("ConstrainCores=yes"));
}
