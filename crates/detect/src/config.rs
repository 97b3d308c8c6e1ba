//! The settings of a detector, and their validation.

use std::ops::Deref;

use learn::nn::train::{TrainSettings, TrainSettingsError};
use serde::{Deserialize, Serialize};
use workload::Millis;

use crate::autoencoder::net::NetConfig;
use crate::channel::{JobChannel, names};
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
    /// The fraction of normal windows that may exceed the threshold.
    pub false_alarm_rate: f64,
    /// Whether kinds of jobs with enough validation windows get their own thresholds.
    pub threshold_by_kind: bool,
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
            false_alarm_rate: 1e-3,
            threshold_by_kind: false,
            net: NetConfig::default(),
            train: TrainSettings::default(),
            divergence_weight: 1e-5,
            n_neighbours: 2_000,
        }
    }
}

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
    #[error("train.{0}")]
    Train(#[from] TrainSettingsError),
    #[error("net.kernel must be odd")]
    EvenKernel,
    #[error("false_alarm_rate must be between 0 and 0.5")]
    Rate,
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
        let counts = [
            ("window", self.window),
            ("stride", self.stride),
            ("max_windows", self.max_windows),
            ("n_neighbours", self.n_neighbours),
            ("net.widths", net.widths.iter().copied().min().unwrap_or(0)),
            ("net.n_hidden", net.n_hidden),
            ("net.n_latent", net.n_latent),
            ("net.n_graph_hidden", net.n_graph_hidden),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::Zero(name));
        }
        self.train.clone().check()?;
        let n_blocks = net.widths.len();
        if self.window >> n_blocks == 0 {
            return Err(ConfigError::TooShort { window: self.window, n_blocks });
        }
        if net.kernel.is_multiple_of(2) {
            return Err(ConfigError::EvenKernel);
        }
        if !(self.false_alarm_rate > 0.0 && self.false_alarm_rate < 0.5) {
            return Err(ConfigError::Rate);
        }
        let mut names = names(&self.channels);
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ConfigError::DuplicateChannel(pair[0])),
            None => Ok(ValidConfig(self)),
        }
    }

    pub fn window_spec(&self, period: Millis, stride: usize) -> WindowSpec {
        WindowSpec { period, n_steps: self.window, stride, job_channels: self.channels.clone() }
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
        assert!(rejected("false_alarm_rate = 0").contains("between"));
        assert!(rejected("[net]\nkernel = 4").contains("odd"));
        assert!(rejected("channels = [\"memory\", \"memory\"]").contains("twice"));
        assert!(rejected("[train]\nbatch_size = 0").contains("train.batch_size"));
        assert!(rejected("[train]\nlearning_rate = -1.0").contains("train.learning_rate"));
        assert!(rejected("[train]\nmax_gradient_norm = 0.0").contains("train.max_gradient_norm"));
        let config = DetectorConfig::from_toml("window = 60\nchannels = [\"io-pressure\"]").unwrap();
        assert_eq!((config.window, config.channels.len()), (60, 1));
    }
}
