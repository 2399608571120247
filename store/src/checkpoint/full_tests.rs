//! A store that an earlier release let nodes fill starts again within today's bounds, and says what it dropped.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use evenkeel_model::key::ContainerKey;
use evenkeel_proto::v1;

use super::{TooLarge, encode};
use crate::config::Settings;
use crate::ingest::record::{IngestEntry, Taken};
use crate::ingest::report::tell_report;
use crate::ingest::store::Store;
use crate::key::{Image, NodeKey, SeriesKey, StreamKey, Subject};
use crate::state::history::{History as _, HistoryBounds};
use crate::state::{Limits, NodeDecision, StoreState};

const NOON: u64 = 1_700_049_600_000_000;
const MEGABYTE: usize = 1 << 20;
/// Series that may be known: 512 bytes of names for each.
const SERIES: usize = 1_000;

fn key() -> StreamKey {
    StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 }
}

fn identity(pod: &str) -> v1::ContainerIdentity {
    let pod = pod.to_owned();
    v1::ContainerIdentity {
        id: pod.clone(),
        pod,
        container: "main".into(),
        ..v1::ContainerIdentity::default()
    }
}

fn labels(bytes: usize) -> v1::ContainerIdentity {
    let labels = [("team".to_owned(), "x".repeat(bytes))].into();
    v1::ContainerIdentity { labels, ..identity("labelled") }
}

/// A state that follows five containers and whose bounds nothing here meets.
fn unbounded() -> StoreState {
    let mut state = StoreState::new(Limits {
        history: HistoryBounds { retention_minutes: 35 * 24 * 60, series: 1_000_000, of_node: 1_000_000 },
        epochs: 10,
        containers: 1_000_000,
        per_node: 1_000,
        names_per_minute: 1_000,
        kills_per_hour: 500,
        gone_minutes: 5,
        events: 1_000,
        subjects: 1_000_000,
        start_usec: 0,
    });
    let announced = |slot| v1::Announcement { slot, identity: Some(identity(&format!("p{slot}"))) };
    let frame = v1::Frame { sequence: 1, announced: (0..5).map(announced).collect(), ..v1::Frame::default() };
    state.apply(NOON, IngestEntry::Taken(Taken::new(key(), frame)));
    state.applied = 1;
    state
}

/// The bytes of a checkpoint with labels, names and decisions as they came, for want of bounds.
fn filled() -> Vec<u8> {
    let mut state = unbounded();
    let slots = &mut state.streams.values_mut().next().unwrap().slots;
    for slot in 0..3 {
        slots.get_mut(slot).unwrap().identity = Arc::new(labels(MEGABYTE));
    }
    slots.get_mut(3).unwrap().identity = Arc::new(identity(&"p".repeat(MEGABYTE)));
    for _ in 0..4 {
        let inputs = [("usage".to_owned(), "1".repeat(MEGABYTE))].into();
        let reason = "r".repeat(MEGABYTE);
        let decision = v1::Decision { kind: "set".into(), reason, inputs, ..v1::Decision::default() };
        state.events.push_back(NodeDecision { node: NodeKey::of(&key()), decision });
    }
    let minute = state.clock.now();
    for i in 0..400 {
        let name = format!("registry.example/{}/{i}", "x".repeat(3_000));
        let id = state.past.subject(Subject::Image { image: name.clone() }, None, minute).unwrap();
        state.past.get_mut(id).unwrap().since = Some(minute);
        let image = Some(Image { name, tag: "1".into() });
        let of = ContainerKey::new("c", "shop", "job/x", "main");
        state.history.series(&SeriesKey { of, image });
    }
    encode(&state).finish(&[])
}

#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the store: it, what it cut, and the warnings of that.
fn open(dir: &Path) -> (Store, TooLarge, String) {
    let mut config = Settings::at(dir);
    config.history.max_series = SERIES;
    let (store, report) = Store::open(&config).unwrap();
    assert_eq!(report.checkpoint_damage, None);
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(log, || tell_report(&report));
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let warnings =
        text.lines().filter(|line| line.contains("WARN") && line.contains("held more than is kept"));
    let warnings = warnings.map(str::to_owned).collect::<Vec<_>>().join("\n");
    (store, report.too_large, warnings)
}

#[test]
fn a_store_filled_under_an_earlier_release_starts_again_cut_and_says_what_it_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = filled();
    assert!(bytes.len() > 12 * MEGABYTE, "{} bytes", bytes.len());
    let path = dir.path().join("checkpoint");
    fs::write(&path, bytes).unwrap();

    let (mut store, cut, warning) = open(dir.path());
    assert_eq!((cut.labels, cut.decisions, cut.containers), (3, 4, 1));
    assert!(cut.series > 200 && cut.subjects > 200, "{cut:?}");
    let TooLarge { series, subjects, .. } = cut;
    for said in [
        "containers_without_labels=3".to_owned(),
        "cut_decisions=4".to_owned(),
        "dropped_containers=1".to_owned(),
        format!("dropped_series={series}"),
        format!("dropped_subjects={subjects}"),
    ] {
        assert!(warning.contains(&said), "no {said} in {warning:?}");
    }
    {
        let state = store.state();
        let state = state.read();
        assert_eq!((state.followed(), state.events().count()), (4, 4));
        let most = SERIES * 512;
        assert!(state.history.name_bytes() <= most && state.past.name_bytes() <= most);
    }

    // What is written now is small, and the next start has nothing to cut.
    store.checkpoint().unwrap();
    drop(store);
    let kept = fs::metadata(&path).unwrap().len();
    assert!(kept < 2 * MEGABYTE as u64, "{kept} bytes");
    let (store, cut, warning) = open(dir.path());
    assert_eq!((cut, warning.as_str()), (TooLarge::default(), ""));
    assert_eq!(store.state().read().followed(), 4);
}
