//! Memory of the process: the C library's allocator, told to stay small, and code that is not needed any more.
//!
//! glibc gives each thread an arena of its own and keeps what was once used in it; with a handful of threads that
//! was a quarter of the agent's memory at 1,000 containers (two arenas of 6.7 MiB). The threads hardly ever allocate
//! at the same time, so they share one. It also learns to take larger and larger blocks from that arena once such a
//! block was freed, and buffers of a megabyte that live for an answer then leave holes; they are mapped on their own.

use std::sync::OnceLock;

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

/// Gives back what is not needed: free memory, and code.
pub(crate) fn give_back() {
    trim();
    forget_code();
}

/// Gives free pages back to the kernel, also those between blocks in use. An answer about 1,000 containers is several
/// megabytes of small blocks; what was made meanwhile and lives on keeps all of them resident otherwise.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: malloc_trim(3) takes a plain number, takes the allocator's lock itself, and touches free blocks only.
    let _released = unsafe { nix::libc::malloc_trim(0) };
}

/// Other C libraries give back by themselves.
#[cfg(not(target_env = "gnu"))]
const fn trim() {}

/// Lets go of the program's own code that was used so far, most of which ran once, at the start, or for a question: the command line, the
/// configuration, the first listing of containers. What is used again comes back by itself, 16 pages at a time. It is in the page cache,
/// shared with the other processes of the agent, and each of them counts what it has mapped.
#[allow(unsafe_code)]
pub(crate) fn forget_code() {
    use nix::libc::{MADV_DONTNEED, c_void, madvise};
    static CODE: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
    for &(start, length) in CODE.get_or_init(code) {
        // SAFETY: the kernel told that this is a private mapping of our own file that nobody can write (`r-xp`), so that every page of it is
        // the file's; it stands as long as the process, for nothing unmaps or changes a program's own code. A page that is given back is read
        // from the file again at the next access, by whichever thread (madvise(2)).
        let _forgotten = unsafe { madvise(start as *mut c_void, length, MADV_DONTNEED) };
    }
}

/// Start and length of each mapping of this program's code.
fn code() -> Vec<(usize, usize)> {
    let (Ok(maps), Ok(program)) =
        (std::fs::read_to_string("/proc/self/maps"), std::fs::read_link("/proc/self/exe"))
    else {
        return Vec::new();
    };
    maps.lines().filter_map(|line| code_of(line, &program.to_string_lossy())).collect()
}

/// Start and length of a line of /proc/PID/maps (proc_pid_maps(5)), where it is code of this program.
fn code_of(line: &str, program: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    if !rest.starts_with("r-xp ") || !rest.ends_with(&format!(" {program}")) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_let_go() {
        let line = |rest: &str| format!("5581a0200000-5581a0300000 {rest}");
        let good = line("r-xp 00200000 fd:00 42                         /usr/bin/evenkeel-agent");
        assert_eq!(code_of(&good, "/usr/bin/evenkeel-agent"), Some((0x5581_a020_0000, 0x10_0000)));
        for other in [
            line("r--p 00200000 fd:00 42                         /usr/bin/evenkeel-agent"),
            line("rwxp 00200000 fd:00 42                         /usr/bin/evenkeel-agent"),
            line("r-xp 00200000 fd:00 42                         /usr/lib/libc.so.6"),
            line("r-xp 00000000 00:00 0                          [vdso]"),
            String::new(),
        ] {
            assert_eq!(code_of(&other, "/usr/bin/evenkeel-agent"), None, "{other}");
        }
        // It goes on running.
        forget_code();
    }
}
