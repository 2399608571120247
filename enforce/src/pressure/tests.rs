//! The thread with a fake kernel: looks are made by hand, the worker's jobs done in line.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use evenkeel_host::error::{Category, HostError, HostOperation as Tried};
use evenkeel_host::fake::FakeKernel;
use evenkeel_host::freeze::freeze_write;
use evenkeel_host::hierarchy::CgroupMode;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::node::CpuTimes;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::CgroupRef;
use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_qos::pressure::{NodePressure, OwnLimits, Switches};

use super::sight::{CpuNow, LimitNow, MemoryNow, Sight};
use super::view::View;
use super::worker::Worker;
use super::*;
use crate::holds::Holds;
use crate::oom::evictions::Evictions;
use crate::shared::lock;
use crate::testing::{Samples, config, context, tracked};
use crate::transients::Transients;

const MIB: u64 = 1 << 20;

/// What the fake eyes see, changed by the test.
#[derive(Default)]
struct Scene {
    node: NodePressure,
    memory: Vec<(u32, u64)>,
    cpu: Vec<(u32, CpuNow)>,
    times: Option<CpuTimes>,
    stirred: Option<HashSet<u32>>,
    own_limits: OwnLimits,
    limits: Vec<(u32, LimitNow)>,
    waiters: Option<HashSet<u32>>,
}

struct FakeSight {
    scene: Arc<Mutex<Scene>>,
    clock: Arc<AtomicU64>,
    can: Switches,
}

