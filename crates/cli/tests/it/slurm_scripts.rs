//! What runs before and after the jobs of Slurm: deploy/slurm.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::slurm::Slurm;
use testbed::{eventually, free_port, workspace};

fn script(name: &str) -> PathBuf {
    workspace().join("deploy/slurm").join(name)
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A service that answers every request with these events. It is there until the test ends.
fn service(events: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = move |mut stream: TcpStream| {
        let mut request = [0; 4_096];
        let length = stream.read(&mut request).unwrap_or(0);
        let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
        let is_asked =
            request.starts_with("get /api/v1/jobs/") && request.contains("authorization: bearer tw_x");
        let (status, body) = if is_asked {
            ("200 OK", format!("{{\"nodes\": [], \"events\": {events}}}"))
        } else {
            ("400 Bad Request", String::new())
        };
        let _ = write!(stream, "HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    };
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    port
}

fn write_settings(folder: &Path, port: u16) {
    let settings =
        format!("{{\"url\": \"http://127.0.0.1:{port}\", \"token\": \"tw_x\", \"wait_seconds\": 0}}");
    fs::write(folder.join("slurm.json"), settings).unwrap();
}

const EVENTS: &str = r#"[
    {"strength": 1.5, "node": "n1", "why": "weaker", "hidden_by": null},
    {"strength": 9.0, "node": "n1", "why": "hidden", "hidden_by": 4},
    {"strength": 3.25, "node": "n2", "why": "iowait is high", "hidden_by": null}
]"#;

/// Submits a short job, and waits for its end.
fn run_job(slurm: &Slurm) -> String {
    let said = slurm.run("sbatch", &["--parsable", "-n1", "--output=/dev/null", "--wrap", "true"]);
    let job = said.trim().to_owned();
    assert!(job.parse::<u32>().is_ok(), "{said}");
    eventually("the end of a job", || {
        let shown = slurm.run("scontrol", &["show", "job", &job]);
        shown.contains("JobState=COMPLETED").then_some(())
    });
    job
}

/// In place of slurmdbd, which is not installed: `sacctmgr` notes the comment of a job, and `sacct` prints it.
const SACCTMGR: &str = "#!/bin/sh
[ \"$1 $2 $3 $4\" = '--immediate update job where' ] || exit 1
echo \"${7#AdminComment=}\" >\"$(dirname \"$0\")/${5#jobid=}.comment\"
";
const SACCT: &str = "#!/bin/sh
cat \"$(dirname \"$0\")/${1#--jobs=}.comment\" 2>/dev/null || true
";

#[test]
fn slurm_keeps_a_summary_of_a_job_and_no_job_waits_for_tracewise() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    write_program(&folder.path().join("sacctmgr"), SACCTMGR);
    write_program(&folder.path().join("sacct"), SACCT);
    let summary = folder.path().join("summary");
    write_program(
        &summary,
        &format!(
            "#!/bin/sh\nexport PATH='{0}':\"$PATH\" TRACEWISE_SLURM_SETTINGS='{0}/slurm.json'\nexec '{1}'\n",
            folder.path().display(),
            script("summary.py").display()
        ),
    );
    let node = script("node.sh");
    let settings = format!(
        "Prolog={0}\nEpilog={0}\nEpilogSlurmctld={1}\nPrologFlags=Alloc",
        node.display(),
        summary.display()
    );
    let Some(slurm) = Slurm::start_with(2, &settings) else { return };
    let comment_of = |job: &str| folder.path().join(format!("{job}.comment"));

    write_settings(folder.path(), service(EVENTS));
    let job = run_job(&slurm);
    let found =
        eventually("a summary", || fs::read_to_string(comment_of(&job)).ok().filter(|text| !text.is_empty()));
    let expected = "tracewise: 2 events; the strongest on n2, 3.2 times its threshold: iowait is high\n";
    assert_eq!(found, expected);

    let next: u32 = job.parse::<u32>().unwrap() + 1;
    fs::write(comment_of(&next.to_string()), "JS1:abc").unwrap();
    assert_eq!(run_job(&slurm), next.to_string());
    write_settings(folder.path(), service("[]"));
    let without_events = run_job(&slurm);
    write_settings(folder.path(), free_port());
    let begin = Instant::now();
    let unreachable = run_job(&slurm);
    assert!(begin.elapsed() < Duration::from_secs(15), "it took {:?}", begin.elapsed());
    fs::remove_file(folder.path().join("slurm.json")).unwrap();
    let without_settings = run_job(&slurm);
    std::thread::sleep(Duration::from_secs(2));
    let kept = fs::read_to_string(comment_of(&next.to_string())).unwrap();
    assert_eq!(kept, "JS1:abc", "the comment of another program stays");
    for job in [without_events, unreachable, without_settings] {
        assert!(!comment_of(&job).exists());
    }
    // A prolog or an epilog that fails drains its node.
    assert!(slurm.run("sinfo", &["-h", "-o", "%T"]).contains("idle"));
}

#[test]
fn scripts_end_in_time_beside_programs_that_hang() {
    let folder = tempfile::tempdir().unwrap();
    write_program(&folder.path().join("tracewise-agent"), "#!/bin/sh\nexec sleep 60\n");
    let path = format!("{}:{}", std::env::var("PATH").unwrap(), folder.path().display());
    let begin = Instant::now();
    let status =
        Command::new(script("node.sh")).env("PATH", &path).env("SLURM_JOB_ID", "1").status().unwrap();
    assert!(status.success());
    assert!(begin.elapsed() < Duration::from_secs(3), "it took {:?}", begin.elapsed());

    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    write_settings(folder.path(), silent.local_addr().unwrap().port());
    let begin = Instant::now();
    let settings = folder.path().join("slurm.json");
    let mut command = Command::new(script("summary.py"));
    let output = command.env("TRACEWISE_SLURM_SETTINGS", settings).env("SLURM_JOB_ID", "1").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(begin.elapsed() < Duration::from_secs(3), "it took {:?}", begin.elapsed());
}

/// A program that notes its arguments, a line for each call.
fn write_recorder(folder: &Path, name: &str) {
    let text = format!("#!/bin/sh\necho \"$*\" >>'{}/{name}.called'\n", folder.display());
    write_program(&folder.join(name), &text);
}

fn called(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(format!("{name}.called"))).unwrap_or_default()
}

#[test]
fn the_prolog_asks_the_agent_where_its_settings_say() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tracewise-agent", "systemctl", "logger"] {
        write_recorder(folder.path(), name);
    }
    let settings = folder.path().join("tracewise-agent");
    let settings = settings.with_extension("default");
    let run = |text: &str| {
        fs::write(&settings, text).unwrap();
        let mut command = Command::new("sh");
        // The script puts the directories of the system first; here, the recorders have to be found.
        let text = fs::read_to_string(script("node.sh")).unwrap();
        let own = format!("PATH={}:$PATH", folder.path().display());
        let (before, after) = text.split_once("\nsettings=").unwrap();
        command.arg("-c").arg(format!("{before}\n{own}\nsettings={after}"));
        // Slurm sets the environment of a prolog: a variable of an administrator is not in it.
        command.env_clear().env("SLURM_JOB_ID", "1").env("TRACEWISE_AGENT_DEFAULTS", &settings);
        assert!(command.status().unwrap().success());
        called(folder.path(), "tracewise-agent").lines().last().unwrap().to_owned()
    };
    assert_eq!(run(""), "health --url http://127.0.0.1:9742/healthz");
    let text = "ARGS=\"--web.listen-address=:99\"\n#TRACEWISE_AGENT_URL=no\nTRACEWISE_AGENT_URL='https://127.0.0.1:99/healthz'\n";
    assert_eq!(run(text), "health --url https://127.0.0.1:99/healthz");
    fs::remove_file(&settings).unwrap();
    assert_eq!(called(folder.path(), "systemctl"), "", "an agent that responds is not started");
}

