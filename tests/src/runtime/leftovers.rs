//! What containerd leaves behind when it is stopped or dies: shims and mounts. Owns their removal, by exact path.

use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Programs that belong to a private containerd.
const PROGRAMS: [&str; 2] = ["containerd", "containerd-shim-runc-v2"];

/// The start of the name of a runtime's directory, which says whose it is.
pub(super) fn prefix() -> String {
    format!("ekc-{}-", std::process::id())
}

/// Removes what test runs left that are no more, as a killed run cannot do it itself.
pub(super) fn sweep() -> Result<()> {
    let parent = std::env::temp_dir();
    let entries = std::fs::read_dir(&parent).with_context(|| format!("cannot list {}", parent.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("ekc-").and_then(|rest| rest.split_once('-')?.0.parse().ok());
        if owner.is_some_and(|owner| kill(Pid::from_raw(owner), None) == Err(Errno::ESRCH)) {
            end_processes(&entry.path())?;
            unmount_below(&entry.path())?;
            std::fs::remove_dir_all(entry.path()).with_context(|| format!("cannot remove {name}"))?;
        }
    }
    Ok(())
}

/// Kills the containerd and the shims whose arguments name a path in `directory`.
pub(super) fn end_processes(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that is gone by now has no arguments to read, and is not of interest.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0').map(Path::new);
        let program = words.next().and_then(Path::file_name).and_then(|name| name.to_str());
        let ours = program.is_some_and(|program| PROGRAMS.contains(&program));
        if ours && words.any(|word| word.starts_with(directory)) {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno).with_context(|| format!("cannot end process {pid}")),
            }
        }
    }
    Ok(())
}

/// Unmounts everything below a directory, the deepest first, so that removing it crosses no mount.
pub(super) fn unmount_below(directory: &Path) -> Result<()> {
    let table =
        std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    let mut below: Vec<&Path> = points.filter(|point| point.starts_with(directory)).collect();
    below.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in below {
        umount2(point, MntFlags::MNT_DETACH)
            .with_context(|| format!("cannot unmount {}", point.display()))?;
    }
    Ok(())
}
