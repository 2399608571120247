//! The `manifests` source: a directory of Pod manifests whose containers are bound to cgroups by annotation.
//!
//! Owned here: listing the directory when it changes, and sending what it holds. A file that cannot be used is a
//! problem with its name; the others go on.

mod judged;
mod parser;
mod read;
mod watch;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender};
use evenkeel_model::workload::{SourceKind, Workload};

use parser::Parsed;
pub(crate) use parser::Parser;
pub(crate) use read::parse;

use crate::shared::Rescan;

/// Reading again without being asked: a safety net for file systems that report no changes.
const PERIOD: Duration = Duration::from_secs(30);
/// A file changed less than so many seconds ago is read in any case: two changes within a clock tick of the kernel
/// have the same times.
const RECENT: i64 = 2;
/// Manifests read at most, so that a directory filled by mistake cannot exhaust memory.
const MAX_FILES: usize = 10_000;

/// Watches `dir` until the agent ends. `cgroup_roots` are walked for containers named as `docker://ID`.
pub(crate) async fn run(
    dir: PathBuf,
    cgroup_roots: Vec<PathBuf>,
    parser: Parser,
    updates: UpdateSender,
    rescan: Rescan,
) {
    let watch = watch::Watch::new(&dir);
    let mut directory = Directory { dir, cgroup_roots, parser, known: HashMap::new() };
    let mut last: Option<Listing> = None;
    loop {
        let notified = rescan.notified();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        // What no file has changed since, nor any container it names, need not be told again.
        let is_settled = last.as_ref().is_some_and(|last| last.healthy && !last.runtime_names);
        let listing = directory.list(now, is_settled).await;
        if let Some(listing) = listing.map(|listing| listing.sharing(last.as_ref()))
            && last.as_ref() != Some(&listing)
        {
            let sent = updates.send(listing.update(&directory.dir));
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
        watch.renew(&directory.dir);
    }
}

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Default)]
struct Listing {
    workloads: Vec<Arc<Workload>>,
    problems: Vec<SourceProblem>,
    healthy: bool,
    runtime_names: bool,
    /// Containers that they name could not be looked for.
    is_blind: bool,
}

/// Tells whether a file is still the one that was read: its inode, size, and times of content and inode.
type Stamp = (u64, u64, [i64; 4]);

fn stamp(file: &Path) -> Option<Stamp> {
    let data = std::fs::metadata(file).ok()?;
    let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
    Some((data.ino(), data.size(), times))
}

