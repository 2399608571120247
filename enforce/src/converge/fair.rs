//! Fair excess: weights follow who is active.
//!
//! Owned here: feeding the rule with the latest samples once a second, and giving the parts as inputs to the desired state of
//! containers and of the cgroups between. Not owned: the rule ([`evenkeel_qos::fair`]), writing ([`super::knob`]).

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use evenkeel_model::sample::Field;
use evenkeel_model::units::MilliCpu;
use evenkeel_qos::fair::{Allotment, Fair, FairShares, Hysteresis, Layout, Member, MicroCpu};
use evenkeel_qos::own::below;
use evenkeel_qos::rules::cpu_request_of;

use super::container::TrackedContainer;
use super::table::{Input, Rules, Table};
use super::wake::Key;
use crate::converge::rules::CpuRules;
use crate::shared::{lock, micros};
use crate::usage::Usage;

/// How often samples are looked at: the sampler's own pace.
const EVERY: Duration = Duration::from_secs(1);
/// Samples older than this justify no new weight.
const FRESH_USEC: u64 = 3_000_000;

/// One level or two of competitors.
struct Arena {
    /// The subtree given to us; `None` for all that is outside of these.
    root: Option<String>,
    fair: Fair<Key, String>,
}

/// The mode's state.
pub(super) struct FairMode {
    arenas: Vec<Arena>,
    usage: Usage,
    next: Instant,
    /// Time of the last tick that was looked at.
    seen_usec: u64,
    /// Counters of each container then, by slot.
    counters: HashMap<u32, CpuCounters>,
    /// Parts of cgroups between an owned root and its containers.
    pub(super) inner: BTreeMap<String, Allotment>,
}

/// Of one container at one tick.
#[derive(Debug, Clone, Copy)]
struct CpuCounters {
    /// CPU time, microseconds.
    usage: u64,
    /// Time in which somebody in it waited for a CPU, microseconds; `None` where the kernel does not tell.
    stalled: Option<u64>,
}

impl CpuCounters {
    /// CPU used since `before`, `interval` microseconds ago, and whether it waited for more. A tenth of the time without
    /// a CPU is waiting for one; less is what any wake-up costs.
    fn since(self, before: Self, interval: u64) -> (MicroCpu, bool) {
        let used =
            u128::from(self.usage.saturating_sub(before.usage)) * 1_000_000 / u128::from(interval.max(1));
        let stalled = self.stalled.zip(before.stalled).map_or(0, |(now, before)| now.saturating_sub(before));
        (MicroCpu::new(u64::try_from(used).unwrap_or(u64::MAX)), stalled > interval / 10)
    }
}

/// What changed.
#[derive(Debug, Default)]
pub(super) struct ChangedShares {
    /// Containers with another weight.
    pub(super) keys: Vec<Key>,
    /// Cgroups above containers have other weights.
    pub(super) inner: bool,
}

impl FairMode {
    /// Everybody idle.
    pub(super) fn new(rules: &CpuRules, own: &[String], usage: Usage, now: Instant) -> Self {
        let rule = Hysteresis {
            active_above: MilliCpu::new(u64::from(rules.fair_active_above_milli)),
            idle_after_usec: micros(rules.fair_idle_after),
        };
        let flat = Arena { root: None, fair: Fair::new(Layout::Flat, rule) };
        let owned = own
            .iter()
            .map(|root| Arena { root: Some(root.clone()), fair: Fair::new(Layout::TwoLevel, rule) });
        Self {
            arenas: owned.chain([flat]).collect(),
            usage,
            next: now,
            seen_usec: 0,
            counters: HashMap::new(),
            inner: BTreeMap::new(),
        }
    }

    /// When samples are looked at next.
    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Takes in the latest samples; gives containers whose weight is another one now their part.
    pub(super) fn turn(
        &mut self,
        table: &mut Table,
        rules: &Rules,
        capacity: MilliCpu,
        now_usec: u64,
        now: Instant,
    ) -> ChangedShares {
        let mut changed = ChangedShares::default();
        if now < self.next {
            return changed;
        }
        self.next = now + EVERY;
        let used = self.used(now_usec);
        for at in 0..self.arenas.len() {
            let members = self.members(at, table, &used);
            let Some(arena) = self.arenas.get_mut(at) else { break };
            let Some(shared) = arena.fair.observe(now_usec, capacity, &members) else { continue };
            self.hand_out(&shared, table, rules, &mut changed);
        }
        changed
    }

