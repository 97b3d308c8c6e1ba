//! Where readings come from in bulk.

pub mod agent;
pub mod column_map;
pub mod csv;
pub mod prometheus;

pub use agent::AgentImport;
pub use column_map::ColumnMap;
pub use csv::CsvImport;
pub use prometheus::{PrometheusImport, PrometheusQuery};

use workload::Millis;

/// The interval that a source was set to, from the gap between two of its readings: clocks jitter
/// by milliseconds, and intervals are set in steps of a tenth of a second.
fn nominal_period(gap_ms: i64) -> Millis {
    if gap_ms < 100 { Millis(gap_ms.max(1)) } else { Millis((gap_ms + 50) / 100 * 100) }
}
