//! Reading and writing files.

use std::io::Write;
use std::path::Path;

use files::Limits;
use jobs::generators::{
    GeneratorKind, LoadFactor, SampleExtent, SampleRequest, TimeSpan, TrainedGenerator, TrainingConfig,
};
use jobs::trace::{ReadOptions, Warning};
use jobs::{ColumnKind, Preset, Role, Schema, Table, Trace, sink};
use workload::Stop;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::contract::{request, sampled, trained};
use crate::made::{HEADER, csv, trace, trace_of};

fn read(path: &Path, preset: Preset) -> jobs::Result<Trace> {
    Trace::read(path, &ReadOptions::preset(preset))
}

fn read_csv<const N: usize>(path: &Path, roles: [(&str, Role); N]) -> jobs::Result<Trace> {
    let roles = roles.map(|(column, role)| (column.to_owned(), role)).into();
    Trace::read(path, &ReadOptions { roles, ..ReadOptions::preset(Preset::Csv) })
}

fn write(path: &Path, trace: &Trace) {
    sink::write(path, trace.table(), trace.schema()).unwrap();
}

fn numbers<'a>(table: &'a Table, name: &str) -> &'a [f64] {
    table.column(name).unwrap().as_numbers().unwrap()
}

#[test]
fn plain_and_compressed_files_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let text = csv(50, 1);
    let plain = folder.path().join("jobs.csv");
    std::fs::write(&plain, &text).unwrap();
    let zst = folder.path().join("jobs.csv.zst");
    std::fs::write(&zst, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    let gz = folder.path().join("jobs.csv.gz");
    let mut writer =
        flate2::write::GzEncoder::new(std::fs::File::create(&gz).unwrap(), flate2::Compression::fast());
    writer.write_all(text.as_bytes()).unwrap();
    writer.finish().unwrap();
    let expected = read(&plain, Preset::Dirlab).unwrap();
    for path in [zst, gz] {
        assert_eq!(read(&path, Preset::Dirlab).unwrap(), expected);
    }
}

#[test]
fn a_table_comes_back_from_csv_swf_and_parquet() {
    let trace = trace(60);
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.csv", "out.parquet"] {
        let path = folder.path().join(name);
        write(&path, &trace);
        let schema = Some(trace.schema().clone());
        let again = Trace::read(&path, &ReadOptions { schema, ..ReadOptions::preset(Preset::Dirlab) });
        assert_eq!(again.unwrap().features().unwrap(), trace.features().unwrap(), "{name}");
    }
    let path = folder.path().join("out.swf");
    write(&path, &trace);
    let swf = read(&path, Preset::Swf).unwrap().features().unwrap();
    let jobs = trace.features().unwrap();
    assert_eq!(swf.intervals()[1..], jobs.intervals()[1..]);
    assert_eq!(swf.with_role(Role::RunTime), jobs.with_role(Role::RunTime));
    assert_eq!(swf.with_role(Role::Cores), jobs.with_role(Role::Cores));
    let path = folder.path().join("out.json");
    write(&path, &trace);
    let batsim: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(batsim["jobs"].as_array().unwrap().len(), 60);
    let profile = batsim["jobs"][7]["profile"].as_str().unwrap();
    assert_eq!(batsim["profiles"][profile]["delay"], jobs.with_role(Role::RunTime).unwrap()[7]);
    let error = sink::write(&folder.path().join("out.txt"), trace.table(), trace.schema()).unwrap_err();
    assert!(error.to_string().ends_with("unknown extension; use .csv, .swf, .parquet or .json (Batsim)"));
}

