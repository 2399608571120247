//! The readers of all tracked containers, ascending by slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_enforce::shared::{TrackChange, Tracked};
use evenkeel_host::error::Category;
use evenkeel_host::sampler::{ContainerReader, SampleContext, TrafficReader};
use evenkeel_model::sample::Sample;
use evenkeel_model::traffic::Traffic;
use evenkeel_model::workload::ContainerKind;

use crate::shared::Stats;

/// Ticks after which those are opened again that could not be.
const OPEN_AGAIN: u64 = 10;

/// What a tick fills, by slot: samples, and traffic of those whose turn it is.
type Filled<'a> = (&'a mut Vec<(u32, Sample)>, &'a mut Vec<(u32, Traffic)>);

/// One container being read.
struct ReaderEntry {
    slot: u32,
    reader: ContainerReader,
    traffic: TrafficReader,
    tracked: Arc<Tracked>,
    /// The network of its pod is told with it.
    tells_network: bool,
}

/// All containers being read.
pub(super) struct Readers {
    kernel: SampleContext,
    entries: Vec<ReaderEntry>,
    /// Those that the system did not open, such as for want of descriptors, by slot.
    unopened: BTreeMap<u32, Arc<Tracked>>,
    /// Containers came or went since it was chosen who tells of a pod's network.
    changed: bool,
}

impl Readers {
    pub(super) fn new(kernel: SampleContext) -> Self {
        Self { kernel, entries: Vec::new(), unopened: BTreeMap::new(), changed: false }
    }

    /// Begins or ends to read one container.
    pub(super) fn change(&mut self, change: &TrackChange, stats: &Stats) {
        let slot = match change {
            TrackChange::Added(tracked) => tracked.slot,
            TrackChange::Removed { slot } => *slot,
        };
        let place = self.entries.binary_search_by_key(&slot, |e| e.slot);
        self.changed = true;
        match (change, place) {
            (TrackChange::Added(tracked), Err(at)) => {
                let is_tried_again = self.unopened.remove(&slot).is_some();
                if let Some(reader) = self.open(tracked, is_tried_again, stats) {
                    let traffic = TrafficReader::open(&self.kernel, &tracked.cgroup);
                    let tracked = Arc::clone(tracked);
                    self.entries
                        .insert(at, ReaderEntry { slot, reader, traffic, tracked, tells_network: false });
                }
            }
            (TrackChange::Removed { .. }, Ok(at)) => drop(self.entries.remove(at)),
            // It was removed after its cgroup had gone, or could never be opened.
            (TrackChange::Removed { .. }, Err(_)) => drop(self.unopened.remove(&slot)),
            // It asks for something else: nothing changes.
            (TrackChange::Added(_), Ok(_)) => {}
        }
    }

    /// Opens those again that the system did not open.
    fn open_again(&mut self, stats: &Stats) {
        let waiting: Vec<Arc<Tracked>> = self.unopened.values().cloned().collect();
        for tracked in waiting {
            self.change(&TrackChange::Added(tracked), stats);
        }
    }

    fn open(
        &mut self,
        tracked: &Arc<Tracked>,
        is_tried_again: bool,
        stats: &Stats,
    ) -> Option<ContainerReader> {
        let (container, cgroup) = (&tracked.workload.id, &*tracked.cgroup);
        let opened = match ContainerReader::open(&self.kernel, cgroup) {
            Ok(opened) => opened,
            Err(error) if error.is_gone() => {
                tracing::debug!(container, cgroup, %error, "ignoring a container that is gone before its first sample");
                return None;
            }
            Err(error) => {
                stats.sample_errors.add(1);
                if !is_tried_again {
                    tracing::warn!(container, cgroup, %error, "a container cannot be sampled; trying again");
                }
                self.unopened.insert(tracked.slot, Arc::clone(tracked));
                return None;
            }
        };
        if !opened.reader.places().iter().any(|place| place.inode == tracked.inode) {
            tracing::debug!(container, cgroup, "ignoring a cgroup that took the path of the one tracked");
            return None;
        }
        for error in &opened.errors {
            stats.sample_errors.add(1);
            let category = error.category();
            if category == Category::Denied {
                tracing::warn!(container, %error, "a part of the samples is missing");
            } else {
                tracing::debug!(container, %error, %category, "ignoring a file that cannot be sampled");
            }
        }
        Some(opened.reader)
    }

