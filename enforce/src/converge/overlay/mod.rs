//! Recommended requests taken step by step, in the place of those that were asked for.
//!
//! Owned here: whose turn it is, the proof that a step took effect, undoing one that did not, and going back when the
//! recommender withdraws or falls silent. One container at a time on the whole node: score, shares and protection move
//! together, because they are all planned from the same requests. Not owned: how far a step goes
//! (`evenkeel_qos::overlay`), the word itself ([`crate::overlay`]).
//!
//! While the panic switch is on nothing moves, and neither does what is in a namespace that is frozen: what is in force stays in force, whatever the recommender says or does not
//! say meanwhile, or goes back step by step (`back`). What is in force is kept on disk (`kept`), so that a restart of the
//! agent changes nothing: frozen requests hold until the switch is set otherwise, others for `overlay.oldest` from when
//! they were last written, unless a word comes first.

mod back;
pub(crate) mod kept;
pub mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{ContainerResources, Managed, Requested, SourceKind, Workload};
use evenkeel_qos::overlay::{Advised, OverlayCase, changed_class, step};
use evenkeel_qos::rules::defaulted;
use evenkeel_qos::why::Why;

use super::container::State;
use crate::converge::overlay::rules::OverlayRules;
use crate::decisions::Draft;
use crate::overlay::{Advice, InForce, OverlayOffer, OverlayRefusal, Place, Switch};
use crate::reconcile::Bound;
use kept::StoredOverlay;

/// What is in force for one container instead of what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestInForce {
    workload: Workload,
    resources: ContainerResources,
}

/// A step whose effect is not proven yet.
#[derive(Debug)]
struct Flight {
    id: String,
    before: Option<RequestInForce>,
    /// The container's wish before the step.
    generation: u64,
    /// What it was like before: a step must not make it worse.
    state: State,
    since: Instant,
    /// Towards what was asked for: it is not undone.
    back: bool,
}

/// A container as it is now.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedContainer {
    pub(super) generation: u64,
    pub(super) state: State,
    pub(super) processes: u32,
}

/// The node at one look.
pub(super) struct OverlayNode<'a> {
    pub(super) cpu_milli: u64,
    pub(super) memory_bytes: u64,
    /// What all containers together may request: thousandths of a core and bytes. Asked only when a step is due.
    pub(super) allocatable: &'a dyn Fn() -> (u64, u64),
    /// One container.
    pub(super) seen: &'a dyn Fn(&str) -> Option<ObservedContainer>,
    pub(super) dry_run: bool,
}

/// What a look led to.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Requests in force changed: the desired state is to be merged again.
    pub(super) changed: bool,
    pub(super) drafts: Vec<Draft>,
    /// Containers that stay what they are, where that was looked at.
    pub(super) refusals: Option<Vec<OverlayRefusal>>,
}

/// The overlay in force.
#[derive(Debug)]
pub(super) struct Overlay {
    rules: OverlayRules,
    /// What was asked for, by container id, as of the last merge. Bounded by the containers of the node.
    asked: HashMap<String, Workload>,
    standing: BTreeMap<String, RequestInForce>,
    /// Namespaces in which nothing is changed, by the last word, or by that of an earlier run.
    frozen: Arc<BTreeSet<String>>,
    flight: Option<Flight>,
    resting: HashMap<String, Instant>,
    next: Instant,
    /// Word that a dry run has told of.
    told: u64,
    /// What an earlier run left in force, of containers that no source has shown yet.
    remembered: HashMap<String, kept::StoredRequest>,
    /// Until when they may come.
    remember_until: Instant,
    /// Until when what an earlier run left holds without a word.
    grace: Instant,
    /// What an earlier run left holds in frozen namespaces alone: elsewhere it is too old.
    is_grace_over: bool,
    /// What is on disk.
    saved: Option<StoredOverlay>,
    /// When it is compared with what is in force the next time, though nothing is known to have changed.
    keep_at: Instant,
    /// The last word that was looked at for it.
    kept_word: u64,
}

