//! What every step of the converge loop works with: the kernel's two traits, the clock, the journal.

use std::time::Duration;

use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::HostWriter;
use nix::time::{ClockId, clock_gettime};

use crate::converge::rules::Converge;
use crate::holds::Holds;
use crate::journal::Journal;

/// Handed down to every step.
pub(super) struct Env<'a> {
    /// Reads the kernel.
    pub reader: &'a dyn HostReader,
    /// The one writer.
    pub writer: &'a mut dyn HostWriter,
    /// Originals, noted before the first write.
    pub journal: &'a mut Journal,
    /// Clock ticks since boot, the unit of a process's start time.
    pub ticks: &'a dyn Fn() -> u64,
    /// How to converge.
    pub config: &'a Converge,
    /// What the agent itself set for a while; it is left so until it is released.
    pub holds: Option<&'a Holds>,
}

/// Clock ticks since boot now, counted as `/proc/PID/stat` counts start times.
pub(super) fn ticks_since_boot() -> u64 {
    let per_second = ticks_per_second();
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |now| {
        let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec()).unwrap_or(0);
        seconds * per_second + nanos * per_second / 1_000_000_000
    })
}

/// Clock ticks in a second: 100 on every common machine (sysconf(3)).
pub(super) fn ticks_per_second() -> u64 {
    let answer = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    answer.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100)
}

/// CPU time this thread has had.
pub(super) fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
