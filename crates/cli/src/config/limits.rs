//! `[limits]`: what input may cost.

use anyhow::bail;
use files::Limits;
use serde::{Deserialize, Serialize};

use super::written::Written;

/// Files are read in pieces of up to this size, and a piece counts towards the record that is being read.
const LEAST_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    pub file_bytes: Written<u64>,
    pub compression_ratio: u64,
    pub record_bytes: Written<u64>,
    pub rows: u64,
    pub document_bytes: Written<u64>,
    pub response_bytes: Written<u64>,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            file_bytes: Written::bytes(limits.file_bytes),
            compression_ratio: limits.compression_ratio,
            record_bytes: Written::bytes(limits.record_bytes),
            rows: limits.rows,
            document_bytes: Written::bytes(limits.document_bytes),
            response_bytes: Written::bytes(limits.response_bytes),
        }
    }
}

impl LimitsConfig {
    pub fn limits(&self) -> Limits {
        Limits {
            file_bytes: self.file_bytes.value,
            compression_ratio: self.compression_ratio,
            record_bytes: self.record_bytes.value,
            rows: self.rows,
            document_bytes: self.document_bytes.value,
            response_bytes: self.response_bytes.value,
        }
    }

    /// Rejects limits that refuse ordinary input.
    pub fn check(&self) -> anyhow::Result<()> {
        let Self { file_bytes, record_bytes, document_bytes, response_bytes, .. } = self;
        let sizes = [
            ("file_bytes", file_bytes),
            ("record_bytes", record_bytes),
            ("document_bytes", document_bytes),
            ("response_bytes", response_bytes),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| size.value < LEAST_BYTES) {
            bail!("{name} has to be at least 1MiB");
        }
        for (name, count) in [("compression_ratio", self.compression_ratio), ("rows", self.rows)] {
            if count == 0 {
                bail!("{name} has to be at least 1");
            }
        }
        Ok(())
    }
}
