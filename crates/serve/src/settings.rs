//! The settings of the service: `[serve]` in the configuration file.

mod agents;
mod login;

pub use agents::AgentSettings;
pub use login::{LoginSettings, OidcSettings};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use agent::web::config::WebConfig;
use detect::DetectorKind;
use learn::artifact::hexadecimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::learning::LearningSettings;
use crate::peer::read_secret;

/// A duration that is written like `5s` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub Duration);

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = self.0.as_secs();
        match (self.0.subsec_millis(), seconds) {
            (0, _) if seconds > 0 && seconds.is_multiple_of(3_600) => {
                serializer.collect_str(&format_args!("{}h", seconds / 3_600))
            }
            (0, _) if seconds > 0 && seconds.is_multiple_of(60) => {
                serializer.collect_str(&format_args!("{}m", seconds / 60))
            }
            (0, _) => serializer.collect_str(&format_args!("{seconds}s")),
            _ => serializer.collect_str(&format_args!("{}ms", self.0.as_millis())),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        workload::units::parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

const fn seconds(seconds: u64) -> Length {
    Length(Duration::from_secs(seconds))
}

/// All settings of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeSettings {
    /// The address for HTTP. Other addresses than loopback need tokens.
    pub listen: SocketAddr,
    /// The directory of everything that the service keeps.
    pub data: PathBuf,
    /// The name of the cluster, in alerts and metrics.
    pub cluster: String,
    /// `postgres://user@host/database`; without it, events are kept in SQLite in the data directory.
    pub store: String,
    /// TLS, in the format of Prometheus' exporters.
    pub web_config: Option<PathBuf>,
    /// A classifier of workflow runs, trained with `tracewise workflows train`. It is used until one is trained with the runs
    /// that people have labelled.
    pub workflow_model: Option<PathBuf>,
    pub scoring: ScoringSettings,
    pub learning: LearningSettings,
    pub agents: AgentSettings,
    /// Prometheus or VictoriaMetrics servers whose samples are read.
    pub prometheus: Vec<PollSettings>,
    pub export: ExportSettings,
    pub mlflow: MlflowSettings,
    pub alerts: AlertSettings,
    pub login: LoginSettings,
    pub limits: RequestLimits,
}

/// How windows are scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScoringSettings {
    /// Time from one window to the next.
    pub stride: Length,
    /// Threads that score; 0 for all of the machine.
    pub threads: usize,
    /// The detector that is trained when there is no model yet.
    pub detector: DetectorKind,
    /// How much data the first model is trained with.
    pub first_training: Length,
}

/// A server with the query API of Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollSettings {
    /// Such as `http://prometheus:9090`.
    pub url: String,
    /// Time from one query to the next.
    #[serde(default = "poll_interval")]
    pub every: Length,
    /// Further label matchers, such as `cluster="a"`.
    #[serde(default)]
    pub matchers: String,
    /// A file with a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

const fn poll_interval() -> Length {
    seconds(10)
}

/// Who is told about events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertSettings {
    /// The address of this service, for links in alerts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_url: Option<String>,
    /// How often Alertmanager is told again about open events. It forgets them after four times as long.
    pub resend: Length,
    pub receivers: Vec<ReceiverSettings>,
}

/// One receiver of alerts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverSettings {
    pub kind: ReceiverKind,
    /// The address of the Alertmanager, or of the webhook.
    pub url: String,
    /// Whether an Alertmanager shows events that a verdict hides, with a silence for each verdict. Otherwise it is not told
    /// about them.
    #[serde(default)]
    pub silences: bool,
    /// A file with the key that requests to a webhook are signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// A file with a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

impl ReceiverSettings {
    /// Its name in the store.
    pub fn name(&self) -> String {
        format!("{} {}", self.kind.name(), self.url)
    }

    /// Its name for people: its kind, its host and a few digits that tell it from others there. The path of a webhook may
    /// be a secret.
    pub fn shown(&self) -> String {
        let host = url::Url::parse(&self.url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
        let mut digits = hexadecimal(&Sha256::digest(&self.url));
        digits.truncate(6);
        format!("{} {} {digits}", self.kind.name(), host.unwrap_or_default())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiverKind {
    Alertmanager,
    Webhook,
}

impl ReceiverKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alertmanager => "alertmanager",
            Self::Webhook => "webhook",
        }
    }
}

