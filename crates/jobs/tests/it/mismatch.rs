//! A synthetic trace with other columns than the real one is rejected, not compared.

use std::path::{Path, PathBuf};

use files::Limits;
use jobs::error::MismatchError;
use jobs::trace::ReadOptions;
use jobs::{Error, Preset, Trace, sink};

use crate::made::{csv, trace};

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn mismatch(real: &Path, preset: Preset, synthetic: &Path) -> MismatchError {
    let real = Trace::read(real, &ReadOptions::preset(preset)).unwrap();
    match real.read_counterpart(synthetic, &Limits::default()) {
        Err(Error::Mismatch(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// An SWF trace in which all fields up to the partition are known.
fn swf() -> String {
    let job = |job: u32| {
        format!(
            "{job} {} {} {} 4 55 100 4 3600 200 1 {} 1 7 1 1 -1 -1\n",
            job * 100,
            job % 9,
            60 + job % 50,
            job % 5
        )
    };
    (1..80).map(job).collect()
}

#[test]
fn an_swf_trace_converted_from_another_layout_is_not_compared_with_a_real_one() {
    let folder = tempfile::tempdir().unwrap();
    let real = file(folder.path(), "real.swf", &swf());
    let converted = folder.path().join("converted.swf");
    let other = trace(80);
    sink::write(&converted, other.table(), other.schema()).unwrap();
    let error = mismatch(&real, Preset::Swf, &converted);
    assert_eq!(error, MismatchError::UnknownColumn { preset: Preset::Swf, column: "wait".into() });
    assert_eq!(
        error.to_string(),
        "column wait of preset swf is known for most jobs of the real trace, and for none of the synthetic one"
    );
}

#[test]
fn missing_and_extra_columns_are_named_with_the_preset() {
    let folder = tempfile::tempdir().unwrap();
    let text = csv(80, 1);
    let real = file(folder.path(), "real.csv", &text);
    let without = text.replace("wall_time", "limit");
    let error = mismatch(&real, Preset::Dirlab, &file(folder.path(), "without.csv", &without));
    assert_eq!(error, MismatchError::MissingColumn { preset: Preset::Dirlab, column: "wall_time".into() });
    assert!(error.to_string().contains("wall_time") && error.to_string().contains("preset dirlab"));
    let with: String = text
        .lines()
        .enumerate()
        .map(|(row, line)| if row == 0 { format!("{line},submit_time\n") } else { format!("{line},{row}\n") })
        .collect();
    let error = mismatch(&real, Preset::Dirlab, &file(folder.path(), "with.csv", &with));
    assert_eq!(error, MismatchError::ExtraColumn { preset: Preset::Dirlab, column: "submit_time".into() });
}

#[test]
fn a_synthetic_trace_in_another_format_is_rejected_and_the_same_one_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let real = file(folder.path(), "real.csv", &csv(80, 1));
    let real = Trace::read(&real, &ReadOptions::preset(Preset::Dirlab)).unwrap();
    let swf = file(folder.path(), "synthetic.swf", &format!("; Version: 2.2\n{}", swf()));
    let error = real.read_counterpart(&swf, &Limits::default()).unwrap_err().to_string();
    assert!(error.ends_with("the file begins with an SWF header, which is preset swf"), "{error}");
    let same = file(folder.path(), "same.csv", &csv(60, 2));
    assert_eq!(real.read_counterpart(&same, &Limits::default()).unwrap().table().n_rows(), 60);
}
