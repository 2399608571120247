//! What a process of ours uses: CPU time to the nanosecond, and memory.

use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_tests::processes;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// User and system time of a whole process so far: its CPU clock counts all threads, also those that ended
/// (clock_getcpuclockid(3)).
pub(crate) fn cpu_time(pid: Pid) -> Result<Duration> {
    let clock = clock_getcpuclockid(pid).with_context(|| format!("process {pid} has no CPU clock"))?;
    let time = clock_gettime(clock).with_context(|| format!("cannot read the CPU clock of {pid}"))?;
    Ok(time.into())
}

/// User and system time of the calling thread.
pub(crate) fn thread_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("cannot read this thread's CPU clock")?.into())
}

/// Time that no clock setting moves.
pub(crate) fn monotonic() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?.into())
}

/// Memory of a process in MiB: resident now, and at its peak.
pub(crate) fn memory_mib(pid: Pid) -> Result<(f64, f64)> {
    let mib = |field| Ok::<_, anyhow::Error>(processes::memory_of(pid, field)? as f64 / f64::from(1 << 20));
    Ok((mib("VmRSS")?, mib("VmHWM")?))
}

/// The value below which `per_mille` thousandths of all lie, by nearest rank; none of nothing.
pub(crate) fn percentile(all: &[f64], per_mille: usize) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied()
}
