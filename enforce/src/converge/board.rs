//! What status shows, kept up to date by the converger and read by whoever serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use evenkeel_host::knob::Setting;
use evenkeel_model::workload::{SourceKind, Workload};
use evenkeel_qos::why::Why;

use super::container::{State, TrackedContainer, state_of};
use super::knob::{self, KnobLoop};
use super::roster::{Roster, RosterEntry};
use super::wake::Key;
use crate::admission::PodName;
use crate::shared::{SourceProblem, Tracked, Waker, lock};

/// What to do about two owners of one knob.
pub(super) const LET_ONE_OWN: &str = "turn the knob off there or in [knobs] here";

/// One container as status shows it.
#[derive(Debug, Clone)]
pub struct ContainerView {
    /// Who it is.
    pub tracked: Arc<Tracked>,
    /// The worst of its parts.
    pub state: State,
    /// Number of its present wish.
    pub generation: u64,
    /// When all processes were last seen right, microseconds since 1970.
    pub verified_at_usec: Option<u64>,
    /// Processes seen then.
    pub processes: u32,
    /// Its knobs.
    pub knobs: Vec<KnobView>,
    /// Why it is sampled only.
    pub unmanaged: Option<String>,
}

/// One knob as status shows it. Text of it is made for who asks: one is kept for every knob of every container.
#[derive(Debug, Clone)]
pub struct KnobView {
    /// Value wished.
    pub wanted: Setting,
    /// Value last read back.
    pub actual: Option<Setting>,
    /// Where it stands.
    pub state: State,
    /// Why it should be so, or why it is not.
    pub reason: Reason,
    /// What is wrong with it for as long as it lasts: contended or without effect.
    pub trouble: Option<Box<Trouble>>,
}

impl KnobView {
    /// Kernel's name.
    pub fn name(&self) -> &'static str {
        self.wanted.knob().name()
    }
}

/// Why a knob should hold what is wished, or why it does not.
#[derive(Debug, Clone)]
pub enum Reason {
    /// The rule that wishes it, or by which it has no effect.
    Rule(Arc<Why>),
    /// What stands against it.
    Against(Arc<str>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(why) => f.write_str(&why.text()),
            Self::Against(text) => f.write_str(text),
        }
    }
}

/// Something that lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// How often it was seen.
    pub count: u32,
    /// When it was seen first, microseconds since 1970.
    pub since_usec: u64,
    /// What it comes from.
    pub cause: Cause,
}

/// What a trouble comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Somebody else writes it: this, where that could be read.
    Rewritten(Option<Box<str>>),
    /// An ancestor takes the effect away.
    Ineffective(Arc<Why>),
}

impl Trouble {
    /// The ancestor that takes the effect away, or the value somebody else writes.
    pub fn by(&self) -> String {
        match &self.cause {
            Cause::Rewritten(value) => {
                value.as_ref().map(|value| format!("rewritten to {value}")).unwrap_or_default()
            }
            Cause::Ineffective(why) => why.lost().map(|lost| lost.by).unwrap_or_default(),
        }
    }

    /// What a person can do.
    pub fn remedy(&self) -> String {
        match &self.cause {
            Cause::Rewritten(_) => LET_ONE_OWN.to_owned(),
            Cause::Ineffective(why) => why.lost().map(|lost| lost.remedy).unwrap_or_default(),
        }
    }
}

/// One source as status shows it.
#[derive(Debug, Clone)]
pub struct SourceView {
    /// Which.
    pub kind: SourceKind,
    /// Directory or socket.
    pub address: String,
    /// It can be read.
    pub healthy: bool,
    /// Containers it sees.
    pub containers: usize,
    /// What it could not use.
    pub problems: Vec<SourceProblem>,
}

/// One knob of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKnob {
    /// Kernel's name.
    pub name: &'static str,
    /// `ok`, `off`, `denied`, `unsupported`.
    pub state: &'static str,
    /// Why it is not ok.
    pub why: String,
    /// What a person can do.
    pub remedy: String,
}

/// How new processes are noticed.
#[derive(Debug, Clone, Default)]
pub struct WakeView {
    /// Process events arrive.
    pub process_events: bool,
    /// Changes of the cgroup tree arrive.
    pub cgroup_events: bool,
    /// Why one is missing.
    pub why: Option<String>,
}

/// The whole.
#[derive(Default)]
pub struct Board {
    inner: Mutex<BoardState>,
}

#[derive(Default)]
struct BoardState {
    containers: BTreeMap<Key, Arc<ContainerView>>,
    sources: Vec<SourceView>,
    knobs: Vec<NodeKnob>,
    wake: WakeView,
    /// Containers whose cgroup is not there.
    waiting: Vec<Arc<Workload>>,
    /// Pods of manifests that were not admitted.
    refused: Arc<BTreeSet<PodName>>,
    roster: Roster,
    /// Rung when the roster changes.
    bells: Vec<Waker>,
}

impl Board {
    /// Shows a container as it is now.
    pub(super) fn show(&self, key: Key, container: &mut TrackedContainer) {
        let mut inner = lock(&self.inner);
        let state = container.state();
        // An audit that found all as before changes a time and a number only.
        if let Some(view) = inner.containers.get_mut(&key)
            && view.state == state
            && state == State::Converged
            && !container.stale
            && view.generation == container.generation
            && Arc::ptr_eq(&view.tracked, &container.tracked)
        {
            // Copied only while somebody is being shown it.
            let view = Arc::make_mut(view);
            view.verified_at_usec = container.verified_at_usec;
            view.processes = container.processes;
            return;
        }
        container.stale = false;
        inner.containers.insert(key, Arc::new(view(container)));
    }

    /// A container is no more.
    pub(super) fn remove(&self, key: Key) {
        lock(&self.inner).containers.remove(&key);
    }

