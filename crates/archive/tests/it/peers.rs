//! Other programs read the same numbers.

use std::process::Command;

use crate::{START, create, load, reading};

const SCRIPT: &str = r#"
import sys, pyarrow.dataset as dataset
table = dataset.dataset(sys.argv[1] + "/cpu", partitioning="hive").to_table()
modes = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
for row in table.sort_by([("cpu", "ascending"), ("time", "ascending")]).to_pylist():
    ticks = [row[mode] for mode in modes]
    print(int(row["time"].timestamp()), row["date"], row["node"], row["cpu"], row["owner"], row["job"], *ticks)
"#;

#[test]
fn pyarrow_reads_back_the_same_numbers() {
    let Some(python) = testbed::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n 1=%/é", 0..90);
    let output = Command::new(python).args(["-c", SCRIPT]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected = Vec::new();
    for cpu in 0..2 {
        for second in 0..90 {
            let thread = &reading("x", second).threads[cpu];
            let (owner, job) = if cpu == 0 { ("nobody", "None") } else { ("job", "17") };
            let ticks: Vec<String> = thread.ticks.0.iter().map(u64::to_string).collect();
            let time = START + second;
            expected.push(format!("{time} 2026-01-02 n 1=%/é {cpu} {owner} {job} {}", ticks.join(" ")));
        }
    }
    let found: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(found, expected);
}
