//! Files of the kernel: small, read whole, and gone without notice.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

const FIRST_SIZE: usize = 4096;
/// The kernel hands out long files a page at a time. A read this short was the last.
const SHORT_READ: usize = 2048;

/// What files are read into, again and again.
#[derive(Debug, Clone, Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// The text of a file.
    pub fn read(&mut self, path: &Path) -> io::Result<&str> {
        let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        self.read_from(&file)
    }

    fn read_from(&mut self, file: &OwnedFd) -> io::Result<&str> {
        let mut length = 0;
        loop {
            if self.0.len() < length + FIRST_SIZE {
                self.0.resize((self.0.len() * 2).max(FIRST_SIZE), 0);
            }
            match rustix::io::read(file, &mut self.0[length..]) {
                Ok(0) => break,
                Ok(read) => {
                    length += read;
                    if read < SHORT_READ {
                        break;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        std::str::from_utf8(&self.0[..length])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// A directory whose files are read by name.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    /// The text of a file in it; absent if there is no such file, or it is not text.
    pub fn read<'b>(&self, name: &str, buffer: &'b mut Buffer) -> Option<&'b str> {
        let file = openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        buffer.read_from(&file).ok()
    }

    /// The number that a file consists of.
    pub fn number(&self, name: &str, buffer: &mut Buffer) -> Option<u64> {
        lines(self.read(name, buffer)?).next()?.trim().parse().ok()
    }
}

/// The lines of a text. A last line without an end may be cut short, and does not count.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

/// The number after a key, in a text of lines such as `nr_throttled 17`.
pub fn value_of(text: &str, key: &str) -> Option<u64> {
    lines(text).find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_short_does_not_count() {
        assert_eq!(lines("a 1\nb 2\nc 3").collect::<Vec<_>>(), ["a 1", "b 2"]);
        assert_eq!(value_of("user_usec 12\nsystem_usec 34", "system_usec"), None);
        assert_eq!(value_of("user_usec 12\n", "user"), None);
        assert_eq!(value_of("user_usec 12\n", "user_usec"), Some(12));
    }

    #[test]
    fn long_files_are_read_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let text = "0123456789\n".repeat(5_000);
        std::fs::write(folder.path().join("long"), &text).unwrap();
        let mut buffer = Buffer::default();
        assert_eq!(buffer.read(&folder.path().join("long")).unwrap(), text);
        std::fs::write(folder.path().join("odd"), [0xff, 0xfe]).unwrap();
        assert!(buffer.read(&folder.path().join("odd")).is_err());
        assert_eq!(Folder::open(folder.path()).unwrap().number("absent", &mut buffer), None);
    }
}