    /// Shows the sources and what waits for its cgroup.
    pub(super) fn show_sources(&self, sources: Vec<SourceView>, waiting: Vec<Arc<Workload>>) {
        let mut inner = lock(&self.inner);
        inner.sources = sources;
        inner.waiting = waiting;
    }

    /// Shows how new processes are noticed.
    pub(super) fn show_wake(&self, wake: WakeView) {
        lock(&self.inner).wake = wake;
    }

    /// Shows a knob of the node; true when that is news.
    pub fn show_knob(&self, knob: NodeKnob) -> bool {
        let mut inner = lock(&self.inner);
        match inner.knobs.iter_mut().find(|known| known.name == knob.name) {
            Some(known) => {
                let news = known.state != knob.state;
                *known = knob;
                news
            }
            None => {
                inner.knobs.push(knob);
                true
            }
        }
    }

    /// Every container. Cheap: they are shared.
    pub fn containers(&self) -> Vec<Arc<ContainerView>> {
        lock(&self.inner).containers.values().map(Arc::clone).collect()
    }

    /// Replaces the list that other threads look at.
    pub(crate) fn publish_roster(&self, entries: Vec<RosterEntry>) {
        let mut inner = lock(&self.inner);
        inner.roster.generation += 1;
        inner.roster.entries = entries.into();
        inner.bells.iter().for_each(Waker::wake);
    }

    /// Registers a thread that is to be woken when the roster changes.
    pub(crate) fn on_roster(&self, bell: Waker) {
        lock(&self.inner).bells.push(bell);
    }

    /// Every container as other threads need it. Cheap: the list is shared, and made anew only when it changes.
    pub(crate) fn roster(&self) -> Arc<Vec<RosterEntry>> {
        Arc::clone(&lock(&self.inner).roster.entries)
    }

    /// Grows with each change of the roster, so that whoever keeps something by container knows when to look again.
    pub(crate) fn roster_generation(&self) -> u64 {
        lock(&self.inner).roster.generation
    }

    /// Every source.
    pub fn sources(&self) -> Vec<SourceView> {
        lock(&self.inner).sources.clone()
    }

    /// Every knob of the node.
    pub fn knobs(&self) -> Vec<NodeKnob> {
        lock(&self.inner).knobs.clone()
    }

    /// How new processes are noticed.
    pub fn wake(&self) -> WakeView {
        lock(&self.inner).wake.clone()
    }

    /// Containers whose cgroup is not there, by name.
    pub fn waiting(&self) -> Vec<String> {
        let name = |w: &Arc<Workload>| format!("{}/{}/{}", w.pod.namespace, w.pod.name, w.container);
        lock(&self.inner).waiting.iter().map(name).collect()
    }

    /// Containers whose cgroup is not there.
    pub fn waiting_workloads(&self) -> Vec<Arc<Workload>> {
        lock(&self.inner).waiting.clone()
    }

    /// Shows which pods of manifests were not admitted.
    pub(super) fn show_refused(&self, refused: BTreeSet<PodName>) {
        lock(&self.inner).refused = Arc::new(refused);
    }

    /// Pods of manifests that were not admitted.
    pub fn refused(&self) -> Arc<BTreeSet<PodName>> {
        Arc::clone(&lock(&self.inner).refused)
    }
}

fn view(container: &TrackedContainer) -> ContainerView {
    let scores = container.scores.iter().map(|scores| {
        let wanted = Setting::OomScoreAdj(scores.looper.target().score);
        let actual = (scores.state == State::Converged).then_some(wanted);
        let reason = match &scores.trouble {
            Some((why, remedy)) => against(why, remedy.as_deref()),
            None => Reason::Rule(Arc::clone(&scores.reason)),
        };
        let trouble = (scores.state == State::Contended).then(|| Box::new(scores.contended()));
        KnobView { wanted, actual, state: scores.state, reason, trouble }
    });
    let knobs = container.knobs.all.iter().map(knob_view);
    ContainerView {
        tracked: Arc::clone(&container.tracked),
        state: container.state(),
        generation: container.generation,
        verified_at_usec: container.verified_at_usec,
        processes: container.processes,
        knobs: scores.chain(knobs).collect(),
        unmanaged: container.unmanaged.clone(),
    }
}

/// One knob of a cgroup.
pub(super) fn knob_view(knob: &KnobLoop) -> KnobView {
    let contended = matches!(knob.state, knob::KnobState::Contended).then(|| Trouble {
        count: knob.rewrites.count,
        since_usec: knob.rewrites.since_usec,
        cause: Cause::Rewritten(knob.actual.map(|value| value.to_string().into())),
    });
    let ineffective = || knob.ineffective.as_ref().map(|ineffective| ineffective.trouble());
    KnobView {
        wanted: knob.wanted,
        actual: knob.actual,
        state: state_of(knob),
        reason: match (&knob.state, &knob.ineffective) {
            (knob::KnobState::Denied { why, remedy } | knob::KnobState::Rejected { why, remedy }, _) => {
                against(why, remedy.as_deref())
            }
            (knob::KnobState::Contended, _) => {
                Reason::Against("somebody else keeps rewriting it; it is left alone".into())
            }
            (knob::KnobState::Held { why }, _) => Reason::Against(why.as_str().into()),
            (knob::KnobState::Right, Some(ineffective)) => Reason::Rule(Arc::clone(&ineffective.why)),
            _ => Reason::Rule(Arc::clone(&knob.reason)),
        },
        trouble: contended.or_else(ineffective).map(Box::new),
    }
}

fn against(why: &str, remedy: Option<&str>) -> Reason {
    Reason::Against(remedy.map_or_else(|| why.into(), |remedy| format!("{why}; {remedy}").into()))
}
