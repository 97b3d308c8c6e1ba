//! Properties of whole traces: whatever a file contains, it is read consistently or rejected.

use files::{Limited, Limits};
use jobs::source::{parse_csv, parse_swf};
use jobs::trace::ReadOptions;
use jobs::{Column, Preset, Table, Trace, sink};
use proptest::prelude::*;

fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,6}",
        "-?[0-9]{1,4}\\.[0-9]{1,3}",
        Just(String::new()),
        Just("UNLIMITED".to_owned()),
        Just("2021-01-01 10:00:00.5".to_owned()),
        Just("1-02:03:04".to_owned()),
        "[a-z]{1,5}",
        Just("1e300".to_owned()),
    ]
}

fn limited(bytes: &[u8]) -> Limited<&[u8]> {
    Limited::new(bytes, &Limits::default())
}

/// A table in the layout of preset dirlab whose cells may be anything.
fn table() -> impl Strategy<Value = Table> {
    let names =
        ["u_id", "user", "gpu_num", "cpu_num", "node_num", "interval", "run_time", "wall_time", "new_status"];
    let rows = prop::collection::vec(prop::collection::vec(cell(), names.len()), 1..40);
    rows.prop_map(move |rows| {
        let column =
            |(at, name): (usize, &&str)| Column::from_cells(*name, rows.iter().map(|row| row[at].as_str()));
        Table { columns: names.iter().enumerate().map(column).collect(), notes: Vec::new() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn features_of_any_readable_trace_are_even_and_its_intervals_are_not_negative(table in table()) {
        let n_rows = table.n_rows();
        if let Ok(trace) = Trace::from_table(table, &ReadOptions::preset(Preset::Dirlab)) {
            let features = trace.features().unwrap();
            prop_assert_eq!(features.n_jobs(), n_rows);
            prop_assert!(features.columns().iter().all(|column| column.len() == n_rows));
            prop_assert!(features.intervals().iter().all(|interval| *interval >= 0.0));
        }
    }

    #[test]
    fn any_readable_trace_can_be_written_and_read_again(table in table()) {
        let Ok(trace) = Trace::from_table(table, &ReadOptions::preset(Preset::Dirlab)) else { return Ok(()) };
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            sink::write(&path, trace.table(), trace.schema()).unwrap();
            std::fs::read(&path).unwrap()
        };
        let csv = parse_csv(limited(&write("out.csv")), "out.csv".as_ref()).unwrap();
        prop_assert_eq!(csv.n_rows(), trace.table().n_rows());
        let swf = parse_swf(limited(&write("out.swf")), "out.swf".as_ref()).unwrap();
        prop_assert_eq!(swf.n_rows(), trace.table().n_rows());
        let batsim: serde_json::Value = serde_json::from_slice(&write("out.json")).unwrap();
        let jobs = batsim["jobs"].as_array().unwrap();
        prop_assert_eq!(jobs.len(), trace.table().n_rows());
        for job in jobs {
            let profile = job["profile"].as_str().unwrap();
            prop_assert!(batsim["profiles"][profile]["delay"].as_f64().unwrap() >= 0.0);
            prop_assert!(job["res"].as_u64().unwrap() >= 1);
        }
    }
}