#[test]
fn swf_headers_are_kept_and_faults_are_located() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.swf");
    let job = |number: u32, submit: u32| {
        format!("{number} {submit} 5 60 4 -1 -1 4 100 -1 1 {} 1 -1 1 1 -1 -1", number % 3)
    };
    let jobs: Vec<String> = (1..60).map(|number| job(number, number * 100)).collect();
    std::fs::write(&path, format!("; Computer: Toy\n; MaxJobs: 59\n{}\n", jobs.join("\n"))).unwrap();
    let trace = read(&path, Preset::Swf).unwrap();
    assert_eq!(trace.schema().notes, ["Computer: Toy", "MaxJobs: 59"]);
    let trained = trained(&trace, GeneratorKind::Sessions);
    let table = sampled(&trained, &request(30, 0));
    let out = folder.path().join("made.swf");
    sink::write(&out, &table, trained.schema()).unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("; Computer: Toy\n") && text.contains("; MaxJobs: 30\n"), "{text}");
    assert_eq!(read(&out, Preset::Swf).unwrap().table().n_rows(), 30);
    for (line, reason) in [
        ("1 2 3", "line 1: 3 fields, but SWF has 18"),
        ("x 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "line 1: job is \"x\", which is not a finite number"),
    ] {
        std::fs::write(&path, line).unwrap();
        assert!(read(&path, Preset::Swf).unwrap_err().to_string().ends_with(reason));
    }
}

#[test]
fn output_of_sacct_is_read() {
    let text = "JobID|User|Submit|Start|End|Elapsed|Timelimit|NCPUS|NNodes|State\n\
        11|ann|2026-11-15T08:00:00|2026-11-15T08:00:30|2026-11-15T09:00:30|01:00:00|1-00:00:00|64|1|COMPLETED\n\
        12|bob|2026-11-15T08:01:00|2026-11-15T08:02:00|2026-11-15T08:02:10|00:00:10|01:00:00|128|2|FAILED\n\
        13|ann|2026-11-15T08:05:00|Unknown|Unknown|00:00:00|01:00:00|64|1|PENDING\n";
    let trace = trace_of(text, Preset::Sacct).unwrap();
    let kind = |name: &str| trace.schema().column(name).unwrap().kind.clone();
    assert_eq!(kind("Elapsed"), ColumnKind::Count);
    assert_eq!(kind("Start"), ColumnKind::Time);
    let jobs = trace.features().unwrap();
    assert_eq!(jobs.intervals(), [0.0, 60.0, 240.0]);
    assert_eq!(jobs.with_role(Role::RunTime).unwrap(), [3_600.0, 10.0, 0.0]);
    assert_eq!(jobs.with_role(Role::RequestedTime).unwrap()[0], 86_400.0);
    assert!(jobs.with_role(Role::Wait).unwrap()[2].is_nan(), "it has not started");
}

