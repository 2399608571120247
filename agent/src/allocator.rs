//! The C library's allocator, told to stay small.
//!
//! glibc gives each thread an arena of its own and keeps what was once used in it; with a handful of threads that
//! was a quarter of the agent's memory at 1,000 containers (two arenas of 6.7 MiB). The threads hardly ever allocate
//! at the same time, so they share one. It also learns to take larger and larger blocks from that arena once such a
//! block was freed, and buffers of a megabyte that live for an answer then leave holes; they are mapped on their own.

/// Blocks of this size and above are mapped on their own and given back when they are freed; glibc's first setting,
/// which it otherwise raises by itself (mallopt(3), `M_MMAP_THRESHOLD`).
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 128 * 1024;

/// Lets all threads share one arena and keeps large blocks out of it. Called first of all, while there is one thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub(crate) fn stay_small() {
    use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, mallopt};
    // SAFETY: mallopt(3) takes two plain numbers and touches nothing but the allocator's own settings; it takes the
    // allocator's lock itself. An unknown parameter makes it answer 0, which is ignored: memory is then as before.
    let _taken = unsafe { (mallopt(M_ARENA_MAX, 1), mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)) };
}

/// Other C libraries have no arenas.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn stay_small() {}

/// Gives free pages back to the kernel, also those between blocks in use. An answer about 1,000 containers is several
/// megabytes of small blocks; what was made meanwhile and lives on keeps all of them resident otherwise.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub(crate) fn give_back() {
    // SAFETY: malloc_trim(3) takes a plain number, takes the allocator's lock itself, and touches free blocks only.
    let _released = unsafe { nix::libc::malloc_trim(0) };
}

/// Other C libraries give back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn give_back() {}
