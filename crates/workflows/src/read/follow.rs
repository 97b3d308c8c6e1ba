//! Runs that are still going on: logs and submit directories that grow.
//!
//! A follower remembers how far it has read and continues from there. A line counts once its end has been written.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use files::{LimitExceeded, Limits};

use super::run_builder::RunBuilder;
use super::stampede::{self, StampedeFollower};
use super::submit_directory::SubmitDirectory;
use super::{
    Format, Recording, RunState, SNIFF_BYTES, dagman, event_log, first_bytes, jobstate, name_of, nextflow,
};
use crate::error::{Error, Result};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Follows a log, a submit directory with its log, records and sub-workflows, or a stampede database.
#[derive(Debug)]
pub struct RunFollower {
    source: Source,
    name: String,
    is_over: bool,
    reported: HashSet<String>,
}

#[derive(Debug)]
enum Source {
    Log(Box<LogFollower>),
    Directory(Box<SubmitDirectory>),
    Database(Box<StampedeFollower>),
}

/// The state of a followed run after something was appended to its logs.
#[derive(Debug, Clone)]
pub struct Update {
    pub recording: Recording,
    /// Whether the workflow has ended.
    pub is_over: bool,
}

impl RunFollower {
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        let source = if path.is_dir() {
            Source::Directory(Box::new(SubmitDirectory::open(path, limits)?))
        } else if stampede::is_database(&first_bytes(path)?) {
            Source::Database(Box::new(StampedeFollower::open(path, limits)?))
        } else {
            Source::Log(Box::new(LogFollower::open(path, limits)?))
        };
        Ok(Self { source, name: name_of(path), is_over: false, reported: HashSet::new() })
    }

    /// Reads what was appended since the last call; `None` if that was nothing.
    pub fn poll(&mut self) -> Result<Option<Update>> {
        let recording = match &mut self.source {
            Source::Log(log) => log.catch_up()?.then(|| log.recording(&self.name)),
            Source::Directory(directory) => {
                directory.catch_up()?.then(|| directory.recording()).transpose()?
            }
            Source::Database(database) => database.poll()?,
        };
        let Some(recording) = recording else { return Ok(None) };
        self.is_over = recording.state == RunState::Ended;
        Ok(Some(Update { recording, is_over: self.is_over }))
    }

    /// Whether the workflow has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a message has not been returned `true` for before. Messages that differ only in the count at their
    /// beginning are the same message.
    pub fn is_news(&mut self, message: &str) -> bool {
        let without_count = message.trim_start_matches(|c: char| c.is_ascii_digit());
        self.reported.insert(without_count.to_owned())
    }
}

/// Follows one log file.
#[derive(Debug)]
pub struct LogFollower {
    path: PathBuf,
    parser: LogParser,
    /// Bytes that have been read.
    offset: u64,
}

impl LogFollower {
    /// Opens a file, which may still be empty but has to exist.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        File::open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), parser: LogParser::new(limits), offset: 0 })
    }

    /// Reads what has been appended. Returns whether there was anything.
    pub fn catch_up(&mut self) -> Result<bool> {
        let mut file = File::open(&self.path).map_err(Error::io(&self.path))?;
        let length = file.metadata().map_err(Error::io(&self.path))?.len();
        if length < self.offset {
            return Err(Error::file(&self.path, "the log became shorter: it was replaced by another one"));
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
            self.parser.push(&chunk[..count]).map_err(|reason| Error::file(&self.path, reason))?;
        }
    }

    /// Notes that nothing more will be appended, and warns if the last line is cut off.
    pub fn end(&mut self) {
        self.parser.end();
    }

    pub fn builder(&self) -> &RunBuilder {
        &self.parser.builder
    }

    pub fn builder_mut(&mut self) -> &mut RunBuilder {
        &mut self.parser.builder
    }

    /// Whether it has a task, or says that the workflow has started.
    pub fn is_begun(&self) -> bool {
        let parser = &self.parser;
        parser.n_attempts() > 0 || parser.trace.is_some() || parser.builder.state() != RunState::Unknown
    }

    /// The run as known now, with what this log alone cannot tell.
    pub fn recording(&self, name: &str) -> Recording {
        let mut recording = self.parser.recording(name);
        if let Some(lacks) = self.parser.format.and_then(Format::lacks) {
            recording.warnings.insert(0, lacks.to_owned());
        }
        recording
    }
}

/// Parses a log from pieces of any size.
#[derive(Debug, Default)]
pub struct LogParser {
    limits: Limits,
    n_bytes: u64,
    format: Option<Format>,
    /// A line whose end has not arrived yet.
    partial_line: Vec<u8>,
    /// Lines of an event whose end has not arrived yet, and their bytes.
    event: Vec<String>,
    event_bytes: usize,
    names: event_log::NodeNames,
    builder: RunBuilder,
    /// The rows of a Nextflow trace, which is not a log of events.
    trace: Option<nextflow::Trace>,
    n_lines: u64,
}

