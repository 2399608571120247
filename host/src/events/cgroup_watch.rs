//! [`CgroupWatch`]: inotify on cgroup directories.
//!
//! inotify is not recursive, and a directory made between two watches is not told about: whoever adds a watch
//! lists the directory afterwards. Works on v1 and v2 (cgroupfs reports creation and removal of cgroups, and
//! writes to files; `cgroup.events` reports changes the kernel makes, cgroup-v2.rst).

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::cgroup::CgroupTree;
use crate::error::{Action, HostError};
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
enum Kind {
    Directory,
    EventsFile,
}

/// Watches on any number of cgroups behind one pollable descriptor. The kernel's queue is bounded
/// (`fs.inotify.max_queued_events`), and so is the number of watches (`fs.inotify.max_user_watches`).
#[derive(Debug)]
pub struct CgroupWatch {
    inotify: Inotify,
    watched: HashMap<WatchDescriptor, (CgroupRef, Kind)>,
    of_cgroup: HashMap<(CgroupRef, Kind), WatchDescriptor>,
}

impl CgroupWatch {
    /// A set of no watches yet, non-blocking.
    ///
    /// # Errors
    /// `Io` when the kernel has no more instances for us (`fs.inotify.max_user_instances`).
    pub fn new() -> Result<Self, HostError> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(|e| HostError::from_errno(Action::Subscribe, "inotify", e, true))?;
        Ok(Self { inotify, watched: HashMap::new(), of_cgroup: HashMap::new() })
    }

    /// Number of watches held.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// True while nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Watches a cgroup for children made and removed and for files written. Watching twice changes nothing.
    ///
    /// # Errors
    /// `Gone` when it is no more; `Io` with the remedy when there are too many watches.
    pub fn watch_directory(&mut self, tree: &CgroupTree, cgroup: &CgroupRef) -> Result<(), HostError> {
        let flags = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        self.add(tree, cgroup, Kind::Directory, "", flags)
    }

    /// Watches `cgroup.events` of a v2 cgroup: emptied, filled, frozen, thawed.
    ///
    /// # Errors
    /// `Gone` when it is no more, `Unsupported` on v1, `Io` when there are too many watches.
    pub fn watch_events(&mut self, tree: &CgroupTree, cgroup: &CgroupRef) -> Result<(), HostError> {
        self.add(tree, cgroup, Kind::EventsFile, "cgroup.events", AddWatchFlags::IN_MODIFY)
    }

    fn add(
        &mut self,
        tree: &CgroupTree,
        cgroup: &CgroupRef,
        kind: Kind,
        file: &str,
        flags: AddWatchFlags,
    ) -> Result<(), HostError> {
        let dir = tree.dir_of(cgroup)?;
        if self.of_cgroup.contains_key(&(cgroup.clone(), kind)) {
            return Ok(());
        }
        let root = tree.layout().mount(cgroup.hierarchy).map_or(Path::new(""), |m| m.path.as_path());
        let path = root.join(cgroup.path.trim_start_matches('/')).join(file);
        let wd = self
            .inotify
            .add_watch(&path, flags | AddWatchFlags::IN_DONT_FOLLOW)
            .map_err(|e| dir.error(Action::Watch, file, e))?;
        // inotify takes a path; make sure it still was the cgroup that was meant.
        if let Err(gone) = tree.dir_of(cgroup) {
            if !self.watched.contains_key(&wd) {
                self.forget(wd);
            }
            return Err(gone);
        }
        self.watched.insert(wd, (cgroup.clone(), kind));
        self.of_cgroup.insert((cgroup.clone(), kind), wd);
        Ok(())
    }

    /// Ends the watches of a cgroup. Harmless when there are none.
    pub fn unwatch(&mut self, cgroup: &CgroupRef) {
        for kind in [Kind::Directory, Kind::EventsFile] {
            if let Some(wd) = self.of_cgroup.remove(&(cgroup.clone(), kind)) {
                self.watched.remove(&wd);
                self.forget(wd);
            }
        }
    }

    fn forget(&self, wd: WatchDescriptor) {
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
            Ok(events) => into.extend(events.into_iter().filter_map(|e| self.translate(e))),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(e) => return Err(HostError::from_errno(Action::Read, "inotify", e, true)),
        }
        Ok(into.len() - before)
    }

    fn translate(&mut self, event: InotifyEvent) -> Option<CgroupEvent> {
        let mask = event.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return Some(CgroupEvent::Overflow);
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            let (cgroup, kind) = self.watched.remove(&event.wd)?;
            self.of_cgroup.remove(&(cgroup.clone(), kind));
            return (kind == Kind::Directory).then_some(CgroupEvent::Removed { cgroup });
        }
        let (cgroup, kind) = self.watched.get(&event.wd)?;
        let cgroup = cgroup.clone();
        if *kind == Kind::EventsFile {
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
