//! Suite `unit`: the updater over 300 random clusters with faults: nodes that defer, fail, refuse and fall silent, an API server that refuses and
//! conflicts, leaders that die in the middle, panics, pods that die or that agents offer. Each choice can be made again. Never below a budget, never two steps of one pod at once, no class is
//! changed in place, nothing while frozen, and each step comes to an end.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::panic::Panic;
use evenkeel_rightsizing::policy::LimitsMode;
use evenkeel_rightsizing::policy::update::{Evict, MaxUnavailable, Updates};
use evenkeel_updater::{
    EvictionOffer, Health, Note, Now, OfferCause, PlannedStep, PodAction, Reason, ReplayCase, Resizing, Room,
    RunningContainer, RunningPod, Size, Sizes, Stage, TargetRequest, Two, UpdateRules, UpdaterMemory,
    Watched, Workload, class, plan,
};

const CLUSTERS: u64 = 300;
const MIB: u64 = 1 << 20;
/// Seconds from one look to the next, in turmoil and shortly after, and once it is calm for long.
const TICKS: [u64; 2] = [60, 600];
/// How long either lasts.
const TURMOIL: u64 = 3 * 3600;
const CALM: u64 = 2 * 86_400;

/// Chance by a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What a node makes of the next resize.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Takes(u64),
    Defers(u64),
    Fails(u64),
    Never,
    Silent,
}

#[derive(Debug, Clone)]
struct Running {
    pod: RunningPod,
    workload: usize,
    /// What the node gives.
    granted: Sizes,
    fate: Fate,
    asked_at: u64,
    ready_at: u64,
    ends_at: Option<u64>,
    /// Less memory kills it.
    is_bad: bool,
    /// Its node never does what is asked for.
    is_hopeless: bool,
}

struct World {
    chance: Chance,
    now: u64,
    nodes: BTreeMap<String, Two<u64>>,
    workloads: Vec<Workload>,
    template: Vec<Sizes>,
    pods: Vec<Running>,
    next: u64,
    panic: Panic,
    admission: bool,
    is_calm: bool,
}

fn sum(sizes: &Sizes) -> Two<u64> {
    let of = |at: usize| sizes.values().map(|two| two[at].request.unwrap_or(0)).sum();
    [of(0), of(1)]
}

