//! The table of containers: from a merged list and a plan to containers with loops, and to changes of the tracked set.
//!
//! Owned here: which containers are kept, made new or dropped when the desired state changes; slots. Not owned:
//! turns ([`super`]), merging ([`crate::reconcile`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::{CgroupFacts, HostReader};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit, MilliCpu, OomScoreAdj};
use evenkeel_model::workload::{Requested, ScorePolicy, SourceKind, Workload};
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::cores::{Allocation, wanted};
use evenkeel_qos::cpu::{WeightConversion, shares_from_milli};
use evenkeel_qos::desired::{self, ContainerInputs, Desired, NodeInputs, NodeView, Protection};
use evenkeel_qos::fair::Allotment;
use evenkeel_qos::own::{InnerCgroup, Leaf, below};
use evenkeel_qos::plan::{ContainerPlan, PlanStatus, Wish};
use evenkeel_qos::rules::cpu_request_of;

use super::container::{Scores, TrackedContainer};
use super::incomplete::Incomplete;
use super::knob::KnobLoop;
use super::knobs::Knobs;
use super::members::Target;
use super::score::ScoreLoop;
use super::wake::Key;
use super::wishes::{self, WantedSetting, place_of};
use crate::converge::rules::Switches;
use crate::decisions::Draft;
use crate::reconcile::Bound;
use crate::shared::{TrackChange, Tracked};
use crate::stats::Stats;

/// Shares from which the three conversions give weights far enough apart to be told from each other.
const TELLING_SHARES: u32 = 100;

/// What planning needs besides the containers.
pub(super) struct Rules {
    pub(super) facts: NodeFacts,
    pub(super) plan: PlanConfig,
    pub(super) switches: Switches,
    pub(super) score: ScorePolicy,
    /// Subtrees given to us.
    pub(super) own: Vec<String>,
    /// Who has processors of its own; `None` while nobody has.
    pub(super) allocation: Option<Allocation>,
    /// When the agent started, clock ticks since boot.
    pub(super) agent_started: u64,
    /// The conversion of weights is to be read from a container the runtime made.
    pub(super) detect_weight: bool,
}

/// What a rule that remembers something decided of one container.
pub(super) enum Input {
    /// Its fair part of the CPU.
    Part(Allotment),
    /// Its score by use and priority.
    Score(Wish<OomScoreAdj>),
}

/// Every container, by a number that is never reused.
pub(super) struct Table {
    /// Boxed: nodes that were filled in ascending order are half empty.
    containers: BTreeMap<Key, Box<TrackedContainer>>,
    by_id: HashMap<String, Key>,
    next_key: Key,
    next_slot: u32,
    incomplete: Incomplete,
    /// Cgroups of containers that cannot be read now, for another reason than that they are gone.
    unread: BTreeSet<String>,
    /// Containers whose cgroup could not be read when they were to be planned anew.
    unplanned: BTreeSet<Key>,
    /// Changes the sampler has not taken yet.
    pending: VecDeque<TrackChange>,
    changes: Option<SyncSender<TrackChange>>,
}

/// What applying a desired state did.
#[derive(Debug, Default)]
pub(super) struct TableChanges {
    /// Containers that are new or wish something else.
    pub(super) changed: Vec<Key>,
    /// Containers that are no more.
    pub(super) removed: Vec<(Key, Box<TrackedContainer>)>,
    /// Decisions made.
    pub(super) drafts: Vec<Draft>,
    /// Bindings whose cgroup vanished between resolving and reading.
    pub(super) vanished: Vec<Arc<Workload>>,
}

impl Table {
    /// An empty table that tells `changes` what is tracked; without it nobody samples.
    pub(super) fn new(changes: Option<SyncSender<TrackChange>>) -> Self {
        Self {
            containers: BTreeMap::new(),
            by_id: HashMap::new(),
            next_key: 1,
            next_slot: 1,
            incomplete: Incomplete::default(),
            unread: BTreeSet::new(),
            unplanned: BTreeSet::new(),
            pending: VecDeque::new(),
            changes,
        }
    }