    /// Chooses who tells of each pod's network, which all of its containers share: an ordinary container before others, the first by
    /// name, so that the choice outlives a restart.
    fn choose(&mut self) {
        let mut chosen = BTreeMap::new();
        for entry in &self.entries {
            let workload = &entry.tracked.workload;
            let pod = (&workload.pod.namespace, &workload.pod.name, &workload.pod.uid);
            let rank = (workload.kind != ContainerKind::Regular, &workload.container, entry.slot);
            chosen.entry(pod).and_modify(|best| *best = rank.min(*best)).or_insert(rank);
        }
        let mut slots: Vec<u32> = chosen.into_values().map(|(_, _, slot)| slot).collect();
        slots.sort_unstable();
        for entry in &mut self.entries {
            entry.tells_network = slots.binary_search(&entry.slot).is_ok();
        }
    }

    /// Reads every container; `now` is asked once for each, so that each sample has its true interval. Those whose
    /// cgroup is gone are dropped.
    pub(super) fn read_all(
        &mut self,
        tick: u64,
        now: impl Fn() -> Duration,
        (samples, traffic): Filled<'_>,
        stats: &Stats,
    ) {
        if tick.is_multiple_of(OPEN_AGAIN) && !self.unopened.is_empty() {
            self.open_again(stats);
        }
        if std::mem::take(&mut self.changed) {
            self.choose();
        }
        // Grows only when the number of containers did.
        samples.reserve(self.entries.len());
        // Whose turn it is differs from tick to tick; pages that are never filled are never resident.
        traffic.reserve(self.entries.len());
        let (kernel, changed) = (&mut self.kernel, &mut self.changed);
        self.entries.retain_mut(|entry| match entry.reader.sample(kernel, now(), tick) {
            Ok((sample, flaws)) => {
                samples.push((entry.slot, sample));
                if let Some(look) = entry.look(kernel, tick, &now) {
                    traffic.push((entry.slot, look));
                }
                if !flaws.is_empty() {
                    stats.sample_errors.add(u64::from((flaws.malformed | flaws.unreadable).count_ones()));
                }
                true
            }
            Err(error) => {
                tracing::debug!(slot = entry.slot, %error, "ignoring a container whose cgroup is gone");
                *changed |= error.is_gone();
                !error.is_gone()
            }
        });
    }
}

