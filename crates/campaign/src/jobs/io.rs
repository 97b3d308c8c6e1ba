//! Writers, a file each: one kind lets the operating system buffer, the other will not have it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{JobError, Order, Until, on_each};

/// Events between two looks at the clock.
const EVENTS_A_BLOCK: usize = 2_000;
const BAD_FILES: usize = 4;
const BAD_WRITE: usize = 4_096;
/// Writes between two flushes of everything.
const WRITES_A_FLUSH: u64 = 8;

/// Events are made and written as text through an ordinary buffer, in files of a few that follow each
/// other.
pub fn write_well(order: &Order, until: &Until) -> Result<(), JobError> {
    let share = order.quota / order.cpus.len() as u64 / 2;
    on_each(order, until, |worker| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(order.seed.wrapping_add(worker as u64));
        let mut before: Option<PathBuf> = None;
        for number in 0u64.. {
            if until.is_over() {
                break;
            }
            let path = order.scratch.join(format!("good-{}-{worker}-{number}", std::process::id()));
            write_events(&path, share, &mut rng, until)?;
            // The one before is read by nobody any more.
            if let Some(before) = before.replace(path) {
                remove(&before)?;
            }
        }
        before.map_or(Ok(()), |path| remove(&path))
    })
}

fn write_events(path: &Path, most: u64, rng: &mut Xoshiro256PlusPlus, until: &Until) -> Result<(), JobError> {
    let failed = || JobError::io(path.display().to_string());
    let mut file = BufWriter::new(File::create(path).map_err(failed())?);
    let size = rng.random_range(most / 4..=most.max(1));
    let mut written = 0;
    let mut line = String::new();
    while written < size && !until.is_over() {
        for event in 0..EVENTS_A_BLOCK {
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

/// Small writes at random places of several flat files, each forced out, and all flushed every so often.
pub fn write_badly(order: &Order, until: &Until) -> Result<(), JobError> {
    let share = order.quota / order.cpus.len() as u64 / BAD_FILES as u64;
    let n_blocks = (share / BAD_WRITE as u64).clamp(1, 16_384);
    on_each(order, until, |worker| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(order.seed.wrapping_add(worker as u64));
        let path =
            |number: usize| order.scratch.join(format!("bad-{}-{worker}-{number}", std::process::id()));
        let mut files = Vec::new();
        for number in 0..BAD_FILES {
            let file = OpenOptions::new()
                .create(true)
                .truncate(true)
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
            let place = rng.random_range(0..n_blocks) * BAD_WRITE as u64;
            files[number].seek(SeekFrom::Start(place)).map_err(failed())?;
            files[number].write_all(&block[..rng.random_range(64..BAD_WRITE)]).map_err(failed())?;
            if count.is_multiple_of(WRITES_A_FLUSH) {
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
