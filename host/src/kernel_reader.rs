//! [`KernelReader`]: the real [`HostReader`].

use std::sync::Arc;

use evenkeel_model::units::{Bytes, OomScoreAdj};

use crate::cgroup::{CgroupDir, CgroupTree, Recent};
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::knob::{Knob, Setting};
use crate::node::node_setting;
use crate::process::{ProcessHandle, score_of};
use crate::roots::Roots;
use crate::snapshot::{CgroupFacts, Child, Family, HostReader, KnobFact, MemoryUse, ProcessFacts};
use crate::write::{CgroupRef, Target};

/// Reads the kernel's own files.
#[derive(Debug, Clone)]
pub struct KernelReader {
    roots: Roots,
    tree: Arc<CgroupTree>,
    recent: Recent,
}

impl KernelReader {
    /// A reader of an opened tree.
    pub fn new(roots: Roots, tree: Arc<CgroupTree>) -> Self {
        Self { roots, tree, recent: Recent::keeping(0) }
    }

    /// The same, which keeps up to so many directories of cgroups open between one question and the next, which halves
    /// what an audit costs. A clone of it keeps a few, as every reader does.
    #[must_use]
    pub fn keeping_open(self, directories: usize) -> Self {
        Self { recent: Recent::keeping(directories), ..self }
    }

    /// The tree it reads.
    pub const fn tree(&self) -> &Arc<CgroupTree> {
        &self.tree
    }

    /// Its roots.
    pub const fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Knobs that belong into this directory by version and controller.
    fn knobs_of(&self, dir: &CgroupDir) -> impl Iterator<Item = Knob> {
        let hierarchy = dir.at().hierarchy;
        let layout = self.tree.layout();
        Knob::ALL.into_iter().filter(move |k| {
            k.is_of_container()
                && k.exists_in(hierarchy)
                && k.controller().and_then(|c| layout.home(c)) == Some(hierarchy)
        })
    }
}

/// What one child is promised; `None` once it is gone.
fn child(parent: &CgroupDir, name: String) -> Option<Child> {
    let dir = parent.child(&name).ok()?;
    let is_populated = dir.is_populated().ok()?;
    if dir.at().hierarchy != Hierarchy::V2 {
        return Some(Child { name, is_populated, ..Child::default() });
    }
    let promised = |knob| match dir.setting(knob).ok()? {
        Setting::MemoryMin(limit) | Setting::MemoryLow(limit) => {
            Some(limit.value().unwrap_or(Bytes::new(u64::MAX)))
        }
        _ => None,
    };
    let memory_min = promised(Knob::MemoryMin);
    // Without the controller none of these files is there.
    let known = memory_min.is_some();
    Some(Child {
        name,
        is_populated,
        memory_min,
        memory_low: if known { promised(Knob::MemoryLow) } else { None },
        memory_current: if known { dir.memory_current().ok() } else { None },
    })
}

impl HostReader for KernelReader {
    fn cgroup(&self, path: &str) -> Result<CgroupFacts, HostError> {
        let dirs = self.tree.dirs(path)?;
        let mut settings = Vec::new();
        for dir in &dirs {
            for knob in self.knobs_of(dir) {
                settings.push(KnobFact { knob, place: dir.at().clone(), value: dir.setting(knob) });
            }
        }
        let places: Vec<CgroupRef> = dirs.iter().map(|d| d.at().clone()).collect();
        let path = places.first().map_or_else(|| path.to_owned(), |p| p.path.to_string());
        Ok(CgroupFacts { path, places, settings })
    }

    fn children(&self, path: &str) -> Result<Vec<String>, HostError> {
        let mut names = Vec::new();
        for dir in self.tree.dirs(path)? {
            names.extend(dir.children()?);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        self.tree.exists(path)
    }

    fn place(&self, hierarchy: Hierarchy, path: &str) -> Result<CgroupRef, HostError> {
        self.tree.dir(hierarchy, path).map(|dir| dir.at().clone())
    }

    fn family(&self, parent: &CgroupRef) -> Result<Family, HostError> {
        let dir = self.tree.dir_of(parent)?;
        let mut names = dir.children()?;
        names.sort_unstable();
        // A threaded parent does not tell; it has processes then.
        let processes = dir.procs().map_or(1, |procs| procs.pids.len());
        let children = names.into_iter().filter_map(|name| child(&dir, name)).collect();
        Ok(Family { processes, children })
    }

    fn memory(&self, cgroup: &CgroupRef) -> Result<MemoryUse, HostError> {
        let dir = self.tree.dir_of(cgroup)?;
        let current = dir.memory_current()?;
        Ok(MemoryUse { current, inactive_file: dir.memory_stat()?.inactive_file.unwrap_or(Bytes::ZERO) })
    }

    fn pids(&self, cgroup: &CgroupRef) -> Result<Vec<u32>, HostError> {
        let found = self.recent.with(&self.tree, cgroup, CgroupDir::subtree_procs)?;
        if found.truncated {
            // A list that is not whole must not pass for one: somebody may conclude that all is well.
            let why = "cgroups are nested deeper than 64 levels below it";
            return Err(HostError::of_text(Category::Io, HostOperation::List, cgroup.to_string(), why)
                .with_remedy("set cgroup.max.depth of the container's cgroup"));
        }
        Ok(found.pids)
    }

    fn process(&self, pid: u32) -> Result<ProcessFacts, HostError> {
        ProcessHandle::open(&self.roots, pid)?.facts()
    }

    fn score(&self, pid: u32) -> Result<OomScoreAdj, HostError> {
        score_of(&self.roots, pid)
    }

    fn setting(&self, target: &Target, knob: Knob) -> Result<Setting, HostError> {
        match (target, knob) {
            (Target::Process(id), Knob::OomScoreAdj) => {
                ProcessHandle::open_same(&self.roots, *id)?.oom_score_adj().map(Setting::OomScoreAdj)
            }
            (Target::Cgroup(at), knob) if knob.exists_in(at.hierarchy) => {
                self.recent.with(&self.tree, at, |dir| dir.setting(knob))
            }
            (Target::Node, Knob::OvercommitMemory) => node_setting(&self.roots, knob),
            _ => Err(HostError::of_text(
                Category::Unsupported,
                HostOperation::Read,
                target.to_string(),
                format!("this kind of target has no {knob}"),
            )),
        }
    }

    fn is_frozen(&self, cgroup: &CgroupRef) -> Result<bool, HostError> {
        self.recent.with(&self.tree, cgroup, CgroupDir::is_frozen)
    }

    fn forget(&self, cgroup: &CgroupRef) {
        self.recent.close(cgroup);
    }
}
