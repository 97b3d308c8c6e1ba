//! The Standard Workload Format: fields by role, -1 for unknown values.

use std::borrow::Cow;
use std::io::Write;

use crate::features::arrivals_of;
use crate::format::Format;
use crate::schema::{Role, Schema};
use crate::source::SWF_FIELDS;
use crate::status;
use crate::table::{Column, Table, Values};

/// The roles of the 18 fields. Fields without a role are unknown.
const ROLES: [Option<Role>; 18] = [
    Some(Role::Index),
    Some(Role::Submit),
    Some(Role::Wait),
    Some(Role::RunTime),
    Some(Role::Cores),
    None,
    None,
    Some(Role::Cores),
    Some(Role::RequestedTime),
    None,
    Some(Role::Status),
    Some(Role::User),
    Some(Role::Group),
    None,
    None,
    None,
    None,
    None,
];
const UNKNOWN: f64 = -1.0;
const FORMAT: Format = Format::Plain { decimals: 2 };
/// Header lines that are written anew.
const OWN_NOTES: [&str; 3] = ["Version", "MaxJobs", "MaxRecords"];

type Numbers<'a> = Cow<'a, [f64]>;

pub fn write(out: &mut dyn Write, table: &Table, schema: &Schema) -> std::io::Result<()> {
    let is_swf = table.columns.iter().map(|column| column.name.as_str()).eq(SWF_FIELDS);
    let numbers: Vec<Numbers<'_>> =
        if is_swf { table.columns.iter().map(as_numbers).collect() } else { fields_of(table, schema) };
    writeln!(out, "; Version: 2.2")?;
    writeln!(out, "; Note: synthetic, made by Tracewise")?;
    writeln!(out, "; MaxJobs: {}", table.n_rows())?;
    writeln!(out, "; MaxRecords: {}", table.n_rows())?;
    for note in table.notes.iter().filter(|note| !OWN_NOTES.iter().any(|own| note.starts_with(own))) {
        writeln!(out, "; {note}")?;
    }
    for row in 0..table.n_rows() {
        for (field, values) in numbers.iter().enumerate() {
            let value = if values[row].is_nan() { UNKNOWN } else { values[row] };
            let separator = if field == 0 { "" } else { " " };
            write!(out, "{separator}{}", FORMAT.show(value))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// SWF has no text; names become numbers from one on.
fn as_numbers(column: &Column) -> Numbers<'_> {
    match &column.values {
        Values::Numbers { values, .. } => Cow::Borrowed(values),
        Values::Text { codes, .. } => codes.iter().map(|code| f64::from(*code) + 1.0).collect(),
    }
}

pub(super) fn column_with<'a>(table: &'a Table, schema: &Schema, role: Role) -> Option<&'a Column> {
    table.column(&schema.with_role(role)?.name)
}

pub(super) fn numbers_with<'a>(table: &'a Table, schema: &Schema, role: Role) -> Option<Numbers<'a>> {
    column_with(table, schema, role).map(as_numbers)
}

/// The 18 fields of a table in another layout.
pub(super) fn fields_of<'a>(table: &'a Table, schema: &Schema) -> Vec<Numbers<'a>> {
    let n_rows = table.n_rows();
    let with_role = |role: Role| numbers_with(table, schema, role);
    let difference = |one: Role, other: Role| -> Option<Numbers<'a>> {
        let (one, other) = (with_role(one)?, with_role(other)?);
        Some(one.iter().zip(other.iter()).map(|(one, other)| one - other).collect())
    };
    let field = |role: &Option<Role>| -> Numbers<'a> {
        let found = match role {
            Some(Role::Index) => Some((0..n_rows).map(|row| row as f64 + 1.0).collect()),
            Some(Role::Submit) => with_role(Role::Submit)
                .map(|times| since_first(&times))
                .or_else(|| with_role(Role::Interval).map(|intervals| arrivals_of(&intervals).into())),
            Some(Role::Wait) => with_role(Role::Wait).or_else(|| difference(Role::Start, Role::Submit)),
            Some(Role::RunTime) => with_role(Role::RunTime).or_else(|| difference(Role::End, Role::Start)),
            // Machines that allocate nodes or GPUs have no column of cores, or one of zeros.
            Some(Role::Cores) => [Role::Cores, Role::Nodes, Role::Gpus]
                .into_iter()
                .filter_map(with_role)
                .find(|sizes| sizes.iter().any(|size| *size > 0.0)),
            Some(Role::Status) => column_with(table, schema, Role::Status).map(|column| {
                (0..n_rows).map(|row| status::code_of(&column.name, &column.cell(row))).collect()
            }),
            Some(role) => with_role(*role),
            None => None,
        };
        found.unwrap_or_else(|| vec![UNKNOWN; n_rows].into())
    };
    ROLES.iter().map(field).collect()
}

fn since_first(times: &[f64]) -> Numbers<'static> {
    let first = times.first().copied().unwrap_or_default();
    times.iter().map(|time| time - first).collect()
}
