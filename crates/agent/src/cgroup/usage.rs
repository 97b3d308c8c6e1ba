//! What a group has used, from its own files, in both versions of control groups. What is missing
//! or garbled is absent, never zero.

use std::path::Path;

use workload::{JobId, JobReading, Pressure};

use super::tree::Trees;
use crate::kernel::{Buffer, Folder, lines, value_of};
use crate::pressure;

/// Where version 1 has no limit, it shows the largest number of pages it can count.
const NO_LIMIT: u64 = 1 << 60;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_user_usec: Option<u64>,
    pub cpu_system_usec: Option<u64>,
    /// Time in which the group was kept from running by its quota.
    pub throttled_usec: Option<u64>,
    pub periods: Option<u64>,
    pub throttled_periods: Option<u64>,
    /// All memory charged to the group, the page cache of its files included.
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    /// Absent when there is no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Memory of its processes, without files.
    pub anon_bytes: Option<u64>,
    /// The page cache of its files.
    pub file_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// Version 2 only: version 1 does not count those of groups below.
    pub oom_kills: Option<u64>,
    pub io: Option<Io>,
    /// Processes and their threads.
    pub tasks: Option<u64>,
    pub cpu_pressure: Pressure,
    pub memory_pressure: Pressure,
    pub io_pressure: Pressure,
}

/// What went to and from block devices, all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Io {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

impl Usage {
    /// Reads the files of the group at `path` below the roots of its trees.
    pub fn read(trees: &Trees, path: &str, buffer: &mut Buffer) -> Self {
        let mut usage = Self::default();
        if let Some(group) = trees.unified.as_ref().and_then(|tree| Folder::open(&tree.join(path)).ok()) {
            usage.read_unified(&group, buffer);
        }
        if trees.unified.as_ref() != Some(&trees.memory) {
            usage.read_legacy(trees, path, buffer);
        }
        usage
    }

    fn read_unified(&mut self, group: &Folder, buffer: &mut Buffer) {
        if let Some(text) = group.read("cpu.stat", buffer) {
            let value = |key| value_of(text, key);
            self.cpu_user_usec = value("user_usec");
            self.cpu_system_usec = value("system_usec");
            self.throttled_usec = value("throttled_usec");
            self.periods = value("nr_periods");
            self.throttled_periods = value("nr_throttled");
        }
        self.memory_bytes = group.number("memory.current", buffer);
        self.memory_peak_bytes = group.number("memory.peak", buffer);
        // "max" means that there is no limit.
        self.memory_limit_bytes = group.number("memory.max", buffer);
        if let Some(text) = group.read("memory.stat", buffer) {
            self.anon_bytes = value_of(text, "anon");
            self.file_bytes = value_of(text, "file");
        }
        self.swap_bytes = group.number("memory.swap.current", buffer);
        self.oom_kills = group.read("memory.events", buffer).and_then(|text| value_of(text, "oom_kill"));
        self.io = group.read("io.stat", buffer).map(io_stat);
        self.tasks = group.number("pids.current", buffer);
        let mut pressure = |name| group.read(name, buffer).map_or_else(Pressure::default, pressure::parse);
        self.cpu_pressure = pressure("cpu.pressure");
        self.memory_pressure = pressure("memory.pressure");
        self.io_pressure = pressure("io.pressure");
    }

