//! Files: what is read, what is refused, what is written.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use jobs::generators::{Ask, FitSettings, Fitted, Model};
use jobs::{Kind, Preset, Role, Schema, Trace, sink};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::made::{HEADER, csv, trace, trace_of};

fn read(path: &Path, preset: Preset) -> jobs::Result<Trace> {
    Trace::read(path, preset, &BTreeMap::new(), None)
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
        sink::write(&path, &trace.table, &trace.schema).unwrap();
        let again =
            Trace::read(&path, Preset::Dirlab, &BTreeMap::new(), Some(trace.schema.clone())).unwrap().jobs();
        assert_eq!(again.unwrap(), trace.jobs().unwrap(), "{name}");
    }
    let path = folder.path().join("out.swf");
    sink::write(&path, &trace.table, &trace.schema).unwrap();
    let swf = read(&path, Preset::Swf).unwrap().jobs().unwrap();
    let jobs = trace.jobs().unwrap();
    assert_eq!(swf.intervals()[1..], jobs.intervals()[1..]);
    assert_eq!(swf.with_role(Role::RunTime), jobs.with_role(Role::RunTime));
    assert_eq!(swf.with_role(Role::Cores), jobs.with_role(Role::Cores));
    let path = folder.path().join("out.json");
    sink::write(&path, &trace.table, &trace.schema).unwrap();
    let batsim: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(batsim["jobs"].as_array().unwrap().len(), 60);
    let profile = batsim["jobs"][7]["profile"].as_str().unwrap();
    assert_eq!(batsim["profiles"][profile]["delay"], jobs.with_role(Role::RunTime).unwrap()[7]);
    let error = sink::write(&folder.path().join("out.txt"), &trace.table, &trace.schema).unwrap_err();
    assert!(
        error.to_string().ends_with("the name of the file ends in .csv, .swf, .parquet or .json (Batsim)")
    );
}

#[test]
fn swf_keeps_its_header_and_names_its_faults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.swf");
    let job = |number: u32, submit: u32| {
        format!("{number} {submit} 5 60 4 -1 -1 4 100 -1 1 {} 1 -1 1 1 -1 -1", number % 3)
    };
    let jobs: Vec<String> = (1..60).map(|number| job(number, number * 100)).collect();
    std::fs::write(&path, format!("; Computer: Toy\n; MaxJobs: 59\n{}\n", jobs.join("\n"))).unwrap();
    let trace = read(&path, Preset::Swf).unwrap();
    assert_eq!(trace.schema.notes, ["Computer: Toy", "MaxJobs: 59"]);
    let fitted =
        Fitted::fit(&trace, Model::Sessions, FitSettings { n_epochs: None, seed: 0 }, |_| {}).unwrap();
    let table = fitted.sample(&Ask { n_jobs: Some(30), ..Default::default() }).unwrap();
    let out = folder.path().join("made.swf");
    sink::write(&out, &table, &fitted.schema).unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("; Computer: Toy\n") && text.contains("; MaxJobs: 30\n"), "{text}");
    assert_eq!(read(&out, Preset::Swf).unwrap().table.n_rows(), 30);
    for (line, reason) in [
        ("1 2 3", "line 1: 3 fields, but SWF has 18"),
        ("x 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "line 1: job is \"x\", no number"),
    ] {
        std::fs::write(&path, line).unwrap();
        assert!(read(&path, Preset::Swf).unwrap_err().to_string().ends_with(reason));
    }
}

#[test]
fn what_sacct_prints_is_read() {
    let text = "JobID|User|Submit|Start|End|Elapsed|Timelimit|NCPUS|NNodes|State\n\
        11|ann|2026-11-15T08:00:00|2026-11-15T08:00:30|2026-11-15T09:00:30|01:00:00|1-00:00:00|64|1|COMPLETED\n\
        12|bob|2026-11-15T08:01:00|2026-11-15T08:02:00|2026-11-15T08:02:10|00:00:10|01:00:00|128|2|FAILED\n\
        13|ann|2026-11-15T08:05:00|Unknown|Unknown|00:00:00|01:00:00|64|1|PENDING\n";
    let trace = trace_of(text, Preset::Sacct).unwrap();
    let kind = |name: &str| trace.schema.column(name).unwrap().kind.clone();
    assert_eq!(kind("Elapsed"), Kind::Count);
    assert_eq!(kind("Start"), Kind::Time);
    let jobs = trace.jobs().unwrap();
    assert_eq!(jobs.intervals(), [0.0, 60.0, 240.0]);
    assert_eq!(jobs.with_role(Role::RunTime).unwrap(), [3_600.0, 10.0, 0.0]);
    assert_eq!(jobs.with_role(Role::RequestedTime).unwrap()[0], 86_400.0);
    assert!(jobs.with_role(Role::Wait).unwrap()[2].is_nan(), "it has not started");
}