impl Sight for FakeSight {
    fn now_usec(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
    fn domain(&mut self, tier: Option<&CgroupRef>) -> Option<NodePressure> {
        tier.is_none().then(|| lock(&self.scene).node)
    }
    fn own_limits(&mut self, _tier: Option<&CgroupRef>) -> OwnLimits {
        lock(&self.scene).own_limits
    }
    fn limit_hits(&mut self, entry: &RosterEntry) -> Result<u64, HostError> {
        Ok(self.limit(entry)?.map_or(0, |limit| limit.hits))
    }
    fn limit(&mut self, entry: &RosterEntry) -> Result<Option<LimitNow>, HostError> {
        let scene = lock(&self.scene);
        let found = scene.limits.iter().find(|(slot, _)| *slot == entry.tracked.slot);
        Ok(found.map(|(_, limit)| LimitNow { read_usec: self.now_usec(), ..*limit }))
    }
    fn memory_waiters(&mut self, _least: u32) -> Option<HashSet<u32>> {
        lock(&self.scene).waiters.clone()
    }
    fn memory(&mut self, entry: &RosterEntry, _parts: bool) -> Result<MemoryNow, HostError> {
        let scene = lock(&self.scene);
        let found = scene.memory.iter().find(|(slot, _)| *slot == entry.tracked.slot);
        let gone = || HostError::of_text(Category::Gone, Tried::Read, "fake".to_owned(), "gone");
        let (_, current) = found.ok_or_else(gone)?;
        let (current, zero) = (Bytes::new(current * MIB), Bytes::ZERO);
        let read_usec = self.now_usec();
        Ok(MemoryNow { current, parts: Some((current, zero)), limit: None, some_usec: None, read_usec })
    }
    fn cpu_times(&mut self) -> Option<CpuTimes> {
        lock(&self.scene).times
    }
    fn cpu(&mut self, entry: &RosterEntry, _waited: bool) -> Result<CpuNow, HostError> {
        let scene = lock(&self.scene);
        let found = scene.cpu.iter().find(|(slot, _)| *slot == entry.tracked.slot);
        let gone = || HostError::of_text(Category::Gone, Tried::Read, "fake".to_owned(), "gone");
        found.map(|(_, cpu)| CpuNow { read_usec: self.now_usec(), ..*cpu }).ok_or_else(gone)
    }
    fn stirred(&mut self) -> Option<HashSet<u32>> {
        lock(&self.scene).stirred.clone()
    }
    fn can(&self) -> Switches {
        self.can
    }
}

struct Rig {
    kernel: FakeKernel,
    scene: Arc<Mutex<Scene>>,
    clock: Arc<AtomicU64>,
    decisions: Arc<DecisionLog>,
    holds: Arc<Holds>,
    board: Arc<Board>,
    loop_: Loop,
    worker: Worker,
    _dir: tempfile::TempDir,
}

/// `/a` is BestEffort in slot 1, `/g` Guaranteed in slot 2; 4 GiB of memory.
fn rig(mode: CgroupMode) -> Rig {
    let kernel = FakeKernel::new(mode);
    let dir = tempfile::tempdir().unwrap();
    let context = context(config(dir.path()));
    let (scene, clock) = (Arc::new(Mutex::new(Scene::default())), Arc::new(AtomicU64::new(10_000_000)));
    let v2 = mode == CgroupMode::V2;
    let can = Switches { reclaim: v2, high: v2, soft_limit: !v2, freeze: true, kill: true };
    let sight = FakeSight { scene: Arc::clone(&scene), clock: Arc::clone(&clock), can };
    let (board, view) = (Arc::new(Board::default()), Arc::new(View::default()));
    let mut entries = Vec::new();
    for (slot, name, class) in [(1, "a", QosClass::BestEffort), (2, "g", QosClass::Guaranteed)] {
        kernel.with(|state| {
            state.add_cgroup(&format!("/{name}"));
            state.add_process(slot, 1, evenkeel_model::units::OomScoreAdj::clamped(0), &format!("/{name}"));
        });
        let facts = kernel.cgroup(&format!("/{name}")).unwrap();
        let of = |knob| facts.knob(knob).map(|fact| fact.place.clone());
        let (memory, freeze, cpu) = match mode {
            CgroupMode::V2 => (Knob::MemoryHigh, Knob::CgroupFreeze, Knob::CpuWeight),
            _ => (Knob::MemorySoftLimit, Knob::FreezerState, Knob::CpuShares),
        };
        let mut who = tracked(name);
        who.slot = slot;
        who.inode = u64::from(slot);
        (who.classes.memory, who.classes.cpu) = (Some(class), Some(class));
        let tracked = Arc::new(who);
        entries.push(RosterEntry {
            tracked,
            managed: true,
            memory: of(memory),
            cpu: of(cpu),
            freezer: of(freeze),
        });
    }
    board.publish_roster(entries);
    let transients = Transients::in_memory("boot");
    transients.set_witness(Box::new(Vec::new()));
    let (holds, decisions) = (Arc::new(Holds::new(transients)), Arc::new(DecisionLog::for_tests()));
    let (job_sender, jobs) = sync_channel(JOBS);
    let (finished, results) = sync_channel(JOBS);
    let worker = Worker {
        context: Arc::clone(&context),
        reader: Box::new(kernel.clone()),
        writer: Box::new(kernel.clone()),
        holds: Arc::clone(&holds),
        decisions: Arc::clone(&decisions),
        view: Arc::clone(&view),
        evictions: Arc::new(Evictions::new(evenkeel_qos::eviction::EvictionPolicy::default(), false, &[])),
        usage: Samples::shared(),
        jobs,
        finished,
        bell: Waker::new().unwrap(),
    };
    let loop_ = Loop::new(&context, &board, &view, Box::new(sight), job_sender, results);
    Rig { kernel, scene, clock, decisions, holds, board, loop_, worker, _dir: dir }
}

impl Rig {
    /// Looks four times a second for so long, with so much available.
    fn live(&mut self, ms: u64, available: u64, current: u64) {
        for _ in 0..ms / 250 {
            {
                let mut scene = lock(&self.scene);
                scene.node.total = Bytes::new(4096 * MIB);
                scene.node.available = Bytes::new(available * MIB);
                scene.memory = vec![(1, current), (2, 1000)];
            }
            self.turn(&[]);
            self.clock.fetch_add(250_000, Ordering::Relaxed);
        }
    }

    fn turn(&mut self, fired: &[Fired]) {
        self.loop_.turn(fired, Instant::now());
        while let Ok(job) = self.worker.jobs.try_recv() {
            self.worker.work(job);
        }
    }

    fn decisions(&self) -> Vec<Arc<Decision>> {
        let mut history = self.decisions.history(0);
        history.next_chunk(1000)
    }

    fn kinds(&self) -> Vec<(DecisionKind, String)> {
        self.decisions().iter().map(|d| (d.kind, d.new.clone().unwrap_or_default())).collect()
    }

