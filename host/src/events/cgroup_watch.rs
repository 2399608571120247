//! [`CgroupWatch`]: inotify on cgroup directories.
//!
//! inotify is not recursive, and a directory made between two watches is not told about: whoever adds a watch
//! lists the directory afterwards. Works on v1 and v2 (cgroupfs reports creation and removal of cgroups, and
//! writes to files; `cgroup.events` reports changes the kernel makes, cgroup-v2.rst).
//!
//! cgroupfs does not end the watches of a removed cgroup (seen on 6.18: no `IN_DELETE_SELF`), so they are ended
//! here when its parent tells of the removal, and by [`CgroupWatch::sweep`] where the parent is not watched.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::cgroup::CgroupTree;
use crate::error::{HostError, HostOperation};
use crate::write::CgroupRef;

/// What happened in a watched cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupEvent {
    /// A child cgroup was made.
    ChildCreated {
        /// The watched cgroup.
        parent: CgroupRef,
        /// Name of the child.
        name: String,
    },
    /// A child cgroup was removed.
    ChildRemoved {
        /// The watched cgroup.
        parent: CgroupRef,
        /// Name of the child.
        name: String,
    },
    /// Somebody wrote a file of the cgroup (`cgroup.procs`: a process was put in; a knob: it may be contended).
    /// Our own writes are seen too.
    FileWritten {
        /// The watched cgroup.
        cgroup: CgroupRef,
        /// Name of the file.
        file: String,
    },
    /// `populated` or `frozen` of `cgroup.events` may have changed (v2).
    EventsChanged {
        /// The watched cgroup.
        cgroup: CgroupRef,
    },
    /// The watched cgroup was removed; its watches are gone.
    Removed {
        /// The cgroup.
        cgroup: CgroupRef,
    },
    /// The kernel's queue was full and events were lost: list everything again.
    Overflow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum WatchKind {
    Directory,
    EventsFile,
}

/// Watches on any number of cgroups behind one pollable descriptor. The kernel's queue is bounded
/// (`fs.inotify.max_queued_events`), and so is the number of watches (`fs.inotify.max_user_watches`).
#[derive(Debug)]
pub struct CgroupWatch {
    inotify: Inotify,
    tree: Arc<CgroupTree>,
    by_watch: HashMap<WatchDescriptor, (CgroupRef, WatchKind)>,
    by_path: HashMap<Arc<str>, Vec<WatchDescriptor>>,
}

