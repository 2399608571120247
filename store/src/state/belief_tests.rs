//! What a node cannot do is not believed, and one node among many moves a workload by no more than its share.

use std::time::Duration;

use evenkeel_model::key::ContainerKey;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_rightsizing::histogram::Histogram;
use proptest::prelude::*;

use super::*;
use crate::history::peers::{FACTOR, MANY};
use crate::key::Subject;

/// An hour begins.
const START: u64 = 1_700_049_600_000_000;
const SECOND: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

fn limits() -> Limits {
    Limits {
        history: HistoryBounds { retention_minutes: 35 * 24 * 60, series: 100, of_node: 100 },
        epochs: 100,
        containers: 10_000,
        per_node: 1_000,
        names_per_minute: 1_000,
        kills_per_hour: 500,
        gone_minutes: 5,
        events: 10,
        subjects: 1_000,
        start_usec: 0,
    }
}

/// A node with replicas of one workload that all do the same.
struct Node {
    key: StreamKey,
    encoder: Encoder,
    replicas: u32,
    sequence: u64,
    used_usec: u64,
}

impl Node {
    fn new(state: &mut StoreState, name: &str, replicas: u32) -> Self {
        let key = StreamKey { cluster: "c".into(), node: name.into(), epoch: 1 };
        let facts = v1::NodeFacts { cpu_milli: 64_000, memory_bytes: 256 << 30, ..v1::NodeFacts::default() };
        let (cluster, node) = (key.cluster.clone(), key.node.clone());
        let hello = v1::Hello { cluster, node, epoch: 1, facts: Some(facts), ..v1::Hello::default() };
        state.apply(START, LogEntry::Opened(hello));
        Self { key, encoder: Encoder::new(), replicas, sequence: 0, used_usec: 0 }
    }

    /// A second in which each replica uses so much.
    fn second(&mut self, state: &mut StoreState, second: u64, cpu_milli: u64, memory: u64) {
        self.used_usec += cpu_milli * 1000;
        let mut sample = Sample::new(Duration::from_secs(1));
        sample.set(Field::CpuUsageUsec, self.used_usec);
        sample.set(Field::MemoryWorkingSetBytes, memory);
        let all: Vec<_> = (0..self.replicas).map(|slot| (slot, sample)).collect();
        let (time, mut samples) = (START + second * SECOND, Vec::new());
        self.encoder.encode_seconds(self.sequence == 0, time, 1_000_000, &all, &mut samples).unwrap();
        self.sequence += 1;
        let identity = |slot| v1::ContainerIdentity {
            namespace: "shop".into(),
            pod: format!("web-{}-{slot}", self.key.node),
            container: "main".into(),
            workload: "deployment/web".into(),
            image: "web:1".into(),
            ..v1::ContainerIdentity::default()
        };
        let announce = |slot| v1::Announcement { slot, identity: Some(identity(slot)) };
        let announced =
            if self.sequence == 1 { (0..self.replicas).map(announce).collect() } else { Vec::new() };
        let frame = v1::Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced,
            ..v1::Frame::default()
        };
        let applied = state.apply(time, LogEntry::Taken(Taken::new(self.key.clone(), frame)));
        assert_eq!(applied, RecordOutcome::Done);
    }

    fn dropped(&self, state: &StoreState, reason: Reason) -> u64 {
        state.nodes[&NodeKey::of(&self.key)].dropped.of(reason)
    }
}

fn state() -> StoreState {
    StoreState::new(limits())
}

/// Heights of CPU and memory of the workload's open day.
fn day(state: &StoreState) -> [Histogram; 2] {
    let own = Subject::Own(ContainerKey::new("c", "shop", "deployment/web", "main"));
    let held = state.past.find(&own).and_then(|id| state.past.get(id)).unwrap();
    held.open_days[0].all.clone()
}