impl ReaderEntry {
    /// Its traffic, where it is its turn.
    fn look(
        &mut self,
        kernel: &mut SampleContext,
        tick: u64,
        now: &impl Fn() -> Duration,
    ) -> Option<Traffic> {
        let place = self.reader.places().first()?;
        let phase = place.inode;
        self.traffic.look(kernel, now(), tick, phase, Some(place).filter(|_| self.tells_network))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use evenkeel_host::fake::FakeTree;
    use evenkeel_host::hierarchy::CgroupMode;
    use evenkeel_host::sampler::{Descriptors, Plan};

    use super::*;
    use crate::report::test_support::tracked;

    /// Container of the pod `p` in the cgroup `/c<slot>` of a process of its own.
    fn container(tree: &FakeTree, slot: u32, name: &str, kind: ContainerKind) -> TrackChange {
        let (path, pid) = (format!("/c{slot}"), 70 + slot);
        tree.add_cgroup(&path).unwrap();
        tree.set_procs(&path, &[pid]).unwrap();
        let dir = tree.roots().proc().join(pid.to_string()).join("net");
        fs::create_dir_all(&dir).unwrap();
        // One namespace: one inode.
        let shared = tree.roots().proc().join("dev");
        fs::write(&shared, "a\nb\neth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n").unwrap();
        fs::hard_link(shared, dir.join("dev")).unwrap();
        let mut new = tracked(slot, &format!("c{slot}"));
        let mut workload = (*new.workload).clone();
        (workload.pod.name, workload.container, workload.kind) = ("p".to_owned(), name.to_owned(), kind);
        new.workload = Arc::new(workload);
        new.inode = tree.open().unwrap().dirs(&path).unwrap()[0].at().inode;
        TrackChange::Added(Arc::new(new))
    }

    #[test]
    fn a_pods_network_is_told_with_one_of_its_containers() {
        let tree = FakeTree::new(CgroupMode::V2).unwrap();
        fs::create_dir_all(tree.roots().proc().join("1/net")).unwrap();
        fs::write(tree.roots().proc().join("1/net/dev"), "").unwrap();
        let kernel =
            SampleContext::new(tree.open().unwrap(), Descriptors::within(1000), Plan::refresh_every(1));
        let (mut readers, stats) = (Readers::new(kernel.with_networks(&tree.roots())), Stats::default());
        let changes = [
            container(&tree, 1, "a-pause", ContainerKind::Infrastructure),
            container(&tree, 2, "web", ContainerKind::Regular),
            container(&tree, 3, "log", ContainerKind::Regular),
        ];
        for change in &changes {
            readers.change(change, &stats);
        }
        let mut tick = 0;
        let mut tell = |readers: &mut Readers| {
            let (mut samples, mut traffic) = (Vec::new(), Vec::new());
            // Each has its turn once in three ticks; the first look has nothing to compare with.
            for number in 0..7 {
                tick += 1;
                if number == 4 {
                    traffic.clear();
                }
                samples.clear();
                readers.read_all(tick, || Duration::from_secs(tick), (&mut samples, &mut traffic), &stats);
            }
            traffic.sort_unstable_by_key(|(slot, _)| *slot);
            traffic.iter().map(|(slot, look)| (*slot, look.network.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(tell(&mut readers), [(1, false), (2, false), (3, true)]);
        readers.change(&TrackChange::Removed { slot: 3 }, &stats);
        assert_eq!(tell(&mut readers), [(1, false), (2, true)]);
    }

    #[test]
    fn one_that_could_not_be_opened_is_opened_later() {
        let tree = FakeTree::new(CgroupMode::V2).unwrap();
        let kernel =
            SampleContext::new(tree.open().unwrap(), Descriptors::within(1000), Plan::refresh_every(1));
        let (mut readers, stats) = (Readers::new(kernel), Stats::default());
        let added = container(&tree, 1, "web", ContainerKind::Regular);
        let (there, aside) = (tree.roots().cgroup().join("c1"), tree.roots().cgroup().join("aside"));
        fs::rename(&there, &aside).unwrap();
        std::os::unix::fs::symlink("c1", &there).unwrap();
        readers.change(&added, &stats);
        let sampled = |readers: &mut Readers, ticks: std::ops::Range<u64>| {
            let (mut samples, mut traffic) = (Vec::new(), Vec::new());
            for tick in ticks {
                readers.read_all(tick, || Duration::from_secs(tick), (&mut samples, &mut traffic), &stats);
            }
            samples.len()
        };
        assert_eq!((sampled(&mut readers, 1..15), readers.unopened.len()), (0, 1));
        fs::remove_file(&there).unwrap();
        fs::rename(&aside, &there).unwrap();
        assert_eq!((sampled(&mut readers, 15..25), readers.unopened.len()), (5, 0));
        // One that is removed while it waits is not waited for.
        fs::rename(&there, &aside).unwrap();
        std::os::unix::fs::symlink("c1", &there).unwrap();
        readers.change(&TrackChange::Removed { slot: 1 }, &stats);
        readers.change(&added, &stats);
        readers.change(&TrackChange::Removed { slot: 1 }, &stats);
        assert_eq!(readers.unopened.len(), 0);
    }
}
