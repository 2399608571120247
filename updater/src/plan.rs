//! Which steps are taken now, in which order, and why others are not.
//!
//! Steps that are under way are brought to their end first: what is in force is noted, what is stuck is given up or, where its policy lets it,
//! evicted; a canary that became worse goes back. New steps come after these: what was OOM-killed first, then raises, then what is furthest
//! from what is recommended. Each is checked last by [`Room`], which asks the simulator.

use std::cmp::Reverse;

use evenkeel_model::panic::Panic;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::update::Evict;

use crate::canary;
use crate::facts::{Now, Pod, Resizing, Rules, Sizes, Workload, place};
use crate::kept::{Kept, LastEviction};
use crate::note::{self, MOST_BYTES, Note, Stage};
use crate::pods::{Standing, standing};
use crate::sizes::{self, Wanted};

/// What the simulator says.
pub trait Room {
    /// Whether a pod with these sizes in the place of its own has room on its node, and within the quotas of its namespace.
    ///
    /// # Errors
    /// What is missing.
    fn in_place(&mut self, workload: &Workload, pod: &Pod, sizes: &Sizes) -> Result<(), String>;

    /// Whether a pod like this one, with these sizes and made anew, has room anywhere once this one is gone.
    ///
    /// # Errors
    /// What is missing.
    fn anywhere(&mut self, workload: &Workload, pod: &Pod, sizes: &Sizes) -> Result<(), String>;
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why a step is taken, or is not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

reasons! {
    /// Taken: it was OOM-killed, and gets more.
    OomKilled,
    /// Taken: a request rises.
    Raise,
    /// Taken: requests fall.
    Lower,
    /// Taken: a step that is over is noted.
    Finished,
    /// Taken: a canary did not become worse.
    CanaryPassed,
    /// Taken: a canary became worse.
    CanaryWorse,
    /// Taken: a step that goes no further is given up.
    GaveUp,
    /// Taken: the panic switch gives back what was asked for.
    Revert,
    /// Not taken: the panic switch.
    Frozen,
    /// Not taken: another updater has these pods.
    OtherUpdater,
    /// Not taken: a roll-out is under way.
    Rollout,
    /// Not taken: no window is open.
    WindowClosed,
    /// Not taken: a step of the pod is under way.
    UnderWay,
    /// Not taken: somebody else resized it.
    ChangedByOthers,
    /// Not taken: pods of this kind are not resized.
    Unsupported,
    /// Not taken: it is too young.
    TooYoung,
    /// Not taken: it does not serve.
    NotReady,
    /// Not taken: what scales it rests on its requests.
    ScaledByHpa,
    /// Not taken: memory is in use.
    MemoryInUse,
    /// Not taken: its class would change, which is never done in place.
    ClassWouldChange,
    /// Not taken: the simulator finds no room.
    NoRoom,
    /// Not taken: too many replicas are away.
    Budget,
    /// Not taken: its PodDisruptionBudget allows none.
    DisruptionBudget,
    /// Not taken: it has too few replicas.
    MinReplicas,
    /// Not taken: its policy lets nothing be evicted or restarted.
    EvictNever,
    /// Not taken: nobody makes it anew.
    NotRemade,
    /// Not taken: it is not proven that a pod made anew gets what is recommended.
    AdmissionUnproven,
    /// Not taken: the last step came to nothing.
    BackOff,
    /// Not taken: the first replica is watched.
    CanaryWatched,
    /// Not taken: too many steps in this minute.
    Rate,
}

/// What is done to a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// It is resized in place.
    Resize {
        /// What these containers have.
        from: Sizes,
        /// What they are to have.
        to: Sizes,
    },
    /// It is evicted; who made it makes it anew.
    Evict {
        /// What the new one is to have.
        to: Sizes,
    },
    /// Nothing but its note is written.
    Note,
}

impl Deed {
    /// The word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Resize { .. } => "resize",
            Self::Evict { .. } => "evict",
            Self::Note => "note",
        }
    }
}

