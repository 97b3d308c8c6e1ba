//! Inference of a schema from the cells of a table.

use std::collections::{BTreeMap, HashSet};

use super::{ColumnKind, ColumnSpec, MIN_EPOCH_SECONDS, Role, Schema};
use crate::error::TraceError;
use crate::format::Format;
use crate::table::{Column, Table, Values};

/// How long after the last submission a job may end.
const MAX_SECONDS_AFTER_SUBMISSION: f64 = 90.0 * 86_400.0;

/// First and last submission time.
#[derive(Debug, Clone, Copy)]
struct SubmissionSpan {
    first: f64,
    last: f64,
}

impl Schema {
    /// Infers types, derived columns and constraints; `roles` are the roles of columns by name.
    pub fn infer(table: &Table, roles: &BTreeMap<&str, Role>) -> Result<Self, TraceError> {
        if table.n_rows() == 0 {
            return Err(TraceError::NoJobs);
        }
        let roles = roles_of(table, roles);
        let with_role = |role: Role| roles.iter().position(|found| *found == Some(role));
        if with_role(Role::Submit).is_none() && with_role(Role::Interval).is_none() {
            return Err(TraceError::NoSubmission);
        }
        let submissions = with_role(Role::Submit).and_then(|at| table.columns[at].as_numbers());
        let span = submissions.map(|submissions| {
            let known = submissions.iter().copied().filter(|value| !value.is_nan());
            let start = SubmissionSpan { first: f64::MAX, last: f64::MIN };
            known.fold(start, |span, value| SubmissionSpan {
                first: span.first.min(value),
                last: span.last.max(value),
            })
        });
        let columns = table.columns.iter().zip(&roles).map(|(column, role)| {
            let format = match &column.values {
                Values::Numbers { format, .. } => Some(*format),
                Values::Text { .. } => None,
            };
            let kind = kind_of(column, *role, span);
            ColumnSpec { name: column.name.clone(), role: *role, format, kind }
        });
        let mut schema = Self {
            columns: columns.collect(),
            constraints: Vec::new(),
            first_submission: span.map(|span| span.first),
            notes: table.notes.clone(),
        };
        schema.find_differences(table);
        schema.find_products(table);
        schema.find_constraints(table);
        Ok(schema)
    }
}

/// The role of each column. Only indices and groups may occur more than once; the first column has any other role.
fn roles_of(table: &Table, known: &BTreeMap<&str, Role>) -> Vec<Option<Role>> {
    let mut seen = HashSet::new();
    let role = |column: &Column| {
        let role = *known.get(column.name.as_str())?;
        (matches!(role, Role::Index | Role::Group) || seen.insert(role)).then_some(role)
    };
    table.columns.iter().map(role).collect()
}

