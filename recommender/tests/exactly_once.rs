//! Exactly once: whatever is cut, restarted, folded, repeated or damaged, every second a client handed over counts once,
//! and nothing that was acknowledged is lost.
//!
//! The real store with the real log runs against a model client that keeps its frames until they are acknowledged. A crash
//! cuts the log's files back to a place between what was synced and what was written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::{Encoder, Folder};
use evenkeel_proto::v1;
use evenkeel_recommender::config::{Config, Size};
use evenkeel_recommender::ingest::store::{Outcome, Store};
use evenkeel_recommender::ingest::{Key, Mark};
use evenkeel_recommender::state::State;
use proptest::prelude::*;

const SLOTS: [u32; 2] = [3, 8];
/// Ten seconds between ticks, so that few of them make a minute.
const TICK_USEC: u64 = 10_000_000;
const START_USEC: u64 = 1_700_000_000_000_000;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// The agent measures so many ticks; `key` makes the first a key frame.
    Measure { ticks: u8, key: bool },
    /// The agent folds what it never sent.
    Fold,
    /// The agent starts anew: a new epoch, the old one stays spooled.
    Restart,
    /// A connection is made: greeting and handshake, for the epoch (counted from the newest).
    Connect { epoch: u8 },
    /// Frames are sent in order.
    Send { frames: u8 },
    /// A frame that was sent before is delivered again, by the same or a forgotten connection.
    Repeat { back: u8 },
    /// The next frame arrives damaged.
    Damage,
    /// The log is flushed but not synced.
    Flush,
    /// Group sync; what is durable is acknowledged.
    Sync,
    /// A checkpoint is written and the log trimmed.
    Checkpoint,
    /// The process is killed; of what was not synced a part is lost, in eighths.
    Kill { lost: u8 },
    /// The log is opened anew, as after a failed sync.
    Reopen,
    /// The process ends in order.
    Stop,
    /// Time passes without measurements: hours and days are sealed.
    Wait { minutes: u16 },
    /// The process is killed after the history's files are written and before the checkpoint is; of what was appended to
    /// them a part is there, in eighths.
    KillBetween { kept: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1..9_u8, any::<bool>()).prop_map(|(ticks, key)| Step::Measure { ticks, key }),
        2 => Just(Step::Fold),
        1 => Just(Step::Restart),
        4 => (0..3_u8).prop_map(|epoch| Step::Connect { epoch }),
        6 => (1..7_u8).prop_map(|frames| Step::Send { frames }),
        2 => (0..9_u8).prop_map(|back| Step::Repeat { back }),
        1 => Just(Step::Damage),
        2 => Just(Step::Flush),
        3 => Just(Step::Sync),
        1 => Just(Step::Checkpoint),
        2 => (0..9_u8).prop_map(|lost| Step::Kill { lost }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Stop),
        2 => (1..2000_u16).prop_map(|minutes| Step::Wait { minutes }),
        2 => (0..9_u8).prop_map(|kept| Step::KillBetween { kept }),
    ]
}

/// What the agent keeps of one epoch.
struct Epoch {
    key: Key,
    encoder: Encoder,
    needs_key: bool,
    ticks: u64,
    /// Kept until acknowledged, by sequence.
    frames: BTreeMap<u64, v1::Frame>,
    next_sequence: u64,
    acknowledged: u64,
    /// Highest sequence ever handed over; frames above it may be folded.
    sent: u64,
    /// Where this connection goes on; `None` = not connected.
    cursor: Option<u64>,
    resumed: bool,
    announced: bool,
    cpu_usec: u64,
    /// Minute of every tick that may count, by tick; damaged ones are taken out.
    expected: BTreeMap<u64, u64>,
    /// Frames refused since the last handshake; lost for good only if the recommender still knows of it then.
    refused: BTreeSet<u64>,
    /// Ticks of every frame.
    ticks_of: BTreeMap<u64, Vec<u64>>,
}

impl Epoch {
    fn new(number: u64) -> Self {
        Self {
            key: Key { cluster: "c".into(), node: "n".into(), epoch: number },
            encoder: Encoder::new(),
            needs_key: true,
            ticks: 0,
            frames: BTreeMap::new(),
            next_sequence: 1,
            acknowledged: 0,
            sent: 0,
            cursor: None,
            resumed: false,
            announced: false,
            cpu_usec: 0,
            expected: BTreeMap::new(),
            refused: BTreeSet::new(),
            ticks_of: BTreeMap::new(),
        }
    }

