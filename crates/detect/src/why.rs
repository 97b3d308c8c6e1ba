//! The reasons of an event, from the source of evidence that opened it.

use statrs::distribution::{ContinuousCDF, Normal};
use workload::{Cpu, Owner};

use crate::calibration::Threshold;
use crate::data::KnownJobs;
use crate::detector::Finding;
use crate::evidence::{Evidence, Observation, computing_fraction};
use crate::explain::{Explanation, explain_error};
use crate::kind_classifier::KindMatch;
use crate::trained::TrainedDetector;
use crate::window::WindowBatch;

/// A channel is named if it contributes this fraction of the error.
const NAMED_FRACTION: f64 = 0.15;

/// Why an event was opened.
pub struct Reasons {
    pub why: String,
    pub channels: Vec<String>,
    /// The threads that deviate.
    pub threads: Vec<Cpu>,
}

/// A batch, and the observation that opened an event in it.
pub struct Opening<'a> {
    pub detector: &'a TrainedDetector,
    pub batch: &'a WindowBatch,
    pub findings: &'a mut [Finding],
    pub observation: &'a Observation,
    /// The measurement that the observation exceeds.
    pub threshold: f64,
    /// The most similar known kinds.
    pub kinds: &'a [KindMatch],
    /// Which of them are bad.
    pub known: &'a KnownJobs,
}

impl Opening<'_> {
    pub fn reasons(self) -> Reasons {
        let threads = self.threads();
        let (why, channels) = match self.observation.evidence {
            Evidence::Memory => (self.memory(), vec!["memory".to_owned()]),
            Evidence::ForeignCpu => (self.foreign_cpu(), vec!["user".to_owned()]),
            Evidence::Unowned => (self.unowned(&threads), vec!["user".to_owned()]),
            Evidence::Region => (self.region(), Vec::new()),
            _ => {
                let explanation = self.explain();
                (explanation.text.clone(), named_channels(&explanation))
            }
        };
        Reasons { why, channels, threads }
    }

    /// The detector's explanation of the window, at the level of the evidence.
    fn explain(self) -> Explanation {
        let window = self.observation.window;
        let level = self.observation.evidence.level();
        self.findings[window].level = level;
        let explained = match level {
            Some(_) => self.detector.explain(self.batch, self.findings, &[window]),
            None => {
                vec![explain_error(self.batch, &self.findings[window], window, &self.detector.window_spec(1))]
            }
        };
        explained.into_iter().next().unwrap_or_else(|| Explanation::nothing(self.batch.start()))
    }

    fn memory(&self) -> String {
        let thread = &self.batch.threads()[self.observation.window];
        let memory = self.batch.usage_of(thread).and_then(|usage| usage.memory);
        memory.map_or(String::new(), |memory| {
            let left_minutes = 60.0 / memory.exhaustions_per_hour().max(f64::MIN_POSITIVE);
            format!(
                "its memory is {:.0} % of its limit and grows by {:.0} % of it per hour: full in {left_minutes:.0} min \
                 (normal jobs have at least {:.0} min)",
                memory.fraction * 100.0,
                memory.growth_per_hour * 100.0,
                60.0 / self.threshold.max(f64::MIN_POSITIVE),
            )
        })
    }

    fn foreign_cpu(&self) -> String {
        let thread = &self.batch.threads()[self.observation.window];
        let usage = self.batch.usage_of(thread);
        usage.and_then(|usage| Some((usage.foreign_cpu?, usage.n_threads))).map_or(String::new(), |(foreign, n_threads)| {
            format!(
                "processes that are not part of the job use {:.0} % of a CPU on its {n_threads} threads (normally at \
                 most {:.0} %)",
                foreign * 100.0,
                self.threshold * n_threads as f64 * 100.0,
            )
        })
    }

    fn unowned(&self, threads: &[Cpu]) -> String {
        let window = &self.batch.threads()[self.observation.window];
        let busy = computing_fraction(&window.values, self.batch.n_channels());
        let cpus: Vec<String> = threads.iter().map(|cpu| cpu.0.to_string()).collect();
        format!(
            "a process that belongs to no job uses {:.0} % of CPU {} (threads without a job normally at most {:.0} %)",
            busy * 100.0,
            cpus.join(", "),
            self.threshold * 100.0,
        )
    }

    fn region(&self) -> String {
        let mut bad = self.kinds.iter().filter(|kind| self.known.is_anomalous_kind(&kind.kind));
        bad.next().map_or("its windows are like those of anomalies that are known".into(), |kind| {
            format!(
                "its windows are like those of {}, which is known to be bad ({:.0} % sure, at {:.1} of the radius of its \
                 region)",
                kind.kind,
                kind.confidence * 100.0,
                kind.distance
            )
        })
    }

    /// The threads of the subject whose own value exceeds the threshold and half of the largest; all of them where threads
    /// have no own value. The peers of a thread that deviates deviate from it, too.
    fn threads(&self) -> Vec<Cpu> {
        let Observation { evidence, subject, window, .. } = self.observation;
        let all = self.batch.threads();
        let owner: Option<&Owner> = match subject.node() {
            Some(_) if *evidence != Evidence::Node => Some(&all[*window].owner),
            _ => None,
        };
        let value = |window: usize| -> Option<f64> {
            let finding = &self.findings[window];
            match evidence {
                Evidence::Error | Evidence::LastingError => Some(finding.error()),
                Evidence::Excess | Evidence::Thread | Evidence::LastingThread | Evidence::Peers => {
                    finding.distances.get(evidence.level()? as usize).copied()
                }
                Evidence::Unowned => Some(computing_fraction(&all[window].values, self.batch.n_channels())),
                _ => None,
            }
        };
        let mut threads = Vec::new();
        for (index, thread) in all.iter().enumerate() {
            let is_of_subject =
                subject.node() == Some(&thread.node) && owner.is_none_or(|owner| *owner == thread.owner);
            let enough = self.threshold.max(value(*window).unwrap_or(0.0) / 2.0);
            if is_of_subject && value(index).is_none_or(|value| value > enough || index == *window) {
                threads.push(thread.cpu);
            }
        }
        threads
    }
}

