//! What becomes of history that is too old, or too much.

use std::fs;
use std::path::Path;
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};

use super::store::{FrameOutcome, Store};
use crate::config::{Settings, Size, Span};
use crate::history::{HistoryView, ViewTarget};
use crate::key::StreamKey;
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{History as _, Scope};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Begin of the first day.
const FIRST: u64 = 19_700;
const DAYS: u64 = 10;

/// A store that is fed one hour of every day, with a kill at its end, and writes a checkpoint.
struct Fed {
    store: Store,
    encoder: Encoder,
    sequence: u64,
}

impl Fed {
    fn new(config: &Settings) -> Self {
        let (mut store, _) = Store::open(config).unwrap();
        let StreamKey { cluster, node, epoch } = key();
        store.hello(FIRST * DAY, &v1::Hello { cluster, node, epoch, ..v1::Hello::default() }).unwrap();
        Self { store, encoder: Encoder::new(), sequence: 0 }
    }

    fn day(&mut self, day: u64) {
        // For the rest of the day before, the node was there without containers.
        for hour in 2..24 {
            if self.sequence > 0 {
                self.samples((day - 1) * DAY + hour * 3600 * SECOND, &[], Vec::new());
            }
        }
        for minute in 0..60 {
            self.frame(day * DAY + minute * 60 * SECOND, Vec::new());
        }
        let kill = v1::Decision {
            time_usec: day * DAY + 3600 * SECOND,
            pod: Some("web-1".into()),
            container: Some("main".into()),
            kind: "oom-kill".into(),
            result: "done".into(),
            ..v1::Decision::default()
        };
        self.frame(day * DAY + 3600 * SECOND, vec![kill]);
        self.store.checkpoint().unwrap();
    }

    fn frame(&mut self, time: u64, decisions: Vec<v1::Decision>) {
        let mut sample = Sample::new(Duration::from_secs(60));
        sample.set(Field::CpuUsageUsec, self.sequence * SECOND);
        sample.set(Field::MemoryWorkingSetBytes, 1 << 20);
        self.samples(time, &[(1, sample)], decisions);
    }

    fn samples(&mut self, time: u64, all: &[(u32, Sample)], decisions: Vec<v1::Decision>) {
        let mut samples = Vec::new();
        let first = self.sequence == 0;
        self.encoder.encode_seconds(first, time, 60_000_000, all, &mut samples).unwrap();
        self.sequence += 1;
        let identity = v1::ContainerIdentity {
            namespace: "shop".into(),
            pod: "web-1".into(),
            container: "main".into(),
            workload: "deployment/web".into(),
            image: "web:1".into(),
            ..v1::ContainerIdentity::default()
        };
        let announced = vec![v1::Announcement { slot: 1, identity: Some(identity) }];
        let frame = v1::Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced: if first { announced } else { Vec::new() },
            decisions,
            ..v1::Frame::default()
        };
        let taken = self.store.take(time, &key(), &frame, first).unwrap();
        assert!(matches!(taken, FrameOutcome::Acknowledge { .. }), "{taken:?}");
    }
}

fn key() -> StreamKey {
    StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 }
}

fn config(dir: &Path, hours: u64, days: u64) -> Settings {
    let mut config = Settings::at(dir);
    config.retention.hours = Span::from_days(hours);
    config.retention.days = Span::from_days(days);
    config
}

/// Days of the files of one kind, counted from the first, and the size of each.
fn files(config: &Settings, kind: &str) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = fs::read_dir(config.history_dir())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter_map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            let day: u64 = name.strip_suffix(&format!(".{kind}"))?.parse().unwrap();
            Some((day - FIRST, entry.metadata().unwrap().len()))
        })
        .collect();
    found.sort_unstable();
    found
}

fn days_of(config: &Settings, kind: &str) -> Vec<u64> {
    files(config, kind).into_iter().map(|(day, _)| day).collect()
}

/// Days, counted from the first, of which rules are told minutes, hours, days and kills.
fn told(store: &Store) -> [Vec<u64>; 4] {
    let state = store.state();
    let state = state.read();
    let of = ViewTarget {
        cluster: Some("c"),
        namespace: "shop",
        workload: "deployment/web",
        container: "main",
        image: None,
        command: None,
    };
    let view = HistoryView::new(&state, of, Resource::Memory);
    let minutes = view.minutes(Scope::Own, 0).iter().map(|m| m.minute / 1440).collect();
    let hours = view.hours(Scope::Own, 0).iter().map(|h| h.hour / 24).collect();
    let days = view.days(Scope::Own, 0).iter().map(|d| d.day).collect();
    let kills = view.events(0).iter().map(|e| e.time_ms * 1000 / DAY).collect();
    [minutes, hours, days, kills].map(|mut all: Vec<u64>| {
        all.dedup();
        all.iter().map(|day| day - FIRST).collect()
    })
}

fn dropped(store: &Store) -> (u64, u64) {
    let state = store.state();
    let counts = state.read().past.counts;
    (counts.expired_files, counts.crowded_files)
}

