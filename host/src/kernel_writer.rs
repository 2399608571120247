//! [`KernelWriter`]: the real [`HostWriter`], and the refusals no caller can talk it out of.
//!
//! Owns the last line of defence: pid 1, kernel threads, ourselves, the root cgroups, the deny list, replaced
//! targets. Does not decide, retry or log.

use std::sync::Arc;

use evenkeel_model::units::Bytes;

use crate::cgroup::{CgroupDir, CgroupTree};
use crate::deny::{DenyList, is_at_or_below};
use crate::error::HostError;
use crate::knob::{Knob, Setting};
use crate::node::{node_setting, page_size, set_node};
use crate::process::{ProcessHandle, is_kernel_thread};
use crate::roots::Roots;
use crate::write::{CgroupRef, HostWriter, Outcome, ProcessId, Refusal, Target, Write};

/// Writes the kernel's own files.
#[derive(Debug)]
pub struct KernelWriter {
    roots: Roots,
    tree: Arc<CgroupTree>,
    deny: DenyList,
    owned: Vec<String>,
    own_pid: u32,
    page: Bytes,
}

impl KernelWriter {
    /// A writer that refuses every cgroup at or below the paths of `deny`, and every process in them.
    ///
    /// # Errors
    /// When our own process cannot be found in procfs: without it we could not refuse to write to ourselves.
    pub fn new(roots: Roots, tree: Arc<CgroupTree>, deny: &[String]) -> Result<Self, HostError> {
        let own_pid = roots.own_pid()?;
        let deny = DenyList::new(deny, &roots);
        Ok(Self { roots, tree, deny, owned: Vec::new(), own_pid, page: page_size() })
    }

    /// With subtrees given to us, in which knobs of inner cgroups may be written too.
    #[must_use]
    pub fn owning(mut self, subtrees: &[String]) -> Self {
        self.owned = subtrees.iter().map(|p| crate::cgroup::normal(p)).collect();
        self
    }

    pub(crate) const fn roots(&self) -> &Roots {
        &self.roots
    }

    pub(crate) fn tree(&self) -> &CgroupTree {
        &self.tree
    }

    /// Everything but the write itself.
    pub(crate) fn rehearse(&self, write: &Write) -> Outcome {
        self.run(write, Road::Dry)
    }

    fn run(&self, write: &Write, road: Road) -> Outcome {
        let done = match &write.target {
            Target::Cgroup(at) => self.apply_cgroup(at, &write.setting, road),
            Target::Process(id) => self.apply_process(*id, &write.setting, road),
            Target::Node => self.apply_node(&write.setting, road),
        };
        done.unwrap_or_else(Outcome::from)
    }

    fn apply_cgroup(&self, at: &CgroupRef, setting: &Setting, road: Road) -> Result<Outcome, WriteStop> {
        let knob = setting.knob();
        if !knob.exists_in(at.hierarchy) {
            return Err(WriteStop::Refused(Refusal::WrongTarget));
        }
        if matches!(knob, Knob::SubtreeControl(_)) && !self.owns(&at.path) {
            return Err(WriteStop::Refused(Refusal::NotOwned));
        }
        let dir = self.place(at)?;
        if self.holds_us(&dir, knob)? {
            return Err(WriteStop::Refused(Refusal::OwnCgroup));
        }
        Ok(change(road, setting.as_kept(self.page), || dir.setting(knob), || dir.set(setting)))
    }

    fn owns(&self, path: &str) -> bool {
        let path = crate::cgroup::normal(path);
        self.owned.iter().any(|own| is_at_or_below(&path, own))
    }

    /// Opens a cgroup that may be written.
    pub(crate) fn place(&self, at: &CgroupRef) -> Result<CgroupDir, WriteStop> {
        if let Some(prefix) = self.deny.covers(&at.path) {
            return Err(WriteStop::Refused(Refusal::DenyList { prefix: prefix.to_owned() }));
        }
        let dir = self.tree.dir(at.hierarchy, &at.path)?;
        if dir.path() == "/" {
            return Err(WriteStop::Refused(Refusal::RootCgroup));
        }
        if dir.at().inode != at.inode {
            return Err(WriteStop::Refused(Refusal::Replaced));
        }
        Ok(dir)
    }

