//! Exclusive cores: who has which, kept from one change of the containers to the next.
//!
//! Owned here: whether the option can be in force on this node, and feeding the rule with what containers have. Not
//! owned: the rule ([`evenkeel_qos::cores`]), writing ([`super::knob`]).

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::topology::online_cpus;
use evenkeel_host::write::Target;
use evenkeel_qos::cores::{Allocation, CoresRequest, Cpu, CpuList, allocate};

use super::board::NodeKnob;
use super::table::Table;
use crate::journal::Journal;

/// Processors that always stay shared: daemons and all that is not managed run there.
const LEAST_SHARED: usize = 1;
/// The kubelet's record of its CPU manager (`pkg/kubelet/cm/cpumanager/state`).
const STATE: &str = "cpu_manager_state";
/// Name in status.
const NAME: &str = "cpuset.cpus";

/// The option in force.
pub(super) struct Cores {
    online: Vec<Cpu>,
    /// Who had which at the last allocation; `None` before the first.
    had: Option<BTreeMap<String, CpuList>>,
}

impl Cores {
    /// The option in force, or why it cannot be, with the remedy.
    ///
    /// # Errors
    /// What status shows.
    pub(crate) fn open(devices: &Path, kubelet: &Path) -> Result<Self, NodeKnob> {
        let off =
            |state, why: String, remedy: &str| NodeKnob { name: NAME, state, why, remedy: remedy.into() };
        if let Some(policy) = kubelet_policy(kubelet) {
            let why = format!("the kubelet's CPU manager has the policy {policy}: it owns cpusets");
            let remedy =
                "turn cpu.exclusive_cores off, or set cpuManagerPolicy: none in the kubelet's configuration";
            return Err(off("off", why, remedy));
        }
        let online = online_cpus(devices)
            .map_err(|error| off("unsupported", error.to_string(), "mount sysfs where the agent runs"))?;
        let cpu = |c: evenkeel_host::topology::LogicalCpu| Cpu {
            id: c.id,
            numa: c.numa,
            socket: c.socket,
            core: c.core,
        };
        Ok(Self { online: online.into_iter().map(cpu).collect(), had: None })
    }

    /// Divides the processors among the containers there are now; `None` while nobody has any to itself.
    pub(super) fn allocate(&mut self, table: &Table, journal: &Journal) -> Option<Allocation> {
        let requests: Vec<CoresRequest> = table
            .iter()
            .filter_map(|container| {
                let id = container.tracked.workload.id.clone();
                container.cores.map(|count| CoresRequest { id, count })
            })
            .collect();
        let had = self.had.take().unwrap_or_else(|| from_before(table, journal));
        let allocation = allocate(&self.online, LEAST_SHARED, &requests, &had);
        self.had = Some(allocation.assigned());
        (!allocation.exclusive.is_empty()).then_some(allocation)
    }
}

/// What containers were given by an earlier run of the agent.
fn from_before(table: &Table, journal: &Journal) -> BTreeMap<String, CpuList> {
    let given = table.iter().filter_map(|container| {
        let count = container.cores?;
        let at = Target::Cgroup(container.cpuset.clone()?);
        let Setting::CpusetCpus(cpus) = journal.original(&at, Knob::CpusetCpus)?.new else { return None };
        let cpus: CpuList = cpus.iter().filter_map(|cpu| u32::try_from(cpu).ok()).collect();
        (cpus.len() == count).then(|| (container.tracked.workload.id.clone(), cpus))
    });
    given.collect()
}

/// The policy of a kubelet that owns cpusets; `None` where there is none or its policy is "none".
fn kubelet_policy(kubelet: &Path) -> Option<String> {
    let text = std::fs::read_to_string(kubelet.join(STATE)).ok()?;
    let state: serde_json::Value = serde_json::from_str(&text).ok()?;
    let policy = state.get("policyName")?.as_str()?;
    (policy != "none").then(|| policy.to_owned())
}

/// What status shows while the option is in force.
pub(crate) fn shown(allocation: Option<&Allocation>) -> NodeKnob {
    let why = allocation.map_or_else(
        || "no Guaranteed container requests whole cores".to_owned(),
        |a| {
            let one = |(id, why): (&String, &String)| format!("; {id} has none: {why}");
            let refused: String = a.refused.iter().map(one).collect();
            format!(
                "{} containers have cores of their own, cpus {} are shared{refused}",
                a.exclusive.len(),
                a.shared
            )
        },
    );
    NodeKnob { name: NAME, state: "ok", why, remedy: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_with_the_static_policy_owns_cpusets() {
        let dir = tempfile::tempdir().unwrap();
        let devices = dir.path().join("devices");
        std::fs::create_dir_all(devices.join("cpu")).unwrap();
        std::fs::write(devices.join("cpu/online"), "0-3\n").unwrap();
        let open = |policy: &str| {
            let text = format!("{{\"policyName\":\"{policy}\",\"defaultCpuSet\":\"0-3\"}}");
            std::fs::write(dir.path().join(STATE), text).unwrap();
            Cores::open(&devices, dir.path())
                .map(|cores| cores.online.len())
                .map_err(|knob| (knob.state, knob.why))
        };
        assert_eq!(open("none"), Ok(4));
        let (state, why) = open("static").unwrap_err();
        assert_eq!((state, why.contains("policy static")), ("off", true));
        std::fs::remove_file(dir.path().join(STATE)).unwrap();
        assert!(Cores::open(&devices, dir.path()).is_ok());
        let missing = Cores::open(dir.path(), dir.path()).err().unwrap();
        assert_eq!((missing.state, missing.remedy.is_empty()), ("unsupported", false));
    }
}
