//! Calls to the REST API of MLflow 3.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use url::Url;
use workload::Timestamp;

use crate::peer::{self, ResponseError, SecretError, read_secret};
use crate::settings::{MlflowSettings, SettingsError};

const API: &str = "/api/2.0/mlflow";
const ARTIFACTS: &str = "/api/2.0/mlflow-artifacts/artifacts/";
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest response that is read.
const MAX_RESPONSE: usize = 8 << 20;
/// The strictest servers take this many metrics and parameters at a time.
const MAX_METRICS: usize = 200;
const MAX_PARAMS: usize = 100;
/// The longest values of parameters and tags.
const MAX_TEXT: usize = 5_000;
/// The longest digest of a dataset.
const MAX_DIGEST: usize = 36;

/// Why MLflow was not told.
#[derive(Debug, thiserror::Error)]
pub enum MlflowError {
    #[error("{0}")]
    Request(String),
    #[error(transparent)]
    Unread(#[from] ResponseError),
    #[error("{call}: {status}: {message}")]
    Refused { call: String, status: StatusCode, code: String, message: String },
    #[error("{call}: the response has no {field}")]
    Response { call: String, field: &'static str },
    #[error(
        "artifacts are kept at {0}, which only a direct store can write to; start the server with --serve-artifacts"
    )]
    Artifacts(String),
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("it has no model {0}")]
    Unknown(String),
    #[error("{0}")]
    Lock(String),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Registry(#[from] lifecycle::RegistryError),
}

impl From<lifecycle::StoreError> for MlflowError {
    fn from(error: lifecycle::StoreError) -> Self {
        Self::Registry(error.into())
    }
}

impl MlflowError {
    fn has_code(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }

    /// Whether the server will never accept this.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                let may_change = [
                    StatusCode::UNAUTHORIZED,
                    StatusCode::FORBIDDEN,
                    StatusCode::REQUEST_TIMEOUT,
                    StatusCode::TOO_MANY_REQUESTS,
                ];
                status.is_client_error() && !may_change.contains(status)
            }
            Self::File { .. } | Self::Response { .. } | Self::Unknown(_) => true,
            Self::Request(_)
            | Self::Unread(_)
            | Self::Artifacts(_)
            | Self::Lock(_)
            | Self::Secret(_)
            | Self::Registry(_) => false,
        }
    }
}

/// A value that is logged for a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub key: String,
    pub value: f64,
    pub step: usize,
}

impl Metric {
    pub fn new(key: impl Into<String>, value: f64) -> Self {
        Self { key: key.into(), value, step: 0 }
    }
}

/// The data of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    pub name: String,
    pub digest: String,
    pub source: String,
}

impl Dataset {
    /// A digest as MLflow accepts it.
    pub fn new(name: String, digest: &str, source: String) -> Self {
        Self { name, digest: digest.chars().take(MAX_DIGEST).collect(), source }
    }
}

/// A run before it exists.
#[derive(Debug, Clone)]
pub struct NewRun<'a> {
    /// Identifies the run: the same key is the same run.
    pub key: &'a str,
    pub name: &'a str,
    pub start: Timestamp,
    pub parent: Option<&'a str>,
}

/// A model that MLflow has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedModel {
    pub id: String,
    pub artifact_uri: String,
    pub is_ready: bool,
}

/// A version of a registered model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredVersion {
    pub number: String,
    /// Our name for it.
    pub version: Option<String>,
}

/// The tag with our key of a run, and with our name of a model.
pub const KEY_TAG: &str = "tracewise.key";
pub const VERSION_TAG: &str = "tracewise.version";

/// A client of one server.
pub struct Client {
    http: reqwest::Client,
    url: Url,
    settings: MlflowSettings,
}

/// The address of the server.
pub fn address(settings: &MlflowSettings) -> Result<Option<Url>, SettingsError> {
    if settings.url.is_empty() {
        return Ok(None);
    }
    peer::address(&settings.url, settings.token_file.as_ref()).map(Some)
}

