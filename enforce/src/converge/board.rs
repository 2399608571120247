//! What status shows, kept up to date by the converger and read by whoever serves it.

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use evenkeel_host::knob::Setting;
use evenkeel_model::workload::Workload;

use super::container::{State, TrackedContainer, state_of};
use super::knob::{self, KnobLoop};
use super::roster::{Roster, RosterEntry};
use super::wake::Key;
use crate::admission::PodName;
use crate::shared::{Waker, lock};
pub use view::{Cause, ContainerView, KnobView, NodeKnob, Reason, SourceView, Trouble, WakeView};

/// What to do about two owners of one knob.
pub(super) const LET_ONE_OWN: &str = "turn the knob off there or in [knobs] here";

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