impl Overlay {
    /// Nothing is in force.
    pub(super) fn new(rules: OverlayRules, now: Instant) -> Self {
        Self {
            rules,
            asked: HashMap::new(),
            standing: BTreeMap::new(),
            frozen: Arc::default(),
            flight: None,
            resting: HashMap::new(),
            next: now,
            told: 0,
            remembered: HashMap::new(),
            remember_until: now,
            grace: now,
            is_grace_over: false,
            saved: None,
            keep_at: now,
            kept_word: 0,
        }
    }

    /// Goes on with what an earlier run left in force. The panic switch that held it holds it still, and so does its namespace; otherwise it must
    /// not be older than `overlay.oldest`, by the clock of the machine.
    pub(super) fn resume(
        &mut self,
        kept: StoredOverlay,
        now: Instant,
        now_usec: u64,
    ) -> Option<(Switch, u64)> {
        let age = Duration::from_micros(now_usec.saturating_sub(kept.saved_usec));
        let left = self.rules.oldest.saturating_sub(age);
        self.is_grace_over = kept.panic.is_none() && left.is_zero();
        if self.is_grace_over && kept.frozen.is_empty() {
            return None;
        }
        self.frozen = Arc::new(kept.frozen.clone());
        self.grace = now + left;
        self.remember_until = now + self.rules.oldest;
        self.remembered = kept.containers.iter().map(|s| (s.id.clone(), s.clone())).collect();
        let switch = kept.panic.clone().map(|switch| (switch, kept.made_usec));
        self.saved = Some(kept);
        switch
    }

    /// Whether it is time to look whether something is to be kept: at once after a word of the recommender, else at most
    /// once a second.
    pub(super) fn is_time_to_keep(&mut self, offer: Option<&OverlayOffer>, now: Instant) -> bool {
        let word = offer.map_or(0, |offer| offer.number);
        let due = now >= self.keep_at || word != self.kept_word;
        if due {
            self.keep_at = now + Duration::from_secs(1);
            self.kept_word = word;
        }
        due
    }

    /// What is to be written to disk now; nothing where that is there already.
    pub(super) fn unsaved(
        &mut self,
        offer: Option<&OverlayOffer>,
        boot: &str,
        now_usec: u64,
    ) -> Option<StoredOverlay> {
        let panic = offer.and_then(|offer| offer.panic.clone());
        let namespaces = &self.frozen;
        let of_run = self.standing.iter().map(|(id, standing)| kept::StoredRequest {
            id: id.clone(),
            asked: standing.workload.requested,
            resources: standing.resources,
        });
        let mut containers: Vec<_> = of_run.chain(self.remembered.values().cloned()).collect();
        containers.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let frozen = panic.is_some();
        let same = match &self.saved {
            // Before anything was ever in force there is nothing to keep.
            None => containers.is_empty() && !frozen,
            Some(saved) => {
                let age = Duration::from_micros(now_usec.saturating_sub(saved.saved_usec));
                let fresh = frozen || containers.is_empty() || age < self.rules.oldest / 4;
                let switches = saved.panic == panic && saved.frozen == **namespaces;
                switches && saved.containers == containers && fresh
            }
        };
        if same {
            return None;
        }
        let made_usec = offer.map_or(0, |offer| offer.made_usec);
        let namespaces = BTreeSet::clone(namespaces);
        let kept = StoredOverlay::new(boot, now_usec, panic, made_usec, containers).freezing(namespaces);
        self.saved = Some(kept.clone());
        Some(kept)
    }

    /// Writing failed: it is tried again.
    pub(super) fn not_kept(&mut self) {
        self.saved = None;
    }

