//! `tracewise jobs inspect`

use std::process::ExitCode;

use files::Limits;
use jobs::schema::Rule;
use jobs::{Column, ColumnKind, Values};
use report::text::{show_count, show_duration};
use serde_json::json;

use crate::args::InspectArgs;
use crate::output::{eprint_note, print, print_json, print_table};

pub fn run(args: &InspectArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let trace = args.reading.read(&args.input, limits)?;
    let schema = trace.schema();
    if let Some(path) = &args.write_schema {
        schema.write(path)?;
        eprint_note(&format!("{}: edit it and pass it to --schema", path.display()));
    }
    let jobs = trace.features()?;
    let span = jobs.arrivals().last().copied().unwrap_or_default();
    if args.json {
        let warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
        print_json(
            &json!({ "jobs": jobs.n_jobs(), "span_seconds": span, "schema": schema, "warnings": warnings }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!(
        "{}: {} jobs in {}\n",
        args.input.display(),
        show_count(jobs.n_jobs() as u64),
        show_duration(span)
    ))?;
    let rows = schema.columns.iter().map(|spec| {
        let column = trace.table().column(&spec.name);
        vec![
            spec.name.clone(),
            spec.role.map_or("", |role| role.name()).to_owned(),
            spec.kind.name().to_owned(),
            column.map_or(String::new(), |column| summary(column, &spec.kind)),
        ]
    });
    print_table(&["COLUMN", "ROLE", "KIND", "VALUES"], &rows.collect::<Vec<_>>())?;
    for constraint in &schema.constraints {
        let rule = match &constraint.rule {
            Rule::AtMost { column, limit } => format!("{column} is at most {limit}"),
            Rule::MultipleOf { column, unit } => format!("{column} is a multiple of {unit}"),
        };
        let effect = if constraint.is_enforced() { "enforced" } else { "not enforced" };
        print(&format!("{rule} in {:.1} % of jobs: {effect}", constraint.fraction * 100.0))?;
    }
    Ok(ExitCode::SUCCESS)
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
