//! What runs is counted once: replicas, containers and the limits that go by them are those of a recommender that saw every
//! agent run without interruption, whatever agents are restarted, pods are moved, nodes go and spools arrive late; and
//! every second is in the history once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;
use evenkeel_store::config::Settings;
use evenkeel_store::ingest::store::{FrameOutcome, Store};
use evenkeel_store::key::{SeriesId, StreamKey};
use evenkeel_store::state::history::{History as _, Select};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_049_600_000_000;
const NODES: usize = 3;
const PODS: usize = 5;

#[derive(Debug, Clone)]
enum Step {
    /// Agents measure for some ticks of ten seconds; those that can deliver.
    Run { ticks: u8 },
    /// An agent is started anew, with the spool it has.
    Restart { node: usize },
    /// All of them are: an upgrade.
    Upgrade,
    /// A pod is deleted and made on another node.
    Move { pod: usize, to: usize },
    /// An agent cannot reach the recommender, or can again.
    Cut { node: usize },
    /// The recommender is started anew.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..12_u8).prop_map(|ticks| Step::Run { ticks }),
        2 => (0..NODES).prop_map(|node| Step::Restart { node }),
        1 => Just(Step::Upgrade),
        2 => (0..PODS, 0..NODES).prop_map(|(pod, to)| Step::Move { pod, to }),
        2 => (0..NODES).prop_map(|node| Step::Cut { node }),
        1 => Just(Step::Reopen),
    ]
}

/// One run of an agent, with what it has not delivered.
struct Run {
    key: StreamKey,
    encoder: Encoder,
    /// Slot of each pod that was announced.
    slots: BTreeMap<usize, u32>,
    next_slot: u32,
    sequence: u64,
    spool: Vec<v1::Frame>,
    resumed: bool,
}

impl Run {
    fn new(node: usize, number: u64) -> Self {
        // Epochs are random: a later one may be a smaller number.
        let epoch = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            key: StreamKey { cluster: "c".into(), node: format!("n{node}"), epoch },
            encoder: Encoder::new(),
            slots: BTreeMap::new(),
            next_slot: 1,
            sequence: 0,
            spool: Vec::new(),
            resumed: true,
        }
    }

    /// Measures the pods of the node at a time.
    fn measure(&mut self, pods: &BTreeSet<usize>, now: u64, cpu_usec: u64) {
        let gone: Vec<usize> = self.slots.keys().copied().filter(|pod| !pods.contains(pod)).collect();
        let gone = gone.into_iter().filter_map(|pod| self.slots.remove(&pod)).collect();
        let mut announced = Vec::new();
        for pod in pods {
            self.slots.entry(*pod).or_insert_with(|| {
                let slot = self.next_slot;
                self.next_slot += 1;
                announced.push(v1::Announcement { slot, identity: Some(identity(*pod)) });
                slot
            });
        }
        let mut sample = Sample::new(Duration::from_secs(10));
        sample.set(Field::CpuUsageUsec, cpu_usec);
        sample.set(Field::MemoryWorkingSetBytes, 64 << 20);
        let mut samples: Vec<(u32, Sample)> = self.slots.values().map(|slot| (*slot, sample)).collect();
        samples.sort_by_key(|(slot, _)| *slot);
        let mut bytes = Vec::new();
        let key = self.sequence == 0;
        self.encoder.encode_seconds(key, now, 10_000_000, &samples, &mut bytes).unwrap();
        self.sequence += 1;
        self.spool.push(v1::Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&bytes),
            samples: bytes.into(),
            announced,
            gone,
            ..v1::Frame::default()
        });
    }

    /// Delivers everything that waits.
    fn deliver(&mut self, store: &mut Store, now: u64) {
        let StreamKey { cluster, node, epoch } = self.key.clone();
        let facts =
            Some(v1::NodeFacts { memory_bytes: 8 << 30, cpu_milli: 4000, ..v1::NodeFacts::default() });
        let hello = v1::Hello { cluster, node, epoch, facts, ..v1::Hello::default() };
        let greeting = store.hello(now, &hello).unwrap();
        self.spool.retain(|frame| frame.sequence > greeting.last);
        for frame in std::mem::take(&mut self.spool) {
            let outcome = store.take(now, &self.key, &frame, std::mem::take(&mut self.resumed)).unwrap();
            assert!(matches!(outcome, FrameOutcome::Acknowledge { .. }), "{outcome:?}");
        }
    }
}

fn identity(pod: usize) -> v1::ContainerIdentity {
    v1::ContainerIdentity {
        namespace: "shop".into(),
        pod: format!("web-{pod}"),
        container: "main".into(),
        // Two workloads, of several replicas.
        workload: format!("deployment/web-{}", pod % 2),
        image: "web:1".into(),
        requested: Some(v1::ResourceValues {
            // Of each its own, so that a sum tells whose were counted.
            cpu_request_milli: Some(1 << (2 * pod)),
            memory_request_bytes: Some(1 << (20 + pod)),
            ..v1::ResourceValues::default()
        }),
        ..v1::ContainerIdentity::default()
    }
}