#[test]
fn what_says_the_same_twice_is_found_and_stays_so() {
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
    let roles =
        [("submit", Role::Submit), ("start", Role::Start), ("end", Role::End), ("seconds", Role::RunTime)];
    let roles: BTreeMap<String, Role> = roles
        .into_iter()
        .chain([("nodes", Role::Nodes), ("user", Role::User)])
        .map(|(name, role)| (name.to_owned(), role))
        .collect();
    let trace = Trace::read(&path, Preset::Csv, &roles, None).unwrap();
    let kind = |name: &str| trace.schema.column(name).unwrap().kind.name();
    assert_eq!((kind("seconds"), kind("node_hours"), kind("end")), ("difference", "product", "time"));
    let fitted =
        Fitted::fit(&trace, Model::GaussianCopula, FitSettings { n_epochs: None, seed: 0 }, |_| {}).unwrap();
    let table = fitted.sample(&Ask { n_jobs: Some(40), ..Default::default() }).unwrap();
    let column = |name: &str| table.column(name).unwrap().as_numbers().unwrap();
    for row in 0..40 {
        assert_eq!(column("end")[row] - column("start")[row], column("seconds")[row]);
        assert!(
            (column("node_hours")[row] * 3_600.0 - column("seconds")[row] * column("nodes")[row]).abs()
                < 0.01
        );
    }
}

#[test]
fn bad_input_is_one_clear_line_or_put_right_and_said() {
    let refused =
        |text: &str| trace_of(text, Preset::Dirlab).and_then(|trace| trace.jobs()).unwrap_err().to_string();
    let without_path =
        |line: String| line.split_once(": ").map_or(line.clone(), |(_, reason)| reason.to_owned());
    assert_eq!(without_path(refused("")), "the file is empty");
    assert_eq!(without_path(refused(&format!("{HEADER}\n"))), "there is no job in it");
    assert!(refused(&format!("{HEADER}\n1,2,3\n")).ends_with("line 2: 3 cells, but the header has 9"));
    assert!(refused("a,b\n1,2\n").contains("there is no column for the submission"));
    let one = trace_of(&format!("{HEADER}\n0,1,0,64,1,0,5,60,Pass\n"), Preset::Dirlab).unwrap();
    let error =
        Fitted::fit(&one, Model::Sessions, FitSettings { n_epochs: None, seed: 0 }, |_| {}).err().unwrap();
    assert_eq!(error.to_string(), "there are 1 jobs; 20 are the least to learn from");
    let text = csv(30, 1);
    let with_negative = text.lines().enumerate().map(|(line, text)| match line {
        5 => "4,1,0,64,1,-17,5,60,Pass\n".to_owned(),
        _ => format!("{text}\n"),
    });
    let negative = trace_of(&with_negative.collect::<String>(), Preset::Dirlab).unwrap();
    assert_eq!(negative.jobs().unwrap().intervals()[4], 0.0);
    assert_eq!(negative.warnings, ["1 intervals are missing or negative; they count as zero"]);
    let unsorted = "submit,seconds\n300,5\n100,6\n200,7\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    std::fs::write(&path, unsorted).unwrap();
    let roles = BTreeMap::from([("submit".to_owned(), Role::Submit), ("seconds".to_owned(), Role::RunTime)]);
    let trace = Trace::read(&path, Preset::Csv, &roles, None).unwrap();
    assert_eq!(trace.jobs().unwrap().intervals(), [0.0, 100.0, 100.0]);
    assert_eq!(trace.warnings, ["1 jobs came before the one above them; they were put in order"]);
    let unknown = BTreeMap::from([("when".to_owned(), Role::Submit)]);
    let error = Trace::read(&path, Preset::Csv, &unknown, None).unwrap_err().to_string();
    assert!(error.ends_with("there is no column when; there are submit, seconds"), "{error}");
}

#[test]
fn a_schema_can_be_corrected_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(40);
    let path = folder.path().join("schema.toml");
    trace.schema.write(&path).unwrap();
    assert_eq!(Schema::read(&path).unwrap(), trace.schema);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("constraints", "constrains")).unwrap();
    assert!(Schema::read(&path).unwrap_err().to_string().contains("constrains"), "a misspelt key is refused");
}

