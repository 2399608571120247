//! One thing that has memory of its own to run short of: the node, or an owned subtree with a limit.

use evenkeel_host::write::CgroupRef;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Bytes;
use evenkeel_model::workload::{ContainerKind, ContainerResources, Requested};
use evenkeel_qos::pressure::{
    ContainerMemory, Grade, Machine, NodePressure, Observation, PressureAction, PressureConfig,
    PressureResult, Switches,
};

use super::sight::Sight;
use super::view::DomainView;
use crate::converge::roster::RosterEntry;
use crate::decisions::now_usec;

/// A look at every container takes at most this part of the time, one in so many.
const PART_OF_TIME: u64 = 20;
/// Shortest time between two looks at every container, microseconds.
const BETWEEN_LOOKS_USEC: u64 = 100_000;

/// The domain.
pub(super) struct Domain {
    pub(super) tier: Option<CgroupRef>,
    pub(super) rules: PressureConfig,
    machine: Machine,
    node: NodePressure,
    /// Whether there was anything to judge it by at the last look: a subtree without a limit of its own has nothing.
    is_seen: bool,
    next_look_usec: u64,
}

/// The rules less what this machine cannot do.
pub(super) fn within(mut rules: PressureConfig, can: Switches) -> PressureConfig {
    let wished = rules.can;
    rules.can = Switches {
        reclaim: wished.reclaim && can.reclaim,
        high: wished.high && can.high,
        soft_limit: wished.soft_limit && can.soft_limit,
        freeze: wished.freeze && can.freeze,
        kill: wished.kill && can.kill,
    };
    rules
}

impl Domain {
    pub(super) fn new(tier: Option<CgroupRef>, rules: PressureConfig) -> Self {
        Self {
            tier,
            rules,
            machine: Machine::default(),
            node: NodePressure::default(),
            is_seen: false,
            next_look_usec: 0,
        }
    }

    pub(super) fn grade(&self) -> Grade {
        self.machine.grade()
    }

    /// The domain itself, as last looked at.
    pub(super) const fn node(&self) -> &NodePressure {
        &self.node
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.machine.is_urgent()
    }

    /// Whether this domain holds anything of a container.
    pub(super) fn holds(&self, key: u32) -> bool {
        self.machine.holds_key(key)
    }

    pub(super) fn done(&mut self, sight: &dyn Sight, action: &PressureAction, verdict: PressureResult) {
        self.machine.done(sight.now_usec(), action, verdict);
    }

    /// The cheap look; true when every container should be looked at.
    pub(super) fn glance(&mut self, sight: &mut dyn Sight, fired: Option<(Grade, u64)>) -> bool {
        let node = sight.domain(self.tier.as_ref());
        self.is_seen = node.is_some();
        let Some(node) = node else { return false };
        self.node = NodePressure { fired, ..node };
        // While there is plenty nobody is acted on for stalled time, whosever it is.
        if self.rules.bands.stall_counts(node.available, node.total) {
            self.node.own_limits = sight.own_limits(self.tier.as_ref());
        }
        self.machine.glance(sight.now_usec(), &self.node, &self.rules)
    }

    /// The look at every container, unless the last one was so dear that it has to wait.
    pub(super) fn look(
        &mut self,
        sight: &mut dyn Sight,
        roster: &[RosterEntry],
        fired: bool,
    ) -> Vec<(PressureAction, RosterEntry)> {
        let begun = sight.now_usec();
        if begun < self.next_look_usec && !fired && !self.machine.is_urgent() {
            return Vec::new();
        }
        let inside: Vec<&RosterEntry> = roster.iter().filter(|entry| self.contains(entry)).collect();
        let containers = inside.iter().filter_map(|entry| facts(sight, entry)).collect();
        let now = sight.now_usec();
        let cost = now.saturating_sub(begun).saturating_mul(PART_OF_TIME);
        self.next_look_usec = now.saturating_add(cost.max(BETWEEN_LOOKS_USEC));
        let seen = Observation { now_usec: now, node: self.node, containers };
        let actions = self.machine.step(&seen, &self.rules);
        let entry_of = |action: PressureAction| {
            let entry = inside.iter().find(|entry| entry.tracked.slot == action.key)?;
            Some((action, (*entry).clone()))
        };
        actions.into_iter().filter_map(entry_of).collect()
    }

    fn contains(&self, entry: &RosterEntry) -> bool {
        let Some(tier) = &self.tier else { return true };
        let below = entry.memory.as_ref().and_then(|at| at.path.strip_prefix(&*tier.path));
        below.is_some_and(|rest| rest.starts_with('/'))
    }

    /// As status shows it; `None` of a subtree without a limit of its own, which is as short of memory as the node.
    pub(super) fn view(&self, sight: &dyn Sight, wake: &'static str) -> Option<DomainView> {
        if !self.is_seen {
            return None;
        }
        let ago = sight.now_usec().saturating_sub(self.machine.since_usec());
        Some(DomainView {
            cgroup: self.tier.as_ref().map(|tier| tier.path.to_string()).unwrap_or_default(),
            grade: self.machine.grade(),
            cause: self.machine.cause().map_or("", |cause| cause.as_str()),
            since_usec: now_usec().saturating_sub(ago),
            signals: *self.machine.signals(),
            total: self.node.total,
            wake,
        })
    }
}

/// What a container asked for; `None` where nothing is known.
pub(super) fn asked(entry: &RosterEntry) -> Option<ContainerResources> {
    match entry.tracked.workload.requested {
        Requested::Stated(resources) => Some(resources),
        Requested::Estimated(estimate) => Some(estimate.resources),
        Requested::Unknown => None,
    }
}

/// Whether anything may be done to it at all.
pub(super) fn may_be_touched(entry: &RosterEntry) -> bool {
    entry.managed && entry.tracked.workload.kind != ContainerKind::Infrastructure
}

/// A container's numbers, read now. Those that nothing could ever be done to cost no read.
fn facts(sight: &mut dyn Sight, entry: &RosterEntry) -> Option<ContainerMemory> {
    let class = entry.tracked.classes.memory?;
    let asked = asked(entry)?;
    let managed = may_be_touched(entry);
    let request = asked.memory_request.unwrap_or(Bytes::ZERO);
    let mut now = sight.memory(entry, class == QosClass::BestEffort).ok()?;
    if class == QosClass::Burstable && now.current > request {
        now = sight.memory(entry, true).ok()?;
    }
    let (anon, file) = now.parts.unwrap_or((now.current, Bytes::ZERO));
    Some(ContainerMemory {
        key: entry.tracked.slot,
        managed,
        class,
        request,
        limit: now.limit.or(asked.memory_limit),
        current: now.current,
        anon,
        file,
        some_usec: now.some_usec,
        read_usec: now.read_usec,
    })
}