    /// Brings the table to the desired state.
    pub(super) fn apply(
        &mut self,
        reader: &dyn HostReader,
        rules: &mut Rules,
        bound: Vec<Bound>,
    ) -> TableChanges {
        let mut applied = TableChanges::default();
        let wanted: HashSet<&str> = bound.iter().map(|bound| bound.workload.id.as_str()).collect();
        let stale: Vec<Key> =
            self.by_id.iter().filter(|(id, _)| !wanted.contains(id.as_str())).map(|(_, key)| *key).collect();
        for key in stale {
            self.drop_container(key, "no source reports it any more", &mut applied);
        }
        for key in self.incomplete.changed(reader, Instant::now()) {
            self.drop_container(key, "its cgroup was made in another hierarchy too", &mut applied);
        }
        let before = std::mem::take(&mut self.unread);
        for bound in bound {
            self.apply_one(reader, rules, bound, &before, &mut applied);
        }
        for key in std::mem::take(&mut self.unplanned) {
            self.replan_as_it_is(reader, rules, key, &mut applied);
        }
        applied
    }

    /// Cgroups of containers that cannot be read now.
    pub(super) fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.iter().map(String::as_str)
    }

    /// Everybody is in the table, and planned by what holds now.
    pub(super) fn is_whole(&self) -> bool {
        self.unread.is_empty() && self.unplanned.is_empty()
    }

    fn apply_one(
        &mut self,
        reader: &dyn HostReader,
        rules: &mut Rules,
        bound: Bound,
        before: &BTreeSet<String>,
        applied: &mut TableChanges,
    ) {
        if let Some(&key) = self.by_id.get(&bound.workload.id)
            && let Some(container) = self.containers.get_mut(&key)
        {
            if *container.tracked.cgroup == *bound.path {
                if container.tracked.workload != bound.workload {
                    self.replan(reader, rules, key, bound.workload, applied);
                }
                return;
            }
            self.drop_container(key, "it moved to another cgroup", applied);
        }
        let facts = match reader.cgroup(&bound.path) {
            Ok(facts) => facts,
            Err(error) => {
                if !error.is_gone() {
                    if !before.contains(&bound.path) {
                        tracing::warn!(cgroup = %bound.path, %error, "a container's cgroup cannot be read; trying again");
                    }
                    self.unread.insert(bound.path);
                }
                applied.vanished.push(bound.workload);
                return;
            }
        };
        detect_weight(rules, &bound.workload, &facts);
        self.insert(reader, rules, bound, &facts, applied);
    }

    fn insert(
        &mut self,
        reader: &dyn HostReader,
        rules: &Rules,
        bound: Bound,
        facts: &CgroupFacts,
        applied: &mut TableChanges,
    ) {
        let Some(processes_at) = facts.processes_at().cloned() else { return };
        let workload = bound.workload;
        let can_idle = place_of(facts, Knob::CpuIdle).is_some();
        let found = ContainerInputs {
            workload: &workload,
            path: &facts.path,
            can_idle,
            part: None,
            score: None,
            held: Protection::default(),
        };
        let planned = desired::container(&rules.node(&BTreeMap::new()), &found);
        let knobs = rules.knobs(&workload, &planned, facts);
        let tracked = self.track(&workload, &planned, &facts.path, processes_at.inode);
        let key = self.next_key;
        self.next_key += 1;
        applied.drafts.push(
            Draft::of(&workload, DecisionKind::Found, format!("found by {}", source_name(workload.source)))
                .input("cgroup", &facts.path)
                .input("inode", processes_at.inode),
        );
        applied.drafts.push(classified(&workload, &planned));
        let container = Box::new(TrackedContainer {
            freezer: place_of(facts, Knob::FreezerState).or_else(|| place_of(facts, Knob::CgroupFreeze)),
            cores: cores_of(&planned, &workload, facts),
            cpuset: place_of(facts, Knob::CpusetCpus),
            memory: place_of(facts, Knob::MemoryLimit).or_else(|| place_of(facts, Knob::MemoryMax)),
            cpu: place_of(facts, Knob::CpuShares).or_else(|| place_of(facts, Knob::CpuWeight)),
            unmanaged: unmanaged(&planned),
            scores: scores(rules, &workload, &planned),
            knobs: Knobs::new(knobs),
            generation: 1,
            verified_at_usec: None,
            processes: 0,
            agent_started: Some(rules.agent_started),
            noticed: Some(Instant::now()),
            whole: true,
            judged: 0,
            stale: true,
            can_idle,
            score_by_use: None,
            part: None,
            processes_at,
            tracked,
        });
        self.incomplete.found(reader, key, facts, Instant::now());
        self.by_id.insert(workload.id.clone(), key);
        self.containers.insert(key, container);
        applied.changed.push(key);
    }

    /// The same cgroup wishes something else: loops keep what they know, the generation grows.
    fn replan(
        &mut self,
        reader: &dyn HostReader,
        rules: &Rules,
        key: Key,
        workload: Arc<Workload>,
        applied: &mut TableChanges,
    ) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        let path = Arc::clone(&container.tracked.cgroup);
        let facts = match reader.cgroup(&path) {
            Ok(facts) => facts,
            Err(error) => {
                // One that is gone is dropped when its turn comes.
                if !error.is_gone() {
                    self.unplanned.insert(key);
                }
                return;
            }
        };
        self.unplanned.remove(&key);
        container.can_idle = place_of(&facts, Knob::CpuIdle).is_some();
        let planned = desired::container(&rules.node(&BTreeMap::new()), &container.inputs_with(&workload));
        let fresh_knobs = rules.knobs(&workload, &planned, &facts);
        let tracked = Tracked {
            // Its counters go on.
            slot: container.tracked.slot,
            workload: Arc::clone(&workload),
            classes: planned.classes,
            cgroup: path,
            inode: container.processes_at.inode,
        };
        container.tracked = Arc::new(tracked);
        self.pending.push_back(TrackChange::Added(Arc::clone(&container.tracked)));
        container.cores = cores_of(&planned, &workload, &facts);
        container.unmanaged = unmanaged(&planned);
        let fresh = scores(rules, &workload, &planned);
        match (container.scores.as_mut(), fresh) {
            (Some(had), Some(wish)) => {
                had.looper.retarget(wish.looper.target());
                had.reason = wish.reason;
                had.retry();
            }
            (_, wish) => container.scores = wish,
        }
        if planned.classes.memory != Some(QosClass::Burstable) {
            container.score_by_use = None;
        }
        container.knobs.replace(fresh_knobs);
        container.whole = true;
        container.judged = 0;
        container.stale = true;
        container.generation += 1;
        container.noticed = Some(Instant::now());
        applied.drafts.push(classified(&workload, &planned));
        applied.changed.push(key);
    }

    /// Plans every container anew, after the rules changed.
    pub(super) fn replan_all(&mut self, reader: &dyn HostReader, rules: &Rules) -> TableChanges {
        let mut applied = TableChanges::default();
        let keys: Vec<Key> = self.containers.keys().copied().collect();
        for key in keys {
            self.replan_as_it_is(reader, rules, key, &mut applied);
        }
        applied
    }

    fn replan_as_it_is(
        &mut self,
        reader: &dyn HostReader,
        rules: &Rules,
        key: Key,
        applied: &mut TableChanges,
    ) {
        if let Some(workload) = self.containers.get(&key).map(|c| Arc::clone(&c.tracked.workload)) {
            self.replan(reader, rules, key, workload, applied);
        }
    }

    /// Takes new wishes for every container whose requirements are as before: something around them changed. Keys of
    /// those that wish something else now.
    pub(super) fn renew(&mut self, reader: &dyn HostReader, rules: &Rules) -> Vec<Key> {
        let mut changed = Vec::new();
        let desired = self.desired(rules, &BTreeMap::new()).containers;
        for ((key, container), planned) in self.containers.iter_mut().zip(&desired) {
            let facts = match reader.cgroup(&container.tracked.cgroup) {
                Ok(facts) => facts,
                Err(error) => {
                    if !error.is_gone() {
                        self.unplanned.insert(*key);
                    }
                    continue;
                }
            };
            let fresh = rules.knobs(&container.tracked.workload, planned, &facts);
            let same = fresh.len() == container.knobs.all.len()
                && fresh.iter().all(|wish| container.knobs.all.iter().any(|had| had.wanted == wish.wanted));
            if same {
                // Reasons may be others.
                let settings = rules.settings(&container.tracked.workload, planned);
                container.take(planned, &settings);
                continue;
            }
            container.knobs.replace(fresh);
            container.generation += 1;
            (container.judged, container.whole, container.stale) = (0, true, true);
            changed.push(*key);
        }
        changed
    }

    /// The whole desired state of the node as of now. `parts`: fair parts of cgroups between owned roots and containers.
    pub(super) fn desired(&self, rules: &Rules, parts: &BTreeMap<String, Allotment>) -> Desired {
        let containers = self.iter().map(TrackedContainer::inputs).collect();
        desired::desired(&NodeView { node: rules.node(parts), containers })
    }

    /// What is desired of cgroups between owned roots and containers: the same as [`Table::desired`] has it, without
    /// making what is desired of the containers again.
    pub(super) fn inner(
        &self,
        rules: &Rules,
        parts: &BTreeMap<String, Allotment>,
    ) -> BTreeMap<String, InnerCgroup> {
        let leaves: Vec<Leaf> = self.iter().filter(|c| c.unmanaged.is_none()).map(leaf).collect();
        desired::inner(&rules.node(parts), &leaves)
    }

    /// Takes another input of one container's in: its part of the CPU, or its score by use. True when something may have
    /// to be written.
    pub(super) fn give(&mut self, rules: &Rules, key: Key, input: Input) -> bool {
        let Some(container) = self.containers.get_mut(&key) else { return false };
        match input {
            Input::Part(part) if container.part.as_deref() == Some(&part) => return false,
            Input::Part(part) => container.part = Some(Box::new(part)),
            Input::Score(wish) => container.score_by_use = Some(wish),
        }
        let planned = desired::container(&rules.node(&BTreeMap::new()), &container.inputs());
        let workload = Arc::clone(&container.tracked.workload);
        let settings = rules.settings(&workload, &planned);
        container.take(&planned, &settings)
    }

    /// When a container whose cgroup was not made in every hierarchy is looked at again.
    pub(super) fn incomplete_due(&self) -> Option<Instant> {
        self.incomplete.due()
    }

    /// A container's cgroup is gone, whatever the sources still say.
    pub(super) fn gone(&mut self, key: Key) -> TableChanges {
        let mut applied = TableChanges::default();
        self.drop_container(key, "its cgroup is gone", &mut applied);
        applied
    }

    fn drop_container(&mut self, key: Key, why: &str, applied: &mut TableChanges) {
        let Some(container) = self.containers.remove(&key) else { return };
        self.incomplete.forget(key);
        self.unplanned.remove(&key);
        let workload = &container.tracked.workload;
        if self.by_id.get(&workload.id) == Some(&key) {
            self.by_id.remove(&workload.id);
        }
        self.pending.push_back(TrackChange::Removed { slot: container.tracked.slot });
        let draft = Draft::of(workload, DecisionKind::Gone, why)
            .input("cgroup", &container.tracked.cgroup)
            .result(DecisionResult::Gone);
        applied.drafts.push(draft);
        applied.removed.push((key, container));
    }

    fn track(
        &mut self,
        workload: &Arc<Workload>,
        plan: &ContainerPlan,
        path: &str,
        inode: u64,
    ) -> Arc<Tracked> {
        let slot = self.next_slot;
        self.next_slot = self.next_slot.saturating_add(1);
        let tracked = Arc::new(Tracked {
            slot,
            workload: Arc::clone(workload),
            classes: plan.classes,
            cgroup: path.into(),
            inode,
        });
        self.pending.push_back(TrackChange::Added(Arc::clone(&tracked)));
        tracked
    }

    /// Hands pending changes to the sampler; what it has no room for waits for the next pass.
    pub(super) fn hand_over(&mut self, stats: &Stats) {
        let Some(changes) = &self.changes else {
            self.pending.clear();
            return;
        };
        while let Some(change) = self.pending.pop_front() {
            match changes.try_send(change) {
                Ok(()) => {}
                Err(TrySendError::Full(change)) => {
                    stats.track_changes_deferred.add(1);
                    self.pending.push_front(change);
                    return;
                }
                // Nobody samples any more: the agent is ending.
                Err(TrySendError::Disconnected(_)) => {
                    self.pending.clear();
                    return;
                }
            }
        }
    }

    /// One container.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut TrackedContainer> {
        self.containers.get_mut(&key).map(AsMut::as_mut)
    }

    /// One container.
    pub(super) fn by_id(&self, id: &str) -> Option<&TrackedContainer> {
        self.by_id.get(id).and_then(|key| self.get(*key))
    }

    /// One container.
    pub(super) fn get(&self, key: Key) -> Option<&TrackedContainer> {
        self.containers.get(&key).map(AsRef::as_ref)
    }

    /// Keys after `key`, round and round: the order of audits.
    pub(super) fn after(&self, key: Key) -> Option<Key> {
        let next = self.containers.range(key + 1..).next().or_else(|| self.containers.iter().next());
        next.map(|(key, _)| *key)
    }

    /// Keys of the containers of which something holds.
    pub(super) fn keys_of(&self, holds: impl Fn(&TrackedContainer) -> bool) -> Vec<Key> {
        self.containers.iter().filter(|(_, container)| holds(container)).map(|(key, _)| *key).collect()
    }

    /// Every container's key.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.containers.keys().copied()
    }

    /// Every container with its key.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Key, &TrackedContainer)> {
        self.containers.iter().map(|(key, container)| (*key, container.as_ref()))
    }

    /// Every container, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut TrackedContainer)> {
        self.containers.iter_mut().map(|(key, container)| (*key, container.as_mut()))
    }

    /// Every container.
    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedContainer> {
        self.containers.values().map(AsRef::as_ref)
    }

    /// Number of containers.
    pub(super) fn len(&self) -> usize {
        self.containers.len()
    }
}

