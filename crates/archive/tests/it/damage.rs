//! Files that are not as they were written.

use archive::Error;

use crate::{create, files, load, rates};

#[test]
fn no_flipped_bit_gives_a_wrong_number() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..60);
    let sound = rates(&archive).unwrap();
    let path = files(folder.path()).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let mut n_refused = 0;
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        match rates(&archive) {
            Ok(found) => assert_eq!(found, sound, "byte {at}"),
            Err(error) => {
                n_refused += 1;
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            }
        }
        let report = archive.verify(&workload::Control::default()).unwrap();
        assert_eq!(report.problems.len(), 1, "byte {at} went unnoticed by verify");
    }
    assert!(n_refused > 10);
}

#[test]
fn a_file_cut_off_anywhere_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..60);
    let path = files(folder.path()).remove(0);
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 4, 11, 12, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = rates(&archive).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_foreign_file_is_named_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..60);
    let foreign = files(folder.path())[0].with_file_name("part-0.parquet");
    std::fs::copy(&files(folder.path())[0], &foreign).unwrap();
    assert!(matches!(rates(&archive), Err(Error::Foreign { .. })));
    assert_eq!(archive.verify(&workload::Control::default()).unwrap().problems.len(), 1);
    std::fs::remove_file(foreign).unwrap();
    assert!(rates(&archive).is_ok());
}

#[test]
fn a_file_moved_to_another_node_is_not_taken_for_that_node() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..60);
    let path = files(folder.path()).remove(0);
    let elsewhere = std::path::PathBuf::from(path.to_str().unwrap().replace("node=n1", "node=n9"));
    std::fs::create_dir_all(elsewhere.parent().unwrap()).unwrap();
    std::fs::rename(path, elsewhere).unwrap();
    assert!(matches!(rates(&archive), Err(Error::Damaged { .. })));
}
