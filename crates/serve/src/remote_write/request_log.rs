//! Requests that were acknowledged, kept in files until their samples are in the archive.
//!
//! A sender splits a scrape over several requests, so a request alone cannot be stored as readings. It is written here
//! first, and read again after a crash.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remote_write::{Encoding, Version};

/// A file is closed at this size, or at this age.
const MAX_BYTES: u64 = 64 << 20;
const MAX_AGE: Duration = Duration::from_secs(60);
/// A closed file is removed after this time: all of its samples are in the archive then.
const REMOVED_AFTER: Duration = Duration::from_secs(120);
const HEADER: usize = 8;

/// A request as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub version: Version,
    pub encoding: Encoding,
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub struct RequestLog {
    folder: PathBuf,
    number: u64,
    open: Option<Open>,
    closed: Vec<(PathBuf, Instant)>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    n_bytes: u64,
    begun: Instant,
}

impl RequestLog {
    /// Opens the log in a folder and returns the requests that it holds, in order.
    pub fn open(folder: PathBuf) -> io::Result<(Self, Vec<Logged>)> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let name = entry?.file_name();
            numbers
                .extend(name.to_str().and_then(|name| name.strip_suffix(".requests")?.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        let mut log = Self { folder, number: 0, open: None, closed: Vec::new() };
        let mut requests = Vec::new();
        for number in numbers {
            let path = log.path(number);
            requests.extend(read(&path)?);
            log.closed.push((path, Instant::now()));
            log.number = number + 1;
        }
        Ok((log, requests))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:012}.requests"))
    }

    /// Writes requests. When this returns they survive a crash; after an error none was accepted.
    pub fn append<'r>(&mut self, requests: impl Iterator<Item = &'r Logged>) -> io::Result<()> {
        let is_full = |open: &Open| open.n_bytes >= MAX_BYTES || open.begun.elapsed() >= MAX_AGE;
        if self.open.as_ref().is_some_and(is_full) {
            self.close();
        }
        let mut bytes = Vec::new();
        for request in requests {
            let mut payload = vec![request.version as u8, request.encoding as u8];
            payload.extend_from_slice(&request.body);
            bytes.extend((payload.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(&payload).to_le_bytes());
            bytes.extend(payload);
        }
        if self.open.is_none() {
            let path = self.path(self.number);
            let file = OpenOptions::new().create_new(true).write(true).open(&path)?;
            File::open(&self.folder)?.sync_all()?;
            self.number += 1;
            self.open = Some(Open { path, file, n_bytes: 0, begun: Instant::now() });
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let written = open.file.write_all(&bytes).and_then(|()| open.file.sync_data());
        if written.is_err() {
            // The file ends with the last whole group, and is closed.
            let _ = open.file.set_len(open.n_bytes);
            self.close();
            return written;
        }
        open.n_bytes += bytes.len() as u64;
        Ok(())
    }

    fn close(&mut self) {
        self.closed.extend(self.open.take().map(|open| (open.path, Instant::now())));
    }

    /// Removes files whose samples are in the archive.
    pub fn clean(&mut self) {
        self.closed.retain(|(path, closed)| {
            let is_needed = closed.elapsed() < REMOVED_AFTER;
            is_needed
                || std::fs::remove_file(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
    }
}

/// The requests of a file, up to the first that is not whole.
fn read(path: &Path) -> io::Result<Vec<Logged>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let mut requests = Vec::new();
    let mut rest = &bytes[..];
    while let Some((header, after)) = rest.split_at_checked(HEADER) {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let Some((payload, after)) = after.split_at_checked(length) else { break };
        if crc32fast::hash(payload) != checksum {
            break;
        }
        let [version, encoding, body @ ..] = payload else { break };
        let (Some(version), Some(encoding)) = (Version::of(*version), Encoding::of(*encoding)) else { break };
        requests.push(Logged { version, encoding, body: body.to_vec() });
        rest = after;
    }
    if !rest.is_empty() {
        tracing::warn!("{}: the last {} bytes are not a whole request", path.display(), rest.len());
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_again_up_to_a_torn_end() {
        let folder = tempfile::tempdir().unwrap();
        let requests: Vec<Logged> = (0..5)
            .map(|number| Logged {
                version: Version::One,
                encoding: Encoding::Snappy,
                body: vec![number; 40],
            })
            .collect();
        let (mut log, found) = RequestLog::open(folder.path().into()).unwrap();
        assert!(found.is_empty());
        log.append(requests[..2].iter()).unwrap();
        log.append(requests[2..].iter()).unwrap();
        drop(log);
        let (_, found) = RequestLog::open(folder.path().into()).unwrap();
        assert_eq!(found, requests);
        let path = folder.path().join("000000000000.requests");
        let bytes = std::fs::read(&path).unwrap();
        for end in [bytes.len() - 1, bytes.len() - 45, 3] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            let (_, found) = RequestLog::open(folder.path().into()).unwrap();
            assert_eq!(found, requests[..found.len()]);
            assert!(found.len() < 5);
        }
    }
}
