//! The one desired state: what every source last said, merged into one list of containers bound to cgroups.
//!
//! Owned here: precedence between sources, conflicts by name, exclusion by configuration. Not owned: rules
//! (`qos::plan`), the kernel (`bind` only asks where a unit's cgroup is).

pub(crate) mod bind;
mod merge;

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::workload::{SourceKind, Workload};

pub(crate) use merge::{Bound, Merged, merge};

use crate::shared::{SourceProblem, SourceUpdate};

/// What is found but never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manage {
    /// Namespaces whose containers are sampled only.
    pub exclude_namespaces: Vec<String>,
    /// Cgroup paths; each and everything below it is never written.
    pub deny: Vec<String>,
    /// Namespaces whose annotations may go above what a runtime says.
    pub trust_annotations: Vec<String>,
}

/// The latest snapshot of every source. At most one for each address, so it does not grow by itself.
#[derive(Default)]
pub(crate) struct Snapshots {
    latest: BTreeMap<(SourceKind, String), SourceUpdate>,
}

/// What a new snapshot changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeChange {
    /// Containers differ from the snapshot before.
    pub workloads: bool,
    /// The source became healthy or unhealthy (its first word counts).
    pub health: bool,
    /// Problems that were not there before.
    pub new_problems: Vec<SourceProblem>,
}

impl Snapshots {
    /// Takes a snapshot in the place of the source's former one.
    pub(crate) fn take(&mut self, update: SourceUpdate) -> MergeChange {
        let key = (update.source, update.address.clone());
        let before = self.latest.get(&key);
        let change = MergeChange {
            workloads: before.is_none_or(|before| before.workloads != update.workloads),
            health: before.is_none_or(|before| before.healthy != update.healthy),
            new_problems: update
                .problems
                .iter()
                .filter(|problem| before.is_none_or(|before| !before.problems.contains(problem)))
                .cloned()
                .collect(),
        };
        self.latest.insert(key, update);
        change
    }

    /// Every container every source sees, the sources of higher precedence first.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.latest.values().flat_map(|update| &update.workloads)
    }

    /// Every source's latest word.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &SourceUpdate> {
        self.latest.values()
    }
}