    fn hello(&self) -> v1::Hello {
        let Key { cluster, node, epoch } = self.key.clone();
        v1::Hello { cluster, node, epoch, version: "test".into(), ..v1::Hello::default() }
    }

    fn measure(&mut self, now: u64, key: bool) {
        let samples: Vec<(u32, Sample)> = SLOTS
            .iter()
            .map(|slot| {
                let mut sample = Sample::new(Duration::from_micros(TICK_USEC));
                sample.set(Field::CpuUsageUsec, self.cpu_usec + u64::from(*slot));
                sample.set(Field::MemoryWorkingSetBytes, 4096 * (self.ticks + 1));
                (*slot, sample)
            })
            .collect();
        self.cpu_usec += TICK_USEC / 4;
        let mut bytes = Vec::new();
        let key = key || std::mem::take(&mut self.needs_key);
        self.encoder.encode_seconds(key, now, TICK_USEC as u32, &samples, &mut bytes).unwrap();
        let announced = if std::mem::replace(&mut self.announced, true) { vec![] } else { self.announce() };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.expected.insert(self.ticks, now / 60_000_000);
        self.ticks_of.insert(sequence, vec![self.ticks]);
        self.ticks += 1;
        self.keep(v1::Frame { sequence, samples: bytes.into(), announced, ..v1::Frame::default() });
    }

    fn announce(&self) -> Vec<v1::Announcement> {
        let identity = |slot: u32| v1::ContainerIdentity {
            namespace: "test".into(),
            workload: format!("epoch-{}", self.key.epoch),
            container: format!("slot-{slot}"),
            image: "web:1".into(),
            ..v1::ContainerIdentity::default()
        };
        SLOTS.iter().map(|slot| v1::Announcement { slot: *slot, identity: Some(identity(*slot)) }).collect()
    }

    fn keep(&mut self, mut frame: v1::Frame) {
        frame.samples_crc32c = crc32c::crc32c(&frame.samples);
        self.frames.insert(frame.sequence, frame);
    }

    /// Folds the longest run of frames that were never sent and begin with a key frame.
    fn fold(&mut self) {
        let unsent: Vec<u64> = self.frames.range(self.sent + 1..).map(|(s, _)| *s).collect();
        let is_key = |s: &&u64| evenkeel_proto::frame::peek(&self.frames[s].samples).unwrap().key;
        let Some(first) = unsent.iter().find(is_key).copied() else { return };
        let run: Vec<u64> = unsent.into_iter().filter(|s| *s >= first).collect();
        if run.len() < 2 {
            return;
        }
        let mut folder = Folder::new();
        let mut folded = v1::Frame::default();
        let mut ticks = Vec::new();
        let mut oldest = first;
        for sequence in &run {
            let frame = self.frames.remove(sequence).unwrap();
            folder.add(&frame.samples).unwrap();
            folded.announced.extend(frame.announced);
            if *sequence == first && frame.replaces_first > 0 {
                oldest = frame.replaces_first;
            }
            ticks.extend(self.ticks_of.remove(sequence).unwrap());
        }
        let mut bytes = Vec::new();
        folder.finish(&mut bytes).unwrap();
        (folded.sequence, folded.replaces_first, folded.samples) =
            (*run.last().unwrap(), oldest, bytes.into());
        self.ticks_of.insert(folded.sequence, ticks);
        self.keep(folded);
        self.needs_key = true;
    }

    /// The frame was given up by both sides.
    fn give_up(&mut self, sequence: u64) {
        for tick in self.ticks_of.remove(&sequence).unwrap_or_default() {
            self.expected.remove(&tick);
        }
    }
}

/// Client, recommender and what is between them.
struct World {
    config: Config,
    store: Option<Store>,
    epochs: Vec<Epoch>,
    now: u64,
    /// Answers owed: epoch, mark, last sequence.
    owed: Vec<(usize, Mark, u64)>,
    /// Sizes of the log's files at the last sync.
    synced: BTreeMap<PathBuf, u64>,
    connected: Option<usize>,
}

