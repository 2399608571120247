//! [`OomWatch`]: being told of OOM kills in many cgroups.
//!
//! v2: inotify on `memory.events`, whose `oom_kill` counts the whole subtree (cgroup-v2.rst). v1: an eventfd on
//! `memory.oom_control`, which is signalled when the cgroup or one above it runs out of memory, *before* anybody
//! is killed, and not at all for kills by the machine's OOM killer; `oom_kill` there counts the cgroup alone, so
//! those below it are counted with it. Hence [`OomWatch::check`], which counts without having been told: to be
//! called from an audit, and soon again while [`OomWatch::is_expecting`].

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use super::v1_eventfd::Registered;
use crate::cgroup::{CgroupDir, CgroupTree};
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::parse;
use crate::write::CgroupRef;

/// What happened in a watched cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OomEvent {
    /// Processes were ended by the OOM killer in the cgroup or below it.
    Killed {
        /// The watched cgroup.
        cgroup: CgroupRef,
        /// How many more than when we last counted.
        new: u64,
        /// How many since it was watched.
        total: u64,
    },
    /// It ran out of memory (v1) and nobody is counted as killed yet: see [`OomWatch::is_expecting`].
    OutOfMemory {
        /// The watched cgroup.
        cgroup: CgroupRef,
    },
    /// The watched cgroup is no more, and neither is its watch.
    Removed {
        /// The cgroup.
        cgroup: CgroupRef,
    },
}

/// Events taken from the kernel in one system call.
const BATCH: usize = 64;

/// Looks after a v1 cgroup ran out of memory in which no kill was counted, after which none is expected any more:
/// it may have a disabled OOM killer.
const EXPECTED_LOOKS: u8 = 20;

/// Token of the inotify descriptor; cgroups count from 1.
const INOTIFY: u64 = 0;

#[derive(Debug)]
struct Watched {
    notice: Notice,
    /// Kills by inode of the directory that counts them: on v1 one for each cgroup of the subtree.
    counted: BTreeMap<u64, u64>,
    /// Kills from before it was watched.
    before: u64,
    total: u64,
    expected: u8,
}

#[derive(Debug)]
enum Notice {
    File(WatchDescriptor),
    Event { registered: Registered, token: u64 },
}

/// Watches on any number of cgroups behind one pollable descriptor.
#[derive(Debug)]
pub struct OomWatch {
    tree: Arc<CgroupTree>,
    epoll: Epoll,
    inotify: Inotify,
    watched: BTreeMap<CgroupRef, Watched>,
    by_file: HashMap<WatchDescriptor, CgroupRef>,
    by_token: HashMap<u64, CgroupRef>,
    next_token: u64,
}

impl OomWatch {
    /// A set of no watches yet.
    ///
    /// # Errors
    /// `Io` when the kernel has no more descriptors or inotify instances for us.
    pub fn new(tree: Arc<CgroupTree>) -> Result<Self, HostError> {
        let fail = |e| HostError::from_errno(HostOperation::Subscribe, "OOM kills", e, true);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(fail)?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(fail)?;
        epoll.add(&inotify, EpollEvent::new(EpollFlags::EPOLLIN, INOTIFY)).map_err(fail)?;
        Ok(Self {
            tree,
            epoll,
            inotify,
            watched: BTreeMap::new(),
            by_file: HashMap::new(),
            by_token: HashMap::new(),
            next_token: INOTIFY,
        })
    }

    /// Number of cgroups watched.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// True while none is watched.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Watches a cgroup of the memory hierarchy from now on. Watching twice changes nothing. On v1 it costs one
    /// descriptor.
    ///
    /// # Errors
    /// `Unsupported` where the memory controller is not at work; `Gone`; `Denied`; `Io` with the remedy when
    /// there are too many watches or descriptors.
    pub fn watch(&mut self, cgroup: &CgroupRef) -> Result<(), HostError> {
        if self.watched.contains_key(cgroup) {
            return Ok(());
        }
        let dir = self.tree.dir_of(cgroup)?;
        let notice = match cgroup.hierarchy {
            Hierarchy::V2 => self.watch_file(&dir)?,
            Hierarchy::V1(_) => self.register(&dir)?,
        };
        // Counted after the watch is there, so that no kill falls between.
        let mut counted = BTreeMap::new();
        let known = count(&dir, &mut counted);
        let before = *known.as_ref().unwrap_or(&0);
        self.watched.insert(cgroup.clone(), Watched { notice, counted, before, total: 0, expected: 0 });
        known.map(|_| ()).inspect_err(|_| self.unwatch(cgroup))
    }

