//! The fair mode of a node: members in, weights out whenever something changed that they depend on.

use std::collections::BTreeMap;

use evenkeel_model::units::{CpuShares, CpuWeight, MilliCpu};

use super::active::{ActiveSet, Hysteresis};
use super::scale::Scale;
use super::target::{Competitor, Level, MicroCpu};
use crate::plan::Wish;
use crate::why::{FairPart, Why};

/// Which levels are given weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Members only: those of one parent compete; a parent is taken to have its proportional part of the node,
    /// as the kubelet's weights of pods give it.
    Flat,
    /// Parents (pods) compete with each other for the node, then the members of each for its target.
    TwoLevel,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<K, P> {
    /// Its identity.
    pub key: K,
    /// The parent whose children it competes with.
    pub parent: P,
    /// Its CPU request; zero where it has none.
    pub request: MilliCpu,
    /// CPU used over the last interval (microseconds of CPU time in each second); `None` where there is no fresh measurement, which changes nothing.
    pub used: Option<MicroCpu>,
    /// Whether it waited for CPU over the last interval (pressure, or runnable without running).
    pub waits: bool,
}

/// What one cgroup is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// What it requests.
    pub request: MilliCpu,
    /// Whether it takes part in the excess.
    pub is_active: bool,
    /// CPU it should get.
    pub target: MicroCpu,
    /// `cpu.weight` (v2).
    pub weight: CpuWeight,
    /// `cpu.shares` (v1).
    pub shares: CpuShares,
    level: Level,
    weight_scale: Scale,
    shares_scale: Scale,
}

impl Allotment {
    fn of(one: Competitor, level: Level, weight_scale: Scale, shares_scale: Scale) -> Self {
        let target = level.target(one);
        Self {
            request: one.request,
            is_active: one.is_active,
            target,
            weight: weight_scale.weight(target),
            shares: shares_scale.shares(target),
            level,
            weight_scale,
            shares_scale,
        }
    }

    /// The weight with its reason.
    pub fn weight_wish(&self) -> Wish<CpuWeight> {
        self.why(self.weight_scale).wish(self.weight)
    }

    /// The shares with their reason.
    pub fn shares_wish(&self) -> Wish<CpuShares> {
        self.why(self.shares_scale).wish(self.shares)
    }

    fn why(&self, scale: Scale) -> Why {
        let (cpu_request_milli, level) = (self.request, self.level);
        Why::Fair(Box::new(FairPart { cpu_request_milli, active: self.is_active, level, scale }))
    }
}

/// Everybody's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairShares<K, P> {
    /// Parents; empty when laid out flat.
    pub parents: BTreeMap<P, Allotment>,
    /// Members.
    pub members: BTreeMap<K, Allotment>,
}

/// Members of one parent, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberGroup {
    /// Sum of its members' requests.
    pub request: MilliCpu,
    /// Whether any of them is active.
    pub is_active: bool,
}

/// The node's CPU, and each member with its parent.
type MadeFrom<K, P> = (MilliCpu, BTreeMap<K, (P, Competitor)>);

/// The fair mode's state on one node. Grows with the members it was last told of, no further.
#[derive(Debug, Clone)]
pub struct Fair<K, P> {
    layout: Layout,
    active: ActiveSet<K>,
    /// What the last division was made from.
    made_from: Option<MadeFrom<K, P>>,
    /// What each member gets when everybody is busy.
    sure: BTreeMap<K, MicroCpu>,
}

impl<K: Ord + Clone, P: Ord + Clone> Fair<K, P> {
    /// Starts with everybody idle.
    pub const fn new(layout: Layout, rule: Hysteresis) -> Self {
        Self { layout, active: ActiveSet::new(rule), made_from: None, sure: BTreeMap::new() }
    }

    /// Takes one interval's measurements of all members. The division, if anything it depends on changed:
    /// members, requests, who is active, or `capacity`, the CPU all of them divide.
    pub fn observe(
        &mut self,
        now_usec: u64,
        capacity: MilliCpu,
        members: &[Member<K, P>],
    ) -> Option<FairShares<K, P>> {
        for m in members {
            if let Some(used) = m.used {
                let sure = self.sure.get(&m.key).copied();
                self.active.observe(&m.key, now_usec, used, m.waits, sure);
            }
        }
        let of = |m: &Member<K, P>| {
            let competitor = Competitor { request: m.request, is_active: self.active.is_active(&m.key) };
            (m.key.clone(), (m.parent.clone(), competitor))
        };
        let now: BTreeMap<K, (P, Competitor)> = members.iter().map(of).collect();
        self.active.retain(|key| now.contains_key(key));
        if self.made_from.as_ref().is_some_and(|(c, from)| *c == capacity && *from == now) {
            return None;
        }
        let shared = divide(self.layout, capacity, self.active.rule().active_above, &now);
        self.sure = sure(capacity, &now, &shared);
        self.made_from = Some((capacity, now));
        Some(shared)
    }

