//! The list of cgroup paths that are never written, nor any process in them.

use crate::cgroup::CgroupTree;
use crate::error::HostError;
use crate::process::ProcessHandle;
use crate::roots::Roots;

/// Inode of the initial cgroup namespace (`PROC_CGROUP_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_CGROUP_NAMESPACE: u64 = 0xEFFF_FFFB;

#[derive(Debug)]
pub(crate) struct DenyList {
    prefixes: Vec<String>,
    /// Whether `/proc/PID/cgroup` shows whole paths to us.
    whole_paths: bool,
}

impl DenyList {
    pub(crate) fn new(prefixes: &[String], roots: &Roots) -> Self {
        let prefixes = prefixes.iter().map(|p| crate::cgroup::normal(p)).collect();
        Self { prefixes, whole_paths: in_initial_cgroup_namespace(roots) }
    }

    /// The entry at or above `path`, if there is one.
    pub(crate) fn covers(&self, path: &str) -> Option<&str> {
        let path = crate::cgroup::normal(path);
        self.prefixes.iter().map(String::as_str).find(|prefix| is_at_or_below(&path, prefix))
    }

    /// The entry below `path`, if there is one: what is done to `path` as a whole would hit it.
    pub(crate) fn is_within(&self, path: &str) -> Option<&str> {
        let path = crate::cgroup::normal(path);
        self.prefixes.iter().map(String::as_str).find(|prefix| is_at_or_below(prefix, &path))
    }

    /// The entry that covers a process. Where membership paths are shown relative to our own cgroup namespace
    /// they cannot be compared, so the denied cgroups are asked for their processes instead.
    pub(crate) fn covers_process(
        &self,
        process: &ProcessHandle,
        tree: &CgroupTree,
    ) -> Result<Option<String>, HostError> {
        if self.prefixes.is_empty() {
            return Ok(None);
        }
        if self.whole_paths {
            let paths = process.cgroups()?;
            return Ok(paths.iter().find_map(|(_, path)| self.covers(path)).map(str::to_owned));
        }
        for prefix in &self.prefixes {
            if processes_below(tree, prefix)?.contains(&process.pid()) {
                return Ok(Some(prefix.clone()));
            }
        }
        Ok(None)
    }
}

/// A denied path that does not exist denies nobody; one that cannot be read is an error, not a permission.
fn processes_below(tree: &CgroupTree, path: &str) -> Result<Vec<u32>, HostError> {
    let listed = tree.dirs(path).and_then(|dirs| {
        let mut pids = Vec::new();
        for dir in dirs {
            pids.extend(dir.subtree_procs()?.pids);
        }
        Ok(pids)
    });
    match listed {
        Err(e) if e.is_gone() => Ok(Vec::new()),
        other => other,
    }
}

pub(crate) fn is_at_or_below(path: &str, prefix: &str) -> bool {
    prefix == "/" || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn in_initial_cgroup_namespace(roots: &Roots) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(roots.proc().join("self/ns/cgroup"))
        // Kernels without cgroup namespaces have only the initial one.
        .map_or(true, |m| m.ino() == INITIAL_CGROUP_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_slashes() {
        let list =
            DenyList { prefixes: vec!["/kube-system".to_owned(), "/a/b".to_owned()], whole_paths: true };
        for (path, want) in [
            ("/kube-system", Some("/kube-system")),
            ("/kube-system/x", Some("/kube-system")),
            ("kube-system/x/", Some("/kube-system")),
            ("/kube-system-2", None),
            ("/a", None),
            ("/a/b/c", Some("/a/b")),
        ] {
            assert_eq!(list.covers(path), want, "{path}");
        }
        assert_eq!(list.is_within("/a"), Some("/a/b"));
        assert_eq!(list.is_within("/a/b/c"), None);
        assert_eq!(list.is_within("/"), Some("/kube-system"));
    }
}