    fn watch_file(&mut self, dir: &CgroupDir) -> Result<Notice, HostError> {
        let at = dir.at();
        let root = self.tree.layout().mount(at.hierarchy).map_or(Path::new(""), |m| m.path.as_path());
        let path = root.join(at.path.trim_start_matches('/')).join("memory.events");
        let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DONT_FOLLOW;
        let wd = self
            .inotify
            .add_watch(&path, flags)
            .map_err(|e| dir.error(HostOperation::Watch, "memory.events", e))?;
        // inotify takes a path; make sure it still was the cgroup that was meant.
        if let Err(gone) = self.tree.dir_of(at) {
            if !self.by_file.contains_key(&wd) {
                let _gone_with_it = self.inotify.rm_watch(wd);
            }
            return Err(gone);
        }
        self.by_file.insert(wd, at.clone());
        Ok(Notice::File(wd))
    }

    fn register(&mut self, dir: &CgroupDir) -> Result<Notice, HostError> {
        let registered = Registered::new(dir, "memory.oom_control", "")?;
        self.next_token += 1;
        let token = self.next_token;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        self.epoll
            .add(&registered, event)
            .map_err(|e| dir.error(HostOperation::Watch, "memory.oom_control", e))?;
        self.by_token.insert(token, dir.at().clone());
        Ok(Notice::Event { registered, token })
    }

    /// Ends the watch of a cgroup. Harmless when there is none.
    pub fn unwatch(&mut self, cgroup: &CgroupRef) {
        match self.watched.remove(cgroup).map(|w| w.notice) {
            Some(Notice::File(wd)) => {
                self.by_file.remove(&wd);
                // EINVAL: it went with the directory, which is what we want.
                let _gone_already = self.inotify.rm_watch(wd);
            }
            Some(Notice::Event { registered, token }) => {
                self.by_token.remove(&token);
                // Closing the descriptor would do it too; it lives on in no other process.
                let _gone_already = self.epoll.delete(&registered);
            }
            None => {}
        }
    }

