//! What containerd leaves behind when it is stopped or dies: shims and mounts. Owns their removal, by exact path.

use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Kills the shims that were started for the containerd at `socket`, recognised by that path in their arguments.
pub(super) fn end_shims(socket: &Path) -> Result<()> {
    let wanted = socket.to_string_lossy().into_owned();
    for entry in std::fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that is gone by now has no arguments to read, and is not of interest.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0');
        let shim = words.next().is_some_and(|program| program.ends_with("containerd-shim-runc-v2"));
        if shim && words.any(|word| word == wanted) {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno).with_context(|| format!("cannot end the shim {pid}")),
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
