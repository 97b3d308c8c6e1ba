//! What can be chosen of a detector; the same file builds it again.

use learn::nn::train::TrainSettings;
use serde::{Deserialize, Serialize};
use workload::Millis;

use super::autoencoder::net::NetConfig;
use super::channel::{Extra, names};
use super::window::Cut;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectorConfig {
    /// Steps of a window.
    pub window: usize,
    /// Steps from one window to the next, in training.
    pub stride: usize,
    /// Channels beside the four rates.
    pub channels: Vec<Extra>,
    /// Windows that are learnt from at most, drawn from all.
    pub most_windows: usize,
    /// How often a normal window may be taken for an anomaly.
    pub false_alarm_rate: f64,
    /// A threshold for each kind of job that validation knows well enough, beside the one for all.
    pub threshold_by_kind: bool,
    pub net: NetConfig,
    pub train: TrainSettings,
    /// How much embeddings are drawn together: to zero, and those of the variational autoencoder to a normal distribution.
    pub divergence_weight: f64,
    /// Windows that the nearest-neighbour baseline remembers.
    pub n_remembered: usize,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            window: 100,
            stride: 25,
            channels: Vec::new(),
            most_windows: 10_000,
            false_alarm_rate: 1e-3,
            threshold_by_kind: false,
            net: NetConfig::default(),
            train: TrainSettings::default(),
            divergence_weight: 1e-5,
            n_remembered: 2_000,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    Syntax(String),
    #[error("window: {window} steps cannot be halved {n_blocks} times; take a longer window or fewer widths")]
    TooShort { window: usize, n_blocks: usize },
    #[error("{0} has to be at least one")]
    Zero(&'static str),
    #[error("{0} has to be a number above zero, or nothing is learnt")]
    NotPositive(&'static str),
    #[error("net.kernel has to be odd, so that a step is in the middle of what is seen of it")]
    Even,
    #[error("false_alarm_rate lies between zero and one half")]
    Rate,
    #[error("channels: {0} is there twice")]
    Twice(&'static str),
}

impl DetectorConfig {
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string().trim().to_owned()))?;
        config.check()?;
        Ok(config)
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        let net = &self.net;
        let counts = [
            ("window", self.window),
            ("stride", self.stride),
            ("most_windows", self.most_windows),
            ("n_remembered", self.n_remembered),
            ("net.widths", net.widths.iter().copied().min().unwrap_or(0)),
            ("net.n_hidden", net.n_hidden),
            ("net.n_latent", net.n_latent),
            ("net.n_graph_hidden", net.n_graph_hidden),
            ("train.n_epochs", self.train.n_epochs),
            ("train.batch", self.train.batch),
            ("train.patience", self.train.patience),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::Zero(name));
        }
        let sizes =
            [("train.rate", self.train.rate), ("train.longest_gradient", self.train.longest_gradient)];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| !(size.is_finite() && *size > 0.0)) {
            return Err(ConfigError::NotPositive(name));
        }
        let n_blocks = net.widths.len();
        if self.window >> n_blocks == 0 {
            return Err(ConfigError::TooShort { window: self.window, n_blocks });
        }
        if net.kernel.is_multiple_of(2) {
            return Err(ConfigError::Even);
        }
        if !(self.false_alarm_rate > 0.0 && self.false_alarm_rate < 0.5) {
            return Err(ConfigError::Rate);
        }
        let mut names = names(&self.channels);
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ConfigError::Twice(pair[0])),
            None => Ok(()),
        }
    }

    pub fn cut(&self, period: Millis, stride: usize) -> Cut {
        Cut { period, n_steps: self.window, stride, extras: self.channels.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_or_cannot_be_is_refused() {
        let refused = |text: &str| DetectorConfig::from_toml(text).unwrap_err().to_string();
        assert!(refused("windows = 60").contains("windows"));
        assert!(refused("window = 4").contains("halved"));
        assert!(refused("false_alarm_rate = 0").contains("between"));
        assert!(refused("[net]\nkernel = 4").contains("odd"));
        assert!(refused("channels = [\"memory\", \"memory\"]").contains("twice"));
        assert!(refused("[train]\nbatch = 0").contains("train.batch"));
        assert!(refused("[train]\nrate = -1.0").contains("train.rate"));
        assert!(refused("[train]\nlongest_gradient = 0.0").contains("train.longest_gradient"));
        let config = DetectorConfig::from_toml("window = 60\nchannels = [\"io-pressure\"]").unwrap();
        assert_eq!((config.window, config.channels.len()), (60, 1));
    }
}