fn kind_of(column: &Column, role: Option<Role>, span: Option<SubmissionSpan>) -> ColumnKind {
    // These stay features even if they never change: generators and schedulers need them.
    let is_needed = matches!(role, Some(Role::Submit | Role::Interval | Role::RunTime | Role::User));
    let first = column.cell(0);
    let is_constant = !is_needed && (1..column.len()).all(|row| column.cell(row) == first);
    if is_constant && !(role == Some(Role::Index) && column.len() == 1) {
        return ColumnKind::Constant { cell: first };
    }
    let (values, format) = match &column.values {
        Values::Text { names, .. } => {
            let is_index = role == Some(Role::Index) || (role.is_none() && names.len() == column.len());
            return if is_index { ColumnKind::Index { first: None } } else { ColumnKind::Category };
        }
        Values::Numbers { values, format } => (values, *format),
    };
    match role {
        Some(Role::Index) => return ColumnKind::Index { first: values.first().copied() },
        Some(Role::Submit | Role::Start | Role::End) => return ColumnKind::Time,
        Some(Role::User | Role::Group | Role::Status) => return ColumnKind::Category,
        _ => {}
    }
    let is_in_span = |span: SubmissionSpan| {
        let fits = |value: &f64| *value >= span.first && *value <= span.last + MAX_SECONDS_AFTER_SUBMISSION;
        span.first > MIN_EPOCH_SECONDS && values.iter().filter(|value| !value.is_nan()).all(fits)
    };
    if span.is_some_and(|span| format.is_time() || is_in_span(span)) {
        return ColumnKind::Time;
    }
    let mut steps = values.windows(2).map(|pair| pair[1] - pair[0]);
    if role.is_none() && values.len() > 2 && steps.all(|step| step == 1.0) {
        return ColumnKind::Index { first: values.first().copied() };
    }
    if matches!(format, Format::Plain { decimals: 0 } | Format::Duration | Format::Minutes) {
        ColumnKind::Count
    } else {
        ColumnKind::Real
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, cells: impl IntoIterator<Item = String>) -> Column {
        let cells: Vec<String> = cells.into_iter().collect();
        Column::from_cells(name, cells.iter().map(String::as_str))
    }

    fn table() -> Table {
        let rows = || 0..30i64;
        let columns = vec![
            column("number", rows().map(|row| (row + 5).to_string())),
            column("when", rows().map(|row| (1_600_000_000 + row * row * 7).to_string())),
            column("begun", rows().map(|row| (1_600_000_050 + row * row * 7 + row % 4).to_string())),
            column("seconds", rows().map(|row| format!("{}.5", row % 5))),
            column("cores", rows().map(|row| (1 + row % 3).to_string())),
            column("who", rows().map(|row| (row % 2).to_string())),
            column("queue", rows().map(|row| format!("q{}", row % 2))),
            column("name", rows().map(|row| format!("job {row}"))),
            column("site", rows().map(|_| "here".to_owned())),
        ];
        Table { columns, notes: Vec::new() }
    }

    #[test]
    fn types_are_inferred_from_roles_and_cells() {
        let roles = BTreeMap::from([("when", Role::Submit), ("who", Role::User), ("seconds", Role::RunTime)]);
        let schema = Schema::infer(&table(), &roles).unwrap();
        let kinds: Vec<&str> = schema.columns.iter().map(|column| column.kind.name()).collect();
        let expected =
            ["index", "time", "time", "real", "count", "category", "category", "index", "constant"];
        assert_eq!(kinds, expected);
        assert_eq!(schema.first_submission, Some(1_600_000_000.0));
        assert_eq!(schema.epoch(), Some(0.0));
    }

    #[test]
    fn a_role_belongs_to_the_first_column_that_has_it() {
        let roles = BTreeMap::from([
            ("when", Role::Submit),
            ("begun", Role::Submit),
            ("number", Role::Index),
            ("name", Role::Index),
        ]);
        let schema = Schema::infer(&table(), &roles).unwrap();
        assert_eq!(schema.column("begun").unwrap().role, None);
        assert_eq!(schema.column("name").unwrap().role, Some(Role::Index));
    }

    #[test]
    fn numbers_in_the_span_of_submissions_are_times_only_if_they_are_epoch_seconds() {
        let mut table = table();
        table.columns[1] = column("when", (0..30).map(|row| (row * 10).to_string()));
        table.columns[2] = column("begun", (0..30).map(|row| (row * 10 + row % 4).to_string()));
        let schema = Schema::infer(&table, &BTreeMap::from([("when", Role::Submit)])).unwrap();
        assert_eq!(schema.column("begun").unwrap().kind, ColumnKind::Count);
        assert_eq!(schema.epoch(), None);
    }

    #[test]
    fn a_trace_without_submissions_or_jobs_is_rejected() {
        let no_roles = BTreeMap::new();
        assert_eq!(Schema::infer(&table(), &no_roles).unwrap_err(), TraceError::NoSubmission);
        assert_eq!(Schema::infer(&Table::default(), &no_roles).unwrap_err(), TraceError::NoJobs);
    }
}
