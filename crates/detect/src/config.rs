//! The settings of a detector, and their validation.

use std::ops::Deref;

use learn::nn::train::{TrainSettings, TrainSettingsError};
use serde::{Deserialize, Serialize};
use workload::Millis;

use crate::autoencoder::net::{Net, NetConfig, Shape};
use crate::channel::{JobChannel, N_RATES, names};
use crate::detector::DetectorKind;
use crate::evidence::Confirmation;
use crate::window::WindowSpec;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectorConfig {
    /// Steps per window.
    pub window: usize,
    /// Steps from one training window to the next.
    pub stride: usize,
    /// Channels in addition to the four rates.
    pub channels: Vec<JobChannel>,
    /// The largest number of training windows; more are sampled down.
    #[serde(alias = "most_windows")]
    pub max_windows: usize,
    /// The sampling interval to analyse at; that of the archive by default.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_interval")]
    pub interval: Option<Millis>,
    /// The budget of false events per day, for the whole cluster.
    pub false_events_per_day: f64,
    /// Whether kinds of jobs with enough validation jobs get their own thresholds.
    pub threshold_by_kind: bool,
    /// The setting of earlier versions, only in models that they wrote.
    #[serde(default, skip_serializing)]
    pub false_alarm_rate: Option<f64>,
    /// The number of detectors that are trained from different random weights and combined. Their spread is an estimate
    /// of uncertainty.
    pub members: usize,
    pub net: NetConfig,
    pub train: TrainSettings,
    /// The weight of the penalty on embeddings: their squared norm, or the KL divergence of the variational autoencoder.
    pub divergence_weight: f64,
    /// The number of training windows that the nearest-neighbour baseline stores.
    #[serde(alias = "n_remembered")]
    pub n_neighbours: usize,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            window: 100,
            stride: 25,
            channels: Vec::new(),
            max_windows: 10_000,
            interval: None,
            false_events_per_day: 1.0,
            threshold_by_kind: false,
            false_alarm_rate: None,
            members: 1,
            net: NetConfig::default(),
            train: TrainSettings::default(),
            divergence_weight: 1e-5,
            n_neighbours: 2_000,
        }
    }
}

/// Events are made from windows that start this fraction of a window after each other, and their evidence has to last
/// for so many of them.
const STRIDES_PER_WINDOW: usize = 10;
const CONFIRMING_STRIDES: usize = 2;
const MIN_EVENTS_PER_DAY: f64 = 1e-3;
const MAX_EVENTS_PER_DAY: f64 = 1e4;
const INTERVALS: std::ops::RangeInclusive<Millis> = Millis(10)..=Millis::HOUR;

/// Bounds of what settings may ask for. They are far above what is useful, and low enough that training
/// and scoring need a few gigabytes at most.
const MAX_WINDOW: usize = 100_000;
const MAX_STRIDE: usize = 1_000_000;
const MAX_WINDOWS: usize = 100_000_000;
const MAX_MEMBERS: usize = 100;
const MAX_WIDTH: usize = 4_096;
const MAX_BLOCKS: usize = 16;
const MAX_KERNEL: usize = 255;
const MAX_UNITS: usize = 65_536;
/// Steps of a window times channels of the widest block.
const MAX_ACTIVATIONS: usize = 1_000_000;
const MAX_PARAMETERS: usize = 50_000_000;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    Syntax(String),
    #[error(
        "window: {window} steps cannot be halved {n_blocks} times; use a longer window or fewer net.widths"
    )]
    TooShort { window: usize, n_blocks: usize },
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("{name} must be at most {max}, not {value}")]
    TooLarge { name: &'static str, value: usize, max: usize },
    #[error("net.widths must list at most {MAX_BLOCKS} blocks, not {0}")]
    TooManyBlocks(usize),
    #[error(
        "net.widths: {width} channels for a window of {window} steps are too many; \
         their product must be at most {MAX_ACTIVATIONS}"
    )]
    Activations { window: usize, width: usize },
    #[error("net: the network would have {0} parameters; at most {MAX_PARAMETERS} are supported")]
    Parameters(usize),
    #[error("divergence_weight must be a number that is not negative")]
    Weight,
    #[error("train.{0}")]
    Train(#[from] TrainSettingsError),
    #[error("net.kernel must be odd")]
    EvenKernel,
    #[error("false_events_per_day must be between {MIN_EVENTS_PER_DAY} and {MAX_EVENTS_PER_DAY}")]
    Budget,
    #[error(
        "false_alarm_rate has been replaced by false_events_per_day, the budget of false events for the cluster"
    )]
    FalseAlarmRate,
    #[error("interval must be between 10ms and 1h")]
    Interval,
    #[error("channels: {0} is listed twice")]
    DuplicateChannel(&'static str),
}

