//! Where readings come from in bulk.

pub mod column_map;
pub mod csv;
pub mod prometheus;

pub use column_map::ColumnMap;
pub use csv::{CsvImport, import_csv};
pub use prometheus::{PrometheusImport, import_prometheus};