/// What a container counts as for its ancestors: the larger of what it is to hold and what it still holds, so that an
/// ancestor never lets go of what a leaf has not.
fn leaf(container: &TrackedContainer) -> Leaf {
    let held = container.held();
    let wanted = |knob: Knob| match container.knobs.all.iter().find(|k| k.knob() == knob).map(|k| k.wanted) {
        Some(Setting::MemoryMin(Limit::Value(v)) | Setting::MemoryLow(Limit::Value(v))) => v,
        _ => Bytes::ZERO,
    };
    Leaf {
        path: container.tracked.cgroup.to_string(),
        min: wanted(Knob::MemoryMin).max(held.min),
        low: wanted(Knob::MemoryLow).max(held.low),
        request: cpu_request_of(&container.tracked.workload.requested).unwrap_or(MilliCpu::ZERO),
    }
}

/// How many processors of its own a container asks for, where its cgroup can be confined to them.
fn cores_of(planned: &ContainerPlan, workload: &Workload, facts: &CgroupFacts) -> Option<usize> {
    wanted(planned, &workload.requested).filter(|_| place_of(facts, Knob::CpusetCpus).is_some())
}

impl Rules {
    /// What holds for the whole node. `parts`: fair parts of cgroups between owned roots and containers, which no
    /// container's own state follows from.
    fn node<'a>(&'a self, parts: &'a BTreeMap<String, Allotment>) -> NodeInputs<'a> {
        let cores = self.allocation.as_ref();
        NodeInputs { facts: &self.facts, config: &self.plan, own: &self.own, cores, parts }
    }

