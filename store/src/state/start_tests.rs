//! What a container uses while it starts is known apart, and is left out where that is wished; nothing else is another number for it.

use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{History as _, Scope};

use super::tests::LIMITS;
use super::{Limits, RecordOutcome, StoreState};
use crate::checkpoint;
use crate::history::{HistoryView, ViewTarget};
use crate::ingest::record::{IngestEntry, Taken};
use crate::key::{Image, StreamKey};

const S: u64 = 1_000_000;
/// 40 seconds past an hour, so that hours end within nothing here.
const BEGIN: u64 = 1_700_049_600 * S + 40 * S;
/// How long a start lasts, seconds.
const LENGTH: u64 = 60;

const WITH_STARTS: Limits = Limits { start_usec: LENGTH * S, ..LIMITS };

fn key() -> StreamKey {
    StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 }
}

/// A node that tells of containers of one workload: slot, and CPU time used, microseconds.
struct Node {
    state: StoreState,
    encoder: Encoder,
    sequence: u64,
    used: Vec<(u32, u64)>,
}

impl Node {
    fn new() -> Self {
        Self { state: StoreState::new(WITH_STARTS), encoder: Encoder::new(), sequence: 0, used: Vec::new() }
    }

    fn announcement(slot: u32) -> v1::Announcement {
        let identity = v1::ContainerIdentity {
            id: format!("id-{slot}"),
            namespace: "shop".into(),
            pod: format!("web-{slot}"),
            container: "main".into(),
            workload: "deployment/web".into(),
            image: "web:1".into(),
            ..Default::default()
        };
        v1::Announcement { slot, identity: Some(identity) }
    }

    /// A second in which containers use so much of the CPU, thousandths of a core; new ones are announced.
    fn second(&mut self, at: u64, milli: &[(u32, u64)]) {
        let known: Vec<u32> = self.used.iter().map(|(slot, _)| *slot).collect();
        let new = milli.iter().map(|(slot, _)| *slot).filter(|slot| !known.contains(slot));
        let announced: Vec<_> = new.map(Self::announcement).collect();
        self.used.extend(announced.iter().map(|new| (new.slot, 0)));
        let mut samples = Vec::new();
        for (slot, used) in &mut self.used {
            *used += milli.iter().find(|(of, _)| of == slot).map_or(0, |(_, milli)| milli * 1000);
            let mut sample = Sample::new(Duration::from_secs(1));
            sample.set(Field::CpuUsageUsec, *used);
            sample.set(Field::MemoryWorkingSetBytes, 1 << 20);
            samples.push((*slot, sample));
        }
        let (mut bytes, is_key) = (Vec::new(), self.sequence == 0);
        let time = BEGIN + at * S;
        self.encoder.encode_seconds(is_key, time, 1_000_000, &samples, &mut bytes).unwrap();
        self.sequence += 1;
        let frame =
            v1::Frame { sequence: self.sequence, samples: bytes.into(), announced, ..v1::Frame::default() };
        let entry = IngestEntry::Taken(Taken::new(key(), frame));
        assert_eq!(self.state.apply(time, entry), RecordOutcome::Done);
    }

    fn view<R>(state: &StoreState, of: impl FnOnce(HistoryView<'_>) -> R) -> R {
        let image = Image::parse("web:1");
        let name = ViewTarget {
            cluster: Some("c"),
            namespace: "shop",
            workload: "deployment/web",
            container: "main",
            image: image.as_ref(),
            command: None,
        };
        of(HistoryView::new(state, name, Resource::Cpu))
    }
}

/// Seconds of all and of the running state, by hours and by days of the image; greatest use of both, thousandths; minutes of both; seconds of starts.
fn told(state: &StoreState) -> ([[u64; 2]; 2], [u64; 2], [u64; 2], u64) {
    Node::view(state, |view| {
        let running = view.without_starts();
        let seconds = |view: &HistoryView<'_>| {
            let hours = view.hours(Scope::Own, 0);
            let days = view.days(Scope::ImageTag, 0);
            let minutes = days.iter().map(|day| day.minutes.total()).sum();
            let total = [hours[0].all.total() / 1000, days[0].all.total() / 1000];
            (total, hours[0].all.quantile(1.0).unwrap() / 1_000, minutes)
        };
        let (all, without) = (seconds(&view), seconds(&running));
        let starts = view.starts(Scope::ImageTag, 0);
        assert_eq!(starts, view.starts(Scope::Own, 0));
        ([all.0, without.0], [all.1, without.1], [all.2, without.2], starts.heights.total() / 1000)
    })
}

#[test]
fn seconds_of_a_start_are_known_apart() {
    let mut node = Node::new();
    for at in 0..30 {
        node.second(at, &[(1, 100)]);
    }
    // The one that was there may be of any age.
    assert_eq!(told(&node.state).3, 0);
    for at in 30..200 {
        // A second one starts with two cores, and uses a twentieth after it.
        let milli = if at < 30 + LENGTH { 2000 } else { 50 };
        node.second(at, &[(1, 100), (2, milli)]);
    }
    let check = |state: &StoreState| {
        let ([all, running], peaks, minutes, starts) = told(state);
        // Of each the first second has no CPU; a start is sixty seconds from its first sample on.
        assert_eq!((all, running, starts), ([199 + 169; 2], [199 + 169 - 59; 2], 59));
        assert!((2000..2100).contains(&peaks[0]) && (100..2100).contains(&peaks[1]), "{peaks:?}");
        assert!(minutes[0] > minutes[1], "{minutes:?}");
    };
    check(&node.state);
    // The same after a restart, and once it is sealed.
    let mut read = StoreState::new(WITH_STARTS);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    checkpoint::write(&path, &checkpoint::encode(&node.state).finish(&[])).unwrap();
    checkpoint::read(&path, &mut read).unwrap().unwrap();
    check(&read);
    let later = BEGIN + 3 * 86_400 * S;
    for at in (BEGIN + 200 * S..later).step_by(1800 * S as usize) {
        node.state.apply(at, IngestEntry::Retired(key()));
    }
    assert!(node.state.past.all().all(|(_, held)| held.open_hours.is_empty() && held.open_days.is_empty()));
    check(&node.state);
}

#[test]
fn a_start_that_goes_on_outlives_a_restart() {
    let mut node = Node::new();
    for at in 0..20 {
        node.second(at, &[(1, 100)]);
    }
    for at in 20..50 {
        node.second(at, &[(1, 100), (2, 2000)]);
    }
    assert_eq!(told(&node.state).3, 29);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    checkpoint::write(&path, &checkpoint::encode(&node.state).finish(&[])).unwrap();
    let mut read = StoreState::new(WITH_STARTS);
    checkpoint::read(&path, &mut read).unwrap().unwrap();
    assert_eq!(told(&read), told(&node.state));
    node.state = read;
    for at in 50..120 {
        node.second(at, &[(1, 100), (2, 2000)]);
    }
    assert_eq!(told(&node.state).3, 59);
}

#[test]
fn starts_are_told_apart_only_where_that_is_wished() {
    let mut node = Node::new();
    node.state = StoreState::new(Limits { start_usec: 0, ..LIMITS });
    for at in 0..50 {
        let both = [(1, 100), (2, 2000)];
        node.second(at, &both[..if at < 20 { 1 } else { 2 }]);
    }
    let ([all, running], _, minutes, starts) = told(&node.state);
    assert_eq!((all, minutes[0], starts), (running, minutes[1], 0));
}
