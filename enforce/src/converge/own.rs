//! Subtrees given to the agent: their inner cgroups hold the sums of what lies below them.
//!
//! Owned here: which inner cgroups there are, the order in which they are written (controllers are given on from the
//! top; protections grow from the top and shrink from the bottom), and refusing subtrees that are somebody else's. Not
//! owned: what they should hold ([`evenkeel_qos::desired`]), one knob ([`super::knob`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, Outcome, Target};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::Limit;
use evenkeel_qos::own::{self, Current, InnerCgroup, InnerValue};
use evenkeel_qos::plan::Wish;
use evenkeel_qos::why::Why;

use super::board::{LET_ONE_OWN, NodeKnob};
use super::container::Counters;
use super::env::Env;
use super::knob::{KnobEvent, KnobLoop, KnobState};
use super::knobs::Knobs;
use crate::converge::rules::Switches;
use crate::decisions::{Draft, result_of};

/// Controllers given on inside: those of the knobs that are written below.
const GIVEN: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Cpuset];

/// One subtree.
#[derive(Debug)]
struct Root {
    path: String,
    /// Why nothing in it is written.
    refused: Option<(String, String)>,
}

/// The subtrees given to us.
pub(super) struct Owned {
    roots: Vec<Root>,
    inner: BTreeMap<String, Knobs>,
    /// Those that could not be read when they were planned the last time.
    unread: BTreeSet<String>,
    period: Duration,
    next: Instant,
    homes: Homes,
}

/// Which hierarchy each controller is in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Homes {
    /// Of the CPU controller.
    pub(super) cpu: Option<Hierarchy>,
    /// Of the memory controller.
    pub(super) memory: Option<Hierarchy>,
}

/// Which knobs of inner cgroups are written.
#[derive(Clone, Copy)]
pub(super) struct InnerKnobs<'a> {
    /// The switches.
    pub(super) on: &'a Switches,
    /// Containers may be given processors of their own.
    pub(super) cores: bool,
}

impl Owned {
    /// The configured subtrees; `refusal` says why one is somebody else's, with the remedy.
    pub(super) fn new(
        roots: &[String],
        homes: Homes,
        period: Duration,
        now: Instant,
        refusal: impl Fn(&str) -> Option<(String, String)>,
    ) -> Self {
        let root = |path: &String| Root { path: path.clone(), refused: refusal(path) };
        Self {
            roots: roots.iter().map(root).collect(),
            inner: BTreeMap::new(),
            unread: BTreeSet::new(),
            period,
            next: now,
            homes,
        }
    }