    /// When something may have to be done without a new word.
    pub(super) fn due(&self, offer: Option<&OverlayOffer>) -> Option<Instant> {
        let flight = self.flight.as_ref().map(|flight| flight.since + self.rules.patience);
        let some = self.standing.values().any(|standing| !self.is_frozen(&standing.workload));
        if let Some(switch) = offer.and_then(|offer| offer.panic.as_ref()) {
            let next = (switch.revert && some).then_some(self.next);
            return flight.or(next);
        }
        let until = Some(offer.map_or(self.grace, |offer| self.until(offer))).filter(|_| some);
        let next = offer.filter(|offer| !offer.entries.is_empty()).map(|_| self.next);
        [until, flight, next].into_iter().flatten().min()
    }

    /// A word is too old when it says so itself, or when it arrived too long ago.
    fn until(&self, offer: &OverlayOffer) -> Instant {
        offer.until.min(offer.arrived + self.rules.oldest)
    }

    /// Whether nothing of a container's namespace is changed.
    fn is_frozen(&self, workload: &Workload) -> bool {
        self.frozen.contains(&workload.pod.namespace)
    }

    /// Containers whose requests are not those that were asked for.
    pub(super) fn len(&self) -> usize {
        self.standing.len()
    }

    /// The same by id, with the policy that the last word names, or that was known before.
    pub(super) fn standing(&self, offer: Option<&OverlayOffer>, before: &InForce) -> InForce {
        let policy = |id: &str, workload: &Workload| {
            let advice = offer.and_then(|offer| offer.entries.get(&place(workload)));
            advice.map(|advice| advice.policy.clone()).or_else(|| before.get(id).cloned()).unwrap_or_default()
        };
        self.standing.iter().map(|(id, standing)| (id.clone(), policy(id, &standing.workload))).collect()
    }

    /// Puts what is in force in the place of what was asked for. Requirements that their source changed meanwhile win:
    /// somebody has spoken since.
    pub(super) fn apply(&mut self, bound: &mut [Bound], now: Instant) {
        self.asked.clear();
        for bound in bound {
            let workload = &mut bound.workload;
            // Pods of a cluster are resized through its own interface.
            if workload.managed != Managed::Yes || workload.source == SourceKind::Kubernetes {
                continue;
            }
            self.asked.insert(workload.id.clone(), Workload::clone(workload));
            let is_over = self.is_grace_over && !self.frozen.contains(&workload.pod.namespace);
            if let Some(kept::StoredRequest { asked, resources, .. }) = self.remembered.remove(&workload.id)
                && asked == workload.requested
                && !is_over
            {
                let standing = RequestInForce { workload: Workload::clone(workload), resources };
                self.standing.insert(workload.id.clone(), standing);
            }
            if let Some(standing) = self.standing.get(&workload.id)
                && standing.workload.requested == workload.requested
            {
                Arc::make_mut(workload).requested = Requested::Stated(standing.resources);
            }
        }
        let asked = &self.asked;
        self.standing
            .retain(|id, standing| asked.get(id).is_some_and(|w| w.requested == standing.workload.requested));
        self.resting.retain(|id, _| asked.contains_key(id));
        if now >= self.remember_until {
            self.remembered.clear();
        }
    }

