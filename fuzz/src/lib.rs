//! What fuzz targets share: a bound on allocations, a scratch directory, models with right hashes, and work without
//! other threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::LazyLock;

use archive::{Archive, Settings};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The largest allocation that an input of a few kilobytes may cause. LibFuzzer notices only memory that is used.
const MOST_BYTES: usize = 512 << 20;

struct Bounded;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn check(n_bytes: usize) {
    if n_bytes > MOST_BYTES {
        eprintln!("an allocation of {n_bytes} bytes");
        std::process::abort();
    }
}

// SAFETY: every call goes to the allocator of the system unchanged.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, n_bytes: usize) -> *mut u8 {
        check(n_bytes);
        unsafe { System.realloc(place, layout, n_bytes) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }
}

/// A directory for readers that take a path. `scripts/fuzz` sees to it that it is in memory, and removes it.
static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

/// Where a file of this name may be written.
pub fn scratch(name: &str) -> PathBuf {
    SCRATCH.path().join(name)
}

/// Writes a file, and returns its path.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch(name);
    std::fs::write(&path, bytes).expect("a file");
    path
}

/// Says whether an input was read. `scripts/fuzz` tries the first inputs, which have to be: otherwise they are useless,
/// and a change to a format would make them so unnoticed.
pub fn expect(is_read: bool) {
    static IS_FIRST: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TRACEWISE_FIRST_INPUTS").is_some());
    assert!(is_read || !*IS_FIRST, "a first input is refused");
}

/// Runs parallel iterators in the thread that calls them: waking others takes longer than the work.
pub fn without_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    pool.build_global().expect("the only pool");
}

/// Opens an archive in the scratch directory, with a runtime that all archives share: threads take long to start.
pub fn archive(name: &str) -> archive::Result<Archive> {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
    let settings = Settings { runtime: Some(RUNTIME.handle().clone()), ..Settings::default() };
    Archive::open_or_create(&scratch(name).to_string_lossy(), &settings)
}

/// A directory with a model: a manifest and weights, separated by [`SEPARATOR`], with the right hash of the weights.
pub fn model(bytes: &[u8]) -> PathBuf {
    let (manifest, weights) = split_once(bytes, SEPARATOR).unwrap_or((bytes, b""));
    let mut manifest = manifest.to_vec();
    let name = b"\"weights_sha256\": \"";
    if let Some(at) = manifest.windows(name.len()).position(|part| part == name) {
        let hash = Sha256::digest(weights);
        let digits = hash
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| b"0123456789abcdef"[usize::from(digit)]);
        manifest[at + name.len()..].iter_mut().zip(digits).for_each(|(place, digit)| *place = digit);
    }
    let directory = scratch("model");
    std::fs::create_dir_all(&directory).expect("a directory");
    file("model/manifest.json", &manifest);
    file("model/weights.safetensors", weights);
    directory
}

/// Separates the parts of an input that has several.
pub const SEPARATOR: &[u8] = b"\n---\n";

/// The parts before and after the first separator.
pub fn split_once<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(separator.len()).position(|part| part == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}
