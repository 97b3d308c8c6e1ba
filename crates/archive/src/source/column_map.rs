//! Column maps: the meaning of the columns of a CSV file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use workload::{Cpu, Measure, Mode, NodeName};

use crate::error::{Error, Result};

/// The unit of the numbers of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Percentages of the interval that ends with the row.
    Percent,
    /// Fractions of the interval that ends with the row.
    Fraction,
    /// Clock ticks since boot, 100 per second.
    Ticks,
    /// Seconds since boot.
    Seconds,
}

impl Unit {
    /// Whether the numbers count since boot or per interval.
    pub const fn measure(self) -> Measure {
        match self {
            Self::Percent | Self::Fraction => Measure::Interval,
            Self::Ticks | Self::Seconds => Measure::Counter,
        }
    }

    /// The ticks per second that keep every decimal of the file.
    pub const fn ticks_per_second(self, decimals: u32) -> u32 {
        match self {
            Self::Percent => 100 * 10u32.pow(decimals),
            Self::Fraction | Self::Seconds => 10u32.pow(decimals),
            Self::Ticks => 100 * 10u32.pow(decimals),
        }
    }
}

/// How times are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeFormat {
    /// Seconds since the epoch, with or without a fraction.
    #[default]
    EpochSeconds,
    /// Milliseconds since the epoch.
    EpochMilliseconds,
    /// RFC 3339 text.
    Rfc3339,
}

/// How a CSV file is laid out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "layout", rename_all = "lowercase", deny_unknown_fields)]
pub enum Layout {
    /// One row per time, with one column per node, thread and mode, named by a pattern such as
    /// `{node}_CPU{cpu}_{mode}%`.
    Wide {
        /// The pattern of the column names.
        columns: String,
    },
    /// One row per time and thread, with one column per mode.
    Long {
        /// The column with the node.
        node: String,
        /// The column with the number of the hardware thread.
        cpu: String,
        /// The column with the job, if there is one.
        #[serde(default)]
        job: Option<String>,
    },
}

/// The meaning of the columns of a CSV file; written in TOML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnMap {
    /// The column with the time.
    pub time: String,
    /// How the time is written.
    #[serde(default)]
    pub time_format: TimeFormat,
    /// What the numbers are.
    pub unit: Unit,
    /// Cells that mean a missing value. Empty cells are always missing.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Every row belongs to a job that is named after the file.
    #[serde(default)]
    pub job_is_file_name: bool,
    /// Where nodes, threads and modes are.
    #[serde(flatten)]
    pub layout: Layout,
    /// The kernel's mode for each mode of the file.
    pub modes: BTreeMap<String, Mode>,
}

impl ColumnMap {
    /// Reads and checks a column map. `file` is its name in messages.
    pub fn from_toml(file: &str, text: &str) -> Result<Self> {
        let refused = |reason: String| Error::ColumnMap { file: file.to_owned(), reason };
        let map: Self = toml::from_str(text).map_err(|error| refused(error.to_string().trim_end().into()))?;
        if let Layout::Wide { columns } = &map.layout {
            for part in ["{node}", "{cpu}", "{mode}"] {
                if columns.matches(part).count() != 1 {
                    return Err(refused(format!("columns = {columns:?} must have {part} once")));
                }
            }
            if columns.contains("}{") {
                return Err(refused(format!(
                    "columns = {columns:?} must have text between its placeholders"
                )));
            }
        }
        if map.modes.is_empty() {
            return Err(refused("[modes] is empty: name at least one, such as user = \"user\"".into()));
        }
        if map.unit.measure() == Measure::Counter && !map.modes.values().any(|mode| *mode == Mode::Idle) {
            return Err(refused(
                "counters need idle among their [modes], because rates are fractions of all ticks".into(),
            ));
        }
        Ok(map)
    }

    /// The layout of the Exathlon traces.
    pub fn exathlon() -> Self {
        let modes = [
            ("Idle", Mode::Idle),
            ("Steal", Mode::Steal),
            ("Sys", Mode::System),
            ("User", Mode::User),
            ("Wait", Mode::Iowait),
        ];
        Self {
            time: "t".into(),
            time_format: TimeFormat::EpochSeconds,
            unit: Unit::Percent,
            missing: vec!["-1".into()],
            job_is_file_name: true,
            layout: Layout::Wide { columns: "{node}_CPU{cpu}_{mode}%".into() },
            modes: modes.into_iter().map(|(name, mode)| (name.to_owned(), mode)).collect(),
        }
    }
}

/// The node, thread and mode in the name of a wide column, if it fits the pattern.
pub fn match_column(
    pattern: &str,
    modes: &BTreeMap<String, Mode>,
    name: &str,
) -> Option<(NodeName, Cpu, Mode)> {
    // With each known mode put in its place, two parts are left to find, and one is a number.
    modes.iter().find_map(|(text, mode)| {
        let pattern = pattern.replace("{mode}", text);
        let (cpu_first, before, between, after) = match (pattern.find("{node}")?, pattern.find("{cpu}")?) {
            (node, cpu) if node < cpu => {
                (false, &pattern[..node], &pattern[node + 6..cpu], &pattern[cpu + 5..])
            }
            (node, cpu) => (true, &pattern[..cpu], &pattern[cpu + 5..node], &pattern[node + 6..]),
        };
        let middle = name.strip_prefix(before)?.strip_suffix(after)?;
        let splits =
            middle.match_indices(between).map(|(at, _)| (&middle[..at], &middle[at + between.len()..]));
        splits
            .filter_map(|(left, right)| {
                let (node, cpu) = if cpu_first { (right, left) } else { (left, right) };
                let is_number = !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit());
                Some((NodeName::new(node).ok()?, Cpu(cpu.parse().ok().filter(|_| is_number)?), *mode))
            })
            .last()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, name: &str) -> Option<(String, u16, Mode)> {
        match_column(pattern, &ColumnMap::exathlon().modes, name)
            .map(|(node, cpu, mode)| (node.as_str().to_owned(), cpu.0, mode))
    }

    #[test]
    fn the_name_of_a_wide_column_has_node_thread_and_mode() {
        let pattern = "{node}_CPU{cpu}_{mode}%";
        assert_eq!(found(pattern, "node5_CPU001_Idle%"), Some(("node5".into(), 1, Mode::Idle)));
        assert_eq!(found(pattern, "a_CPU7_b_CPU012_Wait%"), Some(("a_CPU7_b".into(), 12, Mode::Iowait)));
        assert_eq!(found(pattern, "node5_CPU001_Freq%"), None);
        assert_eq!(found(pattern, "node5_CPUall_User%"), None);
        assert_eq!(found("{mode}.{cpu}@{node}", "Sys.3@n1"), Some(("n1".into(), 3, Mode::System)));
    }

    #[test]
    fn a_column_map_is_checked_while_it_is_read() {
        let good = "layout = 'long'\ntime = 't'\nnode = 'n'\ncpu = 'c'\nunit = 'ticks'\n[modes]\nu = 'user'\ni = 'idle'\n";
        assert!(ColumnMap::from_toml("m.toml", good).is_ok());
        let bad = good.replace("'long'", "'wide'\ncolumns = '{node}'");
        assert!(ColumnMap::from_toml("m.toml", &bad).is_err());
        let bad = good.replace("'user'", "'guest'");
        assert!(ColumnMap::from_toml("m.toml", &bad).unwrap_err().to_string().contains("guest"));
    }
}