#[test]
fn derived_columns_are_found_and_stay_consistent() {
    let mut text = "submit,start,end,seconds,nodes,node_hours,user\n".to_owned();
    for job in 0..80i64 {
        let (submit, wait, run, nodes) =
            (1_700_000_000 + job * 300, job % 7 * 10, 100 + job * 13 % 500, 1 + job % 4);
        let hours = (run * nodes) as f64 / 3_600.0;
        let (start, end) = (submit + wait, submit + wait + run);
        text += &format!("{submit},{start},{end},{run},{nodes},{hours:.6},u{}\n", job % 5);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    std::fs::write(&path, text).unwrap();
    let roles = [
        ("submit", Role::Submit),
        ("start", Role::Start),
        ("end", Role::End),
        ("seconds", Role::RunTime),
        ("nodes", Role::Nodes),
        ("user", Role::User),
    ];
    let trace = read_csv(&path, roles).unwrap();
    let kind = |name: &str| trace.schema().column(name).unwrap().kind.name();
    assert_eq!((kind("seconds"), kind("node_hours"), kind("end")), ("difference", "product", "time"));
    let table = sampled(&trained(&trace, GeneratorKind::GaussianCopula), &request(40, 0));
    let column = |name: &str| numbers(&table, name);
    for row in 0..40 {
        assert_eq!(column("end")[row] - column("start")[row], column("seconds")[row]);
        assert!(
            (column("node_hours")[row] * 3_600.0 - column("seconds")[row] * column("nodes")[row]).abs()
                < 0.01
        );
    }
}

#[test]
fn invalid_input_gives_one_clear_line_or_a_warning() {
    let rejected = |text: &str| trace_of(text, Preset::Dirlab).unwrap_err().to_string();
    let without_path =
        |line: String| line.split_once(": ").map_or(line.clone(), |(_, reason)| reason.to_owned());
    assert_eq!(without_path(rejected("")), "the file is empty");
    assert_eq!(without_path(rejected(&format!("{HEADER}\n"))), "there are no jobs in it");
    assert!(rejected(&format!("{HEADER}\n1,2,3\n")).ends_with("line 2: 3 cells, but the header has 9"));
    assert!(
        rejected("a,b\n1,2\n").ends_with("this is not a trace of preset dirlab: there is no column interval")
    );
    let one = trace_of(&format!("{HEADER}\n0,1,0,64,1,0,5,60,Pass\n"), Preset::Dirlab).unwrap();
    let trained = TrainedGenerator::fit(
        &one,
        GeneratorKind::Sessions,
        TrainingConfig::default(),
        &Stop::default(),
        |_| {},
    );
    assert_eq!(trained.err().unwrap().to_string(), "the trace has 1 jobs, and training needs at least 20");
    let text = csv(30, 1);
    let with_negative = text.lines().enumerate().map(|(line, text)| match line {
        5 => "4,1,0,64,1,-17,5,60,Pass\n".to_owned(),
        _ => format!("{text}\n"),
    });
    let negative = trace_of(&with_negative.collect::<String>(), Preset::Dirlab).unwrap();
    assert_eq!(negative.features().unwrap().intervals()[4], 0.0);
    assert_eq!(negative.warnings(), [Warning::InvalidIntervals { n_jobs: 1 }]);
    let unsorted = "submit,seconds\n300,5\n100,6\n200,7\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    std::fs::write(&path, unsorted).unwrap();
    let trace = read_csv(&path, [("submit", Role::Submit), ("seconds", Role::RunTime)]).unwrap();
    assert_eq!(trace.features().unwrap().intervals(), [0.0, 100.0, 100.0]);
    assert_eq!(trace.warnings(), [Warning::OutOfOrder { n_jobs: 1 }]);
    let error = read_csv(&path, [("when", Role::Submit)]).unwrap_err().to_string();
    assert!(error.ends_with("there is no column when; the columns are submit, seconds"), "{error}");
    let error = read_csv(&path, []).unwrap_err().to_string();
    assert!(
        error.ends_with("no column has the submission time of jobs, or the interval since the previous one"),
        "{error}"
    );
}

#[test]
fn a_schema_can_be_corrected_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(40);
    let path = folder.path().join("schema.toml");
    trace.schema().write(&path).unwrap();
    assert_eq!(Schema::read(&path, &Limits::default()).unwrap(), *trace.schema());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("constraints", "constrains")).unwrap();
    let error = Schema::read(&path, &Limits::default()).unwrap_err().to_string();
    assert!(
        error.contains("constrains") && !error.contains('\n'),
        "a misspelt key is rejected in one line: {error}"
    );
}

#[test]
fn cells_that_are_not_numbers_count_as_unknown() {
    let text = csv(80, 1);
    let with_run = |cell: &str, n_rows: usize| {
        let change = |(row, line): (usize, &str)| {
            let mut cells: Vec<&str> = line.split(',').collect();
            if (1..=n_rows).contains(&row) {
                cells[6] = cell;
            }
            cells.join(",")
        };
        text.lines().enumerate().map(change).collect::<Vec<_>>().join("\n")
    };
    for cell in ["banana", "inf", "1e400"] {
        let trace = trace_of(&with_run(cell, 2), Preset::Dirlab).unwrap();
        let (column, first) = ("run_time".to_owned(), cell.to_owned());
        assert_eq!(trace.warnings(), [Warning::NotNumbers { column, n_cells: 2, first }]);
        let runs = trace.features().unwrap();
        assert_eq!(runs.with_role(Role::RunTime).unwrap().iter().filter(|run| run.is_nan()).count(), 2);
        let trained = trained(&trace, GeneratorKind::Sessions);
        assert_eq!(sampled(&trained, &request(50, 0)).n_rows(), 50);
    }
    let error = trace_of(&with_run("banana", 70), Preset::Dirlab).unwrap_err().to_string();
    assert!(
        error.ends_with("column run_time has to contain numbers or times, but contains \"banana\""),
        "{error}"
    );
}