    /// Whether a member is active.
    pub fn is_active(&self, key: &K) -> bool {
        self.active.is_active(key)
    }
}

/// Divides `capacity` among members by their parents.
fn divide<K: Ord + Clone, P: Ord + Clone>(
    layout: Layout,
    capacity: MilliCpu,
    active_above: MilliCpu,
    members: &BTreeMap<K, (P, Competitor)>,
) -> FairShares<K, P> {
    let mut families: BTreeMap<&P, Vec<(&K, Competitor)>> = BTreeMap::new();
    for (key, (parent, one)) in members {
        families.entry(parent).or_default().push((key, *one));
    }
    let groups: Vec<MemberGroup> = families.values().map(|f| group(f)).collect();
    let as_one = |g: &MemberGroup| Competitor { request: g.request, is_active: g.is_active };
    let parents = match layout {
        Layout::Flat => Vec::new(),
        Layout::TwoLevel => {
            siblings(capacity.into(), active_above, &groups.iter().map(as_one).collect::<Vec<_>>())
        }
    };
    let mut shared = FairShares { parents: BTreeMap::new(), members: BTreeMap::new() };
    for (i, (parent, family)) in families.iter().enumerate() {
        let part = match parents.get(i) {
            Some(allotment) => {
                shared.parents.insert((*parent).clone(), *allotment);
                allotment.target
            }
            None => proportional(capacity, &groups, i),
        };
        let ones: Vec<_> = family.iter().map(|(_, one)| *one).collect();
        let parts = siblings(part, active_above, &ones);
        shared.members.extend(family.iter().map(|(key, _)| (*key).clone()).zip(parts));
    }
    shared
}

fn group(family: &[(impl Sized, Competitor)]) -> MemberGroup {
    family.iter().fold(MemberGroup::default(), |g, (_, one)| MemberGroup {
        request: g.request.saturating_add(one.request),
        is_active: g.is_active || one.is_active,
    })
}

/// The part of `capacity` a parent has by its requests; an equal one where nobody requests anything.
fn proportional(capacity: MilliCpu, groups: &[MemberGroup], index: usize) -> MicroCpu {
    let all: u128 = groups.iter().map(|g| u128::from(g.request.get())).sum();
    let own = groups.get(index).map_or(0, |g| u128::from(g.request.get()));
    let whole = u128::from(MicroCpu::from(capacity).get());
    let part =
        (whole * own).checked_div(all).or_else(|| whole.checked_div(groups.len() as u128)).unwrap_or(0);
    MicroCpu::new(u64::try_from(part).unwrap_or(u64::MAX))
}

/// Parts of all siblings of one parent, in the order given.
fn siblings(capacity: MicroCpu, active_above: MilliCpu, ones: &[Competitor]) -> Vec<Allotment> {
    let level = Level::of(capacity, active_above, ones);
    let targets: Vec<_> = ones.iter().map(|one| level.target(*one)).collect();
    let of = |active: bool| -> Vec<MicroCpu> {
        ones.iter().zip(&targets).filter(|(one, _)| one.is_active == active).map(|(_, t)| *t).collect()
    };
    let (busy, idle) = (of(true), of(false));
    let (weight, shares) = (Scale::for_weight(&busy, &idle), Scale::for_shares(&busy, &idle));
    ones.iter().map(|one| Allotment::of(*one, level, weight, shares)).collect()
}

/// What each member gets when every member is busy: its part by target of its parent's part.
fn sure<K: Ord + Clone, P: Ord + Clone>(
    capacity: MilliCpu,
    members: &BTreeMap<K, (P, Competitor)>,
    shared: &FairShares<K, P>,
) -> BTreeMap<K, MicroCpu> {
    let mut sums: BTreeMap<&P, u128> = BTreeMap::new();
    for (key, (parent, _)) in members {
        let target = shared.members.get(key).map_or(0, |a| u128::from(a.target.get()));
        *sums.entry(parent).or_default() += target;
    }
    let all_parents: u128 = shared.parents.values().map(|a| u128::from(a.target.get())).sum();
    let part = |parent: &P, key: &K, own: &Allotment| {
        let of_parent = match shared.parents.get(parent) {
            Some(a) => {
                u128::from(MicroCpu::from(capacity).get()) * u128::from(a.target.get()) / all_parents.max(1)
            }
            None => shared.members.get(key).map_or(0, |a| u128::from(a.level.capacity.get())),
        };
        let sum = sums.get(parent).copied().unwrap_or(0).max(1);
        let micro = of_parent * u128::from(own.target.get()) / sum;
        MicroCpu::new(u64::try_from(micro).unwrap_or(u64::MAX))
    };
    members
        .iter()
        .filter_map(|(key, (parent, _))| {
            shared.members.get(key).map(|own| (key.clone(), part(parent, key, own)))
        })
        .collect()
}