#[test]
fn the_next_night_and_the_candidates_have_the_partition_and_account_of_this_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sbatch", "tracewise"] {
        write_recorder(folder.path(), name);
    }
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(script("night.sbatch"));
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        command.env_clear().env("PATH", path).envs(variables.iter().copied());
        assert!(command.status().unwrap().success());
        let last = |name| called(folder.path(), name).lines().last().unwrap().to_owned();
        (last("sbatch"), last("tracewise"))
    };
    let script = script("night.sbatch").display().to_string();
    let night = "learn tonight --config /etc/tracewise/tracewise.toml --on slurm --deadline 4h --sbatch=--cpus-per-task=8";
    assert_eq!(run(&[]), (script.clone(), night.to_owned()));
    let (next, held) = run(&[("SLURM_JOB_PARTITION", "short"), ("SLURM_JOB_ACCOUNT", "ops")]);
    assert_eq!(next, format!("--partition=short --account=ops {script}"));
    assert_eq!(held, format!("{night} --sbatch=--partition=short --sbatch=--account=ops"));
}

#[test]
fn a_job_does_not_open_the_database_of_a_service_on_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::tracewise();
    command.args(["learn", "tonight", "--on", "slurm", "--data"]).arg(folder.path()).env("SLURM_JOB_ID", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("serve.store = \"postgres://"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn the_summary_reads_settings_of_the_user_of_slurm() {
    // Only root and the service may enter /etc/tracewise.
    let text = fs::read_to_string(script("summary.py")).unwrap();
    assert!(text.contains("\"/etc/slurm/tracewise.json\"") && !text.contains("/etc/tracewise/"));
    if !rustix::process::geteuid().is_root() {
        return testbed::skip("only root can run a program as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    write_program(&folder.path().join("sacctmgr"), SACCTMGR);
    write_program(&folder.path().join("sacct"), SACCT);
    let summary = folder.path().join("summary.py");
    fs::copy(script("summary.py"), &summary).unwrap();
    let port = service(EVENTS);
    write_settings(folder.path(), port);
    let settings = folder.path().join("slurm.json");
    let nobody = 65_534;
    std::os::unix::fs::chown(folder.path(), Some(nobody), Some(nobody)).unwrap();
    std::os::unix::fs::chown(&settings, Some(nobody), Some(nobody)).unwrap();
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new(&summary);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    std::os::unix::process::CommandExt::uid(&mut command, nobody);
    std::os::unix::process::CommandExt::gid(&mut command, nobody);
    command.env("PATH", path).env("TRACEWISE_SLURM_SETTINGS", &settings).env("SLURM_JOB_ID", "7");
    assert!(command.status().unwrap().success());
    let found = eventually("a summary", || fs::read_to_string(folder.path().join("7.comment")).ok());
    assert!(found.starts_with("tracewise: 2 events"), "{found}");
}
