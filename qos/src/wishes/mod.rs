//! The wishes of one classified container, knob by knob.
//!
//! Owned here: which knob follows from which fact. Not owned: the arithmetic (`score`, `cpu`, `memory`), the class
//! (`container`), and the reason ([`crate::why`]), whose inputs are complete: `replay` makes the same value from them
//! alone.

mod cpu;
mod memory;
mod score;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::units::OomScoreAdj;

use crate::container::{Ask, Subject};
pub(crate) use crate::cores::Cpus;
use crate::fair::Allotment;
use crate::plan::{PlanConfig, Wish, Wishes};

/// What other rules decided of a container.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OtherDecisions<'a> {
    /// Its fair part of the CPU.
    pub(crate) part: Option<&'a Allotment>,
    /// Its score by use and priority.
    pub(crate) score: Option<&'a Wish<OomScoreAdj>>,
    /// Its processors; `None` while nobody has any to itself.
    pub(crate) cpus: Option<Cpus<'a>>,
    /// It is in a subtree given to the agent.
    pub(crate) is_owned: bool,
}

/// All wishes of a container that may be written.
pub(crate) fn for_container(
    node: &NodeFacts,
    config: &PlanConfig,
    subject: &Subject<'_>,
    ask: &Ask,
    given: &OtherDecisions<'_>,
) -> Wishes {
    let knobs = &config.knobs;
    let (memory_min, memory_low) =
        if knobs.memory_protection { memory::protection(node, ask) } else { (None, None) };
    let idle = knobs.cpu_shares.then(|| cpu::idle(config, subject, ask)).flatten();
    // The kernel refuses shares and weight of an idle cgroup (kernel/sched/core.c, sched_group_set_shares).
    let weighs = knobs.cpu_shares && idle.is_none();
    let limit = knobs.cpu_quota.then(|| cpu::quota(config, subject, ask)).flatten();
    let burst = limit.as_ref().filter(|_| knobs.cpu_burst).and_then(|q| cpu::burst(config, q.value));
    let alone = matches!(given.cpus, Some(Cpus::Own(..)));
    Wishes {
        oom_score_adj: knobs
            .oom_score_adj
            .then(|| score::wish(node, config.rules, subject, ask, given.score))
            .flatten(),
        cpu_shares: weighs.then(|| cpu::shares(ask, subject, given)).flatten(),
        cpu_weight: weighs.then(|| cpu::weight(node, config, ask, subject, given)).flatten(),
        // Nothing is saved up where there is no quota.
        cpu_burst: burst.filter(|_| !alone),
        cpu_quota: limit.map(|limit| match given.cpus {
            Some(cpus) => cpus.quota(limit),
            None => limit,
        }),
        cpu_idle: idle,
        cpuset_cpus: given.cpus.map(Cpus::wish),
        memory_min,
        memory_low,
        memory_high: memory::high(node, config, subject, ask),
        memory_max: knobs.memory_max.then(|| memory::max(node, subject, ask)).flatten(),
        memory_oom_group: knobs.memory_oom_group.then(|| memory::oom_group(config, subject)).flatten(),
        memory_swap_max: knobs.memory_swap.then(|| memory::swap(node, config, subject, ask)).flatten(),
    }
}