fn with(before: &Sizes, change: &Sizes) -> Sizes {
    let mut after = before.clone();
    after.extend(change.clone());
    after
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let nodes = 1 + chance.below(5);
        let nodes = (0..nodes).map(|at| (format!("n{at}"), [4_000, 8_192 * MIB])).collect();
        let (workloads, template, pods, now) = (Vec::new(), Vec::new(), Vec::new(), 10_000_000);
        let (panic, admission) = (Panic::Off, !chance.one_in(5));
        let mut world =
            Self { chance, now, nodes, workloads, template, pods, next: 0, panic, admission, is_calm: false };
        for at in 0..1 + world.chance.below(6) {
            world.add_workload(at);
        }
        world
    }

    fn add_workload(&mut self, at: u64) {
        let chance = &mut self.chance;
        let replicas = 1 + chance.below(6) as u32;
        let updates = Updates {
            evict: chance.of(&[Evict::Always, Evict::Oom, Evict::Never]),
            evict_offers: chance.of(&[Evict::Always, Evict::Oom, Evict::Never]),
            min_replicas: 1 + chance.below(3) as u32,
            max_unavailable: chance.of(&[
                MaxUnavailable::Percent(25),
                MaxUnavailable::Percent(50),
                MaxUnavailable::Count(1),
                MaxUnavailable::Count(2),
            ]),
            canary_seconds: chance.of(&[0, 300, 600]),
            min_age_seconds: chance.of(&[0, 600]),
            ..Updates::default()
        };
        let mut template = Sizes::new();
        for name in ["main", "side"].iter().take(1 + chance.below(2) as usize) {
            let kind = chance.below(4);
            let amount = |base: u64, chance: &mut Chance| base * (1 + chance.below(8));
            let (cpu, memory) = (amount(50, chance), amount(64 * MIB, chance));
            let size = |request: u64| match kind {
                0 => Size { request: Some(request), limit: Some(request) },
                1 => Size { request: Some(request), limit: None },
                2 => Size { request: Some(request), limit: Some(request * 2) },
                _ => Size::default(),
            };
            template.insert((*name).to_owned(), [size(cpu), size(memory)]);
        }
        let scaler = chance.one_in(8).then(|| "HorizontalPodAutoscaler".to_owned());
        self.workloads.push(Workload {
            namespace: "n".to_owned(),
            name: format!("deployment/w{at}"),
            policy: format!("n/p{at}"),
            updates,
            limits: chance.of(&[LimitsMode::Keep, LimitsMode::Ratio, LimitsMode::None]),
            replicas,
            pods: Vec::new(),
            targets: BTreeMap::new(),
            allowed_disruptions: None,
            scaled_by: [scaler, None],
            updated_by: chance.one_in(20).then(|| "VerticalPodAutoscaler".to_owned()),
            frozen: chance.one_in(20).then(|| "its namespace".to_owned()),
        });
        self.template.push(template);
        let place = self.workloads.len() - 1;
        self.retarget(place);
        for _ in 0..replicas {
            self.make(place);
        }
    }

    fn retarget(&mut self, place: usize) {
        let names: Vec<String> = self.template[place].keys().cloned().collect();
        for name in names {
            let chance = &mut self.chance;
            let target = |base: u64, chance: &mut Chance| {
                let request = base * (1 + chance.below(12)) / 2;
                (!chance.one_in(6))
                    .then_some(TargetRequest { request, limit: chance.one_in(2).then_some(request * 2) })
            };
            let two = [target(50, chance), target(64 * MIB, chance)];
            self.workloads[place].targets.insert(name, two);
        }
    }

    /// Makes a pod of a workload where there is room.
    fn make(&mut self, place: usize) {
        let mut sizes = self.template[place].clone();
        if self.admission && self.panic == Panic::Off {
            for (name, targets) in &self.workloads[place].targets {
                let Some(two) = sizes.get_mut(name) else { continue };
                for at in 0..2 {
                    let Some(target) = targets[at].filter(|_| self.workloads[place].scaled_by[at].is_none())
                    else {
                        continue;
                    };
                    let limit = two[at].limit.map(|limit| limit.max(target.request));
                    two[at] = Size { request: Some(target.request), limit };
                }
            }
        }
        let need = sum(&sizes);
        let free = |node: &str, of: &Two<u64>| {
            let used = self.used(node);
            used[0] + need[0] <= of[0] && used[1] + need[1] <= of[1]
        };
        let Some(node) = self.nodes.iter().find(|(node, of)| free(node, of)).map(|(node, _)| node.clone())
        else {
            return;
        };
        self.next += 1;
        let chance = &mut self.chance;
        let containers = sizes.keys().map(|name| {
            let restarts = [chance.one_in(6), chance.one_in(6)];
            let peak_memory = (!chance.one_in(6)).then(|| 32 * MIB * (1 + chance.below(6)));
            (name.clone(), RunningContainer { is_sidecar: false, restarts, peak_memory })
        });
        let pod = RunningPod {
            name: format!("p{}", self.next),
            uid: format!("u{}", self.next),
            version: "1".to_owned(),
            node,
            owner: "ReplicaSet/x".to_owned(),
            containers: containers.collect(),
            is_remade: !chance.one_in(8),
            class: class(&sizes),
            created: self.now,
            is_ready: false,
            is_ending: false,
            was_oom_killed: false,
            is_sized_as_whole: chance.one_in(30),
            resizing: Resizing::Settled,
            note: None,
            asked: Some(self.template[place].clone()),
            sizes: sizes.clone(),
            watched: None,
            offer: None,
        };
        let ready_at = self.now + chance.below(120);
        self.pods.push(Running {
            pod,
            workload: place,
            granted: sizes,
            fate: Fate::Takes(0),
            asked_at: 0,
            ready_at,
            ends_at: None,
            is_bad: chance.one_in(3),
            is_hopeless: chance.one_in(8),
        });
    }

    fn used(&self, node: &str) -> Two<u64> {
        let of = |running: &&Running| running.pod.node == node;
        self.pods.iter().filter(of).fold([0, 0], |used, running| {
            let (asked, given) = (sum(&running.pod.sizes), sum(&running.granted));
            [used[0] + asked[0].max(given[0]), used[1] + asked[1].max(given[1])]
        })
    }

    /// Time passes.
    fn tick(&mut self, seconds: u64) {
        self.now += seconds;
        if !self.is_calm {
            self.turmoil();
        }
        let now = self.now;
        for running in &mut self.pods {
            running.pod.is_ready = running.ends_at.is_none() && now >= running.ready_at;
            node(running, now);
        }
        self.pods.retain(|running| running.ends_at.is_none_or(|at| now < at));
        for place in 0..self.workloads.len() {
            let there = self
                .pods
                .iter()
                .filter(|running| running.workload == place && running.ends_at.is_none())
                .count();
            for _ in there..self.workloads[place].replicas as usize {
                self.make(place);
            }
        }
    }

    fn turmoil(&mut self) {
        let count = self.pods.len() as u64;
        if count > 0 && self.chance.one_in(40) {
            let at = self.chance.below(count) as usize;
            let running = &mut self.pods[at];
            if self.chance.one_in(3) {
                running.ends_at = Some(self.now + 60);
                running.pod.is_ending = true;
            } else {
                running.pod.was_oom_killed = true;
                running.ready_at = self.now + 60;
                let cause =
                    self.chance.of(&[OfferCause::OomKill, OfferCause::Pressure, OfferCause::Starvation]);
                let offer =
                    EvictionOffer { id: "n/1/7".to_owned(), cause, why: "again".to_owned(), at: self.now };
                running.pod.offer = Some(offer).filter(|_| self.chance.one_in(2));
            }
        }
        if self.chance.one_in(60) {
            let place = self.chance.below(self.workloads.len() as u64) as usize;
            self.retarget(place);
        }
        if self.chance.one_in(80) {
            self.panic = self.chance.of(&[Panic::Off, Panic::Off, Panic::Freeze, Panic::Revert]);
        }
        if self.chance.one_in(100) {
            self.admission = !self.admission;
        }
    }

    /// What the API server tells.
    fn facts(&mut self) -> Vec<Workload> {
        let mut all = self.workloads.clone();
        for running in &self.pods {
            let mut pod = running.pod.clone();
            pod.watched = pod.note.as_ref().map(|note| {
                let since = self.now.saturating_sub(note.at);
                let less = sum(&note.target)[1] < sum(&note.before)[1];
                let oom_kills = u64::from(running.is_bad && less && since >= 60);
                let before = Health { seconds: 600, ..Health::default() };
                Watched { before, after: Health { seconds: since, oom_kills, ..Health::default() } }
            });
            all[running.workload].pods.push(pod);
        }
        all
    }

    fn find(&mut self, uid: &str) -> Option<&mut Running> {
        self.pods.iter_mut().find(|running| running.pod.uid == uid)
    }

    /// Carries out what is planned, as far as faults let it; whether the leader lives.
    fn carry_out(&mut self, actions: Vec<PlannedStep>, kept: &mut UpdaterMemory) -> bool {
        for action in actions {
            if !self.is_calm && self.chance.one_in(30) {
                return false;
            }
            let fault = if self.is_calm { 9 } else { self.chance.below(12) };
            if fault == 0 {
                // A conflict, or no answer: nothing came of it.
                if matches!(action.deed, PodAction::Evict { .. }) && action.reason != Reason::Offered {
                    kept.evicts_not(&action.namespace, &action.workload);
                }
                continue;
            }
            let (now, fate) = (self.now, self.fate());
            let Some(running) = self.find(&action.uid) else { continue };
            if action.note.is_some() {
                running.pod.note.clone_from(&action.note);
            }
            if fault == 1 {
                // The note was written, and the leader dies.
                return false;
            }
            match action.deed {
                PodAction::Note => {}
                PodAction::Resize { to, .. } => {
                    let after = with(&running.pod.sizes, &to);
                    assert_eq!(
                        class(&after),
                        running.pod.class,
                        "a class is never changed in place: {action:?}",
                        action = action.why
                    );
                    running.pod.sizes = after;
                    running.fate = if running.is_hopeless { Fate::Never } else { fate };
                    running.asked_at = now;
                    node(running, now);
                }
                PodAction::Evict { .. } => {
                    running.pod.is_ending = true;
                    running.pod.is_ready = false;
                    running.ends_at = Some(now + 40);
                    if action.reason == Reason::Offered {
                        kept.took_offer(&action.namespace, &action.workload, running.pod.created, now);
                    }
                }
            }
        }
        true
    }

    fn fate(&mut self) -> Fate {
        let seconds = self.chance.below(900);
        match self.chance.below(if self.is_calm { 40 } else { 12 }) {
            // Some for ever.
            0 => Fate::Defers(if seconds < 300 { u64::from(u32::MAX) } else { seconds }),
            1 => Fate::Fails(seconds),
            2 => Fate::Never,
            3 => Fate::Silent,
            _ => Fate::Takes(seconds % 90),
        }
    }
}