    /// Every setting that follows from what is desired of a container.
    pub(super) fn settings<'a>(
        &self,
        workload: &Workload,
        planned: &'a ContainerPlan,
    ) -> Vec<WantedSetting<'a>> {
        let alone = self.allocation.as_ref().is_some_and(|a| a.exclusive.contains_key(&workload.id));
        wishes::settings(&self.switches, workload, &planned.wishes, alone)
    }

    fn knobs(&self, workload: &Workload, planned: &ContainerPlan, facts: &CgroupFacts) -> Vec<KnobLoop> {
        let is_owned = self.own.iter().any(|root| below(root, &facts.path));
        wishes::knobs(&self.settings(workload, planned), facts, is_owned)
    }
}

fn unmanaged(planned: &ContainerPlan) -> Option<String> {
    match &planned.standing {
        PlanStatus::Planned if planned.wishes.is_empty() => {
            Some("every knob that applies to it is off".into())
        }
        PlanStatus::Planned => None,
        PlanStatus::Unmanaged(why) | PlanStatus::Unclassified(why) => Some(why.clone()),
    }
}

fn scores(rules: &Rules, workload: &Workload, planned: &ContainerPlan) -> Option<Scores> {
    let wish = planned.wishes.oom_score_adj.clone()?;
    let policy = match (rules.score, workload.score_policy) {
        (ScorePolicy::Respect, ScorePolicy::Respect) => ScorePolicy::Respect,
        _ => ScorePolicy::Pin,
    };
    Some(Scores::new(ScoreLoop::new(Target { score: wish.value, policy }), wish.reason))
}

