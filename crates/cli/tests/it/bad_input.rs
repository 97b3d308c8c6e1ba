//! Bad input gets one clear line, and changes nothing.

use std::path::Path;
use std::process::Command;

use testbed::http::{Behaviour, StrangeServer};

use crate::{contents, export, fixture, import_small, run, tracewise};

/// The one line with which a command fails.
fn complaint(command: &mut Command) -> String {
    let output = run(command);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    // One line that says what happened, and perhaps one that says what to do.
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: "), "{stderr}");
    assert!(lines.len() == 1 || (lines.len() == 2 && lines[1].starts_with("hint: ")), "{stderr}");
    assert!(output.stdout.is_empty());
    stderr
}

/// The visible part of an archive.
fn visible(archive: &Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    contents(archive).into_iter().filter(|(path, _)| !path.ends_with("lock")).collect()
}

#[test]
fn a_csv_that_makes_no_sense_is_refused_with_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    import_small(&archive);
    let before = visible(&archive);
    let good = std::fs::read_to_string(fixture("csv/exathlon-small.csv")).unwrap();
    let rows: Vec<&str> = good.lines().collect();
    let with_row = |row: usize, text: &str| {
        let mut rows = rows.clone();
        rows[row] = text;
        rows.join("\n")
    };
    let cell_of_row_30 = rows[29].split(',').nth(3).unwrap();
    let broken_number = with_row(29, &rows[29].replacen(&format!(",{cell_of_row_30},"), ",oops,", 1));
    let cases: [(String, &str); 10] = [
        (String::new(), "empty"),
        (rows[0].to_owned(), "no rows"),
        (good.replacen("t,", "when,", 1), "column \"t\" is missing"),
        (
            good.replace("node1_CPU001_Wait%", "node1_CPU001_Waiting%"),
            "the Wait column of node1 CPU 1 is missing",
        ),
        (good.replace("_CPU", "-cpu-"), "no column is named like"),
        (broken_number, "row 30"),
        (with_row(12, "1700000011,1,2"), "row 13"),
        (
            with_row(12, &rows[12].replacen("1700000011", "yesterday", 1)),
            "\"yesterday\" in column 1 is not a time",
        ),
        (with_row(12, &format!("1700000011,-3{}", ",0".repeat(19))), "\"-3\" in column 2"),
        (with_row(12, &format!("1700000011,250{}", ",0".repeat(19))), "more than the whole"),
    ];
    for (text, expected) in cases {
        let csv = folder.path().join("bad.csv");
        std::fs::write(&csv, text).unwrap();
        let said = complaint(
            tracewise()
                .args(["archive", "import", "--preset", "exathlon"])
                .arg(&csv)
                .arg("--into")
                .arg(&archive),
        );
        assert!(said.contains(expected) && said.contains("bad.csv"), "{said}");
        assert_eq!(visible(&archive), before);
    }
}

#[test]
fn a_compressed_file_cut_off_is_refused_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    import_small(&archive);
    let before = visible(&archive);
    let plain = std::fs::read(fixture("csv/exathlon-small.csv")).unwrap();
    let whole = zstd::encode_all(&plain[..], 3).unwrap();
    let csv = folder.path().join("cut.csv.zst");
    std::fs::write(&csv, &whole[..whole.len() - 20]).unwrap();
    let said = complaint(
        tracewise().args(["archive", "import", "--preset", "exathlon"]).arg(&csv).arg("--into").arg(&archive),
    );
    assert!(said.contains("cut.csv.zst") && said.contains("cannot be read to the end"), "{said}");
    assert_eq!(visible(&archive), before);
}

#[test]
fn a_missing_file_or_archive_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    let said = complaint(
        tracewise()
            .args(["archive", "import", "--preset", "exathlon", "nowhere.csv", "--into"])
            .arg(&archive),
    );
    assert!(said.contains("nowhere.csv"), "{said}");
    assert!(!archive.exists());
    for command in ["list", "verify", "compact", "show"] {
        let said = complaint(tracewise().args(["archive", command, "--data"]).arg(&archive));
        assert!(said.contains("is not a Tracewise archive"), "{said}");
    }
    let said = complaint(tracewise().args(["archive", "list", "--data", "ftp://x/y"]));
    assert!(said.contains("s3://bucket/prefix"), "{said}");
}

#[test]
fn a_damaged_or_foreign_parquet_file_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    import_small(&archive);
    let path =
        visible(&archive).into_keys().find(|path| path.extension().is_some_and(|e| e == "parquet")).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let out = folder.path().join("out.csv");
    let n_rows = export(archive.to_str().unwrap(), |command| command).lines().count();
    for bytes in [&whole[..whole.len() / 2], b"PAR1 foreign PAR1", b""] {
        std::fs::write(&path, bytes).unwrap();
        let exported =
            run(tracewise().args(["archive", "export", "--out"]).arg(&out).arg("--data").arg(&archive));
        let warning = String::from_utf8(exported.stderr).unwrap();
        assert!(exported.status.success(), "{warning}");
        assert!(warning.contains(path.file_name().unwrap().to_str().unwrap()), "{warning}");
        assert!(std::fs::read_to_string(&out).unwrap().lines().count() < n_rows);
        assert_eq!(
            run(tracewise().args(["archive", "verify", "--data"]).arg(&archive)).status.code(),
            Some(1)
        );
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(run(tracewise().args(["archive", "verify", "--data"]).arg(&archive)).status.code(), Some(0));
}

fn ask(url: &str, archive: &Path) -> Command {
    let mut command = tracewise();
    command.args(["archive", "import", "--from", "1700000000", "--to", "1700000600", "--timeout", "1s"]);
    command.args(["--prometheus", url, "--into"]).arg(archive);
    command
}

