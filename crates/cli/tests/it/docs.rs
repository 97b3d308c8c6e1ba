//! The documentation as its readers follow it: the commands of each page are run in order, in a directory of their own, with
//! free ports of the loopback interface. A page is one shell session.

mod given;
mod page;

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use testbed::{free_port, workspace};

use self::page::{Action, Ends, Page, n_commands};
use crate::without_settings;

/// A page that takes longer has a command that does not end, or data that is too large for an example.
const PATIENCE: Duration = Duration::from_secs(240);
/// Pages that are followed at the same time.
const N_AT_ONCE: usize = 3;
/// What a page may use of the repository: a reader has a clone of it.
const CLONE: [&str; 3] = ["deploy", "examples", "fixtures"];

/// What was run, and what was not.
#[derive(Debug, Default, Clone)]
struct Outcome {
    n_run: usize,
    skipped: Vec<(usize, String)>,
    failure: Option<String>,
}

/// Where a page is followed.
struct Place {
    folder: tempfile::TempDir,
    agents: [u16; 2],
    service: u16,
    prometheus: u16,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in CLONE {
            copy(&workspace().join(name), &folder.path().join(name));
        }
        // What settings on the pages name, and `tracewise config check` looks for.
        for name in ["etc/webhook.key", "etc/oidc.secret", "etc/agents.password", "run/.keep"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "secret\n").unwrap();
        }
        let certified = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        std::fs::write(folder.path().join("etc/agents-ca.pem"), certified.cert.pem()).unwrap();
        let place = Self {
            folder,
            agents: [free_port(), free_port()],
            service: free_port(),
            prometheus: free_port(),
        };
        place.provide_programs();
        place
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join(".programs")
    }

    /// The programs under test, and those that a reader would have installed.
    fn provide_programs(&self) {
        let tracewise = Path::new(env!("CARGO_BIN_EXE_tracewise"));
        let agent = tracewise.with_file_name("tracewise-agent");
        std::fs::create_dir(self.programs()).unwrap();
        let script = |name: &str, text: &str| {
            let path = self.programs().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        // Pages use the ports that programs have by default; here they get ports that are free.
        let demo =
            format!("[ \"$1\" = demo ] && exec {tracewise:?} \"$@\" --no-open --port {}", self.service);
        script("tracewise", &format!("{demo}\nexec {tracewise:?} \"$@\""));
        let listen = format!("127.0.0.1:{}", self.agents[0]);
        script(
            "tracewise-agent",
            &format!(
                "case \"$*\" in\ndoctor*|*--help*|*--version*) exec {agent:?} \"$@\";;\n\
                 *listen-address*) exec {agent:?} --node.name=\"${{NODE:-n001}}\" \"$@\";;\nesac\n\
                 exec {agent:?} --web.listen-address={listen} \"$@\""
            ),
        );
        for (component, name) in [
            ("prometheus/usr/bin/prometheus", "prometheus"),
            ("prometheus/usr/bin/promtool", "promtool"),
            ("python/bin/python", "python3"),
        ] {
            if let Some(program) = testbed::program(component) {
                script(name, &format!("exec {program:?} \"$@\""));
            }
        }
    }

    /// A text of a page with the addresses and directories of this place.
    fn here(&self, text: &str) -> String {
        let [first, second] = self.agents.map(|port| format!("127.0.0.1:{port}"));
        let service = format!("127.0.0.1:{}", self.service);
        let folder = self.folder.path().display();
        let mut text = text.to_owned();
        for (name, here) in [
            ("n001:9742", &first),
            ("n002:9742", &second),
            ("127.0.0.1:9742", &first),
            ("tracewise:9743", &service),
            ("127.0.0.1:9743", &service),
            ("prometheus:9090", &format!("127.0.0.1:{}", self.prometheus)),
            ("127.0.0.1:9090", &format!("127.0.0.1:{}", self.prometheus)),
            ("/etc/tracewise", &format!("{folder}/etc")),
            ("/var/lib/tracewise", &format!("{folder}/var")),
            ("/run/tracewise-agent", &format!("{folder}/run")),
        ] {
            text = text.replace(name, here);
        }
        text
    }

    /// Writes the session of a page: every step in order, each with its place in the page.
    fn session(&self, page: &Page, outcome: &mut Outcome) -> Result<String, String> {
        let mut session = String::from(PRELUDE);
        for step in &page.steps {
            let _ = writeln!(session, "at={}", step.line);
            match &step.action {
                Action::Run { script, ends, nodes, needs } => {
                    if let Some(program) =
                        needs.as_ref().filter(|program| !self.programs().join(program).exists())
                    {
                        outcome.skipped.push((n_commands(script), format!("{program} is not installed")));
                        continue;
                    }
                    outcome.n_run += n_commands(script);
                    session += &self.run(script, *ends, nodes);
                }
                Action::Python { program } => {
                    if !self.programs().join("python3").exists() {
                        outcome.skipped.push((1, "Python packages are not installed".into()));
                        continue;
                    }
                    outcome.n_run += 1;
                    let program = self.here(program);
                    let _ = writeln!(session, "python3 - <<'END OF PROGRAM'\n{program}END OF PROGRAM");
                }
                Action::Write { name, text } => {
                    let name = self.here(name);
                    let _ = writeln!(session, "mkdir -p \"$(dirname {name})\"");
                    let _ = writeln!(session, "cat >{name} <<'END OF FILE'\n{}END OF FILE", self.here(text));
                }
                Action::CheckSettings { text } => {
                    outcome.n_run += 1;
                    let text = self.here(text);
                    let _ = writeln!(session, "cat >.settings.toml <<'END OF FILE'\n{text}END OF FILE");
                    session += "tracewise config check .settings.toml\n";
                }
                Action::CheckColumns { file, names } => {
                    if self.programs().join("python3").exists() {
                        let _ = writeln!(session, "python3 -c '{CHECK_COLUMNS}' {file} {}", names.join(" "));
                    }
                }
                Action::Stop => session += "stop\n",
                Action::Given { what } => given::make(what, self.folder.path())?,
                Action::Skip { script, reason } => outcome.skipped.push((n_commands(script), reason.clone())),
            }
        }
        Ok(session + "at=end\n")
    }

    fn run(&self, script: &str, ends: Ends, nodes: &[&str]) -> String {
        match ends {
            Ends::WithError => {
                return format!(
                    "if (\n{}); then echo 'it should have failed'; exit 1; fi\n",
                    self.here(script)
                );
            }
            Ends::WithEither => return format!("(\n{}) || true\n", self.here(script)),
            Ends::WithSuccess | Ends::WithCtrlC => {}
        }
        let nodes = if nodes.is_empty() { &["n001"] } else { nodes };
        let mut session = String::new();
        for (node, agent) in nodes.iter().zip(self.agents) {
            let script = script
                .replace("=:9742", &format!("=127.0.0.1:{agent}"))
                .replace("n001:9742", &format!("{node}:9742"));
            let script = self.here(&script);
            if ends == Ends::WithSuccess {
                session += &script;
                continue;
            }
            let command = script.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
            // What is there when it can be used.
            let port = match command.split_whitespace().next() {
                Some("tracewise-agent") if !command.contains("unix:") => Some(agent),
                Some("prometheus") => Some(self.prometheus),
                Some("tracewise") if command.contains(" serve") || command.contains(" demo") => {
                    Some(self.service)
                }
                _ => None,
            };
            let port = port.map_or("-".into(), |port| port.to_string());
            let _ = writeln!(
                session,
                "export NODE={node}\nbegin {port} <<'END OF COMMAND'\nexec {command}\nEND OF COMMAND"
            );
        }
        session
    }

    /// Runs a session to its end, and ends all that it has started.
    fn follow(&self, session: &str) -> Result<(), String> {
        let path = format!("{}:{}", self.programs().display(), std::env::var("PATH").unwrap_or_default());
        let log = self.folder.path().join(".log");
        let file = std::fs::File::create(&log).unwrap();
        std::fs::write(self.folder.path().join(".session"), session).unwrap();
        let mut command = without_settings("bash");
        let mut child = command
            .arg(".session")
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("TRACEWISE_SERVE_LISTEN", format!("127.0.0.1:{}", self.service))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0)
            .spawn()
            .unwrap();
        let ended = wait(&mut child);
        // What still runs in the background belongs to this group, which the test has started.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        if ended == Some(true) {
            return Ok(());
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(40).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        let why =
            if ended.is_none() { format!("it did not end within {PATIENCE:?}") } else { "it failed".into() };
        Err(format!("{why}; the last that was printed:\n{last}"))
    }
}

