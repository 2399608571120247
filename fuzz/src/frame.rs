//! What agents and recommenders send each other.

use evenkeel_model::pod::PodRequirements;
use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::{Decoder, Encoder, Folder, Visitor};
use evenkeel_proto::pods::NodePods;
use evenkeel_proto::v1;
use prost::Message as _;

/// Stands between two frames of a sample.
const BETWEEN: u8 = 0xee;

/// Asks of each sample what the recommender does.
struct Asks;

impl Visitor for Asks {
    fn sample(&mut self, _slot: u32, _end_usec: u64, sample: &Sample, before: Option<&Sample>) {
        let _ = sample.weight_usec();
        if let Some(before) = before {
            let _ = (sample.cpu_milli(before), sample.cpu_micro(before), sample.is_starved(before));
        }
    }

    fn rollup(&mut self, _slot: u32, _minute: u64, _rollup: &Rollup) {}
}

/// The first byte says what the others are: frames of seconds one after another, frames to be folded, or what is said of pods.
pub(crate) fn read(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 4 {
        0 => decode(bytes),
        1 => fold(bytes),
        2 => {
            if let Ok(pod) = v1::PodRequirements::decode(bytes) {
                let _ = PodRequirements::try_from(pod);
            }
        }
        _ => {
            if let Ok(told) = v1::NodePods::decode(bytes) {
                let _ = NodePods::default().take(told);
            }
        }
    }
}

/// What a decoder keeps between frames is read as the same.
fn decode(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    for frame in bytes.split(|byte| *byte == BETWEEN) {
        let _ = decoder.decode(frame, &mut Asks);
        let Some(kept) = decoder.snapshot() else { continue };
        let mut again = Decoder::new();
        assert!(again.decode(&kept, &mut Asks).is_ok());
        assert_eq!(again.snapshot(), Some(kept));
    }
}

/// What is folded is a frame.
fn fold(bytes: &[u8]) {
    let mut folder = Folder::new();
    for frame in bytes.split(|byte| *byte == BETWEEN) {
        let _ = folder.add(frame);
    }
    let mut folded = Vec::new();
    if folder.finish(&mut folded).is_ok() {
        assert!(Decoder::new().decode(&folded, &mut Asks).is_ok());
    }
}

pub(crate) fn some() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let mut frames = Vec::new();
    for second in 0..3_u64 {
        let mut sample = Sample::with_interval_usec(1_000_000);
        sample.set(Field::CpuUsageUsec, 250_000 * second);
        sample.set(Field::MemoryWorkingSetBytes, 64 << 20);
        sample.set(Field::OomKills, second / 2);
        let slots = [(0, sample), (1 + u32::from(second == 2), sample)];
        let mut frame = Vec::new();
        let _ = encoder.encode_seconds(
            second == 0,
            1_700_000_000_000_000 + second * 1_000_000,
            0,
            &slots,
            &mut frame,
        );
        frames.push(frame);
    }
    let seconds = frames.join(&BETWEEN);
    let pod = PodRequirements {
        uid: "u".into(),
        namespace: "shop".into(),
        name: "web-1".into(),
        ..PodRequirements::default()
    };
    let pod = v1::PodRequirements::from(&pod);
    let told =
        v1::NodePods { generation: 1, whole: true, changed: vec![pod.clone()], ..v1::NodePods::default() };
    let after = |which: u8, message: &[u8]| [&[which], message].concat();
    vec![
        after(0, &seconds),
        after(1, &seconds),
        after(2, &pod.encode_to_vec()),
        after(3, &told.encode_to_vec()),
    ]
}
