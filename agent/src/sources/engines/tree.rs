//! Containers of Docker and Podman as the kernel shows them: by the names of their cgroups.
//!
//! A name gives no rights: a directory counts only where a runtime run by root makes one. It must belong to whom the
//! tree belongs to, and be neither in users' slices, nor in what systemd delegated, nor inside another container.
//!
//! Owned here: the name patterns and the walk. Not owned: what an engine says of a container ([`super::record`]).

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evenkeel_enforce::shared::SourceProblem;
use nix::errno::Errno;

pub(super) const DOCKER: &str = "docker";
pub(super) const PODMAN: &str = "podman";

/// Directories looked into at most, so that a hostile or runaway tree cannot hold the task.
const MAX_DIRECTORIES: usize = 50_000;
/// Containers of which nothing but a name is known that are followed at most: each costs the agent some 12 KiB.
const MAX_UNKNOWN: usize = 2000;
/// How deep below the root a runtime puts its containers; systemd nests a slice for each dash in its name.
const MAX_DEPTH: usize = 8;
/// Below it everything belongs to users, some of whom may make any directory they like (user@.service is delegated).
const USERS: &str = "user.slice";
/// Digits of a container id.
const ID_DIGITS: usize = 64;
/// Where the kubelet puts pods, which a runtime with a CRI socket tells of: most of the tree of a node of a cluster.
const KUBELETS: [&str; 2] = ["kubepods", "kubepods.slice"];
/// Where Podman puts its pods, each of which has an id as containers have.
const PODS: &str = "libpod_parent";
/// Digits of an id that people are shown, as the engines' own tools print it.
const SHOWN_DIGITS: usize = 12;
/// Longest name of a container; the engines have no bound of their own, names of hosts and files have this one.
const MAX_NAME: usize = 255;

/// A container found by its cgroup's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Named {
    /// `docker` or `podman`.
    pub(in super::super) engine: &'static str,
    /// 64 hexadecimal digits.
    pub(in super::super) id: String,
    /// Path below the hierarchy's root.
    pub(in super::super) path: String,
}

/// Whether a binding is written as an engine's container id, whole: `docker://` and 64 hexadecimal digits. A part of an
/// id would be anybody's who can make a directory that begins with it.
pub(in super::super) fn is_runtime_name(binding: &str) -> bool {
    split_runtime_name(binding).is_some()
}

/// Whether a binding is written as the name of an engine's container, `docker://web`. What may be a part of an id is none.
pub(in super::super) fn is_container_name(binding: &str) -> bool {
    let name = split(binding).map(|(_, name)| name);
    name.is_some_and(|name| {
        let is_part = name.len() >= SHOWN_DIGITS && name.bytes().all(|b| b.is_ascii_hexdigit());
        is_name(name) && !is_part
    })
}

/// Engine and the rest of a binding such as `docker://web`.
fn split(binding: &str) -> Option<(&str, &str)> {
    binding.split_once("://").filter(|(engine, _)| [DOCKER, PODMAN].contains(engine))
}

fn split_runtime_name(binding: &str) -> Option<(&str, &str)> {
    split(binding).filter(|(_, id)| is_id(id))
}

/// What both engines take for a container's name.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl Named {
    /// The beginning of its id.
    pub(super) fn short(&self) -> String {
        self.id.chars().take(SHOWN_DIGITS).collect()
    }
}

/// The one container a runtime name stands for; `Err` says why there is not exactly one.
pub(in super::super) fn resolve<'a>(binding: &str, found: &'a [Named]) -> Result<&'a Named, String> {
    let Some((engine, id)) = split_runtime_name(binding) else {
        return Err(format!("`{binding}` names no engine"));
    };
    let mut hits = found.iter().filter(|n| n.engine == engine && n.id == id);
    match (hits.next(), hits.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("no cgroup of a {engine} container {id} is there")),
        (Some(one), Some(other)) => {
            Err(format!("{} and {} both claim to be the {engine} container {id}", one.path, other.path))
        }
    }
}