    fn value(&self, path: &str, knob: Knob) -> Setting {
        self.kernel.with(|state| state.value(path, knob).unwrap())
    }
}

#[test]
fn a_best_effort_container_is_held_back_and_let_go() {
    let mut rig = rig(CgroupMode::V2);
    rig.live(3000, 200, 800);
    assert_eq!(rig.value("/a", Knob::MemoryHigh), Setting::MemoryHigh(Limit::Value(Bytes::new(800 * MIB))));
    assert_eq!(rig.value("/g", Knob::MemoryHigh), Setting::MemoryHigh(Limit::Max));
    assert_eq!(rig.holds.list()[0].tracked.slot, 1);
    rig.live(20_000, 3000, 300);
    assert_eq!(rig.value("/a", Knob::MemoryHigh), Setting::MemoryHigh(Limit::Max));
    assert_eq!(rig.holds.len(), 0);
    let told = rig.decisions();
    assert_eq!(told.first().map(|d| d.kind), Some(DecisionKind::Relieve));
    assert_eq!(told.last().map(|d| d.kind), Some(DecisionKind::Release));
    for decision in told {
        assert_eq!(decision.result, DecisionResult::Done, "{decision:?}");
        assert_eq!(
            evenkeel_qos::replay::replay(&decision),
            evenkeel_qos::replay::Replayed::Same,
            "{decision:?}"
        );
    }
}

#[test]
fn on_v1_it_is_steered_frozen_and_killed_last() {
    let mut rig = rig(CgroupMode::V1);
    rig.live(2250, 50, 800);
    let kinds = rig.kinds();
    let values: Vec<&str> = kinds.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values[..3], [(800 * MIB).to_string().as_str(), "frozen", "killed"], "{kinds:?}");
    assert_eq!(kinds[2].0, DecisionKind::Kill);
    // Whoever is killed is thawed, or it would not die.
    assert_eq!(rig.value("/a", Knob::FreezerState), Setting::FreezerState(false));
    assert_eq!(rig.holds.len(), 0);
}

#[test]
fn a_trigger_is_answered_at_once_and_measured() {
    let mut rig = rig(CgroupMode::V2);
    let fired = (0, Grade::High, 1_000_000);
    rig.live(1000, 405, 800);
    assert!(rig.kinds().is_empty(), "a warning, and nothing to reclaim");
    rig.turn(&[fired]);
    let told = rig.decisions();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].inputs.contains_key("poll_to_write_usec"));
}

#[test]
fn a_trigger_that_fires_while_there_is_plenty_is_no_reason() {
    let mut rig = rig(CgroupMode::V2);
    for _ in 0..20 {
        rig.live(250, 3000, 800);
        rig.turn(&[(0, Grade::Critical, 1_000_000)]);
    }
    assert!(rig.kinds().is_empty(), "{:?}", rig.kinds());
}

/// U-A1: a container that thrashes in 24 MiB of its own, for half a minute.
#[test]
fn a_container_that_thrashes_at_its_own_limit_is_named_and_nobody_is_touched() {
    for (mode, available) in [(CgroupMode::V2, 3900), (CgroupMode::V1, 3900), (CgroupMode::V2, 380)] {
        let mut rig = rig(mode);
        for tick in 0..120_u64 {
            let waited = tick * 240_000;
            {
                let mut scene = lock(&rig.scene);
                scene.node.some_usec = Some(waited);
                scene.node.full_usec = Some(waited);
                scene.node.some_avg10 = Some(9600);
                scene.node.full_avg10 = Some(9600);
                let v2 = mode == CgroupMode::V2;
                let told = if tick == 0 { OwnLimits::Pending } else { OwnLimits::Stalled(waited) };
                scene.own_limits = if v2 { told } else { OwnLimits::Untold };
                scene.waiters = v2.then(|| HashSet::from([2]));
                let limit = LimitNow {
                    limit: Bytes::new(24 * MIB),
                    knob: if v2 { "memory.max" } else { "memory.limit_in_bytes" },
                    current: Bytes::new(24 * MIB),
                    hits: tick * 1000,
                    refaulted: Bytes::new(tick * 9 * MIB),
                    some_usec: v2.then_some(waited),
                    read_usec: 0,
                };
                scene.limits = vec![(2, limit)];
            }
            rig.live(250, available, 800);
        }
        let told = rig.decisions();
        assert_eq!(told.len(), 1, "{told:#?}");
        let thrash = &told[0];
        assert_eq!((thrash.kind, thrash.pod.as_deref()), (DecisionKind::Thrash, Some("default/g")));
        assert_eq!(thrash.new, Some((48 * MIB).to_string()));
        assert!(thrash.reason.contains("raise its limit to 48 MiB"), "{}", thrash.reason);
        assert_eq!(evenkeel_qos::replay::replay(thrash), evenkeel_qos::replay::Replayed::Same);
        assert_eq!(rig.holds.len(), 0);
    }
}

