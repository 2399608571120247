//! `[knobs]`: which knobs are written at all.

use evenkeel_enforce::converge::rules::Switches;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

section! {
    /// Which knobs are written.
    Knobs {
        /// oom_score_adj of every process.
        oom_score_adj: bool = true,
        /// cpu.shares (cgroup v1).
        cpu_shares: bool = true,
        /// cpu.weight, and cpu.idle where cpu.idle_best_effort asks for it (cgroup v2).
        cpu_weight: bool = true,
        /// cpu.max (v2), cpu.cfs_quota_us and cpu.cfs_period_us (v1), of containers whose source does not set limits
        /// itself.
        cpu_quota: bool = true,
        /// cpu.max.burst (v2), cpu.cfs_burst_us (v1), with a quota of ours.
        cpu_burst: bool = true,
        /// memory.min and memory.low (v2), memory.soft_limit_in_bytes (v1).
        memory_protection: bool = true,
        /// memory.max (v2), memory.limit_in_bytes (v1), of containers whose source does not set limits itself.
        memory_max: bool = true,
        /// memory.oom.group (v2), where a pod or memory.oom_kill says which.
        memory_oom_group: bool = true,
        /// memory.swap.max (v2), memory.memsw.limit_in_bytes (v1), with memory.swap_limits. Off by default: runtimes
        /// set it themselves where swap is on.
        memory_swap: bool = false,
    }
}

/// The valid section: the switches, any of which may be anything.
pub(in super::super) const fn switches(raw: &Knobs) -> Switches {
    Switches {
        oom_score_adj: raw.oom_score_adj,
        cpu_shares: raw.cpu_shares,
        cpu_weight: raw.cpu_weight,
        cpu_quota: raw.cpu_quota,
        cpu_burst: raw.cpu_burst,
        memory_protection: raw.memory_protection,
        memory_max: raw.memory_max,
        memory_oom_group: raw.memory_oom_group,
        memory_swap: raw.memory_swap,
    }
}
