//! CSV imports: values survive the round trip, and no input makes the reader panic or store half a file.

use std::path::Path;

use archive::source::{ColumnMap, CsvImport};
use archive::{Archive, LoadReport, Replay, Selection};
use proptest::prelude::*;
use workload::{Control, Mode, Stop};

use crate::{START, create, intake};

const MAP: &str = "layout = 'long'\ntime = 't'\nnode = 'n'\ncpu = 'c'\nunit = 'ticks'\n\
    [modes]\nuser = 'user'\nidle = 'idle'\n";

fn import(archive: &Archive, file: &Path, map: &ColumnMap) -> archive::Result<LoadReport> {
    let import = CsvImport::survey(file, map, "a test", None, &intake(), &Stop::default())?;
    import.load(archive, &Control::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_a_file_says_is_what_the_archive_holds(
        rows in prop::collection::btree_map((0i64..5_000, 0u16..4), (0u64..1 << 40, 0u64..1 << 40), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "c,idle,t,user,n\n".to_owned();
        for ((second, cpu), (user, idle)) in &rows {
            text += &format!("{cpu},{idle},{}.25,{user},\"n,1\"\n", START + second);
        }
        let file = folder.path().join("x.csv");
        std::fs::write(&file, text).unwrap();
        let archive = create(&folder.path().join("a"));
        let report = import(&archive, &file, &ColumnMap::from_toml("m", MAP).unwrap()).unwrap();
        prop_assert_eq!((report.readings, report.repeated, report.missing), (rows.len() as u64, 0, 0));
        let snapshot = archive.snapshot(Selection::default()).unwrap();
        let mut found = std::collections::BTreeMap::new();
        for replayed in Replay::new(&snapshot, None).unwrap() {
            let reading = replayed.unwrap().reading;
            prop_assert_eq!(reading.node.as_str(), "n,1");
            prop_assert_eq!(reading.time.0.rem_euclid(1_000), 250);
            for thread in reading.threads {
                let key = (reading.time.0.div_euclid(1_000) - START, thread.cpu.0);
                found.insert(key, (thread.ticks[Mode::User], thread.ticks[Mode::Idle]));
            }
        }
        prop_assert_eq!(found, rows);
    }

    #[test]
    fn a_garbled_file_is_refused_as_a_whole_or_read_without_panic(
        bytes in prop::collection::vec(prop_oneof![
            Just(b"t,n,c,user,idle\n".to_vec()),
            Just(b"1,n1,0,1,2\n".to_vec()),
            Just(b",".to_vec()),
            Just(b"\"".to_vec()),
            prop::collection::vec(any::<u8>(), 0..12),
        ], 0..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.csv");
        std::fs::write(&file, bytes.concat()).unwrap();
        for (name, map) in [("long", ColumnMap::from_toml("m", MAP).unwrap()), ("wide", ColumnMap::exathlon())] {
            let archive = create(&folder.path().join(name));
            if import(&archive, &file, &map).is_err() {
                prop_assert!(archive.snapshot(Selection::default()).unwrap().nodes().is_empty());
            }
        }
    }

    #[test]
    fn no_text_makes_a_column_map_panic(text in "\\PC{0,80}", part in 0usize..8) {
        let lines: Vec<&str> = MAP.split_inclusive('\n').collect();
        let (before, after) = lines.split_at(part.min(lines.len()));
        let _ = ColumnMap::from_toml("m", &format!("{}{text}\n{}", before.concat(), after.concat()));
    }
}
