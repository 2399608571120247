//! Live use: what each tracked container did last, for watchers and metrics, and a hint to who tells of OOM kills
//! where a sample shows one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_enforce::oom::Hint;
use evenkeel_enforce::overlay::InForce;
use evenkeel_enforce::shared::{TrackChange, Tracked};
use evenkeel_enforce::usage::{LastSeconds, LatestSamples};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::traffic::Traffic;
use evenkeel_model::units::Bytes;
use evenkeel_model::usage::UsageRecord;

use super::earlier::Earlier;
use super::quality::{Quality, RequestQuality};
use super::recent::Recent;
use super::throttled::Throttling;
use crate::shared::{LiveContainer, LiveTick, Tick};

/// Containers that ended whose last minute is still told, for kills seen after the end; 400 KiB.
const ENDED: usize = 256;

/// The latest sample of every tracked container.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    /// Ascending by slot.
    containers: Vec<WatchedContainer>,
    /// Those that ended last, oldest first.
    ended: VecDeque<WatchedContainer>,
    quality: Quality,
    /// Of the latest tick, microseconds since 1970.
    time_usec: u64,
    /// When it was taken in.
    taken: Option<Instant>,
    /// What the run before saw, while it is asked for.
    earlier: Option<Earlier>,
}

#[derive(Debug)]
struct WatchedContainer {
    tracked: Arc<Tracked>,
    last: Option<Sample>,
    /// Time of the tick of the last sample.
    sampled_usec: u64,
    cpu_milli: Option<u64>,
    traffic: Option<Traffic>,
    recent: Recent,
}

impl WatchedContainer {
    /// With one of its samples.
    fn live(&self, sample: Sample) -> LiveContainer {
        let tracked = Arc::clone(&self.tracked);
        LiveContainer { tracked, sample, cpu_milli: self.cpu_milli, traffic: self.traffic }
    }
}

impl Latest {
    /// What a container used in the last minute; `None` when it is not tracked or was not sampled yet.
    pub(crate) fn record(&self, slot: u32) -> Option<UsageRecord> {
        let at = self.containers.binary_search_by_key(&slot, |c| c.tracked.slot).ok()?;
        self.containers.get(at)?.recent.record()
    }

    /// Every tracked container, ascending by slot.
    pub(super) fn tracked(&self) -> impl Iterator<Item = &Tracked> {
        self.containers.iter().map(|container| &*container.tracked)
    }

    /// How far its CPU limit held a container back in the last minute.
    pub(crate) fn throttling(&self, slot: u32) -> Option<Throttling> {
        let at = self.containers.binary_search_by_key(&slot, |c| c.tracked.slot).ok()?;
        self.containers.get(at)?.recent.throttling()
    }

    /// Takes in what the run before saw in the minute before this one.
    pub(super) fn remember(&mut self, earlier: Earlier) {
        self.earlier = Some(earlier);
    }

    /// From now on these containers have requests that a recommendation set.
    pub(super) fn follow(&mut self, in_force: Arc<InForce>) {
        self.quality.follow(in_force);
    }

    /// What came of requests that recommendations set, by policy.
    pub(crate) fn quality(&self) -> BTreeMap<String, RequestQuality> {
        self.quality.sums()
    }

    /// Takes in a tick; where a counter of OOM kills grew, `hint` is told.
    pub(crate) fn take(&mut self, tick: &Tick, hint: &mut dyn FnMut(Hint)) {
        self.time_usec = tick.time_usec;
        self.taken = Some(Instant::now());
        self.earlier.take_if(|earlier| earlier.is_over(tick.time_usec));
        for change in &tick.changes {
            self.change(change);
        }
        let mut samples = tick.samples.iter().peekable();
        for container in &mut self.containers {
            let slot = container.tracked.slot;
            while samples.next_if(|(s, _)| *s < slot).is_some() {}
            let Some((_, sample)) = samples.next_if(|(s, _)| *s == slot) else { continue };
            let cpu_micro = container.last.and_then(|last| sample.cpu_micro(&last));
            container.cpu_milli = cpu_micro.map(|micro| micro / 1000);
            let total = sample.get(Field::OomKills).unwrap_or(0);
            let new = container.last.map(|last| sample.delta(&last, Field::OomKills).unwrap_or(0));
            if total > 0 && new != Some(0) {
                hint(Hint { tracked: Arc::clone(&container.tracked), total, new });
            }
            if let Some(last) = &container.last {
                self.quality.take(&container.tracked, sample, last, container.cpu_milli);
            }
            container.last = Some(*sample);
            container.sampled_usec = tick.time_usec;
            container.recent.take(tick.time_usec, sample, cpu_micro);
        }
        for (slot, traffic) in &tick.traffic {
            let Ok(at) = self.containers.binary_search_by_key(slot, |c| c.tracked.slot) else { continue };
            let container = &mut self.containers[at];
            container.traffic = Some(*traffic);
            container.recent.take_traffic(tick.time_usec, traffic);
        }
    }

    fn change(&mut self, change: &TrackChange) {
        let (slot, tracked) = match change {
            TrackChange::Added(tracked) => (tracked.slot, Some(tracked)),
            TrackChange::Removed { slot } => (*slot, None),
        };
        let place = self.containers.binary_search_by_key(&slot, |c| c.tracked.slot);
        match (place, tracked) {
            (Err(at), Some(tracked)) => {
                let tracked = Arc::clone(tracked);
                let container = WatchedContainer {
                    tracked,
                    last: None,
                    sampled_usec: 0,
                    cpu_milli: None,
                    traffic: None,
                    recent: Recent::new(),
                };
                self.containers.insert(at, container);
            }
            (Ok(at), None) => {
                if self.ended.len() >= ENDED {
                    self.ended.pop_front();
                }
                self.ended.push_back(self.containers.remove(at));
            }
            // It asks for something else; what it did goes on.
            (Ok(at), Some(tracked)) => self.containers[at].tracked = Arc::clone(tracked),
            // Ended twice: nothing changes.
            (Err(_), None) => {}
        }
    }

