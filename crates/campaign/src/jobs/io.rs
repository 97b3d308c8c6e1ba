//! Jobs that write files, one writer per CPU: buffered by the operating system, or forced to disk.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{JobError, JobSpec, Until, on_each};

/// Events written between two checks of the deadline.
const EVENTS_PER_BLOCK: usize = 2_000;
const BAD_FILES: usize = 4;
const BAD_WRITE: usize = 4_096;
/// Writes between two flushes of everything.
const WRITES_PER_FLUSH: u64 = 8;

/// Generates events and writes them as text through a buffer, one file after the other.
pub fn write_buffered(spec: &JobSpec, until: &Until) -> Result<(), JobError> {
    let bytes_per_file = spec.quota / spec.cpus.len() as u64 / 2;
    on_each(spec, until, |worker| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(spec.seed.wrapping_add(worker as u64));
        let mut previous: Option<PathBuf> = None;
        for number in 0u64.. {
            if until.is_over() {
                break;
            }
            let path = spec.scratch.join(format!("good-{}-{worker}-{number}", std::process::id()));
            write_events(&path, bytes_per_file, &mut rng, until)?;
            // Only the newest file is kept, so that the job stays within its quota.
            if let Some(previous) = previous.replace(path) {
                remove(&previous)?;
            }
        }
        previous.map_or(Ok(()), |path| remove(&path))
    })
}

fn write_events(
    path: &Path,
    max_bytes: u64,
    rng: &mut Xoshiro256PlusPlus,
    until: &Until,
) -> Result<(), JobError> {
    let failed = || JobError::io(path.display().to_string());
    let mut file = BufWriter::new(File::create_new(path).map_err(failed())?);
    let size = rng.random_range(max_bytes / 4..=max_bytes.max(1));
    let mut written = 0;
    let mut line = String::new();
    while written < size && !until.is_over() {
        for event in 0..EVENTS_PER_BLOCK {
            use std::fmt::Write;
            line.clear();
            let momentum: [f64; 4] = rng.random();
            let _ = write!(line, "{event}");
            for part in momentum {
                let _ = write!(line, " {part:.9}");
            }
            line.push('\n');
            file.write_all(line.as_bytes()).map_err(failed())?;
            written += line.len() as u64;
        }
    }
    file.flush().map_err(failed())
}

/// Small writes at random offsets of several files, each forced to disk (`O_DSYNC`); all files are flushed
/// after every few writes.
pub fn write_synchronous(spec: &JobSpec, until: &Until) -> Result<(), JobError> {
    let bytes_per_file = spec.quota / spec.cpus.len() as u64 / BAD_FILES as u64;
    let n_blocks = (bytes_per_file / BAD_WRITE as u64).clamp(1, 16_384);
    on_each(spec, until, |worker| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(spec.seed.wrapping_add(worker as u64));
        let path = |number: usize| spec.scratch.join(format!("bad-{}-{worker}-{number}", std::process::id()));
        let mut files = Vec::new();
        for number in 0..BAD_FILES {
            let file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32)
                .open(path(number));
            files.push(file.map_err(JobError::io(path(number).display().to_string()))?);
        }
        let mut block = [0; BAD_WRITE];
        for count in 1u64.. {
            if until.is_over() {
                break;
            }
            let number = rng.random_range(0..BAD_FILES);
            let failed = || JobError::io(path(number).display().to_string());
            rng.fill_bytes(&mut block);
            let offset = rng.random_range(0..n_blocks) * BAD_WRITE as u64;
            files[number].seek(SeekFrom::Start(offset)).map_err(failed())?;
            files[number].write_all(&block[..rng.random_range(64..BAD_WRITE)]).map_err(failed())?;
            if count.is_multiple_of(WRITES_PER_FLUSH) {
                for file in &files {
                    file.sync_all().map_err(failed())?;
                }
            }
        }
        (0..BAD_FILES).try_for_each(|number| remove(&path(number)))
    })
}

fn remove(path: &Path) -> Result<(), JobError> {
    fs::remove_file(path).map_err(JobError::io(path.display().to_string()))
}
