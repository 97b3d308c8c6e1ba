//! Artifacts of every format version are still read, and what was read is compared by value.

use std::path::PathBuf;

use learn::artifact::{Artifact, DataOrigin, Provenance, Tensor};
use serde_json::json;
use workload::Timestamp;

fn stored(name: &str) -> PathBuf {
    testbed::workspace().join("fixtures/artifact").join(name)
}

fn format_2() -> Artifact {
    let tensors = [
        ("f32", Tensor::new(vec![2, 2], vec![1.5f32, -0.25, 0.0, 3.0])),
        ("f64", Tensor::row(vec![std::f64::consts::PI])),
        ("i64", Tensor::row(vec![i64::MIN, 7])),
        ("u8", Tensor::new(vec![3, 1], vec![0u8, 1, 255])),
    ];
    Artifact {
        kind: "example/line".into(),
        body: json!({ "degree": 1 }),
        tensors: tensors.map(|(name, tensor)| (name.to_owned(), tensor)).into(),
        provenance: Provenance {
            created: Some(Timestamp(1_800_000_000_000)),
            data: Some(DataOrigin {
                address: "traces".into(),
                from: Some(Timestamp(1_799_000_000_000)),
                to: Some(Timestamp(1_799_900_000_500)),
                sha256: Some("00ff".into()),
            }),
            parent: Some("older".into()),
        },
    }
}

#[test]
fn a_model_of_format_2_is_read_as_it_was_written() {
    let dir = stored("format-2");
    if std::env::var_os("TRACEWISE_WRITE_GOLDEN").is_some() {
        format_2().write(&dir).unwrap();
    }
    assert_eq!(Artifact::read(&dir, "example").unwrap(), format_2());
    let manifest = Artifact::manifest(&dir).unwrap();
    assert_eq!((manifest.version, manifest.product_version.as_str()), (2, "0.1.0"));
}

#[test]
fn models_of_format_1_are_read_without_provenance() {
    for (name, domain, kind, n_tensors) in [
        ("threads-v1", "threads", "threads/hierarchy", 31),
        ("jobs-v1", "jobs", "jobs/sessions", 7),
        ("workflows-v1", "workflows", "workflows/slowdown", 60),
    ] {
        let found = Artifact::read(&stored(name), domain).unwrap();
        assert_eq!((found.kind.as_str(), found.provenance.clone()), (kind, Provenance::default()));
        assert_eq!(found.tensors.len(), n_tensors, "{name}");
        assert!(found.tensors.values().all(|tensor| tensor.as_f32().is_some()));
        let manifest = Artifact::manifest(&stored(name)).unwrap();
        assert_eq!((manifest.version, manifest.product_version.as_str()), (1, "0.1.0"));
    }
}
