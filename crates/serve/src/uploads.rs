//! Files that people send. Each has a directory with the file and a document about it. It appears whole or not at all.

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use files::Limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use workload::Timestamp;

/// The document about a file.
const ABOUT: &str = "about.json";
/// The prefix of directories that are incomplete or being removed.
const HIDDEN: &str = ".";

/// What reading a file may cost: less than on the command line, because the service has other work.
pub const LIMITS: Limits = Limits {
    file_bytes: 4 << 30,
    compression_ratio: 250,
    record_bytes: 1 << 20,
    rows: 2_000_000,
    document_bytes: 256 << 20,
    response_bytes: 256 << 20,
};

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error(
        "{name:?} cannot be a name: use 1 to {max} letters, digits, dots, dashes and underscores, and begin with a \
         letter or digit",
        max = UploadName::MAX_LENGTH
    )]
    Name { name: String },
    #[error("{0} exists already; delete it first, or use another name")]
    Exists(UploadName),
    #[error("there is no {0}")]
    Missing(UploadName),
    #[error("the file has more than {0} bytes, which is the setting serve.limits.upload_bytes")]
    TooLarge(u64),
    #[error(
        "the stored files would have more than {0} bytes, which is the setting serve.limits.stored_bytes; delete some"
    )]
    Full(u64),
    /// What the file contains cannot be used.
    #[error("{0}")]
    Content(String),
    #[error(transparent)]
    File(#[from] files::Error),
}

impl UploadError {
    /// An error about a file, without the directories of this machine.
    pub fn in_file(path: &Path, error: &dyn std::fmt::Display) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::Content(error.to_string().replace(&*path.to_string_lossy(), &name))
    }
}

/// The name of an upload, which is also a name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UploadName(String);

impl UploadName {
    pub const MAX_LENGTH: usize = 100;