fn add((cpu, memory): (u64, u64), of: &v1::ResourceValues) -> (u64, u64) {
    (cpu + of.cpu_request_milli.unwrap(), memory + of.memory_request_bytes.unwrap())
}

/// A cluster, its agents, and the recommender that is tested.
struct World {
    store: Option<Store>,
    config: Settings,
    now: u64,
    runs: u64,
    places: [usize; PODS],
    /// The runs of each node, oldest first; the last one runs.
    agents: Vec<Vec<Run>>,
    cut: [bool; NODES],
    /// Ticks there were: CPU time passes by them, also where the clock leaps.
    ticks: u64,
    /// Ticks of pods that were measured.
    measured: u64,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Settings::at(dir.path());
        let (store, _) = Store::open(&config).unwrap();
        let agents = (0..NODES).map(|node| vec![Run::new(node, node as u64 + 1)]).collect();
        Self {
            store: Some(store),
            config,
            now: START,
            runs: NODES as u64 + 1,
            places: std::array::from_fn(|pod| pod % NODES),
            agents,
            cut: [false; NODES],
            ticks: 0,
            measured: 0,
            _dir: dir,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Run { ticks } => (0..*ticks).for_each(|_| self.tick()),
            Step::Restart { node } => self.restart(*node),
            Step::Upgrade => (0..NODES).for_each(|node| self.restart(node)),
            Step::Move { pod, to } => self.places[*pod] = *to,
            Step::Cut { node } => self.cut[*node] ^= true,
            Step::Reopen => {
                let mut store = self.store.take().unwrap();
                store.checkpoint().unwrap();
                drop(store);
                self.store = Some(Store::open(&self.config).unwrap().0);
            }
        }
    }

    fn restart(&mut self, node: usize) {
        self.runs += 1;
        self.agents[node].push(Run::new(node, self.runs));
    }

    fn tick(&mut self) {
        self.now += 10 * SECOND;
        self.ticks += 1;
        for node in 0..NODES {
            let pods: BTreeSet<usize> = (0..PODS).filter(|pod| self.places[*pod] == node).collect();
            self.measured += pods.len() as u64;
            let run = self.agents[node].last_mut().unwrap();
            run.measure(&pods, self.now, self.ticks * 10 * SECOND / 4);
            if !self.cut[node] {
                self.deliver(node);
            }
        }
    }

    /// The oldest run first, as an agent does; a run whose frames are all delivered is not heard of again.
    fn deliver(&mut self, node: usize) {
        let store = self.store.as_mut().unwrap();
        for run in &mut self.agents[node] {
            if !run.spool.is_empty() {
                run.deliver(store, self.now);
            }
        }
    }

    /// Replicas of each workload.
    fn replicas(&self) -> BTreeMap<String, usize> {
        let state = self.store.as_ref().unwrap().state();
        let state = state.read();
        let of = |id: SeriesId| state.live_of(id).count();
        state.history.all().map(|(id, series)| (series.key.of.workload.clone(), of(id))).collect()
    }

    /// What the containers of each workload that count request: millicores and bytes. Savings are these less a recommendation.
    fn requested(&self) -> BTreeMap<String, (u64, u64)> {
        let state = self.store.as_ref().unwrap().state();
        let state = state.read();
        let mut sums = BTreeMap::new();
        for (id, series) in state.history.all() {
            let of_each = state.live_of(id).filter_map(|(_, slot)| slot.identity.requested.as_ref());
            let sum = of_each.fold((0, 0), add);
            let slot = sums.entry(series.key.of.workload.clone()).or_insert((0, 0));
            *slot = (slot.0 + sum.0, slot.1 + sum.1);
        }
        sums
    }

    fn check(&mut self) {
        // Everybody is back, and time passes for what is gone to be told.
        self.cut = [false; NODES];
        self.tick();
        let mut want: BTreeMap<String, usize> =
            self.replicas().keys().map(|name| (name.clone(), 0)).collect();
        (0..PODS).for_each(|pod| *want.entry(identity(pod).workload).or_default() += 1);
        assert_eq!(self.replicas(), want);
        let mut want: BTreeMap<String, (u64, u64)> =
            self.requested().keys().map(|name| (name.clone(), (0, 0))).collect();
        for pod in (0..PODS).map(identity) {
            let sum = want.entry(pod.workload).or_default();
            *sum = add(*sum, &pod.requested.unwrap());
        }
        assert_eq!(self.requested(), want);
        let state = self.store.as_ref().unwrap().state();
        let state = state.read();
        assert_eq!(state.containers(), PODS);
        assert_eq!(state.counters.samples, self.measured);
        assert_eq!((state.counters.unreadable, state.counters.refused_containers), (0, 0));
        let of_minutes = |id| -> u64 {
            let entries = state.history.entries(Select::One(id), evenkeel_rightsizing::Resource::Memory, 0);
            entries.iter().map(|entry| u64::from(entry.count)).sum()
        };
        let open = |id| -> u64 {
            state
                .followed_of(id)
                .filter_map(|(_, slot)| slot.open)
                .map(|(_, open)| open.memory_bytes.count)
                .sum()
        };
        let kept: u64 = state.history.all().map(|(id, _)| of_minutes(id) + open(id)).sum();
        assert_eq!(kept, self.measured, "every second is in the history once");
    }
}

