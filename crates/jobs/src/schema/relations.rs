//! Columns that follow from others, and constraints between columns.

use super::{ColumnKind, ColumnSpec, Constraint, Role, Rule, Schema};
use crate::table::{Column, Table};

/// The fraction of rows in which a column has to follow from others to count as derived.
const MIN_DERIVED_FRACTION: f64 = 0.995;
/// The fraction of rows in which a constraint has to hold to be reported.
const MIN_CONSTRAINT_FRACTION: f64 = 0.5;

impl Schema {
    /// Finds numbers that are the difference of two times, or the interval since the previous submission.
    pub(super) fn find_differences(&mut self, table: &Table) {
        let is_time =
            |column: &&Column| self.column(&column.name).is_some_and(|spec| spec.kind == ColumnKind::Time);
        let times: Vec<&Column> = table.columns.iter().filter(is_time).collect();
        let submit = self.with_role(Role::Submit).map(|spec| spec.name.clone());
        let submissions = submit.as_ref().and_then(|name| table.column(name)?.as_numbers());
        let mut found: Vec<(String, ColumnKind)> = Vec::new();
        for column in &table.columns {
            let is_number = self
                .column(&column.name)
                .is_some_and(|spec| matches!(spec.kind, ColumnKind::Count | ColumnKind::Real));
            let Some(values) = column.as_numbers().filter(|_| is_number) else { continue };
            if submissions.is_some_and(|times| is_difference(&values[1..], &times[1..], times)) {
                found.push((column.name.clone(), ColumnKind::SincePrevious));
            } else if let Some(kind) = difference_of(values, &times) {
                found.push((column.name.clone(), kind));
            }
        }
        for (name, kind) in found {
            if let Some(spec) = self.columns.iter_mut().find(|spec| spec.name == name) {
                spec.kind = kind;
            }
        }
    }

    /// Finds columns that are a linear function of one other column, or a multiple of the product of two: node hours,
    /// and the same number in another unit.
    pub(super) fn find_products(&mut self, table: &Table) {
        let number = |name: &String| table.column(name).and_then(Column::as_numbers);
        let is_number = |kind: &ColumnKind| {
            matches!(
                kind,
                ColumnKind::Count | ColumnKind::Real | ColumnKind::Time | ColumnKind::Difference { .. }
            )
        };
        let has_role = |spec: &&ColumnSpec| is_number(&spec.kind) && spec.role.is_some();
        let with_roles: Vec<String> =
            self.columns.iter().filter(has_role).map(|spec| spec.name.clone()).collect();
        let mut pairs: Vec<Vec<String>> = Vec::new();
        for (at, one) in with_roles.iter().enumerate() {
            pairs.extend(with_roles[at + 1..].iter().map(|other| vec![one.clone(), other.clone()]));
        }
        // A single factor may be any earlier column; two factors have to have roles.
        let mut sources = with_roles;
        for spec in &mut self.columns {
            let is_free = spec.role.is_none()
                && matches!(spec.kind, ColumnKind::Count | ColumnKind::Real | ColumnKind::Time);
            let Some(values) = number(&spec.name).filter(|_| is_free) else { continue };
            let product = |of: &Vec<String>| {
                let factors: Option<Vec<&[f64]>> = of.iter().map(number).collect();
                let Linear { scale, offset } = linear_fit(values, &factors?)?;
                Some(ColumnKind::Product { of: of.clone(), scale, offset })
            };
            let singles: Vec<Vec<String>> = sources.iter().map(|one| vec![one.clone()]).collect();
            match singles.iter().chain(&pairs).find_map(product) {
                Some(kind) => spec.kind = kind,
                None => sources.push(spec.name.clone()),
            }
        }
    }

    pub(super) fn find_constraints(&mut self, table: &Table) {
        let column = |role: Role| {
            let spec =
                self.with_role(role).filter(|spec| !matches!(spec.kind, ColumnKind::Constant { .. }))?;
            Some((spec.name.clone(), table.column(&spec.name)?.as_numbers()?))
        };
        let mut found = Vec::new();
        if let (Some((run, runs)), Some((limit, limits))) =
            (column(Role::RunTime), column(Role::RequestedTime))
        {
            let fraction = fraction_of(runs, limits, |run, limit| run <= limit);
            found.push(Constraint { rule: Rule::AtMost { column: run, limit }, fraction });
        }
        if let (Some((cores, n_cores)), Some((nodes, n_nodes))) = (column(Role::Cores), column(Role::Nodes)) {
            let fraction = fraction_of(n_cores, n_nodes, |cores, nodes| nodes > 0.0 && cores % nodes == 0.0);
            let rule = Rule::MultipleOf { column: cores.clone(), unit: nodes.clone() };
            found.push(Constraint { rule, fraction });
            let fraction = fraction_of(n_nodes, n_cores, |nodes, cores| nodes <= cores);
            found.push(Constraint { rule: Rule::AtMost { column: nodes, limit: cores }, fraction });
        }
        found.retain(|constraint| constraint.fraction >= MIN_CONSTRAINT_FRACTION);
        self.constraints = found;
    }
}

fn difference_of(values: &[f64], times: &[&Column]) -> Option<ColumnKind> {
    for of in times {
        for less in times {
            let (Some(later), Some(earlier)) = (of.as_numbers(), less.as_numbers()) else { continue };
            if of.name != less.name && is_difference(values, later, earlier) {
                return Some(ColumnKind::Difference { of: of.name.clone(), less: less.name.clone() });
            }
        }
    }
    None
}

