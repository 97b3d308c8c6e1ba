//! A column of a trace in a few words.

use report::text::show_count;

use super::Trace;
use crate::schema::{ColumnKind, ColumnSpec};
use crate::table::{Column, Values};

impl Trace {
    /// The values of a column in a few words.
    pub fn summary(&self, spec: &ColumnSpec) -> String {
        self.table().column(&spec.name).map_or(String::new(), |column| summary(column, &spec.kind))
    }
}

fn summary(column: &Column, kind: &ColumnKind) -> String {
    match (kind, &column.values) {
        (ColumnKind::Constant { cell }, _) => format!("always {cell:?}"),
        (ColumnKind::Difference { of, less }, _) => format!("{of} minus {less}"),
        (ColumnKind::Product { of, scale, offset }, _) => {
            let offset = if *offset == 0.0 { String::new() } else { format!(" plus {offset:.4e}") };
            format!("{} times {scale:.4e}{offset}", of.join(" times "))
        }
        (ColumnKind::SincePrevious, _) => "seconds since the submission of the previous job".into(),
        (ColumnKind::Category, _) => {
            let mut cells: Vec<String> = (0..column.len()).map(|row| column.cell(row)).collect();
            cells.sort_unstable();
            let mut counts: Vec<(usize, &str)> =
                cells.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0].as_str())).collect();
            counts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
            let n_rows = cells.len() as f64;
            let most: Vec<String> = counts
                .iter()
                .take(3)
                .map(|(count, cell)| format!("{cell} {:.0} %", *count as f64 * 100.0 / n_rows))
                .collect();
            format!("{} values: {}", show_count(counts.len() as u64), most.join(", "))
        }
        (_, Values::Numbers { values, format }) => {
            let mut known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
            known.sort_by(f64::total_cmp);
            let Some(last) = known.last() else { return "all missing".into() };
            let missing = values.len() - known.len();
            let missing =
                if missing > 0 { format!(", {} missing", show_count(missing as u64)) } else { String::new() };
            let median = known[known.len() / 2];
            format!(
                "{} to {}, median {}{missing}",
                format.show(known[0]),
                format.show(*last),
                format.show(median)
            )
        }
        (_, Values::Text { names, .. }) => format!("{} values", show_count(names.len() as u64)),
    }
}
