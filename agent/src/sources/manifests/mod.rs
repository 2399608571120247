//! The `manifests` source: a directory of Pod manifests whose containers are bound to cgroups by annotation.
//!
//! Owned here: listing the directory when it changes, and sending what it holds. A file that cannot be used is a
//! problem with its name; the others go on.

mod read;
mod watch;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::workload::{SourceKind, Workload};

use crate::shared::Rescan;

/// Reading again without being asked: a safety net for file systems that report no changes.
const PERIOD: Duration = Duration::from_secs(30);
/// A file changed less than so many seconds ago is read in any case: two changes within a clock tick of the kernel
/// have the same times.
const RECENT: i64 = 2;
/// Manifests read at most, so that a directory filled by mistake cannot exhaust memory.
const MAX_FILES: usize = 10_000;

/// Watches `dir` until the agent ends. `cgroup_roots` are walked for containers named as `docker://ID`.
/// `types` say what pods request that do not say so themselves.
pub(crate) async fn run(
    dir: PathBuf,
    (cgroup_roots, types): (Vec<PathBuf>, Arc<ResourceTypes>),
    updates: UpdateSender,
    rescan: Rescan,
) {
    let watch = watch::Watch::new(&dir);
    let mut last: Option<Listing> = None;
    loop {
        let notified = rescan.notified();
        let (path, roots, types) = (dir.clone(), cgroup_roots.clone(), Arc::clone(&types));
        // What no file has changed since, nor any container it names, need not be read again.
        let known = last.as_ref().filter(|l| l.healthy && !l.runtime_names).map(|l| l.stamps.clone());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        let listing = super::blocking(move || list_unless(known, now, &path, (&roots, &types))).await;
        if let Some(listing) = listing.map(|listing| listing.sharing(last.as_ref()))
            && last.as_ref() != Some(&listing)
        {
            let sent = updates.send(listing.update(&dir));
            last = sent.is_ok().then_some(listing);
        }
        if last.as_ref().is_some_and(|l| l.runtime_names) {
            // A container that starts or ends may be one that a manifest names.
            tokio::select! {
                () = watch.changed() => {}
                () = super::wait(notified, PERIOD) => {}
            }
        } else {
            let _ = tokio::time::timeout(PERIOD, watch.changed()).await;
        }
        watch.renew(&dir);
    }
}

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Default)]
struct Listing {
    workloads: Vec<Arc<Workload>>,
    problems: Vec<SourceProblem>,
    healthy: bool,
    runtime_names: bool,
    stamps: Vec<Stamp>,
}

/// Tells whether a file is still the one that was read: its path, inode, size, and times of content and inode.
type Stamp = (PathBuf, u64, u64, [i64; 4]);

fn stamp(file: &Path) -> Option<Stamp> {
    let data = std::fs::metadata(file).ok()?;
    let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
    Some((file.to_owned(), data.ino(), data.size(), times))
}

impl Listing {
    /// The same with what is as it was in an earlier one taken from there.
    fn sharing(mut self, before: Option<&Listing>) -> Listing {
        let workloads = std::mem::take(&mut self.workloads).into_iter().map(Arc::unwrap_or_clone).collect();
        self.workloads = super::shared(before.map(|before| before.workloads.as_slice()), workloads);
        self
    }

    fn update(&self, dir: &Path) -> SourceUpdate {
        SourceUpdate {
            source: SourceKind::Manifests,
            address: dir.display().to_string(),
            workloads: self.workloads.clone(),
            problems: self.problems.clone(),
            healthy: self.healthy,
        }
    }
}

/// Lists a directory unless its files are as `known` says. `now` is the time, seconds since 1970.
fn list_unless(known: Option<Vec<Stamp>>, now: i64, dir: &Path, given: Given<'_>) -> Option<Listing> {
    let found: Option<Vec<Stamp>> =
        known.as_ref().and_then(|_| files(dir).ok()?.iter().map(|file| stamp(file)).collect());
    let is_recent = |stamp: &Stamp| stamp.3[2] > now - RECENT;
    let same = found.is_some() && found == known && !found.iter().flatten().any(is_recent);
    if same { None } else { Some(list(dir, given)) }
}

/// Where cgroups are, and resource types.
type Given<'a> = (&'a [PathBuf], &'a ResourceTypes);

