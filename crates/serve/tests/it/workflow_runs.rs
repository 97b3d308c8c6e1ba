//! Workflow runs through the API: what the document says, who withdraws what, large runs, and operations that are
//! cancelled or meet each other.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use lifecycle::{NewToken, Role, Store};
use reqwest::Method;
use serde_json::{Value, json};
use workload::Timestamp;

use crate::stored::{Client, add, nextflow, trace};
use crate::{eventually, settings, started};

/// Checks that a value has the structure of a schema, member by member.
fn check(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(path) = schema["$ref"].as_str() {
        return check(document, &document.pointer(&path[1..]).unwrap().clone(), value, place);
    }
    if let Some(one_of) = schema["oneOf"].as_array() {
        let is_nullable = one_of.iter().any(|one| one["type"] == "null");
        if value.is_null() && is_nullable {
            return;
        }
        return check(document, one_of.iter().find(|one| one["type"] != "null").unwrap(), value, place);
    }
    match value {
        Value::Object(members) => {
            let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
            let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
            for part in parts {
                let whole = part["$ref"].as_str().map(|path| document.pointer(&path[1..]).unwrap().clone());
                let part = whole.unwrap_or(part);
                properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
                required.extend(part["required"].as_array().cloned().unwrap_or_default());
            }
            for (name, member) in members {
                let of_map =
                    (!schema["additionalProperties"].is_null()).then(|| &schema["additionalProperties"]);
                let of_member = properties.get(name).or(of_map);
                let of_member = of_member.unwrap_or_else(|| panic!("{place}.{name} is not in the document"));
                check(document, of_member, member, &format!("{place}.{name}"));
            }
            for name in required {
                assert!(members.contains_key(name.as_str().unwrap()), "{place} has no {name}");
            }
        }
        Value::Array(items) => {
            assert!(schema["items"].is_object(), "{place} is a list");
            items.iter().for_each(|item| check(document, &schema["items"], item, place));
        }
        other => {
            let found = match other {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(number) if number.is_f64() => "number",
                Value::Number(_) => "integer",
                _ => "string",
            };
            let allowed = schema["type"].to_string();
            let is_number = found == "integer" && allowed.contains("number");
            assert!(allowed.contains(found) || is_number, "{place} is {found}, not {schema}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_runs_have_the_structure_of_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    for run in 0..6 {
        add(&client, &format!("a{run}.txt"), 20 + run, "normal").await;
        add(&client, &format!("b{run}.txt"), 60 + run, "cpu").await;
    }
    let document: Value = serde_json::from_str(&serve::http::openapi()).unwrap();
    let compared = async |path: &str, route: &str| {
        let value = client.get(path).await;
        let route =
            document["paths"][route]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                .clone();
        assert!(route.is_object(), "{path}");
        check(&document, &route, &value, path);
        value
    };
    let classifier = "/api/v1/workflow-classifier";
    compared("workflow-classifier", classifier).await;
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert_eq!(client.run("workflow-classifier", json!({})).await["state"], "done");
    let state = compared("workflow-classifier", classifier).await;
    let trained = state["classifier"]["trained"].as_f64().unwrap();
    assert!((before - 1.0..before + 300.0).contains(&trained), "{state}");
    assert_eq!(state["classifier"]["from"], "labels");
    let run = compared("workflows/b0.txt", "/api/v1/workflows/{name}").await;
    assert_eq!(run["verdict"]["class"], "cpu");
    assert!(!run["verdict"]["reasons"].as_array().unwrap().is_empty(), "{run}");
    compared("workflows/b0.txt/chart", "/api/v1/workflows/{name}/chart").await;
    compared("workflows/a0.txt/comparison?with=b0.txt", "/api/v1/workflows/{name}/comparison").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_withdraws_only_their_own_label() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let store = Store::open_file(&folder.path().join("data/metadata.db")).await.unwrap();
    let mut clients = Vec::new();
    for name in ["ann", "bob"] {
        let new = NewToken { name: name.into(), role: Role::Vetter, nodes: Vec::new() };
        let (_, secret) = store.add_token(&new, "test", Timestamp(1_800_000_000_000)).await.unwrap();
        clients.push(Client::with_token(&running, secret.reveal().to_owned()));
    }
    let [ann, bob] = &clients[..] else { unreachable!() };
    add(bob, "run.txt", 20, "cpu").await;
    let label = |label: &str| json!({ "label": label }).to_string();
    assert_eq!(ann.put("workflows/run.txt/label", label("normal")).await.1["label"], "normal");
    let (status, withdrawn) = ann.send(Method::DELETE, "workflows/run.txt/label", Vec::new()).await;
    let withdrawn: Value = serde_json::from_slice(&withdrawn).unwrap();
    assert_eq!((status, &withdrawn["label"]), (200, &json!("cpu")), "the label of bob counts again");
    assert_eq!(ann.send(Method::DELETE, "workflows/run.txt/label", Vec::new()).await.0, 404);
    let labels = bob.get("workflows/run.txt").await["labels"].clone();
    assert_eq!((labels.as_array().unwrap().len(), &labels[0]["label"]), (1, &json!("cpu")));
    assert_eq!(bob.send(Method::DELETE, "workflows/run.txt/label", Vec::new()).await.0, 200);
    assert_eq!(bob.get("workflows/run.txt").await["label"], Value::Null);
    let log: Vec<String> = store.audit_log(3).await.unwrap().into_iter().map(|entry| entry.action).collect();
    let withdraw = "withdraw label of workflow run";
    assert_eq!(log, [withdraw, withdraw, "label workflow run normal"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_classifier_come_one_after_another_and_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    for run in 0..3 {
        add(&client, &format!("a{run}.txt"), 20 + run, "normal").await;
        add(&client, &format!("b{run}.txt"), 60 + run, "cpu").await;
    }
    assert_eq!(client.send(Method::DELETE, "workflow-classifier", Vec::new()).await.0, 404);
    let turn = running.service.workflow_runs.turn().unwrap();
    for method in [Method::POST, Method::DELETE] {
        let (status, answer) = client.send(method, "workflow-classifier", b"{}".to_vec()).await;
        assert_eq!(status, 409, "{}", String::from_utf8_lossy(&answer));
    }
    drop(turn);
    assert_eq!(client.run("workflow-classifier", json!({})).await["state"], "done");
    assert_eq!(client.get("workflows/a0.txt").await["class"], "normal");
    let back = client.follow(Method::DELETE, "workflow-classifier", json!({})).await;
    assert_eq!((&back["state"], &back["result"]["classifier"]), (&json!("done"), &Value::Null), "{back}");
    assert_eq!(client.get("workflows/a0.txt").await["class"], Value::Null);
    let state = client.get("workflow-classifier").await;
    assert_eq!((&state["classifier"], &state["is_configured"]), (&Value::Null, &json!(false)));
    let log = running.service.store.audit_log(2).await.unwrap();
    let log: Vec<(&str, &str)> = log.iter().map(|entry| (&*entry.action, &*entry.detail)).collect();
    assert_eq!(log[0].0, "remove workflow classifier");
    assert_eq!(log[1].0, "train workflow classifier");
    assert!(log[1].1.ends_with(", 6 runs"), "{log:?}");
    running.stop().await;
}

/// A run of many tasks in the format of Nextflow: 100 at a time.
fn large(n_tasks: usize) -> String {
    let mut text = String::from("task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\n");
    for task in 0..n_tasks {
        let (minute, own) = (task / 100, 30 + task % 20);
        let (day, hour, minute) = (1 + minute / 1440, minute / 60 % 24, minute % 60);
        let status = if task % 5_000 == 0 { "FAILED\t1" } else { "COMPLETED\t0" };
        let _ = writeln!(
            text,
            "{task}\t0a/{task}\t{task}\tKIND{} (s{task})\t{status}\t2026-11-{day:02} {hour:02}:{minute:02}:00.000\t{}s\t{own}s",
            task % 20,
            own + 2
        );
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_100_000_tasks_is_sent_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    let (n_tasks, begun) = (100_000, Instant::now());
    let (status, added) = client.put("workflows/large.txt", large(n_tasks)).await;
    assert_eq!((status, &added["attempts"], &added["failed"]), (201, &json!(n_tasks), &json!(20)), "{added}");
    let chart = client.get("workflows/large.txt/chart").await;
    assert_eq!(chart["kinds"].as_array().unwrap().len(), 20);
    for column in ["task", "kind", "workflow", "role", "attempt", "failed", "critical"] {
        assert_eq!(chart[column].as_array().unwrap().len(), n_tasks, "{column}");
    }
    assert!(chart["ends"].as_array().unwrap().iter().all(|part| part.as_array().unwrap().len() == n_tasks));
    assert_eq!(chart["failed"].as_array().unwrap().iter().filter(|one| **one == json!(1)).count(), 20);
    // Quadratic work would take far longer, also on a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_operation_is_cancelled_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    assert_eq!(client.put("job-traces/ours.csv", trace(5_000)).await.0, 201);
    let body = json!({ "generator": "sequence-copulagan" }).to_string().into_bytes();
    let (status, begun) = client.send(Method::POST, "job-traces/ours.csv/synthesis", body).await;
    assert_eq!(status, 202, "{}", String::from_utf8_lossy(&begun));
    let number = serde_json::from_slice::<Value>(&begun).unwrap()["number"].clone();
    let path = format!("operations/{number}");
    eventually("the training", async || client.get(&path).await["progress"].as_f64() > Some(0.0)).await;
    assert_eq!(client.get(&path).await["state"], "running");
    let asked = Instant::now();
    assert_eq!(client.send(Method::DELETE, &path, Vec::new()).await.0, 204);
    eventually("the end", async || client.get(&path).await["state"] != "running").await;
    assert_eq!(client.get(&path).await["state"], "cancelled");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(client.names("job-traces").await, ["ours.csv"]);
    // The next operation has its place.
    assert_eq!(client.put("workflows/run.txt", nextflow(20)).await.0, 201);
    assert_eq!(
        client.run("job-traces/ours.csv/comparison", json!({ "with": "ours.csv" })).await["state"],
        "done"
    );
    running.stop().await;
}
