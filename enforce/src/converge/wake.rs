//! What wakes the converger: process events and changes of the cgroup tree, turned into "look at this container".
//!
//! A child has its parent's score and cgroup, so it is remembered as belonging to the same container. Its score is
//! checked, and so is that of a known process that execs, because a process may change its own score: runtimes set
//! it in the process that becomes the container's. A process put into a container is told by inotify (somebody
//! wrote `cgroup.procs`). An exec by a process of unknown origin is looked up by its `/proc/PID/cgroup`. Checks and
//! lookups happen so many times a second at most; beyond that the audit finds it. Without events the audit finds
//! everything.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::error::HostError;
use evenkeel_host::events::{CgroupEvent, CgroupWatch, ProcConnector, ProcessEvent};
use evenkeel_host::knob::Knob;
use evenkeel_host::process::ProcessHandle;
use evenkeel_host::roots::Roots;
use evenkeel_host::write::CgroupRef;

use super::nursery::Nurseries;
use super::shed::{Shed, Step};
use super::stream::{Stream, told};
use crate::stats::Stats;

/// Number of a container in the converger's table; never reused.
pub(super) type Key = u64;

/// Lookups of unknown processes in a second: 15 us each, so at most a hundredth of a core.
const LOOKUPS_PER_SECOND: u32 = 600;
/// Scores checked in a second because of forks and execs, 8 us each: so at most a hundredth of a core.
const CHECKS_PER_SECOND: u32 = 1000;
/// Of these, in one container, so that one that forks all the time does not use up the others' share.
const CHECKS_PER_CONTAINER: u32 = 50;
/// Processes remembered; beyond that all are forgotten and learnt again at audits.
const MAX_PIDS: usize = 262_144;
/// Parents above a container that are watched for new siblings: its pod and its tier.
const WATCHED_PARENTS: usize = 2;

/// What has to be done after the events.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Containers to look at now.
    pub(super) dirty: BTreeSet<Key>,
    /// Processes whose score may have become wrong, each with its container.
    pub(super) suspects: Vec<(Key, u32)>,
    /// Containers whose cgroup was removed.
    pub(super) removed: BTreeSet<Key>,
    /// Cgroups came or went: sources should list again.
    pub(super) tree_changed: bool,
    /// Events were lost: every container may be wrong.
    pub(super) all: bool,
}

/// Sources of wake-ups, each of which may be missing.
pub(super) struct Wake {
    stream: Stream,
    watch: Option<CgroupWatch>,
    nurseries: Nurseries,
    tree: Arc<CgroupTree>,
    roots: Roots,
    /// Why changes of the tree are not told, or not all, with the remedy.
    cgroups_why: Option<String>,
    keys: HashMap<CgroupRef, Key>,
    by_path: HashMap<Arc<str>, Key>,
    parents: HashMap<CgroupRef, usize>,
    pids: HashMap<u32, Key>,
    lookups: Budget,
    checks: Checks,
    shed: Shed,
    /// What is promised has changed since it was last shown.
    changed: bool,
    processes: Vec<ProcessEvent>,
    cgroups: Vec<CgroupEvent>,
}

/// So many in each second.
struct Budget {
    most: u32,
    since: Instant,
    left: u32,
}

/// Checks left in this second: in all, and in each container that had any.
struct Checks {
    all: Budget,
    of: HashMap<Key, Budget>,
}

impl Wake {
    /// Opens what this machine and configuration allow; what is missing is said in `why`.
    pub(crate) fn open(
        connector: Option<Result<ProcConnector, HostError>>,
        tree: Arc<CgroupTree>,
        roots: Roots,
    ) -> Self {
        let mut cgroups_why = None;
        let watch = CgroupWatch::new(Arc::clone(&tree));
        let mut watch =
            watch.map_err(|error| cgroups_why = Some(format!("cgroup events: {}", told(&error)))).ok();
        let nurseries = Nurseries::open(&tree, watch.as_mut());
        Self {
            stream: Stream::of(connector),
            watch,
            nurseries,
            tree,
            roots,
            cgroups_why,
            keys: HashMap::new(),
            by_path: HashMap::new(),
            parents: HashMap::new(),
            pids: HashMap::new(),
            lookups: Budget::of(LOOKUPS_PER_SECOND),
            checks: Checks::new(),
            shed: Shed::new(Instant::now()),
            changed: false,
            processes: Vec::new(),
            cgroups: Vec::new(),
        }
    }

