//! Corrections of the columns that a trace needs, and warnings about them.

use std::fmt;

use crate::error::TraceError;
use crate::format::{Format, is_missing};
use crate::schema::Schema;
use crate::table::{Table, Values};

/// Something in a trace that was corrected while reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    NotNumbers { column: String, n_cells: usize, first: String },
    NoSubmissionTime { n_jobs: usize },
    OutOfOrder { n_jobs: usize },
    InvalidIntervals { n_jobs: usize },
    JobSteps { n_steps: usize },
}

impl fmt::Display for Warning {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNumbers { column, n_cells, first } => {
                write!(
                    to,
                    "{n_cells} cells of {column} are not numbers and count as unknown; the first is {first}"
                )
            }
            Self::NoSubmissionTime { n_jobs } => {
                write!(to, "{n_jobs} jobs without a submission time were left out")
            }
            Self::OutOfOrder { n_jobs } => {
                write!(to, "{n_jobs} jobs were submitted before the job above them; all jobs were sorted")
            }
            Self::InvalidIntervals { n_jobs } => {
                write!(to, "{n_jobs} missing or negative intervals count as zero")
            }
            Self::JobSteps { n_steps } => write!(to, "{n_steps} steps of jobs were left out"),
        }
    }
}

/// Makes a column of numbers from one in which most cells are numbers; the others become unknown.
pub(super) fn numbers_from_text(
    table: &mut Table,
    name: &str,
    warnings: &mut Vec<Warning>,
) -> Result<(), TraceError> {
    let Some(column) = table.column_mut(name) else { return Ok(()) };
    let Values::Text { codes, names } = &column.values else { return Ok(()) };
    let cells = || codes.iter().map(|code| names[*code as usize].as_str());
    if cells().all(is_missing) {
        return Ok(());
    }
    let Some(format) = Format::of_most(cells()) else {
        let cell = cells().find(|cell| !is_missing(cell)).unwrap_or_default().to_owned();
        return Err(TraceError::NotNumbers { column: name.to_owned(), cell });
    };
    let not_numbers: Vec<&str> =
        cells().filter(|cell| !is_missing(cell) && format.parse(cell).is_none()).collect();
    if let Some(first) = not_numbers.first() {
        let (n_cells, first) = (not_numbers.len(), (*first).to_owned());
        warnings.push(Warning::NotNumbers { column: name.to_owned(), n_cells, first });
    }
    let values = cells().map(|cell| format.parse(cell).unwrap_or(f64::NAN)).collect();
    column.values = Values::Numbers { values, format };
    Ok(())
}

/// Sorts jobs by submission time, without those that have none.
pub(super) fn in_order(table: Table, submit: &str, warnings: &mut Vec<Warning>) -> Result<Table, TraceError> {
    let column = table.column(submit).ok_or_else(|| TraceError::NotInTrace { column: submit.to_owned() })?;
    let no_times = || TraceError::NoSubmissionTimes { column: submit.to_owned() };
    let submissions = column.as_numbers().ok_or_else(no_times)?;
    let mut order: Vec<usize> = (0..submissions.len()).filter(|row| !submissions[*row].is_nan()).collect();
    let n_unknown = submissions.len() - order.len();
    if n_unknown > 0 {
        warnings.push(Warning::NoSubmissionTime { n_jobs: n_unknown });
    }
    if order.is_empty() {
        return Err(no_times());
    }
    let n_early = order.windows(2).filter(|pair| submissions[pair[1]] < submissions[pair[0]]).count();
    if n_early > 0 {
        warnings.push(Warning::OutOfOrder { n_jobs: n_early });
    }
    if n_early == 0 && n_unknown == 0 {
        return Ok(table);
    }
    order.sort_by(|a, b| submissions[*a].total_cmp(&submissions[*b]));
    Ok(table.select(&order))
}

/// Missing and negative intervals become zero.
pub(super) fn correct_intervals(
    table: &mut Table,
    interval: &str,
    warnings: &mut Vec<Warning>,
) -> Result<(), TraceError> {
    let column =
        table.column_mut(interval).ok_or_else(|| TraceError::NotInTrace { column: interval.to_owned() })?;
    let Values::Numbers { values, .. } = &mut column.values else {
        return Err(TraceError::NoSubmissionTimes { column: interval.to_owned() });
    };
    let mut n_jobs = 0;
    for value in values.iter_mut().filter(|value| value.is_nan() || **value < 0.0) {
        *value = 0.0;
        n_jobs += 1;
    }
    if n_jobs > 0 {
        warnings.push(Warning::InvalidIntervals { n_jobs });
    }
    Ok(())
}

/// Checks that a table has the columns of a schema, with numbers where it needs them.
pub(super) fn checked(schema: Schema, table: &Table) -> Result<Schema, TraceError> {
    for spec in &schema.columns {
        let column =
            table.column(&spec.name).ok_or_else(|| TraceError::NotInTrace { column: spec.name.clone() })?;
        if spec.kind.needs_numbers() && column.as_numbers().is_none() {
            return Err(TraceError::TextForKind { column: spec.name.clone(), kind: spec.kind.name() });
        }
    }
    Ok(schema)
}
