//! Finding out what columns are by looking at them.

use std::collections::{BTreeMap, HashSet};

use super::{ColumnSpec, Constraint, Kind, LEAST_EPOCH, Role, Rule, Schema};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::table::{Column, Table, Values};

/// The share of rows in which one column has to be the difference of two others to be taken for it.
const NEARLY_ALWAYS: f64 = 0.995;
/// How long after the last submission the last job may have ended.
const LONGEST_AFTER: f64 = 90.0 * 86_400.0;
/// How often a rule holds to be worth a line.
const OFTEN: f64 = 0.5;

impl Schema {
    /// Columns by what is in them; `known` says what some of them mean.
    pub fn infer(table: &Table, known: &BTreeMap<&str, Role>) -> Result<Self> {
        let mut roles: Vec<Option<Role>> =
            table.columns.iter().map(|column| known.get(column.name.as_str()).copied()).collect();
        // Only an index may be there twice; of anything else the first column is meant.
        let mut seen = HashSet::new();
        for role in &mut roles {
            let is_again =
                role.is_some_and(|role| !matches!(role, Role::Index | Role::Group) && !seen.insert(role));
            if is_again {
                *role = None;
            }
        }
        let of_role = |role: Role| roles.iter().position(|found| *found == Some(role));
        if of_role(Role::Submit).is_none() && of_role(Role::Interval).is_none() {
            return Err(Error::NoColumn {
                role: "the submission",
                hint: "name one, as in --columns submit=time_submit or --columns interval=gap",
            });
        }
        let submits = of_role(Role::Submit).and_then(|at| table.columns[at].as_numbers());
        let span = submits.map(|submits| {
            let known = submits.iter().copied().filter(|value| !value.is_nan());
            known.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
        });
        let columns = table.columns.iter().zip(&roles).map(|(column, role)| {
            let format = match &column.values {
                Values::Numbers { format, .. } => Some(*format),
                Values::Words { .. } => None,
            };
            let kind = kind_of(column, *role, span);
            ColumnSpec { name: column.name.clone(), role: *role, format, kind }
        });
        let mut schema = Self {
            columns: columns.collect(),
            constraints: Vec::new(),
            begins: span.map(|span| span.0),
            notes: table.notes.clone(),
        };
        schema.find_differences(table);
        schema.find_products(table);
        schema.find_constraints(table);
        Ok(schema)
    }

    /// Columns that say what two others say already.
    fn find_differences(&mut self, table: &Table) {
        let times: Vec<&Column> = table
            .columns
            .iter()
            .filter(|column| self.column(&column.name).is_some_and(|spec| spec.kind == Kind::Time))
            .collect();
        let submit = self.with_role(Role::Submit).map(|spec| spec.name.clone());
        let mut found: Vec<(String, Kind)> = Vec::new();
        for column in &table.columns {
            let is_number =
                self.column(&column.name).is_some_and(|spec| matches!(spec.kind, Kind::Count | Kind::Real));
            let Some(values) = column.as_numbers().filter(|_| is_number) else { continue };
            if let Some(submits) = submit.as_ref().and_then(|name| table.column(name)?.as_numbers())
                && is_difference(&values[1..], &submits[1..], submits)
            {
                found.push((column.name.clone(), Kind::SincePrevious));
                continue;
            }
            'times: for of in &times {
                for less in &times {
                    let (Some(a), Some(b)) = (of.as_numbers(), less.as_numbers()) else { continue };
                    if of.name != less.name && is_difference(values, a, b) {
                        let kind = Kind::Difference { of: of.name.clone(), less: less.name.clone() };
                        found.push((column.name.clone(), kind));
                        break 'times;
                    }
                }
            }
        }
        for (name, kind) in found {
            if let Some(spec) = self.columns.iter_mut().find(|spec| spec.name == name) {
                spec.kind = kind;
            }
        }
    }

    /// Columns that are one or two others times something: node hours, and numbers brought to another scale.
    fn find_products(&mut self, table: &Table) {
        let number = |name: &String| table.column(name).and_then(Column::as_numbers);
        let is_number = |spec: &ColumnSpec| {
            matches!(spec.kind, Kind::Count | Kind::Real | Kind::Time | Kind::Difference { .. })
        };
        let is_meant = |spec: &&ColumnSpec| is_number(spec) && spec.role.is_some();
        let meant: Vec<String> = self.columns.iter().filter(is_meant).map(|spec| spec.name.clone()).collect();
        let mut pairs: Vec<Vec<String>> = Vec::new();
        for (at, one) in meant.iter().enumerate() {
            pairs.extend(meant[at + 1..].iter().map(|other| vec![one.clone(), other.clone()]));
        }
        // One column may be made of any before it, two of those whose meaning is known.
        let mut sources = meant;
        for spec in &mut self.columns {
            let is_free = spec.role.is_none() && matches!(spec.kind, Kind::Count | Kind::Real | Kind::Time);
            let Some(values) = number(&spec.name).filter(|_| is_free) else { continue };
            let product = |of: &Vec<String>| {
                let factors: Option<Vec<&[f64]>> = of.iter().map(number).collect();
                let (scale, offset) = scale_of(values, &factors?)?;
                Some(Kind::Product { of: of.clone(), scale, offset })
            };
            let singles: Vec<Vec<String>> = sources.iter().map(|one| vec![one.clone()]).collect();
            match singles.iter().chain(&pairs).find_map(product) {
                Some(found) => spec.kind = found,
                None => sources.push(spec.name.clone()),
            }
        }
    }

    fn find_constraints(&mut self, table: &Table) {
        let column = |role: Role| {
            let spec = self.with_role(role).filter(|spec| !matches!(spec.kind, Kind::Constant { .. }))?;
            Some((spec.name.clone(), table.column(&spec.name)?.as_numbers()?))
        };
        let mut found = Vec::new();
        if let (Some((run, runs)), Some((limit, limits))) =
            (column(Role::RunTime), column(Role::RequestedTime))
        {
            let share = share_of(runs, limits, |run, limit| run <= limit);
            found.push(Constraint { rule: Rule::AtMost { column: run, limit }, share });
        }
        if let (Some((cores, n_cores)), Some((nodes, n_nodes))) = (column(Role::Cores), column(Role::Nodes)) {
            let share = share_of(n_cores, n_nodes, |cores, nodes| nodes > 0.0 && cores % nodes == 0.0);
            let rule = Rule::MultipleOf { column: cores.clone(), unit: nodes.clone() };
            found.push(Constraint { rule, share });
            let share = share_of(n_nodes, n_cores, |nodes, cores| nodes <= cores);
            found.push(Constraint { rule: Rule::AtMost { column: nodes, limit: cores }, share });
        }
        self.constraints = found.into_iter().filter(|one| one.share >= OFTEN).collect();
    }
}

