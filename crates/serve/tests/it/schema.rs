//! The API is as its document says: schemathesis tries it with all kinds of requests.

use std::process::Command;

use crate::{settings, started};

const CONFIG: &str = r#"
[[operations]]
include-path = "/api/v1/stream"
enabled = false

[checks.positive_data_acceptance]
# A name or a time that the schema allows may still mean nothing.
expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "415", "422", "429", "502", "503"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_nothing() {
    let Some(program) = testbed::program("python/bin/schemathesis") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    settings.limits.requests_per_second = 10_000;
    settings.limits.failed_logins = 100_000;
    let running = started(settings, None).await;
    std::fs::write(folder.path().join("schemathesis.toml"), CONFIG).unwrap();
    let mut command = Command::new(program);
    command
        .current_dir(folder.path())
        .args(["run", &format!("http://{}/openapi.json", running.address), "--no-color"])
        .args([
            "--seed",
            "1",
            "-n",
            "30",
            "--phases",
            "examples,coverage,fuzzing",
            "--request-timeout",
            "10",
        ]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    running.stop().await;
}