    /// Subtrees in which nothing is written, each with the reason and the remedy.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.roots.iter().filter_map(|root| {
            let (why, remedy) = root.refused.as_ref()?;
            Some((root.path.as_str(), why.as_str(), remedy.as_str()))
        })
    }

    /// How the subtrees stand as a whole: `None` where none is configured; else the worst, why and the remedy.
    pub(super) fn standing(&self) -> Option<NodeKnob> {
        let shown =
            |state, why: String, remedy: &str| NodeKnob { name: "own", state, why, remedy: remedy.into() };
        if let Some((path, why, remedy)) = self.refused().next() {
            return Some(shown("denied", format!("{path}: {why}"), remedy));
        }
        self.roots.first()?;
        let all = self.inner.iter().flat_map(|(path, knobs)| knobs.all.iter().map(move |knob| (path, knob)));
        let trouble = all.filter_map(|(path, knob)| {
            let (state, why, remedy) = match &knob.state {
                KnobState::Denied { why, remedy } => {
                    ("denied", why.as_str(), remedy.as_deref().unwrap_or(""))
                }
                KnobState::Rejected { why, remedy } => {
                    ("unsupported", why.as_str(), remedy.as_deref().unwrap_or(""))
                }
                KnobState::Contended => ("contended", "somebody else keeps rewriting it", LET_ONE_OWN),
                _ => return None,
            };
            Some(shown(state, format!("{} of {path}: {why}", knob.knob()), remedy))
        });
        Some(trouble.into_iter().next().unwrap_or_else(|| shown("ok", String::new(), "")))
    }

    /// Sums may have changed.
    pub(super) fn changed(&mut self, now: Instant) {
        self.next = self.next.min(now);
    }

    /// When inner cgroups are looked at next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.roots.iter().any(|root| root.refused.is_none()).then_some(self.next)
    }

    /// Brings inner cgroups to what is desired of them, if it is time.
    pub(super) fn turn(
        &mut self,
        env: &mut Env<'_>,
        options: InnerKnobs<'_>,
        mut wanted: BTreeMap<String, InnerCgroup>,
        stats: &Counters<'_>,
        now: Instant,
    ) -> Vec<Draft> {
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.next = now + self.period;
        let mut drafts = Vec::new();
        let refused = |path: &str, root: &Root| {
            root.refused.is_some()
                && (path == root.path.trim_end_matches('/') || own::below(&root.path, path))
        };
        wanted.retain(|path, _| !self.roots.iter().any(|root| refused(path, root)));
        self.plan(env.reader, options, &wanted);
        for (path, at) in self.order(&wanted) {
            let Some(knob) = self.inner.get_mut(&path).and_then(|knobs| knobs.all.get_mut(at)) else {
                continue;
            };
            let (event, outcome) = knob.turn(env);
            if let Some(outcome) = &outcome {
                stats.count(knob.knob(), outcome);
            }
            drafts.extend(event.and_then(|event| told(&path, knob, event)));
        }
        for (path, knobs) in self.inner.iter_mut().rev() {
            for (knob, ours, original, outcome) in knobs.put_back(env) {
                stats.count(knob, &outcome);
                drafts.push(given_back(path, knob, ours, original, &outcome));
            }
        }
        self.inner.retain(|_, knobs| !(knobs.all.is_empty() && knobs.withdrawn.is_empty()));
        drafts
    }

    /// Inner cgroups that cannot be read now.
    pub(super) fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.iter().map(String::as_str)
    }

    /// Every knob that is wished of inner cgroups.
    pub(super) fn wished(&self) -> impl Iterator<Item = (&Target, Knob)> {
        self.inner.values().flat_map(Knobs::wished)
    }

    /// Makes or renews the loops of every inner cgroup that is there.
    fn plan(
        &mut self,
        reader: &dyn HostReader,
        options: InnerKnobs<'_>,
        wanted: &BTreeMap<String, InnerCgroup>,
    ) {
        for path in wanted.keys() {
            self.inner.entry(path.clone()).or_default();
        }
        let homes = self.homes;
        self.unread.clear();
        for (path, knobs) in &mut self.inner {
            let place = |home: Option<Hierarchy>| match home.map(|h| reader.place(h, path)) {
                Some(Err(error)) if !error.is_gone() => Err(error),
                place => Ok(place.and_then(Result::ok)),
            };
            let places = place(homes.cpu).and_then(|cpu| Ok((cpu, place(homes.memory)?)));
            let fresh = places.map(|(cpu, memory)| {
                wanted.get(path).map_or_else(Vec::new, |inner| loops(inner, options, cpu, memory, knobs))
            });
            match fresh {
                Ok(fresh) => knobs.replace(fresh),
                // It goes on as it was.
                Err(error) => {
                    tracing::debug!(path, %error, "an inner cgroup cannot be read; it is planned again later");
                    self.unread.insert(path.clone());
                }
            }
        }
    }

    /// Every loop of every inner cgroup, in the order in which they are written.
    fn order(&self, wanted: &BTreeMap<String, InnerCgroup>) -> Vec<(String, usize)> {
        let mut order: Vec<(String, usize)> = Vec::new();
        let find = |path: &str, knob: Knob| {
            self.inner.get(path).and_then(|knobs| knobs.all.iter().position(|k| k.knob() == knob))
        };
        // Paths sort before what lies below them.
        for controller in GIVEN {
            for path in wanted.keys() {
                order.extend(find(path, Knob::SubtreeControl(controller)).map(|at| (path.clone(), at)));
            }
        }
        let now: BTreeMap<String, Current> =
            self.inner.iter().map(|(path, knobs)| (path.clone(), current(&knobs.all))).collect();
        for step in own::steps(wanted, &now) {
            let knob = match step.value {
                InnerValue::Min(_) => Knob::MemoryMin,
                InnerValue::Low(_) => Knob::MemoryLow,
                InnerValue::Weight(_) => Knob::CpuWeight,
                InnerValue::Shares(_) => Knob::CpuShares,
            };
            order.extend(find(&step.path, knob).map(|at| (step.path.clone(), at)));
        }
        // What holds already is looked at all the same.
        for (path, knobs) in &self.inner {
            for at in 0..knobs.all.len() {
                if !order.iter().any(|(p, a)| p == path && *a == at) {
                    order.push((path.clone(), at));
                }
            }
        }
        order
    }
}

