//! Which steps are taken now, in which order, and why others are not.
//!
//! Steps that are under way are brought to their end first: what is in force is noted, what is stuck is given up or, where its policy lets it,
//! evicted; a canary that became worse goes back. New steps come after these: what was OOM-killed first, then raises, then what is furthest
//! from what is recommended. Each is checked last by [`Room`], which asks the simulator.

mod asked;
mod offers;
mod outcome;
mod reason;
mod slots;
mod steps;
mod under_way;

use std::cmp::Reverse;

use evenkeel_model::panic::Panic;

use crate::facts::{Now, RunningPod, Sizes, UpdateRules, Workload};
use crate::kept::{UpdaterMemory, key};
use crate::note::Note;
use crate::pods::{PodProgress, standing};
use crate::sizes::TargetSizes;
use asked::AnswerRecorder;
pub use asked::PlanAnswer;
pub use outcome::{Plan, PlannedStep, PodAction, SkippedStep};
pub use reason::Reason;
use slots::ReplicaBudget;

/// What the simulator says.
pub trait Room {
    /// Whether a pod with these sizes in the place of its own has room on its node, and within the quotas of its namespace.
    ///
    /// # Errors
    /// What is missing.
    fn in_place(&mut self, workload: &Workload, pod: &RunningPod, sizes: &Sizes) -> Result<(), String>;

    /// Whether a pod like this one, with these sizes and made anew, has room anywhere once this one is gone.
    ///
    /// # Errors
    /// What is missing.
    fn anywhere(&mut self, workload: &Workload, pod: &RunningPod, sizes: &Sizes) -> Result<(), String>;
}

/// Why, in a word and in words.
type Told = (Reason, String);

/// A workload while it is looked at.
struct Looked<'a> {
    workload: &'a Workload,
    standings: Vec<PodProgress>,
    slots: ReplicaBudget,
    /// A replica is the canary, and not known to be good.
    is_watching: Option<String>,
    /// Nothing is evicted before this time.
    fruitless: Option<u64>,
}

/// A pod that should have other sizes.
struct ResizeCandidate {
    at: usize,
    pod: usize,
    wanted: TargetSizes,
    /// It was OOM-killed, or its agent says that it should go.
    is_urgent: bool,
}

/// What is looked at, and what came of it so far.
struct Planner<'a> {
    rules: &'a UpdateRules,
    now: &'a Now,
    kept: &'a mut UpdaterMemory,
    asked: AnswerRecorder<'a>,
    plan: Plan,
}

/// What is done now. `kept` takes in what is planned; whoever carries it out tells it of evictions that were refused.
pub fn plan(
    all: &[Workload],
    kept: &mut UpdaterMemory,
    rules: &UpdateRules,
    now: &Now,
    room: &mut dyn Room,
) -> Plan {
    kept.forget_others(all, rules, now.seconds);
    planned(all, kept, rules, now, AnswerRecorder::now(room))
}

/// Of one workload, by what was answered about it before.
pub(crate) fn again(
    workload: &Workload,
    kept: &mut UpdaterMemory,
    rules: &UpdateRules,
    now: &Now,
    answers: Vec<PlanAnswer>,
) -> Plan {
    planned(std::slice::from_ref(workload), kept, rules, now, AnswerRecorder::then(answers))
}