    /// Refuses a deed to `at` as a whole when one of its processes, `pids`, must be spared.
    pub(crate) fn refuse_victims(&self, at: &CgroupRef, pids: &[u32]) -> Result<(), WriteStop> {
        if let Some(prefix) = self.deny.is_within(&at.path) {
            return Err(WriteStop::Refused(Refusal::DenyList { prefix: prefix.to_owned() }));
        }
        // The kernel shows cgroup.procs in our own process namespace.
        if pids.iter().any(|&p| p == std::process::id() || p == self.own_pid) {
            return Err(WriteStop::Refused(Refusal::OwnCgroup));
        }
        if pids.contains(&1) {
            return Err(WriteStop::Refused(Refusal::Init));
        }
        Ok(())
    }

    fn apply_node(&self, setting: &Setting, road: Road) -> Result<Outcome, WriteStop> {
        let knob = setting.knob();
        if knob != Knob::OvercommitMemory {
            return Err(WriteStop::Refused(Refusal::WrongTarget));
        }
        Ok(change(road, *setting, || node_setting(&self.roots, knob), || set_node(&self.roots, setting)))
    }

    /// Whether we are in the cgroup ourselves; freezing looks at everything below it too, because it would stop
    /// us for good.
    fn holds_us(&self, dir: &CgroupDir, knob: Knob) -> Result<bool, HostError> {
        let freezes = matches!(knob, Knob::FreezerState | Knob::CgroupFreeze);
        let procs = if freezes { dir.subtree_procs()? } else { dir.procs()? };
        // The kernel shows cgroup.procs in our own process namespace.
        let ours = std::process::id();
        Ok(procs.pids.contains(&ours) || procs.pids.contains(&self.own_pid))
    }

    fn apply_process(&self, id: ProcessId, setting: &Setting, road: Road) -> Result<Outcome, WriteStop> {
        let &Setting::OomScoreAdj(score) = setting else {
            return Err(WriteStop::Refused(Refusal::WrongTarget));
        };
        self.refuse_by_pid(id.pid)?;
        let handle = ProcessHandle::open(&self.roots, id.pid)?;
        let stat = handle.stat()?;
        if stat.start_time != id.start_time {
            return Err(WriteStop::Refused(Refusal::Replaced));
        }
        if is_kernel_thread(&stat) {
            return Err(WriteStop::Refused(Refusal::KernelThread));
        }
        if let Some(prefix) = self.deny.covers_process(&handle, &self.tree)? {
            return Err(WriteStop::Refused(Refusal::DenyList { prefix }));
        }
        Ok(change(
            road,
            Setting::OomScoreAdj(score),
            || handle.oom_score_adj().map(Setting::OomScoreAdj),
            || handle.set_oom_score_adj(score),
        ))
    }

    fn refuse_by_pid(&self, pid: u32) -> Result<(), WriteStop> {
        match pid {
            1 => Err(WriteStop::Refused(Refusal::Init)),
            pid if pid == self.own_pid => Err(WriteStop::Refused(Refusal::OwnProcess)),
            _ => Ok(()),
        }
    }
}

/// Whether it is meant.
#[derive(Clone, Copy)]
enum Road {
    Real,
    Dry,
}

/// Why a write ends before it is tried.
pub(crate) enum WriteStop {
    Refused(Refusal),
    Failed(HostError),
}

impl From<HostError> for WriteStop {
    fn from(error: HostError) -> Self {
        Self::Failed(error)
    }
}

impl From<WriteStop> for Outcome {
    fn from(stop: WriteStop) -> Self {
        match stop {
            WriteStop::Refused(why) => Self::Refused(why),
            WriteStop::Failed(error) => Self::Failed { old: None, error },
        }
    }
}

/// Read, write when different, read back. An old value that cannot be read does not hinder the write: the
/// kernel shows some values it would not take (`cpu.weight` 0 while `cpu.idle` is 1).
fn change(
    road: Road,
    wanted: Setting,
    read: impl Fn() -> Result<Setting, HostError>,
    write: impl Fn() -> Result<(), HostError>,
) -> Outcome {
    let old = match read() {
        Ok(value) if value == wanted => return Outcome::Unchanged { value },
        Ok(value) => Some(value),
        Err(error) if error.is_gone() => return Outcome::Failed { old: None, error },
        Err(_) => None,
    };
    if matches!(road, Road::Dry) {
        return Outcome::WouldWrite { old };
    }
    match write().and_then(|()| read()) {
        Ok(new) => Outcome::Written { old, new },
        Err(error) => Outcome::Failed { old, error },
    }
}

impl HostWriter for KernelWriter {
    fn apply(&mut self, write: &Write) -> Outcome {
        self.run(write, Road::Real)
    }
}
