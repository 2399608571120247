//! What the reconciler may ask the kernel: the trait [`HostReader`] and the facts it answers with.
//!
//! Coarse and cold: one call per cgroup or process, allocation allowed. The hot path is the sampler's. The real
//! reader is [`KernelReader`](crate::kernel_reader::KernelReader), the one for tests
//! [`FakeKernel`](crate::fake::FakeKernel).

use evenkeel_model::units::{Bytes, OomScoreAdj};

use crate::error::HostError;
use crate::hierarchy::Hierarchy;
use crate::knob::{Knob, Setting};
use crate::write::{CgroupRef, ProcessId, Target};

/// A container's cgroup in every hierarchy in which its path exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Path, the same in every hierarchy.
    pub path: String,
    /// Where it exists, the one whose processes are authoritative first. Never empty.
    pub places: Vec<CgroupRef>,
    /// For each cgroup knob that this machine's layout has, the place it would be written to and what it holds
    /// now, or why it cannot be read.
    pub settings: Vec<KnobFact>,
}

/// One knob of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnobFact {
    /// Which knob.
    pub knob: Knob,
    /// Its cgroup.
    pub place: CgroupRef,
    /// Its value now.
    pub value: Result<Setting, HostError>,
}

impl CgroupFacts {
    /// The cgroup whose `cgroup.procs` names the container's processes.
    pub fn processes_at(&self) -> Option<&CgroupRef> {
        self.places.first()
    }

    /// The cgroup in one hierarchy.
    pub fn place(&self, hierarchy: Hierarchy) -> Option<&CgroupRef> {
        self.places.iter().find(|p| p.hierarchy == hierarchy)
    }

    /// The fact of one knob; `None` where the layout has no such knob for this cgroup.
    pub fn knob(&self, knob: Knob) -> Option<&KnobFact> {
        self.settings.iter().find(|f| f.knob == knob)
    }

    /// The value of one knob, where it was read.
    pub fn value(&self, knob: Knob) -> Option<Setting> {
        self.knob(knob).and_then(|f| f.value.as_ref().ok().copied())
    }
}

/// Memory charged to a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// All of it (`memory.current`, `memory.usage_in_bytes`).
    pub current: Bytes,
    /// Page cache not recently used, which the kernel gives up first.
    pub inactive_file: Bytes,
}

impl MemoryUse {
    /// What would have to be reclaimed the hard way.
    pub const fn working_set(self) -> Bytes {
        self.current.saturating_sub(self.inactive_file)
    }
}

/// A cgroup's processes and children.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Family {
    /// Processes in the cgroup itself.
    pub processes: usize,
    /// Its children, by name.
    pub children: Vec<Child>,
}

/// A child among its siblings. Of another hierarchy than the memory controller's v2 one only the first two are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Child {
    /// Name of its directory.
    pub name: String,
    /// It or a cgroup below it has a process.
    pub is_populated: bool,
    /// `memory.min`; `max` as the largest number.
    pub memory_min: Option<Bytes>,
    /// `memory.low`; `max` as the largest number.
    pub memory_low: Option<Bytes>,
    /// `memory.current`.
    pub memory_current: Option<Bytes>,
}

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Identity to write with.
    pub id: ProcessId,
    /// Pid of its parent now: whom it inherited its score from, unless that one has ended.
    pub parent: u32,
    /// A zombie accepts writes and means nothing: neither right nor wrong.
    pub zombie: bool,
    /// A kernel thread is never written.
    pub kernel_thread: bool,
    /// Its `oom_score_adj`.
    pub score: OomScoreAdj,
}

/// Reads what the reconciler needs. All paths are below the hierarchy root and begin with `/`.
pub trait HostReader {
    /// Where a cgroup is and what its knobs hold.
    ///
    /// # Errors
    /// `Gone` when the path exists in no hierarchy.
    fn cgroup(&self, path: &str) -> Result<CgroupFacts, HostError>;

    /// Names of the child cgroups of a path, from every hierarchy in which it exists, sorted, each once.
    ///
    /// # Errors
    /// `Gone` when the path exists in no hierarchy.
    fn children(&self, path: &str) -> Result<Vec<String>, HostError>;