    fn read_legacy(&mut self, trees: &Trees, path: &str, buffer: &mut Buffer) {
        let open = |tree: &Path| Folder::open(&tree.join(path)).ok();
        if let Some(group) = open(&trees.cpuacct) {
            let tick = 1_000_000 / u64::from(crate::cpu::ticks_per_second());
            if let Some(text) = group.read("cpuacct.stat", buffer) {
                self.cpu_user_usec = value_of(text, "user").map(|ticks| ticks * tick);
                self.cpu_system_usec = value_of(text, "system").map(|ticks| ticks * tick);
            }
        }
        if let Some(group) = open(&trees.cpu)
            && let Some(text) = group.read("cpu.stat", buffer)
        {
            self.throttled_usec = value_of(text, "throttled_time").map(|nanoseconds| nanoseconds / 1_000);
            self.periods = value_of(text, "nr_periods");
            self.throttled_periods = value_of(text, "nr_throttled");
        }
        if let Some(group) = open(&trees.memory) {
            self.memory_bytes = group.number("memory.usage_in_bytes", buffer);
            self.memory_peak_bytes = group.number("memory.max_usage_in_bytes", buffer);
            self.memory_limit_bytes =
                group.number("memory.limit_in_bytes", buffer).filter(|limit| *limit < NO_LIMIT);
            if let Some(text) = group.read("memory.stat", buffer) {
                self.anon_bytes = value_of(text, "total_rss");
                self.file_bytes = value_of(text, "total_cache");
                self.swap_bytes = value_of(text, "total_swap");
            }
        }
        if let Some(group) = open(&trees.blkio) {
            let mut count = |name| group.read(name, buffer).map(blkio);
            if let (Some(bytes), Some(times)) = (
                count("blkio.throttle.io_service_bytes_recursive"),
                count("blkio.throttle.io_serviced_recursive"),
            ) {
                let ((read_bytes, write_bytes), (reads, writes)) = (bytes, times);
                self.io = Some(Io { read_bytes, write_bytes, reads, writes });
            }
        }
        if let Some(group) = open(&trees.pids) {
            self.tasks = group.number("pids.current", buffer);
        }
    }

    /// What the archive keeps of it.
    pub fn reading(&self, job: JobId, node_memory_bytes: Option<u64>) -> JobReading {
        JobReading {
            job,
            memory_bytes: self.memory_bytes,
            memory_peak_bytes: self.memory_peak_bytes,
            memory_limit_bytes: self.memory_limit_bytes,
            cpu_pressure: self.cpu_pressure,
            memory_pressure: self.memory_pressure,
            io_pressure: self.io_pressure,
            cpu_user_usec: self.cpu_user_usec,
            cpu_system_usec: self.cpu_system_usec,
            node_memory_bytes,
        }
    }
}

/// Lines such as `8:0 rbytes=180224 wbytes=0 rios=3 wios=0 dbytes=0 dios=0`.
pub fn io_stat(text: &str) -> Io {
    let mut io = Io::default();
    for field in lines(text).flat_map(str::split_ascii_whitespace) {
        let Some((key, value)) = field.split_once('=') else { continue };
        let Ok(value) = value.parse::<u64>() else { continue };
        let count = match key {
            "rbytes" => &mut io.read_bytes,
            "wbytes" => &mut io.write_bytes,
            "rios" => &mut io.reads,
            "wios" => &mut io.writes,
            _ => continue,
        };
        *count = count.saturating_add(value);
    }
    io
}

/// Reads and writes out of lines such as `8:0 Read 180224`; `Total` lines repeat them.
pub fn blkio(text: &str) -> (u64, u64) {
    let sum = |what: &str| {
        let values = lines(text).filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            (fields.next()? == what).then(|| fields.next()?.parse::<u64>().ok()).flatten()
        });
        values.fold(0u64, u64::saturating_add)
    };
    (sum("Read"), sum("Write"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_are_added_up() {
        let text =
            "8:0 rbytes=10 wbytes=1 rios=3 wios=4 dbytes=0 dios=0\n253:0 rbytes=5 wbytes=2\n8:16 rbytes=7";
        assert_eq!(io_stat(text), Io { read_bytes: 15, write_bytes: 3, reads: 3, writes: 4 });
        assert_eq!(blkio("8:0 Read 10\n8:0 Write 2\n8:16 Read 1\n8:0 Total 12\nTotal 13\n"), (11, 2));
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,80}") {
            let _ = (io_stat(&text), blkio(&text));
        }
    }
}
