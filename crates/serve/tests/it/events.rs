//! From readings to events: a simulated cluster is scored live, and its events survive a restart.

use std::time::{Duration, SystemTime};

use archive::{Archive, Settings};
use campaign::simulate::schedule::{ClusterSettings, Variation};
use campaign::simulate::{CampaignCount, into_archive, recorded_model};
use detect::DetectorKind;
use lifecycle::Alias;
use serve::{Length, Simulation};
use testbed::http;
use workload::{Control, Millis, Set, Stop, Timestamp};

use crate::{eventually, json, settings, started};

fn cluster(start: Timestamp, first_job: u64) -> ClusterSettings {
    let counts =
        [CampaignCount { set: Set::Train, count: 2 }, CampaignCount { set: Set::Validation, count: 1 }];
    ClusterSettings {
        n_nodes: 2,
        threads_per_node: 16,
        campaign_seconds: 3_600,
        campaigns: ClusterSettings::campaigns(&counts),
        seed: 3,
        load: 0.85,
        start,
        origin: start,
        first_job,
        is_busy_at_start: false,
        variation: Variation::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_cluster_is_scored_and_its_events_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    settings.scoring.detector = DetectorKind::Pca;
    settings.scoring.first_training.0 = Duration::from_secs(3_600);
    settings.learning.shadow = Some(Length(Duration::from_secs(600)));
    let archive = settings.data.join("archive").to_string_lossy().into_owned();
    std::fs::create_dir_all(&settings.data).unwrap();
    let live = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::HOUR;
    tokio::task::spawn_blocking(move || {
        let archive = Archive::open_or_create(&archive, &Settings::default()).unwrap();
        let history = cluster(live - Millis(3 * Millis::HOUR.0 + 1_000), 1);
        let stop = Stop::default();
        into_archive(&history, &recorded_model().unwrap(), &archive, &Control::new(&stop, &|_, _| {}))
            .unwrap();
    })
    .await
    .unwrap();
    let simulation = |start: Timestamp| Simulation { settings: cluster(start, 100_000), speed: 40.0 };
    let running = started(settings.clone(), Some(simulation(live))).await;
    check(&running).await;
    check_verdicts(&running).await;
    check_challenger(&running).await;
    let before = json(&running, "/api/v1/events").await;
    running.stop().await;

    // Nothing is reported twice, and nothing is lost.
    let running = started(settings, None).await;
    eventually("scores from the archive", async || json(&running, "/api/v1/cluster").await["nodes"] == 2)
        .await;
    let after = json(&running, "/api/v1/events").await;
    let ids = |events: &serde_json::Value| -> Vec<String> {
        events["items"].as_array().unwrap().iter().map(|event| event["id"].to_string()).collect()
    };
    assert_eq!(ids(&before), ids(&after));
    running.stop().await;
}

/// Waits for an event, and asks for everything that the API has.
async fn check(running: &serve::Running) {
    eventually("an event", async || json(running, "/api/v1/events").await["items"][0]["id"].is_string())
        .await;

    let events = json(running, "/api/v1/events").await;
    let event = &events["items"][0];
    let id = event["id"].as_str().unwrap().to_owned();
    let detail = json(running, &format!("/api/v1/events/{id}")).await;
    assert_eq!(detail["event"]["id"], id.as_str());
    check_structure(&detail["event"]);
    let state = json(running, "/api/v1/cluster").await;
    assert_eq!((&state["nodes"], state["model"].is_string()), (&2.into(), true), "{state}");
    let node = json(running, "/api/v1/nodes/n001").await;
    // A thread whose job has just begun or ended has no window.
    assert!(!node["threads"].as_array().unwrap().is_empty(), "{node}");
    let port = running.address.port();
    let plane = tokio::task::spawn_blocking(move || http::get(port, "/api/v1/cluster?format=plane", &[]))
        .await
        .unwrap();
    assert!(plane.headers.contains("tracewise-rows: n001=") && !plane.body.is_empty(), "{}", plane.headers);
    let layout = json(running, "/api/v1/cluster/layout").await;
    let row = &layout["nodes"][0];
    let count = |runs: &serde_json::Value| -> u64 {
        runs.as_array().unwrap().iter().map(|run| run[1].as_u64().unwrap()).sum()
    };
    assert_eq!((&row["node"], Some(count(&row["cpus"]))), (&"n001".into(), row["threads"].as_u64()), "{row}");
    assert!(count(&row["runs"]) <= count(&row["cpus"]), "{row}");
    check_operations(running).await;
    check_traces(running).await;
    let page = tokio::task::spawn_blocking(move || http::get(port, "/metrics", &[])).await.unwrap().text();
    assert!(
        page.contains("anomaly_score{") && page.contains("tracewise_serve_scored_windows_total"),
        "{page}"
    );
    if let Some(problems) = testbed::promtool_check(&page) {
        assert_eq!(problems, "", "{page}");
    }
}

/// A backtest of the model finds what it reported live, and its windows have places in two dimensions.
async fn check_operations(running: &serve::Running) {
    let port = running.address.port();
    let run = async |path: &str, body: serde_json::Value| -> serde_json::Value {
        let url = format!("http://127.0.0.1:{port}/api/v1/{path}");
        let response = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 202);
        let started: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        let place = format!("/api/v1/operations/{}", started["number"]);
        eventually("the end of an operation", async || json(running, &place).await["state"] != "running")
            .await;
        let ended = json(running, &place).await;
        assert_eq!((&ended["state"], &ended["progress"]), (&"done".into(), &1.0.into()), "{ended}");
        ended["result"].clone()
    };
    let time = json(running, "/api/v1/cluster").await["time"].as_f64().unwrap();
    let tested = run("backtests", serde_json::json!({ "from": time - 3_600.0 })).await;
    let recorded = json(running, "/api/v1/events").await;
    let first = recorded["items"].as_array().unwrap().last().unwrap();
    let is_first = |event: &serde_json::Value| event["recorded"] == first["id"];
    assert!(tested["events"].as_array().unwrap().iter().any(is_first), "{tested} {first}");
    let points = run("embeddings", serde_json::json!({ "projection": "pca", "minutes": 20 })).await;
    let length = |name: &str| points[name].as_array().unwrap().len();
    assert!(length("x") > 100 && length("x") == length("score") && length("x") == length("is_training"));
    assert!(points["is_training"].as_array().unwrap().contains(&false.into()));
    let list = json(running, "/api/v1/operations").await;
    assert!(list["items"][0]["result"].is_null() && list["items"].as_array().unwrap().len() == 2, "{list}");
}

