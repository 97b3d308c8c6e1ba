//! How long tasks of the node waited for a resource, from `/proc/pressure`.

use std::io;
use std::path::{Path, PathBuf};

use workload::{Pressure, Timestamp};

use crate::exposition::{Family, Kind, Sink};
use crate::kernel::{Buffer, lines};

pub const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

#[derive(Debug, Clone)]
pub struct PressureCollector {
    folder: PathBuf,
    buffer: Buffer,
}

impl PressureCollector {
    pub fn new(procfs: &Path) -> Self {
        Self { folder: procfs.join("pressure"), buffer: Buffer::default() }
    }

    /// In the order of [`RESOURCES`]. A kernel without it is an error worth a word, as node
    /// exporters have it.
    pub fn read(&mut self) -> io::Result<[Pressure; 3]> {
        let mut found = [Pressure::default(); 3];
        for (pressure, resource) in found.iter_mut().zip(RESOURCES) {
            *pressure = parse(self.buffer.read(&self.folder.join(resource))?);
        }
        Ok(found)
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, and the same for `full`.
pub fn parse(text: &str) -> Pressure {
    let total = |kind: &str| {
        let line = lines(text).find(|line| line.starts_with(kind))?;
        line.split_ascii_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
    };
    Pressure { some_usec: total("some "), full_usec: total("full ") }
}

pub fn expose(pressure: &[Pressure; 3], time: Timestamp, sink: &mut impl Sink) {
    for (resource, pressure) in RESOURCES.into_iter().zip(pressure) {
        // Of a whole node, all tasks never wait for CPUs: the kernel counts nothing there.
        let stalled = pressure.full_usec.filter(|_| resource != "cpu");
        for (what, usec, help) in [
            (
                "waiting",
                pressure.some_usec,
                "Seconds in which some task of the node waited for this resource.",
            ),
            ("stalled", stalled, "Seconds in which all tasks of the node waited for this resource."),
        ] {
            let Some(usec) = usec else { continue };
            let name = format!("tracewise_pressure_{resource}_{what}_seconds_total");
            sink.family(Family { name: &name, kind: Kind::Counter, help });
            sink.sample(&[], usec as f64 / 1e6, Some(time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_in_whole_lines_only() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3";
        assert_eq!(parse(text), Pressure { some_usec: Some(12), full_usec: None });
        assert_eq!(parse("some total=x\n"), Pressure::default());
    }
}
