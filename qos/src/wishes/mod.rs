//! The wishes of one classified container, knob by knob.
//!
//! Owned here: which knob follows from which fact. Not owned: the arithmetic (`score`, `cpu`, `memory`), the class
//! (`container`), and the reason ([`crate::why`]), whose inputs are complete: `replay` makes the same value from them
//! alone.

mod cpu;
mod memory;
mod score;

use evenkeel_model::node::NodeFacts;

use crate::container::{Ask, Subject};
use crate::plan::{PlanConfig, Wishes};

/// All wishes of a container that may be written.
pub(crate) fn for_container(
    node: &NodeFacts,
    config: &PlanConfig,
    subject: &Subject<'_>,
    ask: &Ask,
) -> Wishes {
    let knobs = &config.knobs;
    let (memory_min, memory_low) =
        if knobs.memory_protection { memory::protection(node, ask) } else { (None, None) };
    let idle = knobs.cpu_shares.then(|| cpu::idle(config, subject, ask)).flatten();
    // The kernel refuses shares and weight of an idle cgroup (kernel/sched/core.c, sched_group_set_shares).
    let weighs = knobs.cpu_shares && idle.is_none();
    let quota = knobs.cpu_quota.then(|| cpu::quota(config, subject, ask)).flatten();
    Wishes {
        oom_score_adj: knobs.oom_score_adj.then(|| score::wish(node, config.rules, subject, ask)).flatten(),
        cpu_shares: weighs.then(|| cpu::shares(ask, subject)).flatten(),
        cpu_weight: weighs.then(|| cpu::weight(config, ask, subject)).flatten(),
        cpu_burst: quota.as_ref().filter(|_| knobs.cpu_burst).and_then(|q| cpu::burst(config, q.value)),
        cpu_quota: quota,
        cpu_idle: idle,
        cpuset_cpus: None,
        memory_min,
        memory_low,
        memory_high: memory::high(node, config, subject, ask),
        memory_max: knobs.memory_max.then(|| memory::max(node, subject, ask)).flatten(),
        memory_oom_group: knobs.memory_oom_group.then(|| memory::oom_group(config, subject)).flatten(),
        memory_swap_max: knobs.memory_swap.then(|| memory::swap(node, config, subject, ask)).flatten(),
    }
}
