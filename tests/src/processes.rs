//! Facts about processes as the kernel has them. Owns the little of `/proc` that tests compare with.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use nix::libc;
use nix::unistd::Pid;

/// Bytes of memory of this machine, `MemTotal` of /proc/meminfo.
///
/// # Errors
///
/// Fails when it cannot be read.
pub fn memory_total() -> Result<u64> {
    memory("MemTotal")
}

/// Bytes of a field of /proc/meminfo.
///
/// # Errors
///
/// Fails when it cannot be read.
pub fn memory(field: &str) -> Result<u64> {
    bytes_in(Path::new("/proc/meminfo"), field)
}

/// Bytes of a field of a process' /proc/PID/status, such as `VmRSS` (resident now) or `VmHWM` (at its peak).
///
/// # Errors
///
/// Fails when it is gone.
pub fn memory_of(pid: Pid, field: &str) -> Result<u64> {
    bytes_in(Path::new(&format!("/proc/{pid}/status")), field)
}

/// Bytes of memory of a process, of what it shares its part alone (`Pss` of /proc/PID/smaps_rollup).
///
/// # Errors
///
/// Fails when it is gone or not ours to look at.
pub fn proportional_memory(pid: Pid) -> Result<u64> {
    bytes_in(Path::new(&format!("/proc/{pid}/smaps_rollup")), "Pss")
}

/// A field of a process' /proc/PID/status as it is written, such as `Uid` or `CapEff`.
///
/// # Errors
///
/// Fails when it is gone.
pub fn field(pid: Pid, name: &str) -> Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let text = text.with_context(|| format!("{pid} is gone"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("no {name} of {pid}"))?.trim().to_owned())
}

/// Live processes of a process group, in the order of their numbers.
///
/// # Errors
///
/// Fails when /proc cannot be listed.
pub fn of_group(leader: Pid) -> Result<Vec<Pid>> {
    let all = procfs::process::all_processes().context("cannot list processes")?;
    let stats = all.flatten().filter_map(|process| process.stat().ok());
    let of_group = stats.filter(|stat| stat.pgrp == leader.as_raw() && stat.state != 'Z');
    let mut found: Vec<Pid> = of_group.map(|stat| Pid::from_raw(stat.pid)).collect();
    found.sort();
    Ok(found)
}

/// A line `FIELD:  NUMBER kB` of a file, in bytes.
fn bytes_in(file: &Path, field: &str) -> Result<u64> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib = kib.with_context(|| format!("no {field} in {shown}"))?;
    Ok(kib.trim().parse::<u64>().with_context(|| format!("{field} is not a number"))? * 1024)
}

/// A counter of /proc/vmstat, such as `oom_kill`.
///
/// # Errors
///
/// Fails when it cannot be read.
pub fn vm_event(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.with_context(|| format!("no {name} in /proc/vmstat"))?.parse().context("not a number")
}

/// Which of these processes the OOM killer took first, by the kernel's log.
///
/// # Errors
///
/// Fails when the log cannot be read.
pub fn killed_first(of: &[Pid]) -> Result<Option<Pid>> {
    let mut options = std::fs::OpenOptions::new();
    let log = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let mut log = log.context("cannot open /dev/kmsg")?;
    let mut record = [0; 8192];
    loop {
        let text = match log.read(&mut record) {
            Ok(length) => String::from_utf8_lossy(&record[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            // Records were overwritten before they were read.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => continue,
            Err(error) => return Err(error).context("cannot read /dev/kmsg"),
        };
        let killed =
            text.split_once("Killed process ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        if let Some(pid) = killed.map(Pid::from_raw).filter(|pid| of.contains(pid)) {
            return Ok(Some(pid));
        }
    }
}

/// `oom_score_adj` of a process.
///
/// # Errors
///
/// Fails when it is gone.
pub fn score(pid: Pid) -> Result<i32> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.trim().parse().with_context(|| format!("{path} has {text:?}"))
}

/// Sets `oom_score_adj` of a process, as the process itself may.
///
/// # Errors
///
/// Fails when it is gone or the kernel refuses.
pub fn set_score(pid: Pid, score: i32) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    std::fs::write(&path, score.to_string()).with_context(|| format!("cannot write {score} to {path}"))
}

/// Live processes in a cgroup directory and everything below, with their scores. The dead not yet reaped and those that
/// end while one looks are left out.
///
/// # Errors
///
/// Fails when the directory cannot be listed.
pub fn scores_below(directory: &Path) -> Result<Vec<(Pid, i32)>> {
    let list = directory.join("cgroup.procs");
    let text = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let mut found = Vec::new();
    for pid in text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw) {
        if let Ok(score) = score(pid)
            && is_alive(pid)
        {
            found.push((pid, score));
        }
    }
    for entry in std::fs::read_dir(directory).context("cannot list a cgroup")?.flatten() {
        if entry.path().is_dir() {
            found.extend(scores_below(&entry.path())?);
        }
    }
    Ok(found)
}

/// Whether a process runs; false for one that ended and is not reaped yet.
pub fn is_alive(pid: Pid) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name in parentheses may hold anything; the state follows the last one.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