#[test]
fn a_prometheus_that_misbehaves_is_named_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    import_small(&archive);
    let before = visible(&archive);
    let answer = |status, body: &str| Behaviour::Answer { status, body: body.to_owned() };
    let refusal = r#"{"status":"error","errorType":"bad_data","error":"parse error at char 3"}"#;
    let cases = [
        (answer("400 Bad Request", refusal), "parse error at char 3"),
        (answer("401 Unauthorized", "no"), "it needs a user and password, or a token"),
        (answer("500 Internal Server Error", "oops"), "500"),
        (answer("503 Service Unavailable", r#"{"status":"error","error":"starting"}"#), "starting"),
        (answer("200 OK", "<html>welcome</html>"), "not that of a Prometheus"),
        (answer("200 OK", r#"{"status":"success","data":[]}"#), "node_cpu_seconds_total"),
        (
            Behaviour::HalfABody { body: r#"{"status":"success","data":["n1:9100","n2:9100"]}"#.into() },
            "cut off",
        ),
        (Behaviour::Silence, "no answer in time"),
    ];
    for (behaviour, expected) in cases {
        let server = StrangeServer::start(behaviour);
        let said = complaint(&mut ask(&server.url(), &archive));
        assert!(said.contains(expected) && said.contains(&server.url()), "{said}");
        assert_eq!(visible(&archive), before);
    }
    let said = complaint(&mut ask(&format!("http://127.0.0.1:{}", testbed::free_port()), &archive));
    assert!(said.contains("cannot connect"), "{said}");
    let said = complaint(&mut ask("prometheus:9090", &archive));
    assert!(said.contains("http://"), "{said}");
}

#[test]
fn a_password_in_an_address_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://me:secret@127.0.0.1:{}", testbed::free_port());
    for url in [url, "htp//me:secret@host".into()] {
        let said = complaint(&mut ask(&url, &folder.path().join("a")));
        assert!(!said.contains("secret"), "{said}");
    }
    assert!(!folder.path().join("a").exists(), "a failed import left an archive behind");
}

#[test]
fn a_plan_that_cannot_be_run_is_refused_before_anything_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, archive) = (folder.path().join("plan.toml"), folder.path().join("a"));
    let good =
        "[[normal]]\nkind = \"np\"\nlength = [\"9s\", \"9s\"]\n[[campaign]]\nname = \"a\"\nset = \"train\"\n";
    let cases = [
        (good.replace("np", "nap"), "\"nap\" is not a kind of job"),
        (good.replace("np", "bad-io"), "bad-io is anomalous"),
        (good.replace("np", "mpi-1000"), "needs 1000 threads, but this machine has"),
        (
            format!("{good}[[campaign]]\nname = \"a\"\nset = \"test\"\n"),
            "campaign a cannot be in both train and test",
        ),
        (good.replace("length", "lenght"), "unknown field `lenght`"),
        (good.replace("9s", "9 parsecs"), "parsecs"),
        (
            format!("quota = \"900000TB\"\n{}", good.replace("np", "good-io")),
            "free some space, or lower `quota`",
        ),
    ];
    for (text, expected) in cases {
        std::fs::write(&plan, text).unwrap();
        let mut command = tracewise();
        command.args(["campaign", "run", "--even-if-busy"]).arg(&plan).arg("--into").arg(&archive);
        let said = complaint(command.arg("--scratch").arg(folder.path()));
        assert!(said.contains(expected), "{said}");
        assert!(!archive.join("cpu").exists() && !archive.join("labels").exists());
    }
}

/// Somebody else at work, for as long as this lives.
struct Spinner(std::process::Child);

impl Spinner {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_machine_that_others_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, "[[normal]]\nkind = \"idle\"\nlength = [\"3s\", \"3s\"]\n[[campaign]]\nname = \"a\"\nset = \"train\"\n")
        .unwrap();
    let n_threads = std::thread::available_parallelism().unwrap().get();
    let _others: Vec<Spinner> = (0..n_threads).map(|_| Spinner::start()).collect();
    let said = complaint(
        tracewise().args(["campaign", "run"]).arg(&plan).arg("--into").arg(folder.path().join("a")),
    );
    assert!(said.contains("--even-if-busy"), "{said}");
}

#[test]
fn a_simulation_or_analysis_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("a"), folder.path().join("out"));
    import_small(&archive);
    let before = visible(&archive);
    let cases: [(&[&str], &str); 8] = [
        (&["campaign", "simulate", "--nodes", "0", "--into", "A"], "at least one node"),
        (&["campaign", "simulate", "--hours", "0.01", "--into", "A"], "it needs at least 600 s"),
        (&["campaign", "simulate", "--load", "1.5", "--into", "A"], "the load has to be between"),
        (&["campaign", "label", "list", "--data", "A"], "has no labels"),
        (&["campaign", "fit", "--data", "A", "--out", "OUT"], "no labelled jobs to fit to"),
        (
            &["campaign", "compare", "--recorded", "A", "--simulated", "A", "--out", "OUT", "--window", "5"],
            "it needs at least 20 s",
        ),
        (
            &["analyze", "spectrum", "--data", "A", "--out", "OUT", "--segment", "5000"],
            "use a shorter --segment",
        ),
        (
            &["analyze", "sampling", "--data", "A", "--out", "OUT", "--window", "7200"],
            "use a shorter --window",
        ),
    ];
    for (words, expected) in cases {
        let mut command = tracewise();
        for word in words {
            match *word {
                "A" => command.arg(&archive),
                "OUT" => command.arg(&out),
                word => command.arg(word),
            };
        }
        let said = complaint(&mut command);
        assert!(said.contains(expected), "{said}");
        assert!(visible(&archive) == before && !out.exists());
    }
}
