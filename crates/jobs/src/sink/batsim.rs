//! JSON workloads for the batch-system simulator Batsim: every job is a delay of its run time.

use std::io::Write;

use serde_json::json;

use super::swf::{fields_of, numbers_with};
use crate::format::Format;
use crate::schema::{Role, Schema};
use crate::table::Table;

/// Positions of fields in SWF.
const SUBMIT: usize = 1;
const RUN_TIME: usize = 3;
const PROCESSORS: usize = 4;
const REQUESTED_TIME: usize = 8;

pub fn write(out: &mut dyn Write, table: &Table, schema: &Schema) -> std::io::Result<()> {
    let fields = fields_of(table, schema);
    let [submissions, run_times, limits] = [SUBMIT, RUN_TIME, REQUESTED_TIME].map(|field| &fields[field]);
    let nodes = numbers_with(table, schema, Role::Nodes);
    let sizes = nodes.as_ref().unwrap_or(&fields[PROCESSORS]);
    let mut profiles = serde_json::Map::new();
    let mut jobs = Vec::with_capacity(table.n_rows());
    for row in 0..table.n_rows() {
        let run_time = Format::Plain { decimals: 2 }.round(run_times[row].max(0.0));
        let profile = format!("delay_{run_time}");
        profiles.entry(&profile).or_insert_with(|| json!({ "type": "delay", "delay": run_time }));
        let mut job = json!({
            "id": row.to_string(),
            "subtime": submissions[row],
            "res": sizes[row].max(1.0) as u64,
            "profile": profile,
        });
        if limits[row] > 0.0 {
            job["walltime"] = json!(limits[row]);
        }
        jobs.push(job);
    }
    let nb_res = sizes.iter().copied().fold(1.0, f64::max) as u64;
    serde_json::to_writer(out, &json!({ "nb_res": nb_res, "jobs": jobs, "profiles": profiles }))?;
    Ok(())
}
