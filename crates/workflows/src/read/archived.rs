//! A submit directory in a tar archive, plain or compressed. It is unpacked to a temporary directory and read there.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use files::{Limits, Meter};

use super::{Recording, submit_directory};
use crate::error::{Error, Result};
use crate::tar_members;

/// Where a tar archive says that it is one.
const MARK_AT: usize = 257;
/// Directories in a path inside of an archive.
const MAX_DEPTH: usize = 16;

/// Whether a file that begins with these bytes is an archive: compressed files of other formats are not recognised.
pub fn is_archive(first: &[u8]) -> bool {
    first.starts_with(&[0x1f, 0x8b])
        || first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || first.starts_with(b"\xfd7zXZ\0")
        || first.get(MARK_AT..).is_some_and(|rest| rest.starts_with(b"ustar"))
}

/// Reads the submit directory in an archive. Of several, it is the outermost.
pub fn read(path: &Path, limits: &Limits) -> Result<Recording> {
    let wrong = |reason: String| Error::file(path, reason);
    let directory = tempfile::tempdir().map_err(Error::io(path))?;
    let file = files::open(path, limits)?;
    let mut meter = file.meter();
    let mut submit: Option<PathBuf> = None;
    let mut failed: Option<String> = None;
    tar_members::each(file, &mut meter, |name, member, meter: &mut Meter| {
        meter.next_row()?;
        if failed.is_none() {
            match unpack(directory.path(), name, member) {
                Ok(inside) => keep_outermost(&mut submit, &inside),
                Err(reason) => failed = Some(format!("{}: {reason}", name.display())),
            }
        }
        Ok(())
    })
    .map_err(wrong)?;
    if let Some(reason) = failed {
        return Err(wrong(reason));
    }
    let submit = submit.ok_or_else(|| {
        wrong("no submit directory in the archive: it has neither jobstate.log nor *.dagman.out".into())
    })?;
    submit_directory::read(&directory.path().join(submit), limits).map_err(|error| {
        // The temporary directory means nothing to anybody.
        wrong(error.to_string().replace(&*directory.path().to_string_lossy(), ""))
    })
}

/// Writes one file below a directory. Returns its path inside of the archive.
fn unpack(
    directory: &Path,
    name: &Path,
    content: &mut impl io::Read,
) -> std::result::Result<PathBuf, String> {
    let mut inside = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => inside.push(part),
            Component::CurDir => {}
            _ => return Err("a path in the archive leads out of it".into()),
        }
    }
    if inside.components().count() > MAX_DEPTH {
        return Err("a path in the archive is too deep".into());
    }
    write(&directory.join(&inside), content).map_err(|error| error.to_string())?;
    Ok(inside)
}

fn write(target: &Path, content: &mut impl io::Read) -> io::Result<()> {
    target.parent().map_or(Ok(()), fs::create_dir_all)?;
    io::copy(content, &mut File::create(target)?).map(drop)
}

/// Remembers the directory of a workflow's log if it is further out than the one that was found before.
fn keep_outermost(found: &mut Option<PathBuf>, file: &Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name != "jobstate.log" && !name.ends_with(".dagman.out") {
        return;
    }
    let directory = file.parent().unwrap_or(Path::new(""));
    let rank = |path: &Path| (path.components().count(), path.to_owned());
    if found.as_deref().is_none_or(|known| rank(directory) < rank(known)) {
        *found = Some(directory.to_owned());
    }
}