fn classified(workload: &Workload, planned: &ContainerPlan) -> Draft {
    let reason = match &planned.standing {
        PlanStatus::Unmanaged(why) | PlanStatus::Unclassified(why) => why.clone(),
        PlanStatus::Planned => planned.class_reason.text(),
    };
    let class = planned.qos_class.map_or("none", |class| class.as_str());
    Draft::of(workload, DecisionKind::Classified, reason)
        .values(None, Some(class.to_owned()))
        .inputs(planned.class_reason.inputs())
        .input("estimated", planned.estimated)
}

/// The source's name in output.
pub fn source_name(source: SourceKind) -> &'static str {
    match source {
        SourceKind::Manifests => "manifests",
        SourceKind::Cri => "cri",
        SourceKind::Systemd => "systemd",
        SourceKind::Kubernetes => "kubernetes",
        SourceKind::Names => "names",
    }
}

/// Reads which conversion the runtime uses off a container that it made: its shares are known from the runtime's
/// record, its weight from the kernel. Only once, and only where exactly one conversion explains it.
fn detect_weight(rules: &mut Rules, workload: &Workload, facts: &CgroupFacts) {
    if !rules.detect_weight {
        return;
    }
    let Requested::Estimated(estimate) = workload.requested else { return };
    let Some(Setting::CpuWeight(weight)) = facts.value(Knob::CpuWeight) else { return };
    let Some(shares) = estimate.resources.cpu_request.map(shares_from_milli) else { return };
    if shares.get() < TELLING_SHARES {
        return;
    }
    let all = [WeightConversion::Linear, WeightConversion::Quadratic, WeightConversion::Systemd];
    let mut fitting = all.into_iter().filter(|conversion| conversion.weight_from_shares(shares) == weight);
    if let (Some(conversion), None) = (fitting.next(), fitting.next()) {
        rules.detect_weight = false;
        tracing::info!(%conversion, container = %workload.id, %weight, %shares, "the runtime's conversion of CPU weight");
        rules.plan.cpu_weight = conversion;
    }
}