fn current(knobs: &[KnobLoop]) -> Current {
    let value = |knob: Knob| {
        let actual = knobs.iter().find(|k| k.knob() == knob).and_then(|k| k.actual)?;
        match actual {
            Setting::MemoryMin(Limit::Value(v)) | Setting::MemoryLow(Limit::Value(v)) => Some(v),
            _ => None,
        }
    };
    Current { min: value(Knob::MemoryMin), low: value(Knob::MemoryLow) }
}

fn loops(
    inner: &InnerCgroup,
    options: InnerKnobs<'_>,
    cpu: Option<CgroupRef>,
    memory: Option<CgroupRef>,
    known: &Knobs,
) -> Vec<KnobLoop> {
    let mut all = Vec::new();
    let on = options.on;
    // Processors are confined as an option only.
    let cpuset = cpu.as_ref().filter(|_| options.cores);
    for (controller, place) in GIVEN.into_iter().zip([cpu.as_ref(), memory.as_ref(), cpuset]) {
        if let Some(place) = place.filter(|place| place.hierarchy == Hierarchy::V2) {
            let setting = Setting::SubtreeControl { controller, on: true };
            all.push(KnobLoop::new(place.clone(), setting, Why::Controller(controller.name().into())));
        }
    }
    if let Some(place) = memory.filter(|place| place.hierarchy == Hierarchy::V2 && on.memory_protection) {
        let knew = |knob: Knob| known.all.iter().any(|k| k.knob() == knob);
        // Nothing is written where nothing is promised and never was.
        if !inner.min.value.is_zero() || knew(Knob::MemoryMin) {
            let setting = Setting::MemoryMin(Limit::Value(inner.min.value));
            all.push(KnobLoop::new(place.clone(), setting, inner.min.reason.clone()));
        }
        if !inner.low.value.is_zero() || knew(Knob::MemoryLow) {
            let setting = Setting::MemoryLow(Limit::Value(inner.low.value));
            all.push(KnobLoop::new(place, setting, inner.low.reason.clone()));
        }
    }
    if let Some(place) = cpu {
        if place.hierarchy == Hierarchy::V2 && on.cpu_weight {
            let Wish { value, reason } = inner.weight.clone();
            all.push(KnobLoop::new(place, Setting::CpuWeight(value), reason));
        } else if place.hierarchy != Hierarchy::V2 && on.cpu_shares {
            let Wish { value, reason } = inner.shares.clone();
            all.push(KnobLoop::new(place, Setting::CpuShares(value), reason));
        }
    }
    all
}

fn told(path: &str, knob: &KnobLoop, event: KnobEvent) -> Option<Draft> {
    let (kind, reason, result) = match event.state {
        KnobState::Dirty | KnobState::Doubted | KnobState::Held { .. } => return None,
        KnobState::Right => (DecisionKind::Set, knob.reason.text(), DecisionResult::Done),
        KnobState::Would => (DecisionKind::Set, knob.reason.text(), DecisionResult::WouldDo),
        KnobState::Denied { why, remedy } => {
            (DecisionKind::Denied, sentence(why, remedy), DecisionResult::Denied)
        }
        KnobState::Rejected { why, remedy } => {
            (DecisionKind::Denied, sentence(why, remedy), DecisionResult::Rejected)
        }
        KnobState::Contended => {
            let reason = "somebody else keeps rewriting it; it is left alone".to_owned();
            (DecisionKind::Contended, reason, DecisionResult::Unchanged)
        }
    };
    let draft = Draft::node(kind, reason)
        .knob(knob.knob().name())
        .values(event.old.map(|old| old.to_string()), Some(knob.wanted.to_string()))
        .inputs(knob.reason.inputs())
        .input("cgroup", path)
        .result(result);
    Some(draft)
}

fn given_back(path: &str, knob: Knob, ours: Setting, original: Setting, outcome: &Outcome) -> Draft {
    Draft::node(DecisionKind::Set, "no container below it needs it any more: what it held before is put back")
        .knob(knob.name())
        .values(Some(ours.to_string()), Some(original.to_string()))
        .input("cgroup", path)
        .result(result_of(outcome))
}

fn sentence(why: String, remedy: Option<String>) -> String {
    match remedy {
        Some(remedy) => format!("{why}; {remedy}"),
        None => why,
    }
}