impl Listing {
    /// The same with what is as it was in an earlier one taken from there; all of it where nobody could look.
    fn sharing(mut self, before: Option<&Listing>) -> Listing {
        let known = before.map(|before| before.workloads.as_slice());
        self.workloads = match known {
            Some(known) if self.is_blind => known.to_vec(),
            known => super::same(known, self.workloads),
        };
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

/// The directory, and what its files said when they were last read.
struct Directory {
    dir: PathBuf,
    cgroup_roots: Vec<PathBuf>,
    parser: Parser,
    known: HashMap<PathBuf, (Stamp, Arc<Parsed>)>,
}

impl Directory {
    /// What it holds; `None` where that is settled and no file has changed. `now` is the time, seconds since 1970.
    async fn list(&mut self, now: i64, is_settled: bool) -> Option<Listing> {
        let dir = self.dir.clone();
        // Before files are read: a change meanwhile is seen the next time.
        let stamped = move || {
            let stamped = |file: PathBuf| (stamp(&file), file);
            files(&dir).map(|(files, beyond)| (files.into_iter().map(stamped).collect::<Vec<_>>(), beyond))
        };
        let (files, beyond) = match super::blocking(stamped).await {
            Ok(files) => files,
            Err(error) => return Some(self.unlisted(&error).await),
        };
        let is_same = files.len() == self.known.len()
            && files.iter().all(|(stamp, file)| self.known_still(file, *stamp, now).is_some());
        if is_same && is_settled {
            return None;
        }
        let mut known = HashMap::with_capacity(files.len());
        let mut all = Vec::with_capacity(files.len());
        for (stamp, file) in files {
            let parsed = match self.known_still(&file, stamp, now) {
                Some(parsed) => parsed,
                None => self.read(&file).await,
            };
            all.push((file.clone(), Arc::clone(&parsed)));
            known.extend(stamp.map(|stamp| (file, (stamp, parsed))));
        }
        self.known = known;
        let mut listing = self.listed(all).await;
        listing.problems.extend((beyond > 0).then(|| self.left_out(beyond)));
        Some(listing)
    }

    async fn listed(&self, files: Vec<(PathBuf, Arc<Parsed>)>) -> Listing {
        let roots = self.cgroup_roots.clone();
        super::blocking(move || listed(&files, &roots)).await
    }

    /// What a file said, where it has not changed since.
    fn known_still(&self, file: &Path, stamp: Option<Stamp>, now: i64) -> Option<Arc<Parsed>> {
        let (known, parsed) = self.known.get(file)?;
        let is_recent = known.2[2] > now - RECENT;
        (stamp == Some(*known) && !is_recent && !parsed.is_open).then(|| Arc::clone(parsed))
    }

    /// What it says now; the same one where that is as it was. Where the system does not give it, what it said stands.
    async fn read(&self, file: &Path) -> Arc<Parsed> {
        let known = self.known.get(file).map(|(_, known)| known);
        let parsed = self.parser.read(file).await.unwrap_or_else(|problem| Parsed {
            workloads: known.map_or_else(Vec::new, |known| known.workloads.clone()),
            problems: vec![problem],
            is_open: true,
        });
        match known {
            Some(known) if **known == parsed => Arc::clone(known),
            _ => Arc::new(parsed),
        }
    }

    /// What its files said stands, but where it is gone.
    async fn unlisted(&mut self, error: &std::io::Error) -> Listing {
        if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            self.known.clear();
        }
        let known = self.known.iter().map(|(file, (_, parsed))| (file.clone(), Arc::clone(parsed)));
        let mut files: Vec<_> = known.collect();
        files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut listing = self.listed(files).await;
        listing.healthy = false;
        listing.problems.push(SourceProblem {
            what: "list the manifest directory".into(),
            where_: self.dir.display().to_string(),
            why: error.to_string(),
            remedy: super::descriptors(error)
                .unwrap_or(
                    "make the directory, or set sources.manifests.dir to the one that holds the manifests",
                )
                .into(),
        });
        listing
    }

    fn left_out(&self, beyond: usize) -> SourceProblem {
        SourceProblem {
            what: "read every manifest of the directory".into(),
            where_: self.dir.display().to_string(),
            why: format!("{beyond} of its files are beyond the {MAX_FILES} that are read"),
            remedy: "keep manifests of several containers in one file".into(),
        }
    }
}

/// Everything that the files say, each container bound to what it names.
fn listed(files: &[(PathBuf, Arc<Parsed>)], cgroup_roots: &[PathBuf]) -> Listing {
    let mut listing = Listing::default();
    let mut names = read::RuntimeNames::new(cgroup_roots);
    for (file, parsed) in files {
        listing.problems.extend_from_slice(&parsed.problems);
        for workload in &parsed.workloads {
            match names.bound(workload) {
                Ok(None) => listing.workloads.push(Arc::clone(workload)),
                Ok(Some(bound)) => listing.workloads.push(Arc::new(bound)),
                Err(_) if names.unseen().is_some() => {}
                Err(why) => listing.problems.push(read::unbound(&file.display().to_string(), workload, why)),
            }
        }
    }
    listing.runtime_names = names.used();
    let unseen = names.unseen();
    listing.is_blind = unseen.is_some();
    listing.healthy = !listing.is_blind;
    listing.problems.extend(unseen);
    refuse_same_id(&mut listing);
    listing
}

/// Manifests of a directory in name order, and how many more there are than are read; hidden files and other endings are no
/// manifests.
fn files(dir: &Path) -> std::io::Result<(Vec<PathBuf>, usize)> {
    let (mut files, mut beyond) = (Vec::new(), 0);
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|w| e == *w));
        match !hidden && ending {
            true if files.len() < MAX_FILES => files.push(path),
            is_manifest => beyond += usize::from(is_manifest),
        }
    }
    files.sort_unstable();
    Ok((files, beyond))
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
    use evenkeel_model::resource_type::ResourceTypes;
    use std::fs;

    fn pod(name: &str, cgroup: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    evenkeel.dev/cgroup.main: {cgroup}\n\
             spec:\n  containers:\n  - name: main\n    image: busybox:1\n    resources:\n      requests: {{cpu: 250m, memory: 64Mi}}\n"
        )
    }

    fn directory(dir: &Path) -> Directory {
        let parser = Parser::Here(Arc::new(ResourceTypes::predefined()));
        Directory { dir: dir.to_owned(), cgroup_roots: Vec::new(), parser, known: HashMap::new() }
    }

    async fn listing(dir: &Path) -> Listing {
        directory(dir).list(0, false).await.unwrap()
    }

    #[tokio::test]
    async fn good_files_are_used_and_bad_ones_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), pod("a", "/x/a")).unwrap();
        fs::write(dir.path().join("b.yaml"), pod("b", "../escape")).unwrap();
        fs::write(dir.path().join("c.json"), "{").unwrap();
        fs::write(dir.path().join("notes.txt"), "not a manifest").unwrap();
        fs::write(dir.path().join(".hidden.yaml"), "not a manifest").unwrap();
        let listing = listing(dir.path()).await;
        assert_eq!(listing.workloads.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(), ["default/a/main"]);
        assert_eq!(listing.problems.len(), 2, "{:?}", listing.problems);
        assert!(
            listing.problems[0].where_.contains("b.yaml") && listing.problems[1].where_.contains("c.json")
        );
    }

    #[tokio::test]
    async fn files_beyond_the_most_are_told() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MAX_FILES + 2 {
            fs::write(dir.path().join(format!("{number}.json")), "").unwrap();
        }
        let (found, beyond) = files(dir.path()).unwrap();
        assert_eq!((found.len(), beyond), (MAX_FILES, 2));
        let problem = directory(dir.path()).left_out(beyond);
        assert!(problem.why.starts_with("2 of its files are beyond the 10000"), "{}", problem.why);
    }

    #[tokio::test]
    async fn only_changed_files_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        fs::write(&file, pod("a", "/x/a")).unwrap();
        let mut directory = directory(dir.path());
        directory.list(0, false).await.unwrap();
        let changed_at = stamp(&file).unwrap().2[2];
        let long_after = changed_at + 100;
        assert_eq!(directory.list(long_after, true).await, None);
        assert!(directory.list(long_after, false).await.is_some(), "a container it names may have changed");
        assert!(
            directory.list(changed_at, true).await.is_some(),
            "it may have changed in the same clock tick"
        );
        fs::write(&file, pod("a", "/x/other")).unwrap();
        directory.list(long_after, true).await.unwrap();
        let kept = Arc::clone(&directory.known[&file].1);
        fs::write(dir.path().join("b.yaml"), pod("b", "/x/b")).unwrap();
        let added = directory.list(long_after, true).await.unwrap();
        assert_eq!(added.workloads.len(), 2);
        assert!(Arc::ptr_eq(&kept, &directory.known[&file].1), "the other is not read again");
        fs::remove_file(&file).unwrap();
        assert_eq!(directory.list(long_after, true).await.unwrap().workloads.len(), 1);
    }

    #[tokio::test]
    async fn what_a_file_said_stands_while_the_system_does_not_give_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        fs::write(&file, pod("a", "/x/a")).unwrap();
        let mut directory = directory(dir.path());
        directory.list(i64::MAX, true).await.unwrap();
        let many = std::io::Error::from_raw_os_error(nix::libc::EMFILE);
        let unlisted = directory.unlisted(&many).await;
        assert_eq!((unlisted.workloads.len(), unlisted.healthy), (1, false), "what it said stands");
        fs::remove_file(&file).unwrap();
        // Its first page is not mapped: EIO.
        std::os::unix::fs::symlink("/proc/self/mem", &file).unwrap();
        for _ in 0..2 {
            let listing = directory.list(i64::MAX, true).await.expect("it is tried again");
            assert_eq!(
                listing.workloads.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(),
                ["default/a/main"]
            );
            let [problem] = listing.problems.as_slice() else { panic!("{:?}", listing.problems) };
            assert!(problem.where_.contains("a.yaml") && problem.why.contains("os error 5"), "{problem:?}");
        }
        fs::remove_file(&file).unwrap();
        fs::write(&file, pod("b", "/x/b")).unwrap();
        let listing = directory.list(i64::MAX, true).await.unwrap();
        assert_eq!((listing.workloads[0].id.as_str(), listing.problems.len()), ("default/b/main", 0));
        assert_eq!(directory.list(i64::MAX, true).await, None, "nothing is open any more");
    }

    #[test]
    fn who_was_there_stays_while_nobody_can_look() {
        let (bound, _) = parse(pod("a", "/x/a").as_bytes(), "a", &ResourceTypes::predefined());
        let before =
            Listing { workloads: super::super::shared(None, bound), healthy: true, ..Listing::default() };
        let blind = || Listing { is_blind: true, runtime_names: true, ..Listing::default() };
        assert_eq!(blind().sharing(Some(&before)).workloads, before.workloads);
        assert_eq!(blind().sharing(None).workloads.len(), 0);
        let seen = Listing { healthy: true, ..Listing::default() };
        assert_eq!(seen.sharing(Some(&before)).workloads.len(), 0);
    }

    #[tokio::test]
    async fn the_same_container_twice_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1.yaml"), pod("a", "/x/a")).unwrap();
        fs::write(dir.path().join("2.yaml"), pod("a", "/x/b")).unwrap();
        fs::write(dir.path().join("3.yaml"), pod("c", "/x/c")).unwrap();
        let listing = listing(dir.path()).await;
        assert_eq!(listing.workloads.len(), 1);
        assert_eq!(listing.problems[0].where_, "default/a/main");
    }

    #[tokio::test]
    async fn a_missing_directory_is_a_problem_with_a_remedy() {
        let listing = listing(Path::new("/nonexistent/manifests")).await;
        assert!(!listing.healthy && listing.problems[0].remedy.contains("sources.manifests.dir"));
        let many = std::io::Error::from_raw_os_error(nix::libc::EMFILE);
        let unlisted = directory(Path::new("/nonexistent/manifests")).unlisted(&many).await;
        assert!(unlisted.problems[0].remedy.contains("LimitNOFILE="), "{:?}", unlisted.problems);
    }

    /// A reader that ends over manifests that say so, and reads others; one is there again after each end.
    fn reader() -> Parser {
        use evenkeel_border::coded::Coded as _;
        use evenkeel_border::found::Read;
        use evenkeel_border::link::{Bounds, Link, Side};
        use evenkeel_border::order::Order;

        let gate = crate::outward::Gate::default();
        let kept = gate.clone();
        tokio::spawn(async move {
            let bounds = Bounds {
                theirs: 4,
                ours: 4,
                message: 16 << 20,
                waiting: 24 << 20,
                packets: 0,
                descriptors: false,
            };
            loop {
                let (ours, theirs) = evenkeel_border::socket::pair().unwrap();
                let (link, _) = Link::start(ours, Side::First, bounds).unwrap();
                let (part, mut orders) = Link::start(theirs, Side::Second, bounds).unwrap();
                kept.set(Some(link));
                while let Some(channel) = orders.recv().await {
                    let Order::Manifest(given) = Order::of(&channel.receive().await.unwrap()).unwrap() else {
                        panic!("another order")
                    };
                    if given.text.0.starts_with(b"# end") {
                        part.close("it ends");
                        break;
                    }
                    let (workloads, _) = parse(&given.text.0, &given.place, &ResourceTypes::predefined());
                    channel.send(&Read { workloads, problems: Vec::new() }.message()).await.unwrap();
                    channel.end(Ok(())).await;
                }
                kept.set(None);
            }
        });
        Parser::There(gate, "{}".into())
    }

    #[tokio::test]
    async fn a_manifest_over_which_the_reader_ends_is_told_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), format!("# end\n{}", pod("a", "/x/a"))).unwrap();
        fs::write(dir.path().join("b.yaml"), pod("b", "/x/b")).unwrap();
        let mut directory = Directory { parser: reader(), ..directory(dir.path()) };
        for _ in 0..2 {
            let listing = directory.list(i64::MAX, true).await.unwrap();
            assert_eq!(
                listing.workloads.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(),
                ["default/b/main"]
            );
            let [problem] = listing.problems.as_slice() else { panic!("{:?}", listing.problems) };
            assert!(problem.where_.contains("a.yaml") && problem.remedy.contains("report it"), "{problem:?}");
        }
        fs::write(dir.path().join("a.yaml"), pod("a", "/x/a")).unwrap();
        let listing = directory.list(i64::MAX, true).await.unwrap();
        assert_eq!((listing.workloads.len(), listing.problems.len()), (2, 0));
        assert_eq!(directory.list(i64::MAX, true).await, None, "nothing is open any more");
    }
}
