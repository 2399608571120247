//! `memory.overcommit` and `[memory.workloads_cap]`: the machine's memory as a whole.

use evenkeel_enforce::node::rules::{CapRules, NodeMemory, Overcommit};
use evenkeel_model::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Size;
use super::daemons::is_cgroup;

section! {
    /// A cap on the cgroup that holds all workloads, so that system daemons keep a reserve of memory. It follows what
    /// they use, and is never below what the workloads use now.
    WorkloadsCap {
        /// Whether the cap is set.
        enabled: bool = false,
        /// Path of the cgroup that holds all workloads, such as "/machine.slice". Beside a kubelet its own cgroup is the
        /// kubelet's (enforceNodeAllocatable), and this says contended.
        cgroup: String = String::new(),
        /// Memory kept for everything outside of it until that has been measured. Default: what a small node's daemons
        /// use with a runtime and a kubelet.
        reserve: Size = Size::from_mib(512),
        /// Added to the measured 99th percentile of what is used outside, in percent (0 to 1000).
        margin_percent: u16 = 10,
    }
}

/// Checks both.
pub(in super::super) fn check(c: &mut Checker<'_>, overcommit: Overcommit, raw: &WorkloadsCap) -> NodeMemory {
    if raw.margin_percent > 1000 {
        let reason = format!("{} would keep more than ten times what is used", raw.margin_percent);
        c.fail("memory.workloads_cap.margin_percent", reason, "give 0 to 1000");
    }
    if raw.enabled && !is_cgroup(&raw.cgroup) {
        let reason = match raw.cgroup.as_str() {
            "" => "no cgroup is named".to_owned(),
            path => format!("\"{path}\" is not a cgroup path below the root"),
        };
        c.fail(
            "memory.workloads_cap.cgroup",
            reason,
            "name the cgroup that holds all workloads, such as \"/machine.slice\"",
        );
    }
    let cap = raw.enabled.then(|| CapRules {
        cgroup: raw.cgroup.trim_end_matches('/').to_owned(),
        reserve: Bytes::new(raw.reserve.get()),
        margin_percent: raw.margin_percent,
    });
    NodeMemory { overcommit, cap }
}