fn planned<'a>(
    all: &[Workload],
    kept: &'a mut UpdaterMemory,
    rules: &'a UpdateRules,
    now: &'a Now,
    asked: AnswerRecorder<'a>,
) -> Plan {
    let before = all.iter().map(|workload| (key(workload), kept.of(workload))).collect();
    let mut planner = Planner { rules, now, kept, asked, plan: Plan { before, ..Plan::default() } };
    if now.panic == Panic::Freeze {
        let why = "the panic switch is on: nothing is changed".to_owned();
        let (namespace, workload, policy, pod) = Default::default();
        let inputs = vec![("panic", "freeze".to_owned()), ("time", now.seconds.to_string())];
        let reason = Reason::Frozen;
        planner.plan.refusals.push(SkippedStep { namespace, workload, policy, pod, reason, why, inputs });
        return planner.plan;
    }
    let mut looked: Vec<Looked<'_>> = all.iter().map(|workload| planner.look(workload)).collect();
    let mut candidates = Vec::new();
    for (at, looked) in looked.iter_mut().enumerate() {
        if let Some(why) = &looked.workload.frozen {
            planner.refuse(looked.workload, None, (Reason::Frozen, why.clone()));
            continue;
        }
        planner.under_way(looked);
        planner.candidates(at, looked, &mut candidates);
    }
    candidates.sort_by(|a, b| {
        let key = |candidate: &ResizeCandidate| {
            let workload = looked[candidate.at].workload;
            let pod = &workload.pods[candidate.pod];
            let is_canary = pod.note.as_ref().is_some_and(|note| note.is_canary);
            (Reverse(candidate.is_urgent), Reverse(candidate.wanted.rises), Reverse(is_canary))
        };
        let name = |candidate: &ResizeCandidate| {
            let workload = looked[candidate.at].workload;
            (workload.namespace.as_str(), workload.name.as_str(), workload.pods[candidate.pod].name.as_str())
        };
        let by_distance = b.wanted.distance.total_cmp(&a.wanted.distance);
        key(a).cmp(&key(b)).then(by_distance).then_with(|| name(a).cmp(&name(b)))
    });
    for candidate in candidates {
        if let Some(looked) = looked.get_mut(candidate.at) {
            planner.step(looked, candidate);
        }
    }
    let Planner { asked, plan, .. } = planner;
    Plan { given: asked.given(), ..plan }
}

impl Planner<'_> {
    fn refuse(&mut self, workload: &Workload, pod: Option<&RunningPod>, (reason, why): Told) {
        self.plan.refusals.push(SkippedStep {
            namespace: workload.namespace.clone(),
            workload: workload.name.clone(),
            policy: workload.policy.clone(),
            pod: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
            reason,
            why,
            inputs: self.inputs(workload, pod),
        });
    }

    /// The facts that most choices rest on; all of them are in a [`ReplayCase`].
    fn inputs(&self, workload: &Workload, pod: Option<&RunningPod>) -> Vec<(&'static str, String)> {
        let disruptions = workload.allowed_disruptions;
        let mut inputs = vec![
            ("replicas", workload.replicas.to_string()),
            ("disruptions_allowed", disruptions.map_or_else(|| "-".to_owned(), |left| left.to_string())),
            ("evict", workload.updates.evict.as_str().to_owned()),
            ("time", self.now.seconds.to_string()),
        ];
        let Some(pod) = pod else { return inputs };
        inputs.extend([
            ("class", pod.class.to_string()),
            ("age_seconds", self.now.seconds.saturating_sub(pod.created).to_string()),
            ("oom_killed", pod.was_oom_killed.to_string()),
        ]);
        if let Some(offer) = &pod.offer {
            inputs.extend([
                ("offer", offer.id.clone()),
                ("offer_cause", offer.cause.as_str().to_owned()),
                ("offered_at", offer.at.to_string()),
                ("evict_offers", workload.updates.evict_offers.as_str().to_owned()),
            ]);
        }
        inputs
    }

    fn act(
        &mut self,
        looked: &Looked<'_>,
        pod: &RunningPod,
        deed: PodAction,
        note: Option<Note>,
        (reason, why): Told,
    ) {
        let (workload, slots) = (looked.workload, &looked.slots);
        let mut inputs = self.inputs(workload, Some(pod));
        inputs.extend([
            ("away", slots.away.to_string()),
            ("changing", slots.busy.to_string()),
            ("may_be_away", slots.most.to_string()),
        ]);
        self.plan.actions.push(PlannedStep {
            namespace: workload.namespace.clone(),
            workload: workload.name.clone(),
            policy: workload.policy.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            version: pod.version.clone(),
            node: pod.node.clone(),
            deed,
            note,
            reason,
            why,
            inputs,
        });
    }

    /// Takes one step of this minute's.
    fn paced(&mut self, workload: &Workload) -> Result<(), Told> {
        if self.asked.paced(workload, self.kept, self.rules, self.now.seconds) {
            return Ok(());
        }
        Err((Reason::Rate, format!("{} steps were taken in the last minute", self.rules.per_minute)))
    }

    fn look<'a>(&mut self, workload: &'a Workload) -> Looked<'a> {
        let standings: Vec<PodProgress> =
            workload.pods.iter().map(|pod| standing(pod, self.rules, self.now.seconds)).collect();
        let slots = ReplicaBudget::of(workload, &standings);
        Looked { workload, standings, slots, is_watching: None, fruitless: None }
    }
}