impl World {
    fn new(dir: &Path) -> Self {
        let mut config = Config { state_dir: dir.to_owned(), ..Config::default() };
        config.log.segment_bytes = Size::from_bytes(1 << 16);
        let (store, report) = Store::open(&config).unwrap();
        assert_eq!(report.records, 0);
        let mut world = Self {
            config,
            store: Some(store),
            epochs: vec![Epoch::new(1)],
            now: START_USEC,
            owed: Vec::new(),
            synced: BTreeMap::new(),
            connected: None,
        };
        world.note_sizes();
        world
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn sizes(&self) -> BTreeMap<PathBuf, u64> {
        let files = fs::read_dir(self.config.log_dir()).unwrap().map(|e| e.unwrap());
        let segments = files.filter(|e| e.path().extension().is_some_and(|x| x == "seg"));
        segments.map(|e| (e.path(), e.metadata().unwrap().len())).collect()
    }

    fn note_sizes(&mut self) {
        self.synced = self.sizes();
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Measure { ticks, key } => {
                for i in 0..ticks {
                    self.now += TICK_USEC;
                    let now = self.now;
                    self.epochs.last_mut().unwrap().measure(now, key && i == 0);
                }
            }
            Step::Fold => {
                // Only the newest epoch: an old one is folded by the agent that made it.
                self.epochs.last_mut().unwrap().fold();
            }
            Step::Restart => {
                let number = self.epochs.len() as u64 + 1;
                self.epochs.push(Epoch::new(number));
                self.disconnect();
            }
            Step::Connect { epoch } => self.connect(self.epochs.len().saturating_sub(1 + usize::from(epoch))),
            Step::Send { frames } => self.send(usize::from(frames)),
            Step::Repeat { back } => self.repeat(usize::from(back)),
            Step::Damage => self.damage(),
            Step::Flush => self.store().flush().unwrap(),
            Step::Sync => self.sync(),
            Step::Checkpoint => {
                self.store().checkpoint().unwrap();
            }
            Step::Kill { lost } => self.kill(u64::from(lost)),
            Step::Reopen => {
                let durable = self.store().reopen().unwrap();
                self.acknowledge(durable);
            }
            Step::Wait { minutes } => self.now += u64::from(minutes) * 60_000_000,
            Step::KillBetween { kept } => self.kill_between(u64::from(kept)),
            Step::Stop => {
                self.sync();
                self.store().checkpoint().unwrap();
                self.reopen();
            }
        }
    }

    fn disconnect(&mut self) {
        self.connected = None;
        self.owed.clear();
        for epoch in &mut self.epochs {
            epoch.cursor = None;
        }
    }