/// What a node makes of what is asked for.
fn node(running: &mut Running, now: u64) {
    let since = running.asked_at;
    if running.pod.sizes == running.granted {
        running.pod.resizing = Resizing::Settled;
        return;
    }
    let over = |seconds: u64| now >= since + seconds;
    running.pod.resizing = match running.fate {
        Fate::Takes(seconds) | Fate::Defers(seconds) | Fate::Fails(seconds) if over(seconds) => {
            running.granted.clone_from(&running.pod.sizes);
            Resizing::Settled
        }
        Fate::Takes(_) | Fate::Silent => Resizing::InProgress,
        Fate::Defers(_) => Resizing::Deferred { since, why: "later".to_owned() },
        Fate::Fails(_) => Resizing::Failing { why: "error".to_owned() },
        Fate::Never => Resizing::Infeasible { why: "never".to_owned() },
    };
}

/// What nodes have left.
struct Free {
    nodes: BTreeMap<String, Two<u64>>,
}

impl Room for Free {
    fn in_place(&mut self, _: &Workload, pod: &RunningPod, sizes: &Sizes) -> Result<(), String> {
        let (old, new) = (sum(&pod.sizes), sum(&with(&pod.sizes, sizes)));
        let free = self.nodes.get_mut(&pod.node).ok_or("no such node")?;
        for at in 0..2 {
            if new[at].saturating_sub(old[at]) > free[at] {
                return Err("the node is full".to_owned());
            }
        }
        for at in 0..2 {
            free[at] -= new[at].saturating_sub(old[at]);
        }
        Ok(())
    }

