//! Files of earlier releases are read and taken over.
//!
//! `data/checkpoint.v1` was written by the last release of that version after 9,000 seconds of two containers, sampled every
//! ten seconds: `web`, a quarter of a core and 64 MiB, and `db`, a tenth of a core and a little more than 16 MiB.

use std::fs;
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{History, Scope};
use evenkeel_store::config::Settings;
use evenkeel_store::history::{HistoryView, ViewTarget};
use evenkeel_store::ingest::store::{FrameOutcome, Store};
use evenkeel_store::key::{Image, StreamKey};

const CHECKPOINT: &[u8] = include_bytes!("data/checkpoint.v1");
const START_USEC: u64 = 1_700_049_600_000_000;
const TICKS: u64 = 900;

fn key() -> StreamKey {
    StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 }
}

/// Minutes, their least mean and greatest peak, and hours, of one container's resource.
fn seen(store: &Store, workload: &str, image: &str, resource: Resource) -> (usize, u64, u64, usize) {
    let state = store.state();
    let state = state.read();
    let image = Image::parse(image);
    let of = ViewTarget {
        cluster: Some("c"),
        namespace: "shop",
        workload,
        container: "main",
        image: image.as_ref(),
        command: None,
    };
    let view = HistoryView::new(&state, of, resource);
    for scope in [Scope::Own, Scope::NamespaceImageTag, Scope::ImageTag, Scope::Image] {
        assert_eq!(view.days(scope, 0).len(), 1, "{scope:?}");
    }
    let minutes = view.minutes(Scope::Own, 0);
    let least = minutes.iter().map(|m| m.mean).min().unwrap();
    let most = minutes.iter().map(|m| m.peak).max().unwrap();
    (minutes.len(), least, most, view.hours(Scope::Own, 0).len())
}

fn check(store: &Store) {
    let table = [
        ("deployment/web", "web:1", Resource::Cpu, 250_000, 250_000),
        ("deployment/web", "web:1", Resource::Memory, 64 << 20, 64 << 20),
        ("deployment/db", "registry:5000/db@sha256:00ff", Resource::Cpu, 100_000, 100_000),
    ];
    for (workload, image, resource, least, most) in table {
        assert_eq!(seen(store, workload, image, resource), (150, least, most, 3), "{workload} {resource:?}");
    }
    let memory = seen(store, "deployment/db", "registry:5000/db@sha256:00ff", Resource::Memory);
    assert!(memory.1 > 16 << 20 && memory.2 == (16 << 20) + 5 * 4096, "{memory:?}");
    let state = store.state();
    let state = state.read();
    assert!(state.panic.on && state.panic.reason == "drill");
    assert_eq!((state.counters.frames, state.counters.samples), (TICKS, 2 * TICKS));
    assert_eq!(state.events().map(|e| e.decision.kind.as_str()).collect::<Vec<_>>(), ["oom-kill"]);
    assert_eq!(state.stream(&key()).map(|s| s.position.last), Some(TICKS));
}

#[test]
fn a_checkpoint_of_version_1_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let config = Settings::at(dir.path());
    fs::write(config.checkpoint_file(), CHECKPOINT).unwrap();
    assert_eq!(CHECKPOINT[8], 1, "its version");
    let (mut store, report) = Store::open(&config).unwrap();
    assert_eq!((report.checkpoint_damage, report.missing_records), (None, 0));
    check(&store);
    store.checkpoint().unwrap();
    assert_eq!(fs::read(config.checkpoint_file()).unwrap()[8], 2);
    drop(store);

    let (mut store, report) = Store::open(&config).unwrap();
    assert_eq!((report.checkpoint_damage, report.history_damage), (None, Vec::new()));
    check(&store);
    // The agent goes on where it was.
    let hello = v1::Hello { cluster: "c".into(), node: "n".into(), epoch: 1, ..v1::Hello::default() };
    let now = START_USEC + TICKS * 10_000_000;
    let greeting = store.hello(now, &hello).unwrap();
    assert_eq!((greeting.last, greeting.knows_slots), (TICKS, true));
    let mut sample = Sample::new(Duration::from_secs(10));
    sample.set(Field::CpuUsageUsec, TICKS * 2_500_000);
    sample.set(Field::MemoryWorkingSetBytes, 64 << 20);
    let mut samples = Vec::new();
    Encoder::new().encode_seconds(true, now, 10_000_000, &[(1, sample)], &mut samples).unwrap();
    let frame = v1::Frame {
        sequence: TICKS + 1,
        samples_crc32c: crc32c::crc32c(&samples),
        samples: samples.into(),
        ..v1::Frame::default()
    };
    let taken = store.take(now, &key(), &frame, true).unwrap();
    assert!(matches!(taken, FrameOutcome::Acknowledge { .. }), "{taken:?}");
    assert_eq!(seen(&store, "deployment/web", "web:1", Resource::Memory).0, 151);
}

#[test]
fn every_damaged_byte_of_it_is_noticed_and_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for at in (0..CHECKPOINT.len()).step_by(97).chain(8..12) {
        let config = Settings::at(dir.path().join(at.to_string()));
        fs::create_dir(&config.state_dir).unwrap();
        let mut bad = CHECKPOINT.to_vec();
        bad[at] ^= 0x10;
        fs::write(config.checkpoint_file(), &bad).unwrap();
        let (_, report) = Store::open(&config).unwrap();
        assert!(report.checkpoint_damage.is_some_and(|why| why.contains("damaged")), "byte {at}");
    }
    let config = Settings::at(dir.path().join("newer"));
    fs::create_dir(&config.state_dir).unwrap();
    let mut newer = CHECKPOINT.to_vec();
    newer[8] = 9;
    let crc = crc32c::crc32c(&newer[..24]);
    newer[24..28].copy_from_slice(&crc.to_le_bytes());
    fs::write(config.checkpoint_file(), &newer).unwrap();
    let error = Store::open(&config).unwrap_err().to_string();
    assert!(error.contains("version 9") && error.contains("newer release"), "{error}");
    assert_eq!(fs::read(config.checkpoint_file()).unwrap(), newer, "it is left as it was");
}