    /// One look: proves or undoes the step under way, goes back where nothing justifies what is in force, and takes the
    /// next step when it is time.
    pub(super) fn turn(
        &mut self,
        offer: Option<&OverlayOffer>,
        node: &OverlayNode<'_>,
        now: Instant,
    ) -> Turn {
        let mut turn = Turn::default();
        // What an earlier run knew of the switch is no word.
        if let Some(offer) = offer.filter(|offer| offer.number > 0) {
            self.frozen = Arc::clone(&offer.frozen);
            self.is_grace_over = false;
        }
        // Also a step that is not proven yet stays as it is.
        let is_frozen = |id: &str| self.asked.get(id).is_some_and(|workload| self.is_frozen(workload));
        if self.flight.as_ref().is_some_and(|flight| is_frozen(&flight.id)) {
            self.flight = None;
        }
        if let Some(switch) = offer.and_then(|offer| offer.panic.as_ref()) {
            turn.refusals = Some(Vec::new());
            match switch.revert {
                true => self.give_back(switch, node, now, &mut turn),
                // Also a step that is not proven yet stays as it is.
                false => self.flight = None,
            }
            return turn;
        }
        let fresh = match offer {
            None if now < self.grace => return turn,
            Some(offer) if now >= self.until(offer) => {
                Err("the recommender's last word is too old".to_owned())
            }
            Some(offer) => Ok(offer),
            None => Err("there is no word of the recommender".to_owned()),
        };
        let offer = match fresh {
            Ok(offer) => offer,
            Err(why) => {
                self.go_back(&why, |_| true, &mut turn);
                turn.refusals = Some(Vec::new());
                return turn;
            }
        };
        self.go_back("no policy asks for it any more", |place| !offer.entries.contains_key(place), &mut turn);
        self.prove(node, now, &mut turn);
        if self.flight.is_none() && now >= self.next {
            self.advance(offer, node, now, &mut turn);
        }
        turn
    }

