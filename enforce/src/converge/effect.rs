//! Whether what a knob holds has its effect where it is: protection as far as every ancestor grants it, a weight where
//! a sibling competes.
//!
//! Owned here: what is known of the families of cgroups around the containers, kept between audits, and the verdict on
//! each knob. Not owned: the kernel's arithmetic ([`evenkeel_qos::effective`]); what is done about a verdict: nothing.

mod family;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::knob::Setting;
use evenkeel_host::snapshot::{Family, HostReader};
use evenkeel_host::write::CgroupRef;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_qos::effective::{
    Levels, LostEffect, PathCgroup, ProtectionKnob, ProtectionPath, WeightLevel, WeightPath,
};
use evenkeel_qos::own::below;
use evenkeel_qos::why::Why;

use super::board::{Cause, Trouble};
use super::container::TrackedContainer;
use super::env::thread_cpu_time;
use super::knob::{self, KnobLoop};
use crate::decisions::{Draft, now_usec};
use family::{CgroupFamily, Promised, levels_of};

/// Families are read again after a change of the tree, but not sooner than this.
const SETTLE: Duration = Duration::from_secs(1);
/// Reading them all takes at most one part in so many of the CPU time of one processor,
const COST: u32 = 200;
/// unless that would put off what people wait to see for longer than this.
const LONGEST: Duration = Duration::from_secs(60);
/// Audit periods after which they are read again without any sign of a change, at the soonest,
const PERIODS: u32 = 3;
/// and the part of a processor's time that takes at most: what changes then changes in files somebody else writes.
const QUIET_COST: u32 = 1000;
/// They are read again within this time in any case.
const QUIET_LONGEST: Duration = Duration::from_secs(300);

/// Why a value that stands has no effect, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ineffective {
    /// When it was seen first, microseconds since 1970.
    pub(super) since_usec: u64,
    /// Looks that found it so.
    pub(super) count: u32,
    /// Every number of the verdict that told it last: who takes it away, and the remedy.
    pub(super) why: Arc<Why>,
}

impl Ineffective {
    /// As status shows it.
    pub(super) fn trouble(&self) -> Trouble {
        let cause = Cause::Ineffective(Arc::clone(&self.why));
        Trouble { count: self.count, since_usec: self.since_usec, cause }
    }
}

/// What is known around the containers. One family for each parent on the path to a container.
pub(super) struct Survey {
    /// cgroup2 is mounted with `memory_recursiveprot`.
    recursive: bool,
    own: Vec<String>,
    families: BTreeMap<(Hierarchy, String), CgroupFamily>,
    /// Grows when families were read again: verdicts of an earlier one are out of date.
    pub(super) epoch: u64,
    period: Duration,
    /// When families are read again.
    next: Instant,
    /// When they were read last, and how long after that they are not read again, for what it cost.
    last: (Instant, Duration),
}

impl Survey {
    /// Knows nothing yet.
    pub(super) fn new(recursive: bool, own: Vec<String>, audit_period: Duration, now: Instant) -> Self {
        let period = audit_period * PERIODS;
        let last = (now, Duration::ZERO);
        Self { recursive, own, families: BTreeMap::new(), epoch: 1, period, next: now + period, last }
    }

    /// Cgroups came or went.
    pub(super) fn tree_changed(&mut self, now: Instant) {
        let (at, pause) = self.last;
        self.next = self.next.min((now + SETTLE).max(at + pause));
    }