    fn anywhere(&mut self, _: &Workload, pod: &RunningPod, sizes: &Sizes) -> Result<(), String> {
        let new = sum(&with(&pod.sizes, sizes));
        let fits = self.nodes.values().any(|free| (0..2).all(|at| new[at] <= free[at]));
        fits.then_some(()).ok_or_else(|| "no node has room".to_owned())
    }
}

/// What must hold of each plan, whatever happened before.
fn check(seed: u64, world: &World, all: &[Workload], actions: &[PlannedStep]) {
    let uids: BTreeSet<&str> = actions.iter().map(|action| action.uid.as_str()).collect();
    assert_eq!(uids.len(), actions.len(), "{seed}: two steps of one pod at once");
    assert!(world.panic != Panic::Freeze || actions.is_empty(), "{seed}: acted while frozen");
    for workload in all {
        let own: Vec<&PlannedStep> =
            actions.iter().filter(|a| a.workload == workload.name && a.deed != PodAction::Note).collect();
        let pod_of = |action: &PlannedStep| workload.pods.iter().find(|pod| pod.uid == action.uid).unwrap();
        let under_way = |pod: &RunningPod| pod.resizing != Resizing::Settled || pod.is_ending;
        let ready = workload.pods.iter().filter(|pod| pod.is_ready && !under_way(pod)).count();
        let most = workload.updates.max_unavailable.of(workload.replicas);
        // What goes back, or gives up, was under way before.
        let is_new = |action: &&&PlannedStep| !matches!(action.reason, Reason::GaveUp | Reason::CanaryWorse);
        let new = own.iter().filter(is_new).filter(|action| pod_of(action).is_ready).count();
        let away = u64::from(workload.replicas).saturating_sub(ready as u64 - new.min(ready) as u64);
        assert!(
            new == 0 || away <= u64::from(most),
            "{seed}: below the budget of {}: {own:#?}",
            workload.name
        );
        assert!(workload.frozen.is_none() || own.is_empty(), "{seed}: {own:#?}");
        for action in own {
            let pod = pod_of(action);
            assert!(!pod.is_ending, "{seed}: an ending pod: {action:?}");
            let is_evicted = matches!(action.deed, PodAction::Evict { .. });
            let goes_on = matches!(action.reason, Reason::GaveUp | Reason::CanaryWorse);
            assert!(!under_way(pod) || goes_on, "{seed}: a step of it was under way: {action:?}");
            if action.reason == Reason::Offered {
                let (lets, offer) = (workload.updates.evict_offers, pod.offer.as_ref().unwrap());
                assert!(world.panic == Panic::Off && pod.is_remade, "{seed}: {action:?}");
                assert!(workload.replicas >= workload.updates.min_replicas, "{seed}: {action:?}");
                let is_let =
                    lets == Evict::Always || lets == Evict::Oom && offer.cause == OfferCause::OomKill;
                assert!(is_let && world.now < offer.at + 600, "{seed}: {action:?}");
            } else if is_evicted {
                assert!(workload.replicas >= workload.updates.min_replicas, "{seed}: {action:?}");
                assert!(
                    workload.updates.evict != Evict::Never && pod.is_remade && world.admission,
                    "{seed}: {action:?}"
                );
                assert!(workload.updates.evict == Evict::Always || pod.was_oom_killed, "{seed}: {action:?}");
            }
            if world.panic == Panic::Off && !goes_on {
                assert!(workload.updated_by.is_none(), "{seed}: {action:?}");
            }
        }
    }
}

