//! Exactly once: whatever is cut, restarted, folded, repeated or damaged, every second a client handed over counts once,
//! and nothing that was acknowledged is lost.
//!
//! The real store with the real log runs against a model client that keeps its frames until they are acknowledged. A crash
//! cuts the log's files back to a place between what was synced and what was written.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::model::{Epoch, SLOTS, START_USEC, TICK_USEC, counted, weighed};
use evenkeel_proto::v1;
use evenkeel_store::config::{Settings, Size};
use evenkeel_store::ingest::Mark;
use evenkeel_store::ingest::store::{FrameOutcome, Store};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

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

/// Client, recommender and what is between them.
struct World {
    config: Settings,
    store: Option<Store>,
    epochs: Vec<Epoch>,
    now: u64,
    /// Answers owed: epoch, mark, last sequence.
    owed: Vec<(usize, Mark, u64)>,
    /// Sizes of the log's files at the last sync.
    synced: BTreeMap<PathBuf, u64>,
    connected: Option<usize>,
    /// Times the process was killed.
    kills: u64,
}

impl World {
    fn new(dir: &Path) -> Self {
        let mut config = Settings::at(dir);
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
            kills: 0,
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
            assert_eq!(self.store().take(now, &key, &again, false).unwrap(), FrameOutcome::Nothing);
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
            FrameOutcome::Acknowledge { last, mark } => self.owed.push((at, mark, last)),
            FrameOutcome::Refused { why, .. } => {
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
            FrameOutcome::Acknowledge { last, mark } => {
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
        self.kills += 1;
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
        self.kills += 1;
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

/// Kills that have to be survived: fifty, or a thousand with `EVENKEEL_FULL=1`.
fn wanted_kills() -> u64 {
    if std::env::var("EVENKEEL_FULL").is_ok_and(|value| value == "1") { 1000 } else { 50 }
}

#[test]
fn every_second_counts_exactly_once() {
    // A case syncs a real disk dozens of times, and kills about twice.
    let few = ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() };
    let kills = Cell::new(0);
    while kills.get() < wanted_kills() {
        let run = TestRunner::new(few.clone()).run(&prop::collection::vec(step(), 1..60), |steps| {
            let dir = tempfile::tempdir().unwrap();
            let mut world = World::new(dir.path());
            for step in &steps {
                world.run(step);
            }
            world.finish();
            kills.set(kills.get() + world.kills);
            Ok(())
        });
        if let Err(error) = run {
            panic!("after {} kills: {error}", kills.get());
        }
    }
    println!("{} kills", kills.get());
}
