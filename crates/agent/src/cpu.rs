//! The time of each hardware thread, from `/proc/stat`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use workload::derive::is_correction;
use workload::{Cpu, Measure, Millis, Mode, ModeSet, Owner, Source, ThreadReading, Ticks, Timestamp, metric};

use crate::exposition::{Family, Kind, Sink};
use crate::kernel::{Buffer, lines};

#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} has no line for any CPU")]
    NoCpus { path: PathBuf },
}

/// Reads the threads below a `/proc` root.
#[derive(Debug, Clone)]
pub struct CpuCollector {
    stat: PathBuf,
    buffer: Buffer,
}

impl CpuCollector {
    pub fn new(procfs: &Path) -> Self {
        Self { stat: procfs.join("stat"), buffer: Buffer::default() }
    }

    /// What the ticks of this collector mean.
    pub fn source(&self, period: Millis) -> Source {
        Source {
            origin: "/proc/stat".into(),
            measure: Measure::Counter,
            ticks_per_second: ticks_per_second(),
            modes: ModeSet::ALL,
            period,
        }
    }

    /// The threads that are online. Who owns them is not known to this file.
    pub fn read(&mut self) -> Result<Vec<ThreadReading>, CpuError> {
        let text = self
            .buffer
            .read(&self.stat)
            .map_err(|source| CpuError::Io { path: self.stat.clone(), source })?;
        let threads = parse(text);
        if threads.is_empty() { Err(CpuError::NoCpus { path: self.stat.clone() }) } else { Ok(threads) }
    }
}

/// The unit of `/proc/stat`: 100 per second on all current systems.
pub fn ticks_per_second() -> u32 {
    u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100)
}

/// The threads in the text of a `/proc/stat`.
pub fn parse(text: &str) -> Vec<ThreadReading> {
    // The threads come first; what follows them is long.
    lines(text).take_while(|line| line.starts_with("cpu")).filter_map(parse_line).collect()
}

/// A line such as `cpu12 3357 0 4313 1362393 12 0 8 0 0 0`. Old kernels have fewer columns; a
/// line with a number that is garbled is left out rather than guessed.
fn parse_line(line: &str) -> Option<ThreadReading> {
    let mut fields = line.split_ascii_whitespace();
    let cpu = Cpu(fields.next()?.strip_prefix("cpu")?.parse().ok()?);
    let mut ticks = Ticks::default();
    let mut n_modes = 0;
    for (mode, field) in Mode::ALL.into_iter().zip(fields) {
        ticks[mode] = field.parse().ok()?;
        n_modes += 1;
    }
    // User, nice, system and idle have been there since the first kernels.
    (n_modes >= 4).then_some(ThreadReading { cpu, ticks, owner: Owner::Unknown })
}

/// Counters that never decrease by a correction. The kernel sometimes corrects its idle and iowait time
/// downwards, which Prometheus would take for a counter reset.
#[derive(Debug, Clone, Default)]
pub struct Monotone {
    last: BTreeMap<Cpu, Ticks>,
}

impl Monotone {
    /// Keeps the previous value of a counter that was corrected. One that lost more has started again.
    pub fn hold(&mut self, threads: &mut [ThreadReading]) {
        let ticks_per_second = ticks_per_second();
        for thread in threads {
            let last = self.last.entry(thread.cpu).or_insert(thread.ticks);
            for mode in Mode::ALL {
                let (before, now) = (last[mode], thread.ticks[mode]);
                let is_taken_back = now < before && is_correction(before - now, ticks_per_second);
                thread.ticks[mode] = if is_taken_back { before } else { now };
            }
            *last = thread.ticks;
        }
    }
}

/// The counters carry the time of their reading. Owners carry none, so that Prometheus ends their series
/// at once.
pub fn expose(threads: &[ThreadReading], time: Timestamp, sink: &mut impl Sink) {
    expose_seconds(threads, time, sink);
    expose_owners(threads, None, sink);
}

pub fn expose_seconds(threads: &[ThreadReading], time: Timestamp, sink: &mut impl Sink) {
    let ticks_per_second = f64::from(ticks_per_second());
    sink.family(Family {
        name: metric::CPU_SECONDS,
        kind: Kind::Counter,
        help: "Seconds each hardware thread spent in each mode, as the kernel counts them.",
    });
    let mut number = String::new();
    for thread in threads {
        crate::exposition::set_number(&mut number, thread.cpu.0.into());
        for mode in Mode::ALL {
            let seconds = thread.ticks[mode] as f64 / ticks_per_second;
            sink.sample(&[("cpu", &number), ("mode", mode.name())], seconds, Some(time));
        }
    }
}

pub fn expose_owners(threads: &[ThreadReading], time: Option<Timestamp>, sink: &mut impl Sink) {
    sink.family(Family {
        name: metric::CPU_OWNER,
        kind: Kind::Info,
        help: "Who each hardware thread works for: one job, several (shared), nobody, or unknown because \
               jobs run without a cpuset.",
    });
    let mut number = String::new();
    for thread in threads {
        crate::exposition::set_number(&mut number, thread.cpu.0.into());
        let job = thread.owner.job().map_or("", |job| job.as_str());
        sink.sample(&[("cpu", &number), ("owner", thread.owner.state()), ("jobid", job)], 1.0, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_a_thread_and_the_sum_of_all_is_none() {
        let thread = parse_line("cpu12 3357 1 4313 1362393 12 2 8 5 0 0").unwrap();
        assert_eq!((thread.cpu, thread.ticks), (Cpu(12), Ticks([3357, 1, 4313, 1_362_393, 12, 2, 8, 5])));
        assert_eq!(parse_line("cpu  3357 1 4313 1362393 12 2 8 5 0 0"), None);
        assert_eq!(parse("cpu 1 2 3 4\ncpu0 1 2 3 4\nintr 5\ncpu1 1 2 3 4\n").len(), 1);
    }

    #[test]
    fn time_that_is_taken_back_is_not_shown_and_a_new_beginning_is() {
        let mut monotone = Monotone::default();
        let mut shown = |idle: u64| {
            let mut threads = parse(&format!("cpu0 1 2 3 {idle} 5 6 7 8\n"));
            monotone.hold(&mut threads);
            threads[0].ticks[Mode::Idle]
        };
        assert_eq!([1_000, 999, 1_001, 702, 701, 5].map(&mut shown), [1_000, 1_000, 1_001, 1_001, 701, 5]);
    }

    #[test]
    fn a_half_written_line_is_left_out() {
        assert_eq!(parse("cpu0 1 2 3 4 5 6 7 8\ncpu1 1 2 3 45").len(), 1);
        assert_eq!(parse("cpu0 1 2 3 4x\n").len(), 0);
    }

    #[test]
    fn an_old_kernel_has_fewer_columns() {
        assert_eq!(parse_line("cpu0 1 2 3 4").unwrap().ticks, Ticks([1, 2, 3, 4, 0, 0, 0, 0]));
        assert_eq!(parse_line("cpu0 1 2 3"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }
    }
}
