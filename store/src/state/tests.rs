//! What a state counts of samples and events, good ones and bad ones.

use std::sync::Arc;
use std::time::Duration;

use super::history::History as _;
use super::*;
use crate::history::{HistoryView, ViewTarget};
use crate::key::Image;
use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{Cause, History as _, Scope};

/// Noon of a day.
const NOON: u64 = 1_700_049_600_000_000;
const SECOND: u64 = 1_000_000;
/// Bounds that a few containers do not meet.
pub(crate) const LIMITS: Limits = Limits {
    history: HistoryBounds { retention_minutes: 35 * 24 * 60, series: 100, of_node: 100 },
    epochs: 10,
    containers: 100,
    per_node: 100,
    names_per_minute: 100,
    kills_per_hour: 500,
    gone_minutes: 5,
    events: 10,
    subjects: 500,
    start_usec: 0,
};

struct Feed {
    state: StoreState,
    encoder: Encoder,
    key: StreamKey,
    sequence: u64,
}

impl Feed {
    fn new() -> Self {
        let key = StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 };
        Self { state: StoreState::new(LIMITS), encoder: Encoder::new(), key, sequence: 0 }
    }

    /// A second measured at a time, received at another.
    fn second(&mut self, received: u64, time: u64, cpu_usec: u64, memory: u64) {
        self.frame(received, time, cpu_usec, memory, Vec::new());
    }

    fn frame(&mut self, received: u64, time: u64, cpu_usec: u64, memory: u64, decisions: Vec<v1::Decision>) {
        let mut sample = Sample::new(Duration::from_secs(1));
        sample.set(Field::CpuUsageUsec, cpu_usec);
        sample.set(Field::MemoryWorkingSetBytes, memory);
        let mut samples = Vec::new();
        self.encoder
            .encode_seconds(self.sequence == 0, time, 1_000_000, &[(1, sample)], &mut samples)
            .unwrap();
        self.sequence += 1;
        let identity = v1::ContainerIdentity {
            namespace: "shop".into(),
            pod: "web-1".into(),
            container: "main".into(),
            workload: "deployment/web".into(),
            image: "web:1".into(),
            command_hash: Some(9),
            requested: Some(v1::ResourceValues { memory_request_bytes: Some(7), ..Default::default() }),
            ..Default::default()
        };
        let announced = vec![v1::Announcement { slot: 1, identity: Some(identity) }];
        let frame = v1::Frame {
            sequence: self.sequence,
            samples: samples.into(),
            announced: if self.sequence == 1 { announced } else { Vec::new() },
            decisions,
            ..v1::Frame::default()
        };
        let entry = LogEntry::Taken(Taken::new(self.key.clone(), frame));
        assert_eq!(self.state.apply(received, entry), RecordOutcome::Done);
    }

    fn view(&self, resource: Resource) -> HistoryView<'_> {
        static IMAGE: std::sync::LazyLock<Option<Image>> = std::sync::LazyLock::new(|| Image::parse("web:1"));
        let of = ViewTarget {
            cluster: Some("c"),
            namespace: "shop",
            workload: "deployment/web",
            container: "main",
            image: IMAGE.as_ref(),
            command: Some(9),
        };
        HistoryView::new(&self.state, of, resource)
    }

    /// Records pass by until everything of an hour ago is sealed.
    fn pass(&mut self, until: u64) {
        // As nobody reports, time follows small steps only.
        let from = self.state.clock.received_usec;
        for time in (from..until + 3600 * SECOND).step_by(1800 * SECOND as usize) {
            self.state.apply(time, LogEntry::Retired(self.key.clone()));
        }
    }
}

#[test]
fn what_is_late_ancient_ahead_or_reset_follows_its_rule() {
    let mut feed = Feed::new();
    let day = 86_400 * SECOND;
    feed.second(NOON, NOON, 5_000_000, 1 << 20);
    feed.second(NOON + SECOND, NOON + SECOND, 5_500_000, 1 << 20);
    // The counter went back: no CPU, but memory.
    feed.second(NOON + 2 * SECOND, NOON + 2 * SECOND, 100, 2 << 20);
    // The clock was set back two hours: its own hour.
    feed.second(NOON + 3 * SECOND, NOON - 7200 * SECOND, 200_100, 4 << 20);
    feed.second(NOON + 4 * SECOND, NOON + 2 * day, 300_100, 1 << 30);
    feed.second(NOON + 5 * SECOND, NOON - 36 * day, 400_100, 1 << 30);
    let c = feed.state.counters;
    assert_eq!((c.samples, c.late, c.ancient, c.misdated, c.resets), (4, 1, 1, 1, 1));
    let hours = |feed: &Feed, resource| -> Vec<(u64, u64, u64)> {
        let hours = feed.view(resource).hours(Scope::Own, 0);
        hours.iter().map(|h| (h.hour, h.all.total(), h.peak)).collect()
    };
    let noon = NOON / (3600 * SECOND);
    let want_memory = [(noon - 2, 1000, 4 << 20), (noon, 3000, 2 << 20)];
    let want_cpu = [(noon - 2, 1000, 200_000), (noon, 1000, 500_000)];
    assert_eq!(hours(&feed, Resource::Memory), want_memory);
    assert_eq!(hours(&feed, Resource::Cpu), want_cpu);
    // Sealing changes no answer.
    feed.pass(NOON + 3 * day);
    assert_eq!(hours(&feed, Resource::Memory), want_memory);
    assert_eq!(hours(&feed, Resource::Cpu), want_cpu);
    assert!(feed.state.past.all().all(|(_, held)| held.open_hours.is_empty() && held.open_days.is_empty()));
}

