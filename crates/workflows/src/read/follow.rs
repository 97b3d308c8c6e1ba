//! Logs that grow. A follower remembers how far it has read, and reads on from there; the last line counts when its
//! end has been written.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::events::Assembly;
use super::{ENOUGH, Format, Recording, dagman, event_log, jobstate};
use crate::error::{Error, Result};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    format: Option<Format>,
    /// Bytes that have been taken.
    offset: u64,
    /// A line whose end is not there yet.
    rest: Vec<u8>,
    /// Lines of an event whose end is not there yet.
    event: Vec<String>,
    names: event_log::Names,
    assembly: Assembly,
    n_lines: u64,
}

impl Follower {
    /// A file that may still be empty, but has to be there.
    pub fn new(path: &Path) -> Result<Self> {
        File::open(path).map_err(Error::io(path))?;
        Ok(Self {
            path: path.to_owned(),
            format: None,
            offset: 0,
            rest: Vec::new(),
            event: Vec::new(),
            names: event_log::Names::default(),
            assembly: Assembly::default(),
            n_lines: 0,
        })
    }

    /// Reads what has come since; says whether there was anything.
    pub fn catch_up(&mut self) -> Result<bool> {
        let mut file = File::open(&self.path).map_err(Error::io(&self.path))?;
        let length = file.metadata().map_err(Error::io(&self.path))?.len();
        if length < self.offset {
            return Err(Error::file(&self.path, "it has become shorter; it is another log now, start again"));
        }
        if length == self.offset {
            return Ok(false);
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(Error::io(&self.path))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = file.read(&mut chunk).map_err(Error::io(&self.path))?;
            if count == 0 {
                return Ok(true);
            }
            self.offset += count as u64;
            self.take_bytes(&chunk[..count])?;
        }
    }

    fn take_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.rest.extend_from_slice(bytes);
        if self.format.is_none() {
            if !self.rest.contains(&b'\n') {
                return Ok(());
            }
            let found = Format::of(&self.rest[..self.rest.len().min(ENOUGH)]);
            let found =
                found.filter(|format| matches!(format, Format::Jobstate | Format::Dagman | Format::EventLog));
            self.format = Some(found.ok_or_else(|| {
                Error::file(
                    &self.path,
                    "only jobstate.log, *.dagman.out and event logs of HTCondor grow line by line",
                )
            })?);
        }
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        for line in String::from_utf8_lossy(&whole).lines() {
            self.take_line(line);
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) {
        self.n_lines += 1;
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let taken = match self.format {
            Some(Format::Jobstate) => jobstate::take(line, &mut self.assembly),
            Some(Format::Dagman) => dagman::take(line, &mut self.assembly),
            _ if line == event_log::END => {
                let lines = std::mem::take(&mut self.event);
                event_log::take(&lines, &mut self.names, &mut self.assembly)
            }
            _ => {
                self.event.push(line.to_owned());
                Ok(())
            }
        };
        if let Err(reason) = taken
            && self.assembly.warnings.len() < super::MOST_WARNINGS
        {
            self.assembly.warnings.push(format!("line {} is left out: {reason}", self.n_lines));
        }
    }

    /// Nothing more will come: what is cut off is said.
    pub fn end(&mut self) {
        if !self.rest.is_empty() || !self.event.is_empty() {
            self.assembly.warnings.push("the last line is cut off and left out".into());
        }
    }

    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    pub fn assembly_mut(&mut self) -> &mut Assembly {
        &mut self.assembly
    }

    pub fn recording(&self, name: &str) -> Recording {
        self.assembly.recording(name)
    }
}
