//! Which controller lives in which cgroup hierarchy.
//!
//! Owns the detection: pure v2, one v1 mount per controller, combined v1 mounts, and the hybrid of v1
//! controllers with a v2 tree beside them. Detection asks the file systems below the given root what they are,
//! so it works where mount tables speak of other paths (a pod that sees the host's tree below `/host`). Does not
//! open cgroups.

mod detect;

use std::path::PathBuf;

pub use evenkeel_model::cgroup::{Controller, Hierarchy};

use crate::error::{Category, HostError, HostOperation};

/// What kind of cgroup set-up a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupMode {
    /// All controllers in one v2 tree.
    V2,
    /// v1 trees only.
    V1,
    /// v1 trees for the controllers and a v2 tree beside them.
    Hybrid,
}

impl CgroupMode {
    /// Name for status and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V1 => "v1",
            Self::Hybrid => "hybrid",
        }
    }
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Which one.
    pub hierarchy: Hierarchy,
    /// Its root directory as we reach it.
    pub path: PathBuf,
    /// Controllers bound to it. For v2 those of `cgroup.controllers`, without the built-in ones.
    pub controllers: Vec<Controller>,
    /// For v2 the controllers given on to the children of the root (`cgroup.subtree_control`); for v1 all.
    pub delegated: Vec<Controller>,
}

/// All hierarchies of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    mode: CgroupMode,
    mounts: Vec<Mount>,
}

impl Layout {
    /// A layout as stated, for trees that are not cgroup file systems (tests) or cannot be asked.
    ///
    /// # Errors
    /// `Unsupported` when `mounts` is empty.
    pub fn declare(mut mounts: Vec<Mount>) -> Result<Self, HostError> {
        mounts.sort_by_key(|m| m.hierarchy);
        let v2 = mounts.iter().any(|m| m.hierarchy == Hierarchy::V2);
        let v1 = mounts.iter().any(|m| m.hierarchy != Hierarchy::V2);
        let mode = match (v1, v2) {
            (true, true) => CgroupMode::Hybrid,
            (true, false) => CgroupMode::V1,
            (false, true) => CgroupMode::V2,
            (false, false) => {
                return Err(HostError::of_text(
                    Category::Unsupported,
                    HostOperation::Open,
                    "cgroup layout",
                    "no hierarchy given",
                ));
            }
        };
        Ok(Self { mode, mounts })
    }

    /// The kind of set-up.
    pub const fn mode(&self) -> CgroupMode {
        self.mode
    }

    /// Every mounted hierarchy, v2 first.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The mount of a hierarchy.
    pub fn mount(&self, hierarchy: Hierarchy) -> Option<&Mount> {
        self.mounts.iter().find(|m| m.hierarchy == hierarchy)
    }

    /// The hierarchy in which a controller is at work, or `None` where this machine has no such controller.
    pub fn home(&self, controller: Controller) -> Option<Hierarchy> {
        let bound = self.mounts.iter().find(|m| m.controllers.contains(&controller));
        let core = || self.mount(Hierarchy::V2).filter(|_| controller.is_core_in_v2());
        bound.or_else(core).map(|m| m.hierarchy)
    }

    /// Whether children of the root may use the controller: always on v1, by `cgroup.subtree_control` on v2.
    pub fn is_delegated(&self, controller: Controller) -> bool {
        self.home(controller).and_then(|h| self.mount(h)).is_some_and(|m| {
            m.delegated.contains(&controller) || (m.hierarchy == Hierarchy::V2 && controller.is_core_in_v2())
        })
    }

    /// Where pressure files of containers may be: the v2 tree.
    pub fn pressure_home(&self) -> Option<Hierarchy> {
        self.mount(Hierarchy::V2).map(|m| m.hierarchy)
    }

    /// Hierarchies in the order in which a container's processes are looked for.
    ///
    /// Runtimes put a container into every v1 controller but not always into the v2 tree beside them, so v1
    /// memory comes before v2 on a hybrid.
    pub fn process_order(&self) -> impl Iterator<Item = Hierarchy> {
        const ORDER: [Controller; 6] = [
            Controller::Memory,
            Controller::Cpu,
            Controller::Cpuacct,
            Controller::Pids,
            Controller::Freezer,
            Controller::Cpuset,
        ];
        ORDER.into_iter().filter_map(|c| self.home(c)).chain(self.pressure_home())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(controllers: &[Controller]) -> Mount {
        Mount {
            hierarchy: Hierarchy::V1(*controllers.iter().min().unwrap()),
            path: PathBuf::from("/x"),
            controllers: controllers.to_vec(),
            delegated: controllers.to_vec(),
        }
    }

    fn v2(controllers: &[Controller], delegated: &[Controller]) -> Mount {
        Mount {
            hierarchy: Hierarchy::V2,
            path: PathBuf::from("/x"),
            controllers: controllers.to_vec(),
            delegated: delegated.to_vec(),
        }
    }

    #[test]
    fn each_controller_finds_its_home() {
        use Controller::{Cpu, Cpuacct, Freezer, Memory, Pids};
        let hybrid = Layout::declare(vec![v2(&[], &[]), v1(&[Cpuacct, Cpu]), v1(&[Memory])]).unwrap();
        assert_eq!(hybrid.mode(), CgroupMode::Hybrid);
        assert_eq!(hybrid.home(Cpuacct), Some(Hierarchy::V1(Cpu)));
        assert_eq!(hybrid.home(Memory), Some(Hierarchy::V1(Memory)));
        assert_eq!(hybrid.home(Pids), None);
        assert_eq!(hybrid.home(Freezer), Some(Hierarchy::V2));
        assert_eq!(hybrid.process_order().next(), Some(Hierarchy::V1(Memory)));

        let unified = Layout::declare(vec![v2(&[Cpu, Memory], &[Memory])]).unwrap();
        assert_eq!(unified.mode(), CgroupMode::V2);
        assert_eq!(unified.home(Cpuacct), Some(Hierarchy::V2));
        assert!(unified.is_delegated(Memory) && !unified.is_delegated(Cpu) && unified.is_delegated(Freezer));
        assert_eq!(Layout::declare(vec![v1(&[Cpu])]).unwrap().mode(), CgroupMode::V1);
        assert!(Layout::declare(Vec::new()).is_err());
    }
}
