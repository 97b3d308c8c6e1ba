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
    let status = Command::new(script("node.sh")).env("PATH", path).env("SLURM_JOB_ID", "1").status().unwrap();
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
