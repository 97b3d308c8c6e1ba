//! What the agent itself takes, under the names that every exporter has for it.

use std::io;
use std::path::{Path, PathBuf};

use crate::exposition::{Family, Kind, Sink};
use crate::kernel::{Buffer, lines};

#[derive(Debug, Clone)]
pub struct OwnCollector {
    folder: PathBuf,
    buffer: Buffer,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Own {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
}

impl OwnCollector {
    /// The agent reads its own usage from the real `/proc`, also if another root is configured.
    pub fn new() -> Self {
        Self { folder: Path::new("/proc/self").to_owned(), buffer: Buffer::default() }
    }

    pub fn read(&mut self) -> io::Result<Own> {
        let garbled = |name| io::Error::new(io::ErrorKind::InvalidData, format!("{name} is garbled"));
        let ticks = cpu_ticks(self.buffer.read(&self.folder.join("stat"))?).ok_or_else(|| garbled("stat"))?;
        let status = self.buffer.read(&self.folder.join("status"))?;
        let kilobytes = |key| value_after(status, key).map(|kilobytes| kilobytes * 1024);
        Ok(Own {
            cpu_seconds: ticks as f64 / f64::from(crate::cpu::ticks_per_second()),
            resident_bytes: kilobytes("VmRSS:").ok_or_else(|| garbled("status"))?,
            virtual_bytes: kilobytes("VmSize:").ok_or_else(|| garbled("status"))?,
            threads: value_after(status, "Threads:").ok_or_else(|| garbled("status"))?,
        })
    }
}

impl Default for OwnCollector {
    fn default() -> Self {
        Self::new()
    }
}

fn value_after(status: &str, key: &str) -> Option<u64> {
    lines(status).find_map(|line| line.strip_prefix(key)?.split_ascii_whitespace().next()?.parse().ok())
}

/// User and system ticks: the 14th and 15th field, counted after the name, which may have blanks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

pub fn expose(own: &Own, sink: &mut impl Sink) {
    for (name, kind, value, help) in [
        (
            "process_cpu_seconds_total",
            Kind::Counter,
            own.cpu_seconds,
            "User and system time that the agent itself took, in seconds.",
        ),
        (
            "process_resident_memory_bytes",
            Kind::Gauge,
            own.resident_bytes as f64,
            "Memory that the agent itself has resident.",
        ),
        (
            "process_virtual_memory_bytes",
            Kind::Gauge,
            own.virtual_bytes as f64,
            "Address space of the agent itself.",
        ),
        ("process_threads", Kind::Gauge, own.threads as f64, "Threads of the agent itself."),
    ] {
        sink.family(Family { name, kind, help });
        sink.sample(&[], value, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_shifts_nothing() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 120 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(150));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn this_process_has_a_size() {
        let own = OwnCollector::new().read().unwrap();
        assert!(own.resident_bytes > 0 && own.threads > 0 && own.virtual_bytes >= own.resident_bytes);
    }
}