fn is_difference(values: &[f64], of: &[f64], less: &[f64]) -> bool {
    let mut n_held = 0;
    let mut n_off = 0;
    for ((value, of), less) in values.iter().zip(of).zip(less) {
        if (value - (of - less)).abs() < 0.5 || (value.is_nan() && (of.is_nan() || less.is_nan())) {
            n_held += 1;
        } else {
            n_off += 1;
            if n_off as f64 > (1.0 - MIN_DERIVED_FRACTION) * values.len() as f64 {
                return false;
            }
        }
    }
    n_held > 1
}

struct Linear {
    scale: f64,
    offset: f64,
}

/// The scale and offset that turn the product of factors into the values, if they are the same in nearly all rows.
/// The offset of two factors is zero.
fn linear_fit(values: &[f64], factors: &[&[f64]]) -> Option<Linear> {
    let product = |row: usize| factors.iter().map(|factor| factor[row]).product::<f64>();
    let known = || (0..values.len()).filter(|row| !values[*row].is_nan());
    let most = known().max_by(|a, b| values[*a].total_cmp(&values[*b]))?;
    let least = known().min_by(|a, b| values[*a].total_cmp(&values[*b]))?;
    let (scale, offset) = if factors.len() == 1 {
        let scale = (values[most] - values[least]) / (product(most) - product(least));
        (scale, values[most] - scale * product(most))
    } else {
        (values[most] / product(most), 0.0)
    };
    // Digits that were cut off when writing do not count as a difference; half a second does.
    let tolerance = (1e-6 * (values[most] - values[least]).abs()).min(0.5);
    let is_off = |row: &usize| {
        let (value, fitted) = (values[*row], product(*row) * scale + offset);
        (value - fitted).abs() > tolerance || value.is_nan() != fitted.is_nan()
    };
    let is_scale = scale.is_finite() && scale != 0.0 && offset.is_finite();
    let n_off = (0..values.len()).filter(is_off).take(values.len() / 200 + 1).count();
    let is_derived = n_off as f64 <= (1.0 - MIN_DERIVED_FRACTION) * values.len() as f64;
    (is_scale && is_derived).then_some(Linear { scale, offset })
}

/// The fraction of rows with two known values for which a relation holds.
fn fraction_of(one: &[f64], other: &[f64], holds: impl Fn(f64, f64) -> bool) -> f64 {
    let (mut n_held, mut n_known) = (0usize, 0usize);
    for (one, other) in one.iter().zip(other).filter(|(one, other)| !one.is_nan() && !other.is_nan()) {
        n_held += usize::from(holds(*one, *other));
        n_known += 1;
    }
    n_held as f64 / n_known.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::format::Format;

    fn numbers(name: &str, value: impl Fn(usize) -> f64) -> Column {
        Column::numbers(name, (0..400).map(value).collect(), Format::Plain { decimals: 3 })
    }

    fn schema_of(columns: Vec<Column>) -> Schema {
        let roles = BTreeMap::from([
            ("submit", Role::Submit),
            ("start", Role::Start),
            ("run", Role::RunTime),
            ("limit", Role::RequestedTime),
            ("nodes", Role::Nodes),
            ("cores", Role::Cores),
        ]);
        Schema::infer(&Table { columns, notes: Vec::new() }, &roles).unwrap()
    }

    fn submit(row: usize) -> f64 {
        1.6e9 + (row * row) as f64
    }

    fn run(row: usize) -> f64 {
        (row * 37 % 101) as f64 + 0.25
    }

    #[test]
    fn differences_and_products_are_found_despite_a_few_exceptions() {
        let columns = |n_exceptions: usize| {
            let waits = move |row: usize| (row % 7) as f64 + if row < n_exceptions { 90.0 } else { 0.0 };
            vec![
                numbers("submit", submit),
                numbers("start", |row| submit(row) + (row % 7) as f64),
                numbers("wait", waits),
                numbers("gap", |row| if row == 0 { 0.0 } else { submit(row) - submit(row - 1) }),
                numbers("run", run),
                numbers("nodes", |row| (1 + row % 3) as f64),
                numbers("hours", |row| run(row) * (1 + row % 3) as f64 / 3_600.0),
            ]
        };
        let schema = schema_of(columns(2));
        let difference = ColumnKind::Difference { of: "start".into(), less: "submit".into() };
        assert_eq!(schema.column("wait").unwrap().kind, difference);
        assert_eq!(schema.column("gap").unwrap().kind, ColumnKind::SincePrevious);
        let ColumnKind::Product { of, scale, offset } = &schema.column("hours").unwrap().kind else {
            panic!("hours are a product");
        };
        assert_eq!(of, &["run", "nodes"]);
        assert!((scale * 3_600.0 - 1.0).abs() < 1e-9 && *offset == 0.0);
        assert_eq!(schema_of(columns(3)).column("wait").unwrap().kind, ColumnKind::Real);
    }

    #[test]
    fn constraints_have_the_fraction_of_jobs_that_obey_them() {
        let schema = schema_of(vec![
            numbers("submit", submit),
            numbers("run", run),
            numbers("limit", |row| if row % 4 == 0 { 0.0 } else { 1_000.0 + row as f64 }),
            numbers("nodes", |row| (1 + row % 3) as f64),
            numbers("cores", |row| (64 * (1 + row % 3)) as f64),
        ]);
        let fractions: Vec<f64> = schema.constraints.iter().map(|one| one.fraction).collect();
        assert_eq!(fractions, [0.75, 1.0, 1.0]);
        assert!(!schema.constraints[0].is_enforced() && schema.constraints[1].is_enforced());
    }
}