fn list(dir: &Path, (cgroup_roots, types): Given<'_>) -> Listing {
    let files = match files(dir) {
        Ok(files) => files,
        Err(error) => {
            return Listing {
                problems: vec![SourceProblem {
                    what: "list the manifest directory".into(),
                    where_: dir.display().to_string(),
                    why: error.to_string(),
                    remedy:
                        "make the directory, or set sources.manifests.dir to the one that holds the manifests"
                            .into(),
                }],
                ..Listing::default()
            };
        }
    };
    let mut listing = Listing { healthy: true, ..Listing::default() };
    let mut names = read::RuntimeNames::new(cgroup_roots);
    let mut workloads = Vec::new();
    for file in &files {
        // Before it is read: a change meanwhile is seen the next time.
        listing.stamps.extend(stamp(file));
        read::file(file, types, &mut names, &mut workloads, &mut listing.problems);
    }
    listing.runtime_names = names.used();
    listing.workloads = workloads.into_iter().map(Arc::new).collect();
    refuse_same_id(&mut listing);
    listing
}

/// Manifests of a directory in name order; hidden files and other endings are no manifests.
fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|w| e == *w));
        if !hidden && ending && files.len() < MAX_FILES {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Two manifests for the same container contradict each other: neither is used.
fn refuse_same_id(listing: &mut Listing) {
    let mut ids: Vec<&str> = listing.workloads.iter().map(|w| w.id.as_str()).collect();
    ids.sort_unstable();
    let twice: Vec<String> = ids.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0].to_owned()).collect();
    for id in &twice {
        listing.workloads.retain(|w| &w.id != id);
        listing.problems.push(SourceProblem {
            what: "use the manifest".into(),
            where_: id.clone(),
            why: "the same namespace, pod and container stand in more than one place".into(),
            remedy: "keep one of them; until then none is applied".into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn pod(name: &str, cgroup: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    evenkeel.dev/cgroup.main: {cgroup}\n\
             spec:\n  containers:\n  - name: main\n    image: busybox:1\n    resources:\n      requests: {{cpu: 250m, memory: 64Mi}}\n"
        )
    }

    #[test]
    fn good_files_are_used_and_bad_ones_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), pod("a", "/x/a")).unwrap();
        fs::write(dir.path().join("b.yaml"), pod("b", "../escape")).unwrap();
        fs::write(dir.path().join("c.json"), "{").unwrap();
        fs::write(dir.path().join("notes.txt"), "not a manifest").unwrap();
        fs::write(dir.path().join(".hidden.yaml"), "not a manifest").unwrap();
        let listing = list(dir.path(), (&[], &ResourceTypes::predefined()));
        assert_eq!(listing.workloads.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(), ["default/a/main"]);
        assert_eq!(listing.problems.len(), 2, "{:?}", listing.problems);
        assert!(
            listing.problems[0].where_.contains("b.yaml") && listing.problems[1].where_.contains("c.json")
        );
    }

    #[test]
    fn only_changed_files_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        fs::write(&file, pod("a", "/x/a")).unwrap();
        let listing = list(dir.path(), (&[], &ResourceTypes::predefined()));
        let long_after = listing.stamps[0].3[2] + 100;
        let again = |known: &Listing, now| {
            list_unless(Some(known.stamps.clone()), now, dir.path(), (&[], &ResourceTypes::predefined()))
        };
        assert_eq!(again(&listing, long_after), None);
        assert!(again(&listing, long_after - 100).is_some(), "it may have changed in the same clock tick");
        fs::write(&file, pod("a", "/x/other")).unwrap();
        let changed = again(&listing, long_after).unwrap();
        fs::write(dir.path().join("b.yaml"), pod("b", "/x/b")).unwrap();
        let added = again(&changed, long_after).unwrap();
        assert_eq!(added.workloads.len(), 2);
        fs::remove_file(&file).unwrap();
        assert_eq!(again(&added, long_after).unwrap().workloads.len(), 1);
        assert!(list_unless(None, long_after, dir.path(), (&[], &ResourceTypes::predefined())).is_some());
    }

    #[test]
    fn the_same_container_twice_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1.yaml"), pod("a", "/x/a")).unwrap();
        fs::write(dir.path().join("2.yaml"), pod("a", "/x/b")).unwrap();
        fs::write(dir.path().join("3.yaml"), pod("c", "/x/c")).unwrap();
        let listing = list(dir.path(), (&[], &ResourceTypes::predefined()));
        assert_eq!(listing.workloads.len(), 1);
        assert_eq!(listing.problems[0].where_, "default/a/main");
    }

    #[test]
    fn a_missing_directory_is_a_problem_with_a_remedy() {
        let listing = list(Path::new("/nonexistent/manifests"), (&[], &ResourceTypes::predefined()));
        assert!(!listing.healthy && listing.problems[0].remedy.contains("sources.manifests.dir"));
    }
}