    /// Everything sampled in the latest tick; `None` before the first, and when it was taken in longer ago than
    /// `oldest`.
    pub(crate) fn now(&self, oldest: Duration) -> Option<LiveTick> {
        self.taken.filter(|taken| taken.elapsed() <= oldest)?;
        let sampled = self.containers.iter().filter(|container| container.sampled_usec == self.time_usec);
        let containers = sampled.filter_map(|container| Some(container.live(container.last?)));
        Some(LiveTick { time_usec: self.time_usec, containers: containers.collect() })
    }

    /// Everything sampled in this tick.
    pub(super) fn live(&self, tick: &Tick) -> LiveTick {
        let mut samples = tick.samples.iter().peekable();
        let containers = self.containers.iter().filter_map(|container| {
            let slot = container.tracked.slot;
            while samples.next_if(|(s, _)| *s < slot).is_some() {}
            let (_, sample) = samples.next_if(|(s, _)| *s == slot)?;
            Some(container.live(*sample))
        });
        LiveTick { time_usec: tick.time_usec, containers: containers.collect() }
    }
}

impl LatestSamples for Latest {
    fn time_usec(&self) -> u64 {
        self.time_usec
    }

    fn each(&self, take: &mut dyn FnMut(u32, &Sample)) {
        for container in &self.containers {
            if let Some(last) = &container.last {
                take(container.tracked.slot, last);
            }
        }
    }

    fn before(&self, tracked: &Tracked, time_usec: u64, span: Duration) -> Option<LastSeconds> {
        let container = match self.containers.binary_search_by_key(&tracked.slot, |c| c.tracked.slot) {
            Ok(at) => self.containers.get(at),
            Err(_) => self.ended.iter().find(|c| c.tracked.slot == tracked.slot),
        };
        let earlier = self.earlier.as_ref().and_then(|earlier| earlier.text(tracked, time_usec, span));
        if container.is_none() && earlier.is_none() {
            return None;
        }
        let last = container.and_then(|container| container.last);
        let bytes = |field| last.and_then(|last| last.get(field)).map(Bytes::new);
        let recent = container.map(|container| container.recent.text(time_usec, span));
        let texts: Vec<String> = earlier.into_iter().chain(recent).filter(|text| !text.is_empty()).collect();
        Some(LastSeconds {
            usage: bytes(Field::MemoryCurrentBytes),
            working_set: bytes(Field::MemoryWorkingSetBytes),
            text: texts.join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_support::{first_tick, tick, tracked};

    #[test]
    fn live_use_follows_the_ticks_and_a_kill_is_hinted_at() {
        let (mut latest, mut hints) = (Latest::default(), Vec::new());
        assert!(latest.now(Duration::MAX).is_none());
        let killed = |mut tick: Tick, total: u64| {
            for (slot, sample) in &mut tick.samples {
                sample.set(Field::OomKills, if *slot == 2 { total } else { 0 });
            }
            tick
        };
        let mut seen = |latest: &mut Latest, tick: &Tick| {
            latest.take(tick, &mut |hint| hints.push((hint.tracked.slot, hint.total, hint.new)));
            let live = latest.live(tick);
            let live = live.containers.iter().map(|c| (c.tracked.slot, c.cpu_milli)).collect::<Vec<_>>();
            let now = latest.now(Duration::from_secs(60)).unwrap();
            let now = now.containers.iter().map(|c| (c.tracked.slot, c.cpu_milli)).collect::<Vec<_>>();
            assert_eq!(now, live, "what is asked for at once is what the tick had");
            (live, std::mem::take(&mut hints))
        };
        let (live, hint) = seen(&mut latest, &killed(first_tick(1, 1..4), 5));
        assert_eq!((live, hint), (vec![(1, None), (2, None), (3, None)], vec![(2, 5, None)]));
        let second = killed(tick(2, 1..4), 7);
        let (live, hint) = seen(&mut latest, &second);
        assert_eq!((live, hint), (vec![(1, Some(1)), (2, Some(2)), (3, Some(3))], vec![(2, 7, Some(2))]));
        // The second container asks for something else now, and is known by its new name.
        let renamed = TrackChange::Added(Arc::new(tracked(2, "renamed")));
        let changes = vec![TrackChange::Removed { slot: 1 }, renamed];
        let third = Tick { changes, ..killed(tick(3, 2..3), 7) };
        assert_eq!(seen(&mut latest, &third), (vec![(2, Some(2))], vec![]));
        assert_eq!(latest.live(&third).containers[0].tracked.workload.pod.name, "renamed");
        // The one that ended is still told of.
        let before = |slot, time, span| {
            latest.before(&tracked(slot, "any"), time, Duration::from_secs(span)).map(|b| b.text)
        };
        assert_eq!(before(1, 3_500_000, 10).unwrap(), "-2s 1024Ki, -1s 1024Ki 1m");
        assert_eq!(before(2, 3_500_000, 1).unwrap(), "-1s 2048Ki 2m, 0s 2048Ki 2m");
        assert_eq!((before(2, 3_500_000, 0).unwrap(), before(9, 3_500_000, 10)), (String::new(), None));
    }
}