/// Compares the columns of a Parquet file with those that a page names.
const CHECK_COLUMNS: &str = r#"
import pyarrow.parquet, sys
found = set(pyarrow.parquet.read_schema(sys.argv[1]).names)
named = {name for name in sys.argv[2:] if not name.endswith("*")}
begin = tuple(name[:-1] for name in sys.argv[2:] if name.endswith("*"))
wrong = named - found | {name for name in found - named if not begin or not name.startswith(begin)}
sys.exit(f"the page and {sys.argv[1]} differ in {sorted(wrong)}" if wrong else 0)
"#;

/// What every session begins with. A failure says at which line of the page it was.
const PRELUDE: &str = r#"set -eu -o pipefail
at=0
begun=()
trap 'status=$?; [ $status -eq 0 ] || echo "@@ failed at line $at of the page"' EXIT
begin() {
    local script; script=$(mktemp .command-XXXXXX); cat >"$script"
    bash "$script" >"$script.log" 2>&1 &
    begun+=($!)
    local pid=$! tries=0
    if [ "$1" = - ]; then sleep 2; else
        until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do
            tries=$((tries + 1))
            if ! kill -0 $pid 2>/dev/null || [ $tries -gt 1200 ]; then cat "$script.log"; return 1; fi
            sleep 0.05
        done
    fi
    kill -0 $pid || { cat "$script.log"; return 1; }
}
stop() {
    local pid=${begun[-1]}
    unset 'begun[-1]'
    kill -INT "$pid" 2>/dev/null || true
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" || true
}
"#;

