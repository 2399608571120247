//! [`FakeKernel`]: cgroups and processes in memory, behind the two traits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_model::units::{Bytes, CpuShares, CpuWeight, Limit, OomScoreAdj};

use nix::errno::Errno;

use crate::action::{HostActor, refused};
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::{CgroupMode, Controller, Hierarchy};
use crate::knob::{BurstUsec, CpuSet, Knob, Overcommit, PeriodUsec, Setting};
use crate::snapshot::{CgroupFacts, Child, Family, HostReader, KnobFact, MemoryUse, ProcessFacts};
use crate::write::{CgroupRef, HostWriter, Outcome, ProcessId, Refusal, Target, Write};

type Hook = Box<dyn FnMut(&mut FakeState) + Send>;

/// A kernel in memory. Clones share it, so that one can be the reader, another the writer, and a third the test's
/// hand on it.
#[derive(Clone)]
pub struct FakeKernel {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    state: FakeState,
    before_listing: Option<Hook>,
}

impl fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FakeKernel").field(&self.lock().state).finish()
    }
}

/// What is in a [`FakeKernel`]; public so that tests can do to it what containers do.
#[derive(Debug, Clone)]
pub struct FakeState {
    mode: CgroupMode,
    next_inode: u64,
    cgroups: BTreeMap<String, FakeCgroup>,
    processes: BTreeMap<u32, FakeProcess>,
    denied: BTreeSet<Knob>,
    node: BTreeMap<Knob, Setting>,
    kills_fail: BTreeSet<String>,
    /// Nothing can be opened: too many files are open.
    pub lacks_descriptors: bool,
    /// Paths of cgroups that are there and cannot be opened now (EIO).
    pub unreadable: BTreeSet<String>,
    /// Every write that was applied or tried, in order.
    pub writes: Vec<Write>,
    /// Every deed that was done or tried, in order.
    pub deeds: Vec<FakeDeed>,
}

/// A deed as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeDeed {
    /// To reclaim.
    Reclaim {
        /// Where.
        cgroup: CgroupRef,
        /// How much.
        amount: Bytes,
        /// Only pages of files.
        file_only: bool,
    },
    /// To end everything.
    Kill {
        /// Where.
        cgroup: CgroupRef,
    },
}

#[derive(Debug, Clone)]
struct FakeCgroup {
    inode: u64,
    /// Hierarchies of cgroup v1 in which it is not made yet.
    missing: Vec<Controller>,
    settings: BTreeMap<Knob, Setting>,
    freezable: bool,
    reclaimable: Bytes,
    memory: MemoryUse,
}

impl FakeCgroup {
    /// With default values, in every hierarchy.
    fn new(inode: u64, mode: CgroupMode) -> Self {
        Self {
            inode,
            missing: Vec::new(),
            settings: defaults(mode).into_iter().map(|s| (s.knob(), s)).collect(),
            freezable: true,
            reclaimable: Bytes::ZERO,
            memory: MemoryUse::default(),
        }
    }
}

#[derive(Debug, Clone)]
struct FakeProcess {
    facts: ProcessFacts,
    cgroup: String,
}

impl FakeKernel {
    /// A machine without cgroups and processes.
    pub fn new(mode: CgroupMode) -> Self {
        let state = FakeState {
            mode,
            next_inode: 100,
            cgroups: BTreeMap::new(),
            processes: BTreeMap::new(),
            denied: BTreeSet::new(),
            node: BTreeMap::from([(
                Knob::OvercommitMemory,
                Setting::OvercommitMemory(Overcommit::Heuristic),
            )]),
            kills_fail: BTreeSet::new(),
            lacks_descriptors: false,
            unreadable: BTreeSet::new(),
            writes: Vec::new(),
            deeds: Vec::new(),
        };
        Self { shared: Arc::new(Mutex::new(Shared { state, before_listing: None })) }
    }

    /// Does something to the machine, or looks at it.
    pub fn with<R>(&self, act: impl FnOnce(&mut FakeState) -> R) -> R {
        act(&mut self.lock().state)
    }

