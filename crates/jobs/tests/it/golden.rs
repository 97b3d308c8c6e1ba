//! Models of every version of the format are read, and sample the rows that are stored next to them.

use std::path::{Path, PathBuf};

use jobs::generators::{GeneratorKind, TrainedGenerator};
use jobs::sink;
use learn::artifact::{Artifact, DataOrigin, Provenance};
use testbed::workspace;
use workload::Timestamp;

use crate::contract::{request, sampled, trained};
use crate::made::trace;

/// The rows that a model samples, as CSV.
fn rows_of(model: &Path) -> String {
    let trained = TrainedGenerator::read(model).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sampled.csv");
    sink::write(&path, &sampled(&trained, &request(10, 1)), trained.schema()).unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn golden(version: &str) -> PathBuf {
    workspace().join("fixtures/artifact").join(version)
}

#[test]
fn models_of_every_version_sample_the_stored_rows() {
    if std::env::var_os("TRACEWISE_UPDATE_GOLDEN").is_some() {
        write_golden();
    }
    for version in ["jobs-v1", "jobs-v2"] {
        let expected = std::fs::read_to_string(golden(version).join("sampled.csv")).unwrap();
        assert_eq!(rows_of(&golden(version)), expected, "{version}");
    }
}

#[test]
fn the_manifest_records_where_a_model_comes_from() {
    let manifest = Artifact::manifest(&golden("jobs-v2")).unwrap();
    assert_eq!(manifest.provenance, provenance());
    assert_eq!(Artifact::manifest(&golden("jobs-v1")).unwrap().provenance, Provenance::default());
}

fn provenance() -> Provenance {
    let data = DataOrigin {
        address: "trace.csv".into(),
        from: Some(Timestamp(1_600_000_000_000)),
        to: Some(Timestamp(1_600_086_400_000)),
        sha256: Some("00".repeat(32)),
    };
    Provenance {
        created: Some(Timestamp(1_763_300_000_000)),
        data: Some(data),
        parent: Some("11".repeat(32)),
    }
}

/// Writes the golden model of the current version. Only for a new version of the format.
fn write_golden() {
    let dir = golden("jobs-v2");
    trained(&trace(60), GeneratorKind::Sessions).write(&dir, &provenance()).unwrap();
    std::fs::write(dir.join("sampled.csv"), rows_of(&dir)).unwrap();
}