/// A step that is taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Namespace.
    pub namespace: String,
    /// The controller at the top.
    pub workload: String,
    /// The policy that governs it.
    pub policy: String,
    /// The pod.
    pub pod: String,
    /// Its identifier: another pod of the name is none of it.
    pub uid: String,
    /// Version of the object that this was decided about.
    pub version: String,
    /// Its node.
    pub node: String,
    /// What is done.
    pub deed: Deed,
    /// What is written on the pod before.
    pub note: Option<Note>,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub why: String,
    /// What it was decided by.
    pub inputs: Vec<(&'static str, String)>,
}

/// A step that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Namespace; empty where it is about all.
    pub namespace: String,
    /// The controller at the top.
    pub workload: String,
    /// The policy that governs it.
    pub policy: String,
    /// The pod; empty where it is about all of the workload.
    pub pod: String,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub why: String,
}

/// What is done now, in this order, and what is not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Steps.
    pub actions: Vec<Action>,
    /// What is not done though it differs.
    pub refusals: Vec<Refusal>,
}

/// How many replicas of a workload are away, and may be.
#[derive(Debug, Clone, Copy)]
struct Slots {
    /// Those that do not serve.
    away: u32,
    /// Those that serve while a step of them is under way.
    busy: u32,
    /// How many may be either.
    most: u32,
    /// Disruptions that are left of its budgets.
    disruptions: Option<u32>,
    replicas: u32,
    min_replicas: u32,
}

type Told = (Reason, String);

impl Slots {
    fn of(workload: &Workload, standings: &[Standing]) -> Self {
        let serves = |pod: &Pod| pod.is_ready && !pod.is_ending;
        let ready = workload.pods.iter().filter(|pod| serves(pod)).count();
        let busy = workload
            .pods
            .iter()
            .zip(standings)
            .filter(|(pod, standing)| serves(pod) && standing.is_under_way());
        let replicas = workload.replicas;
        Self {
            away: replicas.saturating_sub(u32::try_from(ready).unwrap_or(u32::MAX)),
            busy: u32::try_from(busy.count()).unwrap_or(u32::MAX),
            most: workload.updates.max_unavailable.of(replicas),
            disruptions: workload.allowed_disruptions,
            replicas,
            min_replicas: workload.updates.min_replicas,
        }
    }