    /// CPU use and whether it waited, by slot, since the tick before; nothing where there is no fresh tick.
    fn used(&mut self, now_usec: u64) -> HashMap<u32, (MicroCpu, bool)> {
        let latest = lock(&self.usage);
        let time = latest.time_usec();
        if time <= self.seen_usec || now_usec.saturating_sub(time) > FRESH_USEC {
            return HashMap::new();
        }
        self.seen_usec = time;
        let mut used = HashMap::with_capacity(self.counters.len());
        let mut counters = HashMap::with_capacity(self.counters.len());
        latest.each(&mut |slot, sample| {
            let Some(usage) = sample.get(Field::CpuUsageUsec) else { return };
            let now = CpuCounters { usage, stalled: sample.get(Field::CpuPressureUsec) };
            let before = self.counters.get(&slot).copied();
            counters.insert(slot, now);
            let interval = u64::from(sample.interval_usec());
            if let Some(before) = before.filter(|_| interval > 0) {
                used.insert(slot, now.since(before, interval));
            }
        });
        self.counters = counters;
        used
    }

    fn members(
        &self,
        at: usize,
        table: &Table,
        used: &HashMap<u32, (MicroCpu, bool)>,
    ) -> Vec<Member<Key, String>> {
        let Some(arena) = self.arenas.get(at) else { return Vec::new() };
        let member = |(key, container): (Key, &TrackedContainer)| {
            let path = &container.tracked.cgroup;
            let in_root = |other: &Arena| other.root.as_deref().is_some_and(|root| below(root, path));
            let belongs = match &arena.root {
                Some(_) => in_root(arena),
                None => !self.arenas.iter().any(in_root),
            };
            let request = cpu_request_of(&container.tracked.workload.requested);
            if !belongs || container.unmanaged.is_some() || !container.has_weight() {
                return None;
            }
            let fresh = used.get(&container.tracked.slot).copied();
            Some(Member {
                key,
                parent: parent_in(arena.root.as_deref(), path),
                request: request?,
                used: fresh.map(|(used, _)| used),
                waits: fresh.is_some_and(|(_, waits)| waits),
            })
        };
        table.entries().filter_map(member).collect()
    }

    fn hand_out(
        &mut self,
        shared: &FairShares<Key, String>,
        table: &mut Table,
        rules: &Rules,
        changed: &mut ChangedShares,
    ) {
        for (key, allotment) in &shared.members {
            let Some(container) = table.get(*key) else { continue };
            // Directly below an owned root a container is its own parent: there it competes with the others.
            let at = shared.parents.get(&*container.tracked.cgroup).unwrap_or(allotment);
            if table.give(rules, *key, Input::Part(*at)) {
                changed.keys.push(*key);
            }
        }
        for (path, allotment) in &shared.parents {
            let before = self.inner.insert(path.clone(), *allotment);
            let same =
                |before: Allotment| (before.weight, before.shares) == (allotment.weight, allotment.shares);
            changed.inner |= !before.is_some_and(same);
        }
        if !shared.parents.is_empty() {
            self.inner.retain(|path, _| shared.parents.contains_key(path) || !is_of(shared, path));
        }
    }
}

/// Whether a path is a sibling of the parents just divided: one that is not among them any more has no part.
fn is_of(shared: &FairShares<Key, String>, path: &str) -> bool {
    let above = |path: &str| path.rsplit_once('/').map(|(above, _)| above.to_owned());
    let of = above(path);
    shared.parents.keys().any(|parent| above(parent) == of)
}

/// Whose child a container competes as: in an owned subtree the cgroup right below its root, else its own parent.
fn parent_in(root: Option<&str>, path: &str) -> String {
    let Some(root) = root else {
        return path.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
    };
    let rest = path.get(root.len() + 1..).unwrap_or_default();
    let first = rest.split('/').next().unwrap_or_default();
    format!("{root}/{first}")
}
