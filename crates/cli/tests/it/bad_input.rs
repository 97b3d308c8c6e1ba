//! Bad input gets one clear line, and changes nothing.

use std::path::Path;
use std::process::Command;

use testbed::http::{Behaviour, StrangeServer};

use crate::{contents, fixture, import_small, run, tracewise};

/// The one line with which a command fails.
fn complaint(command: &mut Command) -> String {
    let output = run(command);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
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
            "\"yesterday\" in column 1 is no time",
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
    assert!(said.contains("cut.csv.zst") && said.contains("cannot be read to its end"), "{said}");
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
        let said = complaint(tracewise().args(["archive", command]).arg(&archive));
        assert!(said.contains("is not a Tracewise archive"), "{said}");
    }
    let said = complaint(tracewise().args(["archive", "list", "ftp://x/y"]));
    assert!(said.contains("s3://bucket/prefix"), "{said}");
}

#[test]
fn a_damaged_or_foreign_parquet_file_is_named_and_nothing_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    import_small(&archive);
    let path =
        visible(&archive).into_keys().find(|path| path.extension().is_some_and(|e| e == "parquet")).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let out = folder.path().join("out.csv");
    for bytes in [&whole[..whole.len() / 2], b"PAR1 foreign PAR1", b""] {
        std::fs::write(&path, bytes).unwrap();
        let said = complaint(tracewise().args(["archive", "export", "--out"]).arg(&out).arg(&archive));
        assert!(said.contains(path.file_name().unwrap().to_str().unwrap()), "{said}");
        assert!(!out.exists());
        assert_eq!(run(tracewise().args(["archive", "verify"]).arg(&archive)).status.code(), Some(1));
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(run(tracewise().args(["archive", "verify"]).arg(&archive)).status.code(), Some(0));
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
        (answer("401 Unauthorized", "no"), "user:password"),
        (answer("500 Internal Server Error", "oops"), "500"),
        (answer("503 Service Unavailable", r#"{"status":"error","error":"starting"}"#), "starting"),
        (answer("200 OK", "<html>welcome</html>"), "not that of a Prometheus"),
        (answer("200 OK", r#"{"status":"success","data":[]}"#), "node_cpu_seconds_total"),
        (
            Behaviour::HalfABody { body: r#"{"status":"success","data":["n1:9100","n2:9100"]}"#.into() },
            "cut off",
        ),
        (Behaviour::Silence, "does not answer in time"),
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
