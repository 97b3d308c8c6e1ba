//! Stored models with one value changed and their hash corrected, as whoever can write a model can make
//! them; and a suite that uses each of them once. Nothing may panic, hang or ask for much memory.

use std::any::Any;
use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;

use self::stored_model::StoredModel;

mod stored_model;

/// Uses every variant and not only some of each kind.
const ALL: &str = "TRACEWISE_ALL_HOSTILE_MODELS";
/// The directory of the models; set in the process that uses the variants.
const MODELS: &str = "TRACEWISE_HOSTILE_MODELS";
/// The number of the variant to begin with.
const FIRST: &str = "TRACEWISE_FIRST_HOSTILE_MODEL";
/// The file in which that process notes the variant it is about to use.
const PROGRESS: &str = "progress";
/// Memory that a variant of a small model may use in addition to that of the test.
const MEMORY: u64 = 1 << 30;
const SECONDS_PER_VARIANT: u64 = if cfg!(test) { 2 } else { 20 };
/// After so many processes that ended early, the rest is not tried.
const MAX_PROCESSES: usize = 10;
/// Variants of one model, unless all are used.
const MAX_VARIANTS: usize = 150;

/// Stores a model of each kind with `store`, changes one value at a time, and calls `use_model`, which
/// loads a model and uses it once. A model that is rejected is as good as one that works.
///
/// The variants are used in a process of its own, so that an abort or an endless loop is a failure and not
/// the end of the tests. `test` is the name of the calling test, as `cargo test -- --exact` expects it.
///
/// # Panics
/// If a variant is harmful, or the unchanged model is rejected.
pub fn assert_harmless(
    test: &str,
    kinds: &[&str],
    store: impl Fn(&str, &Path),
    use_model: impl Fn(&Path) -> Result<(), String>,
) {
    if let Some(models) = std::env::var_os(MODELS) {
        let first = std::env::var(FIRST).unwrap().parse().unwrap();
        return use_variants(Path::new(&models), kinds, first, use_model);
    }
    let models = tempfile::tempdir().unwrap();
    for kind in kinds {
        store(kind, &models.path().join(kind));
    }
    let mut failures = Vec::new();
    let mut first = 0;
    for _ in 0..MAX_PROCESSES {
        let end = run_in_process(test, models.path(), first);
        let Progress { number, variant, panics } = Progress::read(models.path());
        failures.extend(panics);
        match end {
            None => break,
            Some(how) => failures.push(format!("{variant}: {how}")),
        }
        first = number + 1;
    }
    assert!(failures.is_empty(), "{} harmful variants:\n{}", failures.len(), failures.join("\n"));
}

/// What the process that uses the variants has come to.
struct Progress {
    number: usize,
    variant: String,
    panics: Vec<String>,
}

impl Progress {
    fn write(&self, models: &Path) {
        let value = json!([self.number, self.variant, self.panics]);
        fs::write(models.join(PROGRESS), value.to_string()).unwrap();
    }

    fn read(models: &Path) -> Self {
        let text = fs::read(models.join(PROGRESS)).unwrap();
        let (number, variant, panics) = serde_json::from_slice(&text).unwrap();
        Self { number, variant, panics }
    }
}