#[test]
fn cells_that_are_no_numbers_count_as_not_known_and_a_column_of_words_is_refused() {
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
        assert!(
            trace.warnings[0].starts_with("2 cells of run_time are no numbers")
                && trace.warnings[0].ends_with(cell)
        );
        let runs = trace.jobs().unwrap();
        assert_eq!(runs.with_role(Role::RunTime).unwrap().iter().filter(|run| run.is_nan()).count(), 2);
        let settings = FitSettings { n_epochs: None, seed: 0 };
        let fitted = Fitted::fit(&trace, Model::Sessions, settings, |_| {}).unwrap();
        assert_eq!(fitted.sample(&Ask { n_jobs: Some(50), ..Ask::default() }).unwrap().n_rows(), 50);
    }
    let refusal = trace_of(&with_run("banana", 70), Preset::Dirlab).unwrap_err().to_string();
    assert!(refusal.ends_with("run_time is to hold numbers or times, and holds banana"), "{refusal}");
}

#[test]
fn steps_of_slurm_are_no_jobs_and_limits_that_there_are_not_are_not_known() {
    let mut text = "JobID|User|Submit|Start|End|Elapsed|Timelimit|NCPUS|State\n".to_owned();
    for job in 0..40 {
        let limit = if job % 4 == 0 { "UNLIMITED" } else { "1-00:00:00" };
        let at = |minutes: u32| format!("2026-01-01T{:02}:{:02}:00Z", minutes / 60, minutes % 60);
        let (submit, start, end) = (at(job * 3), at(job * 3 + 1), at(job * 3 + 11));
        text += &format!("{job}|u{}|{submit}|{start}|{end}|00:10:00|{limit}|4|COMPLETED\n", job % 3);
        text += &format!("{job}.batch||{submit}|{start}|{end}|00:10:00||4|COMPLETED\n");
    }
    let trace = trace_of(&text, Preset::Sacct).unwrap();
    assert_eq!(trace.warnings, ["40 steps of jobs are left out"]);
    let jobs = trace.jobs().unwrap();
    assert_eq!(jobs.len(), 40);
    assert_eq!(jobs.with_role(Role::RequestedTime).unwrap()[1], 86_400.0);
    assert!(jobs.with_role(Role::RequestedTime).unwrap()[0].is_nan());
    // What we write has commas, and is read again.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again.csv");
    sink::write(&path, &trace.table, &trace.schema).unwrap();
    let again = read(&path, Preset::Sacct).unwrap().jobs().unwrap();
    assert_eq!(format!("{again:?}"), format!("{jobs:?}"), "what is not known is not equal to itself");
}

#[test]
fn limits_of_supercloud_are_minutes_and_stay_minutes_in_what_is_written() {
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
    let jobs = trace.jobs().unwrap();
    let limits = jobs.with_role(Role::RequestedTime).unwrap();
    assert!(limits[0].is_nan() && limits[1] == 43_200.0);
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.csv", "out.parquet"] {
        let path = folder.path().join(name);
        sink::write(&path, &trace.table, &trace.schema).unwrap();
        let again = read(&path, Preset::Supercloud).unwrap().jobs().unwrap();
        // What is not known is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{jobs:?}"), "{name}");
    }
    let path = folder.path().join("out.swf");
    sink::write(&path, &trace.table, &trace.schema).unwrap();
    let swf = read(&path, Preset::Swf).unwrap();
    let column = |name: &str| swf.table.column(name).unwrap().as_numbers().unwrap()[..4].to_vec();
    assert_eq!(column("requested_time")[1..], [43_200.0; 3]);
    assert_eq!(column("status"), [1.0, 5.0, 0.0, 1.0]);
}

#[test]
fn machines_that_are_given_out_by_gpus_have_as_many_processors_in_swf() {
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
    sink::write(&path, &trace.table, &trace.schema).unwrap();
    let swf = read(&path, Preset::Swf).unwrap();
    assert!(swf.table.column("processors").unwrap().as_numbers().unwrap().iter().all(|count| *count == 8.0));
}

#[test]
fn a_span_is_kept_to_at_any_load_and_its_header_says_when_it_is() {
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
    let fitted =
        Fitted::fit(&trace, Model::Sessions, FitSettings { n_epochs: None, seed: 0 }, |_| {}).unwrap();
    assert!(fitted.has_calendar());
    // A midnight, weeks of seven days after that one.
    let from = 864_000_000.0 + 1_000.0 * 604_800.0;
    let n_jobs: Vec<usize> = [1.0, 2.0]
        .into_iter()
        .map(|scale| {
            let span = Some((from, from + 7.0 * 86_400.0));
            let table = fitted.sample(&Ask { span, scale: Some(scale), ..Ask::default() }).unwrap();
            assert!(table.notes.iter().any(|note| note == "UnixStartTime: 1468800000"), "{:?}", table.notes);
            assert!(table.notes.iter().all(|note| !note.starts_with("EndTime")));
            let submits = table.column("submit").unwrap().as_numbers().unwrap();
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
