//! Presets: published layouts of job traces, with the roles of their columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::schema::Role;
use crate::table::{Column, Table, Values};
use crate::trace::Warning;

/// A published layout of job traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Dirlab,
    Lumos,
    Alcf,
    Supercloud,
    Sacct,
    Swf,
    Csv,
}

impl Preset {
    pub const ALL: [Self; 7] =
        [Self::Dirlab, Self::Lumos, Self::Alcf, Self::Supercloud, Self::Sacct, Self::Swf, Self::Csv];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dirlab => "dirlab",
            Self::Lumos => "lumos",
            Self::Alcf => "alcf",
            Self::Supercloud => "supercloud",
            Self::Sacct => "sacct",
            Self::Swf => "swf",
            Self::Csv => "csv",
        }
    }

    /// The layout of a table: the one that has most of its columns, or [`Self::Csv`].
    pub fn of(table: &Table) -> Self {
        let n_columns = |preset: &Self| {
            preset.roles().into_keys().filter(|column| table.column(column).is_some()).count()
        };
        let has_submission =
            |preset: &Self| preset.submission_column().is_some_and(|column| table.column(column).is_some());
        Self::ALL.into_iter().filter(has_submission).max_by_key(n_columns).unwrap_or(Self::Csv)
    }

    /// Converts what the layout writes in its own way: units of limits, steps of jobs.
    pub(crate) fn normalise(self, table: &mut Table, warnings: &mut Vec<Warning>) {
        match self {
            Self::Supercloud => {
                if let Some(limits) = table.column_mut("timelimit") {
                    convert_minutes(limits);
                }
            }
            Self::Sacct => drop_job_steps(table, warnings),
            _ => {}
        }
    }

    /// The column that has the submission time (or the interval) in this layout. A file without it is not of this
    /// layout; other columns may be missing.
    pub(crate) fn submission_column(self) -> Option<&'static str> {
        match self {
            Self::Dirlab => Some("interval"),
            Self::Lumos => Some("submit_time"),
            Self::Alcf => Some("QUEUED_TIMESTAMP"),
            Self::Supercloud => Some("time_submit"),
            Self::Sacct => Some("Submit"),
            Self::Swf => Some("submit"),
            Self::Csv => None,
        }
    }

    /// The roles of columns, by name. A file may lack some of them.
    pub fn roles(self) -> BTreeMap<&'static str, Role> {
        use Role::{
            Cores, End, Gpus, Group, Index, Interval, Nodes, RequestedTime, RunTime, Start, Status, Submit,
            User, Wait,
        };
        let known: &[(&str, Role)] = match self {
            Self::Dirlab => &[
                ("u_id", Index),
                ("user", User),
                ("gpu_num", Gpus),
                ("cpu_num", Cores),
                ("node_num", Nodes),
                ("interval", Interval),
                ("run_time", RunTime),
                ("wall_time", RequestedTime),
                ("new_status", Status),
            ],
            Self::Lumos => &[
                ("", Index),
                ("job", Index),
                ("user", User),
                ("project", Group),
                ("gpu_num", Gpus),
                ("cpu_num", Cores),
                ("node_num", Nodes),
                ("submit_time", Submit),
                ("wait_time", Wait),
                ("run_time", RunTime),
                ("wall_time", RequestedTime),
                ("new_status", Status),
            ],
            Self::Alcf => &[
                ("COBALT_JOBID", Index),
                ("JOB_NAME", Index),
                ("USERNAME_GENID", User),
                ("PROJECT_NAME_GENID", Group),
                ("QUEUED_TIMESTAMP", Submit),
                ("START_TIMESTAMP", Start),
                ("END_TIMESTAMP", End),
                ("RUNTIME_SECONDS", RunTime),
                ("WALLTIME_SECONDS", RequestedTime),
                ("NODES_USED", Nodes),
                ("CORES_USED", Cores),
                ("EXIT_STATUS", Status),
            ],
            Self::Supercloud => &[
                ("id_job", Index),
                ("id_user", User),
                ("time_submit", Submit),
                ("time_start", Start),
                ("time_end", End),
                ("service_time", RunTime),
                ("timelimit", RequestedTime),
                ("cpus_req", Cores),
                ("nodes_alloc", Nodes),
                ("state", Status),
            ],
            Self::Sacct => &[
                ("JobID", Index),
                ("JobIDRaw", Index),
                ("User", User),
                ("Account", Group),
                ("Submit", Submit),
                ("Start", Start),
                ("End", End),
                ("Elapsed", RunTime),
                ("ElapsedRaw", RunTime),
                ("Timelimit", RequestedTime),
                ("NCPUS", Cores),
                ("AllocCPUS", Cores),
                ("NNodes", Nodes),
                ("AllocNodes", Nodes),
                ("State", Status),
            ],
            Self::Swf => &[
                ("job", Index),
                ("submit", Submit),
                ("wait", Wait),
                ("run_time", RunTime),
                ("processors", Cores),
                ("requested_time", RequestedTime),
                ("status", Status),
                ("user", User),
                ("group", Group),
                ("preceding_job", Index),
            ],
            Self::Csv => &[],
        };
        known.iter().copied().collect()
    }
}

/// Limits from here on mean "no limit" in the database of Slurm.
const NO_LIMIT: f64 = 4_294_967_294.0;

/// The database of Slurm has limits in minutes.
fn convert_minutes(column: &mut Column) {
    let Values::Numbers { values, format } = &mut column.values else { return };
    *format = Format::Minutes;
    for value in values {
        *value = if *value >= NO_LIMIT { f64::NAN } else { *value * 60.0 };
    }
}

/// `12.batch` is a step of job 12, which has a row of its own; `12_3` is a job of an array.
fn drop_job_steps(table: &mut Table, warnings: &mut Vec<Warning>) {
    let Some(ids) = table.column("JobID").or_else(|| table.column("JobIDRaw")) else { return };
    // If every id is a number, with or without a decimal point, there are no steps.
    let Values::Text { .. } = &ids.values else { return };
    let jobs: Vec<usize> = (0..ids.len()).filter(|row| !ids.cell(*row).contains('.')).collect();
    let n_steps = ids.len() - jobs.len();
    if n_steps > 0 && !jobs.is_empty() {
        warnings.push(Warning::JobSteps { n_steps });
        *table = std::mem::take(table).select(&jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_recognised_by_their_columns() {
        let table = |names: Vec<&str>| {
            let column = |name: &str| Column::from_cells(name, ["1"].into_iter());
            Table { columns: names.into_iter().map(column).collect(), notes: Vec::new() }
        };
        for preset in Preset::ALL {
            assert_eq!(Preset::of(&table(preset.roles().into_keys().collect())), preset);
        }
        assert_eq!(Preset::of(&table(vec!["submitted", "seconds"])), Preset::Csv);
    }
}
