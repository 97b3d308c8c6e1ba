//! The channels of a window: the four rates of a thread, and optional readings of its job's control group.

use serde::{Deserialize, Serialize};
use workload::{JobReading, Millis, Pressure, Timestamp};

/// User, system, iowait, other: fractions of a step that sum to one. Networks do not get `other` as an input, because the
/// first three determine it.
pub const N_RATES: usize = 4;
pub const RATES: [&str; N_RATES] = ["user", "system", "iowait", "other"];

/// A job reading is used for this many steps if the next one is missing.
pub(crate) const MAX_BRIDGED: usize = 5;

/// A channel in addition to the rates. All are between zero and one by definition; nothing is scaled by the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobChannel {
    /// Memory in use, as log2(bytes + 1) / 48: 256 TiB is one.
    Memory,
    /// The fraction of a step during which some task of the job waited (pressure stall information).
    CpuPressure,
    MemoryPressure,
    IoPressure,
}

impl JobChannel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::CpuPressure => "cpu_pressure",
            Self::MemoryPressure => "memory_pressure",
            Self::IoPressure => "io_pressure",
        }
    }

    fn pressure(self, reading: &JobReading) -> Option<Pressure> {
        match self {
            Self::Memory => None,
            Self::CpuPressure => Some(reading.cpu_pressure),
            Self::MemoryPressure => Some(reading.memory_pressure),
            Self::IoPressure => Some(reading.io_pressure),
        }
    }

    /// The value at each of `n_steps` steps from `from` on, from the readings of one job in order of time; absent
    /// where there is no reading.
    pub fn series(
        self,
        readings: &[(Timestamp, JobReading)],
        from: Timestamp,
        period: Millis,
        n_steps: usize,
    ) -> Vec<Option<f32>> {
        let mut steps = vec![None; n_steps];
        let mut before: Option<(Timestamp, u64)> = None;
        for (time, reading) in readings {
            let value = match self.pressure(reading) {
                None => reading.memory_bytes.map(|bytes| ((bytes as f32 + 1.0).log2() / 48.0).min(1.0)),
                Some(pressure) => {
                    let Some(now) = pressure.some_usec else { continue };
                    let since = before.replace((*time, now));
                    since.filter(|(then, _)| then < time).map(|(then, total)| {
                        let waited = now.saturating_sub(total) as f64 / 1e6;
                        (waited / (*time - then).as_seconds()).min(1.0) as f32
                    })
                }
            };
            let step = (*time - from).0.div_euclid(period.0);
            if let Some(value) = value {
                let end = (step + MAX_BRIDGED as i64).clamp(0, n_steps as i64) as usize;
                let first = (step.max(0) as usize).min(end);
                steps[first..end].fill(Some(value));
            }
        }
        steps
    }
}

/// The names of all channels: the rates, then the job channels.
pub fn names(job_channels: &[JobChannel]) -> Vec<&'static str> {
    RATES.into_iter().chain(job_channels.iter().map(|channel| channel.name())).collect()
}

#[cfg(test)]
mod tests {
    use workload::JobId;

    use super::*;

    #[test]
    fn pressure_is_the_fraction_of_time_waited_and_a_missed_reading_is_bridged() {
        let reading = |second: i64, waited: u64| {
            let mut reading = JobReading::empty(JobId::new("1").unwrap());
            reading.io_pressure.some_usec = Some(waited);
            reading.memory_bytes = Some(1 << 24);
            (Timestamp(second * 1_000), reading)
        };
        let readings = [reading(10, 0), reading(11, 250_000), reading(13, 1_250_000)];
        let series = JobChannel::IoPressure.series(&readings, Timestamp(10_000), Millis::SECOND, 12);
        assert_eq!(series[..4], [None, Some(0.25), Some(0.25), Some(0.5)]);
        assert_eq!((series[7], series[8]), (Some(0.5), None));
        let memory = JobChannel::Memory.series(&readings, Timestamp(10_000), Millis::SECOND, 1);
        assert!((memory[0].unwrap() - 0.5).abs() < 1e-6);
    }
}
