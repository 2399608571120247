//! Asking the file systems below the cgroup root what they are.

use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, FsType, statfs};

use super::{Controller, Hierarchy, Layout, Mount};
use crate::error::{HostError, HostOperation};
use crate::roots::Roots;

impl Layout {
    /// Asks the file systems below the cgroup root.
    ///
    /// # Errors
    /// `Io`, `Denied` or `Gone` when the root cannot be read; `Unsupported` when no cgroup file system is there.
    pub fn detect(roots: &Roots) -> Result<Self, HostError> {
        let root = roots.cgroup();
        if fs_type(root)? == CGROUP2_SUPER_MAGIC {
            return Self::declare(vec![v2_mount(root)?]);
        }
        let table = mount_table(roots);
        let mut mounts: Vec<Mount> = Vec::new();
        for path in subdirectories(root)? {
            match fs_type(&path) {
                Ok(CGROUP2_SUPER_MAGIC) => mounts.push(v2_mount(&path)?),
                Ok(CGROUP_SUPER_MAGIC) => add_v1(&mut mounts, &path, &table),
                // Not a cgroup mount, or one that went away while we looked.
                Ok(_) | Err(_) => {}
            }
        }
        Self::declare(mounts).map_err(|e| {
            HostError::of_text(
                e.category(),
                HostOperation::Open,
                root.display().to_string(),
                "no cgroup file system there",
            )
            .with_remedy("mount the host's /sys/fs/cgroup here and name it as the cgroup root")
        })
    }
}

fn fs_type(path: &Path) -> Result<FsType, HostError> {
    statfs(path)
        .map(|s| s.filesystem_type())
        .map_err(|e| HostError::from_errno(HostOperation::Open, path.display().to_string(), e, false))
}

fn subdirectories(root: &Path) -> Result<Vec<PathBuf>, HostError> {
    let entries = std::fs::read_dir(root).map_err(|e| HostError::from_io(HostOperation::List, root, &e))?;
    // Links such as cpu -> cpu,cpuacct are resolved so that one mount is seen once.
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter_map(|e| std::fs::canonicalize(e.path()).ok())
        .filter(|p| p.is_dir())
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn v2_mount(path: &Path) -> Result<Mount, HostError> {
    let list = |file: &str| -> Result<Vec<Controller>, HostError> {
        let path = path.join(file);
        let text =
            std::fs::read_to_string(&path).map_err(|e| HostError::from_io(HostOperation::Read, &path, &e))?;
        Ok(text.split_whitespace().filter_map(Controller::of_name).collect())
    };
    Ok(Mount {
        hierarchy: Hierarchy::V2,
        path: path.to_owned(),
        controllers: list("cgroup.controllers")?,
        delegated: list("cgroup.subtree_control")?,
    })
}

/// Adds a v1 mount, unless it has none of our controllers (`name=systemd`, `devices`) or is a second mount of one
/// we have.
fn add_v1(mounts: &mut Vec<Mount>, path: &Path, table: &[(PathBuf, Vec<Controller>)]) {
    let by_table = table.iter().rev().find(|(at, _)| at == path).map(|(_, c)| c.clone());
    let controllers = by_table.unwrap_or_else(|| controllers_of_name(path));
    let Some(&first) = controllers.iter().min() else { return };
    if mounts.iter().any(|m| m.hierarchy != Hierarchy::V2 && m.controllers.contains(&first)) {
        return;
    }
    mounts.push(Mount {
        hierarchy: Hierarchy::V1(first),
        path: path.to_owned(),
        delegated: controllers.clone(),
        controllers,
    });
}

fn controllers_of_name(path: &Path) -> Vec<Controller> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.split(',').filter_map(Controller::of_name).collect()
}

/// v1 mounts of our own mount namespace with their controllers, from mountinfo (proc(5)). Empty when it cannot be
/// read: then directory names decide.
fn mount_table(roots: &Roots) -> Vec<(PathBuf, Vec<Controller>)> {
    let text = std::fs::read_to_string(roots.proc().join("self/mountinfo")).unwrap_or_default();
    text.lines().filter_map(mountinfo_v1).collect()
}

/// One line of mountinfo: mount point and v1 controllers, `None` for other file systems.
fn mountinfo_v1(line: &str) -> Option<(PathBuf, Vec<Controller>)> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    if right.next()? != "cgroup" {
        return None;
    }
    let options = right.nth(1)?;
    let point = left.split(' ').nth(4)?;
    Some((PathBuf::from(unescape(point)), options.split(',').filter_map(Controller::of_name).collect()))
}

/// mountinfo writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |s, (from, to)| s.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read_with_their_options() {
        let line =
            "35 32 0:31 / /host/sys\\040x/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct";
        let want = (PathBuf::from("/host/sys x/cpu,cpuacct"), vec![Controller::Cpu, Controller::Cpuacct]);
        assert_eq!(mountinfo_v1(line), Some(want));
        assert_eq!(mountinfo_v1("35 32 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"), None);
        assert_eq!(mountinfo_v1("nonsense"), None);
    }
}