/// Settings that have been validated. Only these can be fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidConfig(DetectorConfig);

impl Deref for ValidConfig {
    type Target = DetectorConfig;
    fn deref(&self) -> &DetectorConfig {
        &self.0
    }
}

impl DetectorConfig {
    pub fn from_toml(text: &str) -> Result<ValidConfig, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string().trim().to_owned()))?;
        config.validate()
    }

    pub fn validate(self) -> Result<ValidConfig, ConfigError> {
        let net = &self.net;
        let widths = || net.widths.iter().copied();
        let widest = widths().max().unwrap_or(0);
        let counts = [
            ("window", self.window, MAX_WINDOW),
            ("stride", self.stride, MAX_STRIDE),
            ("max_windows", self.max_windows, MAX_WINDOWS),
            ("n_neighbours", self.n_neighbours, MAX_WINDOWS),
            ("members", self.members, MAX_MEMBERS),
            ("net.widths", widths().min().unwrap_or(0), MAX_WIDTH),
            ("net.widths", widest, MAX_WIDTH),
            ("net.kernel", net.kernel, MAX_KERNEL),
            ("net.n_hidden", net.n_hidden, MAX_UNITS),
            ("net.n_latent", net.n_latent, MAX_UNITS),
            ("net.n_graph_hidden", net.n_graph_hidden, MAX_UNITS),
        ];
        for (name, value, max) in counts {
            if value == 0 {
                return Err(ConfigError::Zero(name));
            }
            if value > max {
                return Err(ConfigError::TooLarge { name, value, max });
            }
        }
        self.train.clone().check()?;
        let n_blocks = net.widths.len();
        if n_blocks > MAX_BLOCKS {
            return Err(ConfigError::TooManyBlocks(n_blocks));
        }
        if self.window >> n_blocks == 0 {
            return Err(ConfigError::TooShort { window: self.window, n_blocks });
        }
        if net.kernel.is_multiple_of(2) {
            return Err(ConfigError::EvenKernel);
        }
        if self.false_alarm_rate.is_some() {
            return Err(ConfigError::FalseAlarmRate);
        }
        if !(MIN_EVENTS_PER_DAY..=MAX_EVENTS_PER_DAY).contains(&self.false_events_per_day) {
            return Err(ConfigError::Budget);
        }
        if self.interval.is_some_and(|interval| !INTERVALS.contains(&interval)) {
            return Err(ConfigError::Interval);
        }
        if !(self.divergence_weight >= 0.0 && self.divergence_weight.is_finite()) {
            return Err(ConfigError::Weight);
        }
        let mut names = names(&self.channels);
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::DuplicateChannel(pair[0]));
        }
        if self.window * widest > MAX_ACTIVATIONS {
            return Err(ConfigError::Activations { window: self.window, width: widest });
        }
        match self.n_parameters() {
            n_parameters if n_parameters > MAX_PARAMETERS => Err(ConfigError::Parameters(n_parameters)),
            _ => Ok(ValidConfig(self)),
        }
    }

    /// The number of parameters of a network with all optional layers.
    fn n_parameters(&self) -> usize {
        let n_channels = N_RATES + self.channels.len();
        let shape = Shape { n_steps: self.window, n_channels, has_graph: true, is_variational: true };
        Net::n_parameters(&self.net, shape)
    }

    /// How many detectors are combined: one if training does not start from random weights.
    pub fn n_members(&self, kind: DetectorKind) -> usize {
        if kind.is_random() { self.members } else { 1 }
    }

    /// The windows that events are made from.
    pub fn event_spec(&self, period: Millis) -> WindowSpec {
        self.window_spec(period, (self.window / STRIDES_PER_WINDOW).max(1))
    }

    /// How long evidence has to last before it opens an event.
    pub fn confirmation(&self, period: Millis) -> Confirmation {
        let spec = self.event_spec(period);
        let brief = Millis(spec.stride_length().0 * CONFIRMING_STRIDES as i64);
        Confirmation { brief, lasting: Millis(spec.length().0 + 2 * brief.0) }
    }

    pub fn window_spec(&self, period: Millis, stride: usize) -> WindowSpec {
        WindowSpec { period, n_steps: self.window, stride, job_channels: self.channels.clone() }
    }
}