/// Copies a directory, so that a page cannot change the repository.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true if name == "node_modules" || name == "__pycache__" => {}
            true => copy(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// Whether a child has succeeded; none if it does not end.
fn wait(child: &mut Child) -> Option<bool> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.success());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Pages for people who use Tracewise; generated pages and decision records have nothing to run.
fn pages() -> Vec<PathBuf> {
    let root = workspace();
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    pages.sort();
    pages
}

fn follow(path: &Path) -> Outcome {
    let root = workspace();
    let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
    let mut outcome = Outcome::default();
    let place = Place::new();
    let followed = Page::read(path, &name).and_then(|page| {
        let session = place.session(&page, &mut outcome)?;
        if outcome.n_run == 0 { Ok(()) } else { place.follow(&session) }
    });
    outcome.failure = followed.err().map(|error| format!("{name}: {error}"));
    outcome
}

#[test]
fn every_command_in_the_documentation_runs() {
    if !Path::new(env!("CARGO_BIN_EXE_tracewise")).with_file_name("tracewise-agent").exists() {
        testbed::skip("tracewise-agent is not built: cargo build --package agent");
        return;
    }
    // For one page: TRACEWISE_DOCS_PAGE=jobs.md
    let only = std::env::var("TRACEWISE_DOCS_PAGE").unwrap_or_default();
    let pages: Vec<PathBuf> =
        pages().into_iter().filter(|path| path.ends_with(&only) || only.is_empty()).collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..N_AT_ONCE {
            scope.spawn(|| {
                while let Some(path) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    let outcome = follow(path);
                    outcomes.lock().unwrap().push((path.clone(), outcome, begin.elapsed()));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by(|one, other| one.0.cmp(&other.0));
    let mut report = String::new();
    let (mut n_run, mut n_skipped) = (0, 0);
    for (path, outcome, took) in &outcomes {
        let skipped: usize = outcome.skipped.iter().map(|(n_commands, _)| n_commands).sum();
        (n_run, n_skipped) = (n_run + outcome.n_run, n_skipped + skipped);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ =
            writeln!(report, "{name}: {} run, {skipped} not run, {:.0} s", outcome.n_run, took.as_secs_f64());
        for (n_commands, reason) in &outcome.skipped {
            let _ = writeln!(report, "    {n_commands} not run: {reason}");
        }
    }
    let total =
        format!("documentation: {n_run} commands run, {n_skipped} not run; see target/docs-commands.txt\n");
    std::fs::write(workspace().join("target/docs-commands.txt"), format!("{report}\n{total}")).unwrap();
    // Shown also if the test succeeds.
    std::io::stderr().write_all(total.as_bytes()).unwrap();
    let failures: Vec<String> = outcomes.into_iter().filter_map(|(_, outcome, _)| outcome.failure).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