impl Client {
    pub fn new(url: Url, settings: MlflowSettings) -> Result<Self, MlflowError> {
        let http = peer::client(TIMEOUT).map_err(|error| MlflowError::Request(error.to_string()))?;
        Ok(Self { http, url, settings })
    }

    pub const fn settings(&self) -> &MlflowSettings {
        &self.settings
    }

    /// The version of the server.
    pub async fn server_version(&self) -> Result<String, MlflowError> {
        let request = self.http.get(peer::below(self.url.clone(), "/version"));
        let bytes = self.send("version", request).await?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The experiment, which is created if it does not exist.
    pub async fn experiment(&self) -> Result<String, MlflowError> {
        let name = &self.settings.experiment;
        let query = [("experiment_name", name.as_str())];
        let known = match self.get("experiments/get-by-name", &query).await {
            Err(error) if error.has_code("RESOURCE_DOES_NOT_EXIST") => None,
            known => Some(known?),
        };
        let id = match known {
            Some(known) => text(&known["experiment"]["experiment_id"]),
            None => text(&self.post("experiments/create", &json!({ "name": name })).await?["experiment_id"]),
        };
        id.ok_or_else(|| missing("experiments/get-by-name", "experiment_id"))
    }

    /// The run with a key, which is created if it does not exist.
    pub async fn run(&self, experiment: &str, new: &NewRun<'_>) -> Result<String, MlflowError> {
        if let Some(run) = self.find_run(experiment, KEY_TAG, new.key).await? {
            return Ok(run);
        }
        let mut tags = vec![tag(KEY_TAG, new.key), tag("mlflow.source.name", "tracewise")];
        tags.extend(new.parent.map(|parent| tag("mlflow.parentRunId", parent)));
        let body = json!({
            "experiment_id": experiment, "run_name": new.name, "start_time": new.start.0, "tags": tags,
        });
        let created = self.post("runs/create", &body).await?;
        text(&created["run"]["info"]["run_id"]).ok_or_else(|| missing("runs/create", "run_id"))
    }

    /// The run that has a tag.
    pub async fn find_run(
        &self,
        experiment: &str,
        tag: &str,
        value: &str,
    ) -> Result<Option<String>, MlflowError> {
        let filter = format!("tags.`{tag}` = '{value}'");
        let body = json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 });
        let found = self.post("runs/search", &body).await?;
        Ok(text(&found["runs"][0]["info"]["run_id"]))
    }

    /// Logs metrics, parameters and tags. Done again with the same time, it changes nothing.
    pub async fn log(
        &self,
        run: &str,
        time: Timestamp,
        metrics: &[Metric],
        params: &[(&str, String)],
        tags: &[(&str, String)],
    ) -> Result<(), MlflowError> {
        self.log_metrics(run, time, metrics, &json!({})).await?;
        let pair = |(key, value): &(&str, String)| tag(key, value);
        for chunk in params.chunks(MAX_PARAMS) {
            let params: Vec<Value> = chunk.iter().map(pair).collect();
            self.post("runs/log-batch", &json!({ "run_id": run, "params": params })).await?;
        }
        for chunk in tags.chunks(MAX_PARAMS) {
            let tags: Vec<Value> = chunk.iter().map(pair).collect();
            self.post("runs/log-batch", &json!({ "run_id": run, "tags": tags })).await?;
        }
        Ok(())
    }

    /// Logs metrics, each with further fields.
    pub async fn log_metrics(
        &self,
        run: &str,
        time: Timestamp,
        metrics: &[Metric],
        fields: &Value,
    ) -> Result<(), MlflowError> {
        let finite: Vec<&Metric> = metrics.iter().filter(|metric| metric.value.is_finite()).collect();
        for chunk in finite.chunks(MAX_METRICS) {
            let metric = |metric: &&Metric| {
                let mut entry = fields.clone();
                entry["key"] = json!(metric.key);
                entry["value"] = json!(metric.value);
                entry["timestamp"] = json!(time.0);
                entry["step"] = json!(metric.step);
                entry
            };
            let metrics: Vec<Value> = chunk.iter().map(metric).collect();
            self.post("runs/log-batch", &json!({ "run_id": run, "metrics": metrics })).await?;
        }
        Ok(())
    }

    /// Says which data a run used.
    pub async fn log_dataset(&self, run: &str, dataset: &Dataset) -> Result<(), MlflowError> {
        let input = json!({
            "tags": [tag("mlflow.data.context", "training")],
            "dataset": {
                "name": dataset.name, "digest": dataset.digest, "source_type": "local",
                "source": json!({ "uri": dataset.source }).to_string(),
            },
        });
        self.post("runs/log-inputs", &json!({ "run_id": run, "datasets": [input] })).await?;
        Ok(())
    }

    /// Ends a run.
    pub async fn end_run(&self, run: &str, end: Timestamp, is_failed: bool) -> Result<(), MlflowError> {
        let status = if is_failed { "FAILED" } else { "FINISHED" };
        let body = json!({ "run_id": run, "status": status, "end_time": end.0 });
        self.post("runs/update", &body).await?;
        Ok(())
    }

    /// The logged model with our name, which is created if it does not exist.
    pub async fn logged_model(
        &self,
        experiment: &str,
        run: &str,
        version: &str,
        params: &[(&str, String)],
    ) -> Result<LoggedModel, MlflowError> {
        let filter = format!("tags.`{VERSION_TAG}` = '{version}'");
        let body = json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 });
        let found = self.post("logged-models/search", &body).await?;
        if let Some(model) = logged_model(&found["models"][0]) {
            return Ok(model);
        }
        let params: Vec<Value> = params.iter().map(|(key, value)| tag(key, value)).collect();
        let body = json!({
            "experiment_id": experiment, "name": version, "source_run_id": run, "model_type": "detector",
            "params": params, "tags": [tag(VERSION_TAG, version)],
        });
        let created = self.post("logged-models", &body).await?;
        logged_model(&created["model"]).ok_or_else(|| missing("logged-models", "model_id"))
    }

    /// Uploads a file of a model.
    pub async fn upload(
        &self,
        model: &LoggedModel,
        name: &str,
        content: impl Into<reqwest::Body>,
    ) -> Result<(), MlflowError> {
        let path = model.artifact_uri.strip_prefix("mlflow-artifacts:");
        let path = path.ok_or_else(|| MlflowError::Artifacts(model.artifact_uri.clone()))?;
        // The address may name the server.
        let path = match path.strip_prefix("//") {
            Some(rest) => rest.split_once('/').map_or("", |(_, path)| path),
            None => path.trim_start_matches('/'),
        };
        let url = peer::below(self.url.clone(), &format!("{ARTIFACTS}{path}/{name}"));
        self.send("artifacts", self.http.put(url).body(content)).await?;
        Ok(())
    }

    /// Says that a model has all of its files, and which run made it.
    pub async fn finish_model(&self, model: &LoggedModel, run: &str) -> Result<(), MlflowError> {
        let path = format!("logged-models/{}", model.id);
        let body = json!({ "model_id": model.id, "status": "LOGGED_MODEL_READY" });
        self.call(Method::PATCH, &path, |request| request.json(&body)).await?;
        let outputs = json!({ "run_id": run, "models": [{ "model_id": model.id, "step": 0 }] });
        self.post("runs/outputs", &outputs).await?;
        Ok(())
    }

    /// The registered version with our name.
    pub async fn find_version(&self, version: &str) -> Result<Option<RegisteredVersion>, MlflowError> {
        let name = &self.settings.model;
        let filter = format!("name = '{name}' AND tags.`{VERSION_TAG}` = '{version}'");
        let query = [("filter", filter.as_str()), ("max_results", "1")];
        let found = self.get("model-versions/search", &query).await?;
        Ok(registered(&found["model_versions"][0]))
    }

    /// Registers a version of the model.
    pub async fn register(
        &self,
        version: &str,
        model: &LoggedModel,
        run: &str,
        description: &str,
    ) -> Result<(), MlflowError> {
        let name = &self.settings.model;
        let created = self.post("registered-models/create", &json!({ "name": name })).await;
        match created {
            Err(error) if !error.has_code("RESOURCE_ALREADY_EXISTS") => return Err(error),
            _ => {}
        }
        let body = json!({
            "name": name, "source": model.artifact_uri, "run_id": run, "model_id": model.id,
            "description": description, "tags": [tag(VERSION_TAG, version)],
        });
        self.post("model-versions/create", &body).await?;
        Ok(())
    }

    /// Adds tags to a registered version.
    pub async fn tag_version(&self, number: &str, tags: &[(&str, String)]) -> Result<(), MlflowError> {
        for (key, value) in tags {
            let mut body = tag(key, value);
            body["name"] = json!(self.settings.model);
            body["version"] = json!(number);
            self.post("model-versions/set-tag", &body).await?;
        }
        Ok(())
    }

    pub async fn set_alias(&self, alias: &str, number: &str) -> Result<(), MlflowError> {
        let body = json!({ "name": self.settings.model, "alias": alias, "version": number });
        self.post("registered-models/alias", &body).await?;
        Ok(())
    }

    /// The version that has an alias.
    pub async fn alias(&self, alias: &str) -> Result<Option<RegisteredVersion>, MlflowError> {
        let query = [("name", self.settings.model.as_str()), ("alias", alias)];
        match self.get("registered-models/alias", &query).await {
            Ok(found) => Ok(registered(&found["model_version"])),
            Err(error) if error.has_code("RESOURCE_DOES_NOT_EXIST") => Ok(None),
            // MLflow 3 answers this for an alias that does not exist.
            Err(error) if error.has_code("INVALID_PARAMETER_VALUE") => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, MlflowError> {
        self.call(Method::POST, path, |request| request.json(body)).await
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, MlflowError> {
        self.call(Method::GET, path, |request| request.query(query)).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        complete: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Value, MlflowError> {
        let url = peer::below(self.url.clone(), &format!("{API}/{path}"));
        let bytes = self.send(path, complete(self.http.request(method, url))).await?;
        let wrong = |_| MlflowError::Response { call: path.to_owned(), field: "JSON" };
        serde_json::from_slice(&bytes).map_err(wrong)
    }

    async fn send(&self, call: &str, mut request: RequestBuilder) -> Result<Vec<u8>, MlflowError> {
        if let Some(path) = &self.settings.token_file {
            let secret = read_secret(path)?;
            request = match self.settings.username.as_str() {
                "" => request.bearer_auth(secret),
                user => request.basic_auth(user, Some(secret)),
            };
        }
        let cause = |error: reqwest::Error| MlflowError::Request(net::root_cause(&error).to_string());
        let response = request.send().await.map_err(cause)?;
        let status = response.status();
        let bytes = peer::bounded(response, MAX_RESPONSE).await?;
        if status.is_success() {
            return Ok(bytes);
        }
        let error: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let said = String::from_utf8_lossy(&bytes);
        let message = text(&error["message"]).unwrap_or_else(|| said.chars().take(200).collect());
        let code = text(&error["error_code"]).unwrap_or_default();
        Err(MlflowError::Refused { call: call.to_owned(), status, code, message })
    }
}

fn missing(call: &str, field: &'static str) -> MlflowError {
    MlflowError::Response { call: call.to_owned(), field }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn tag(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": value.chars().take(MAX_TEXT).collect::<String>() })
}

fn logged_model(value: &Value) -> Option<LoggedModel> {
    let info = &value["info"];
    Some(LoggedModel {
        id: text(&info["model_id"])?,
        artifact_uri: text(&info["artifact_uri"])?,
        is_ready: info["status"] == "LOGGED_MODEL_READY",
    })
}

fn registered(value: &Value) -> Option<RegisteredVersion> {
    let tags = value["tags"].as_array().into_iter().flatten();
    let ours = tags.filter(|tag| tag["key"] == VERSION_TAG).find_map(|tag| text(&tag["value"]));
    Some(RegisteredVersion { number: text(&value["version"])?, version: ours })
}