impl LogParser {
    pub fn new(limits: &Limits) -> Self {
        Self { limits: *limits, ..Self::default() }
    }

    /// Parses the next bytes of a log.
    pub fn push(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        self.n_bytes += bytes.len() as u64;
        // Bounds are checked piece by piece: what a piece adds is bounded by its size.
        for piece in bytes.chunks(CHUNK) {
            self.push_piece(piece)?;
            self.check_limits().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn check_limits(&self) -> std::result::Result<(), LimitExceeded> {
        let Limits { file_bytes, record_bytes, rows, .. } = self.limits;
        let n_record_bytes = (self.partial_line.len() + self.event_bytes) as u64;
        let n_attempts = self.n_attempts() as u64;
        for (found, what, limit, setting) in [
            (self.n_bytes, "its size in bytes", file_bytes, "file_bytes"),
            (n_record_bytes, "one record in bytes", record_bytes, "record_bytes"),
            (n_attempts, "the number of attempts", rows, "rows"),
        ] {
            if found > limit {
                return Err(LimitExceeded { what, limit, setting });
            }
        }
        Ok(())
    }

    fn push_piece(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        // Only new bytes can contain the end of a line that has not ended.
        let new_end = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| self.partial_line.len() + at);
        self.partial_line.extend_from_slice(bytes);
        let Some(end) = new_end else { return Ok(()) };
        if self.format.is_none() {
            // A line whose end has not arrived yet may look like one of another format.
            let whole = &self.partial_line[..end];
            if whole.trim_ascii().is_empty() {
                return Ok(());
            }
            let found = Format::of(&whole[..whole.len().min(SNIFF_BYTES)]);
            let found = found.filter(|format| format.is_log());
            let found = found.ok_or(
                "not a log that can be followed: expected jobstate.log, *.dagman.out, an HTCondor event log or \
                 Nextflow's trace.txt",
            )?;
            self.format = Some(found);
        }
        let rest = self.partial_line.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial_line, rest);
        for line in String::from_utf8_lossy(&whole).lines() {
            self.parse_line(line);
        }
        Ok(())
    }

    fn parse_line(&mut self, line: &str) {
        self.n_lines += 1;
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let parsed = match self.format {
            Some(Format::Nextflow) => {
                match &mut self.trace {
                    Some(trace) => trace.push(line, self.n_lines),
                    None => self.trace = Some(nextflow::Trace::new(line)),
                }
                Ok(())
            }
            Some(Format::Jobstate) => jobstate::apply(line, &mut self.builder),
            Some(Format::Dagman) => dagman::apply(line, &mut self.builder),
            _ if line == event_log::END => {
                let lines = std::mem::take(&mut self.event);
                self.event_bytes = 0;
                event_log::apply(&lines, &mut self.names, &mut self.builder)
            }
            _ => {
                self.event_bytes += line.len();
                self.event.push(line.to_owned());
                Ok(())
            }
        };
        if let Err(reason) = parsed {
            self.builder.warn(format!("line {} is skipped: {reason}", self.n_lines));
        }
    }

    /// Notes that nothing more will come, and warns if the last line is cut off.
    pub fn end(&mut self) {
        if let Some(trace) = &mut self.trace {
            let last = std::mem::take(&mut self.partial_line);
            let last = String::from_utf8_lossy(&last);
            match last.trim_end_matches(['\r', '\n']) {
                "" => {}
                row if trace.is_whole(row) => trace.push(row, self.n_lines + 1),
                _ => trace.warn("the last line is cut off and skipped".into()),
            }
        }
        if !self.partial_line.is_empty() || !self.event.is_empty() {
            self.builder.warn("the last line is cut off and skipped".into());
        }
    }

    /// The attempts that have been read.
    fn n_attempts(&self) -> usize {
        self.trace.as_ref().map_or(self.builder.attempts().len(), nextflow::Trace::n_attempts)
    }

    /// The run as known now.
    pub fn recording(&self, name: &str) -> Recording {
        let trace = self.trace.as_ref().map(|trace| trace.recording(name));
        trace.unwrap_or_else(|| self.builder.recording(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_that_arrives_in_pieces_does_not_change_the_format() {
        let log = "\n\n000 (0011.000.000) 2026-11-01 10:00:00 Job submitted from host: <10.0.0.1:9618>\n\
            \t   DAG Node: count_1\n...\n";
        let mut whole = LogParser::default();
        whole.push(log.as_bytes()).unwrap();
        assert_eq!(whole.recording("run").run.attempts.len(), 1);
        for at in 0..log.len() {
            let mut pieces = LogParser::default();
            pieces.push(&log.as_bytes()[..at]).and_then(|()| pieces.push(&log.as_bytes()[at..])).unwrap();
            assert_eq!(pieces.recording("run"), whole.recording("run"), "cut at {at}");
        }
    }
}