/// What clients may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestLimits {
    /// Connections at a time, of all clients and of one address.
    pub connections: usize,
    pub connections_per_address: usize,
    /// Requests per second of one client; as many as in ten seconds may come at once.
    pub requests_per_second: u32,
    /// Failed logins of one address; after that, one every five seconds.
    pub failed_logins: u32,
    /// How long an answer may take.
    pub request_time: Length,
    /// Bytes of a job trace or a workflow run that is sent, and of all that are stored.
    pub upload_bytes: u64,
    pub stored_bytes: u64,
}

/// What is exported on `/metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportSettings {
    /// The largest number of jobs with series of their own. Those with the highest scores are exported.
    pub max_jobs: usize,
    /// Whether every hardware thread has a series.
    pub threads: bool,
    /// The address of a server that the same series are sent to by remote write; empty for none.
    pub remote_write: String,
    /// How often they are sent.
    pub every: Length,
    /// A file with a bearer token for that server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// An MLflow server that shows competitions, models and their aliases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MlflowSettings {
    /// The address of the server, such as `https://mlflow:5000`; empty for none.
    pub url: String,
    /// The experiment with the runs of all nights.
    pub experiment: String,
    /// The registered model with all versions.
    pub model: String,
    /// Who logs in with a password; empty for a bearer token.
    pub username: String,
    /// A file with the password or the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// How often the server is told what is new, and asked whether somebody moved an alias.
    pub every: Length,
}

impl Default for MlflowSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            experiment: "tracewise".into(),
            model: "tracewise".into(),
            username: String::new(),
            token_file: None,
            every: seconds(30),
        }
    }
}

impl MlflowSettings {
    fn check(&self) -> Result<(), SettingsError> {
        crate::mlflow::address(self)?;
        // Both are part of search expressions and addresses.
        let is_plain = |name: &str| {
            let is_allowed = |character: char| character.is_alphanumeric() || "-_. ".contains(character);
            (1..=100).contains(&name.len()) && name.chars().all(is_allowed)
        };
        if is_plain(&self.experiment) && is_plain(&self.model) {
            return Ok(());
        }
        Err(SettingsError::Mlflow)
    }
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9743)),
            data: PathBuf::from("data"),
            cluster: "cluster".into(),
            store: String::new(),
            web_config: None,
            workflow_model: None,
            scoring: ScoringSettings::default(),
            learning: LearningSettings::default(),
            agents: AgentSettings::default(),
            prometheus: Vec::new(),
            export: ExportSettings::default(),
            mlflow: MlflowSettings::default(),
            alerts: AlertSettings::default(),
            login: LoginSettings::default(),
            limits: RequestLimits::default(),
        }
    }
}

impl Default for ScoringSettings {
    fn default() -> Self {
        Self {
            stride: seconds(5),
            threads: 0,
            detector: DetectorKind::Hierarchy,
            first_training: seconds(3 * 3_600),
        }
    }
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self {
            max_jobs: 1_000,
            threads: false,
            remote_write: String::new(),
            every: seconds(15),
            token_file: None,
        }
    }
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self { external_url: None, resend: seconds(60), receivers: Vec::new() }
    }
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            connections: 2_048,
            connections_per_address: 256,
            requests_per_second: 50,
            failed_logins: 10,
            request_time: seconds(30),
            upload_bytes: 256 << 20,
            stored_bytes: 20 << 30,
        }
    }
}