/// Runs the calling test in a process of its own; returns how it ended, unless it passed.
fn run_in_process(test: &str, models: &Path, first: usize) -> Option<String> {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--test-threads=1"])
        .env(MODELS, models)
        .env(FIRST, first.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let progress = models.join(PROGRESS);
    let changed = || fs::metadata(&progress).and_then(|file| file.modified()).ok();
    let (mut last, mut since) = (changed(), Instant::now());
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return (!status.success()).then(|| format!("ended with {status}"));
        }
        if changed() != last {
            (last, since) = (changed(), Instant::now());
        }
        if since.elapsed() > Duration::from_secs(SECONDS_PER_VARIANT) {
            process.kill().unwrap();
            process.wait().unwrap();
            return Some(format!("did not end within {SECONDS_PER_VARIANT} s"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn use_variants(
    models: &Path,
    kinds: &[&str],
    first: usize,
    use_model: impl Fn(&Path) -> Result<(), String>,
) {
    let variant_dir = models.join("variant");
    limit_memory();
    let is_all = std::env::var_os(ALL).is_some();
    let n_used = Cell::new(0usize);
    let mut panics = Vec::new();
    let mut used = |what: String, dir: &Path, prepare: &dyn Fn()| -> Option<Result<(), String>> {
        let number = n_used.replace(n_used.get() + 1);
        if number < first {
            return None;
        }
        prepare();
        Progress { number, variant: what.clone(), panics: panics.clone() }.write(models);
        let result = catch_unwind(AssertUnwindSafe(|| use_model(dir)));
        result.map_err(|panic| panics.push(format!("{what}: {}", message_of(panic.as_ref())))).ok()
    };
    for kind in kinds {
        let dir = models.join(kind);
        if let Some(unchanged) = used(format!("{kind}, unchanged"), &dir, &|| {}) {
            unchanged.unwrap_or_else(|error| panic!("the unchanged model {kind} is rejected: {error}"));
        }
        let model = StoredModel::read(&dir);
        let variants = model.variants(is_all);
        let is_used = |at: &usize| is_all || is_sampled(*at, variants.len());
        for variant in (0..variants.len()).filter(is_used).map(|at| &variants[at]) {
            let prepare = || model.changed(variant).write(&variant_dir);
            used(format!("{kind}, {variant}"), &variant_dir, &prepare);
        }
    }
    Progress { number: n_used.get(), variant: "none".into(), panics }.write(models);
}

/// Whether a variant is among the [`MAX_VARIANTS`] or so that are used. Every n-th would be the same change of
/// each value, so the numbers are scattered first.
fn is_sampled(at: usize, n_variants: usize) -> bool {
    let scattered = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    scattered as usize % n_variants < MAX_VARIANTS
}

/// Makes a large allocation fail, which ends the process.
fn limit_memory() {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let n_pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = Some(n_pages * rustix::param::page_size() as u64 + MEMORY);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn store(_: &str, dir: &Path) {
        fs::create_dir(dir).unwrap();
        let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  "#;
        let weights = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 8]].concat();
        fs::write(dir.join("weights.safetensors"), weights).unwrap();
        let manifest = json!({ "format": "f", "version": 2, "weights_sha256": "", "body": { "n": 3 } });
        fs::write(dir.join("manifest.json"), manifest.to_string()).unwrap();
    }

    /// A reader that trusts what it reads.
    fn use_model(dir: &Path) -> Result<(), String> {
        let manifest: Value = serde_json::from_slice(&fs::read(dir.join("manifest.json")).unwrap()).unwrap();
        let n = &manifest["body"]["n"];
        assert_ne!(n.as_i64(), Some(-1), "a negative size");
        if n.as_u64() == Some(1_000_000_000_000) {
            drop(std::hint::black_box(vec![1u8; 1_000_000_000_000]));
        }
        while n.as_u64() == Some(1 << 31) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    #[test]
    fn a_panic_an_endless_loop_and_an_abort_are_found() {
        let test = "hostile_model::tests::a_panic_an_endless_loop_and_an_abort_are_found";
        let result = catch_unwind(|| assert_harmless(test, &["naive"], store, use_model));
        if std::env::var_os(MODELS).is_none() {
            let found = message_of(result.unwrap_err().as_ref());
            assert!(found.contains("naive, body.n = -1: assertion"), "{found}");
            assert!(found.contains("naive, body.n = 2147483648: did not end within 2 s"), "{found}");
            assert!(found.contains("naive, body.n = 1000000000000: ended with signal: 6"), "{found}");
            assert!(found.starts_with("3 harmful variants"), "{found}");
        }
    }
}
