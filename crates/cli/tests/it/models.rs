//! `tracewise models`: the registry on the command line, and a service that follows it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::serve::Process;
use crate::{json_of, run, simulate, stdout_of, tracewise};

/// Two models of a small simulated cluster that differ in their budget.
fn two_models(folder: &Path) -> [PathBuf; 2] {
    let history = folder.join("history");
    simulate("train=2,validation=1", &history);
    [1, 2].map(|budget| {
        let config = folder.join(format!("{budget}.toml"));
        std::fs::write(&config, format!("[detector]\nfalse_events_per_day = {budget}\n")).unwrap();
        let model = folder.join(format!("m{budget}"));
        let train = ["detect", "train", "--detector", "pca", "--data"];
        stdout_of(
            tracewise().arg("--config").arg(&config).args(train).arg(&history).arg("--out").arg(&model),
        );
        model
    })
}

/// A complaint of a command that has to fail, in one line.
fn complaint_of(command: &mut Command) -> String {
    let output = run(command);
    assert!(!output.status.success());
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    complaint
}

/// Changes one byte of a model's weights.
fn damage(model: &Path) {
    let path = model.join("weights.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn models_are_registered_promoted_and_rolled_back(store: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [m1, m2] = two_models(folder.path());
    let config = folder.path().join("tracewise.toml");
    let data = folder.path().join("data");
    std::fs::write(&config, format!("[serve]\ndata = {data:?}\nstore = {store:?}\n")).unwrap();
    let models = |arguments: &[&str]| {
        let mut command = tracewise();
        command.arg("--config").arg(&config).arg("models").args(arguments);
        command
    };
    let champion = || json_of(&mut models(&["show", "--json"]))["model"]["version"].clone();
    let nothing = complaint_of(&mut models(&["show"]));
    assert!(nothing.contains("there is no champion yet"), "{nothing}");

    stdout_of(models(&["add"]).arg(&m1).args(["--promote", "the first"]));
    stdout_of(models(&["add"]).arg(&m2));
    let again = complaint_of(models(&["add"]).arg(&m2));
    assert!(again.contains("model m2 exists already"), "{again}");
    let list = json_of(&mut models(&["list", "--json"]));
    assert_eq!((&list[0]["version"], &list[1]["version"]), (&"m2".into(), &"m1".into()));
    assert_eq!(list[0]["detector"], "pca");
    assert!(list[0]["data"]["sha256"].is_string() && list[0]["data"]["from"].is_number(), "{list}");
    let difference = json_of(&mut models(&["diff", "m1", "m2", "--json"]));
    let names: Vec<&str> =
        difference.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.ends_with("false_events_per_day")), "{names:?}");
    assert!(!names.contains(&"detector"), "{names:?}");

    assert_eq!(champion(), "m1");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let between = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    stdout_of(&mut models(&["promote", "m2", "--reason", "a larger budget"]));
    assert_eq!(champion(), "m2");
    let at = json_of(&mut models(&["history", "--at", &between, "--json"]));
    assert_eq!((at.as_array().unwrap().len(), &at[0]["version"]), (1, &"m1".into()));

    stdout_of(&mut models(&["rollback", "--reason", "too many events"]));
    assert_eq!(champion(), "m1");
    let earlier = complaint_of(&mut models(&["rollback"]));
    assert!(earlier.contains("no earlier champion"), "{earlier}");
    let history = json_of(&mut models(&["history", "--json"]));
    let row = |one: &serde_json::Value| {
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        [text("version"), text("what"), text("actor"), text("reason")].join(" ")
    };
    let rows: Vec<String> = history.as_array().unwrap().iter().map(row).collect();
    assert_eq!(
        rows,
        [
            "m1 restored command line too many events",
            "m2 promoted command line a larger budget",
            "m1 promoted command line the first"
        ]
    );

    damage(&data.join("models/m2"));
    for (arguments, reason) in [
        (["promote", "m2"], "cannot be used"),
        (["promote", "m3"], "there is no model m3"),
        (["promote", "../m2"], "there is no model"),
        (["show", "m3"], "there is no model m3"),
    ] {
        let complaint = complaint_of(&mut models(&arguments));
        assert!(complaint.contains(reason), "{complaint}");
    }
    assert_eq!(champion(), "m1");
}

#[test]
fn models_are_registered_promoted_and_rolled_back_with_sqlite() {
    models_are_registered_promoted_and_rolled_back("");
}

#[test]
fn models_are_registered_promoted_and_rolled_back_with_postgresql() {
    let Some(server) = testbed::postgres() else { return };
    models_are_registered_promoted_and_rolled_back(&testbed::postgres_url(&server));
}

#[test]
fn a_service_follows_the_champion_and_survives_a_damaged_one() {
    let folder = tempfile::tempdir().unwrap();
    let [m1, m2] = two_models(folder.path());
    let data = folder.path().join("data");
    // A model that was copied by hand is found.
    stdout_of(Command::new("mkdir").arg("-p").arg(data.join("models")));
    stdout_of(Command::new("cp").arg("-r").arg(&m1).arg(data.join("models/m1")));
    let in_use = |process: &Process, version: &str| {
        testbed::eventually(&format!("{version} is in use"), || {
            let answer = testbed::http::get(process.port, "/api/v1/models", &[]);
            let models: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            let is_used = |one: &&serde_json::Value| one["version"] == version && one["in_use"] == true;
            models["items"].as_array().unwrap().iter().find(is_used).cloned()
        })
    };
    let process = Process::start(folder.path(), None);
    assert_eq!(in_use(&process, "m1")["aliases"], serde_json::json!(["champion"]));
    let add = ["models", "add", "--promote", "better", "--data"];
    stdout_of(tracewise().args(add).arg(&data).arg(&m2));
    in_use(&process, "m2");
    process.stop();

    damage(&data.join("models/m2"));
    let process = Process::start(folder.path(), None);
    in_use(&process, "m1");
    let log = process.stop();
    assert!(
        log.contains("model m2 cannot be used") && log.contains("the champion before it is used"),
        "{log}"
    );
}
