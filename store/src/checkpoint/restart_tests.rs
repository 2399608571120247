//! A state that is read back is the one that was written, and goes on as that would have.

use std::path::Path;
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;

use super::{encode, read, write};
use crate::ingest::record::{IngestEntry, Taken};
use crate::key::StreamKey;
use crate::state::history::HistoryBounds;
use crate::state::tests::LIMITS;
use crate::state::{Limits, StoreState};

const NOON: u64 = 1_700_049_600_000_000;
const SECOND: u64 = 1_000_000;

fn limits(series: usize) -> Limits {
    Limits { history: HistoryBounds { series, ..LIMITS.history }, start_usec: 60 * SECOND, ..LIMITS }
}

fn key(node: &str) -> StreamKey {
    StreamKey { cluster: "c".into(), node: node.into(), epoch: 1 }
}

fn announced(node: &str, slot: u32) -> v1::Announcement {
    let workload = format!("{node}-{slot}");
    let identity = v1::ContainerIdentity {
        id: workload.clone(),
        namespace: "shop".into(),
        pod: format!("{workload}-x"),
        container: "main".into(),
        workload,
        image: "web:1".into(),
        requested: Some(v1::ResourceValues { cpu_request_milli: Some(250), ..v1::ResourceValues::default() }),
        ..v1::ContainerIdentity::default()
    };
    v1::Announcement { slot, identity: Some(identity) }
}

/// The frame of a node in a second, each slot using memory; the first announces them.
fn measured(node: &str, sequence: u64, slots: u32, time: u64) -> IngestEntry {
    let mut sample = Sample::new(Duration::from_secs(1));
    sample.set(Field::MemoryWorkingSetBytes, 4096 * sequence);
    let samples: Vec<(u32, Sample)> = (0..slots).map(|slot| (slot, sample)).collect();
    let mut bytes = Vec::new();
    Encoder::new().encode_seconds(true, time, 1_000_000, &samples, &mut bytes).unwrap();
    let announced = (0..slots).filter(|_| sequence == 1).map(|slot| announced(node, slot)).collect();
    let frame = v1::Frame { sequence, samples: bytes.into(), announced, ..v1::Frame::default() };
    IngestEntry::Taken(Taken::new(key(node), frame))
}

fn bytes(state: &StoreState) -> Vec<u8> {
    encode(state).finish(&[])
}

fn read_back(dir: &Path, series: usize, state: &StoreState) -> StoreState {
    let path = dir.join("checkpoint");
    write(&path, &bytes(state)).unwrap();
    let mut read_back = StoreState::new(limits(series));
    read(&path, &mut read_back).unwrap().unwrap();
    read_back
}

/// Two nodes run one image; of one of them nothing is followed any more. So many series are kept.
fn two_nodes(series: usize, gone: Option<&str>) -> StoreState {
    let mut state = StoreState::new(limits(series));
    for second in 0..90 {
        for node in ["b", "a"] {
            let time = NOON + second * SECOND;
            state.apply(time, measured(node, second + 1, 3, time));
        }
    }
    if let Some(node) = gone {
        let frame = v1::Frame { sequence: 91, gone: (0..3).collect(), ..v1::Frame::default() };
        state.apply(NOON + 91 * SECOND, IngestEntry::Taken(Taken::new(key(node), frame)));
    }
    state
}

#[test]
fn what_is_read_back_is_what_was_written_and_goes_on_alike() {
    let dir = tempfile::tempdir().unwrap();
    // All of them followed, though more than are kept when idle; and an image that one node brought and another runs.
    for (series, gone) in [(1_000, None), (4, None), (1_000, Some("b"))] {
        let mut state = two_nodes(series, gone);
        assert_eq!(state.history.all().count(), 6);
        let mut again = read_back(dir.path(), series, &state);
        assert!(bytes(&again) == bytes(&state), "{series} series, {gone:?} gone");
        // A container that begins before the next frame with samples is seen to begin.
        let frame = v1::Frame { announced: vec![announced("a", 7)], ..v1::Frame::default() };
        let entry = IngestEntry::Announced(Taken::new(key("a"), frame));
        for state in [&mut state, &mut again] {
            state.apply(NOON + 92 * SECOND, entry.clone());
            state.apply(NOON + 93 * SECOND, measured("a", 92, 8, NOON + 93 * SECOND));
        }
        assert!(bytes(&again) == bytes(&state), "{series} series, {gone:?} gone, later");
    }
}
