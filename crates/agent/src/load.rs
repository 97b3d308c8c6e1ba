//! The load averages of the node, from `/proc/loadavg`.

use std::io;
use std::path::{Path, PathBuf};

use workload::Timestamp;

use crate::exposition::{Family, Kind, Sink};
use crate::kernel::{Buffer, lines};

#[derive(Debug, Clone)]
pub struct LoadCollector {
    path: PathBuf,
    buffer: Buffer,
}

impl LoadCollector {
    pub fn new(procfs: &Path) -> Self {
        Self { path: procfs.join("loadavg"), buffer: Buffer::default() }
    }

    pub fn read(&mut self) -> io::Result<[f64; 3]> {
        let garbled = || io::Error::new(io::ErrorKind::InvalidData, "it has no three load averages");
        parse(self.buffer.read(&self.path)?).ok_or_else(garbled)
    }
}

/// `0.20 0.18 0.12 1/80 11206`.
pub fn parse(text: &str) -> Option<[f64; 3]> {
    let mut fields = lines(text).next()?.split_ascii_whitespace();
    let mut next = || fields.next()?.parse().ok().filter(|load: &f64| load.is_finite());
    Some([next()?, next()?, next()?])
}

pub fn expose(load: &[f64; 3], time: Timestamp, sink: &mut impl Sink) {
    for (name, value, help) in [
        ("tracewise_load1", load[0], "Tasks that ran or waited to, over 1 minute."),
        ("tracewise_load5", load[1], "Tasks that ran or waited to, over 5 minutes."),
        ("tracewise_load15", load[2], "Tasks that ran or waited to, over 15 minutes."),
    ] {
        sink.family(Family { name, kind: Kind::Gauge, help });
        sink.sample(&[], value, Some(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_or_nothing() {
        assert_eq!(parse("0.20 0.18 0.12 1/80 11206\n"), Some([0.2, 0.18, 0.12]));
        for bad in ["", "0.20 0.18\n", "a b c\n", "0.20 0.18 0.12"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
