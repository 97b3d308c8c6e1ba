//! A kind of job: computes on its CPUs, and writes a checkpoint every few seconds.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use campaign::jobs::{JobError, JobSpec, Until};

/// How long it computes between two checkpoints.
const COMPUTE: Duration = Duration::from_secs(5);
const CHECKPOINT_BYTES: u64 = 64 << 20;
static BLOCK: [u8; 1 << 20] = [7; 1 << 20];

/// Runs until `until` is over, and leaves nothing in its scratch directory.
pub fn run(spec: &JobSpec, until: &Until) -> Result<(), JobError> {
    let path = spec.scratch.join("checkpoint");
    while !until.is_over() {
        compute(spec.cpus.len(), COMPUTE.min(spec.length), until);
        // A job never has more bytes on disk than its quota.
        let written = write(&path, CHECKPOINT_BYTES.min(spec.quota));
        written.map_err(|source| JobError::Io { what: path.display().to_string(), source })?;
    }
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(JobError::Io { what: path.display().to_string(), source })
        }
        _ => Ok(()),
    }
}

/// Keeps one worker per CPU busy.
fn compute(n_workers: usize, length: Duration, until: &Until) {
    let end = Instant::now() + length;
    std::thread::scope(|scope| {
        for worker in 0..n_workers {
            scope.spawn(move || {
                let mut value = worker as f64;
                while Instant::now() < end && !until.is_over() {
                    value = (0..10_000).fold(value, |value, step| (value + f64::from(step)).sqrt());
                }
                std::hint::black_box(value)
            });
        }
    });
}

/// Replaces the checkpoint, and waits until it is on disk.
fn write(path: &Path, n_bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    for begin in (0..n_bytes).step_by(BLOCK.len()) {
        let length = (n_bytes - begin).min(BLOCK.len() as u64);
        file.write_all(&BLOCK[..length as usize])?;
    }
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use campaign::Kind;
    use campaign::jobs::allowed_cpus;

    use super::*;

    #[test]
    fn the_job_ends_in_time_and_removes_its_files() {
        let scratch = tempfile::tempdir().unwrap();
        let length = Duration::from_millis(300);
        let spec = JobSpec {
            kind: Kind::Idle,
            cpus: allowed_cpus().unwrap(),
            length,
            seed: 1,
            scratch: scratch.path().to_owned(),
            quota: 1 << 20,
        };
        let begin = Instant::now();
        run(&spec, &Until::after(length)).unwrap();
        assert!(begin.elapsed() >= length && begin.elapsed() < Duration::from_secs(20));
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
