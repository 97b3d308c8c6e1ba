//! The memory of the node, from `/proc/meminfo`.

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
    /// The kernel's name as metrics are written: `MemTotal` is `mem_total`.
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

    /// The memory of the node that programs can use.
    pub fn total_bytes(&mut self) -> Option<u64> {
        self.read().ok()?.into_iter().find(|line| line.name == "mem_total").map(|line| line.value)
    }
}

/// Lines such as `Active(anon):    1234 kB` and `HugePages_Total:       0`.
pub fn parse(text: &str) -> Vec<Memory> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let mut fields = rest.split_ascii_whitespace();
        let number: u64 = fields.next()?.parse().ok()?;
        let is_bytes = fields.next() == Some("kB");
        let value = if is_bytes { number.checked_mul(1024)? } else { number };
        let name = snake_case(name);
        // A gauge that is not a size must not have the suffix of a counter.
        let name = if is_bytes { name } else { name.trim_end_matches("_total").to_owned() };
        (!name.is_empty()).then_some(Memory { name, value, is_bytes })
    };
    lines(text).filter_map(line).collect()
}

fn snake_case(name: &str) -> String {
    let mut written = String::with_capacity(name.len() + 4);
    let mut before = '_';
    for letter in name.trim_end_matches(')').chars() {
        let begins_word = letter.is_ascii_uppercase() && !before.is_ascii_uppercase();
        let letter = if letter.is_ascii_alphanumeric() { letter } else { '_' };
        if begins_word && !written.is_empty() && !written.ends_with('_') {
            written.push('_');
        }
        written.push(letter.to_ascii_lowercase());
        before = letter;
    }
    written
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
    fn names_are_written_as_metrics_are() {
        let text = "MemTotal:  16 kB\nActive(anon): 2 kB\nHugePages_Total:  3\nDirectMap4k: 1 kB\n\
                    NFS_Unstable: 0 kB\nSReclaimable: 0 kB\nodd\nHalf: 12";
        let found = parse(text);
        let shown: Vec<(&str, u64)> = found.iter().map(|line| (line.name.as_str(), line.value)).collect();
        assert_eq!(
            shown,
            [
                ("mem_total", 16_384),
                ("active_anon", 2_048),
                ("huge_pages", 3),
                ("direct_map4k", 1_024),
                ("nfs_unstable", 0),
                ("sreclaimable", 0)
            ]
        );
    }
}
