//! The time of each hardware thread, from `/proc/stat`.

use std::io;
use std::path::{Path, PathBuf};

use workload::{Cpu, Measure, Millis, Mode, ModeSet, Owner, Source, ThreadReading, Ticks};

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
}

impl CpuCollector {
    pub fn new(procfs: &Path) -> Self {
        Self { stat: procfs.join("stat") }
    }

    /// What the ticks of this collector mean.
    pub fn source(&self, period: Millis) -> Source {
        Source {
            origin: "/proc/stat".into(),
            measure: Measure::Counter,
            ticks_per_second: u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100),
            modes: ModeSet::ALL,
            period,
        }
    }

    /// The threads that are online. Who owns them is not known to this file.
    pub fn read(&self) -> Result<Vec<ThreadReading>, CpuError> {
        let text = std::fs::read_to_string(&self.stat)
            .map_err(|source| CpuError::Io { path: self.stat.clone(), source })?;
        let threads: Vec<ThreadReading> = text.lines().filter_map(parse_line).collect();
        if threads.is_empty() { Err(CpuError::NoCpus { path: self.stat.clone() }) } else { Ok(threads) }
    }
}

/// A line such as `cpu12 3357 0 4313 1362393 12 0 8 0 0 0`. Old kernels have fewer columns; a
/// line with a number cut short or garbled is left out rather than guessed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_a_thread_and_the_sum_of_all_is_none() {
        let thread = parse_line("cpu12 3357 1 4313 1362393 12 2 8 5 0 0").unwrap();
        assert_eq!((thread.cpu, thread.ticks), (Cpu(12), Ticks([3357, 1, 4313, 1_362_393, 12, 2, 8, 5])));
        assert_eq!(parse_line("cpu  3357 1 4313 1362393 12 2 8 5 0 0"), None);
        assert_eq!(parse_line("ctxt 22323"), None);
    }

    #[test]
    fn an_old_kernel_has_fewer_columns() {
        assert_eq!(parse_line("cpu0 1 2 3 4").unwrap().ticks, Ticks([1, 2, 3, 4, 0, 0, 0, 0]));
        assert_eq!(parse_line("cpu0 1 2 3"), None);
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC{0,60}") {
            let _ = parse_line(&line);
        }
    }
}