#[test]
fn use_beyond_the_node_is_left_out_and_counted_by_reason() {
    let mut state = state();
    let mut node = Node::new(&mut state, "n", 2);
    node.second(&mut state, 1, 0, 64 * MIB);
    node.second(&mut state, 2, 500, 64 * MIB);
    assert_eq!((state.counters.samples, node.dropped(&state, Reason::Cpu)), (4, 0));
    // Of 64 cores a thousand, and of 256 GiB sixteen EiB.
    node.second(&mut state, 3, 1_000_000, 64 * MIB);
    assert_eq!((state.counters.samples, node.dropped(&state, Reason::Cpu)), (4, 2));
    node.second(&mut state, 4, 500, u64::MAX / 2);
    assert_eq!((state.counters.samples, node.dropped(&state, Reason::Memory)), (4, 2));
    // The next one counts: it is compared with the one before, believed or not.
    node.second(&mut state, 5, 500, 64 * MIB);
    assert_eq!(state.counters.samples, 6);
}

#[test]
fn all_containers_together_use_what_the_node_has() {
    let mut state = state();
    let mut node = Node::new(&mut state, "n", 40);
    node.second(&mut state, 1, 0, MIB);
    // Each could be; forty of them are 640 GiB.
    node.second(&mut state, 2, 100, 16 << 30);
    assert_eq!((state.counters.samples, node.dropped(&state, Reason::Memory)), (40, 40));
}

/// The quantile of a histogram, permille.
fn quantile(of: &Histogram, permille: u64) -> u64 {
    of.quantile(permille as f64 / 1000.0).unwrap_or(0)
}

fn run(honest: usize, hostile: Option<(u32, u64, u64)>) -> [Histogram; 2] {
    let mut state = state();
    let mut nodes: Vec<Node> = (0..honest).map(|i| Node::new(&mut state, &format!("n{i}"), 1)).collect();
    for second in 1..=140 {
        for (i, node) in nodes.iter_mut().enumerate() {
            node.second(&mut state, second, 200 + 10 * (i as u64 % 5), 100 * MIB + (i as u64 % 5) * MIB);
        }
    }
    if let Some((replicas, cpu_milli, memory)) = hostile {
        let mut evil = Node::new(&mut state, "evil", replicas);
        for second in 141..=400 {
            for (i, node) in nodes.iter_mut().enumerate() {
                node.second(&mut state, second, 200 + 10 * (i as u64 % 5), 100 * MIB + (i as u64 % 5) * MIB);
            }
            evil.second(&mut state, second, cpu_milli, memory);
        }
    }
    day(&state)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn one_of_many_nodes_moves_a_workload_by_no_more_than_its_share(
        honest in MANY..24_usize,
        replicas in 1..60_u32,
        cpu_milli in prop_oneof![Just(0), 1..1_000_u64],
        memory in prop_oneof![Just(4096), MIB..4_096 * MIB],
    ) {
        let (without, with) = (run(honest, None), run(honest, Some((replicas, cpu_milli, memory))));
        // A bucket of a histogram is 3 % wide.
        let up = |value: u64| value * FACTOR * 104 / 100;
        for (i, (without, with)) in without.iter().zip(&with).enumerate() {
            let most = quantile(without, 1000);
            prop_assert!(quantile(with, 1000) <= up(most), "{i}: {} of {most}", quantile(with, 1000));
            // As many replicas as all others at most: half of the time, so that a part of 1 % is a part of 2 %.
            for permille in [990, 950, 900] {
                let least = quantile(without, 2 * permille - 1000);
                prop_assert!(quantile(with, permille) * 104 / 100 >= least, "{i} {permille}: of {least}");
            }
        }
    }
}

#[test]
fn of_few_nodes_each_counts_whole() {
    let with = run(MANY - 2, Some((1, 8_000, 32 << 30)));
    assert!(quantile(&with[1], 1000) >= 31 << 30, "a primary beside its standbys");
}