/// The channels that an explanation names.
fn named_channels(explanation: &Explanation) -> Vec<String> {
    let by_error = explanation.channels.iter().filter(|channel| channel.fraction_of_error >= NAMED_FRACTION);
    let mut names: Vec<String> = by_error.map(|channel| channel.channel.clone()).collect();
    for feature in &explanation.features {
        let words = feature.feature.split(' ');
        for word in words.filter(|word| crate::channel::is_channel(word)) {
            if !names.iter().any(|name| name == word) {
                names.push(word.to_owned());
            }
        }
    }
    names
}

/// The probability that the evidence exceeds its threshold. The threshold is uncertain because it depends on which jobs
/// were recorded, a reconstruction error if the detector estimates its uncertainty.
pub fn certainty(strength: f64, threshold: Option<&Threshold>, evidence: Evidence, finding: &Finding) -> f64 {
    let of_threshold = threshold.map_or(0.5, |threshold| threshold.log_std_error);
    let of_finding = match (evidence, finding.uncertainty) {
        (Evidence::Error | Evidence::LastingError, Some(uncertainty)) => {
            (uncertainty.reconstruction / finding.error().max(f64::MIN_POSITIVE)).ln_1p()
        }
        _ => {
            let level = evidence.level().map(|level| level as usize);
            let spread = level.and_then(|level| finding.distance_spread.get(level));
            let distance = level.and_then(|level| finding.distances.get(level));
            spread
                .zip(distance)
                .map_or(0.0, |(spread, distance)| (spread / distance.max(f64::MIN_POSITIVE)).ln_1p())
        }
    };
    let std_error = of_threshold.hypot(of_finding).max(0.05);
    Normal::standard().cdf(strength.max(f64::MIN_POSITIVE).ln() / std_error)
}
