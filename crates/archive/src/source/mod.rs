//! Where readings come from in bulk.

pub mod agent;
pub mod column_map;
pub mod csv;
pub mod prometheus;

pub use agent::AgentImport;
pub use column_map::ColumnMap;
pub use csv::CsvImport;
pub use prometheus::{PrometheusImport, PrometheusQuery};

pub use crate::peer::PeerSettings;

pub use files::Limits;
use workload::{Millis, NodeName, Source, Timestamp};

use crate::error::{Error, Result};
use crate::layout::{check_node, check_time};

/// How far the clock of a node may be ahead of ours.
const MAX_AHEAD: Millis = Millis::HOUR;

/// What an import accepts.
#[derive(Debug, Clone, Copy)]
pub struct Intake {
    /// How large files and responses may be.
    pub limits: Limits,
    /// The time of the import. Readings may be up to an hour later, because clocks differ.
    pub now: Timestamp,
}

impl Intake {
    /// Checks where and when a reading was taken.
    fn check(&self, node: &NodeName, time: Timestamp) -> Result<()> {
        check_node(node)?;
        check_time(node, time)?;
        if self.is_ahead(time) {
            return Err(Error::Ahead { node: node.to_string(), seconds: (time - self.now).as_seconds() });
        }
        Ok(())
    }

    fn is_ahead(&self, time: Timestamp) -> bool {
        time > self.now + MAX_AHEAD
    }
}

/// The interval that a source was set to, from the gap between two of its readings: clocks jitter
/// by milliseconds, and intervals are set in steps of a tenth of a second.
fn nominal_period(gap_ms: i64) -> Millis {
    let nominal = if gap_ms < 100 { gap_ms } else { gap_ms.saturating_add(50) / 100 * 100 };
    Millis(nominal).clamp(Millis(1), Source::MAX_PERIOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_rounded_and_bounded() {
        for (gap, period) in [(-5, 1), (7, 7), (999, 1_000), (1_049, 1_000), (i64::MAX, 86_400_000)] {
            assert_eq!(nominal_period(gap), Millis(period), "{gap}");
        }
    }

    #[test]
    fn readings_may_be_an_hour_ahead() {
        let intake = Intake { limits: Limits::default(), now: Timestamp::from_seconds(1_000_000) };
        let node = NodeName::new("n1").unwrap();
        let check = |seconds: i64| intake.check(&node, Timestamp::from_seconds(seconds));
        check(0).unwrap();
        check(1_003_600).unwrap();
        let error = check(1_003_601).unwrap_err().to_string();
        assert_eq!(error, "n1 was read 3601 s ahead of this machine's clock; check the clocks of both");
        assert!(check(-1).is_err());
    }
}
