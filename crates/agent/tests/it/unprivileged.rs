//! The agent needs no privileges, and its unit gives it none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use testbed::http;

use crate::program;

const NOBODY: u32 = 65_534;

#[test]
fn nobody_can_run_it() {
    if !rustix::process::geteuid().is_root() {
        return; // Then every other test has shown it.
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("tracewise-agent");
    fs::copy(program(), &copy).unwrap();
    let port = testbed::free_port();
    let mut child = Command::new(&copy)
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .uid(NOBODY)
        .gid(NOBODY)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let page = testbed::eventually("a page", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        let page = http::get(port, "/metrics", &[]).text();
        page.contains("tracewise_sample_timestamp_seconds").then_some(page)
    });
    let _ = child.kill();
    let _ = child.wait();
    for collector in ["cpu", "cgroup", "memory", "load", "self"] {
        let line = format!("tracewise_scrape_collector_success{{collector=\"{collector}\"}} 1");
        assert!(page.contains(&line), "{page}");
    }
}

#[test]
fn the_units_are_sound_and_leave_little_exposed() {
    let Some(analyze) = testbed::program("systemd/usr/bin/systemd-analyze") else { return };
    let root = analyze.ancestors().nth(3).unwrap();
    for name in ["tracewise-agent.service", "tracewise.service"] {
        let unit = testbed::workspace().join("deploy/systemd").join(name);
        let run = |arguments: &[&str]| {
            let libraries = ["usr/lib/x86_64-linux-gnu/systemd", "lib/x86_64-linux-gnu/systemd"];
            let libraries = libraries.map(|folder| root.join(folder).display().to_string()).join(":");
            let mut command = Command::new(&analyze);
            let output =
                command.args(arguments).arg(&unit).env("LD_LIBRARY_PATH", libraries).output().unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        let said = run(&["security", "--offline=true", "--no-pager"]);
        let level = said.split(&format!("Overall exposure level for {name}: ")).nth(1);
        let level: f64 =
            level.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        assert!(level < 2.0, "{said}");
        let said = run(&["verify"]);
        let complaints: Vec<&str> = said
            .lines()
            .filter(|line| {
                line.contains(name) && !line.contains("is not executable") && !line.contains("man ")
            })
            .collect();
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}