/// A setting that the service cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("scoring.stride must be between 1s and 10m")]
    Stride,
    #[error("agents.every must be between 100ms and 10m: agents keep an hour of readings")]
    Every,
    #[error("store must begin with postgres:// or be empty for SQLite")]
    Store,
    #[error("cluster must not be empty")]
    Cluster,
    #[error("{target:?} is not the address of an agent; write it like n001:9742 or https://n001:9742")]
    Target { target: String },
    #[error("agents.{0}")]
    Agents(&'static str),
    #[error("{url:?} cannot be used: {reason}")]
    Server { url: String, reason: &'static str },
    #[error("{name} must be between {from} and {to}")]
    Range { name: &'static str, from: &'static str, to: &'static str },
    #[error("learning.at: {0:?} is not a time of day; write it like 02:00, or leave it empty")]
    TimeOfDay(String),
    #[error("mlflow.experiment and mlflow.model are names of letters, digits, `-`, `_` and `.`")]
    Mlflow,
    #[error("login.{0}")]
    Login(&'static str),
}

impl ServeSettings {
    /// Whether the settings name servers that are sent something, or people who may log in.
    pub fn has_peers(&self) -> bool {
        !self.alerts.receivers.is_empty()
            || !self.export.remote_write.is_empty()
            || !self.prometheus.is_empty()
            || self.agents.has_credentials()
            || !self.mlflow.url.is_empty()
            || self.login.is_on()
    }

    /// Why files that the settings name cannot be used, a line for each.
    pub fn check_files(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let web_config = WebConfig::read(self.web_config.as_deref());
        problems.extend(web_config.err().map(|error| error.to_string()));
        for path in &self.agents.file_sd {
            let read = crate::input::targets::read_file(path);
            problems.extend(read.err().map(|reason| format!("{}: {reason}", path.display())));
        }
        let of_receivers =
            self.alerts.receivers.iter().flat_map(|receiver| [&receiver.secret_file, &receiver.token_file]);
        let of_servers = self.prometheus.iter().map(|server| &server.token_file);
        problems.extend(self.agents.authorities().err());
        let optional = of_receivers
            .chain(of_servers)
            .chain([&self.agents.password_file, &self.agents.token_file])
            .chain([&self.export.token_file, &self.mlflow.token_file])
            .flatten();
        for path in optional.chain(self.login.oidc.as_ref().map(|oidc| &oidc.client_secret_file)) {
            problems.extend(read_secret(path).err().map(|error| error.to_string()));
        }
        problems
    }

    /// Rejects settings that the service cannot use.
    pub fn check(&self) -> Result<(), SettingsError> {
        let within = |length: Length, shortest: u64, longest: u64| {
            (Duration::from_millis(shortest)..=Duration::from_secs(longest)).contains(&length.0)
        };
        if !within(self.scoring.stride, 1_000, 600) {
            return Err(SettingsError::Stride);
        }
        if !within(self.agents.every, 100, 600) {
            return Err(SettingsError::Every);
        }
        if !self.store.is_empty() && !self.store.starts_with("postgres") {
            return Err(SettingsError::Store);
        }
        if self.cluster.is_empty() {
            return Err(SettingsError::Cluster);
        }
        self.agents.check()?;
        for server in &self.prometheus {
            crate::input::poll::address(server)?;
            if !within(server.every, 1_000, 600) {
                return Err(SettingsError::Range { name: "prometheus.every", from: "1s", to: "10m" });
            }
        }
        crate::export::address(&self.export)?;
        if !within(self.export.every, 1_000, 3_600) {
            return Err(SettingsError::Range { name: "export.every", from: "1s", to: "1h" });
        }
        self.mlflow.check()?;
        if !within(self.mlflow.every, 1_000, 3_600) {
            return Err(SettingsError::Range { name: "mlflow.every", from: "1s", to: "1h" });
        }
        for receiver in &self.alerts.receivers {
            crate::alerts::address(receiver)?;
        }
        if !within(self.alerts.resend, 1_000, 3_600) {
            return Err(SettingsError::Range { name: "alerts.resend", from: "1s", to: "1h" });
        }
        self.learning.check()?;
        self.login.check()?;
        if self.limits.connections == 0 || self.limits.connections_per_address == 0 {
            return Err(SettingsError::Range { name: "limits.connections", from: "1", to: "1000000" });
        }
        if self.limits.requests_per_second == 0 || self.limits.failed_logins == 0 {
            return Err(SettingsError::Range {
                name: "limits.requests_per_second and limits.failed_logins",
                from: "1",
                to: "1000000",
            });
        }
        if !within(self.limits.request_time, 1_000, 600) {
            return Err(SettingsError::Range { name: "limits.request_time", from: "1s", to: "10m" });
        }
        Ok(())
    }
}
