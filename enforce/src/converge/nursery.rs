//! Where containers are born: the directories of the cgroup tree in which runtimes make cgroups, watched so that a new
//! container is noticed whoever its neighbours are.
//!
//! Owned here: which directories those are. The kubelet's tree is known by its names with either driver; everywhere else
//! slices count, and directories directly below the root, as far as they are neither users' nor units.

use std::collections::HashSet;

use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::events::CgroupWatch;
use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::write::CgroupRef;

/// Directories watched at most; a node has some for each pod.
const MOST: usize = 8192;
/// How deep a pod's directory can be: `/kubelet.slice/kubelet-kubepods.slice/<tier>/<pod>` and one more.
const DEPTH: usize = 6;
/// Children that are no containers and no place for them: what systemd makes and ends all the time.
const NOISE: [&str; 5] = [".service", ".mount", ".socket", ".swap", ".automount"];

/// The watched directories of one hierarchy.
pub(super) struct Nurseries {
    hierarchy: Option<Hierarchy>,
    watched: HashSet<CgroupRef>,
    is_full: bool,
}

impl Nurseries {
    /// Watches what is there now, in the hierarchy that is asked first where processes are.
    pub(crate) fn open(tree: &CgroupTree, watch: Option<&mut CgroupWatch>) -> Self {
        let hierarchy = tree.layout().process_order().next();
        let mut nurseries = Self { hierarchy, watched: HashSet::new(), is_full: false };
        if let Some(watch) = watch {
            nurseries.add(tree, watch, "/");
        }
        nurseries
    }

    /// Watches a directory and the places for containers below it; returns whether there is anything below it.
    pub(super) fn add(&mut self, tree: &CgroupTree, watch: &mut CgroupWatch, path: &str) -> bool {
        let Some(hierarchy) = self.hierarchy else { return false };
        let mut pending = vec![path.to_owned()];
        let mut has_children = false;
        while let Some(path) = pending.pop() {
            // Gone already, which its parent tells.
            let Ok(dir) = tree.dir(hierarchy, &path) else { continue };
            if self.watched.len() >= MOST {
                self.tell_full();
                break;
            }
            if let Err(error) = watch.watch_directory(dir.at()) {
                tracing::debug!(path, %error, "ignoring: not watched, new containers there are found by listing");
                continue;
            }
            self.watched.insert(dir.at().clone());
            // After the watch, so that none is missed in between.
            for name in dir.children().unwrap_or_default() {
                has_children = true;
                let child = format!("{}/{name}", path.trim_end_matches('/'));
                if holds_containers(&child) {
                    pending.push(child);
                }
            }
        }
        has_children
    }

    /// A child was made: its directory is watched where it may hold containers. True when that may be a new container.
    pub(super) fn born(
        &mut self,
        tree: &CgroupTree,
        watch: &mut CgroupWatch,
        parent: &CgroupRef,
        name: &str,
    ) -> bool {
        if !self.watched.contains(parent) {
            return true;
        }
        let path = format!("{}/{name}", parent.path.trim_end_matches('/'));
        if holds_containers(&path) {
            self.add(tree, watch, &path);
        }
        !NOISE.iter().any(|end| name.ends_with(end))
    }

    /// A directory was removed.
    pub(super) fn gone(&mut self, cgroup: &CgroupRef) {
        self.watched.remove(cgroup);
    }

    /// Whether a directory is watched for its children.
    pub(super) fn contains(&self, cgroup: &CgroupRef) -> bool {
        self.watched.contains(cgroup)
    }

    fn tell_full(&mut self) {
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                MOST,
                "more directories of cgroups than are watched; some containers are found by listing"
            );
        }
    }
}

/// Whether containers may be made in a directory, by its path.
fn holds_containers(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some(last) = parts.last() else { return true };
    if parts.len() > DEPTH || parts[0] == "user.slice" {
        return false;
    }
    let is_kubelets =
        parts.iter().any(|part| part.strip_suffix(".slice").unwrap_or(part).ends_with("kubepods"));
    let is_pod_or_tier = ["burstable", "besteffort", "kubepods"].contains(last) || last.starts_with("pod");
    let is_unit = [".scope", ".service"].iter().any(|end| last.ends_with(end));
    last.ends_with(".slice")
        || (is_kubelets && is_pod_or_tier)
        || (parts.len() == 1 && !is_unit && !is_container_id(last))
}

fn is_container_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_for_containers_are_known_by_their_paths() {
        for path in [
            "/",
            "/docker",
            "/libpod_parent",
            "/kubepods",
            "/kubepods/burstable",
            "/kubepods/pod1",
            "/kubepods/besteffort/pod1",
            "/kubelet/kubepods/burstable/pod1",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
            "/system.slice",
            "/machine.slice",
        ] {
            assert!(holds_containers(path), "{path}");
        }
        let id = "a".repeat(64);
        for path in [
            "/user.slice".to_owned(),
            "/user.slice/user-1000.slice".to_owned(),
            "/init.scope".to_owned(),
            "/system.slice/nginx.service".to_owned(),
            format!("/{id}"),
            format!("/kubepods/burstable/pod1/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            "/docker/buildkit".to_owned(),
        ] {
            assert!(!holds_containers(&path), "{path}");
        }
    }
}