    pub fn new(name: &str) -> Result<Self, UploadError> {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if begins_well && name.len() <= Self::MAX_LENGTH && name.chars().all(is_allowed) && name != ABOUT {
            Ok(Self(name.to_owned()))
        } else {
            Err(UploadError::Name { name: name.chars().take(Self::MAX_LENGTH).collect() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without the extensions of its format.
    pub fn stem(&self) -> &str {
        self.0.split('.').next().unwrap_or(&self.0)
    }
}

impl std::fmt::Display for UploadName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known about a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About<A> {
    pub uploaded: Timestamp,
    pub actor: String,
    pub bytes: u64,
    #[serde(flatten)]
    pub content: A,
}

/// A file, and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Upload<A> {
    pub name: UploadName,
    pub path: PathBuf,
    pub about: About<A>,
}

/// A directory of uploads. `A` is what is known about each.
pub struct Uploads<A> {
    folder: PathBuf,
    /// Held while a document changes.
    changing: Mutex<()>,
    about: PhantomData<fn() -> A>,
}

/// An upload that has no name yet. It disappears if it is dropped.
#[derive(Debug)]
pub struct NewUpload {
    name: UploadName,
    folder: TempDir,
}

impl NewUpload {
    /// The name that it was begun with.
    pub const fn name(&self) -> &UploadName {
        &self.name
    }

    /// Where the file is written to.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name.0)
    }
}

impl<A: Serialize + DeserializeOwned> Uploads<A> {
    /// Opens a directory and removes what was not finished when the service ended.
    pub fn open(folder: PathBuf) -> Result<Self, files::Error> {
        files::create_dirs(&folder)?;
        let open = Self { folder, changing: Mutex::default(), about: PhantomData };
        for name in open.names()?.into_iter().filter(|name| name.starts_with(HIDDEN)) {
            let path = open.folder.join(name);
            fs::remove_dir_all(&path).map_err(files::Error::io(&path))?;
        }
        Ok(open)
    }

    fn names(&self) -> Result<Vec<String>, files::Error> {
        let entries = fs::read_dir(&self.folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(files::Error::io(&self.folder))?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// The bytes of all files, also of those that are being received.
    pub fn bytes(&self) -> Result<u64, UploadError> {
        let mut n_bytes = 0;
        for name in self.names()? {
            // It has been removed in the meantime.
            let Ok(files) = fs::read_dir(self.folder.join(name)) else { continue };
            let sizes = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
            n_bytes += sizes.sum::<u64>();
        }
        Ok(n_bytes)
    }

    /// All uploads, the newest first.
    pub fn list(&self) -> Result<Vec<Upload<A>>, UploadError> {
        let mut found = Vec::new();
        for name in self.names()?.iter().filter_map(|name| UploadName::new(name).ok()) {
            match self.find(&name) {
                Ok(upload) => found.push(upload),
                // It has been removed in the meantime.
                Err(UploadError::Missing(_)) => {}
                Err(error) => tracing::warn!("{name} is not listed: {error}"),
            }
        }
        found.sort_by(|a, b| b.about.uploaded.cmp(&a.about.uploaded).then_with(|| a.name.cmp(&b.name)));
        Ok(found)
    }

    pub fn find(&self, name: &UploadName) -> Result<Upload<A>, UploadError> {
        let folder = self.folder.join(&name.0);
        let document = folder.join(ABOUT);
        let text = match fs::read(&document) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(UploadError::Missing(name.clone()));
            }
            Err(error) => return Err(files::Error::io(&document)(error).into()),
        };
        let about = serde_json::from_slice(&text)
            .map_err(|error| UploadError::Content(format!("{}: {error}", document.display())))?;
        Ok(Upload { name: name.clone(), path: folder.join(&name.0), about })
    }

    /// Begins an upload.
    pub fn begin(&self, name: &UploadName) -> Result<NewUpload, UploadError> {
        if self.folder.join(&name.0).exists() {
            return Err(UploadError::Exists(name.clone()));
        }
        self.prepare(name)
    }

    /// Begins an upload whose name may be taken by the time it is finished.
    pub fn prepare(&self, name: &UploadName) -> Result<NewUpload, UploadError> {
        let folder = tempfile::Builder::new().prefix(".new-").tempdir_in(&self.folder);
        let folder = folder.map_err(files::Error::io(&self.folder))?;
        Ok(NewUpload { name: name.clone(), folder })
    }

    /// Gives an upload its name.
    pub fn finish(&self, new: NewUpload, actor: &str, content: A) -> Result<Upload<A>, UploadError> {
        let name = new.name.clone();
        self.finish_as(new, std::iter::once(name), actor, content)
    }

    /// Gives an upload the first of these names that is free.
    pub fn finish_as(
        &self,
        new: NewUpload,
        names: impl IntoIterator<Item = UploadName>,
        actor: &str,
        content: A,
    ) -> Result<Upload<A>, UploadError> {
        let path = new.path();
        let synced = File::open(&path).and_then(|file| {
            file.sync_all()?;
            Ok(file.metadata()?.len())
        });
        let about = About {
            uploaded: Timestamp::from(SystemTime::now()),
            actor: actor.to_owned(),
            bytes: synced.map_err(files::Error::io(&path))?,
            content,
        };
        write_about(new.folder.path(), &about)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |name: &UploadName| !self.folder.join(&name.0).exists();
        let Some(name) = names.into_iter().find(is_free) else { return Err(UploadError::Exists(new.name)) };
        let moved = |from: &Path, to: &Path| fs::rename(from, to).map_err(files::Error::io(to));
        moved(&path, &path.with_file_name(&name.0))?;
        moved(new.folder.path(), &self.folder.join(&name.0))?;
        // There is nothing left to remove.
        let _ = new.folder.keep();
        files::sync_dir(&self.folder)?;
        self.find(&name)
    }

    /// Changes what is known about an upload.
    pub fn change(&self, name: &UploadName, change: impl FnOnce(&mut A)) -> Result<Upload<A>, UploadError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut upload = self.find(name)?;
        change(&mut upload.about.content);
        write_about(&self.folder.join(&name.0), &upload.about)?;
        Ok(upload)
    }

    pub fn remove(&self, name: &UploadName) -> Result<(), UploadError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(name)?;
        let removed = tempfile::Builder::new().prefix(".old-").tempdir_in(&self.folder);
        let removed = removed.map_err(files::Error::io(&self.folder))?;
        let path = self.folder.join(&name.0);
        fs::rename(&path, removed.path().join(&name.0)).map_err(files::Error::io(&path))?;
        files::sync_dir(&self.folder)?;
        Ok(())
    }
}

