//! How this process reuses memory. The benchmarks include this file, so that they measure the same.

/// Keeps large freed buffers in the process. Traces are read into large short-lived buffers, which
/// glibc would otherwise return to the system and fault in again. Call it before threads start.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "malloc has no safe interface for its options")]
pub fn reuse_memory() {
    const MMAP_THRESHOLD_BYTES: libc::c_int = 32 << 20;
    const TRIM_THRESHOLD_BYTES: libc::c_int = 128 << 20;
    // SAFETY: mallopt stores two numbers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn reuse_memory() {}
