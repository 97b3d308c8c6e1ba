//! The command as users run it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod campaign;
mod commands;
mod crash;
mod demo;
mod detect;
mod docs;
mod jobs;
mod learn;
mod models;
mod power_loss;
mod prometheus;
mod s3;
mod safety;
mod serve;
mod slurm_scripts;
mod workflows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `tracewise` in an environment without settings.
fn tracewise() -> Command {
    without_settings(env!("CARGO_BIN_EXE_tracewise"))
}

/// A program in an environment without settings.
fn without_settings(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TRACEWISE_") {
            command.env_remove(name);
        }
    }
    command.env("RUST_BACKTRACE", "0");
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// What a command that has to succeed prints.
fn stdout_of(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json_of(command: &mut Command) -> serde_json::Value {
    serde_json::from_str(&stdout_of(command)).unwrap()
}

/// Simulates a small cluster into an archive.
fn simulate(campaigns: &str, archive: &Path) {
    let cluster = ["--nodes", "2", "--threads", "16", "--hours", "0.75", "--seed", "5"];
    let simulate = ["campaign", "simulate", "--campaigns", campaigns];
    stdout_of(tracewise().args(simulate).args(cluster).arg("--into").arg(archive));
}

fn fixture(path: &str) -> PathBuf {
    testbed::workspace().join("fixtures").join(path)
}

fn import_small(archive: &Path) {
    let csv = fixture("csv/exathlon-small.csv");
    stdout_of(
        tracewise().args(["archive", "import", "--preset", "exathlon"]).arg(csv).arg("--into").arg(archive),
    );
}

/// The rows of an exported archive.
fn export(archive: &str, configure: impl FnOnce(&mut Command) -> &mut Command) -> String {
    stdout_of(configure(
        tracewise().args(["archive", "export", "--data", archive, "--format", "csv", "--out", "-"]),
    ))
}

/// Every file below a folder with its bytes, except those in which nothing is visible.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    found
}

/// The one line that a command that fails ends with.
fn refused(command: &mut Command) -> String {
    let output = run(command);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let complaint = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = complaint.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{complaint}");
    lines[0].to_owned()
}
