//! What each command prints, and that it is true.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::{export, fixture, import_small, json_of, run, stdout_of, tracewise};

#[test]
fn rates_come_out_as_they_went_in() {
    let folder = tempfile::tempdir().unwrap();
    import_small(folder.path());
    let csv = std::fs::read_to_string(fixture("csv/exathlon-small.csv")).unwrap();
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut expected = BTreeMap::new();
    for line in lines {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        for at in (1..cells.len()).step_by(5) {
            let [idle, steal, system, user, iowait] = cells[at..at + 5] else { unreachable!() };
            if idle >= 0.0 {
                let total = idle + steal + system + user + iowait;
                let name = header[at].split('_').collect::<Vec<_>>();
                let cpu: u16 = name[1].trim_start_matches("CPU").parse().unwrap();
                expected.insert(
                    (cells[0] as i64, name[0].to_owned(), cpu),
                    [user, system, iowait].map(|x| x / total),
                );
            }
        }
    }
    let exported = export(folder.path().to_str().unwrap(), |command| command);
    let mut lines = exported.lines();
    assert_eq!(lines.next(), Some("time,node,cpu,job,user,system,iowait,other"));
    let mut n_rows = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let key = (cells[0].parse().unwrap(), cells[1].to_owned(), cells[2].parse().unwrap());
        let rates: Vec<f64> = cells[4..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!(cells[3], "exathlon-small");
        assert!((rates.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        for (found, expected) in rates.iter().zip(&expected[&key]) {
            assert!((found - expected).abs() < 1e-6, "{line}");
        }
        n_rows += 1;
    }
    assert_eq!(n_rows, expected.len());
}

#[test]
fn a_selection_is_exported_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    import_small(folder.path());
    let rows = export(folder.path().to_str().unwrap(), |command| {
        command.args(["--node", "node2", "--from", "1700000005", "--to", "2023-11-14T22:13:30Z"])
    });
    let times: Vec<&str> = rows.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!((times.first(), times.last()), (Some(&"1700000005"), Some(&"1700000009")));
    assert_eq!(times.len(), 9, "two threads, five seconds, one value missing");
    assert!(rows.lines().skip(1).all(|line| line.contains(",node2,")));
    let other_job = export(folder.path().to_str().unwrap(), |command| command.args(["--job", "none"]));
    assert_eq!(other_job.lines().count(), 1);
}

#[test]
fn compressed_files_are_read_like_plain_ones() {
    let folder = tempfile::tempdir().unwrap();
    let plain = std::fs::read(fixture("csv/exathlon-small.csv")).unwrap();
    let compressed = folder.path().join("exathlon-small.csv.zst");
    std::fs::write(&compressed, zstd::encode_all(&plain[..], 3).unwrap()).unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    import_small(&a);
    stdout_of(
        tracewise().args(["archive", "import", "--preset", "exathlon"]).arg(compressed).arg("--into").arg(&b),
    );
    let exported = |archive: &std::path::Path| export(archive.to_str().unwrap(), |command| command);
    assert_eq!(exported(&a), exported(&b));
}

#[test]
fn importing_twice_changes_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    import_small(folder.path());
    let once = (
        export(archive, |command| command),
        json_of(tracewise().args(["archive", "list", "--json", "--data", archive])),
    );
    import_small(folder.path());
    let twice = (
        export(archive, |command| command),
        json_of(tracewise().args(["archive", "list", "--json", "--data", archive])),
    );
    assert_eq!(once.0, twice.0);
    assert_eq!(once.1["readings"], twice.1["readings"]);
    stdout_of(tracewise().args(["archive", "compact", "--data", archive]));
    assert_eq!(export(archive, |command| command), once.0);
    stdout_of(tracewise().args(["archive", "verify", "--data", archive]));
}

#[test]
fn jobs_that_share_threads_keep_what_is_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    let csv = fixture("csv/exathlon-small.csv");
    for job in ["first", "second"] {
        let mut import = tracewise();
        import.args(["archive", "import", "--preset", "exathlon", "--job", job, "--into", archive]);
        stdout_of(import.arg(&csv));
    }
    for _ in 0..2 {
        let rows = |job: &str| export(archive, |command| command.args(["--job", job]));
        assert_eq!(rows("first").replace("first", "second"), rows("second"));
        assert_eq!(rows("first").lines().count(), 156);
        assert_eq!(export(archive, |command| command), rows("second"));
        let list = json_of(tracewise().args(["archive", "list", "--json", "--data", archive]));
        assert_eq!(list["readings"], 155);
        stdout_of(tracewise().args(["archive", "compact", "--data", archive]));
    }
}