#[test]
fn steps_of_slurm_jobs_are_left_out_and_missing_limits_are_unknown() {
    let mut text = "JobID|User|Submit|Start|End|Elapsed|Timelimit|NCPUS|State\n".to_owned();
    for job in 0..40 {
        let limit = if job % 4 == 0 { "UNLIMITED" } else { "1-00:00:00" };
        let at = |minutes: u32| format!("2026-01-01T{:02}:{:02}:00Z", minutes / 60, minutes % 60);
        let (submit, start, end) = (at(job * 3), at(job * 3 + 1), at(job * 3 + 11));
        text += &format!("{job}|u{}|{submit}|{start}|{end}|00:10:00|{limit}|4|COMPLETED\n", job % 3);
        text += &format!("{job}.batch||{submit}|{start}|{end}|00:10:00||4|COMPLETED\n");
    }
    let trace = trace_of(&text, Preset::Sacct).unwrap();
    assert_eq!(trace.warnings(), [Warning::JobSteps { n_steps: 40 }]);
    let jobs = trace.features().unwrap();
    assert_eq!(jobs.n_jobs(), 40);
    assert_eq!(jobs.with_role(Role::RequestedTime).unwrap()[1], 86_400.0);
    assert!(jobs.with_role(Role::RequestedTime).unwrap()[0].is_nan());
    // Written with commas, and read again.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again.csv");
    write(&path, &trace);
    let again = read(&path, Preset::Sacct).unwrap().features().unwrap();
    assert_eq!(format!("{again:?}"), format!("{jobs:?}"), "what is not known is not equal to itself");
}

#[test]
fn limits_of_supercloud_are_read_and_written_in_minutes() {
    let mut text = "id_job,id_user,time_submit,time_start,time_end,timelimit,cpus_req,state\n".to_owned();
    for job in 0..40 {
        let (submit, limit) =
            (1.6e9 + f64::from(job) * 90.0, if job % 5 == 0 { 4_294_967_295u32 } else { 720 });
        text += &format!(
            "{job},{},{submit},{},{},{limit},8,{}\n",
            job % 3,
            submit + 30.0,
            submit + 630.0,
            3 + job % 3
        );
    }
    let trace = trace_of(&text, Preset::Supercloud).unwrap();
    let jobs = trace.features().unwrap();
    let limits = jobs.with_role(Role::RequestedTime).unwrap();
    assert!(limits[0].is_nan() && limits[1] == 43_200.0);
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.csv", "out.parquet"] {
        let path = folder.path().join(name);
        write(&path, &trace);
        let again = read(&path, Preset::Supercloud).unwrap().features().unwrap();
        // What is not known is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{jobs:?}"), "{name}");
    }
    let path = folder.path().join("out.swf");
    write(&path, &trace);
    let swf = read(&path, Preset::Swf).unwrap();
    let column = |name: &str| numbers(swf.table(), name)[..4].to_vec();
    assert_eq!(column("requested_time")[1..], [43_200.0; 3]);
    assert_eq!(column("status"), [1.0, 5.0, 0.0, 1.0]);
}

#[test]
fn jobs_on_machines_allocated_by_gpu_have_that_many_processors_in_swf() {
    let text = csv(30, 1);
    let lines = text.lines().skip(1).map(|line| {
        let mut cells: Vec<&str> = line.split(',').collect();
        (cells[2], cells[3], cells[4]) = ("8", "0", "0");
        cells.join(",")
    });
    let text = format!("{HEADER}\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    let trace = trace_of(&text, Preset::Dirlab).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.swf");
    write(&path, &trace);
    let swf = read(&path, Preset::Swf).unwrap();
    assert!(numbers(swf.table(), "processors").iter().all(|count| *count == 8.0));
}

