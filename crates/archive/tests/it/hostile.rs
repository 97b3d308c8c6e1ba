//! Archives that somebody else prepared: opening and reading them changes nothing outside, and writing
//! publishes only what an archive may hold.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use archive::{Archive, Settings, WriterSettings};
use workload::{Control, Set, Timestamp};

use crate::labels::label;
use crate::{START, create, files, load, n_readings, reading, source};

const SET: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const PREPARED: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAW.parquet";

/// Adds a set that is committed to an archive, with one prepared file.
fn commit(archive: &Path, prepared: &str, path: &str) {
    let set = archive.join(".spool/staged").join(SET);
    fs::create_dir_all(&set).unwrap();
    fs::write(set.join(PREPARED), "attacker").unwrap();
    let text = format!("{{\"version\":1,\"files\":[{{\"prepared\":{prepared:?},\"path\":{path:?}}}]}}");
    fs::write(set.join("commit.json"), text).unwrap();
}

fn open(folder: &Path) -> Archive {
    Archive::open(folder.to_str().unwrap(), &Settings::default()).unwrap()
}

#[test]
fn a_commit_can_move_only_files_of_its_set_to_places_of_its_archive() {
    let folder = tempfile::tempdir().unwrap();
    let (root, home) = (folder.path().join("archive"), folder.path().join("home"));
    fs::create_dir(&home).unwrap();
    let (shell, key) = (home.join(".bashrc"), home.join("id_rsa"));
    fs::write(&shell, "mine").unwrap();
    fs::write(&key, "secret").unwrap();
    load(&create(&root), "n1", 0..10);
    let absolute = |path: &Path| path.to_str().unwrap().to_owned();
    let hostile = [
        (PREPARED.to_owned(), "../home/.bashrc".to_owned()),
        (PREPARED.to_owned(), absolute(&shell)),
        (PREPARED.to_owned(), "cpu/date=2026-01-02/node=n1/../../../../home/.bashrc".into()),
        (absolute(&key), "labels/01ARZ3NDEKTSV4RRFFQ69G5FAV-00000000.json".into()),
        ("../../../../home/id_rsa".to_owned(), "labels/01ARZ3NDEKTSV4RRFFQ69G5FAV-00000000.json".into()),
        ("commit.json".to_owned(), "archive.json".into()),
    ];
    for (prepared, path) in hostile {
        commit(&root, &prepared, &path);
        let archive = open(&root);
        assert_eq!(n_readings(&archive), 20, "{path}");
        assert!(!archive.verify(&Control::default()).unwrap().problems.is_empty(), "{path}");
        archive.writer(source(), WriterSettings::default()).unwrap().close().ok();
        assert_eq!(fs::read_to_string(&shell).unwrap(), "mine", "{path}");
        assert_eq!(fs::read_to_string(&key).unwrap(), "secret", "{path}");
    }
}

#[test]
fn a_link_in_place_of_a_prepared_file_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (root, key) = (folder.path().join("archive"), folder.path().join("id_rsa"));
    fs::write(&key, "secret").unwrap();
    load(&create(&root), "n1", 0..10);
    let place = "labels/01ARZ3NDEKTSV4RRFFQ69G5FAV-00000000.json";
    commit(&root, PREPARED, place);
    let prepared = root.join(".spool/staged").join(SET).join(PREPARED);
    fs::remove_file(&prepared).unwrap();
    symlink(&key, &prepared).unwrap();
    open(&root).writer(source(), WriterSettings::default()).unwrap().close().ok();
    assert!(!root.join(place).exists());
    assert_eq!(fs::read_to_string(&key).unwrap(), "secret");
}

#[test]
fn reading_does_not_complete_an_interrupted_write_and_hides_what_is_there_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..10);
    load(&archive, "n2", 0..10);
    // As after a crash between the publication of one file and that of the next.
    let published = files(folder.path());
    let place = |path: &Path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
    commit(folder.path(), PREPARED, &place(&published[1]));
    let set = folder.path().join(".spool/staged").join(SET);
    fs::rename(&published[1], set.join(PREPARED)).unwrap();
    let text = format!(
        "{{\"version\":1,\"files\":[{{\"prepared\":\"01ARZ3NDEKTSV4RRFFQ69G5FAX.parquet\",\"path\":{:?}}},\
         {{\"prepared\":{PREPARED:?},\"path\":{:?}}}]}}",
        place(&published[0]),
        place(&published[1])
    );
    fs::write(set.join("commit.json"), text).unwrap();
    let reader = open(folder.path());
    assert_eq!(n_readings(&reader), 0, "both files belong to a write that is not complete");
    reader.verify(&Control::default()).unwrap();
    assert!(set.exists(), "a reader changed the archive");
    archive.compact(Timestamp::from_seconds(START), workload::Millis(0), &Control::default()).unwrap();
    assert!(!set.exists());
    assert_eq!(n_readings(&reader), 40);
}

#[test]
fn locks_follow_no_links_and_keep_what_they_find() {
    let folder = tempfile::tempdir().unwrap();
    let (root, victim) = (folder.path().join("archive"), folder.path().join("passwd"));
    fs::write(&victim, "root:x:0:0").unwrap();
    let archive = create(&root);
    fs::create_dir_all(root.join(".spool/journal")).unwrap();
    symlink(&victim, root.join(".spool/journal/lock")).unwrap();
    symlink(&victim, root.join(".spool/labels.lock")).unwrap();
    assert!(archive.writer(source(), WriterSettings::default()).is_err());
    let label = label("monday", Set::Train, "1", 0..1);
    assert!(archive.add_labels(&[label]).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root:x:0:0");
}

#[test]
fn files_are_for_their_owner_and_group() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let archive = create(&folder.path().join("archive"));
    load(&archive, "n1", 0..10);
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    writer.append(&[reading("n2", 0)]).unwrap();
    let mut n_checked = 0;
    let mut folders = vec![folder.path().join("archive")];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o027, 0, "{}", path.display());
            n_checked += 1;
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    assert!(n_checked > 6);
}
