//! Holds the table of ARCHITECTURE.md: which crate may use which.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use testbed::workspace;

/// Each crate with its level; a crate may use those of lower levels.
const LEVELS: [(&str, u32); 16] = [
    ("files", 1),
    ("net", 1),
    ("remote_write", 1),
    ("workload", 1),
    ("archive", 2),
    ("learn", 2),
    ("report", 2),
    ("detect", 3),
    ("jobs", 3),
    ("workflows", 3),
    ("agent", 4),
    ("lifecycle", 4),
    ("campaign", 5),
    ("serve", 6),
    ("cli", 7),
    ("testbed", 0),
];

fn manifests() -> BTreeMap<String, toml::Table> {
    let crates = std::fs::read_dir(workspace().join("crates")).unwrap();
    crates
        .map(|entry| {
            let entry = entry.unwrap();
            let text = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
            (entry.file_name().into_string().unwrap(), toml::from_str(&text).unwrap())
        })
        .collect()
}

#[test]
fn every_crate_has_a_level() {
    let known: Vec<String> = LEVELS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for name in manifests().keys() {
        assert!(known.contains(name), "{name} is missing in the table of levels");
    }
}

#[test]
fn crates_use_only_those_below_them() {
    let levels: BTreeMap<&str, u32> = LEVELS.into_iter().collect();
    for (name, manifest) in manifests() {
        for (section, may_test) in [("dependencies", false), ("dev-dependencies", true)] {
            let used = manifest.get(section).and_then(|section| section.as_table());
            for other in used.into_iter().flat_map(|table| table.keys()) {
                let Some(level) = levels.get(other.as_str()) else { continue };
                if other == "testbed" {
                    assert!(may_test, "{name} uses testbed outside its tests");
                } else {
                    assert!(*level < levels[name.as_str()], "{name} must not use {other}");
                }
            }
        }
    }
}

#[test]
fn the_architecture_document_names_every_crate_with_its_level() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    for (name, level) in LEVELS.into_iter().filter(|(name, _)| *name != "testbed") {
        let row = format!("| {level} | `{name}` |");
        assert!(text.contains(&row), "ARCHITECTURE.md has no row that starts {row:?}");
    }
}

#[test]
fn no_path_of_a_machine_and_no_registry_is_written_down() {
    let tracked =
        std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(workspace()).output();
    let Ok(tracked) = tracked else { return testbed::skip("git is not installed") };
    let forbidden = [["/", "work", "/"].concat(), ["/", "root", "/"].concat(), ["artifact", "ory"].concat()];
    for path in String::from_utf8(tracked.stdout).unwrap().split('\0').filter(|path| !path.is_empty()) {
        let Ok(text) = std::fs::read_to_string(workspace().join(path)) else { continue };
        for word in &forbidden {
            assert!(!text.contains(word.as_str()), "{path} contains {word:?}");
        }
    }
}