fn run(seed: u64) -> (usize, usize) {
    let mut world = World::new(seed);
    let (mut kept, rules) = (UpdaterMemory::default(), UpdateRules::default());
    let (mut taken, mut late) = (0, 0);
    let began = world.now;
    // Of the calm days the last one counts.
    while world.now < began + TURMOIL + CALM {
        let passed = world.now - began;
        if passed >= TURMOIL && !world.is_calm {
            world.is_calm = true;
            world.panic = Panic::Off;
        }
        world.tick(TICKS[usize::from(passed >= 2 * TURMOIL)]);
        let all = world.facts();
        let admission = if world.admission { Ok(()) } else { Err("no webhook".to_owned()) };
        let now = Now { seconds: world.now, panic: world.panic, admission };
        let nodes = world.nodes.iter().map(|(node, of)| {
            let used = world.used(node);
            (node.clone(), [of[0].saturating_sub(used[0]), of[1].saturating_sub(used[1])])
        });
        let mut room = Free { nodes: nodes.collect() };
        let planned = plan(&all, &mut kept, &rules, &now, &mut room);
        check(seed, &world, &all, &planned.actions);
        // A quarter of the clusters shows as much, and this costs more than the choices themselves.
        for workload in all.iter().filter(|_| seed.is_multiple_of(4)) {
            let case = planned.case(workload, &rules, &now);
            assert_eq!(case.again(), *case.outcome(), "{seed}: another choice of the same facts");
            // Text costs more than the choice.
            if passed.is_multiple_of(7_200) {
                assert_eq!(ReplayCase::read(&case.text()).as_ref(), Ok(&case), "{seed}");
            }
        }
        taken += planned.actions.len();
        if passed >= TURMOIL + CALM - 86_400 {
            late += planned.actions.len();
        }
        if !world.carry_out(planned.actions, &mut kept) {
            kept = UpdaterMemory::default();
        }
    }
    for running in &world.pods {
        let Some(note) = &running.pod.note else { continue };
        let since = world.now - note.at;
        let is_open =
            note.stage == Stage::Asked && running.pod.sizes != with(&running.pod.sizes, &note.before);
        assert!(
            !is_open || since <= rules.in_progress_seconds + 600,
            "{seed}: a step without an end: {note:?}"
        );
    }
    // What cannot be is tried again once a day at last: asked for, noted, given up.
    let most = world.pods.len() * 8;
    assert!(late <= most, "{seed}: {late} steps of {} pods in a calm day", world.pods.len());
    (taken, late)
}

#[test]
fn random_clusters_keep_their_budgets_and_come_to_rest() {
    let half = |first: u64| {
        let all = (first..CLUSTERS).step_by(2).map(run);
        all.fold((0, 0), |(taken, idle), (steps, late)| (taken + steps, idle + usize::from(late == 0)))
    };
    let ((a, b), (c, d)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        (half(0), other.join().unwrap())
    });
    let (taken, idle) = (a + c, b + d);
    assert!(taken > 10 * CLUSTERS as usize, "{taken} steps of all: too few to show anything");
    assert!(idle > CLUSTERS as usize / 2, "only {idle} clusters came to rest");
}

#[test]
fn the_same_facts_give_the_same_plan() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        (0..40).for_each(|_| world.tick(TICKS[0]));
        let all = world.facts();
        let now = Now { seconds: world.now, panic: Panic::Off, admission: Ok(()) };
        let once = || {
            let nodes = world.nodes.keys().map(|node| (node.clone(), [4_000, 4_096 * MIB])).collect();
            plan(&all, &mut UpdaterMemory::default(), &UpdateRules::default(), &now, &mut Free { nodes })
        };
        assert_eq!(once(), once());
        let mut backwards = all.clone();
        backwards.reverse();
        let nodes = world.nodes.keys().map(|node| (node.clone(), [4_000, 4_096 * MIB])).collect();
        let other = plan(
            &backwards,
            &mut UpdaterMemory::default(),
            &UpdateRules::default(),
            &now,
            &mut Free { nodes },
        );
        let steps = |actions: &[PlannedStep]| -> BTreeMap<String, Option<Note>> {
            actions.iter().map(|action| (action.uid.clone(), action.note.clone())).collect()
        };
        assert_eq!(steps(&once().actions), steps(&other.actions), "the order of workloads is no input");
    }
}