    /// When families are read again.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.families.is_empty()).then_some(self.next)
    }

    /// Reads families again if that is due; true when it did.
    pub(super) fn refresh(&mut self, reader: &dyn HostReader, now: Instant) -> bool {
        if self.families.is_empty() || now < self.next {
            return false;
        }
        let known = std::mem::take(&mut self.families);
        // The CPU's time, not the clock's: a thread that waits for a busy processor costs nothing meanwhile.
        let start = thread_cpu_time();
        for (key, _) in known.into_iter().filter(|(_, known)| known.is_used) {
            let family = read(reader, &key);
            self.families.insert(key, family);
        }
        let cost = thread_cpu_time().saturating_sub(start);
        let pause = (cost * COST).min(LONGEST);
        self.last = (now, pause);
        self.next = now + self.period.max(pause).max((cost * QUIET_COST).min(QUIET_LONGEST));
        self.epoch += 1;
        true
    }

    /// Judges every knob of a container that stands; what is news becomes a decision.
    pub(super) fn judge(&mut self, reader: &dyn HostReader, container: &mut TrackedContainer) -> Vec<Draft> {
        container.judged = self.epoch;
        let mut drafts = Vec::new();
        for index in 0..container.knobs.all.len() {
            let Some(knob) = container.knobs.all.get_mut(index) else { break };
            if knob.state != knob::KnobState::Right {
                continue;
            }
            let found = self.verdict(reader, knob);
            let told = take_in(knob, found);
            container.stale |= knob.ineffective.is_some() || told;
            if told {
                drafts.push(decision(&container.tracked.workload, knob));
            }
        }
        drafts
    }

    fn verdict(&mut self, reader: &dyn HostReader, knob: &KnobLoop) -> Option<Found> {
        let place = knob.place()?;
        let protects = |value: Bytes| (!value.is_zero()).then_some(value);
        match knob.wanted {
            Setting::CpuWeight(_) | Setting::CpuShares(_) => self.weight(reader, place),
            Setting::MemoryMin(Limit::Value(value)) => {
                self.protection(reader, place, ProtectionKnob::Min, protects(value)?)
            }
            Setting::MemoryLow(Limit::Value(value)) => {
                self.protection(reader, place, ProtectionKnob::Low, protects(value)?)
            }
            _ => None,
        }
    }

    fn weight(&mut self, reader: &dyn HostReader, place: &CgroupRef) -> Option<Found> {
        let mut levels = Vec::new();
        for (parent, path, name) in levels_of(&place.path) {
            let family = self.family(reader, place.hierarchy, parent);
            let own = family.child(name).is_some_and(|child| child.is_populated);
            // Threads of the kernel and daemons outside all cgroups are in the root.
            let beside = if parent == "/" {
                1
            } else if place.hierarchy == Hierarchy::V2 {
                0
            } else {
                family.processes
            };
            let siblings = family.populated - usize::from(own);
            levels.push(WeightLevel {
                path: path.to_owned(),
                populated_siblings: u32::try_from(siblings).unwrap_or(u32::MAX),
                processes_beside: u32::try_from(beside).unwrap_or(u32::MAX),
                is_ours: path == &*place.path || self.owns(path),
            });
        }
        let path = WeightPath { levels: Levels(levels) };
        Some((path.lost()?, Why::EffectiveWeight(path)))
    }

    fn protection(
        &mut self,
        reader: &dyn HostReader,
        place: &CgroupRef,
        knob: ProtectionKnob,
        value: Bytes,
    ) -> Option<Found> {
        let mut nodes = Vec::new();
        for (parent, path, name) in levels_of(&place.path) {
            let family = self.family(reader, place.hierarchy, parent);
            let child = family.child(name);
            let is_leaf = path == &*place.path;
            let setting = child.map_or(Bytes::ZERO, |child| child.setting(knob));
            let claims = match knob {
                ProtectionKnob::Min => family.min_claims,
                ProtectionKnob::Low => family.low_claims,
            };
            nodes.push(PathCgroup {
                path: path.to_owned(),
                // What was just written is newer than what is known of the family.
                setting: if is_leaf { value } else { setting },
                usage: child.and_then(|child| child.memory_current).unwrap_or(Bytes::ZERO),
                siblings_claim: claims.saturating_sub(child.map_or(Bytes::ZERO, |child| child.claim(knob))),
            });
        }
        let path = ProtectionPath { protection: knob, recursive: self.recursive, levels: Levels(nodes) };
        Some((path.lost()?, Why::EffectiveProtection(path)))
    }

    fn owns(&self, path: &str) -> bool {
        self.own.iter().any(|root| root == path || below(root, path))
    }

    fn family(&mut self, reader: &dyn HostReader, hierarchy: Hierarchy, parent: &str) -> &CgroupFamily {
        let key = (hierarchy, parent.to_owned());
        let known = self.families.entry(key).or_insert_with_key(|key| read(reader, key));
        known.is_used = true;
        known
    }
}

/// What was found of one knob, and by which numbers.
type Found = (LostEffect, Why);

fn read(reader: &dyn HostReader, (hierarchy, parent): &(Hierarchy, String)) -> CgroupFamily {
    let found = reader.place(*hierarchy, parent).and_then(|place| reader.family(&place));
    let Family { processes, mut children } = found.unwrap_or_default();
    children.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let sum = |knob| children.iter().fold(Bytes::ZERO, |sum, child| sum.saturating_add(child.claim(knob)));
    CgroupFamily {
        processes,
        populated: children.iter().filter(|child| child.is_populated).count(),
        min_claims: sum(ProtectionKnob::Min),
        low_claims: sum(ProtectionKnob::Low),
        children,
        is_used: true,
    }
}

/// Takes in what was found of a knob; true when that is news.
fn take_in(knob: &mut KnobLoop, found: Option<Found>) -> bool {
    let Some((lost, why)) = found else { return knob.ineffective.take().is_some() };
    match knob.ineffective.as_deref_mut() {
        Some(known) => {
            known.count = known.count.saturating_add(1);
            let moved = known.why.lost().is_none_or(|before| before.by != lost.by);
            if *known.why != why {
                known.why = Arc::new(why);
            }
            moved
        }
        None => {
            let since_usec = now_usec();
            knob.ineffective = Some(Box::new(Ineffective { since_usec, count: 1, why: Arc::new(why) }));
            true
        }
    }
}

fn decision(workload: &evenkeel_model::workload::Workload, knob: &KnobLoop) -> Draft {
    let value = Some(knob.wanted.to_string());
    let (reason, lost, result) = match &knob.ineffective {
        Some(found) => (found.why.text(), found.why.lost(), DecisionResult::Unchanged),
        None => ("it has its effect now".to_owned(), None, DecisionResult::Done),
    };
    let draft = Draft::of(workload, DecisionKind::Ineffective, reason)
        .knob(knob.knob().name())
        .values(value.clone(), value)
        .result(result);
    match (&knob.ineffective, lost) {
        (Some(found), Some(lost)) => draft.inputs(found.why.inputs()).input("by", &lost.by),
        _ => draft,
    }
}