impl CgroupWatch {
    /// A set of no watches yet, non-blocking, for cgroups of `tree`.
    ///
    /// # Errors
    /// `Io` when the kernel has no more instances for us (`fs.inotify.max_user_instances`).
    pub fn new(tree: Arc<CgroupTree>) -> Result<Self, HostError> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(|e| HostError::from_errno(HostOperation::Subscribe, "inotify", e, true))?;
        Ok(Self { inotify, tree, by_watch: HashMap::new(), by_path: HashMap::new() })
    }

    /// Number of watches held.
    pub fn len(&self) -> usize {
        self.by_watch.len()
    }

    /// True while nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.by_watch.is_empty()
    }

    /// Watches a cgroup for children made and removed and for files written. Watching twice changes nothing.
    ///
    /// # Errors
    /// `Gone` when it is no more; `Io` with the remedy when there are too many watches.
    pub fn watch_directory(&mut self, cgroup: &CgroupRef) -> Result<(), HostError> {
        let flags = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ONLYDIR;
        self.add(cgroup, WatchKind::Directory, "", flags)
    }

    /// Watches `cgroup.events` of a v2 cgroup: emptied, filled, frozen, thawed.
    ///
    /// # Errors
    /// `Gone` when it is no more, `Unsupported` on v1, `Io` when there are too many watches.
    pub fn watch_events(&mut self, cgroup: &CgroupRef) -> Result<(), HostError> {
        self.add(cgroup, WatchKind::EventsFile, "cgroup.events", AddWatchFlags::IN_MODIFY)
    }

    fn add(
        &mut self,
        cgroup: &CgroupRef,
        kind: WatchKind,
        file: &str,
        flags: AddWatchFlags,
    ) -> Result<(), HostError> {
        let dir = self.tree.dir_of(cgroup)?;
        if self.at_path(&cgroup.path).any(|(_, c, k)| c == cgroup && k == kind) {
            return Ok(());
        }
        let root = self.tree.layout().mount(cgroup.hierarchy).map_or(Path::new(""), |m| m.path.as_path());
        let path = root.join(cgroup.path.trim_start_matches('/')).join(file);
        let wd = self
            .inotify
            .add_watch(&path, flags | AddWatchFlags::IN_DONT_FOLLOW)
            .map_err(|e| dir.error(HostOperation::Watch, file, e))?;
        // inotify takes a path; make sure it still was the cgroup that was meant.
        if let Err(gone) = self.tree.dir_of(cgroup) {
            if !self.by_watch.contains_key(&wd) {
                self.end(wd);
            }
            return Err(gone);
        }
        self.by_watch.insert(wd, (cgroup.clone(), kind));
        self.by_path.entry(cgroup.path.clone()).or_default().push(wd);
        Ok(())
    }

    fn at_path(&self, path: &str) -> impl Iterator<Item = (WatchDescriptor, &CgroupRef, WatchKind)> {
        let watches = self.by_path.get(path).into_iter().flatten();
        watches.filter_map(|wd| self.by_watch.get(wd).map(|(cgroup, kind)| (*wd, cgroup, *kind)))
    }

    /// Ends the watches of a cgroup. Harmless when there are none.
    pub fn unwatch(&mut self, cgroup: &CgroupRef) {
        let ended: Vec<WatchDescriptor> =
            self.at_path(&cgroup.path).filter(|(_, c, _)| *c == cgroup).map(|(wd, ..)| wd).collect();
        for wd in ended {
            self.forget(wd);
            self.end(wd);
        }
    }

    /// Ends the watches of cgroups that are no more and appends [`CgroupEvent::Removed`] for each. Opens every
    /// watched cgroup once: for audits.
    pub fn sweep(&mut self, into: &mut Vec<CgroupEvent>) {
        let watched: BTreeSet<CgroupRef> = self.by_watch.values().map(|(c, _)| c.clone()).collect();
        for cgroup in watched {
            self.end_if_removed(cgroup, into);
        }
    }

    fn end_if_removed(&mut self, cgroup: CgroupRef, into: &mut Vec<CgroupEvent>) {
        if self.tree.dir_of(&cgroup).is_err_and(|e| e.is_gone()) {
            self.unwatch(&cgroup);
            into.push(CgroupEvent::Removed { cgroup });
        }
    }

    /// Drops our knowledge of a watch.
    fn forget(&mut self, wd: WatchDescriptor) -> Option<(CgroupRef, WatchKind)> {
        let (cgroup, kind) = self.by_watch.remove(&wd)?;
        if let Some(at_path) = self.by_path.get_mut(&cgroup.path) {
            at_path.retain(|other| *other != wd);
            if at_path.is_empty() {
                self.by_path.remove(&cgroup.path);
            }
        }
        Some((cgroup, kind))
    }

    fn end(&self, wd: WatchDescriptor) {
        // EINVAL: the kernel removed the watch with the directory, which is what we want.
        let _ignored = self.inotify.rm_watch(wd);
    }

    /// Appends what happened since the last call; returns how many events were appended. Never blocks.
    ///
    /// # Errors
    /// `Io` when the descriptor cannot be read.
    pub fn read(&mut self, into: &mut Vec<CgroupEvent>) -> Result<usize, HostError> {
        let before = into.len();
        match self.inotify.read_events() {
            Ok(events) => events.into_iter().for_each(|e| self.take(e, into)),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(e) => return Err(HostError::from_errno(HostOperation::Read, "inotify", e, true)),
        }
        Ok(into.len() - before)
    }

    fn take(&mut self, event: InotifyEvent, into: &mut Vec<CgroupEvent>) {
        let Some(event) = self.translate(event) else { return };
        let child = match &event {
            CgroupEvent::ChildRemoved { parent, name } => {
                Some((parent.hierarchy, format!("{}/{name}", parent.path.trim_end_matches('/'))))
            }
            _ => None,
        };
        into.push(event);
        if let Some((hierarchy, path)) = child {
            let ended: BTreeSet<CgroupRef> = self
                .at_path(&path)
                .filter(|(_, c, _)| c.hierarchy == hierarchy)
                .map(|(_, c, _)| c.clone())
                .collect();
            for cgroup in ended {
                self.end_if_removed(cgroup, into);
            }
        }
    }

    fn translate(&mut self, event: InotifyEvent) -> Option<CgroupEvent> {
        let mask = event.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return Some(CgroupEvent::Overflow);
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            let (cgroup, kind) = self.forget(event.wd)?;
            return (kind == WatchKind::Directory).then_some(CgroupEvent::Removed { cgroup });
        }
        let (cgroup, kind) = self.by_watch.get(&event.wd)?;
        let cgroup = cgroup.clone();
        if *kind == WatchKind::EventsFile {
            return mask.contains(AddWatchFlags::IN_MODIFY).then_some(CgroupEvent::EventsChanged { cgroup });
        }
        let name = event.name?.into_string().ok()?;
        let is_dir = mask.contains(AddWatchFlags::IN_ISDIR);
        if is_dir && mask.contains(AddWatchFlags::IN_CREATE) {
            Some(CgroupEvent::ChildCreated { parent: cgroup, name })
        } else if is_dir && mask.contains(AddWatchFlags::IN_DELETE) {
            Some(CgroupEvent::ChildRemoved { parent: cgroup, name })
        } else if !is_dir && mask.contains(AddWatchFlags::IN_MODIFY) {
            Some(CgroupEvent::FileWritten { cgroup, file: name })
        } else {
            None
        }
    }
}

impl AsFd for CgroupWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