#[test]
fn the_sums_are_those_of_one_that_saw_everything() {
    let cases = if std::env::var("EVENKEEL_FULL").is_ok_and(|v| v == "1") { 2000 } else { 64 };
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let steps = proptest::collection::vec(step(), 1..25);
    let run = runner.run(&steps, |steps| {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.check();
        Ok(())
    });
    run.unwrap();
}

#[test]
fn an_agent_that_starts_again_and_an_upgrade_of_all_double_nothing() {
    let mut world = World::new();
    world.tick();
    let before = world.replicas();
    assert_eq!(before.values().sum::<usize>(), PODS);
    for step in [Step::Restart { node: 0 }, Step::Upgrade, Step::Upgrade, Step::Reopen] {
        world.step(&step);
        // Until the new run delivers, the containers of the one before stand for it.
        assert_eq!(world.replicas(), before, "{step:?}");
        world.tick();
        assert_eq!(world.replicas(), before, "{step:?}");
    }
    world.check();
}

#[test]
fn what_an_earlier_run_left_counts_in_history_and_not_as_running() {
    let mut world = World::new();
    world.tick();
    // The old run measures on while it cannot deliver; its frames arrive after those of the new one.
    world.step(&Step::Cut { node: 0 });
    (0..3).for_each(|_| world.tick());
    let left = std::mem::take(&mut world.agents[0][0].spool);
    world.restart(0);
    world.step(&Step::Cut { node: 0 });
    world.tick();
    let before = world.replicas();
    let key = world.agents[0][0].key.clone();
    let (now, store) = (world.now, world.store.as_mut().unwrap());
    for _twice in 0..2 {
        for frame in &left {
            let outcome = store.take(now, &key, frame, false).unwrap();
            assert!(matches!(outcome, FrameOutcome::Acknowledge { .. }), "{outcome:?}");
        }
    }
    assert_eq!(world.replicas(), before);
    world.check();
}

#[test]
fn nodes_that_are_gone_stop_counting_and_count_again_when_they_are_back() {
    let mut world = World::new();
    world.tick();
    world.step(&Step::Cut { node: 1 });
    let after = world.config.ingest.gone_after.get().as_secs() / 10;
    (0..after).for_each(|_| world.tick());
    assert_eq!(world.store.as_ref().unwrap().state().read().containers(), PODS, "not yet");
    (0..7).for_each(|_| world.tick());
    let on_node_1 = world.places.iter().filter(|node| **node == 1).count();
    let state = world.store.as_ref().unwrap().state();
    assert_eq!(state.read().containers(), PODS - on_node_1);
    assert_eq!(state.read().followed(), PODS, "what it may still deliver can be read");
    world.step(&Step::Reopen);
    assert_eq!(world.store.as_ref().unwrap().state().read().containers(), PODS - on_node_1);
    world.check();
}

#[test]
fn a_recommender_that_was_off_for_hours_takes_nobody_for_gone() {
    let mut world = World::new();
    (0..3).for_each(|_| world.tick());
    for minutes in [10, 45, 600] {
        world.step(&Step::Reopen);
        world.now += minutes * 60 * SECOND;
        // One is back first.
        world.cut = [false, true, true];
        (0..6).for_each(|_| world.tick());
        assert_eq!(world.store.as_ref().unwrap().state().read().containers(), PODS, "{minutes}");
        world.cut = [false; NODES];
        world.tick();
    }
    world.check();
}

#[test]
fn when_nobody_is_heard_nothing_is_gone() {
    let mut world = World::new();
    world.tick();
    world.cut = [true; NODES];
    (0..100).for_each(|_| world.tick());
    let now = world.now;
    let store = world.store.as_mut().unwrap();
    assert_eq!(store.retire_idle(now, Duration::from_secs(1000)).unwrap(), 0);
    assert_eq!(store.state().read().containers(), PODS);
    // Days of silence are another matter.
    let days = world.config.ingest.forget_after.get() + Duration::from_secs(120);
    assert_eq!(store.retire_idle(now + 3 * 86_400 * SECOND, days).unwrap(), NODES);
    assert_eq!(store.state().read().containers(), 0);
}

#[test]
fn runs_count_once_towards_the_limit_and_for_each_node() {
    let mut world = World::new();
    world.config.ingest.max_containers = PODS;
    world.config.ingest.max_containers_per_node = 3;
    world.step(&Step::Reopen);
    for _ in 0..4 {
        world.tick();
        world.step(&Step::Upgrade);
    }
    world.check();
    // A node that has more than its part is refused the rest; others are not.
    world.config.ingest.max_containers = 100;
    world.step(&Step::Reopen);
    world.places = [0; PODS];
    world.tick();
    let state = world.store.as_ref().unwrap().state();
    assert_eq!(state.read().containers(), 3);
    let refused = |node: &str| {
        let state = state.read();
        state.nodes().find(|(key, _)| key.node == node).map(|(_, node)| node.refused)
    };
    assert!(refused("n0") > Some(0) && refused("n1") == Some(0), "{:?}", refused("n0"));
}
