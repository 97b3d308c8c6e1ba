//! The configuration: defaults, overridden by the file, by the environment, and by flags.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use archive::{Retention, S3Settings, Settings};
use detect::DetectorConfig;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use workload::units::{parse_bytes, parse_duration};

const FILE: &str = "tracewise.toml";
const PREFIX: &str = "TRACEWISE_";
/// Variables with that prefix that are not settings.
const OTHER_VARIABLES: [&str; 2] = ["TRACEWISE_CONFIG", "TRACEWISE_DATA"];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub archive: ArchiveConfig,
    pub record: RecordConfig,
    pub detector: DetectorConfig,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveConfig {
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<PathBuf>,
    pub s3: S3Settings,
    pub retention: RetentionConfig,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            address: "data/archive".into(),
            spool: None,
            s3: S3Settings::default(),
            retention: RetentionConfig::default(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Written<Duration>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Written<u64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordConfig {
    pub interval: Written<Duration>,
    pub segment: Written<Duration>,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            interval: Written { value: Duration::from_secs(1), text: "1s".into() },
            segment: Written { value: Duration::from_secs(3_600), text: "1h".into() },
        }
    }
}

/// A value that is written with its unit, together with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    pub value: T,
    text: String,
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

fn written<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Written<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let value = parse(&text).map_err(|reason| serde::de::Error::custom(format!("{text:?}: {reason}")))?;
    Ok(Written { value, text })
}

impl<'de> Deserialize<'de> for Written<Duration> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, parse_duration)
    }
}

impl<'de> Deserialize<'de> for Written<u64> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, parse_bytes)
    }
}

impl Config {
    /// The settings that apply. Commands apply their flags on top.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let config = match in_force(file) {
            Some(file) => Self::read(&file)?,
            None => Self::default(),
        };
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let config = config.with_variables(variables)?;
        config.detector.clone().validate().context("[detector]")?;
        Ok(config)
    }

    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            anyhow::anyhow!("{}, line {line}: {}", file.display(), error.message().replace('\n', " "))
        })
    }

    /// `TRACEWISE_ARCHIVE_S3_ENDPOINT` is `endpoint` in `[archive.s3]`.
    fn with_variables(self, variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<Self> {
        let mut table = Table::try_from(&self)?;
        let shape = Table::try_from(Self::complete())?;
        for (name, value) in variables {
            let Some(path) = name.strip_prefix(PREFIX) else { continue };
            if OTHER_VARIABLES.contains(&name.as_str()) {
                continue;
            }
            if !set_by_variable(&mut table, &shape, &path.to_lowercase(), &value) {
                bail!("{name} is not a setting; `tracewise config example` lists all settings");
            }
        }
        let text = toml::to_string(&table)?;
        toml::from_str(&text).map_err(|error| anyhow::anyhow!("environment: {}", error.message()))
    }

    /// Every setting with some value, for their names.
    fn complete() -> Self {
        let mut config = Self::default();
        config.archive.spool = Some(PathBuf::new());
        config.archive.s3.endpoint = Some(String::new());
        config.archive.s3.region = Some(String::new());
        config.archive.retention.max_age = Some(Written { value: Duration::ZERO, text: String::new() });
        config.archive.retention.max_size = Some(Written { value: 0, text: String::new() });
        config
    }

    pub fn archive_settings(&self) -> Settings {
        Settings { s3: self.archive.s3.clone(), spool: self.archive.spool.clone(), ..Settings::default() }
    }

    pub fn retention(&self) -> Retention {
        let RetentionConfig { max_age, max_size } = &self.archive.retention;
        Retention {
            max_age: max_age.as_ref().map(|age| age.value.into()),
            max_bytes: max_size.as_ref().map(|size| size.value),
        }
    }
}

/// The file that is read: the one given, or the one in the current directory.
pub fn in_force(file: Option<&Path>) -> Option<PathBuf> {
    file.map(Path::to_owned).or_else(|| Some(PathBuf::from(FILE)).filter(|file| file.exists()))
}

fn set_by_variable(table: &mut Table, shape: &Table, path: &str, value: &str) -> bool {
    for (key, known) in shape {
        match known {
            Value::Table(inner) => {
                if let Some(rest) = path.strip_prefix(&format!("{key}_")) {
                    let below = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
                    let Value::Table(below) = below else { return false };
                    if set_by_variable(below, inner, rest, value) {
                        return true;
                    }
                }
            }
            _ if key == path => {
                let text = || Value::String(value.to_owned());
                let value = match known {
                    Value::String(_) => text(),
                    // A value of the wrong type is rejected later, with the name of the setting.
                    _ => value.parse().unwrap_or_else(|_| text()),
                };
                table.insert(key.clone(), value);
                return true;
            }
            _ => {}
        }
    }
    false
}