    /// Whether one more pod may be changed; one that does not serve is away already.
    fn may(&self, pod: &Pod, disturbs: bool) -> Result<(), Told> {
        let own = u32::from(!pod.is_ready);
        let others = self.away.saturating_sub(own) + self.busy;
        if others + 1 > self.most {
            let Self { replicas, most, .. } = self;
            let why = format!("{others} of {replicas} replicas are away or being changed, and {most} may be");
            return Err((Reason::Budget, why));
        }
        if !disturbs {
            return Ok(());
        }
        if self.replicas < self.min_replicas {
            let why = format!(
                "it has {} replicas, and is disturbed with {} or more",
                self.replicas, self.min_replicas
            );
            return Err((Reason::MinReplicas, why));
        }
        match self.disruptions {
            Some(0) => {
                Err((Reason::DisruptionBudget, "its PodDisruptionBudget allows no disruption now".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn takes(&mut self, pod: &Pod, disturbs: bool) {
        self.busy += u32::from(pod.is_ready);
        if disturbs {
            self.disruptions = self.disruptions.map(|left| left.saturating_sub(1));
        }
    }
}

/// A workload while it is looked at.
struct Looked<'a> {
    workload: &'a Workload,
    standings: Vec<Standing>,
    slots: Slots,
    /// A replica is the canary, and not known to be good.
    is_watching: Option<String>,
    /// Nothing is evicted before this time.
    fruitless: Option<u64>,
}

/// A pod that should have other sizes.
struct Candidate {
    at: usize,
    pod: usize,
    wanted: Wanted,
}

/// What is looked at, and what came of it so far.
struct Planner<'a> {
    rules: &'a Rules,
    now: &'a Now,
    kept: &'a mut Kept,
    room: &'a mut dyn Room,
    plan: Plan,
}

/// What is done now. `kept` takes in what is planned; whoever carries it out tells it of evictions that were refused.
pub fn plan(all: &[Workload], kept: &mut Kept, rules: &Rules, now: &Now, room: &mut dyn Room) -> Plan {
    kept.forget_others(all);
    let mut planner = Planner { rules, now, kept, room, plan: Plan::default() };
    if now.panic == Panic::Freeze {
        let why = "the panic switch is on: nothing is changed".to_owned();
        let (namespace, workload, policy, pod) = Default::default();
        planner.plan.refusals.push(Refusal { namespace, workload, policy, pod, reason: Reason::Frozen, why });
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
        let key = |candidate: &Candidate| {
            let workload = looked[candidate.at].workload;
            let pod = &workload.pods[candidate.pod];
            let is_canary = pod.note.as_ref().is_some_and(|note| note.is_canary);
            (Reverse(pod.was_oom_killed), Reverse(candidate.wanted.rises), Reverse(is_canary))
        };
        let name = |candidate: &Candidate| {
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
    planner.plan
}

impl Planner<'_> {
    fn refuse(&mut self, workload: &Workload, pod: Option<&Pod>, (reason, why): Told) {
        self.plan.refusals.push(Refusal {
            namespace: workload.namespace.clone(),
            workload: workload.name.clone(),
            policy: workload.policy.clone(),
            pod: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
            reason,
            why,
        });
    }

    fn act(&mut self, looked: &Looked<'_>, pod: &Pod, deed: Deed, note: Option<Note>, (reason, why): Told) {
        let (workload, slots) = (looked.workload, &looked.slots);
        let inputs = vec![
            ("class", pod.class.to_string()),
            ("replicas", slots.replicas.to_string()),
            ("away", slots.away.to_string()),
            ("changing", slots.busy.to_string()),
            ("may_be_away", slots.most.to_string()),
            (
                "disruptions_allowed",
                slots.disruptions.map_or_else(|| "-".to_owned(), |left| left.to_string()),
            ),
            ("age_seconds", self.now.seconds.saturating_sub(pod.created).to_string()),
            ("oom_killed", pod.was_oom_killed.to_string()),
            ("evict", workload.updates.evict.as_str().to_owned()),
            ("time", self.now.seconds.to_string()),
        ];
        self.plan.actions.push(Action {
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
    fn paced(&mut self) -> Result<(), Told> {
        if self.kept.may_step(self.rules, self.now.seconds) {
            self.kept.stepped(self.now.seconds);
            return Ok(());
        }
        Err((Reason::Rate, format!("{} steps were taken in the last minute", self.rules.per_minute)))
    }

    fn look<'a>(&mut self, workload: &'a Workload) -> Looked<'a> {
        let standings: Vec<Standing> =
            workload.pods.iter().map(|pod| standing(pod, self.rules, self.now.seconds)).collect();
        let slots = Slots::of(workload, &standings);
        Looked { workload, standings, slots, is_watching: None, fruitless: None }
    }

    /// Brings what is under way to its end.
    fn under_way(&mut self, looked: &mut Looked<'_>) {
        let workload = looked.workload;
        match self.kept.last(workload, self.rules, self.now.seconds) {
            LastEviction::None => {}
            LastEviction::Awaited => {
                looked.is_watching =
                    Some("an evicted pod has not been made anew, or does not serve yet".to_owned());
            }
            LastEviction::Fruitless(until) => looked.fruitless = Some(until),
            LastEviction::Made(pod, before) => self.made(looked, pod, before),
        }
        for (at, pod) in workload.pods.iter().enumerate() {
            match looked.standings[at].clone() {
                Standing::Free => self.canary(looked, pod),
                Standing::Waits(reason, why) => {
                    if pod.note.as_ref().is_some_and(|note| note.is_canary && note.stage == Stage::Asked) {
                        looked.is_watching = Some(format!("{} is the first replica: {why}", pod.name));
                    }
                    self.refuse(workload, Some(pod), (reason, why));
                }
                Standing::Over(note) => {
                    if note.is_canary {
                        looked.is_watching =
                            Some(format!("{} is the first replica, and is watched", pod.name));
                    }
                    self.act(
                        looked,
                        pod,
                        Deed::Note,
                        Some(note),
                        (Reason::Finished, "what was asked for is in force".into()),
                    );
                }
                Standing::Stuck(why) => self.stuck(looked, pod, &why),
                Standing::GoesBack => {
                    let note = pod.note.clone();
                    let why = note.as_ref().map(|note| note.why.clone()).unwrap_or_default();
                    self.back(looked, pod, note, (Reason::GaveUp, why));
                }
            }
        }
    }

    /// A pod was made in the place of an evicted one, and has what it is to have: it is watched as one that was resized.
    fn made(&mut self, looked: &mut Looked<'_>, pod: &Pod, before: Sizes) {
        let workload = looked.workload;
        if workload.updates.canary_seconds == 0 || pod.note.is_some() || self.now.panic.is_on() {
            return;
        }
        let names: Sizes = pod
            .sizes
            .iter()
            .filter(|(name, _)| workload.targets.contains_key(*name))
            .map(|(n, s)| (n.clone(), *s))
            .collect();
        // One like it was watched already.
        if self.passed(looked, &names) {
            return;
        }
        let original =
            pod.asked.as_ref().map_or_else(|| sizes::of(&before, &names), |asked| sizes::of(asked, &names));
        let note = Note {
            stage: Stage::Done,
            is_canary: true,
            at: self.now.seconds,
            tries: 0,
            original,
            before: sizes::of(&before, &names),
            target: names,
            why: String::new(),
        };
        looked.is_watching = Some(format!("{} is the first replica, and is watched", pod.name));
        self.act(
            looked,
            pod,
            Deed::Note,
            Some(note),
            (Reason::Finished, "it was made in the place of an evicted one".into()),
        );
    }

    /// Whether a canary with such sizes passed.
    fn passed(&self, looked: &Looked<'_>, wished: &Sizes) -> bool {
        let notes = looked.workload.pods.iter().filter_map(|pod| pod.note.as_ref());
        let passed = notes.filter(|note| note.is_canary && note.stage == Stage::Passed);
        passed.into_iter().any(|note| sizes::similar(looked.workload, &note.target, wished))
    }

    /// Looks at a canary whose size is in force.
    fn canary(&mut self, looked: &mut Looked<'_>, pod: &Pod) {
        let Some(note) = pod.note.as_ref().filter(|note| note.is_canary && note.stage == Stage::Done) else {
            return;
        };
        if self.now.panic.is_on() {
            return;
        }
        let (now, seconds) = (self.now.seconds, looked.workload.updates.canary_seconds);
        let watched = pod.watched.unwrap_or_default();
        if let Some(why) = canary::worse(note, &watched) {
            looked.is_watching = Some(format!("{} became worse: {why}", pod.name));
            let note = note.at_stage(Stage::Worse, now, &*why);
            self.back(looked, pod, Some(note), (Reason::CanaryWorse, why));
        } else if now < note.at.saturating_add(seconds) {
            looked.is_watching =
                Some(format!("{} is the first replica, and is watched for {seconds} s", pod.name));
        } else if canary::is_measured(&watched.after, seconds) {
            let why = format!(
                "no more OOM kills, throttling and starvation in {} s than before",
                watched.after.seconds
            );
            let note = note.at_stage(Stage::Passed, now, "");
            looked.is_watching = Some(format!("{} is the first replica, and passes now", pod.name));
            self.act(looked, pod, Deed::Note, Some(note), (Reason::CanaryPassed, why));
        } else {
            let why = format!("only {} of {seconds} s were measured", watched.after.seconds);
            looked.is_watching = Some(format!("{} is the first replica: {why}", pod.name));
        }
    }

    /// Asks again for what a pod had before.
    fn back(&mut self, looked: &mut Looked<'_>, pod: &Pod, note: Option<Note>, told: Told) {
        let Some(note) = note else { return };
        let workload = looked.workload;
        let (from, to) = (sizes::of(&pod.sizes, &note.before), note.back());
        let checked = self.allowed_back(looked, pod, &from, &to).and_then(|()| self.paced());
        match checked {
            Ok(()) => self.act(looked, pod, Deed::Resize { from, to }, Some(note), told),
            Err((reason, why)) => {
                let why = format!("it cannot go back ({}): {why}", told.1);
                self.refuse(workload, Some(pod), (reason, why));
            }
        }
    }

    fn allowed_back(&mut self, looked: &Looked<'_>, pod: &Pod, from: &Sizes, to: &Sizes) -> Result<(), Told> {
        if sizes::class(&sizes::with(&pod.sizes, to)) != pod.class {
            return Err((Reason::ClassWouldChange, "its class would change".to_owned()));
        }
        // A step that never came into force has restarted nothing, and does not by going back.
        let disturbs = pod.resizing == Resizing::Settled && restarts(pod, from, to);
        if disturbs {
            // It is under way itself.
            let mut slots = looked.slots;
            slots.busy = slots.busy.saturating_sub(u32::from(pod.is_ready && slots.busy > 0));
            slots.may(pod, true)?;
        }
        if pod.resizing != Resizing::Settled {
            // The node holds what it had before.
            return Ok(());
        }
        self.room.in_place(looked.workload, pod, to).map_err(|why| (Reason::NoRoom, why))
    }

    /// A step goes no further: the pod is evicted, or what it had before is asked for again.
    fn stuck(&mut self, looked: &mut Looked<'_>, pod: &Pod, why: &str) {
        let Some(note) = pod.note.clone() else { return };
        let evicts = self.now.panic == Panic::Off && self.evictable(looked, pod, &note.target, true).is_ok();
        if evicts && self.paced().is_ok() {
            let told = (Reason::GaveUp, format!("it cannot be resized in place: {why}"));
            self.evict(looked, pod, note.target, told);
            return;
        }
        let note = note.at_stage(Stage::GivenUp, self.now.seconds, why);
        self.back(looked, pod, Some(note), (Reason::GaveUp, why.to_owned()));
    }

    fn evict(&mut self, looked: &mut Looked<'_>, pod: &Pod, to: Sizes, told: Told) {
        self.kept.evicts(looked.workload, pod, self.now.seconds);
        self.act(looked, pod, Deed::Evict { to }, None, told);
        looked.slots.takes(pod, true);
        looked.is_watching = Some(format!("{} is evicted", pod.name));
    }

    /// Whether its policy lets a pod be disturbed.
    fn may_disturb(workload: &Workload, pod: &Pod) -> Result<(), Told> {
        match workload.updates.evict {
            Evict::Always => Ok(()),
            Evict::Oom if pod.was_oom_killed => Ok(()),
            Evict::Oom => Err((
                Reason::EvictNever,
                "its policy disturbs only what was OOM-killed (evict: oom)".to_owned(),
            )),
            Evict::Never => {
                Err((Reason::EvictNever, "its policy disturbs nothing (evict: never)".to_owned()))
            }
        }
    }

    /// Whether a pod may be evicted so that it is made anew with these sizes.
    fn evictable(
        &mut self,
        looked: &Looked<'_>,
        pod: &Pod,
        to: &Sizes,
        is_under_way: bool,
    ) -> Result<(), Told> {
        let workload = looked.workload;
        Self::may_disturb(workload, pod)?;
        if !pod.is_remade {
            return Err((Reason::NotRemade, "nobody makes it anew when it goes".to_owned()));
        }
        let (age, least) = (self.now.seconds.saturating_sub(pod.created), self.rules.evict_age_seconds);
        if age < least && !pod.was_oom_killed {
            return Err((Reason::TooYoung, format!("it is {age} s old, and is evicted after {least} s")));
        }
        if let Err(why) = &self.now.admission {
            let why = format!("it is not proven that it would be made anew with what is recommended: {why}");
            return Err((Reason::AdmissionUnproven, why));
        }
        if let Some(until) = looked.fruitless {
            let left = until.saturating_sub(self.now.seconds);
            return Err((
                Reason::BackOff,
                format!("the last eviction changed nothing; no other for {left} s"),
            ));
        }
        let mut slots = looked.slots;
        slots.busy = slots.busy.saturating_sub(u32::from(is_under_way && pod.is_ready));
        slots.may(pod, true)?;
        self.room.anywhere(workload, pod, to).map_err(|why| (Reason::NoRoom, why))
    }

    /// What of a workload's pods should have other sizes.
    fn candidates(&mut self, at: usize, looked: &Looked<'_>, candidates: &mut Vec<Candidate>) {
        let workload = looked.workload;
        let is_revert = self.now.panic == Panic::Revert;
        let mut found = Vec::new();
        for (number, pod) in workload.pods.iter().enumerate() {
            if looked.standings[number] != Standing::Free
                || self.plan.actions.iter().any(|action| action.uid == pod.uid)
            {
                continue;
            }
            let wanted = match (is_revert, &pod.note) {
                (true, Some(note)) => sizes::originals(pod, &note.original),
                (true, None) => continue,
                (false, _) => sizes::wanted(workload, pod),
            };
            for told in &wanted.left {
                self.refuse(workload, Some(pod), told.clone());
            }
            if wanted.is_change() {
                found.push(Candidate { at, pod: number, wanted });
            }
        }
        if found.is_empty() {
            return;
        }
        match self.workload_refusal(workload) {
            Some(told) => self.refuse(workload, None, told),
            None => candidates.extend(found),
        }
    }

    /// Why no pod of a workload is changed.
    fn workload_refusal(&self, workload: &Workload) -> Option<Told> {
        if let Some(other) = &workload.updated_by {
            return Some((Reason::OtherUpdater, format!("{other} changes these pods")));
        }
        let owners = || workload.pods.iter().filter(|pod| !pod.is_ending).map(|pod| pod.owner.as_str());
        if owners().any(|owner| Some(owner) != owners().next()) {
            return Some((
                Reason::Rollout,
                "its pods have different owners: a roll-out is under way".to_owned(),
            ));
        }
        if !workload.updates.is_open(self.now.seconds) && self.now.panic == Panic::Off {
            return Some((Reason::WindowClosed, "none of its windows is open".to_owned()));
        }
        None
    }

    /// Takes a new step, or says why it does not.
    fn step(&mut self, looked: &mut Looked<'_>, candidate: Candidate) {
        let (workload, wanted) = (looked.workload, candidate.wanted);
        let Some(pod) = workload.pods.get(candidate.pod) else { return };
        let taken = if self.now.panic == Panic::Revert {
            self.revert(looked, pod, &wanted)
        } else {
            self.change(looked, pod, &wanted)
        };
        if let Err(told) = taken {
            self.refuse(workload, Some(pod), told);
        }
    }

    fn change(&mut self, looked: &mut Looked<'_>, pod: &Pod, wanted: &Wanted) -> Result<(), Told> {
        let workload = looked.workload;
        let age = self.now.seconds.saturating_sub(pod.created);
        if age < workload.updates.min_age_seconds && !pod.was_oom_killed {
            let least = workload.updates.min_age_seconds;
            return Err((Reason::TooYoung, format!("it is {age} s old, and is changed after {least} s")));
        }
        if !pod.is_ready && !pod.was_oom_killed {
            return Err((Reason::NotReady, "it does not serve".to_owned()));
        }
        let is_canary = self.gate(looked, &wanted.sizes)?;
        let refused = match self.in_place(looked, pod, wanted) {
            Ok(()) => {
                self.paced()?;
                self.resize(looked, pod, wanted, is_canary);
                return Ok(());
            }
            Err(refused) => refused,
        };
        // What cannot be now may be later, and is not evicted for.
        let is_for_good = matches!(
            refused.0,
            Reason::ClassWouldChange
                | Reason::NoRoom
                | Reason::BackOff
                | Reason::EvictNever
                | Reason::Unsupported
        );
        if !is_for_good {
            return Err(refused);
        }
        match self.evictable(looked, pod, &wanted.sizes, false) {
            Ok(()) => {
                self.paced()?;
                let why = format!("{}; in place it cannot be: {}", words(pod, wanted), refused.1);
                self.evict(looked, pod, wanted.sizes.clone(), (reason(pod, wanted), why));
                Ok(())
            }
            Err((reason, why)) => Err((refused.0, format!("{}; {} ({})", refused.1, why, reason.as_str()))),
        }
    }

    /// Whether a pod may have another size now, and whether it is the first.
    fn gate(&self, looked: &Looked<'_>, wished: &Sizes) -> Result<bool, Told> {
        let workload = looked.workload;
        if let Some(why) = &looked.is_watching {
            return Err((Reason::CanaryWatched, why.clone()));
        }
        let (now, most) = (self.now.seconds, self.rules.again_most_seconds);
        let notes = || workload.pods.iter().filter_map(|pod| pod.note.as_ref().map(|note| (pod, note)));
        let worse = notes().find(|(_, note)| {
            note.stage == Stage::Worse
                && now < note.at.saturating_add(most)
                && sizes::similar(workload, &note.target, wished)
        });
        if let Some((canary, note)) = worse {
            return Err((Reason::CanaryWorse, format!("{} became worse with it: {}", canary.name, note.why)));
        }
        Ok(workload.updates.canary_seconds > 0 && !self.passed(looked, wished))
    }

    /// Whether a pod may be resized in place.
    fn in_place(&mut self, looked: &Looked<'_>, pod: &Pod, wanted: &Wanted) -> Result<(), Told> {
        let workload = looked.workload;
        if wanted.class != Some(pod.class) {
            let (was, new) = (pod.class, wanted.class.map(|class| class.to_string()).unwrap_or_default());
            return Err((Reason::ClassWouldChange, format!("it would be {new}, and is {was}")));
        }
        if let Some(note) = pod.note.as_ref().filter(|note| note.stage == Stage::GivenUp) {
            let until = note.at.saturating_add(self.rules.pause(note.tries));
            if self.now.seconds < until && sizes::similar(workload, &note.target, &wanted.sizes) {
                let left = until - self.now.seconds;
                let why =
                    format!("the last resize to this size was given up ({}); the next in {left} s", note.why);
                return Err((Reason::BackOff, why));
            }
        }
        if wanted.restarts {
            Self::may_disturb(workload, pod).map_err(|(reason, why)| {
                (reason, format!("a container would be restarted (resizePolicy): {why}"))
            })?;
        }
        looked.slots.may(pod, wanted.restarts)?;
        let whole = sizes::with(&pod.sizes, &wanted.sizes);
        if whole.len() > pod.sizes.len() {
            return Err((Reason::Unsupported, "it has no such container".to_owned()));
        }
        self.room.in_place(workload, pod, &wanted.sizes).map_err(|why| (Reason::NoRoom, why))
    }

    fn resize(&mut self, looked: &mut Looked<'_>, pod: &Pod, wanted: &Wanted, is_canary: bool) {
        let from = sizes::of(&pod.sizes, &wanted.sizes);
        let before = pod.note.as_ref();
        let is_again =
            before.is_some_and(|note| sizes::similar(looked.workload, &note.target, &wanted.sizes));
        // What a later step changes was not changed by earlier ones.
        let mut original = from.clone();
        original.extend(before.map(|note| note.original.clone()).unwrap_or_default());
        let note = Note {
            stage: Stage::Asked,
            is_canary,
            at: self.now.seconds,
            tries: before.filter(|_| is_again).map_or(0, |note| note.tries),
            original,
            before: from.clone(),
            target: wanted.sizes.clone(),
            why: String::new(),
        };
        self.take(looked, pod, wanted, note, (reason(pod, wanted), words(pod, wanted)));
    }

    /// Plans a resize, unless its note is longer than a pod bears.
    fn take(&mut self, looked: &mut Looked<'_>, pod: &Pod, wanted: &Wanted, note: Note, told: Told) {
        if note.text().len() > MOST_BYTES {
            let why = format!("what is to be noted on it is longer than {MOST_BYTES} bytes");
            self.refuse(looked.workload, Some(pod), (Reason::Unsupported, why));
            return;
        }
        let from = sizes::of(&pod.sizes, &wanted.sizes);
        if note.is_canary {
            looked.is_watching = Some(format!("{} is the first replica", pod.name));
        }
        self.act(looked, pod, Deed::Resize { from, to: wanted.sizes.clone() }, Some(note), told);
        looked.slots.takes(pod, wanted.restarts);
    }

    /// Gives back what a pod had at first.
    fn revert(&mut self, looked: &mut Looked<'_>, pod: &Pod, wanted: &Wanted) -> Result<(), Told> {
        let Some(note) = &pod.note else { return Ok(()) };
        if wanted.class != Some(pod.class) {
            return Err((
                Reason::ClassWouldChange,
                "with what it had at first its class would change".to_owned(),
            ));
        }
        if note.stage == Stage::GivenUp
            && self.now.seconds < note.at.saturating_add(self.rules.pause(note.tries))
        {
            return Err((Reason::BackOff, format!("the last resize was given up: {}", note.why)));
        }
        looked.slots.may(pod, wanted.restarts)?;
        self.room.in_place(looked.workload, pod, &wanted.sizes).map_err(|why| (Reason::NoRoom, why))?;
        self.paced()?;
        let note = Note {
            stage: Stage::Reverted,
            is_canary: false,
            at: self.now.seconds,
            tries: 0,
            original: note.original.clone(),
            before: sizes::of(&pod.sizes, &wanted.sizes),
            target: wanted.sizes.clone(),
            why: String::new(),
        };
        let told = (Reason::Revert, "the panic switch gives back what was asked for".to_owned());
        self.take(looked, pod, wanted, note, told);
        Ok(())
    }
}

/// Whether a container restarts by this.
fn restarts(pod: &Pod, from: &Sizes, to: &Sizes) -> bool {
    to.iter().any(|(name, new)| {
        let (old, container) = (from.get(name), pod.containers.get(name));
        container.is_some_and(|container| {
            (0..2).any(|at| container.restarts[at] && old.map(|old| old[at]) != Some(new[at]))
        })
    })
}

fn reason(pod: &Pod, wanted: &Wanted) -> Reason {
    match (pod.was_oom_killed, wanted.rises) {
        (true, true) => Reason::OomKilled,
        (false, true) => Reason::Raise,
        (_, false) => Reason::Lower,
    }
}

/// What changes, such as `main: memory 64Mi/- to 128Mi/-`.
fn words(pod: &Pod, wanted: &Wanted) -> String {
    let mut all = Vec::new();
    for (name, new) in &wanted.sizes {
        let Some(old) = pod.sizes.get(name) else { continue };
        for resource in Resource::ALL {
            let (old, new) = (old[place(resource)], new[place(resource)]);
            if old != new {
                let (old, new) = (note::size(resource, old), note::size(resource, new));
                all.push(format!("{name}: {} {old} to {new}", resource.as_str()));
            }
        }
    }
    all.join(", ")
}
