//! `tracewise jobs inspect`

use std::process::ExitCode;

use files::Limits;
use jobs::schema::Rule;
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
        vec![
            spec.name.clone(),
            spec.role.map_or("", |role| role.name()).to_owned(),
            spec.kind.name().to_owned(),
            trace.summary(spec),
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