    /// True when process events arrive.
    pub(super) fn has_process_events(&self) -> bool {
        self.stream.open().is_some() && !self.shed.is_shut()
    }

    /// Why an event source is missing or shut, with what is promised instead.
    pub(super) fn why(&self) -> Option<String> {
        let stream = self.stream.why().map(|why| format!("process events: {why}"));
        let shut = (self.stream.open().is_some() && self.shed.is_shut()).then(Shed::promise);
        let parts: Vec<String> = stream.into_iter().chain(self.cgroups_why.clone()).chain(shut).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Whether what arrives has changed since it was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// When to read though nothing wakes us.
    pub(super) fn due(&self) -> Option<Instant> {
        self.stream.due().or_else(|| self.stream.open().and_then(|_| self.shed.due()))
    }

    /// True when changes of the tree arrive.
    pub(super) fn has_cgroup_events(&self) -> bool {
        self.watch.is_some()
    }

    /// Descriptors to poll for reading.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listening = self.stream.open().into_iter().filter(|_| self.shed.is_listening());
        listening.map(AsFd::as_fd).chain(self.watch.iter().map(AsFd::as_fd))
    }

    /// Begins to watch a container: its cgroup for processes put in and for removal, its parents for siblings.
    pub(super) fn add(&mut self, key: Key, cgroup: &CgroupRef) {
        self.keys.insert(cgroup.clone(), key);
        self.by_path.insert(cgroup.path.clone(), key);
        let parents = parents_of(&self.tree, cgroup);
        let Some(watch) = self.watch.as_mut() else { return };
        let watched = watch.watch_directory(cgroup);
        if let Err(error) = watched
            && !error.is_gone()
        {
            let what = format!("cgroup events of some containers: {}", told(&error));
            tracing::debug!(%cgroup, %error, "ignoring: not watched, the audit finds changes");
            self.cgroups_why.get_or_insert(what);
        }
        for parent in parents {
            let count = self.parents.entry(parent.clone()).or_insert(0);
            *count += 1;
            if *count == 1
                && let Err(error) = watch.watch_directory(&parent)
            {
                tracing::debug!(%parent, %error, "ignoring: not watched, sources list on their own period");
            }
        }
    }

