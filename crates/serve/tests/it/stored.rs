//! Job traces and workflow runs: sent, looked at, used, fetched again and deleted.

use reqwest::Method;
use serde_json::{Value, json};
use serve::Running;

use crate::{eventually, settings, started};

/// A client of a service.
pub struct Client {
    base: String,
    client: reqwest::Client,
    /// Not needed if the service has no tokens.
    token: Option<String>,
}

impl Client {
    pub fn new(running: &Running) -> Self {
        net::install_tls_provider();
        Self {
            base: format!("http://{}/api/v1", running.address),
            client: reqwest::Client::new(),
            token: None,
        }
    }

    pub fn with_token(running: &Running, token: String) -> Self {
        Self { token: Some(token), ..Self::new(running) }
    }

    pub async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let mut request = self.client.request(method, format!("{}/{path}", self.base)).body(body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.header("content-type", "application/json").send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
    }

    pub async fn put(&self, path: &str, body: impl Into<Vec<u8>>) -> (u16, Value) {
        let (status, body) = self.send(Method::PUT, path, body.into()).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, Vec::new()).await;
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Starts an operation and waits for its end.
    pub async fn run(&self, path: &str, body: Value) -> Value {
        self.follow(Method::POST, path, body).await
    }

    /// Sends a request that starts an operation, and waits for its end.
    pub async fn follow(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, body) = self.send(method, path, body.to_string().into_bytes()).await;
        assert_eq!(status, 202, "{path}: {}", String::from_utf8_lossy(&body));
        let number = serde_json::from_slice::<Value>(&body).unwrap()["number"].clone();
        let mut found = Value::Null;
        eventually("the end of the operation", async || {
            found = self.get(&format!("operations/{number}")).await;
            found["state"] != "running"
        })
        .await;
        found
    }

    pub async fn names(&self, path: &str) -> Vec<String> {
        let items = self.get(path).await["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Jobs of three users who come in turn.
pub fn trace(n_jobs: u64) -> String {
    let mut text = String::from("submit,run_time,cores,user\n");
    for job in 0..n_jobs {
        let submit = 1_700_000_000 + job * 60 + job % 7 * 5;
        let run_time = 60 + (job * 37) % 900;
        text += &format!("{submit},{run_time},{},u{}\n", 1 << (job % 5), job / 10 % 3);
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synthetic_trace_is_made_compared_and_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    let text = trace(600);
    let (status, added) = client.put("job-traces/ours.csv", text.clone()).await;
    assert_eq!((status, &added["jobs"]), (201, &json!(600)), "{added}");
    let detail = client.get("job-traces/ours.csv").await;
    assert_eq!(detail["curves"]["day"]["real"].as_array().unwrap().len(), 24);
    assert!(detail["columns"].as_array().unwrap().iter().any(|column| column["role"] == "run-time"));
    let made = client.run("job-traces/ours.csv/synthesis", json!({ "seed": 3, "jobs": 300 })).await;
    assert_eq!(made["state"], "done", "{made}");
    assert_eq!((&made["result"]["n_real"], &made["result"]["n_synthetic"]), (&json!(600), &json!(300)));
    assert_eq!(client.names("job-traces").await, ["ours-sessions-1.csv", "ours.csv"]);
    for (request, reason) in [
        (json!({ "jobs": 3_000_000 }), "jobs must be at most 2000000"),
        (json!({ "jobs": 0 }), "jobs must be at least 1"),
        (json!({ "load": 1e9 }), "load must be between 0.01 and 100"),
    ] {
        let body = request.to_string().into_bytes();
        let (status, answer) = client.send(Method::POST, "job-traces/ours.csv/synthesis", body).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((status, &answer["error"]["message"]), (400, &json!(reason)));
    }
    let again = client.run("job-traces/ours.csv/comparison", json!({ "with": "ours-sessions-1.csv" })).await;
    assert_eq!(again["result"], made["result"], "both compare in the same way");
    let (_, fetched) = client.send(Method::GET, "job-traces/ours.csv/file", Vec::new()).await;
    assert_eq!(fetched, text.into_bytes());
    running.stop().await;

    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    assert_eq!(client.send(Method::DELETE, "job-traces/ours.csv", Vec::new()).await.0, 204);
    assert_eq!(client.names("job-traces").await, ["ours-sessions-1.csv"], "also after a restart");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synthesis_that_fails_leaves_nothing_and_long_names_are_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    let long = "a".repeat(96);
    assert_eq!(client.put(&format!("job-traces/{long}.csv"), trace(600)).await.0, 201);
    let synthesis = format!("job-traces/{long}.csv/synthesis");
    // One job has no intervals, so it cannot be compared.
    let failed = client.run(&synthesis, json!({ "jobs": 1 })).await;
    assert_eq!(failed["state"], "failed", "{failed}");
    assert_eq!(client.names("job-traces").await, [format!("{long}.csv")]);
    let made = client.run(&synthesis, json!({ "jobs": 300 })).await;
    let name = made["result"]["synthetic"].as_str().unwrap();
    assert!(name.len() == 100 && name.ends_with("-sessions-1.csv"), "{made}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_files_have_a_limit_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = settings(folder.path());
    small.limits.stored_bytes = 15_000;
    let running = started(small, None).await;
    let client = Client::new(&running);
    assert_eq!(client.put("job-traces/a.csv", trace(300)).await.0, 201);
    let (status, answer) = client.put("job-traces/b.csv", trace(600)).await;
    assert_eq!((status, &answer["error"]["code"]), (507, &json!("full")), "{answer}");
    assert_eq!(client.send(Method::DELETE, "job-traces/a.csv", Vec::new()).await.0, 204);
    assert_eq!(client.put("job-traces/b.csv", trace(600)).await.0, 201);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = settings(folder.path());
    small.limits.upload_bytes = 100_000;
    let running = started(small, None).await;
    let client = Client::new(&running);
    assert_eq!(client.put("job-traces/ours.csv", trace(100)).await.0, 201);
    for (path, body, expected) in [
        ("job-traces/ours.csv", trace(50), 409),
        ("job-traces/.hidden", trace(50), 400),
        ("job-traces/%2e%2e%2fmetadata.db", trace(50), 400),
        ("job-traces/large.csv", "x".repeat(100_001), 413),
        ("job-traces/text.csv", "hello".into(), 422),
        ("job-traces/empty.csv", String::new(), 422),
        ("job-traces/odd.parquet", "PAR1".into(), 422),
        ("workflows/odd.tar.gz", "x".into(), 422),
        ("workflows/missing/label", json!({ "label": "cpu" }).to_string(), 404),
        ("workflows/missing/label", json!({ "label": "<b>" }).to_string(), 400),
    ] {
        let (status, answer) = client.put(path, body).await;
        assert_eq!(status, expected, "{path}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        let data = folder.path().to_string_lossy();
        assert!(!message.contains('\n') && !message.contains(&*data), "{path}: {message}");
    }
    // The next request needs another connection, and the client is told.
    let large = client.client.put(format!("{}/job-traces/large.csv", client.base)).body("x".repeat(100_001));
    let refused = large.send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["connection"].as_bytes()), (413, &b"close"[..]));
    assert_eq!(client.names("job-traces").await, ["ours.csv"]);
    assert!(client.names("workflows").await.is_empty());
    let failed = client.run("workflow-classifier", json!({})).await;
    assert_eq!(failed["state"], "failed", "{failed}");
    running.stop().await;
}

/// A run of twelve tasks in the format of Nextflow. A task takes `seconds`.
pub fn nextflow(seconds: u32) -> String {
    let mut text = String::from("task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\n");
    for task in 0..12 {
        let (minute, own) = (task / 4 * 2, seconds + task % 3);
        let name = ["ALIGN", "SORT", "CALL"][task as usize / 4];
        text += &format!(
            "{task}\t0a/{task}\t{task}\t{name} (s{task})\tCOMPLETED\t0\t2026-11-01 10:{minute:02}:00.000\t{}s\t{own}s\n",
            own + 2
        );
    }
    text
}

/// Sends a run with a label.
pub async fn add(client: &Client, name: &str, seconds: u32, label: &str) {
    let (status, added) = client.put(&format!("workflows/{name}"), nextflow(seconds)).await;
    assert_eq!((status, &added["attempts"]), (201, &json!(12)), "{added}");
    let body = json!({ "label": label, "comment": "looked at it" }).to_string();
    assert_eq!(client.put(&format!("workflows/{name}/label"), body).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_runs_train_a_classifier() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    let runs: Vec<(String, u32, &str)> = (0..6)
        .map(|run| (format!("run-{run}.txt"), 20 + run, "normal"))
        .chain((6..12).map(|run| (format!("run-{run}.txt"), 60 + run, "cpu")))
        .collect();
    for (name, seconds, label) in &runs {
        add(&client, name, *seconds, label).await;
    }
    let before = client.get("workflows/run-0.txt").await;
    assert!(before["not_judged"].as_str().unwrap().starts_with("there is no classifier yet"), "{before}");
    assert_eq!(
        (&before["label"], &before["labels"][0]["comment"]),
        (&json!("normal"), &json!("looked at it"))
    );
    let trained = client.run("workflow-classifier", json!({})).await;
    assert_eq!((&trained["state"], &trained["result"]["n_runs"]), (&json!("done"), &json!(12)), "{trained}");
    let state = client.get("workflow-classifier").await;
    assert_eq!(state["labels"], json!({ "cpu": 6, "normal": 6 }));
    running.stop().await;

    let running = started(settings(folder.path()), None).await;
    let client = Client::new(&running);
    for (name, _, label) in [&runs[0], &runs[11]] {
        let judged = client.get(&format!("workflows/{name}")).await;
        assert_eq!(judged["verdict"]["class"], *label, "{judged}");
    }
    let chart = client.get("workflows/run-0.txt/chart").await;
    assert_eq!(chart["task"].as_array().unwrap().len(), 12);
    assert!(chart["ends"].as_array().unwrap().iter().all(|ends| ends.as_array().unwrap().len() == 12));
    let compared = client.get("workflows/run-0.txt/comparison?with=run-11.txt").await;
    assert!(compared["tasks"][0]["after"].as_f64() > compared["tasks"][0]["before"].as_f64());
    assert_eq!(client.send(Method::DELETE, "workflows/run-0.txt/label", Vec::new()).await.0, 200);
    assert_eq!(client.get("workflows/run-0.txt").await["label"], Value::Null);
    running.stop().await;
}
