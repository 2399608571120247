//! The C library's allocator, told to stay small.
//!
//! glibc gives each thread an arena of its own and keeps what was once used in it; with a handful of threads that
//! was a quarter of the agent's memory at 1,000 containers (two arenas of 6.7 MiB). The threads hardly ever allocate
//! at the same time, so they share one.

/// Lets all threads share one arena. Called first of all, while there is one thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub(crate) fn share_one_arena() {
    use nix::libc::{M_ARENA_MAX, mallopt};
    // SAFETY: mallopt(3) takes two plain numbers and touches nothing but the allocator's own settings; it takes the
    // allocator's lock itself. An unknown parameter makes it answer 0, which is ignored: memory is then as before.
    let _taken = unsafe { mallopt(M_ARENA_MAX, 1) };
}

/// Other C libraries have no arenas.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn share_one_arena() {}