#[test]
fn a_span_keeps_the_daily_cycle_at_any_load_and_its_start_is_in_the_header() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    // Few come at night; the trace begins at a midnight.
    let is_day = |hour: u32| (8..18).contains(&hour);
    let submits: Vec<u32> = (0..28 * 1_440)
        .filter(|minute| rng.random_bool(if is_day(minute / 60 % 24) { 0.2 } else { 0.01 }))
        .map(|minute| minute * 60)
        .collect();
    let job = |(number, submit): (usize, &u32)| {
        format!("{number} {submit} 5 60 4 -1 -1 4 100 -1 1 {} 1 -1 1 1 -1 -1", number % 3)
    };
    let jobs: Vec<String> = submits.iter().enumerate().map(job).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.swf");
    std::fs::write(&path, format!("; UnixStartTime: 864000000\n; EndTime: long ago\n{}\n", jobs.join("\n")))
        .unwrap();
    let trace = read(&path, Preset::Swf).unwrap();
    let trained = trained(&trace, GeneratorKind::Sessions);
    assert!(trained.has_calendar());
    // A midnight, weeks of seven days after that one.
    let from = 864_000_000.0 + 1_000.0 * 604_800.0;
    let n_jobs: Vec<usize> = [1.0, 2.0]
        .into_iter()
        .map(|scale| {
            let extent = SampleExtent::Span(TimeSpan::new(from, from + 7.0 * 86_400.0).unwrap());
            let load = LoadFactor::new(scale).unwrap();
            let table = sampled(&trained, &SampleRequest { extent, load, ..SampleRequest::default() });
            assert!(table.notes.iter().any(|note| note == "UnixStartTime: 1468800000"), "{:?}", table.notes);
            assert!(table.notes.iter().all(|note| !note.starts_with("EndTime")));
            let submits = numbers(&table, "submit");
            assert!(submits.iter().all(|submit| (0.0..7.0 * 86_400.0).contains(submit)));
            let by_day = submits.iter().filter(|submit| is_day((**submit / 3_600.0) as u32 % 24)).count();
            // By chance it would be 0.42.
            assert!(by_day as f64 > 0.6 * submits.len() as f64, "{by_day} of {} by day", submits.len());
            submits.len()
        })
        .collect();
    let ratio = n_jobs[1] as f64 / n_jobs[0] as f64;
    assert!((1.7..2.3).contains(&ratio), "{n_jobs:?}");
}

/// The header that ALCF publishes for DIM_JOB_COMPOSITE, with made-up jobs.
fn alcf(fraction: &str) -> String {
    let mut text = "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,QUEUED_DATE_ID,START_TIMESTAMP,START_DATE_ID,\
        END_TIMESTAMP,END_DATE_ID,USERNAME_GENID,PROJECT_NAME_GENID,QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,\
        NODES_USED,NODES_REQUESTED,CORES_USED,CORES_REQUESTED,LOCATION,EXIT_STATUS,ELIGIBLE_WAIT_SECONDS,\
        ELIGIBLE_WAIT_FACTOR,QUEUED_WAIT_SECONDS,QUEUED_WAIT_FACTOR,REQUESTED_CORE_HOURS,USED_CORE_HOURS,\
        CAPABILITY_USAGE_CORE_HOURS,NONCAPABILITY_USAGE_CORE_HOURS,BUCKETS_A1_USAGE_CORE_HOURS,\
        BUCKETS_A2_USAGE_CORE_HOURS,BUCKETS_B1_USAGE_CORE_HOURS,BUCKETS_B2_USAGE_CORE_HOURS,\
        BUCKETS_C1_USAGE_CORE_HOURS,BUCKETS_C2_USAGE_CORE_HOURS,MACHINE_PARTITION,EXIT_CODE,MODE,RESID,DELETED_BY,CREATE_TIMESTAMP\n"
        .to_owned();
    for job in 0..40 {
        let time = |minutes: u32| format!("2021-03-01 {:02}:{:02}:07{fraction}", minutes / 60, minutes % 60);
        let (queued, start, end) = (time(job * 7), time(job * 7 + 1), time(job * 7 + 31));
        let (nodes, cores) = (1 + job % 4, 64 * (1 + job % 4));
        text += &format!(
            "{job}.theta,{},theta,{queued},20210301,{start},20210301,{end},20210301,U{},P{},default,3600,1800,\
             {nodes},{nodes},{cores},{cores},0-{nodes},{},60,1,60,1,{cores},{},0,0,0,0,0,0,0,0,p,0,script,-1,,{queued}\n",
            500_000 + job,
            job % 5,
            job % 2,
            job % 3 % 2,
            f64::from(cores) / 2.0,
        );
    }
    text
}

