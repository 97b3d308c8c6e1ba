//! The configuration: defaults, overridden by the file, by the environment, and by flags.

mod limits;
mod s3;
mod written;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use archive::{Retention, Settings};
use detect::DetectorConfig;
use files::Limits;
use serde::{Deserialize, Serialize};
use serve::{OidcSettings, ServeSettings};
use toml::{Table, Value};

use crate::access::{PASSWORD_VARIABLE, TOKEN_VARIABLE};

use self::limits::LimitsConfig;
use self::s3::S3Config;
use self::written::Written;

const FILE: &str = "tracewise.toml";
const PREFIX: &str = "TRACEWISE_";
/// Variables with that prefix that are not settings.
const OTHER_VARIABLES: [&str; 5] =
    ["TRACEWISE_CONFIG", "TRACEWISE_DATA", "TRACEWISE_REMOTE_WRITE_URL", PASSWORD_VARIABLE, TOKEN_VARIABLE];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub archive: ArchiveConfig,
    pub record: RecordConfig,
    pub detector: DetectorConfig,
    pub serve: ServeSettings,
    pub limits: LimitsConfig,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveConfig {
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<PathBuf>,
    pub s3: S3Config,
    pub retention: RetentionConfig,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            address: "data/archive".into(),
            spool: None,
            s3: S3Config::default(),
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
            interval: Written::new(Duration::from_secs(1), "1s"),
            segment: Written::new(Duration::from_secs(3_600), "1h"),
        }
    }
}

impl Config {
    /// The settings that apply. Commands apply their flags on top.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let config = match (file, in_force(None)) {
            (Some(file), _) => Self::read(file)?,
            (None, Some(found)) => Self::read_found(&found)?,
            (None, None) => Self::default(),
        };
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let config = config.with_variables(variables)?;
        config.check()?;
        Ok(config)
    }

    /// Rejects settings that no command could use.
    pub fn check(&self) -> anyhow::Result<()> {
        self.archive.s3.check().context("[archive.s3]")?;
        self.detector.clone().validate().context("[detector]")?;
        self.serve.check().context("[serve]")?;
        self.limits.check().context("[limits]")
    }

    /// Reads a file that nobody named. Whoever can write to the directory may have put it there, so it cannot decide
    /// where data and requests that are signed with the user's keys go.
    fn read_found(file: &Path) -> anyhow::Result<Self> {
        let config = Self::read(file)?;
        if config.serve.has_peers() {
            bail!(
                "{name} in this directory says which servers are told about events, or who may log in; if you trust the \
                 file, pass --config {name}",
                name = file.display()
            );
        }
        if config.archive.address.contains("://") || config.archive.s3 != S3Config::default() {
            bail!(
                "{name} in this directory says where a bucket is, and requests to it are signed with your keys; if you \
                 trust the file, pass --config {name}",
                name = file.display()
            );
        }
        Ok(config)
    }

    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = read_text(file, &Limits::default())?;
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
        config.archive.retention.max_age = Some(Written::new(Duration::ZERO, ""));
        config.archive.retention.max_size = Some(Written::new(0, ""));
        config.detector.interval = Some(workload::Millis::SECOND);
        config.serve.web_config = Some(PathBuf::new());
        config.serve.workflow_model = Some(PathBuf::new());
        config.serve.learning.shadow = Some(serve::Length(Duration::from_secs(60)));
        config.serve.agents.password_file = Some(PathBuf::new());
        config.serve.agents.token_file = Some(PathBuf::new());
        config.serve.agents.ca_file = Some(PathBuf::new());
        config.serve.export.token_file = Some(PathBuf::new());
        config.serve.mlflow.token_file = Some(PathBuf::new());
        config.serve.alerts.external_url = Some(String::new());
        config.serve.login.oidc = Some(OidcSettings {
            issuer: String::new(),
            client_id: String::new(),
            client_secret_file: PathBuf::new(),
            external_url: String::new(),
            user_claim: String::new(),
        });
        config
    }

    pub fn archive_settings(&self) -> Settings {
        Settings { s3: self.archive.s3.settings(), spool: self.archive.spool.clone(), ..Settings::default() }
    }

    /// What input may cost.
    pub fn limits(&self) -> Limits {
        self.limits.limits()
    }

    pub fn retention(&self) -> Retention {
        let RetentionConfig { max_age, max_size } = &self.archive.retention;
        Retention {
            max_age: max_age.as_ref().map(|age| age.value.into()),
            max_bytes: max_size.as_ref().map(|size| size.value),
        }
    }
}