    /// Appends what happened since the last call; returns how many events were appended. Never blocks.
    ///
    /// # Errors
    /// `Io` when the descriptors cannot be read.
    pub fn read(&mut self, into: &mut Vec<OomEvent>) -> Result<usize, HostError> {
        let before = into.len();
        let fail = |e| HostError::from_errno(HostOperation::Read, "OOM kills", e, true);
        let mut events = [EpollEvent::empty(); BATCH];
        let n = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(n) => n,
            Err(Errno::EINTR) => 0,
            Err(e) => return Err(fail(e)),
        };
        for token in events[..n].iter().map(EpollEvent::data) {
            if token == INOTIFY {
                self.read_inotify(into).map_err(fail)?;
            } else if let Some(cgroup) = self.by_token.get(&token).cloned() {
                self.take_signal(&cgroup, into);
            }
        }
        Ok(into.len() - before)
    }

    fn read_inotify(&mut self, into: &mut Vec<OomEvent>) -> Result<(), Errno> {
        let events = match self.inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(e) => return Err(e),
        };
        let mut changed: Vec<CgroupRef> = Vec::new();
        for event in events {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                self.check(into);
                return Ok(());
            }
            if let Some(cgroup) = self.by_file.get(&event.wd)
                && !changed.contains(cgroup)
            {
                changed.push(cgroup.clone());
            }
        }
        changed.iter().for_each(|cgroup| self.look(cgroup, into));
        Ok(())
    }

    fn take_signal(&mut self, cgroup: &CgroupRef, into: &mut Vec<OomEvent>) {
        let Some(watched) = self.watched.get_mut(cgroup) else { return };
        let Notice::Event { registered, .. } = &watched.notice else { return };
        if registered.take() == 0 {
            return;
        }
        watched.expected = EXPECTED_LOOKS;
        let before = into.len();
        self.look(cgroup, into);
        if into.len() == before {
            into.push(OomEvent::OutOfMemory { cgroup: cgroup.clone() });
        }
    }

    /// Whether a v1 cgroup ran out of memory and its kill is not counted yet: call [`OomWatch::recheck`] soon
    /// (some 50 ms).
    pub fn is_expecting(&self) -> bool {
        self.watched.values().any(|w| w.expected > 0)
    }

    /// Kills in a watched cgroup since it was made, as far as counted: those from before it was watched, too.
    pub fn known(&self, cgroup: &CgroupRef) -> Option<u64> {
        self.watched.get(cgroup).map(|w| w.before.saturating_add(w.total))
    }

    /// Counts one watched cgroup now, whatever the kernel said.
    pub fn count(&mut self, cgroup: &CgroupRef, into: &mut Vec<OomEvent>) {
        self.look(cgroup, into);
    }

    /// Counts again where a kill is expected.
    pub fn recheck(&mut self, into: &mut Vec<OomEvent>) {
        let expecting: Vec<CgroupRef> =
            self.watched.iter().filter(|(_, w)| w.expected > 0).map(|(c, _)| c.clone()).collect();
        expecting.iter().for_each(|cgroup| self.look(cgroup, into));
    }

    /// Counts everywhere, and ends the watches of cgroups that are no more. Opens every watched cgroup once: for
    /// audits.
    pub fn check(&mut self, into: &mut Vec<OomEvent>) {
        let all: Vec<CgroupRef> = self.watched.keys().cloned().collect();
        all.iter().for_each(|cgroup| self.look(cgroup, into));
    }

    /// Counts one cgroup. What cannot be read now is counted next time.
    fn look(&mut self, cgroup: &CgroupRef, into: &mut Vec<OomEvent>) {
        let Some(watched) = self.watched.get_mut(cgroup) else { return };
        let counted = self.tree.dir_of(cgroup).and_then(|dir| count(&dir, &mut watched.counted));
        match counted {
            Ok(0) => watched.expected = watched.expected.saturating_sub(1),
            Ok(new) => {
                watched.expected = 0;
                watched.total = watched.total.saturating_add(new);
                into.push(OomEvent::Killed { cgroup: cgroup.clone(), new, total: watched.total });
            }
            Err(e) if e.is_gone() => {
                self.unwatch(cgroup);
                into.push(OomEvent::Removed { cgroup: cgroup.clone() });
            }
            Err(_) => watched.expected = watched.expected.saturating_sub(1),
        }
    }
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Brings `counted` up to date and tells how many kills are new.
fn count(dir: &CgroupDir, counted: &mut BTreeMap<u64, u64>) -> Result<u64, HostError> {
    let mut now = BTreeMap::new();
    append(dir, &mut now, 0)?;
    let news = now.iter().map(|(inode, n)| n.saturating_sub(counted.get(inode).copied().unwrap_or(0)));
    let new = news.fold(0u64, u64::saturating_add);
    *counted = now;
    Ok(new)
}

/// v1 counts each cgroup alone; deeper than 64 levels nobody nests, as with listings of processes.
fn append(dir: &CgroupDir, into: &mut BTreeMap<u64, u64>, depth: usize) -> Result<(), HostError> {
    let v2 = dir.at().hierarchy == Hierarchy::V2;
    let file = if v2 { "memory.events" } else { "memory.oom_control" };
    let [kills] = parse::pick(&dir.read(file)?, [b"oom_kill"]);
    let Some(kills) = kills.value() else {
        let why = "it has no line oom_kill";
        return Err(HostError::of_text(
            Category::Unsupported,
            HostOperation::Read,
            dir.at().to_string(),
            why,
        ));
    };
    into.insert(dir.at().inode, kills);
    if v2 || depth >= 64 || dir.is_leaf() {
        return Ok(());
    }
    for name in dir.children()? {
        match dir.child(&name).and_then(|child| append(&child, into, depth + 1)) {
            Err(e) if !e.is_gone() => return Err(e),
            _ => {}
        }
    }
    Ok(())
}