#[test]
fn the_end_undoes_everything_and_nothing_is_held_after_it() {
    let mut rig = rig(CgroupMode::V2);
    rig.live(3000, 200, 800);
    let mut writer = rig.kernel.clone();
    assert_eq!(rig.holds.end(&rig.kernel, &mut writer), 1);
    assert_eq!(rig.value("/a", Knob::MemoryHigh), Setting::MemoryHigh(Limit::Max));
    rig.live(10_000, 60, 900);
    assert_eq!(rig.value("/a", Knob::MemoryHigh), Setting::MemoryHigh(Limit::Max));
    assert_eq!(rig.value("/a", Knob::CgroupFreeze), Setting::CgroupFreeze(false));
}

#[test]
fn what_somebody_froze_stays_frozen() {
    let mut rig = rig(CgroupMode::V2);
    rig.kernel.with(|state| state.set("/a", Setting::CgroupFreeze(true)));
    rig.live(3000, 110, 800);
    rig.live(20_000, 3500, 100);
    assert_eq!(rig.value("/a", Knob::CgroupFreeze), Setting::CgroupFreeze(true));
    let freezer = rig.kernel.cgroup("/a").unwrap().places[0].clone();
    assert_eq!(freeze_write(&freezer, true).setting, rig.value("/a", Knob::CgroupFreeze));
}

#[test]
fn a_container_that_is_gone_leaves_no_hold() {
    let mut rig = rig(CgroupMode::V2);
    rig.live(3000, 200, 800);
    assert_eq!(rig.holds.len(), 1);
    rig.kernel.with(|state| state.remove_cgroup("/a"));
    rig.board.publish_roster(Vec::new());
    rig.live(500, 200, 0);
    assert_eq!(rig.holds.len(), 0);
    assert!(rig.holds.transients().to_undo().is_empty());
}

#[test]
fn a_starving_container_is_reported_and_others_are_squeezed_for_it() {
    let mut rig = rig(CgroupMode::V2);
    let mut used = [0_u64; 2];
    let mut waited = 0;
    let mut busy = 0;
    for second in 0..200_u64 {
        let hungry = second < 100;
        let rates = if hungry { [900_000, 100_000] } else { [100_000, 600_000] };
        (used[0], used[1]) = (used[0] + rates[0], used[1] + rates[1]);
        waited += if hungry { 800_000 } else { 10_000 };
        busy += if hungry { 1_000_000 } else { 700_000 };
        {
            let mut scene = lock(&rig.scene);
            scene.node = NodePressure {
                total: Bytes::new(4096 * MIB),
                available: Bytes::new(3000 * MIB),
                ..NodePressure::default()
            };
            let all = (second + 1) * 1_000_000;
            scene.times = Some(CpuTimes { busy_usec: busy, idle_usec: all - busy, steal_usec: 0 });
            let cpu = |usage_usec, waited_usec| CpuNow {
                usage_usec,
                waited_usec: Some(waited_usec),
                can_idle: true,
                ..CpuNow::default()
            };
            scene.cpu = vec![(1, cpu(used[0], 0)), (2, cpu(used[1], waited))];
            // Whoever is held is looked at even while it rests, or it would be held for ever.
            scene.stirred = Some(if hungry { HashSet::from([1, 2]) } else { HashSet::from([2]) });
        }
        rig.turn(&[]);
        rig.clock.fetch_add(1_000_000, Ordering::Relaxed);
    }
    let kinds = rig.kinds();
    assert_eq!(kinds[0].0, DecisionKind::Starved, "{kinds:?}");
    assert_eq!(kinds[1], (DecisionKind::Relieve, "least-weight".to_owned()));
    assert!(kinds.iter().any(|(kind, value)| *kind == DecisionKind::Relieve && value == "idle"), "{kinds:?}");
    assert!(kinds.iter().any(|(_, value)| value.ends_with('m')), "{kinds:?}");
    assert_eq!(rig.holds.len(), 0, "{kinds:?}");
    assert_eq!(rig.value("/a", Knob::CpuIdle), Setting::CpuIdle(false));
    let weight = rig.value("/a", Knob::CpuWeight);
    assert_eq!(weight, Setting::CpuWeight(evenkeel_model::units::CpuWeight::clamped(100)));
}