    fn connect(&mut self, at: usize) {
        self.disconnect();
        let (now, hello) = (self.now, self.epochs[at].hello());
        let greeting = self.store().hello(now, &hello).unwrap();
        // The handshake states what is durable.
        self.sync();
        let epoch = &mut self.epochs[at];
        assert!(greeting.last >= epoch.acknowledged, "acknowledged to {}, {greeting:?}", epoch.acknowledged);
        epoch.frames.retain(|sequence, _| *sequence > greeting.last);
        for sequence in std::mem::take(&mut epoch.refused) {
            if sequence <= greeting.last {
                epoch.give_up(sequence);
            }
        }
        epoch.acknowledged = greeting.last;
        (epoch.cursor, epoch.resumed) = (Some(greeting.last + 1), true);
        self.connected = Some(at);
        if !greeting.knows_slots && epoch.announced {
            let again = v1::Frame { announced: epoch.announce(), ..v1::Frame::default() };
            let key = epoch.key.clone();
            assert_eq!(self.store().take(now, &key, &again, false).unwrap(), Outcome::Nothing);
        }
    }

    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let Some(at) = self.connected else { return };
            let Some(from) = self.epochs[at].cursor else { return };
            let Some((_, frame)) = self.epochs[at].frames.range(from..).next() else { return };
            let frame = frame.clone();
            self.deliver(at, &frame);
        }
    }

    fn deliver(&mut self, at: usize, frame: &v1::Frame) {
        let (now, key) = (self.now, self.epochs[at].key.clone());
        let resumed = std::mem::take(&mut self.epochs[at].resumed);
        let outcome = self.store().take(now, &key, frame, resumed).unwrap();
        let epoch = &mut self.epochs[at];
        epoch.sent = epoch.sent.max(frame.sequence);
        epoch.cursor = Some(frame.sequence + 1);
        match outcome {
            Outcome::Acknowledge { last, mark } => self.owed.push((at, mark, last)),
            Outcome::Refused { why, .. } => {
                // Only what follows a damaged frame up to the next key frame, and the damaged one itself.
                assert!(why.contains("checksum") || why.contains("key frame"), "{why}");
                epoch.refused.insert(frame.sequence);
            }
            other => panic!("frame {} of epoch {}: {other:?}", frame.sequence, key.epoch),
        }
    }

    fn repeat(&mut self, back: usize) {
        let Some(at) = self.connected else { return };
        let epoch = &self.epochs[at];
        let Some(cursor) = epoch.cursor else { return };
        let Some((_, frame)) = epoch.frames.range(..cursor).rev().nth(back) else { return };
        let (frame, now, key) = (frame.clone(), self.now, epoch.key.clone());
        match self.store().take(now, &key, &frame, false).unwrap() {
            Outcome::Acknowledge { last, mark } => {
                assert!(last >= frame.sequence);
                self.owed.push((at, mark, last));
            }
            other => panic!("repeated frame {}: {other:?}", frame.sequence),
        }
    }

    fn damage(&mut self) {
        let Some(at) = self.connected else { return };
        let Some(from) = self.epochs[at].cursor else { return };
        let Some((_, frame)) = self.epochs[at].frames.range(from..).next() else { return };
        let mut frame = frame.clone();
        frame.samples_crc32c ^= 1;
        let sequence = frame.sequence;
        self.deliver(at, &frame);
        // It stays kept until acknowledged, and is a duplicate when it comes again; announcements in it are lost, and
        // made again.
        let (now, epoch) = (self.now, &self.epochs[at]);
        let again = v1::Frame { announced: epoch.announce(), ..v1::Frame::default() };
        let key = epoch.key.clone();
        assert!(sequence > 0);
        self.store().take(now, &key, &again, false).unwrap();
    }

    fn sync(&mut self) {
        let durable = self.store().sync().unwrap();
        self.acknowledge(durable);
    }

    fn acknowledge(&mut self, durable: Mark) {
        self.note_sizes();
        for (at, _, last) in self.owed.extract_if(.., |(_, mark, _)| *mark <= durable) {
            let epoch = &mut self.epochs[at];
            epoch.acknowledged = epoch.acknowledged.max(last);
            // Acknowledged frames are gone for good.
            epoch.frames.retain(|sequence, _| *sequence > last);
        }
    }

    fn kill(&mut self, lost: u64) {
        drop(self.store.take());
        for (path, size) in self.sizes() {
            let kept = self.synced.get(&path).copied();
            let tail = size - kept.unwrap_or(0).min(size);
            let left = kept.unwrap_or(0) + tail * (8 - lost.min(8)) / 8;
            if left == 0 {
                fs::remove_file(&path).unwrap();
            } else {
                fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
            }
        }
        self.open();
    }

    /// Everything of the state directory but the history, with its content.
    fn saved(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let dirs = [self.config.state_dir.clone(), self.config.log_dir()];
        let entries = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|e| e.unwrap());
        let files = entries.filter(|e| e.file_type().unwrap().is_file());
        files.map(|e| (e.path(), fs::read(e.path()).unwrap())).collect()
    }

    fn history_sizes(&self) -> BTreeMap<PathBuf, u64> {
        let entries = fs::read_dir(self.config.history_dir()).unwrap().map(|e| e.unwrap());
        entries.map(|e| (e.path(), e.metadata().unwrap().len())).collect()
    }

    fn kill_between(&mut self, kept: u64) {
        self.sync();
        let (before, sizes) = (self.saved(), self.history_sizes());
        self.store().checkpoint().unwrap();
        drop(self.store.take());
        for path in self.saved().keys().filter(|path| !before.contains_key(*path)) {
            fs::remove_file(path).unwrap();
        }
        for (path, content) in &before {
            fs::write(path, content).unwrap();
        }
        for (path, size) in self.history_sizes() {
            let had = sizes.get(&path).copied().unwrap_or(0);
            let left = had + (size - had) * kept.min(8) / 8;
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
        }
        self.open();
    }

    fn reopen(&mut self) {
        drop(self.store.take());
        self.open();
    }

    fn open(&mut self) {
        let (store, report) = Store::open(&self.config).unwrap();
        assert_eq!((report.missing_records, report.unreadable), (0, 0));
        assert_eq!(report.checkpoint_damage, None);
        self.store = Some(store);
        self.note_sizes();
        self.disconnect();
        let state = self.store().state();
        for epoch in &self.epochs {
            let last = state.read().stream(&epoch.key).map_or(0, |s| s.position.last);
            assert!(last >= epoch.acknowledged, "epoch {}: {last} < {}", epoch.key.epoch, epoch.acknowledged);
        }
        // What the recommender holds now was acknowledged or will be said at the next handshake; frames it lost are
        // still kept by the agent.
    }

    /// Everything left is sent, acknowledged and counted.
    fn finish(&mut self) {
        for at in 0..self.epochs.len() {
            self.connect(at);
            self.send(usize::MAX);
            self.sync();
            // What was refused is not acknowledged; the handshake passes over it.
            self.connect(at);
            assert!(self.epochs[at].frames.is_empty(), "all is acknowledged");
        }
        self.check();
        self.store().checkpoint().unwrap();
        self.check();
        self.reopen();
        self.check();
    }

    fn check(&mut self) {
        let state = self.store().state();
        let state = state.read();
        for epoch in &self.epochs {
            let mut want: BTreeMap<u64, u64> = BTreeMap::new();
            for minute in epoch.expected.values() {
                *want.entry(*minute).or_default() += 1;
            }
            for slot in SLOTS {
                assert_eq!(counted(&state, &epoch.key, slot), want, "epoch {} slot {slot}", epoch.key.epoch);
                let time = weighed(&state, &epoch.key, slot);
                let all = epoch.expected.len() as u64 * TICK_USEC / 1000;
                assert_eq!(time, [all, all], "epoch {} slot {slot}: hours and days", epoch.key.epoch);
            }
        }
    }
}