    /// Something that happens each time before processes are listed: a fork, an exit.
    pub fn before_listing(&self, hook: impl FnMut(&mut FakeState) + Send + 'static) {
        self.lock().before_listing = Some(Box::new(hook));
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeState {
    /// Makes a cgroup with default values; the same path made again after removal is another cgroup.
    pub fn add_cgroup(&mut self, path: &str) {
        let inode = self.next_inode;
        self.next_inode += 10;
        self.cgroups.insert(path.to_owned(), FakeCgroup::new(inode, self.mode));
    }

    /// Leaves a cgroup to be made in some hierarchies of cgroup v1, or makes it there: none are missing then.
    pub fn set_missing(&mut self, path: &str, controllers: &[Controller]) {
        if let Some(cgroup) = self.cgroups.get_mut(path) {
            cgroup.missing = controllers.to_vec();
        }
    }

    /// Removes a cgroup and ends its processes.
    pub fn remove_cgroup(&mut self, path: &str) {
        self.cgroups.remove(path);
        self.processes.retain(|_, p| p.cgroup != path);
    }

    /// Starts a process in a cgroup, as a child of pid 1.
    pub fn add_process(&mut self, pid: u32, start_time: u64, score: OomScoreAdj, cgroup: &str) {
        self.add_child(1, ProcessId { pid, start_time }, score, cgroup);
    }

    fn add_child(&mut self, parent: u32, id: ProcessId, score: OomScoreAdj, cgroup: &str) {
        let pid = id.pid;
        let facts = ProcessFacts { id, parent, zombie: false, kernel_thread: false, score };
        self.processes.insert(pid, FakeProcess { facts, cgroup: cgroup.to_owned() });
    }

    /// Forks: the child has the parent's score and cgroup. A frozen cgroup does not fork.
    pub fn fork(&mut self, parent: u32, child: u32, start_time: u64) {
        let Some(p) = self.processes.get(&parent).cloned() else { return };
        if !self.frozen(&p.cgroup) {
            self.add_child(parent, ProcessId { pid: child, start_time }, p.facts.score, &p.cgroup);
        }
    }

    /// Ends a process.
    pub fn exit(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Turns a process into a zombie.
    pub fn zombify(&mut self, pid: u32) {
        if let Some(p) = self.processes.get_mut(&pid) {
            p.facts.zombie = true;
        }
    }

    /// A process changes its own score, or somebody else does.
    pub fn set_score(&mut self, pid: u32, score: OomScoreAdj) {
        if let Some(p) = self.processes.get_mut(&pid) {
            p.facts.score = score;
        }
    }

    /// Somebody else turns a knob.
    pub fn set(&mut self, path: &str, setting: Setting) {
        if let Some(c) = self.cgroups.get_mut(path) {
            c.settings.insert(setting.knob(), setting);
        }
    }

    /// Somebody else turns a knob of the machine.
    pub fn set_node(&mut self, setting: Setting) {
        self.node.insert(setting.knob(), setting);
    }

    /// A knob of the machine.
    pub fn node_value(&self, knob: Knob) -> Option<Setting> {
        self.node.get(&knob).copied()
    }

    /// How much can be reclaimed from a cgroup; each reclaim takes of it. At first nothing.
    pub fn set_reclaimable(&mut self, path: &str, amount: Bytes) {
        if let Some(c) = self.cgroups.get_mut(path) {
            c.reclaimable = amount;
        }
    }

    /// From now on a kill of this cgroup answers EPERM and ends nobody.
    pub fn never_dies(&mut self, path: &str) {
        self.kills_fail.insert(path.to_owned());
    }

    /// The processes of a cgroup and of those below it.
    pub fn pids_below(&self, path: &str) -> Vec<u32> {
        let below = format!("{}/", path.trim_end_matches('/'));
        let inside = |p: &FakeProcess| p.cgroup == path || p.cgroup.starts_with(&below);
        self.processes.iter().filter(|(_, p)| inside(p)).map(|(pid, _)| *pid).collect()
    }

    /// Memory charged to a cgroup, as its processes would have it.
    pub fn set_memory(&mut self, path: &str, current: Bytes, inactive_file: Bytes) {
        if let Some(c) = self.cgroups.get_mut(path) {
            c.memory = MemoryUse { current, inactive_file };
        }
    }

    /// From now on this knob answers EACCES to writes.
    pub fn deny(&mut self, knob: Knob) {
        self.denied.insert(knob);
    }

    /// From now on a freeze of this cgroup never completes.
    pub fn never_freezes(&mut self, path: &str) {
        if let Some(c) = self.cgroups.get_mut(path) {
            c.freezable = false;
        }
    }

    /// A process's score.
    pub fn score(&self, pid: u32) -> Option<OomScoreAdj> {
        self.processes.get(&pid).map(|p| p.facts.score)
    }

    /// A knob's value.
    pub fn value(&self, path: &str, knob: Knob) -> Option<Setting> {
        self.cgroups.get(path)?.settings.get(&knob).copied()
    }

    fn frozen(&self, path: &str) -> bool {
        let asked = |c: &FakeCgroup| {
            c.settings
                .values()
                .any(|s| matches!(s, Setting::CgroupFreeze(true) | Setting::FreezerState(true)))
        };
        self.cgroups.get(path).is_some_and(|c| c.freezable && asked(c))
    }

    fn place(&self, path: &str, hierarchy: Hierarchy, inode: u64) -> CgroupRef {
        // Inodes differ between hierarchies, as they do in the kernel.
        let offset = match hierarchy {
            Hierarchy::V2 => 0,
            Hierarchy::V1(c) => 1 + c as u64,
        };
        CgroupRef { hierarchy, inode: inode + offset, path: path.into() }
    }

    fn home(&self, knob: Knob) -> Hierarchy {
        match (self.mode, knob.controller()) {
            (CgroupMode::V1 | CgroupMode::Hybrid, Some(c)) => Hierarchy::V1(c),
            _ => Hierarchy::V2,
        }
    }

    fn find(&self, at: &CgroupRef) -> Result<&FakeCgroup, HostError> {
        openable(self, &at.path)?;
        let found = self.cgroups.get(&*at.path).ok_or_else(|| gone(&at.to_string()))?;
        let same = self.place(&at.path, at.hierarchy, found.inode) == *at;
        if same { Ok(found) } else { Err(gone(&at.to_string())) }
    }

    fn apply(&mut self, write: &Write) -> Outcome {
        self.writes.push(write.clone());
        let knob = write.knob();
        let old = match self.setting(&write.target, knob) {
            Ok(old) if old == write.setting => return Outcome::Unchanged { value: old },
            Ok(old) => old,
            Err(error) => return Outcome::Failed { old: None, error },
        };
        if self.denied.contains(&knob) {
            let error = HostError::from_errno(
                HostOperation::Write,
                format!("{} {knob}", write.target),
                Errno::EACCES,
                true,
            );
            return Outcome::Failed { old: Some(old), error };
        }
        match (&write.target, write.setting) {
            (Target::Process(id), _) if id.pid == 1 => return Outcome::Refused(Refusal::Init),
            (Target::Process(id), Setting::OomScoreAdj(score)) => self.set_score(id.pid, score),
            (Target::Cgroup(at), setting) => self.set(&at.path, setting),
            (Target::Node, setting) => self.set_node(setting),
            (Target::Process(_), _) => return Outcome::Refused(Refusal::WrongTarget),
        }
        Outcome::Written { old: Some(old), new: write.setting }
    }

    fn setting(&self, target: &Target, knob: Knob) -> Result<Setting, HostError> {
        match target {
            Target::Process(id) => {
                openable(self, &id.to_string())?;
                match self.processes.get(&id.pid) {
                    Some(p) if p.facts.id == *id => Ok(Setting::OomScoreAdj(p.facts.score)),
                    _ => Err(gone(&id.to_string())),
                }
            }
            Target::Node => self.node_value(knob).ok_or_else(|| {
                HostError::of_text(
                    Category::Unsupported,
                    HostOperation::Read,
                    knob.name(),
                    "there is no such file",
                )
            }),
            Target::Cgroup(at) => self.find(at)?.settings.get(&knob).copied().ok_or_else(|| {
                let subject = format!("{at} {knob}");
                HostError::of_text(
                    Category::Unsupported,
                    HostOperation::Read,
                    subject,
                    "there is no such file",
                )
            }),
        }
    }
}

fn defaults(mode: CgroupMode) -> Vec<Setting> {
    // 100 ms, the kernel's default period, lies within the range.
    let period = PeriodUsec::new(100_000).unwrap_or_else(|_| unreachable!("100 ms is a valid period"));
    let no_burst = BurstUsec::new(0).unwrap_or_else(|_| unreachable!("no burst is a valid burst"));
    if mode == CgroupMode::V2 {
        return vec![
            Setting::CpuWeight(CpuWeight::clamped(100)),
            Setting::CpuMax { quota: Limit::Max, period },
            Setting::MemoryMin(Limit::Value(Bytes::ZERO)),
            Setting::MemoryLow(Limit::Value(Bytes::ZERO)),
            Setting::MemoryHigh(Limit::Max),
            Setting::MemoryMax(Limit::Max),
            Setting::MemoryOomGroup(false),
            Setting::CgroupFreeze(false),
            Setting::CpuIdle(false),
            Setting::CpuMaxBurst(no_burst),
            Setting::CpusetCpus(CpuSet::EMPTY),
            Setting::MemorySwapMax(Limit::Max),
            Setting::SubtreeControl { controller: Controller::Cpu, on: false },
            Setting::SubtreeControl { controller: Controller::Memory, on: false },
            Setting::SubtreeControl { controller: Controller::Pids, on: false },
            Setting::SubtreeControl { controller: Controller::Cpuset, on: false },
        ];
    }
    vec![
        Setting::CpuShares(CpuShares::clamped(1024)),
        Setting::CpuCfsQuota(Limit::Max),
        Setting::CpuCfsPeriod(period),
        Setting::MemoryLimit(Limit::Max),
        Setting::MemorySoftLimit(Limit::Max),
        Setting::FreezerState(false),
        Setting::CpuIdle(false),
        Setting::CpuCfsBurst(no_burst),
        Setting::CpusetCpus(CpuSet::EMPTY),
        Setting::MemorySwLimit(Limit::Max),
    ]
}

fn gone(subject: &str) -> HostError {
    HostError::of_text(Category::Gone, HostOperation::Open, subject, "there is none")
}

/// Where nothing can be opened, or not this, an error that says so.
fn openable(state: &FakeState, subject: &str) -> Result<(), HostError> {
    let failed = |errno| Err(HostError::from_errno(HostOperation::Open, subject, errno, false));
    match subject {
        _ if state.lacks_descriptors => failed(Errno::EMFILE),
        path if state.unreadable.contains(path) => failed(Errno::EIO),
        _ => Ok(()),
    }
}

impl HostReader for FakeKernel {
    fn cgroup(&self, path: &str) -> Result<CgroupFacts, HostError> {
        let state = &self.lock().state;
        openable(state, path)?;
        let root = (path == "/").then(|| FakeCgroup::new(1, state.mode));
        let found = root.as_ref().or_else(|| state.cgroups.get(path)).ok_or_else(|| gone(path))?;
        let at = |knob: Knob| state.place(path, state.home(knob), found.inode);
        let is_made = |knob: Knob| !knob.controller().is_some_and(|c| found.missing.contains(&c));
        let settings: Vec<KnobFact> = found
            .settings
            .iter()
            .filter(|(knob, _)| knob.is_of_container() && is_made(**knob))
            .map(|(&knob, &s)| KnobFact { knob, place: at(knob), value: Ok(s) })
            .collect();
        let main = match state.mode {
            CgroupMode::V2 => Hierarchy::V2,
            CgroupMode::V1 | CgroupMode::Hybrid => Hierarchy::V1(Controller::Memory),
        };
        let mut places = vec![state.place(path, main, found.inode)];
        for fact in &settings {
            if !places.contains(&fact.place) {
                places.push(fact.place.clone());
            }
        }
        Ok(CgroupFacts { path: path.to_owned(), places, settings })
    }

    fn children(&self, path: &str) -> Result<Vec<String>, HostError> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let child = |p: &String| p.strip_prefix(&prefix).and_then(|r| r.split('/').next()).map(str::to_owned);
        let state = &self.lock().state;
        openable(state, path)?;
        let names: BTreeSet<String> = state.cgroups.keys().filter_map(child).collect();
        Ok(names.into_iter().collect())
    }

    fn exists(&self, path: &str) -> bool {
        let state = &self.lock().state;
        openable(state, path).is_err() || state.cgroups.contains_key(path)
    }

    fn place(&self, hierarchy: Hierarchy, path: &str) -> Result<CgroupRef, HostError> {
        let state = &self.lock().state;
        openable(state, path)?;
        if path == "/" {
            return Ok(state.place(path, hierarchy, 1));
        }
        let found = state.cgroups.get(path).ok_or_else(|| gone(path))?;
        Ok(state.place(path, hierarchy, found.inode))
    }

    fn family(&self, parent: &CgroupRef) -> Result<Family, HostError> {
        let names = self.children(&parent.path)?;
        let state = &self.lock().state;
        if &*parent.path != "/" {
            state.find(parent)?;
        }
        let v2 = parent.hierarchy == Hierarchy::V2;
        let child = |name: String| {
            let path = format!("{}/{name}", parent.path.trim_end_matches('/'));
            let found = state.cgroups.get(&path);
            let promised = |knob| match state.value(&path, knob) {
                Some(Setting::MemoryMin(limit) | Setting::MemoryLow(limit)) if v2 => limit.value(),
                _ => None,
            };
            Child {
                name,
                is_populated: !state.pids_below(&path).is_empty(),
                memory_min: promised(Knob::MemoryMin),
                memory_low: promised(Knob::MemoryLow),
                memory_current: found.filter(|_| v2).map(|found| found.memory.current),
            }
        };
        let processes = state.processes.values().filter(|p| p.cgroup == *parent.path).count();
        Ok(Family { processes, children: names.into_iter().map(child).collect() })
    }

    fn memory(&self, cgroup: &CgroupRef) -> Result<MemoryUse, HostError> {
        self.lock().state.find(cgroup).map(|found| found.memory)
    }

    fn pids(&self, cgroup: &CgroupRef) -> Result<Vec<u32>, HostError> {
        let Shared { state, before_listing } = &mut *self.lock();
        if let Some(hook) = before_listing {
            hook(state);
        }
        state.find(cgroup)?;
        Ok(state.pids_below(&cgroup.path))
    }

    fn process(&self, pid: u32) -> Result<ProcessFacts, HostError> {
        let state = &self.lock().state;
        let subject = format!("pid {pid}");
        openable(state, &subject)?;
        state.processes.get(&pid).map(|p| p.facts).ok_or_else(|| gone(&subject))
    }

    fn score(&self, pid: u32) -> Result<OomScoreAdj, HostError> {
        self.process(pid).map(|f| f.score)
    }

    fn setting(&self, target: &Target, knob: Knob) -> Result<Setting, HostError> {
        self.lock().state.setting(target, knob)
    }

    fn is_frozen(&self, cgroup: &CgroupRef) -> Result<bool, HostError> {
        let state = &self.lock().state;
        state.find(cgroup).map(|_| state.frozen(&cgroup.path))
    }
}

impl HostWriter for FakeKernel {
    fn apply(&mut self, write: &Write) -> Outcome {
        self.lock().state.apply(write)
    }
}

impl FakeState {
    fn reclaim(&mut self, cgroup: &CgroupRef, amount: Bytes) -> Result<Bytes, HostError> {
        self.find(cgroup)?;
        if cgroup.hierarchy != Hierarchy::V2 {
            let why = "memory.reclaim is of cgroup v2";
            let at = cgroup.to_string();
            return Err(HostError::of_text(Category::Unsupported, HostOperation::Reclaim, at, why));
        }
        let Some(found) = self.cgroups.get_mut(&*cgroup.path) else { return Ok(Bytes::ZERO) };
        let taken = found.reclaimable.min(amount);
        found.reclaimable = Bytes::new(found.reclaimable.get() - taken.get());
        Ok(taken)
    }

    fn kill(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError> {
        self.find(cgroup)?;
        if self.kills_fail.contains(&*cgroup.path) {
            let at = cgroup.to_string();
            return Err(HostError::from_errno(HostOperation::Kill, at, Errno::EPERM, true));
        }
        let pids = self.pids_below(&cgroup.path);
        if pids.contains(&1) {
            return Err(refused(HostOperation::Kill, cgroup, &Refusal::Init));
        }
        pids.iter().for_each(|pid| self.exit(*pid));
        Ok(u32::try_from(pids.len()).unwrap_or(u32::MAX))
    }
}

impl HostActor for FakeKernel {
    fn reclaim(&mut self, cgroup: &CgroupRef, amount: Bytes, file_only: bool) -> Result<Bytes, HostError> {
        let state = &mut self.lock().state;
        state.deeds.push(FakeDeed::Reclaim { cgroup: cgroup.clone(), amount, file_only });
        state.reclaim(cgroup, amount)
    }

    fn kill_cgroup(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError> {
        let state = &mut self.lock().state;
        state.deeds.push(FakeDeed::Kill { cgroup: cgroup.clone() });
        state.kill(cgroup)
    }

    fn is_rehearsal(&self) -> bool {
        false
    }
}