    /// Ends watching a container.
    pub(super) fn remove(&mut self, key: Key, cgroup: &CgroupRef) {
        self.keys.remove(cgroup);
        if self.by_path.get(&cgroup.path) == Some(&key) {
            self.by_path.remove(&cgroup.path);
        }
        self.pids.retain(|_, of| *of != key);
        self.checks.of.remove(&key);
        let gone: Vec<CgroupRef> =
            self.parents.keys().filter(|parent| is_above(parent, cgroup)).cloned().collect();
        let Some(watch) = self.watch.as_mut() else { return };
        if !self.parents.contains_key(cgroup) && !self.nurseries.contains(cgroup) {
            watch.unwatch(cgroup);
        }
        for parent in gone {
            if let Some(count) = self.parents.get_mut(&parent) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.parents.remove(&parent);
                    // It may be a container itself.
                    if !self.keys.contains_key(&parent) && !self.nurseries.contains(&parent) {
                        watch.unwatch(&parent);
                    }
                }
            }
        }
    }

    /// Remembers the processes of a container, so that their execs need no lookup.
    pub(super) fn learn(&mut self, key: Key, pids: impl Iterator<Item = u32>) {
        if self.stream.open().is_none() {
            return;
        }
        if self.pids.len() > MAX_PIDS {
            self.pids.clear();
        }
        self.pids.extend(pids.map(|pid| (pid, key)));
    }

    /// Takes everything that happened since the last call. `now` bounds the lookups.
    pub(super) fn read(&mut self, now: Instant, stats: &Stats, notices: &mut Notices) {
        self.read_processes(now, stats, notices);
        self.read_cgroups(stats, notices);
    }

    fn read_processes(&mut self, now: Instant, stats: &Stats, notices: &mut Notices) {
        if self.stream.renew(now) {
            self.missed(notices);
        }
        let Some(connector) = self.stream.open() else { return };
        match self.shed.step(now) {
            Step::Wait => return,
            Step::Read => {}
            Step::Resume => {
                if let Err(error) = connector.resume() {
                    tracing::debug!(%error, "ignoring: process events stay shut until the next try");
                }
                self.missed(notices);
            }
        }
        let mut events = std::mem::take(&mut self.processes);
        if let Some(Err(error)) = self.stream.open().map(|connector| connector.read(&mut events)) {
            self.stream.broke(&error, now);
            self.changed = true;
        }
        stats.process_events.add(events.len() as u64);
        self.shut_in_storm(events.len(), now, stats);
        for event in events.drain(..) {
            match event {
                ProcessEvent::Fork { parent, child } => {
                    if let Some(&key) = self.pids.get(&parent) {
                        self.pids.insert(child, key);
                        self.suspect(key, child, now, notices);
                    } else {
                        // The number was that of a process that has ended.
                        self.pids.remove(&child);
                    }
                }
                ProcessEvent::Exec { .. } if self.keys.is_empty() => {}
                ProcessEvent::Exec { pid } => {
                    if let Some(&key) = self.pids.get(&pid) {
                        self.suspect(key, pid, now, notices);
                    } else if let Some(key) = self.look_up(pid, now, stats) {
                        self.pids.insert(pid, key);
                        notices.dirty.insert(key);
                    }
                }
                ProcessEvent::Exit { pid } => {
                    self.pids.remove(&pid);
                }
                ProcessEvent::Overrun => {
                    stats.process_events_overrun.add(1);
                    self.pids.clear();
                    notices.all = true;
                }
            }
        }
        self.processes = events;
    }

    /// Events were not told for a while: every container may be wrong.
    fn missed(&mut self, notices: &mut Notices) {
        self.pids.clear();
        notices.all = true;
        self.changed = true;
    }

    /// Shuts the stream when there is too much of it.
    fn shut_in_storm(&mut self, events: usize, now: Instant, stats: &Stats) {
        if !self.shed.took(events, now) {
            return;
        }
        let Some(connector) = self.stream.open() else { return };
        if let Err(error) = connector.pause() {
            tracing::debug!(%error, "ignoring: process events are not read, though they arrive");
        }
        stats.process_events_paused.add(1);
        self.changed = true;
    }

    /// Has a process of a container checked while there is something left for it.
    fn suspect(&mut self, key: Key, pid: u32, now: Instant, notices: &mut Notices) {
        if self.checks.take(key, now) {
            notices.suspects.push((key, pid));
        }
    }

    /// The container a process is in, by its own word about its cgroups.
    fn look_up(&mut self, pid: u32, now: Instant, stats: &Stats) -> Option<Key> {
        if !self.lookups.take(now) {
            stats.process_events_shed.add(1);
            return None;
        }
        let cgroups = ProcessHandle::open(&self.roots, pid).and_then(|process| process.cgroups()).ok()?;
        cgroups.iter().find_map(|(_, path)| {
            let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
            ends.filter_map(|end| path.get(..end)).find_map(|prefix| self.by_path.get(prefix)).copied()
        })
    }

    fn read_cgroups(&mut self, stats: &Stats, notices: &mut Notices) {
        let Some(watch) = self.watch.as_mut() else { return };
        let mut events = std::mem::take(&mut self.cgroups);
        // Each read takes what fits into one buffer.
        while events.len() < 65_536 {
            match watch.read(&mut events) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    self.cgroups_why = Some(format!("cgroup events: {}", told(&error)));
                    tracing::warn!(%error, "cgroup events ended; changes are found by the audit");
                    self.watch = None;
                    break;
                }
            }
        }
        stats.cgroup_events.add(events.len() as u64);
        for event in events.drain(..) {
            match event {
                CgroupEvent::FileWritten { cgroup, file } => {
                    if concerns_us(&file)
                        && let Some(&key) = self.keys.get(&cgroup)
                    {
                        notices.dirty.insert(key);
                    }
                }
                CgroupEvent::ChildCreated { parent, name } => {
                    notices.dirty.extend(self.keys.get(&parent));
                    notices.tree_changed |= self.parents.contains_key(&parent)
                        | self
                            .watch
                            .as_mut()
                            .is_none_or(|watch| self.nurseries.born(&self.tree, watch, &parent, &name));
                }
                CgroupEvent::ChildRemoved { parent, .. } => {
                    // A place without known containers has none to lose.
                    notices.tree_changed |=
                        self.parents.contains_key(&parent) || !self.nurseries.contains(&parent);
                    notices.dirty.extend(self.keys.get(&parent));
                }
                CgroupEvent::Removed { cgroup } => {
                    self.nurseries.gone(&cgroup);
                    notices.tree_changed |= self.keys.contains_key(&cgroup);
                    notices.removed.extend(self.keys.get(&cgroup));
                }
                CgroupEvent::EventsChanged { .. } => {}
                CgroupEvent::Overflow => {
                    notices.tree_changed = true;
                    notices.all = true;
                }
            }
        }
        self.cgroups = events;
    }
}

