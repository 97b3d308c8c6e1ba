//! The settings of the service: `[serve]` in the configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use detect::DetectorKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that is written like `5s` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length(pub Duration);

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = self.0.as_secs();
        match (self.0.subsec_millis(), seconds) {
            (0, _) if seconds > 0 && seconds.is_multiple_of(3_600) => {
                serializer.collect_str(&format_args!("{}h", seconds / 3_600))
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
    pub scoring: ScoringSettings,
    pub agents: AgentSettings,
    pub export: ExportSettings,
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

/// The agents that are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Addresses, such as `n001:9742` or `https://n001:9742`.
    pub targets: Vec<String>,
    /// Files in the format of Prometheus' `file_sd`, in JSON. They are read again when they change.
    pub file_sd: Vec<PathBuf>,
    /// Addresses that respond in the same format.
    pub http_sd: Vec<String>,
    /// Time from one request to an agent to the next.
    pub every: Length,
}

/// What is exported on `/metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportSettings {
    /// The largest number of jobs with series of their own. Those with the highest scores are exported.
    pub max_jobs: usize,
    /// Whether every hardware thread has a series.
    pub threads: bool,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9743)),
            data: PathBuf::from("data"),
            cluster: "cluster".into(),
            store: String::new(),
            web_config: None,
            scoring: ScoringSettings::default(),
            agents: AgentSettings::default(),
            export: ExportSettings::default(),
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

impl Default for AgentSettings {
    fn default() -> Self {
        Self { targets: Vec::new(), file_sd: Vec::new(), http_sd: Vec::new(), every: seconds(5) }
    }
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self { max_jobs: 1_000, threads: false }
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
}

impl ServeSettings {
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
        for target in &self.agents.targets {
            crate::input::targets::address(target)?;
        }
        Ok(())
    }
}