#[test]
fn timestamps_of_alcf_may_have_fractions_of_a_second() {
    let whole = trace_of(&alcf(""), Preset::Alcf).unwrap().features().unwrap();
    assert_eq!(whole.intervals()[1..4], [420.0; 3]);
    assert_eq!(whole.with_role(Role::Wait).unwrap()[0], 60.0);
    for fraction in [".0", ".000000", ".250000"] {
        let trace = trace_of(&alcf(fraction), Preset::Alcf).unwrap();
        assert_eq!(trace.features().unwrap(), whole, "{fraction}");
        assert_eq!(trace.schema().column("QUEUED_TIMESTAMP").unwrap().kind, ColumnKind::Time);
    }
    let trace = trace_of(&alcf(".25"), Preset::Alcf).unwrap();
    assert_eq!(trace.table().column("QUEUED_TIMESTAMP").unwrap().cell(1), "2021-03-01 00:07:07.25");
    let table = sampled(&trained(&trace, GeneratorKind::Sessions), &request(30, 1));
    assert_eq!(table.columns.len(), trace.table().columns.len());
}

#[test]
fn a_file_with_every_column_of_alcf_is_read_and_sampled() {
    let trace = read(&testbed::workspace().join("fixtures/job-traces/alcf.csv"), Preset::Alcf).unwrap();
    assert_eq!(Preset::of(trace.table()), Preset::Alcf);
    assert_eq!((trace.table().n_rows(), trace.table().columns.len()), (60, 57));
    let features = trace.features().unwrap();
    for role in
        [Role::User, Role::RunTime, Role::RequestedTime, Role::Nodes, Role::Cores, Role::Status, Role::Wait]
    {
        assert!(features.with_role(role).is_some(), "{role:?}");
    }
    assert!(features.intervals()[1..].iter().all(|interval| (1.0..9_001.0).contains(interval)));
    for derived in ["REQUESTED_CORE_HOURS", "USED_CORE_HOURS"] {
        let kind = &trace.schema().column(derived).unwrap().kind;
        assert!(matches!(kind, ColumnKind::Product { .. }), "{derived}: {kind:?}");
    }
    for kind in [GeneratorKind::Sessions, GeneratorKind::Copulagan] {
        let table = sampled(&trained(&trace, kind), &request(30, 1));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.csv");
        sink::write(&path, &table, trace.schema()).unwrap();
        let again = read(&path, Preset::Alcf).unwrap();
        assert_eq!(again.table().columns.len(), 57, "{kind}");
    }
}

#[test]
fn a_write_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(60);
    for extension in ["csv", "swf", "json", "parquet"] {
        // A directory with the name of the file: the last step of writing fails.
        let path = folder.path().join(format!("out.{extension}"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        assert!(sink::write(&path, trace.table(), trace.schema()).is_err(), "{extension}");
        assert!(path.join("file").is_file(), "{extension}: the directory is untouched");
    }
    let n_entries = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(n_entries, 4, "no temporary file is left");
}