    /// Whether the path exists in some hierarchy.
    fn exists(&self, path: &str) -> bool;

    /// The cgroup at a path in one hierarchy, without looking at what it holds.
    ///
    /// # Errors
    /// `Gone` when there is none; `Unsupported` when the machine lacks the hierarchy.
    fn place(&self, hierarchy: Hierarchy, path: &str) -> Result<CgroupRef, HostError>;

    /// Who competes below a cgroup: its own processes, and its children with what they are promised. A child that
    /// vanishes meanwhile is left out.
    ///
    /// # Errors
    /// As [`HostReader::pids`].
    fn family(&self, parent: &CgroupRef) -> Result<Family, HostError>;

    /// Memory charged to a cgroup of the memory controller's hierarchy, and what of it is easily let go.
    ///
    /// # Errors
    /// As [`HostReader::setting`].
    fn memory(&self, cgroup: &CgroupRef) -> Result<MemoryUse, HostError>;

    /// Every process of the cgroup and of all below it. Processes of a namespace we cannot see are left out.
    ///
    /// # Errors
    /// `Gone` when the cgroup is no more or the path leads to another one.
    fn pids(&self, cgroup: &CgroupRef) -> Result<Vec<u32>, HostError>;

    /// Identity, state and score of a process.
    ///
    /// # Errors
    /// `Gone` when there is none of this pid.
    fn process(&self, pid: u32) -> Result<ProcessFacts, HostError>;

    /// Only the score of whoever has this pid now: the cheap question of an audit. If the answer is wrong, ask
    /// [`HostReader::process`] and list the cgroup again before writing.
    ///
    /// # Errors
    /// `Gone` when there is none of this pid.
    fn score(&self, pid: u32) -> Result<OomScoreAdj, HostError>;

    /// The present value of one knob.
    ///
    /// # Errors
    /// `Gone` when the target is no more or was replaced; `Unsupported` when it has no such knob.
    fn setting(&self, target: &Target, knob: Knob) -> Result<Setting, HostError>;

    /// Whether every process of the cgroup is frozen now (not merely asked to be).
    ///
    /// # Errors
    /// As [`HostReader::setting`].
    fn is_frozen(&self, cgroup: &CgroupRef) -> Result<bool, HostError>;

    /// Closes what is kept open of a cgroup: its container is gone. It may be asked for again.
    fn forget(&self, _cgroup: &CgroupRef) {}
}

impl<R: HostReader + ?Sized> HostReader for &R {
    fn cgroup(&self, path: &str) -> Result<CgroupFacts, HostError> {
        (**self).cgroup(path)
    }
    fn children(&self, path: &str) -> Result<Vec<String>, HostError> {
        (**self).children(path)
    }
    fn exists(&self, path: &str) -> bool {
        (**self).exists(path)
    }
    fn place(&self, hierarchy: Hierarchy, path: &str) -> Result<CgroupRef, HostError> {
        (**self).place(hierarchy, path)
    }
    fn family(&self, parent: &CgroupRef) -> Result<Family, HostError> {
        (**self).family(parent)
    }
    fn memory(&self, cgroup: &CgroupRef) -> Result<MemoryUse, HostError> {
        (**self).memory(cgroup)
    }
    fn pids(&self, cgroup: &CgroupRef) -> Result<Vec<u32>, HostError> {
        (**self).pids(cgroup)
    }
    fn process(&self, pid: u32) -> Result<ProcessFacts, HostError> {
        (**self).process(pid)
    }
    fn score(&self, pid: u32) -> Result<OomScoreAdj, HostError> {
        (**self).score(pid)
    }
    fn setting(&self, target: &Target, knob: Knob) -> Result<Setting, HostError> {
        (**self).setting(target, knob)
    }
    fn is_frozen(&self, cgroup: &CgroupRef) -> Result<bool, HostError> {
        (**self).is_frozen(cgroup)
    }
    fn forget(&self, cgroup: &CgroupRef) {
        (**self).forget(cgroup);
    }
}
