//! `[memory]`: limits and what dies with an OOM kill. What concerns the node as a whole has files of its own.

use evenkeel_enforce::node::rules::Overcommit;
use evenkeel_model::workload::OomKill;
use evenkeel_qos::config::MemoryHighFactor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::node_memory::WorkloadsCap;

section! {
    /// How memory is kept and limited.
    Memory {
        /// memory.high of containers that are not Guaranteed, in percent of the way from request to limit (or to the
        /// machine's memory); 0 = off. Default: off, as Kubernetes has it since 1.37.
        high_percent: u16 = 0,
        /// What dies with a process that the OOM killer takes: its whole "container", the "process" alone, or "leave"
        /// it to whoever set it. A pod's annotation comes first.
        oom_kill: OomScope = OomScope::Leave,
        /// Swap limits from requests (with knobs.memory_swap): nothing for Guaranteed and BestEffort, a part of the
        /// swap in proportion to the request for Burstable.
        swap_limits: bool = false,
        /// vm.overcommit_memory: "check" reports another value than 1, "set" makes it 1, "off" looks away. With 1 a
        /// shortage ends a process by its score, where otherwise whoever asks next is refused.
        overcommit: Overcommit = Overcommit::Check,
        /// A cap on the cgroup that holds all workloads.
        workloads_cap: WorkloadsCap = WorkloadsCap::default(),
    }
}

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OomScope {
    /// All of the container.
    Container,
    /// One process.
    Process,
    /// As it is.
    Leave,
}

/// The valid section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryRules {
    /// Where `memory.high` goes; `None` leaves it.
    pub high: Option<MemoryHighFactor>,
    /// What dies; `None` leaves it.
    pub oom_kill: Option<OomKill>,
    /// Swap limits are wished.
    pub swap_limits: bool,
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Memory) -> MemoryRules {
    let high = MemoryHighFactor::new(raw.high_percent.saturating_mul(10));
    if high.is_err() {
        let reason = format!("{} is past the limit", raw.high_percent);
        c.fail("memory.high_percent", reason, "give 0 (off) to 100");
    }
    MemoryRules {
        high: high.ok().filter(|_| raw.high_percent > 0),
        oom_kill: match raw.oom_kill {
            OomScope::Container => Some(OomKill::Container),
            OomScope::Process => Some(OomKill::Process),
            OomScope::Leave => None,
        },
        swap_limits: raw.swap_limits,
    }
}
