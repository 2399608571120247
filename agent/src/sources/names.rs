//! Containers found by the names of their cgroups: Docker and Podman without a CRI socket.
//!
//! Owned here: the name patterns and the walk. What such a container asked for is not known from its cgroup, so
//! it stays unclassified (sampled, never written) until a manifest names it with `docker://ID` or `podman://ID`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, Managed, PodFacts, PodRef, Requested, ScorePolicy, SourceKind, Workload,
};

use crate::shared::{Rescan, SourceProblem, SourceUpdate, UpdateSender};

/// Directories looked into at most, so that a hostile or runaway tree cannot hold the task.
const MAX_DIRECTORIES: usize = 50_000;
/// How deep below the root a runtime puts its containers; `user.slice/user-1.slice/user@1.service/...` needs 7.
const MAX_DEPTH: usize = 8;
/// Where the kubelet puts pods, which a runtime with a CRI socket tells of: most of the tree of a node of a cluster.
const KUBELETS: [&str; 2] = ["kubepods", "kubepods.slice"];
/// Listing again without being asked: a safety net behind the kernel's events.
const PERIOD: Duration = Duration::from_secs(30);
/// Shortest prefix of a container id that may stand for the whole, as the engines' own tools print it.
const MIN_ID_PREFIX: usize = 12;

/// A container found by its cgroup's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    /// `docker` or `podman`.
    pub(super) engine: &'static str,
    /// 64 hexadecimal digits.
    pub(super) id: String,
    /// Path below the hierarchy's root.
    pub(super) path: String,
}

/// Whether a binding is written as an engine's container id: `docker://0123456789ab`.
pub(super) fn is_runtime_name(binding: &str) -> bool {
    split_runtime_name(binding).is_some()
}

fn split_runtime_name(binding: &str) -> Option<(&str, &str)> {
    let (engine, id) = binding.split_once("://")?;
    let good = ["docker", "podman"].contains(&engine)
        && (MIN_ID_PREFIX..=64).contains(&id.len())
        && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    good.then_some((engine, id))
}

/// The one container a runtime name stands for; `Err` says why there is not exactly one.
pub(super) fn resolve<'a>(binding: &str, found: &'a [Named]) -> Result<&'a Named, String> {
    let Some((engine, id)) = split_runtime_name(binding) else {
        return Err(format!("`{binding}` names no engine"));
    };
    let mut hits = found.iter().filter(|n| n.engine == engine && n.id.starts_with(id));
    match (hits.next(), hits.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("no cgroup of a {engine} container {id} is there")),
        (Some(_), Some(_)) => Err(format!("several {engine} containers begin with {id}")),
    }
}

/// Recognises a cgroup directory's name, given its parent's name.
fn recognise(parent: &str, name: &str) -> Option<(&'static str, String)> {
    let hex = |id: &str| {
        (id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))).then(|| id.to_owned())
    };
    let scope = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix(".scope").and_then(hex);
    if let Some(id) = scope("docker-") {
        return Some(("docker", id));
    }
    if let Some(id) = scope("libpod-").or_else(|| name.strip_prefix("libpod-").and_then(hex)) {
        return Some(("podman", id));
    }
    match parent {
        "docker" => hex(name).map(|id| ("docker", id)),
        "libpod_parent" => hex(name).map(|id| ("podman", id)),
        _ => None,
    }
}

/// Walks one hierarchy. Unreadable directories are passed over: they vanish while one looks.
pub(super) fn scan(root: &Path) -> Vec<Named> {
    let mut found = Vec::new();
    let mut pending: Vec<(PathBuf, String, usize)> = vec![(root.to_owned(), String::new(), 0)];
    let mut looked = 0;
    while let Some((dir, relative, depth)) = pending.pop() {
        // Two links are the name and `.`: no directory below has a `..`. A stat is a fifth of a listing, and most
        // cgroups are leaves. File systems that do not count so say 1.
        if std::fs::metadata(&dir).is_ok_and(|data| data.nlink() == 2) {
            continue;
        }
        looked += 1;
        if looked > MAX_DIRECTORIES {
            tracing::warn!(MAX_DIRECTORIES, "cgroup tree too large to look for containers by name");
            break;
        }
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        let parent = relative.rsplit('/').next().unwrap_or("");
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{relative}/{name}");
            if let Some((engine, id)) = recognise(parent, &name) {
                found.push(Named { engine, id, path });
            } else if depth + 1 < MAX_DEPTH && !KUBELETS.contains(&name.as_str()) {
                pending.push((entry.path(), path, depth + 1));
            }
        }
    }
    found.sort();
    found
}

