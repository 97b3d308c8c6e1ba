//! How memory is given back.

/// Traces are read into large short-lived buffers, which glibc would return to the system and fault in anew. To be called
/// before there are threads.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "options of malloc have no safe name")]
pub fn reuse_memory() {
    const LARGEST_REUSED: libc::c_int = 32 << 20;
    const MOST_UNUSED: libc::c_int = 128 << 20;
    // SAFETY: malloc keeps two numbers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_REUSED);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MOST_UNUSED);
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn reuse_memory() {}
