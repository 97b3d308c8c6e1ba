//! The memory of the node, from `/proc/meminfo`. Names follow node_exporter's, with our prefix.

use std::io;
use std::path::{Path, PathBuf};

use workload::Timestamp;

use crate::exposition::{Family, Kind, Sink};
use crate::kernel::{Buffer, lines};

#[derive(Debug, Clone)]
pub struct MemoryCollector {
    path: PathBuf,
    buffer: Buffer,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The kernel's name with whatever a metric's name cannot have replaced: `Active_anon`.
    pub name: String,
    pub value: u64,
    /// Some lines count pages, not bytes.
    pub is_bytes: bool,
}

impl MemoryCollector {
    pub fn new(procfs: &Path) -> Self {
        Self { path: procfs.join("meminfo"), buffer: Buffer::default() }
    }

    pub fn read(&mut self) -> io::Result<Vec<Memory>> {
        Ok(parse(self.buffer.read(&self.path)?))
    }
}

/// Lines such as `Active(anon):    1234 kB` and `HugePages_Total:       0`.
pub fn parse(text: &str) -> Vec<Memory> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let name = name.trim_end_matches(')').replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        let mut fields = rest.split_ascii_whitespace();
        let number: u64 = fields.next()?.parse().ok()?;
        let is_bytes = fields.next() == Some("kB");
        let value = if is_bytes { number.checked_mul(1024)? } else { number };
        (!name.is_empty()).then_some(Memory { name, value, is_bytes })
    };
    lines(text).filter_map(line).collect()
}

pub fn expose(memory: &[Memory], time: Timestamp, sink: &mut impl Sink) {
    for line in memory {
        let unit = if line.is_bytes { "_bytes" } else { "" };
        sink.family(Family {
            name: &format!("tracewise_memory_{}{unit}", line.name),
            kind: Kind::Gauge,
            help: "Memory of the node, as /proc/meminfo has it.",
        });
        sink.sample(&[], line.value as f64, Some(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_units_are_those_of_node_exporter() {
        let found = parse("MemTotal:  16 kB\nActive(anon): 2 kB\nHugePages_Total:  3\nodd\nHalf: 12");
        let shown: Vec<(&str, u64)> = found.iter().map(|line| (line.name.as_str(), line.value)).collect();
        assert_eq!(shown, [("MemTotal", 16_384), ("Active_anon", 2_048), ("HugePages_Total", 3)]);
    }
}
