//! What a program did to files below a directory, recorded with strace, and what would be left of it after a
//! kill or a power loss at any step.
//!
//! The model of a power loss is the strictest that POSIX allows: content is on disk after an fsync of its
//! file, and a name after an fsync of its directory. Everything else is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The system calls that change files, or make changes durable.
const CALLS: &str = "openat,write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,\
    mkdir,mkdirat,rmdir,ftruncate,linkat";

/// One step of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    CreateFile(PathBuf),
    CreateDir(PathBuf),
    Append(PathBuf, Vec<u8>),
    Truncate(PathBuf, usize),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    /// Something was written to standard output.
    Output(Vec<u8>),
}

/// What happens after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process is killed: the kernel completes what it was asked for.
    Killed,
    /// The power fails.
    PowerLoss,
    /// The power fails, and names that were removed are gone, although their directories were not synced.
    PowerLossAfterRemovals,
}

impl End {
    pub const ALL: [Self; 3] = [Self::Killed, Self::PowerLoss, Self::PowerLossAfterRemovals];
}

/// Runs a program under strace and returns its steps below `root`. `None` without strace.
pub fn record(program: &Command, root: &Path) -> Option<Vec<Step>> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let installed = crate::components().join("strace/usr");
    let mut strace = Command::new("strace");
    if installed.join("bin/strace").exists() {
        strace = Command::new(installed.join("bin/strace"));
        strace.env("LD_LIBRARY_PATH", installed.join("lib/x86_64-linux-gnu"));
    }
    strace.args(["-f", "-qq", "-y", "-xx", "-s", "67108864", "-e", &format!("trace={CALLS}"), "-o"]);
    strace.arg(log.path()).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let output = match strace.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(log.path()).unwrap();
    Some(steps(&text, root))
}

/// The steps of a log of strace, each where the call returned.
fn steps(log: &str, root: &Path) -> Vec<Step> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut known: BTreeSet<PathBuf> = BTreeSet::new();
    let mut found = Vec::new();
    for line in log.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(call) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(process, call);
            continue;
        }
        let whole = match call.strip_prefix("<... ") {
            Some(rest) => {
                let (_, rest) = rest.split_once("resumed>").unwrap_or_default();
                format!("{}{rest}", begun.remove(process).unwrap_or_default())
            }
            None => call.to_owned(),
        };
        if let Some(step) = Call::parse(&whole).and_then(|call| call.step(root, &mut known)) {
            found.push(step);
        }
    }
    found
}

/// A system call that succeeded.
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (call, outcome) = text.rsplit_once(" = ")?;
        if outcome.starts_with('-') || outcome.starts_with('?') {
            return None;
        }
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        // Text is hexadecimal, so that it has no commas.
        Some(Self { name, arguments: arguments.split(", ").collect() })
    }

    /// The path of a descriptor, which is written after its number.
    fn descriptor(&self, index: usize) -> Option<(i32, PathBuf)> {
        let (number, path) = self.arguments.get(index)?.strip_suffix('>')?.split_once('<')?;
        let path = String::from_utf8(bytes(path)).ok()?;
        Some((number.parse().unwrap_or(-1), PathBuf::from(path)))
    }

    fn text(&self, index: usize) -> Option<Vec<u8>> {
        Some(bytes(self.arguments.get(index)?.trim_matches('"')))
    }

    /// A path, relative to the directory before it if there is one.
    fn path(&self, index: usize) -> Option<PathBuf> {
        let path = PathBuf::from(String::from_utf8(self.text(index)?).ok()?);
        let dir = index.checked_sub(1).and_then(|dir| self.descriptor(dir));
        Some(dir.map_or(path.clone(), |(_, dir)| dir.join(path)))
    }

    fn step(&self, root: &Path, known: &mut BTreeSet<PathBuf>) -> Option<Step> {
        let below = |path: PathBuf| path.starts_with(root).then_some(path);
        Some(match self.name {
            "openat" => {
                let path = self.path(1).and_then(below)?;
                let is_new = self.arguments.get(2)?.contains("O_CREAT") && known.insert(path.clone());
                is_new.then_some(Step::CreateFile(path))?
            }
            "mkdir" => Step::CreateDir(self.path(0).and_then(below)?),
            "mkdirat" => Step::CreateDir(self.path(1).and_then(below)?),
            "write" => match self.descriptor(0)? {
                (1, _) => Step::Output(self.text(1)?),
                (_, path) => Step::Append(below(path)?, self.text(1)?),
            },
            "pwrite64" | "writev" | "linkat" => {
                let place = self.descriptor(0).map(|(_, path)| path);
                assert!(place.and_then(below).is_none(), "{} is not part of the model", self.name);
                return None;
            }
            "ftruncate" => Step::Truncate(
                self.descriptor(0).and_then(|(_, path)| below(path))?,
                self.arguments.get(1)?.parse().ok()?,
            ),
            "fsync" | "fdatasync" => Step::Sync(self.descriptor(0).and_then(|(_, path)| below(path))?),
            "rename" => self.rename(self.path(0)?, self.path(1)?, root, known)?,
            "renameat" | "renameat2" => self.rename(self.path(1)?, self.path(3)?, root, known)?,
            "unlink" | "rmdir" => self.remove(self.path(0).and_then(below)?, known),
            "unlinkat" => self.remove(self.path(1).and_then(below)?, known),
            _ => return None,
        })
    }

    fn rename(&self, from: PathBuf, to: PathBuf, root: &Path, known: &mut BTreeSet<PathBuf>) -> Option<Step> {
        assert_eq!(
            from.starts_with(root),
            to.starts_with(root),
            "a file leaves or enters {}",
            root.display()
        );
        known.remove(&from);
        known.insert(to.clone());
        to.starts_with(root).then_some(Step::Rename(from, to))
    }

    fn remove(&self, path: PathBuf, known: &mut BTreeSet<PathBuf>) -> Step {
        known.remove(&path);
        Step::Remove(path)
    }
}