/// A small text file, such as a plan or a column map.
pub fn read_text(file: &Path, limits: &Limits) -> anyhow::Result<String> {
    String::from_utf8(files::read(file, limits)?).with_context(|| format!("{}: not UTF-8", file.display()))
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

pub const EXAMPLE: &str = include_str!("config/example.toml");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        for section in ["archive", "record", "detector", "limits"] {
            assert_eq!(keys(all[section].as_table().unwrap()), keys(complete[section].as_table().unwrap()));
        }
        for section in ["scoring", "learning", "agents", "export", "alerts", "limits"] {
            let of = |config: &Table| keys(config["serve"][section].as_table().unwrap());
            assert_eq!(of(&all), of(&complete), "{section}");
        }
        assert!(uncommented.contains("endpoint =") && uncommented.contains("max_size ="));
    }

    /// The paths of all settings below a table; those of the tables of an array are listed once.
    fn paths(table: &Table, above: &str, all: &mut BTreeSet<String>) {
        for (key, value) in table {
            let path = format!("{above}{key}");
            match value {
                Value::Table(inner) => paths(inner, &format!("{path}."), all),
                Value::Array(inner) if inner.iter().any(Value::is_table) => {
                    inner
                        .iter()
                        .filter_map(Value::as_table)
                        .for_each(|one| paths(one, &format!("{path}."), all));
                }
                _ => drop(all.insert(path)),
            }
        }
    }

    #[test]
    fn the_example_explains_every_setting_in_a_comment_of_its_own() {
        let mut complete = Config::complete();
        complete.serve.alerts.receivers = vec![serve::ReceiverSettings {
            kind: serve::ReceiverKind::Webhook,
            url: String::new(),
            silences: true,
            secret_file: Some(PathBuf::new()),
            token_file: Some(PathBuf::new()),
        }];
        complete.serve.prometheus = vec![serve::PollSettings {
            url: String::new(),
            every: serve::Length(Duration::from_secs(10)),
            matchers: String::new(),
            token_file: Some(PathBuf::new()),
        }];
        let mut expected = BTreeSet::new();
        paths(&Table::try_from(complete).unwrap(), "", &mut expected);

        let (mut explained, mut section, mut has_comment) = (BTreeSet::new(), String::new(), false);
        for line in EXAMPLE.lines() {
            let is_optional = line.starts_with("# ") && line.contains(" = \"");
            let setting = if is_optional { &line[2..] } else { line.strip_prefix('#').unwrap_or(line) };
            if !is_optional && line.starts_with("# ") {
                has_comment = true;
                continue;
            }
            if setting.starts_with('[') {
                section = format!("{}.", setting.trim_matches(['[', ']']));
            } else if let Some((name, _)) = setting.split_once(" = ") {
                assert!(has_comment, "{section}{name} has no comment");
                assert!(explained.insert(format!("{section}{name}")), "{section}{name} is there twice");
            }
            has_comment = false;
        }
        assert_eq!(explained, expected);
    }

    /// The example as tables, one for each section.
    fn reference() -> String {
        let mut text = String::from(
            "# Settings\n\nGenerated from `tracewise config example`; a test checks that it is current. A setting of \
             `[a.b]` named `c` is the variable `TRACEWISE_A_B_C`.\n",
        );
        let mut comment = String::new();
        for line in EXAMPLE.lines() {
            // Tables that may be repeated are comments.
            let line = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line);
            match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = \"") => {
                    let (name, example) = rest.split_once(" = ").unwrap();
                    text += &format!("| `{name}` | not set (such as `{example}`) | {} |\n", comment.trim());
                    comment.clear();
                }
                Some(rest) => comment += &format!("{rest} "),
                None if line.starts_with('[') => {
                    text += &format!(
                        "\n## `{line}`\n\n{}\n\n| setting | default | meaning |\n|---|---|---|\n",
                        comment.trim()
                    );
                    comment.clear();
                }
                None => {
                    if let Some((name, default)) = line.split_once(" = ") {
                        text += &format!("| `{name}` | `{default}` | {} |\n", comment.trim());
                        comment.clear();
                    }
                }
            }
        }
        text.replace("\n\n\n", "\n")
    }

    #[test]
    fn the_reference_in_the_repository_is_current() {
        testbed::check_document("settings.md", &reference());
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
            ("TRACEWISE_ARCHIVE_S3_ENDPOINT", "https://s3"),
            ("TRACEWISE_ARCHIVE_RETENTION_MAX_AGE", "2d"),
            ("TRACEWISE_DATA", "ignored"),
            ("TRACEWISE_BEARER_TOKEN", "ignored"),
            ("HOME", "ignored"),
        ])
        .unwrap();
        assert_eq!(config.archive.address, "elsewhere");
        assert_eq!(config.archive.s3.endpoint.as_deref(), Some("https://s3"));
        assert_eq!(config.retention().max_age, Some(Millis(2 * 86_400_000)));
    }

    #[test]
    fn limits_can_be_set_and_must_allow_ordinary_input() {
        let config =
            with(&[("TRACEWISE_LIMITS_RECORD_BYTES", "32MiB"), ("TRACEWISE_LIMITS_ROWS", "7")]).unwrap();
        assert_eq!(config.limits(), Limits { record_bytes: 32 << 20, rows: 7, ..Limits::default() });
        assert_eq!(Config::default().limits(), Limits::default());
        for bad in ["file_bytes = '1kB'", "record_bytes = '0B'", "rows = 0", "compression_ratio = 0"] {
            let config: Config = toml::from_str(&format!("[limits]\n{bad}\n")).unwrap();
            let error = format!("{:#}", config.check().unwrap_err());
            assert!(error.starts_with("[limits]: ") && error.contains("has to be at least"), "{error}");
        }
    }

    #[test]
    fn a_bad_duration_says_how_to_write_one() {
        let error = toml::from_str::<Config>("[record]\ninterval = 'often'\n").unwrap_err();
        assert!(error.message().contains("write it like 15s"), "{}", error.message());
    }
}