/// Recognises a cgroup directory's name, given its parent's name.
fn recognise(parent: &str, name: &str) -> Option<(&'static str, String)> {
    let hex = |id: &str| is_id(id).then(|| id.to_owned());
    let scope = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix(".scope").and_then(hex);
    if let Some(id) = scope("docker-") {
        return Some((DOCKER, id));
    }
    if let Some(id) = scope("libpod-").or_else(|| name.strip_prefix("libpod-").and_then(hex)) {
        return Some((PODMAN, id));
    }
    if parent == "docker" { hex(name).map(|id| (DOCKER, id)) } else { None }
}

/// Walks one hierarchy. Unreadable directories are passed over: they vanish while one looks.
///
/// # Errors
/// Where the system lacks what it takes to look, such as descriptors: who is there is not known then.
pub(in super::super) fn scan(root: &Path) -> io::Result<Vec<Named>> {
    let mut found = Vec::new();
    let Some(owner) = there(std::fs::metadata(root))?.map(|data| data.uid()) else { return Ok(found) };
    let mut pending: Vec<(PathBuf, String, usize)> = vec![(root.to_owned(), String::new(), 0)];
    let mut looked = 0;
    while let Some((dir, relative, depth)) = pending.pop() {
        // Two links are the name and `.`: no directory below has a `..`. A stat is a fifth of a listing, and most
        // cgroups are leaves. File systems that do not count so say 1.
        let is_ours = |data: &Metadata| data.nlink() != 2 && data.uid() == owner;
        if !there(std::fs::metadata(&dir))?.is_some_and(|data| is_ours(&data)) {
            continue;
        }
        looked += 1;
        if looked > MAX_DIRECTORIES {
            tracing::warn!(MAX_DIRECTORIES, "cgroup tree too large to look for containers by name");
            break;
        }
        let Some(entries) = there(std::fs::read_dir(&dir))? else { continue };
        let parent = relative.rsplit('/').next().unwrap_or("");
        for entry in entries {
            let Some(entry) = there(entry)? else { continue };
            if !entry.file_type().is_ok_and(|of| of.is_dir()) {
                continue;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{relative}/{name}");
            if let Some((engine, id)) = recognise(parent, &name) {
                if entry.metadata().is_ok_and(|data| data.uid() == owner) {
                    found.push(Named { engine, id, path });
                }
            } else if depth + 1 < MAX_DEPTH && (parent == PODS || !is_somebodys(&entry.path(), &name)?) {
                pending.push((entry.path(), path, depth + 1));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Nobody knows who is there.
pub(in super::super) fn unseen(error: &io::Error) -> SourceProblem {
    SourceProblem {
        what: "look for containers by their cgroups' names".into(),
        where_: "the cgroup tree".into(),
        why: error.to_string(),
        remedy: crate::sources::descriptors(error).unwrap_or("free memory of the machine").into(),
    }
}

/// What was looked at, nothing where it vanished or is not to be read.
fn there<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => Err(error),
            _ => Ok(None),
        },
    }
}

/// Whether what is below a directory is not a root's runtime's: users', a container's own, what systemd delegated, and
/// the kubelet's, of which the runtime tells.
fn is_somebodys(dir: &Path, name: &str) -> io::Result<bool> {
    if KUBELETS.contains(&name) || name == USERS || is_id(name) || name.ends_with(".scope") {
        return Ok(true);
    }
    let is_delegated = |dir: File| evenkeel_host::cgroup::is_delegated(&dir);
    Ok(name.ends_with(".service") && there(File::open(dir))?.is_some_and(is_delegated))
}

/// Containers in these hierarchies, each id once and at most [`MAX_UNKNOWN`], those that are `known` first; and what is
/// to be said where there are more.
///
/// # Errors
/// As [`scan`].
pub(super) fn find(
    roots: &[PathBuf],
    known: &HashSet<String>,
) -> io::Result<(Vec<Named>, Option<SourceProblem>)> {
    let mut by_id = BTreeMap::new();
    for root in roots {
        for named in scan(root)? {
            by_id.entry(named.id.clone()).or_insert(named);
        }
    }
    Ok(at_most(MAX_UNKNOWN, by_id.into_values().collect(), known))
}

/// So many of those found, the known ones first, and what is to be said where there are more.
fn at_most(
    most: usize,
    mut found: Vec<Named>,
    known: &HashSet<String>,
) -> (Vec<Named>, Option<SourceProblem>) {
    if found.len() <= most {
        return (found, None);
    }
    found.sort_by_key(|named| !known.contains(&named.id));
    found.truncate(most);
    found.sort_unstable();
    // Without their number, which changes: it is said once.
    let problem = SourceProblem {
        what: "follow every container found by its cgroup's name".into(),
        where_: "the cgroup tree".into(),
        why: format!("there are more than {most} of which nothing else is known"),
        remedy: "bind those that matter by manifests; the rest is neither sampled nor managed".into(),
    };
    (found, Some(problem))
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
    fn a_tree_is_walked_and_a_whole_id_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("system.slice/docker-{ID}.scope");
        std::fs::create_dir_all(dir.path().join(&path).join("inner")).unwrap();
        let found = scan(dir.path()).unwrap();
        assert_eq!(found, [Named { engine: "docker", id: ID.into(), path: format!("/{path}") }]);
        assert_eq!(resolve(&format!("docker://{ID}"), &found).unwrap(), &found[0]);
        assert!(resolve(&format!("podman://{ID}"), &found).unwrap_err().contains("no cgroup"));
        assert!(!is_runtime_name("docker://0123456789ab"), "a part of an id is anybody's");
        assert!(is_runtime_name(&format!("docker://{ID}")));
        let twice = [found[0].clone(), Named { path: "/other".into(), ..found[0].clone() }];
        assert!(resolve(&format!("docker://{ID}"), &twice).unwrap_err().contains("both claim"));
    }

    #[test]
    fn what_vanishes_is_passed_over_and_want_of_descriptors_is_not() {
        let failed = |errno: Errno| there::<()>(Err(errno.into())).map_err(|error| error.raw_os_error());
        for errno in [Errno::ENOENT, Errno::ENODEV, Errno::EACCES] {
            assert_eq!(failed(errno), Ok(None), "{errno}");
        }
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            assert_eq!(failed(errno), Err(Some(errno as i32)));
        }
        assert_eq!(scan(Path::new("/nonexistent")).unwrap(), []);
    }

    #[test]
    fn a_directory_that_somebody_made_is_no_container() {
        let dir = tempfile::tempdir().unwrap();
        let real = format!("system.slice/docker-{ID}.scope");
        let evil = format!("docker-{}.scope", ID.replace('0', "f"));
        for path in [
            real.clone(),
            format!("user.slice/user-1000.slice/user@1000.service/{evil}"),
            format!("{real}/{evil}"),
            format!("docker/{}/docker/{}", ID.replace('1', "e"), ID.replace('2', "d")),
            format!("libpod_parent/{}/libpod-{ID}", ID.replace('3', "c")),
            format!("system.slice/nerdctl-1.scope/{evil}"),
            format!("system.slice/session.scope/{evil}"),
        ] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let paths: Vec<String> = scan(dir.path()).unwrap().into_iter().map(|named| named.path).collect();
        let in_pod = format!("/libpod_parent/{}/libpod-{ID}", ID.replace('3', "c"));
        assert_eq!(paths, [format!("/{real}"), format!("/docker/{}", ID.replace('1', "e")), in_pod]);
        // One that belongs to somebody else, where this can be tried.
        let given = dir.path().join(format!("system.slice/given/{evil}"));
        std::fs::create_dir_all(&given).unwrap();
        assert_eq!(scan(dir.path()).unwrap().len(), 4);
        if std::os::unix::fs::chown(&given, Some(65534), None).is_ok() {
            assert_eq!(scan(dir.path()).unwrap().len(), 3);
        }
    }

    #[test]
    fn unknown_containers_are_bounded_and_known_ones_stay() {
        let named =
            |n: usize| Named { engine: "docker", id: format!("{n:064x}"), path: format!("/docker/{n}") };
        let known: HashSet<String> = (40..50).map(|n| named(n).id).collect();
        let (kept, problem) = at_most(20, (0..50).map(named).collect(), &known);
        assert_eq!(kept.len(), 20);
        assert!((40..50).all(|n| kept.contains(&named(n))));
        // Said the same way whatever their number is, so once.
        assert_eq!(at_most(20, (0..60).map(named).collect(), &known).1, problem);
        assert!(problem.is_some() && at_most(50, (0..50).map(named).collect(), &known).1.is_none());
    }
}