#[test]
fn a_column_map_reads_long_files_of_counters() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, map, archive) =
        (folder.path().join("x.csv"), folder.path().join("map.toml"), folder.path().join("a"));
    std::fs::write(
        &csv,
        "when,host,core,who,busy,idle\n\
         2026-01-01T00:00:00Z,n1,0,7,10.00,90.00\n\
         2026-01-01T00:00:01Z,n1,0,7,10.25,90.75\n\
         2026-01-01T00:00:02Z,n1,0,,11.25,90.75\n",
    )
    .unwrap();
    std::fs::write(
        &map,
        "layout = 'long'\ntime = 'when'\ntime_format = 'rfc3339'\nnode = 'host'\ncpu = 'core'\njob = 'who'\n\
         unit = 'seconds'\n[modes]\nbusy = 'user'\nidle = 'idle'\n",
    )
    .unwrap();
    stdout_of(
        tracewise().args(["archive", "import", "--columns"]).arg(map).arg(csv).arg("--into").arg(&archive),
    );
    let rows = export(archive.to_str().unwrap(), |command| command);
    let expected = "time,node,cpu,job,user,system,iowait,other\n\
                    1767225601,n1,0,7,0.25,0,0,0.75\n\
                    1767225602,n1,0,,1,0,0,0\n";
    assert_eq!(rows, expected);
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    import_small(folder.path());
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    stdout_of(tracewise().args(["archive", "export", "--out"]).arg(&pipe).arg("--data").arg(folder.path()));
    assert_eq!(reader.join().unwrap().lines().count(), 156);
}

#[test]
fn interleaved_nodes_of_a_slow_source_keep_their_rates() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, map, archive) =
        (folder.path().join("x.csv"), folder.path().join("map.toml"), folder.path().join("a"));
    let mut text = "t,n,c,u,i\n".to_owned();
    for second in 0..200i64 {
        let (node, turn) = (second % 10, second / 10);
        text += &format!("{},n{node},0,{},{}\n", 1_700_000_000 + second, turn * 250, turn * 750);
    }
    std::fs::write(&csv, text).unwrap();
    let layout = "layout = 'long'\ntime = 't'\nnode = 'n'\ncpu = 'c'\nunit = 'ticks'\n";
    std::fs::write(&map, format!("{layout}[modes]\nu = 'user'\ni = 'idle'\n")).unwrap();
    stdout_of(
        tracewise().args(["archive", "import", "--columns"]).arg(map).arg(csv).arg("--into").arg(&archive),
    );
    let rows = export(archive.to_str().unwrap(), |command| command);
    assert_eq!(rows.lines().skip(1).filter(|line| line.ends_with(",0.25,0,0,0.75")).count(), 190);
}

#[test]
fn list_says_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    import_small(folder.path());
    let list = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(folder.path()));
    assert_eq!(list["readings"], 155);
    assert_eq!(list["nodes"][0]["node"], "node1");
    assert_eq!(list["nodes"][0]["threads"], 2);
    assert_eq!(list["nodes"][1]["readings"], 77);
    assert_eq!(list["nodes"][0]["from"], 1_700_000_000.0);
    assert_eq!(list["nodes"][0]["to"], 1_700_000_039.0);
    assert_eq!(list["jobs"][0]["job"], "exathlon-small");
}

#[test]
fn people_can_read_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    import_small(folder.path());
    let printed = |arguments: &[&str]| {
        let text = stdout_of(tracewise().args(arguments).current_dir(folder.path()));
        text.replace(folder.path().to_str().unwrap(), "ARCHIVE")
    };
    insta::with_settings!({ filters => vec![(r"\d+ B", "[bytes] B"), (r"\d+\.\d+ bytes", "[bytes] bytes")] }, {
        insta::assert_snapshot!("list", printed(&["archive", "list", "--data", "."]));
        insta::assert_snapshot!("show", printed(&["archive", "show", "--data", "."]));
        insta::assert_snapshot!("verify", printed(&["archive", "verify", "--data", "."]));
    });
}

/// The names of the subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_help_of_every_command_is_as_it_was_read_last() {
    let top = stdout_of(tracewise().arg("--help"));
    insta::assert_snapshot!("help", top);
    for command in subcommands(&top) {
        let help = stdout_of(tracewise().args([&command, "--help"]));
        insta::assert_snapshot!(format!("help-{command}"), help);
        for subcommand in subcommands(&help) {
            let help = stdout_of(tracewise().args([&command, &subcommand, "--help"]));
            insta::assert_snapshot!(format!("help-{command}-{subcommand}"), help);
        }
    }
}