pub const EXAMPLE: &str = r#"# Every setting of Tracewise with its default. Unknown keys are rejected.
# Environment variables override this file: TRACEWISE_ARCHIVE_S3_ENDPOINT is `endpoint`
# in [archive.s3]. Flags override both.

[archive]
# The default archive of --data and --into: a directory or s3://bucket/prefix.
address = "data/archive"
# Directory in which writes to a bucket are prepared; default: ~/.local/state/tracewise/spool.
# spool = "/var/lib/tracewise/spool"

[archive.s3]
# URL of the service, unless it is Amazon S3. Keys come from AWS_ACCESS_KEY_ID and
# AWS_SECRET_ACCESS_KEY.
# endpoint = "http://127.0.0.1:9000"
# Region of the bucket, unless AWS_REGION is set.
# region = "us-east-1"

[archive.retention]
# What `tracewise archive compact` removes; by default nothing.
# max_age = "90d"
# max_size = "500GB"

[record]
# Sampling interval of `tracewise record`.
interval = "1s"
# How long readings stay in the journal before they become Parquet. They are safe in both.
segment = "1h"

[detector]
# Steps per window, and steps from one training window to the next; fewer if there are few windows.
window = 100
stride = 25
# Channels in addition to user, system, iowait and other: memory, cpu-pressure, memory-pressure, io-pressure.
channels = []
# The largest number of training windows; more are sampled down.
max_windows = 10000
# The fraction of normal windows that may exceed the threshold.
false_alarm_rate = 0.001
# Whether each kind of labelled job with enough windows gets its own threshold.
threshold_by_kind = false
# The weight of the penalty on embeddings: their squared norm, or the KL divergence of the variational autoencoder.
divergence_weight = 1e-5
# The number of training windows that the nearest-neighbour baseline stores.
n_neighbours = 2000

[detector.net]
# Channels of each encoder block; the decoder has them in reverse order.
widths = [32, 64, 64]
# Kernel size of the convolutions, in steps; odd.
kernel = 5
n_hidden = 128
n_latent = 16
# Hidden units of the graph layer.
n_graph_hidden = 32

[detector.train]
n_epochs = 30
# Windows per optimiser step; fewer for small data sets.
batch_size = 64
learning_rate = 0.003
# Epochs over which the learning rate grows to its full value.
warm_up_epochs = 1
# Gradients with a greater norm are scaled down to it.
max_gradient_norm = 0.05
# Training ends after this many epochs without a better validation loss.
patience = 6
seed = 0
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Millis;

    fn with(variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        Config::default().with_variables(variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
    }

    #[test]
    fn the_example_has_the_defaults_and_every_setting() {
        assert_eq!(toml::from_str::<Config>(EXAMPLE).unwrap(), Config::default());
        let uncommented: String = EXAMPLE
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = \"") => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let all = Table::try_from(toml::from_str::<Config>(&uncommented).unwrap()).unwrap();
        let keys = |table: &Table| table.keys().cloned().collect::<Vec<_>>();
        let complete = Table::try_from(Config::complete()).unwrap();
        for section in ["archive", "record", "detector"] {
            assert_eq!(keys(all[section].as_table().unwrap()), keys(complete[section].as_table().unwrap()));
        }
        assert!(uncommented.contains("endpoint =") && uncommented.contains("max_size ="));
    }

    #[test]
    fn a_misspelt_key_is_rejected() {
        assert!(toml::from_str::<Config>("[archive]\nadress = 'x'\n").is_err());
        assert!(with(&[("TRACEWISE_ARCHIVE_ADRESS", "x")]).is_err());
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let config = with(&[
            ("TRACEWISE_ARCHIVE_ADDRESS", "elsewhere"),
            ("TRACEWISE_ARCHIVE_S3_ENDPOINT", "http://s3"),
            ("TRACEWISE_ARCHIVE_RETENTION_MAX_AGE", "2d"),
            ("TRACEWISE_DATA", "ignored"),
            ("HOME", "ignored"),
        ])
        .unwrap();
        assert_eq!(config.archive.address, "elsewhere");
        assert_eq!(config.archive.s3.endpoint.as_deref(), Some("http://s3"));
        assert_eq!(config.retention().max_age, Some(Millis(2 * 86_400_000)));
    }

    #[test]
    fn a_bad_duration_says_how_to_write_one() {
        let error = toml::from_str::<Config>("[record]\ninterval = 'often'\n").unwrap_err();
        assert!(error.message().contains("write it like 15s"), "{}", error.message());
    }
}