    fn go_back(&mut self, why: &str, whose: impl Fn(&Place) -> bool, turn: &mut Turn) {
        let gone: Vec<String> = self
            .standing
            .iter()
            .filter(|(_, standing)| !self.is_frozen(&standing.workload))
            .filter(|(_, standing)| whose(&place(&standing.workload)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            let Some(standing) = self.standing.remove(&id) else { continue };
            self.flight.take_if(|flight| flight.id == id);
            turn.changed = true;
            let draft = Draft::of(
                &standing.workload,
                DecisionKind::Resize,
                format!("it goes back to the requests that were asked for: {why}"),
            );
            let asked = resources(&standing.workload).unwrap_or_default();
            turn.drafts.push(draft.values(Some(text(&standing.resources)), Some(text(&asked))));
        }
    }

    /// The step under way is proven when every process was verified at the new wish, and undone when that takes too long
    /// or the container is worse off than before.
    fn prove(&mut self, node: &OverlayNode<'_>, now: Instant, turn: &mut Turn) {
        let Some(flight) = &self.flight else { return };
        let Some(seen) = (node.seen)(&flight.id) else {
            self.flight = None;
            return;
        };
        let settled =
            seen.generation > flight.generation && !matches!(seen.state, State::Dirty | State::Converging);
        if settled && seen.state <= flight.state.max(State::Ineffective) {
            let flight = self.flight.take();
            self.next = now + self.rules.pause;
            let workload = flight.and_then(|flight| match self.standing.get(&flight.id) {
                Some(standing) => Some(standing.workload.clone()),
                // The last step back: nothing stands any more.
                None => flight.before.map(|before| before.workload),
            });
            if let Some(workload) = workload {
                turn.drafts.push(
                    Draft::of(&workload, DecisionKind::Resize, "the step took effect on every process")
                        .result(DecisionResult::Unchanged)
                        .input("processes", seen.processes)
                        .input("generation", seen.generation),
                );
            }
            return;
        }
        if !settled && now < flight.since + self.rules.patience {
            return;
        }
        let why = if settled { seen.state.as_str() } else { "not verified in time" };
        let Some(flight) = self.flight.take() else { return };
        self.next = now + self.rules.pause;
        if flight.back {
            if let Some(before) = flight.before {
                let why = format!("the step back was taken; the container is {why}");
                let draft = Draft::of(&before.workload, DecisionKind::Resize, why);
                turn.drafts.push(draft.result(DecisionResult::Failed));
            }
            return;
        }
        self.resting.insert(flight.id.clone(), now + self.rules.rest);
        let undone = self.standing.remove(&flight.id);
        if let Some(undone) = undone {
            let asked = resources(&undone.workload).unwrap_or_default();
            let before = flight.before.as_ref().map_or(asked, |before| before.resources);
            turn.changed = true;
            turn.drafts.push(
                Draft::of(
                    &undone.workload,
                    DecisionKind::Resize,
                    format!("the step is undone: the container is {why}"),
                )
                .values(Some(text(&undone.resources)), Some(text(&before)))
                .result(DecisionResult::Failed),
            );
        }
        self.standing.extend(flight.before.map(|before| (flight.id, before)));
    }

    /// Takes the next step of one container: those that need more come first, then the larger change.
    fn advance(&mut self, offer: &OverlayOffer, node: &OverlayNode<'_>, now: Instant, turn: &mut Turn) {
        self.resting.retain(|_, until| now < *until);
        let free = self.free(node);
        let mut best: Option<((bool, u64), String, Planned)> = None;
        let mut refusals = Vec::new();
        for (id, workload) in &self.asked {
            let Some(advice) = offer.entries.get(&place(workload)) else { continue };
            if self.is_frozen(workload) {
                let why = format!("namespace {} is frozen", workload.pod.namespace);
                refusals.push(refusal(workload, why));
                continue;
            }
            if self.resting.contains_key(id) {
                refusals.push(refusal(workload, "a step was undone; it rests".to_owned()));
                continue;
            }
            let planned = match self.plan(id, workload, advice, node, free) {
                Ok(Some(planned)) => planned,
                Ok(None) => continue,
                Err(why) => {
                    refusals.push(refusal(workload, why));
                    continue;
                }
            };
            let rank = (planned.raises, planned.percent);
            let better =
                best.as_ref().is_none_or(|(had, had_id, _)| rank > *had || (rank == *had && id < had_id));
            if better {
                best = Some((rank, id.clone(), planned));
            }
        }
        turn.refusals = Some(refusals);
        let Some((_, id, planned)) = best else {
            self.next = now + self.rules.pause;
            return;
        };
        if node.dry_run {
            self.next = now + self.rules.pause;
            if std::mem::replace(&mut self.told, offer.number) != offer.number {
                turn.drafts
                    .extend(planned.drafts.into_iter().map(|draft| draft.result(DecisionResult::WouldDo)));
            }
            return;
        }
        let Some(seen) = (node.seen)(&id) else { return };
        let Some(workload) = self.asked.get(&id).cloned() else { return };
        turn.drafts.extend(planned.drafts);
        turn.changed = true;
        let standing = RequestInForce { workload, resources: planned.resources };
        let before = self.standing.insert(id.clone(), standing);
        self.flight = Some(Flight {
            id,
            before,
            generation: seen.generation,
            state: seen.state,
            since: now,
            back: false,
        });
    }

    /// What the requests in force leave of the node: CPU and memory.
    fn free(&self, node: &OverlayNode<'_>) -> (u64, u64) {
        let (mut cpu, mut memory) = (0_u64, 0_u64);
        for (id, workload) in &self.asked {
            let Some(r) = self.in_force(id, workload) else { continue };
            cpu = cpu.saturating_add(r.cpu_request.map_or(0, MilliCpu::get));
            memory = memory.saturating_add(r.memory_request.map_or(0, Bytes::get));
        }
        let (all_cpu, all_memory) = (node.allocatable)();
        (all_cpu.saturating_sub(cpu), all_memory.saturating_sub(memory))
    }

    fn in_force(&self, id: &str, workload: &Workload) -> Option<ContainerResources> {
        self.standing.get(id).map(|standing| standing.resources).or_else(|| resources(workload))
    }

    /// The next step of a container; nothing where there is none to take, and why where it is refused.
    ///
    /// A class is never changed in place: whoever relies on it has to be asked. What one resource must not do the other
    /// may, so each is looked at by itself.
    fn plan(
        &self,
        id: &str,
        workload: &Workload,
        advice: &Advice,
        node: &OverlayNode<'_>,
        free: (u64, u64),
    ) -> Result<Option<Planned>, String> {
        let Some(now) = self.in_force(id, workload) else {
            return Err("nothing is known of what it asks for".to_owned());
        };
        let mut planned = Planned { resources: now, raises: false, percent: 0, drafts: Vec::new() };
        let mut refused = None;
        if let Some(target) = advice.cpu_milli {
            let (now, limit) = (now.cpu_request.map(MilliCpu::get), now.cpu_limit.map(MilliCpu::get));
            let case =
                OverlayCase { now, target, limit, free: free.0, clamp: self.rules.cpu(node.cpu_milli) };
            let set = |r: &mut ContainerResources, value| r.cpu_request = Some(MilliCpu::new(value));
            refused = refused.or(planned.take("cpu", workload, advice, &case, set));
        }
        if let Some(target) = advice.memory_bytes {
            let (now, limit) = (now.memory_request.map(Bytes::get), now.memory_limit.map(Bytes::get));
            let case =
                OverlayCase { now, target, limit, free: free.1, clamp: self.rules.memory(node.memory_bytes) };
            let set = |r: &mut ContainerResources, value| r.memory_request = Some(Bytes::new(value));
            refused = refused.or(planned.take("memory", workload, advice, &case, set));
        }
        match refused {
            Some(why) if planned.drafts.is_empty() => Err(why),
            _ => Ok((!planned.drafts.is_empty()).then_some(planned)),
        }
    }
}

fn refusal(workload: &Workload, why: String) -> OverlayRefusal {
    let pod = format!("{}/{}", workload.pod.namespace, workload.pod.name);
    OverlayRefusal { pod, container: workload.container.clone(), why }
}

/// A step that could be taken.
struct Planned {
    resources: ContainerResources,
    raises: bool,
    /// The larger change of the two, percent of what is in force.
    percent: u64,
    drafts: Vec<Draft>,
}

impl Planned {
    /// Takes a step of one resource in; why not, where it is refused.
    fn take(
        &mut self,
        name: &str,
        workload: &Workload,
        advice: &Advice,
        case: &OverlayCase,
        set: impl Fn(&mut ContainerResources, u64),
    ) -> Option<String> {
        let value = step(case)?.value;
        let mut after = self.resources;
        set(&mut after, value);
        if let Some((is, would_be)) = changed_class(&self.resources, &after) {
            return Some(format!("would change the class: {name} {is} to {would_be}"));
        }
        self.resources = after;
        let now = case.now.unwrap_or(0);
        self.raises |= value > now;
        self.percent = self.percent.max(value.abs_diff(now).saturating_mul(100) / now.max(1));
        let by = Some((advice.policy.clone(), advice.rule.clone()));
        let why = Why::OverlayStep(Box::new(Advised { case: *case, by }));
        self.drafts.push(
            Draft::of(workload, DecisionKind::Resize, why.text())
                .knob(&format!("{name}.request"))
                .values(case.now.map(|now| now.to_string()), Some(value.to_string()))
                .inputs(why.inputs()),
        );
        None
    }
}

fn place(workload: &Workload) -> Place {
    (workload.pod.namespace.clone(), workload.workload.clone(), workload.container.clone())
}

/// What a container asked for, requests that follow from limits included; `None` where nothing is known.
fn resources(workload: &Workload) -> Option<ContainerResources> {
    match workload.requested {
        Requested::Stated(resources) => Some(defaulted(resources)),
        Requested::Estimated(estimate) => Some(estimate.resources),
        Requested::Unknown => None,
    }
}

fn text(resources: &ContainerResources) -> String {
    let cpu = resources.cpu_request.map_or_else(|| "none".to_owned(), |cpu| cpu.to_string());
    let memory = resources.memory_request.map_or_else(|| "none".to_owned(), |memory| memory.to_string());
    format!("cpu {cpu}, memory {memory}")
}
