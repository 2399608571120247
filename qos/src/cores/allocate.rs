//! The allocation of a whole node.

use std::collections::BTreeMap;

use super::list::CpuList;
use super::pick::{Cpu, pick};

/// A container that asks for logical CPUs of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoresRequest {
    /// The workload's id.
    pub id: String,
    /// How many.
    pub count: usize,
}

/// How a container came to its CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// It had them before.
    Kept,
    /// Chosen now, from these.
    Chosen {
        /// Logical CPUs that were free.
        free: Vec<Cpu>,
    },
}

/// A container's own CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Which.
    pub cpus: CpuList,
    /// How it came to them.
    pub how: How,
}

/// Who has which CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocation {
    /// Containers with CPUs of their own, by id.
    pub exclusive: BTreeMap<String, Assignment>,
    /// Containers that asked and stay in the shared pool, with the reason.
    pub refused: BTreeMap<String, String>,
    /// What everybody else shares.
    pub shared: CpuList,
    /// Every online logical CPU.
    pub all: Vec<Cpu>,
}

impl Allocation {
    /// What to hand to the next [`allocate`].
    pub fn assigned(&self) -> BTreeMap<String, CpuList> {
        self.exclusive.iter().map(|(id, a)| (id.clone(), a.cpus.clone())).collect()
    }
}

/// Allocates the `online` CPUs. Who has CPUs in `previous` keeps them while they are online and as many as asked
/// for; new ones are served largest first, then by id. At least `least_shared` CPUs (and never less than one)
/// stay shared; who does not fit stays there.
pub fn allocate(
    online: &[Cpu],
    least_shared: usize,
    requests: &[CoresRequest],
    previous: &BTreeMap<String, CpuList>,
) -> Allocation {
    let mut all = online.to_vec();
    all.sort_unstable_by_key(|c| c.id);
    all.dedup_by_key(|c| c.id);
    let mut pool = Pool { free: all.clone(), all, least_shared: least_shared.max(1) };
    let mut allocation = Allocation::default();
    let mut by_id: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests.iter().filter(|r| r.count > 0) {
        by_id.insert(&request.id, request.count);
    }
    let mut new = Vec::new();
    for (id, count) in by_id {
        match previous.get(id).filter(|cpus| cpus.len() == count && pool.can_keep(cpus)) {
            Some(cpus) => {
                pool.take(cpus);
                let kept = Assignment { cpus: cpus.clone(), how: How::Kept };
                allocation.exclusive.insert(id.to_owned(), kept);
            }
            None => new.push((id, count)),
        }
    }
    new.sort_unstable_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    for (id, count) in new {
        match pool.choose(count) {
            Ok(assignment) => {
                allocation.exclusive.insert(id.to_owned(), assignment);
            }
            Err(why) => {
                allocation.refused.insert(id.to_owned(), why);
            }
        }
    }
    allocation.shared = pool.free.iter().map(|c| c.id).collect();
    allocation.all = pool.all;
    allocation
}

struct Pool {
    all: Vec<Cpu>,
    free: Vec<Cpu>,
    least_shared: usize,
}

impl Pool {
    fn spare(&self) -> usize {
        self.free.len().saturating_sub(self.least_shared)
    }

    fn can_keep(&self, cpus: &CpuList) -> bool {
        let free: CpuList = self.free.iter().map(|c| c.id).collect();
        cpus.is_subset(&free) && cpus.len() <= self.spare()
    }

    fn take(&mut self, cpus: &CpuList) {
        self.free.retain(|c| !cpus.contains(c.id));
    }

    fn choose(&mut self, count: usize) -> Result<Assignment, String> {
        let spare = self.spare();
        let chosen = if count <= spare { pick(count, &self.free, &self.all) } else { None };
        let Some(cpus) = chosen else {
            return Err(format!(
                "asks for {count} cpus of its own, {spare} can be given while {} stay shared",
                self.least_shared
            ));
        };
        let free = self.free.clone();
        self.take(&cpus);
        Ok(Assignment { cpus, how: How::Chosen { free } })
    }
}