/// The bytes of `\x61\x62`.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|digits| u8::from_str_radix(&digits[..2], 16).unwrap()).collect()
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Dir,
    File(usize),
}

#[derive(Debug, Clone, Default)]
struct Content {
    written: Vec<u8>,
    synced: Vec<u8>,
}

/// Files and directories, as they are and as they would be after a power loss.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, Entry>,
    synced_names: BTreeMap<PathBuf, Entry>,
    /// The same, without names that were removed.
    remaining_names: BTreeMap<PathBuf, Entry>,
}

impl Disk {
    /// Applies a step.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::CreateFile(path) => {
                self.names.insert(path.clone(), Entry::File(self.contents.len()));
                self.contents.push(Content::default());
            }
            Step::CreateDir(path) => drop(self.names.insert(path.clone(), Entry::Dir)),
            Step::Append(path, bytes) => self.content(path).written.extend_from_slice(bytes),
            Step::Truncate(path, length) => self.content(path).written.resize(*length, 0),
            Step::Sync(path) => match self.names.get(path) {
                Some(Entry::File(number)) => {
                    let content = &mut self.contents[*number];
                    content.synced.clone_from(&content.written);
                }
                // The root has no entry of its own.
                Some(Entry::Dir) | None => self.sync_dir(path),
            },
            Step::Rename(from, to) => {
                let entry = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), entry);
            }
            Step::Remove(path) => {
                self.names.remove(path);
                self.remaining_names.remove(path);
            }
            Step::Output(_) => {}
        }
    }

    fn content(&mut self, path: &Path) -> &mut Content {
        let Some(Entry::File(number)) = self.names.get(path) else {
            panic!("{} is not a file", path.display())
        };
        &mut self.contents[*number]
    }

    fn sync_dir(&mut self, dir: &Path) {
        for synced in [&mut self.synced_names, &mut self.remaining_names] {
            synced.retain(|path, _| path.parent() != Some(dir));
            let entries = self.names.iter().filter(|(path, _)| path.parent() == Some(dir));
            synced.extend(entries.map(|(path, entry)| (path.clone(), *entry)));
        }
    }

    /// Writes what is left of everything below `root` to `target`.
    pub fn restore(&self, root: &Path, end: End, target: &Path) {
        let names = match end {
            End::Killed => &self.names,
            End::PowerLoss => &self.synced_names,
            End::PowerLossAfterRemovals => &self.remaining_names,
        };
        fs::create_dir_all(target).unwrap();
        for (path, entry) in names {
            let place = target.join(path.strip_prefix(root).unwrap());
            // What lies in a directory that is lost is lost as well.
            if !place.parent().is_some_and(Path::exists) {
                continue;
            }
            match entry {
                Entry::Dir => fs::create_dir_all(place).unwrap(),
                Entry::File(number) => {
                    let Content { written, synced } = &self.contents[*number];
                    fs::write(place, if end == End::Killed { written } else { synced }).unwrap();
                }
            }
        }
    }
}
