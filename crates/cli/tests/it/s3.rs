//! An archive in a bucket.

use std::process::Command;

use crate::{contents, export, fixture, import_small, json_of, run, stdout_of, tracewise};

fn with_keys<'a>(command: &'a mut Command, endpoint: &str, spool: &std::path::Path) -> &'a mut Command {
    command
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("TRACEWISE_ARCHIVE_S3_ENDPOINT", endpoint)
        .env("TRACEWISE_ARCHIVE_SPOOL", spool)
}

#[test]
fn a_bucket_holds_an_archive_like_a_folder_does() {
    let Some(server) = testbed::s3("traces") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (local, spool) = (folder.path().join("local"), folder.path().join("spool"));
    import_small(&local);
    let url = server.url();
    let address = "s3://traces/cluster/a";
    for _ in 0..2 {
        let mut import = tracewise();
        import.args(["archive", "import", "--preset", "exathlon", "--into", address]);
        stdout_of(with_keys(import.arg(fixture("csv/exathlon-small.csv")), &url, &spool));
    }
    let expected = export(local.to_str().unwrap(), |command| command);
    let exported = || export(address, |command| with_keys(command, &url, &spool));
    assert_eq!(exported(), expected);
    let compacted = json_of(with_keys(
        tracewise().args(["archive", "compact", "--data", address, "--json"]),
        &url,
        &spool,
    ));
    assert_eq!(compacted["merged"]["files_before"], 4);
    assert_eq!(compacted["merged"]["files_after"], 2);
    assert_eq!(exported(), expected);
    let verified = json_of(with_keys(
        tracewise().args(["archive", "verify", "--data", address, "--json"]),
        &url,
        &spool,
    ));
    assert_eq!(verified["files"], 2);
    let list =
        json_of(with_keys(tracewise().args(["archive", "list", "--data", address, "--json"]), &url, &spool));
    assert_eq!(list["readings"], 155);
    assert!(
        contents(&spool).keys().all(|path| path.extension().is_none_or(|e| e != "parquet")),
        "left in the spool"
    );
}

#[test]
fn recording_goes_to_a_bucket() {
    let Some(server) = testbed::s3("traces") else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url();
    let mut record = tracewise();
    record.args([
        "record",
        "--interval",
        "50ms",
        "--duration",
        "500ms",
        "--node",
        "n/1 é",
        "--into",
        "s3://traces/live",
    ]);
    stdout_of(with_keys(&mut record, &url, folder.path()));
    let mut list = tracewise();
    let list = json_of(with_keys(
        list.args(["archive", "list", "--data", "s3://traces/live", "--json"]),
        &url,
        folder.path(),
    ));
    assert!(list["readings"].as_u64().unwrap() > 4);
    assert_eq!(list["nodes"][0]["node"], "n/1 é");
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let Some(server) = testbed::s3("traces") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut import = tracewise();
    import.args(["archive", "import", "--preset", "exathlon", "--into", "s3://elsewhere/a"]);
    let output = run(with_keys(import.arg(fixture("csv/exathlon-small.csv")), &server.url(), folder.path()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("s3://elsewhere/a"), "{said}");
}
