//! A submit folder of Pegasus: `jobstate.log` (or DAGMan's own log), the graph in `*.dag`, and what kickstart and
//! PegasusLite wrote of every attempt.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::events::Assembly;
use super::follow::Follower;
use super::{Recording, dagman, kickstart};
use crate::error::{Error, Result};

/// A folder and what has been read of it, for a run that goes on.
pub struct SubmitFolder {
    folder: PathBuf,
    log: Follower,
    name: String,
    /// Records of attempts that were over when they were read: they are not read again.
    taken: HashSet<PathBuf>,
}

impl SubmitFolder {
    pub fn open(folder: &Path) -> Result<Self> {
        let files = files(folder, 0)?;
        let ends = |end: &str| files.iter().find(|path| path.to_string_lossy().ends_with(end));
        let log = Some(folder.join("jobstate.log")).filter(|log| log.is_file());
        let log = log.or_else(|| ends(".dagman.out").cloned()).ok_or_else(|| {
            Error::file(
                folder,
                "it is no submit folder of Pegasus: there is neither jobstate.log nor *.dagman.out",
            )
        })?;
        let mut log = Follower::new(&log)?;
        let dag = ends(".dag");
        if let Some(dag) = dag {
            let text = fs::read(dag).map_err(Error::io(dag))?;
            for (parent, child) in dagman::edges(&String::from_utf8_lossy(&text)) {
                log.assembly_mut().edge(&parent, &child);
            }
        }
        let name = dag
            .or(Some(&folder.to_owned()))
            .and_then(|path| path.file_stem())
            .map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned());
        Ok(Self { folder: folder.to_owned(), log, name, taken: HashSet::new() })
    }

    pub fn catch_up(&mut self) -> Result<bool> {
        self.log.catch_up()
    }

    pub fn is_over(&self) -> bool {
        self.log.assembly().is_over()
    }

    /// All that is known now.
    pub fn recording(&mut self) -> Result<Recording> {
        add_records(&self.folder, self.log.assembly_mut(), &mut self.taken)?;
        Ok(self.log.recording(&self.name))
    }
}

pub fn read(folder: &Path) -> Result<Recording> {
    let mut submit = SubmitFolder::open(folder)?;
    submit.catch_up()?;
    submit.log.end();
    if submit.log.assembly().is_empty() {
        return Err(Error::file(folder, "no job is submitted in its log"));
    }
    submit.recording()
}

/// Folders below the submit folder that are looked into.
const MOST_DEPTH: usize = 4;

fn files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(Error::io(folder))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(Error::io(folder))?;
    entries.sort();
    for path in entries {
        if path.is_dir() && depth < MOST_DEPTH {
            found.extend(files(&path, depth + 1)?);
        } else if path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

/// `<task>.out.000` is of the first attempt, `.001` of the second.
fn add_records(folder: &Path, assembly: &mut Assembly, taken: &mut HashSet<PathBuf>) -> Result<()> {
    for path in files(folder, 0)? {
        if taken.contains(&path) {
            continue;
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some((stem, number)) = name.rsplit_once('.') else { continue };
        let (Some(number), Some((task, stream))) = (number.parse::<u32>().ok(), stem.rsplit_once('.')) else {
            continue;
        };
        let Some(attempt) = assembly.numbered(task, number + 1) else { continue };
        let is_over = attempt.execution.is_some();
        let text = || {
            fs::read(&path)
                .map_err(Error::io(&path))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        match stream {
            "out" => {
                if let Err(reason) = kickstart::add_records(&text()?, attempt)
                    && is_over
                {
                    assembly.warnings.push(format!("{name} is left out: {reason}"));
                }
            }
            "err" => kickstart::add_transfers(&text()?, attempt),
            _ => continue,
        }
        if is_over {
            taken.insert(path);
        }
    }
    Ok(())
}