fn workload(named: &Named) -> Workload {
    let short = named.id.chars().take(MIN_ID_PREFIX).collect::<String>();
    Workload {
        id: named.id.clone(),
        source: SourceKind::Names,
        pod: PodRef { namespace: named.engine.to_owned(), name: short.clone(), uid: None },
        container: short.clone(),
        kind: ContainerKind::Regular,
        workload: short,
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(named.path.clone()),
        pid: None,
        requested: Requested::Unknown,
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::default(),
        oom_kill: None,
    }
}

/// Watches for containers by name until the agent ends. `roots` are the hierarchies to walk (the memory
/// controller's and, where it is another, cgroup v2's).
pub(crate) async fn run(roots: Vec<PathBuf>, updates: UpdateSender, rescan: Rescan) {
    let mut last: Option<Vec<Arc<Workload>>> = None;
    loop {
        let notified = rescan.notified();
        let workloads = super::shared(last.as_deref(), find(roots.clone()).await);
        if last.as_ref() != Some(&workloads) {
            let update = SourceUpdate {
                source: SourceKind::Names,
                address: roots.first().map_or_else(String::new, |r| r.display().to_string()),
                workloads: workloads.clone(),
                problems: Vec::<SourceProblem>::new(),
                healthy: true,
            };
            last = updates.send(update).is_ok().then_some(workloads);
        }
        super::wait(notified, PERIOD).await;
    }
}

async fn find(roots: Vec<PathBuf>) -> Vec<Workload> {
    let scanned = tokio::task::spawn_blocking(move || {
        let mut by_id = BTreeMap::new();
        for named in roots.iter().flat_map(|root| scan(root)) {
            by_id.entry(named.id.clone()).or_insert(named);
        }
        by_id.into_values().map(|named| workload(&named)).collect::<Vec<_>>()
    });
    scanned.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_of_each_engine_and_driver() {
        let table = [
            ("system.slice", format!("docker-{ID}.scope"), Some("docker")),
            ("docker", ID.to_owned(), Some("docker")),
            ("machine.slice", format!("libpod-{ID}.scope"), Some("podman")),
            ("libpod_parent", format!("libpod-{ID}"), Some("podman")),
            ("machine.slice", format!("libpod-conmon-{ID}.scope"), None),
            ("kubepods", ID.to_owned(), None),
            ("system.slice", "docker.service".to_owned(), None),
            ("docker", "buildkit".to_owned(), None),
        ];
        for (parent, name, engine) in table {
            assert_eq!(recognise(parent, &name).map(|r| r.0), engine, "{parent}/{name}");
        }
    }

    #[test]
    fn a_tree_is_walked_and_a_prefix_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("system.slice/docker-{ID}.scope");
        std::fs::create_dir_all(dir.path().join(&path).join("inner")).unwrap();
        std::fs::create_dir_all(dir.path().join("user.slice")).unwrap();
        let found = scan(dir.path());
        assert_eq!(found, [Named { engine: "docker", id: ID.into(), path: format!("/{path}") }]);
        assert_eq!(resolve("docker://0123456789ab", &found).unwrap(), &found[0]);
        assert!(resolve("podman://0123456789ab", &found).unwrap_err().contains("no cgroup"));
        assert!(!is_runtime_name("docker://0123"));
        assert!(
            resolve("docker://0123456789ab", &[found[0].clone(), found[0].clone()])
                .unwrap_err()
                .contains("several")
        );
    }
}