#[test]
fn a_container_that_asks_for_something_else_goes_on() {
    let mut feed = Feed::new();
    let identity = |feed: &Feed| {
        let stream = feed.state.stream(&feed.key).unwrap();
        Arc::clone(&stream.slots.get(1).unwrap().identity)
    };
    for i in 0..3 {
        feed.second(NOON + i * SECOND, NOON + i * SECOND, i * 250_000, 8 << 20);
    }
    let mut resized = v1::ContainerIdentity::clone(&identity(&feed));
    resized.requested = Some(v1::ResourceValues { memory_request_bytes: Some(9), ..Default::default() });
    let again = v1::Announcement { slot: 1, identity: Some(resized.clone()) };
    let frame = v1::Frame { announced: vec![again], ..v1::Frame::default() };
    feed.state.apply(NOON + 3 * SECOND, LogEntry::Announced(Taken::new(feed.key.clone(), frame)));
    assert_eq!(*identity(&feed), resized);
    for i in 3..6 {
        feed.second(NOON + i * SECOND, NOON + i * SECOND, i * 250_000, 8 << 20);
    }
    let hours = feed.view(Resource::Cpu).hours(Scope::Own, 0);
    let seen: Vec<_> = hours.iter().map(|h| (h.all.total(), h.peak, h.worst.is_some())).collect();
    // Only the very first second has no CPU, and it is one replica.
    assert_eq!(seen, [(5000, 250_000, false)]);
    let series = feed.state.history.all().next().map(|(_, s)| s.requested.memory_bytes);
    assert_eq!((feed.state.containers(), series), (1, Some(Some(9))));
}

#[test]
fn every_scope_has_its_days_and_kills_are_remembered() {
    let mut feed = Feed::new();
    for i in 0..130 {
        feed.second(NOON + i * SECOND, NOON + i * SECOND, i * 250_000, 8 << 20);
    }
    let kill = v1::Decision {
        time_usec: NOON + 129 * SECOND,
        pod: Some("web-1".into()),
        container: Some("main".into()),
        kind: "oom-kill".into(),
        result: "done".into(),
        ..Default::default()
    };
    feed.frame(NOON + 130 * SECOND, NOON + 130 * SECOND, 130 * 250_000, 8 << 20, vec![kill]);
    let check = |feed: &Feed| {
        for scope in [Scope::Own, Scope::Command, Scope::NamespaceImageTag, Scope::ImageTag, Scope::Image] {
            let days = feed.view(Resource::Cpu).days(scope, 0);
            let seen: Vec<_> =
                days.iter().map(|d| (d.day, d.all.total(), d.minutes.total(), d.peak)).collect();
            // The first second has no CPU; two whole minutes and the third one's part.
            assert_eq!(seen, [(NOON / (86_400 * SECOND), 130_000, 3, 250_000)], "{scope:?}");
        }
        let events = feed.view(Resource::Memory).events(0);
        let seen: Vec<_> = events.iter().map(|e| (e.cause, e.usage, e.request)).collect();
        assert_eq!(seen, [(Cause::OomKill, Some(8 << 20), Some(7))]);
    };
    check(&feed);
    feed.pass(NOON + 2 * 86_400 * SECOND);
    check(&feed);
    assert_eq!(feed.state.past.counts.unplaced_events, 0);
}

/// An answer takes a bounded time, however many containers there are.
#[test]
fn minutes_of_too_many_containers_are_left_to_days_and_hours() {
    let mut feed = Feed::new();
    feed.second(NOON, NOON, 0, 1 << 20);
    let id = feed.state.history.all().next().map(|(id, _)| id).unwrap();
    let mut minute = Rollup { samples: 60, ..Default::default() };
    minute.memory_bytes.add(1 << 20);
    let now = (NOON / (60 * SECOND)) as u32;
    let mut told = Vec::new();
    for replica in 1..=65 {
        feed.state.history.record(id, (7, replica), "p", now - 1, &minute);
        let minutes = |scope| feed.view(Resource::Memory).minutes(scope, 0).len();
        if [64, 65].contains(&replica) {
            // One more is the minute that has not ended.
            told.push([Scope::Own, Scope::ImageTag].map(minutes));
        }
    }
    assert_eq!(told, [[65; 2], [0; 2]]);
    let view = feed.view(Resource::Memory);
    assert_eq!((view.hours(Scope::Own, 0).len(), view.days(Scope::ImageTag, 0).len()), (1, 1));
}
