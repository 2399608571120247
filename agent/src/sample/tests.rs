//! The sampler over ordinary files laid out like cgroupfs.

use std::sync::mpsc::sync_channel;

use evenkeel_enforce::shared::Tracked;
use evenkeel_host::fake::FakeTree;
use evenkeel_host::hierarchy::{CgroupMode, Hierarchy};
use evenkeel_model::sample::Field;

use super::*;
use crate::report::test_support::{context, tracked};

/// A machine with `containers` cgroups `/c1`, `/c2`, ... and a sampler over them that has been told of all.
pub(super) struct Machine {
    pub(super) tree: FakeTree,
    pub(super) ends: Ends,
    pub(super) ticks: Ticks,
    pub(super) sampler: Sampler,
    changes: SyncSender<TrackChange>,
    _dir: tempfile::TempDir,
}

impl Machine {
    pub(super) fn new(containers: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = FakeTree::new(CgroupMode::V2).unwrap();
        let opened = tree.open().unwrap();
        let kernel = SampleContext::new(opened, Descriptors::within(1 << 20), Plan::default());
        let (changes, receiver) = sync_channel(1000);
        let (ends, ticks) = channels();
        let sampler = Sampler {
            context: context(dir.path(), 1, "http://127.0.0.1:1"),
            readers: Readers::new(kernel),
            changes: receiver,
            first: None,
            ticks: 0,
            clock: Clock::start(Duration::from_secs(1)),
        };
        let machine = Self { tree, ends, ticks, sampler, changes, _dir: dir };
        for slot in 1..=containers {
            machine.tree.add_cgroup(&format!("/c{slot}")).unwrap();
            machine.track(slot, slot);
        }
        machine
    }

    /// Tells the sampler that `slot` is the cgroup `/c<number>`.
    fn track(&self, slot: u32, number: u32) {
        let path = format!("/c{number}");
        let inode = self.tree.open().unwrap().dirs(&path).unwrap()[0].at().inode;
        let tracked = Tracked { inode, ..tracked(slot, &format!("c{number}")) };
        self.changes.try_send(TrackChange::Added(Arc::new(tracked))).unwrap();
    }

    pub(super) fn tick(&mut self) {
        let due = Due { time_usec: 1, lateness_usec: 0, missed: 0 };
        self.sampler.due(due, &self.ends);
    }

    /// Ticks, and gives back the slots sampled and the number of changes.
    fn slots(&mut self) -> (Vec<u32>, usize) {
        self.tick();
        let tick = self.ticks.full.try_recv().unwrap();
        let seen = (tick.samples.iter().map(|(slot, _)| *slot).collect(), tick.changes.len());
        self.ticks.empty.try_send(tick).unwrap();
        seen
    }
}

#[test]
fn containers_come_and_go_and_are_told_with_their_tick() {
    let mut machine = Machine::new(3);
    assert_eq!(machine.slots(), (vec![1, 2, 3], 3));
    assert_eq!(machine.slots(), (vec![1, 2, 3], 0));
    machine.changes.try_send(TrackChange::Removed { slot: 2 }).unwrap();
    assert_eq!(machine.slots(), (vec![1, 3], 1));
    // A tracked inode that is not the one at that path is never sampled.
    let stale = Tracked { inode: 1, ..tracked(9, "c2") };
    machine.changes.try_send(TrackChange::Added(Arc::new(stale))).unwrap();
    assert_eq!(machine.slots(), (vec![1, 3], 1));
    machine.track(10, 2);
    assert_eq!(machine.slots(), (vec![1, 3, 10], 1));
}

/// An agent that was started samples what it finds at once, and not when the first interval is over.
#[test]
fn the_first_tick_is_due_when_there_is_something_to_sample() {
    let mut machine = Machine::new(2);
    machine.sampler.clock = Clock::start(Duration::from_secs(3_600));
    machine.sampler.await_first(&Heartbeat::new("sample", Duration::from_secs(5)));
    assert!(machine.sampler.clock.left() <= TOGETHER, "{:?}", machine.sampler.clock);
    assert_eq!(machine.slots(), (vec![1, 2], 2));
    // With nothing to sample it is due after an interval.
    let mut machine = Machine::new(0);
    machine.sampler.clock = Clock::start(Duration::from_millis(1));
    machine.sampler.await_first(&Heartbeat::new("sample", Duration::from_secs(5)));
    assert!(machine.sampler.clock.left().is_zero() && machine.slots() == (vec![], 0));
}

#[test]
fn without_a_free_buffer_nothing_is_read_and_no_time_is_lost() {
    let mut machine = Machine::new(1);
    let stat = "usage_usec 5000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
    machine.tree.set(Hierarchy::V2, "/c1", "cpu.stat", stat).unwrap();
    let held: Vec<Tick> = std::iter::from_fn(|| machine.ends.empty.try_recv().ok()).collect();
    machine.tick();
    assert!(machine.ticks.full.try_recv().is_err());
    assert_eq!(machine.sampler.context.stats.ticks_dropped.get(), 1);
    for tick in held {
        machine.ticks.empty.try_send(tick).unwrap();
    }
    machine.tick();
    let tick = machine.ticks.full.try_recv().unwrap();
    // The change that waited comes with the first tick that was taken.
    assert_eq!((tick.changes.len(), tick.samples.len()), (1, 1));
    assert_eq!(tick.samples[0].1.get(Field::CpuUsageUsec), Some(5000));
}