/// An interval as text with a unit, such as `"100ms"`.
mod optional_interval {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use workload::Millis;
    use workload::units::parse_duration;

    pub fn serialize<S: Serializer>(interval: &Option<Millis>, serializer: S) -> Result<S::Ok, S::Error> {
        match interval {
            Some(interval) => serializer.serialize_str(&format!("{}ms", interval.0)),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Millis>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse_duration(&text).map(Millis::from).map_err(de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_and_impossible_settings_are_rejected() {
        let rejected = |text: &str| DetectorConfig::from_toml(text).unwrap_err().to_string();
        assert!(rejected("windows = 60").contains("windows"));
        assert!(rejected("window = 4").contains("halved"));
        assert!(rejected("false_events_per_day = 0").contains("between"));
        assert!(rejected("false_alarm_rate = 0.01").contains("replaced by false_events_per_day"));
        assert!(rejected("interval = \"1ms\"").contains("interval must be"));
        assert!(rejected("[net]\nkernel = 4").contains("odd"));
        assert!(rejected("channels = [\"memory\", \"memory\"]").contains("twice"));
        assert!(rejected("[train]\nbatch_size = 0").contains("train.batch_size"));
        assert!(rejected("[train]\nlearning_rate = -1.0").contains("train.learning_rate"));
        assert!(rejected("[train]\nmax_gradient_norm = 0.0").contains("train.max_gradient_norm"));
        assert!(rejected("divergence_weight = nan").contains("divergence_weight"));
        let at_one_hertz = DetectorConfig::from_toml("interval = \"1s\"").unwrap();
        assert_eq!(at_one_hertz.interval, Some(Millis::SECOND));
        let config = DetectorConfig::from_toml("window = 60\nchannels = [\"io-pressure\"]").unwrap();
        assert_eq!((config.window, config.channels.len()), (60, 1));
    }

    #[test]
    fn settings_that_ask_for_too_much_are_rejected_by_name() {
        let rejected = |text: &str| DetectorConfig::from_toml(text).unwrap_err().to_string();
        let huge = [1u64 << 31, 1_000_000_000_000, i64::MAX as u64];
        for name in ["window", "stride", "max_windows", "n_neighbours", "members"] {
            for value in huge {
                let error = rejected(&format!("{name} = {value}"));
                assert!(error.starts_with(&format!("{name} must be at most")), "{error}");
            }
        }
        for (table, name) in [
            ("net", "kernel"),
            ("net", "n_hidden"),
            ("net", "n_latent"),
            ("net", "n_graph_hidden"),
            ("train", "n_epochs"),
            ("train", "batch_size"),
            ("train", "warm_up_epochs"),
            ("train", "patience"),
        ] {
            for value in huge {
                let error = rejected(&format!("[{table}]\n{name} = {value}"));
                assert!(error.starts_with(&format!("{table}.{name} must be at most")), "{error}");
            }
        }
        // A shift by 64 bits would count as none.
        let widths = |n_blocks: usize, width: u64| {
            rejected(&format!("[net]\nwidths = [{}]", vec![width.to_string(); n_blocks].join(", ")))
        };
        assert!(widths(64, 8).contains("at most 16 blocks, not 64"), "{}", widths(64, 8));
        assert!(widths(2, 1 << 40).starts_with("net.widths must be at most 4096"));
        assert!(
            rejected("window = 50000").starts_with("net.widths: 64 channels for a window of 50000 steps")
        );
        let many = "window = 10000\n[net]\nwidths = [100]\nn_hidden = 60000";
        assert!(rejected(many).contains("parameters; at most"), "{}", rejected(many));
    }
}
