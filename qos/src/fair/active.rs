//! Who is active: a state machine per container with hysteresis, fed with measured use.

use std::collections::BTreeMap;

use evenkeel_model::units::MilliCpu;

use super::target::MicroCpu;

/// When a container becomes active and when idle again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hysteresis {
    /// Active as soon as its use reaches this.
    pub active_above: MilliCpu,
    /// Idle once its use has stayed below for this long, microseconds.
    pub idle_after_usec: u64,
}

/// 10 thousandths of a core and 10 s: below what a health check costs, longer than the pause between two requests.
impl Default for Hysteresis {
    fn default() -> Self {
        Self { active_above: MilliCpu::new(10), idle_after_usec: 10_000_000 }
    }
}

/// Where one container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Activity {
    #[default]
    Idle,
    Active {
        /// Since when its use has been below, microseconds.
        below_since: Option<u64>,
    },
}

/// The active containers of a node. A container not seen before is idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveSet<K> {
    rule: Hysteresis,
    members: BTreeMap<K, Activity>,
}

impl<K: Ord + Clone> ActiveSet<K> {
    /// Nobody known yet.
    pub const fn new(rule: Hysteresis) -> Self {
        Self { rule, members: BTreeMap::new() }
    }

    /// The rule in force.
    pub const fn rule(&self) -> Hysteresis {
        self.rule
    }

    /// Takes one fresh measurement: `used` over the last interval, and whether the container `waits` for CPU it
    /// does not get (which counts as activity however little it got). `sure` is what its weight gives it even
    /// when everybody is busy; where half of that is less than the rule's threshold it is the threshold, or a
    /// container could be too small ever to be seen. True when it changed sides.
    pub fn observe(
        &mut self,
        key: &K,
        now_usec: u64,
        used: MicroCpu,
        waits: bool,
        sure: Option<MicroCpu>,
    ) -> bool {
        let rule = MicroCpu::from(self.rule.active_above);
        let above = sure.map_or(rule, |s| MicroCpu::new(s.get() / 2).min(rule));
        let busy = waits || used >= above.max(MicroCpu::new(1));
        let before = self.members.get(key).copied().unwrap_or_default();
        let after = match before {
            _ if busy => Activity::Active { below_since: None },
            Activity::Idle => Activity::Idle,
            Activity::Active { below_since: None } => Activity::Active { below_since: Some(now_usec) },
            Activity::Active { below_since: Some(since) }
                if now_usec.saturating_sub(since) >= self.rule.idle_after_usec =>
            {
                Activity::Idle
            }
            still @ Activity::Active { .. } => still,
        };
        self.members.insert(key.clone(), after);
        (before == Activity::Idle) != (after == Activity::Idle)
    }

    /// Whether a container is active.
    pub fn is_active(&self, key: &K) -> bool {
        matches!(self.members.get(key), Some(Activity::Active { .. }))
    }

    /// Forgets everybody who is not in `known`.
    pub fn retain(&mut self, mut known: impl FnMut(&K) -> bool) {
        self.members.retain(|key, _| known(key));
    }
}