/// Gives a verdict about an event, undoes it, and excludes a time.
async fn check_verdicts(running: &serve::Running) {
    let port = running.address.port();
    let send = async |method: &'static str, path: String, body: serde_json::Value| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = reqwest::Client::new().request(method, format!("http://127.0.0.1:{port}{path}"));
        let response = request.json(&body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let events = json(running, "/api/v1/events").await;
    let of_job = |event: &&serde_json::Value| event["subject"] == "job";
    let event = events["items"].as_array().unwrap().iter().find(of_job).unwrap();
    let path = format!("/api/v1/events/{}", event["id"].as_str().unwrap());
    assert_eq!(json(running, &path).await["standing"], "unvetted");
    let preview = json(running, &format!("{path}/preview?scope=node")).await;
    assert!(preview["hidden"].is_array(), "{preview}");
    let normal = serde_json::json!({ "answer": "normal", "comment": "a test", "days": 1 });
    let (status, body) = send("POST", format!("{path}/verdicts"), normal).await;
    assert_eq!(status, 200, "{body}");
    let verdict: serde_json::Value = serde_json::from_str(&body).unwrap();
    let detail = json(running, &path).await;
    assert_eq!((&detail["standing"], &detail["event"]["hidden_by"]), (&"normal".into(), &verdict["number"]));
    let (status, _) = send("DELETE", format!("/api/v1/verdicts/{}", verdict["number"]), ().into()).await;
    assert_eq!(status, 204);
    let detail = json(running, &path).await;
    assert_eq!((&detail["standing"], detail["event"]["hidden_by"].is_null()), (&"unvetted".into(), true));
    let anomaly = serde_json::json!({ "answer": "anomaly", "kind": "bad-io" });
    assert_eq!(send("POST", format!("{path}/verdicts"), anomaly).await.0, 200);
    assert_eq!(json(running, &path).await["verdicts"][1]["kind"], "bad-io");
    for (wrong, status) in [
        (serde_json::json!({ "answer": "maybe" }), 422),
        (serde_json::json!({ "answer": "normal", "kind": "bad-io" }), 400),
        (serde_json::json!({ "answer": "normal", "days": 1e9 }), 400),
    ] {
        let (found, body) = send("POST", format!("{path}/verdicts"), wrong).await;
        assert_eq!(found, status, "{body}");
    }
    let unsure = serde_json::json!({ "answer": "unsure" });
    assert_eq!(send("POST", "/api/v1/events/nothing/verdicts".into(), unsure).await.0, 404);

    let exclusion = serde_json::json!({ "from": 1000, "to": 2000, "reason": "maintenance" });
    assert_eq!(send("POST", "/api/v1/exclusions".into(), exclusion).await.0, 200);
    let exclusions = json(running, "/api/v1/exclusions").await;
    assert_eq!(exclusions["items"][0]["reason"], "maintenance");
    let number = &exclusions["items"][0]["number"];
    assert_eq!(send("DELETE", format!("/api/v1/exclusions/{number}"), ().into()).await.0, 204);
    let backwards = serde_json::json!({ "from": 2, "to": 1, "reason": "" });
    assert_eq!(send("POST", "/api/v1/exclusions".into(), backwards).await.0, 400);
    assert_eq!(json(running, "/api/v1/competitions").await["items"], serde_json::json!([]));
}

/// A copy of the champion is challenger, reports the same in shadow mode, and replaces the champion after ten minutes.
async fn check_challenger(running: &serve::Running) {
    let registry = &running.service.registry;
    let now = Timestamp::from(SystemTime::now());
    let champion = registry.holder(Alias::Champion).await.unwrap().unwrap().version;
    registry.import(&registry.path(&champion), "twin", now).await.unwrap();
    registry.promote(Alias::Challenger, "twin", "ann", "a test", now).await.unwrap();
    let twin = async || -> serde_json::Value {
        let models = json(running, "/api/v1/models").await;
        let is_twin = |model: &&serde_json::Value| model["version"] == "twin";
        models["items"].as_array().unwrap().iter().find(is_twin).unwrap().clone()
    };
    assert_eq!(
        (&twin().await["aliases"], twin().await["in_use"].as_bool()),
        (&serde_json::json!(["challenger"]), Some(false))
    );
    eventually("time in shadow mode", async || twin().await["shadow"]["hours"].as_f64() > Some(0.01)).await;
    eventually("the challenger is champion", async || twin().await["in_use"] == true).await;
    let promotion = registry.holder(Alias::Champion).await.unwrap().unwrap();
    assert!(promotion.reason.contains("hours in shadow mode"), "{}", promotion.reason);
    let shadow = twin().await["shadow"].clone();
    assert!(
        shadow["events"].as_u64() <= shadow["champion_events"].as_u64().map(|count| count + 1),
        "{shadow}"
    );
}

/// Observed and expected traces come from the archive; a client that has the answer gets it once.
async fn check_traces(running: &serve::Running) {
    let time = json(running, "/api/v1/cluster").await["time"].as_f64().unwrap();
    let path = format!("/api/v1/nodes/n001/threads?from={}&to={}&points=50", time - 1_000.0, time - 200.0);
    let traces = json(running, &path).await;
    assert_eq!(traces["channels"], serde_json::json!(["user", "system", "iowait", "other"]));
    let n_moments = |thread: &&serde_json::Value| thread["time"].as_array().unwrap().len();
    let thread = traces["threads"].as_array().unwrap().iter().max_by_key(n_moments).unwrap();
    let length = |name: &str| thread[name].as_array().unwrap().len();
    assert!((20..=50).contains(&length("time")), "{thread}");
    assert_eq!(
        (length("job"), length("error"), length("score")),
        (length("time"), length("time"), length("time"))
    );
    let rates =
        |name: &str| -> f64 { (0..4).map(|channel| thread[name][channel][0].as_f64().unwrap()).sum() };
    assert!((rates("observed") - 1.0).abs() < 1e-3 && (rates("expected") - 1.0).abs() < 1e-3, "{thread}");
    let one = json(running, &format!("{path}&cpu={}", thread["cpu"])).await;
    assert_eq!(one["threads"].as_array().unwrap().len(), 1);
    let port = running.address.port();
    let get = move |headers: Vec<(String, String)>| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            http::get(port, &path, &headers)
        })
    };
    let first = get(Vec::new()).await.unwrap();
    let tag = first.headers.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().trim();
    // Headers are in lower case here.
    let tag = tag.replace("w/", "W/");
    let again = get(vec![("if-none-match".into(), tag)]).await.unwrap();
    assert_eq!((again.status, again.body.len()), (304, 0));
}

/// What is sent is what the document describes.
fn check_structure(event: &serde_json::Value) {
    let document: serde_json::Value = serde_json::from_str(&serve::http::openapi()).unwrap();
    let described = document["components"]["schemas"]["Event"]["properties"].as_object().unwrap();
    let sent = event.as_object().unwrap();
    let mut names: [Vec<&String>; 2] = [described.keys().collect(), sent.keys().collect()];
    names.iter_mut().for_each(|names| names.sort());
    assert_eq!(names[0], names[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_model_collects_data_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    eventually("the first look at the archive", async || {
        json(&running, "/api/v1/cluster").await["state"].as_str().unwrap().contains("0 of 180 min")
    })
    .await;
    assert_eq!(json(&running, "/api/v1/events").await["items"], serde_json::json!([]));
    let begin = std::time::Instant::now();
    running.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(5));
}
