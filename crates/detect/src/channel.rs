//! The channels of a window: the four rates of a thread, and optional readings of its job's control group.

use serde::{Deserialize, Serialize};
use workload::{JobReading, Millis, Pressure, Timestamp};

/// User, system, iowait, other: fractions of a step that sum to one. Networks do not get `other` as an input, because the
/// first three determine it.
pub const N_RATES: usize = 4;
pub const RATES: [&str; N_RATES] = ["user", "system", "iowait", "other"];

/// Readings of a job further apart than this many of its own intervals are not connected.
const MAX_INTERVALS: i64 = 4;

/// A channel in addition to the rates. All are between zero and one by definition; nothing is scaled by the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobChannel {
    /// Memory in use, as a fraction of the job's limit, or of the node's memory if it has none.
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
    /// where readings are too far apart. Between two readings memory is interpolated, and pressure is the mean of that
    /// time; the last reading holds for one interval of the source.
    pub fn series(
        self,
        readings: &[(Timestamp, JobReading)],
        from: Timestamp,
        period: Millis,
        n_steps: usize,
    ) -> Vec<Option<f32>> {
        let mut steps = vec![None; n_steps];
        let interval = interval_of(readings, period);
        let step_of = |time: Timestamp| (time - from).0.div_euclid(period.0);
        let mut fill = |first: i64, end: i64, value: &dyn Fn(i64) -> f32| {
            for step in first.max(0)..end.min(n_steps as i64) {
                steps[step as usize] = Some(value(step).clamp(0.0, 1.0));
            }
        };
        let mut last = None;
        for pair in readings.windows(2) {
            let [(then, before), (now, after)] = pair else { continue };
            let elapsed = *now - *then;
            let Some((begin, end)) = self.values(before, after, elapsed) else { continue };
            if elapsed.0 > MAX_INTERVALS * interval.0 || elapsed.0 <= 0 {
                continue;
            }
            let (first, next) = (step_of(*then), step_of(*now));
            let slope = (end - begin) / (next - first).max(1) as f32;
            fill(first, next, &|step| begin + slope * (step - first) as f32);
            last = Some((next, end));
        }
        if let Some((first, value)) = last {
            fill(first, first + (interval.0 / period.0).max(1) + 1, &|_| value);
        }
        steps
    }

    /// The values at the first and at the second of two readings.
    fn values(self, before: &JobReading, after: &JobReading, elapsed: Millis) -> Option<(f32, f32)> {
        let (Some(then), Some(now)) = (self.pressure(before), self.pressure(after)) else {
            return memory_fraction(before).zip(memory_fraction(after));
        };
        let waited = now.some_usec?.saturating_sub(then.some_usec?) as f64 / 1e6;
        let fraction = (waited / elapsed.as_seconds()) as f32;
        Some((fraction, fraction))
    }
}

/// The memory of a job as a fraction of its limit, or of the node's memory; absent if neither is known.
pub fn memory_fraction(reading: &JobReading) -> Option<f32> {
    let bounds = [reading.memory_limit_bytes, reading.node_memory_bytes];
    let bound = bounds.into_iter().flatten().filter(|bytes| *bytes > 0).min()?;
    Some((reading.memory_bytes? as f64 / bound as f64).min(1.0) as f32)
}

/// How often a job is read: the median time between two readings, at least a step.
fn interval_of(readings: &[(Timestamp, JobReading)], period: Millis) -> Millis {
    let mut gaps: Vec<i64> = readings.windows(2).map(|pair| (pair[1].0 - pair[0].0).0).collect();
    gaps.sort_unstable();
    Millis(gaps.get(gaps.len() / 2).copied().unwrap_or(0).max(period.0))
}

/// Whether a word is the name of a channel.
pub fn is_channel(word: &str) -> bool {
    let of_jobs =
        [JobChannel::Memory, JobChannel::CpuPressure, JobChannel::MemoryPressure, JobChannel::IoPressure];
    RATES.contains(&word) || of_jobs.iter().any(|channel| channel.name() == word)
}

/// The names of all channels: the rates, then the job channels.
pub fn names(job_channels: &[JobChannel]) -> Vec<&'static str> {
    RATES.into_iter().chain(job_channels.iter().map(|channel| channel.name())).collect()
}

#[cfg(test)]
mod tests {
    use workload::JobId;

    use super::*;

    fn reading(second: i64, waited: u64, bytes: u64) -> (Timestamp, JobReading) {
        let mut reading = JobReading::empty(JobId::new("1").unwrap());
        reading.io_pressure.some_usec = Some(waited);
        reading.memory_bytes = Some(bytes);
        reading.memory_limit_bytes = Some(1_000);
        (Timestamp(second * 1_000), reading)
    }

    #[test]
    fn pressure_is_the_fraction_of_time_waited_and_a_missed_reading_is_bridged() {
        let readings = [reading(10, 0, 1), reading(11, 250_000, 1), reading(13, 1_250_000, 1)];
        let series = JobChannel::IoPressure.series(&readings, Timestamp(10_000), Millis::SECOND, 8);
        assert_eq!(series[..4], [Some(0.25), Some(0.5), Some(0.5), Some(0.5)]);
        assert_eq!((series[4], series[6]), (Some(0.5), None));
    }

    #[test]
    fn memory_is_a_fraction_of_its_bound_and_interpolated_between_readings() {
        let mut readings = vec![reading(0, 0, 100), reading(10, 0, 200), reading(20, 0, 400)];
        let series = JobChannel::Memory.series(&readings, Timestamp(0), Millis::SECOND, 40);
        let at = |series: &[Option<f32>], step: usize| series[step].map(|value| (value * 1e4).round() / 1e4);
        assert_eq!(
            [0, 5, 10, 15, 20, 30].map(|step| at(&series, step)),
            [0.1, 0.15, 0.2, 0.3, 0.4, 0.4].map(Some)
        );
        assert_eq!(series[31], None, "the last reading holds for one interval");
        readings.extend([reading(90, 0, 400), reading(100, 0, 400)]);
        let series = JobChannel::Memory.series(&readings, Timestamp(0), Millis::SECOND, 120);
        assert_eq!((series[25], series[60], at(&series, 95)), (None, None, Some(0.4)), "too far apart");
    }

    #[test]
    fn the_lower_of_limit_and_memory_of_the_node_bounds_a_job() {
        let mut one = reading(0, 0, 500).1;
        one.node_memory_bytes = Some(4_000);
        assert_eq!(memory_fraction(&one), Some(0.5));
        one.memory_limit_bytes = None;
        assert_eq!(memory_fraction(&one), Some(0.125));
        one.node_memory_bytes = None;
        assert_eq!(memory_fraction(&one), None);
    }
}