/// Samples counted for one container, by minute.
fn counted(state: &State, key: &Key, slot: u32) -> BTreeMap<u64, u64> {
    use evenkeel_recommender::state::history::{History, Select};
    use evenkeel_rightsizing::Resource;
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    let workload = format!("epoch-{}", key.epoch);
    let container = format!("slot-{slot}");
    let series =
        state.history.all().filter(|(_, s)| s.key.workload == workload && s.key.container == container);
    for (id, _) in series {
        for entry in state.history.entries(Select::One(id), Resource::Memory, 0) {
            *counted.entry(u64::from(entry.minute)).or_default() += u64::from(entry.count);
        }
        for (_, slot) in state.live_of(id) {
            if let Some((minute, rollup)) = slot.open {
                *counted.entry(u64::from(minute)).or_default() += rollup.memory_bytes.count;
            }
        }
    }
    counted
}

/// Milliseconds in the memory histograms of one container: of its hours, and of its days.
fn weighed(state: &State, key: &Key, slot: u32) -> [u64; 2] {
    use evenkeel_recommender::history::{Of, View};
    use evenkeel_rightsizing::Resource;
    use evenkeel_rightsizing::history::{History, Scope};
    let (workload, container) = (format!("epoch-{}", key.epoch), format!("slot-{slot}"));
    let of = Of {
        cluster: None,
        namespace: "test",
        workload: &workload,
        container: &container,
        image: None,
        command: None,
    };
    let view = View::new(state, of, Resource::Memory);
    let hours = view.hours(Scope::Own, 0).iter().map(|hour| hour.all.total()).sum();
    [hours, view.days(Scope::Own, 0).iter().map(|day| day.all.total()).sum()]
}

/// Each case syncs a real disk dozens of times: few of them unless `PROPTEST_CASES` asks for more.
fn configuration() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    // A case has about two kills of either kind: with these fifty and more, asked for 500 cases a thousand.
    if asked { default } else { ProptestConfig { cases: 48, ..default } }
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn every_second_counts_exactly_once(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut world = World::new(dir.path());
        for step in &steps {
            world.run(step);
        }
        world.finish();
    }
}