#[test]
fn a_replay_goes_by_time_at_the_speed_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    import_small(folder.path());
    let begun = std::time::Instant::now();
    let lines =
        stdout_of(tracewise().args(["archive", "replay", "--speed", "39", "--data"]).arg(folder.path()));
    let seconds = begun.elapsed().as_secs_f64();
    assert!((0.9..15.0).contains(&seconds), "39 recorded seconds took {seconds} real ones");
    let moments: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(moments.len(), 78);
    let times: Vec<f64> = moments.iter().map(|moment| moment["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted());
    assert_eq!(moments[0]["threads"][0]["owner"], "job");
}

#[test]
fn this_machine_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    let mut recorder = tracewise()
        .args(["record", "--interval", "100ms", "--duration", "1200ms", "--node", "here", "--json", "--into"])
        .arg(&archive)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(recorder.stdout.take().unwrap()).lines();
    let acknowledged: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(recorder.wait().unwrap().success());
    assert!(acknowledged.len() >= 5, "{} readings", acknowledged.len());
    let list = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(&archive));
    let threads = list["nodes"][0]["threads"].as_u64().unwrap();
    assert_eq!(list["readings"].as_u64().unwrap(), threads * acknowledged.len() as u64);
    assert_eq!(list["nodes"][0]["node"], "here");
}

#[test]
fn jobs_on_a_node_are_recorded_with_their_threads_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, node) = (folder.path().join("a"), fixture("nodes/slurm-v2"));
    let mut record = tracewise();
    record.args(["record", "--interval", "100ms", "--duration", "400ms", "--into"]).arg(&archive);
    stdout_of(
        record.arg("--path.procfs").arg(node.join("proc")).arg("--path.cgroupfs").arg(node.join("cgroup")),
    );
    let list = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(&archive));
    assert_eq!(list["nodes"][0]["jobs"], serde_json::json!(["42", "43"]));
    let mut export = tracewise();
    let rows = stdout_of(
        export
            .args(["archive", "export", "--table", "cgroup", "--job", "42", "--out", "-", "--data"])
            .arg(archive),
    );
    assert!(
        rows.lines()
            .nth(1)
            .unwrap()
            .contains(",42,1073741824,2147483648,4294967296,1234,567,1234,567,1234,567,")
    );
}

#[test]
fn the_doctor_says_what_it_found_and_what_to_change() {
    let doctor = |name: &str| {
        let node = fixture(&format!("nodes/{name}"));
        let mut doctor = tracewise();
        let roots = ["--path.procfs=proc", "--path.cgroupfs=cgroup"];
        let output = run(doctor.args(["agent", "doctor"]).args(roots).current_dir(node));
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = doctor("slurm-v2");
    insta::assert_snapshot!("doctor", text);
    assert_eq!(code, Some(0));
    let (code, text) = doctor("slurm-without-cpuset");
    insta::assert_snapshot!("doctor-without-cpuset", text);
    assert_eq!(code, Some(1));
}

#[test]
fn the_configuration_is_shown_checked_and_exemplified() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tracewise.toml");
    std::fs::write(&file, stdout_of(tracewise().args(["config", "example"]))).unwrap();
    let mut check = tracewise();
    assert!(stdout_of(check.args(["config", "check"]).current_dir(folder.path())).contains("is valid"));
    let shown = json_of(
        tracewise()
            .args(["config", "show", "--json"])
            .current_dir(folder.path())
            .env("TRACEWISE_ARCHIVE_ADDRESS", "elsewhere"),
    );
    assert_eq!(shown["archive"]["address"], "elsewhere");
    std::fs::write(&file, "[archive]\naddress = 'x'\nadress = 'y'\n").unwrap();
    let output = run(tracewise().args(["config", "check"]).current_dir(folder.path()));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(complaint.contains("line 3") && complaint.contains("adress"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1);
}

#[test]
fn settings_for_packages_containers_and_kubernetes_are_valid() {
    for file in ["systemd/tracewise.toml", "container/config/tracewise.toml", "kubernetes/tracewise.toml"] {
        let file = testbed::workspace().join("deploy").join(file);
        stdout_of(tracewise().args(["config", "check"]).arg(&file).env("PGPASSWORD", "x"));
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = concat!("tracewise ", env!("CARGO_PKG_VERSION"));
    assert!(stdout_of(tracewise().arg("--version")).starts_with(version));
}