#[test]
fn hours_and_days_go_when_their_time_is_over_and_kills_with_the_days() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 3, 6);
    let mut fed = Fed::new(&config);
    for day in FIRST..FIRST + DAYS {
        fed.day(day);
    }
    // The newest day's hour and day are open, and in no file.
    let recent: Vec<u64> = (6..9).collect();
    assert_eq!((days_of(&config, "minutes"), days_of(&config, "hours")), (recent.clone(), recent));
    assert_eq!(days_of(&config, "days"), (3..=9).collect::<Vec<_>>());
    assert_eq!(dropped(&fed.store), (6 + 6 + 3, 0));
    let check = |store: &Store| {
        let [minutes, hours, days, kills] = told(store);
        assert_eq!((minutes, hours), ((6..=9).collect::<Vec<_>>(), (6..=9).collect::<Vec<_>>()));
        assert_eq!((days, kills), ((3..=9).collect::<Vec<_>>(), (3..=9).collect::<Vec<_>>()));
    };
    check(&fed.store);
    drop(fed);
    // A file that should have been deleted when the process was killed is no part of the history.
    let late = config.history_dir().join(format!("{FIRST}.hours"));
    fs::copy(config.history_dir().join(format!("{}.hours", FIRST + 8)), &late).unwrap();
    let (store, report) = Store::open(&config).unwrap();
    assert_eq!(report.history_damage, Vec::<String>::new());
    assert!(!late.exists());
    check(&store);
}

#[test]
fn the_oldest_day_goes_first_when_there_is_too_much_and_the_newest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), 30, 30);
    let mut fed = Fed::new(&config);
    for day in FIRST..FIRST + DAYS {
        fed.day(day);
    }
    assert_eq!(dropped(&fed.store), (0, 0));
    drop(fed);
    let sizes = |config: &Settings| -> Vec<(u64, u64)> {
        let mut all: Vec<_> =
            ["minutes", "hours", "days"].into_iter().flat_map(|k| files(config, k)).collect();
        all.sort_unstable();
        all
    };
    for (part, least) in [(2, 3), (10, 7)] {
        let before = sizes(&config);
        let all: u64 = before.iter().map(|(_, size)| size).sum();
        config.retention.bytes = Size::from_bytes(all / part);
        let (mut store, _) = Store::open(&config).unwrap();
        store.checkpoint().unwrap();
        let after = sizes(&config);
        let left: u64 = after.iter().map(|(_, size)| size).sum();
        assert!(left <= all / part, "{left} of {all}");
        let gone = before.len() - after.len();
        assert_eq!(dropped(&store), (gone as u64, gone as u64));
        let oldest = after.first().map(|(day, _)| *day).unwrap();
        assert!(before[..gone].iter().all(|(day, _)| *day <= oldest), "{before:?} {after:?}");
        assert!(oldest >= least, "{after:?}");
        let [minutes, hours, days, kills] = told(&store);
        for told in [minutes, hours, days, kills] {
            assert!(told.first().is_some_and(|first| *first >= oldest), "{told:?} {after:?}");
        }
        let coverage = store.state().read().past.coverage();
        assert!(
            coverage.hours.is_some_and(|(first, _)| u64::from(first) / 24 >= FIRST + oldest),
            "{coverage:?}"
        );
    }
    config.retention.bytes = Size::from_bytes(1);
    let (mut store, _) = Store::open(&config).unwrap();
    store.checkpoint().unwrap();
    assert!(sizes(&config).iter().all(|(day, _)| *day == DAYS - 1), "the newest day stays");
    assert_eq!(told(&store)[2], [DAYS - 1]);
}

/// What an earlier release left that believed a clock sixty days ahead.
#[test]
fn a_store_with_a_time_that_never_was_is_right_again_with_the_first_frame() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 3, 6);
    let mut fed = Fed::new(&config);
    for day in FIRST..FIRST + 2 {
        fed.day(day);
    }
    let minute = |usec: u64| u32::try_from(usec / (60 * SECOND)).unwrap();
    let now = (FIRST + 1) * DAY + 3601 * SECOND;
    {
        let shared = fed.store.state();
        let mut state = shared.write();
        state.clock = crate::state::clock::Clock::of_minute(minute(now + 60 * DAY));
        for stream in state.streams.values_mut() {
            stream.last_seen_usec = now + 60 * DAY;
        }
    }
    fed.store.checkpoint().unwrap();
    let before = [files(&config, "minutes"), files(&config, "hours"), files(&config, "days")];
    fed.store = Store::open(&Settings { state_dir: dir.path().join("other"), ..config.clone() }).unwrap().0;
    fed.store = Store::open(&config).unwrap().0;
    let StreamKey { cluster, node, epoch } = key();
    fed.store.hello(now, &v1::Hello { cluster, node, epoch, ..v1::Hello::default() }).unwrap();
    fed.store.checkpoint().unwrap();
    assert_eq!(before, [files(&config, "minutes"), files(&config, "hours"), files(&config, "days")]);
    let counted = fed.store.state().read().counters.samples;
    for second in 0..5 {
        fed.frame(now + second * 60 * SECOND, Vec::new());
    }
    let shared = fed.store.state();
    {
        let state = shared.read();
        assert_eq!((state.counters.samples - counted, state.counters.ancient), (5, 0));
        assert_eq!(state.clock.now(), minute(now + 240 * SECOND));
        assert_eq!(state.clock.expiry(), Some(state.clock.now()));
        assert_eq!(state.containers(), 1);
    }
    // Days go on being sealed and dropped by the true time.
    for day in FIRST + 2..FIRST + DAYS {
        fed.day(day);
    }
    assert_eq!(days_of(&config, "days"), (3..=9).collect::<Vec<_>>());
}