fn kind_of(column: &Column, role: Option<Role>, span: Option<(f64, f64)>) -> Kind {
    let is_needed = matches!(role, Some(Role::Submit | Role::Interval | Role::RunTime | Role::User));
    let first = column.cell(0);
    let is_constant = !is_needed && (1..column.len()).all(|row| column.cell(row) == first);
    if is_constant && !(role == Some(Role::Index) && column.len() == 1) {
        return Kind::Constant { cell: first };
    }
    let (values, format) = match &column.values {
        Values::Words { names, .. } => {
            let is_index = role == Some(Role::Index) || (role.is_none() && names.len() == column.len());
            return if is_index { Kind::Index { first: None } } else { Kind::Category };
        }
        Values::Numbers { values, format } => (values, *format),
    };
    match role {
        Some(Role::Index) => return Kind::Index { first: values.first().copied() },
        Some(Role::Submit | Role::Start | Role::End) => return Kind::Time,
        Some(Role::User | Role::Group | Role::Status) => return Kind::Category,
        _ => {}
    }
    let is_in_span = |span: (f64, f64)| {
        let fits = |value: &f64| *value >= span.0 && *value <= span.1 + LONGEST_AFTER;
        span.0 > LEAST_EPOCH && values.iter().filter(|value| !value.is_nan()).all(fits)
    };
    if span.is_some() && (format.is_moment() || span.is_some_and(is_in_span)) {
        return Kind::Time;
    }
    let steps = values.windows(2).map(|pair| pair[1] - pair[0]);
    if role.is_none() && values.len() > 2 && steps.clone().all(|step| step == 1.0) {
        return Kind::Index { first: values.first().copied() };
    }
    if matches!(format, Format::Plain { decimals: 0 } | Format::Length | Format::Minutes) {
        Kind::Count
    } else {
        Kind::Real
    }
}

/// What values are the product of factors times, and what is added, if it is the same for all of them. Two factors
/// are only multiplied.
fn scale_of(values: &[f64], factors: &[&[f64]]) -> Option<(f64, f64)> {
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
    // Digits that were not written are no difference, and seconds are.
    let tolerance = (1e-6 * (values[most] - values[least]).abs()).min(0.5);
    let is_off = |row: &usize| {
        let (value, made) = (values[*row], product(*row) * scale + offset);
        (value - made).abs() > tolerance || value.is_nan() != made.is_nan()
    };
    let is_scale = scale.is_finite() && scale != 0.0 && offset.is_finite();
    let n_off = (0..values.len()).filter(is_off).take(values.len() / 200 + 1).count();
    (is_scale && n_off as f64 <= (1.0 - NEARLY_ALWAYS) * values.len() as f64).then_some((scale, offset))
}

fn share_of(one: &[f64], other: &[f64], holds: impl Fn(f64, f64) -> bool) -> f64 {
    let known = one.iter().zip(other).filter(|(one, other)| !one.is_nan() && !other.is_nan());
    let (n_held, n_known) = known
        .fold((0, 0), |(held, known), (one, other)| (held + usize::from(holds(*one, *other)), known + 1));
    n_held as f64 / f64::max(f64::from(n_known), 1.0)
}

fn is_difference(values: &[f64], of: &[f64], less: &[f64]) -> bool {
    let mut n_held = 0;
    let mut n_off = 0;
    for ((value, of), less) in values.iter().zip(of).zip(less) {
        if (value - (of - less)).abs() < 0.5 || (value.is_nan() && (of.is_nan() || less.is_nan())) {
            n_held += 1;
        } else {
            n_off += 1;
            if n_off as f64 > (1.0 - NEARLY_ALWAYS) * values.len() as f64 {
                return false;
            }
        }
    }
    n_held > 1
}