impl Checks {
    fn new() -> Self {
        Self { all: Budget::of(CHECKS_PER_SECOND), of: HashMap::new() }
    }

    fn take(&mut self, key: Key, now: Instant) -> bool {
        let of = self.of.entry(key).or_insert_with(|| Budget::of(CHECKS_PER_CONTAINER));
        of.take(now) && self.all.take(now)
    }
}

impl Budget {
    fn of(most: u32) -> Self {
        Self { most, since: Instant::now(), left: most }
    }

    fn take(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self { since: now, left: self.most, ..*self };
        }
        let has = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has
    }
}

/// Files whose writing means something for a container: processes put in, knobs turned.
fn concerns_us(file: &str) -> bool {
    let is_knob = |knob: Knob| knob.is_of_container() && knob.file() == file;
    file == "cgroup.procs" || file == "tasks" || Knob::ALL.into_iter().any(is_knob)
}

/// The cgroups above one, nearest first, without the root.
fn parents_of(tree: &CgroupTree, cgroup: &CgroupRef) -> Vec<CgroupRef> {
    let mut parents = Vec::new();
    let mut path = &*cgroup.path;
    while let Some((above, _)) = path.rsplit_once('/') {
        let named = if above.is_empty() { "/" } else { above };
        if parents.len() == WATCHED_PARENTS {
            break;
        }
        if let Ok(dir) = tree.dir(cgroup.hierarchy, named) {
            parents.push(dir.at().clone());
        }
        path = above;
    }
    parents
}

fn is_above(parent: &CgroupRef, cgroup: &CgroupRef) -> bool {
    let Some(rest) = cgroup.path.strip_prefix(parent.path.trim_end_matches('/')) else { return false };
    let depth = rest.matches('/').count();
    parent.hierarchy == cgroup.hierarchy && rest.starts_with('/') && depth <= WATCHED_PARENTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_forks_all_the_time_leaves_the_others_their_checks() {
        let (mut checks, now) = (Checks::new(), Instant::now());
        let taken = |checks: &mut Checks, key, now| (0..10_000).filter(|_| checks.take(key, now)).count();
        assert_eq!(taken(&mut checks, 1, now), CHECKS_PER_CONTAINER as usize);
        assert!(checks.take(2, now));
        let others: usize = (3..100).map(|key| taken(&mut checks, key, now)).sum();
        assert_eq!(others, (CHECKS_PER_SECOND - CHECKS_PER_CONTAINER - 1) as usize);
        assert_eq!(taken(&mut checks, 1, now + Duration::from_secs(2)), CHECKS_PER_CONTAINER as usize);
    }
}
