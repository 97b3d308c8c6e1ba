//! Files that are not as they were written are left out and named; the others are read.

use std::path::{Path, PathBuf};

use archive::Archive;

use crate::{create, files, load, rates};

/// An archive of two nodes, the file of the first, and the rates of the second.
fn two_nodes(folder: &Path) -> (Archive, PathBuf, Vec<String>) {
    let archive = create(folder);
    load(&archive, "n2", 0..60);
    let of_second = rates(&archive).unwrap();
    load(&archive, "n1", 0..60);
    let path = files(folder).into_iter().find(|path| path.to_str().unwrap().contains("node=n1")).unwrap();
    (archive, path, of_second)
}

/// Opens an archive anew, so that it has not warned of anything yet.
fn reopened(folder: &Path) -> Archive {
    Archive::open(folder.to_str().unwrap(), &archive::Settings::default()).unwrap()
}

fn names(archive: &Archive, path: &Path) -> bool {
    archive.left_out().iter().any(|problem| problem.contains(path.to_str().unwrap()))
}

#[test]
fn no_flipped_bit_gives_a_wrong_number() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, path, of_second) = two_nodes(folder.path());
    let sound = rates(&archive).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut n_left_out = 0;
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        let archive = reopened(folder.path());
        let found = rates(&archive).unwrap();
        if names(&archive, &path) {
            n_left_out += 1;
            assert!(of_second.iter().all(|step| found.contains(step)), "byte {at}");
            assert!(found.iter().all(|step| sound.contains(step)), "byte {at}");
        } else {
            assert_eq!(found, sound, "byte {at}");
        }
        let report = archive.verify(&workload::Control::default()).unwrap();
        assert_eq!(report.problems.len(), 1, "byte {at} went unnoticed by verify");
    }
    assert!(n_left_out > 10);
}

#[test]
fn a_file_cut_off_anywhere_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_, path, of_second) = two_nodes(folder.path());
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 4, 11, 12, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let archive = reopened(folder.path());
        assert_eq!(rates(&archive).unwrap(), of_second);
        assert!(names(&archive, &path));
    }
}

#[test]
fn a_foreign_file_is_named_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, path, _) = two_nodes(folder.path());
    let sound = rates(&archive).unwrap();
    let foreign = path.with_file_name("part-0.parquet");
    std::fs::copy(&path, &foreign).unwrap();
    assert_eq!(rates(&archive).unwrap(), sound);
    assert!(names(&archive, &foreign));
    assert_eq!(archive.verify(&workload::Control::default()).unwrap().problems.len(), 1);
}

#[test]
fn a_file_moved_to_another_node_is_not_taken_for_that_node() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, path, of_second) = two_nodes(folder.path());
    let elsewhere = PathBuf::from(path.to_str().unwrap().replace("node=n1", "node=n9"));
    std::fs::create_dir_all(elsewhere.parent().unwrap()).unwrap();
    std::fs::rename(path, &elsewhere).unwrap();
    assert_eq!(rates(&archive).unwrap(), of_second);
    assert!(names(&archive, &elsewhere));
}