fn write_about<A: Serialize>(folder: &Path, about: &About<A>) -> Result<(), UploadError> {
    let text = serde_json::to_vec_pretty(about).map_err(|error| UploadError::Content(error.to_string()))?;
    Ok(files::write(&folder.join(ABOUT), &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Lines {
        n_lines: usize,
    }

    fn add(uploads: &Uploads<Lines>, name: &str, text: &str) -> Result<Upload<Lines>, UploadError> {
        let new = uploads.begin(&UploadName::new(name)?)?;
        fs::write(new.path(), text).unwrap();
        uploads.finish(new, "ann", Lines { n_lines: text.lines().count() })
    }

    #[test]
    fn uploads_are_added_changed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let uploads: Uploads<Lines> = Uploads::open(folder.path().join("traces")).unwrap();
        let added = add(&uploads, "a.csv", "1\n2\n").unwrap();
        assert_eq!((added.about.bytes, added.about.content.n_lines), (4, 2));
        assert!((5..1_000).contains(&uploads.bytes().unwrap()), "the file and its document");
        assert!(matches!(add(&uploads, "a.csv", "3\n"), Err(UploadError::Exists(_))));
        let changed = uploads.change(&added.name, |lines| lines.n_lines = 7).unwrap();
        assert_eq!(uploads.list().unwrap(), [changed]);
        uploads.remove(&added.name).unwrap();
        assert!(matches!(uploads.remove(&added.name), Err(UploadError::Missing(_))));
        assert!(uploads.names().unwrap().is_empty(), "nothing is left behind");
    }

    #[test]
    fn two_uploads_of_one_name_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let uploads: Uploads<Lines> = Uploads::open(folder.path().to_owned()).unwrap();
        let name = UploadName::new("a.csv").unwrap();
        let (first, second) = (uploads.begin(&name).unwrap(), uploads.begin(&name).unwrap());
        for new in [&first, &second] {
            fs::write(new.path(), "1\n").unwrap();
        }
        uploads.finish(first, "ann", Lines { n_lines: 1 }).unwrap();
        let error = uploads.finish(second, "bob", Lines { n_lines: 1 }).unwrap_err();
        assert_eq!(error.to_string(), "a.csv exists already; delete it first, or use another name");
        assert_eq!(uploads.find(&name).unwrap().about.actor, "ann");
    }

    #[test]
    fn an_upload_gets_the_first_name_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let uploads: Uploads<Lines> = Uploads::open(folder.path().to_owned()).unwrap();
        let names = || ["a-1.csv", "a-2.csv"].map(|name| UploadName::new(name).unwrap());
        let finish = || {
            let new = uploads.prepare(&names()[0]).unwrap();
            fs::write(new.path(), "1\n").unwrap();
            uploads.finish_as(new, names(), "ann", Lines { n_lines: 1 })
        };
        for expected in names() {
            let made = finish().unwrap();
            assert_eq!(made.name, expected);
            assert_eq!(fs::read_to_string(made.path).unwrap(), "1\n");
        }
        assert!(matches!(finish(), Err(UploadError::Exists(_))));
    }

    #[test]
    fn a_damaged_document_hides_only_its_own_upload() {
        let folder = tempfile::tempdir().unwrap();
        let uploads: Uploads<Lines> = Uploads::open(folder.path().to_owned()).unwrap();
        let (whole, damaged) =
            (add(&uploads, "a.csv", "1\n").unwrap(), add(&uploads, "b.csv", "1\n").unwrap());
        fs::write(damaged.path.with_file_name(ABOUT), "{").unwrap();
        assert_eq!(uploads.list().unwrap(), [whole]);
    }

    #[test]
    fn what_was_not_finished_is_removed_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".new-x")).unwrap();
        fs::write(folder.path().join(".new-x/a.csv"), "1\n").unwrap();
        let uploads: Uploads<Lines> = Uploads::open(folder.path().to_owned()).unwrap();
        assert!(uploads.names().unwrap().is_empty());
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        for name in
            ["", ".", "..", "../a", "a/b", ".hidden", "-x", "a b", "ä", "about.json", &"a".repeat(101)]
        {
            assert!(UploadName::new(name).is_err(), "{name:?}");
        }
        assert_eq!(UploadName::new("theta-2020.csv.gz").unwrap().stem(), "theta-2020");
    }
}
