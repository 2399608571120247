//! Boundary tests of the codec: what goes in comes out, whatever it is; what is no frame is an error.

use evenkeel_model::rollup::{Aggregate, Rollup};
use evenkeel_model::sample::{Field, Sample};
use proptest::prelude::*;
use prost::Message;

use super::synth::{Load, Synth};
use super::*;
use crate::v1;

/// Keeps all it is shown.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    samples: Vec<(u32, u64, Sample, Option<Sample>)>,
    rollups: Vec<(u64, u32, Rollup)>,
}

impl Visitor for Seen {
    fn sample(&mut self, slot: u32, time_usec: u64, sample: &Sample, previous: Option<&Sample>) {
        self.samples.push((slot, time_usec, *sample, previous.copied()));
    }
    fn rollup(&mut self, slot: u32, minute: u64, rollup: &Rollup) {
        self.rollups.push((minute, slot, *rollup));
    }
}

fn sample_of(interval_usec: u32, values: &[(Field, u64)]) -> Sample {
    let mut sample = Sample::with_interval_usec(interval_usec);
    for (field, value) in values {
        sample.set(*field, *value);
    }
    sample
}

type Tick = (bool, u64, u32, Vec<(u32, Sample)>);

/// What a reader is to see of these ticks, counters of `previous` only.
fn expected(ticks: &[Tick]) -> Vec<(u32, u64, Sample, Option<Sample>)> {
    let mut before: std::collections::BTreeMap<u32, Sample> = Default::default();
    let mut all = Vec::new();
    for (_, time, _, samples) in ticks {
        let mut now = std::collections::BTreeMap::new();
        for (slot, sample) in samples {
            all.push((*slot, *time, *sample, before.get(slot).map(|p| common_counters(p, sample))));
            now.insert(*slot, *sample);
        }
        before = now;
    }
    all
}

fn common_counters(previous: &Sample, sample: &Sample) -> Sample {
    let mut kept = Sample::with_interval_usec(0);
    for field in Field::ALL.into_iter().filter(|f| f.is_counter() && sample.get(*f).is_some()) {
        if let Some(value) = previous.get(field) {
            kept.set(field, value);
        }
    }
    kept
}

fn encode(ticks: &[Tick]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    ticks
        .iter()
        .map(|(key, time, base, samples)| {
            let mut out = Vec::new();
            encoder.encode_seconds(*key, *time, *base, samples, &mut out).unwrap();
            out
        })
        .collect()
}

fn check(ticks: &[Tick]) {
    let frames = encode(ticks);
    let (mut decoder, mut seen) = (Decoder::new(), Seen::default());
    let mut restored = Decoder::new();
    for (frame, tick) in frames.iter().zip(ticks) {
        let header = decoder.decode(frame, &mut seen).unwrap();
        assert_eq!(header, peek(frame).unwrap());
        assert_eq!((header.time_usec, header.base_interval_usec), (tick.1, tick.2));
        // A reader that is restored before each frame sees the same.
        let mut again = Seen::default();
        restored.decode(frame, &mut again).unwrap();
        assert_eq!(again.samples, seen.samples[seen.samples.len() - tick.3.len()..]);
        restored = Decoder::new();
        restored.decode(&decoder.snapshot().unwrap(), &mut again).unwrap();
        assert_eq!(restored.snapshot(), decoder.snapshot());
        let latest: Vec<_> = restored.latest().map(|(slot, sample)| (slot, *sample)).collect();
        assert_eq!(latest, tick.3);
    }
    for (_, _, sample, previous) in &mut seen.samples {
        *previous = previous.map(|p| common_counters(&p, sample));
    }
    assert_eq!(seen.samples, expected(ticks));
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, (0..1u64 << 24).prop_map(|p| p << 12), 0..1u64 << 40, Just(u64::MAX), any::<u64>()]
}

prop_compose! {
    fn sample()(
        interval in prop_oneof![Just(0u32), Just(1_000_000), 990_000..1_010_000u32, any::<u32>()],
        present in prop_oneof![Just(0x1fffu16), 0..0x2000u16],
        values in prop::array::uniform13(value()),
    ) -> Sample {
        let known = Field::ALL.into_iter().zip(values).filter(|(f, _)| present & (1 << f.index()) != 0);
        sample_of(interval, &known.collect::<Vec<_>>())
    }
}

prop_compose! {
    /// Ticks in which each sample is often the one of the tick before.
    fn ticks()(
        raw in prop::collection::vec(
            (prop::bool::weighted(0.2), any::<u64>(), any::<u32>(),
             prop::collection::btree_map(prop_oneof![0..8u32, any::<u32>()], (sample(), 0..3u8), 0..6)),
            1..12,
        )
    ) -> Vec<Tick> {
        let mut before = std::collections::BTreeMap::new();
        raw.into_iter().map(|(key, time, base, samples)| {
            let samples: Vec<(u32, Sample)> = samples.into_iter().map(|(slot, (sample, change))| {
                let old = before.get(&slot).copied().unwrap_or(sample);
                (slot, match change { 0 => sample, 1 => old, _ => moved(&old, &sample) })
            }).collect();
            before.extend(samples.iter().copied());
            (key, time, base, samples)
        }).collect()
    }
}

/// The old sample with some fields a little further.
fn moved(old: &Sample, by: &Sample) -> Sample {
    let mut sample = *old;
    for field in Field::ALL {
        if let (Some(a), Some(b)) = (old.get(field), by.get(field)) {
            sample.set(field, a.wrapping_add(b % 5000));
        }
    }
    sample
}

proptest! {
    #[test]
    fn whatever_goes_in_comes_out(ticks in ticks()) {
        check(&ticks);
    }

    #[test]
    fn no_bytes_can_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), tag in 0..5u8) {
        let mut decoder = Decoder::new();
        let _ = decoder.decode(&bytes, &mut ());
        let mut likely = vec![VERSION, tag, 0, 0, if tag == 0 { 1 } else { 0 }, 3];
        likely.extend(&bytes);
        let frames = encode(&[(true, 0, 0, vec![(1, Sample::default()), (7, Sample::default())])]);
        decoder.decode(&frames[0], &mut ()).unwrap();
        let _ = decoder.decode(&likely, &mut ());
        decoder.decode(&frames[0], &mut ()).unwrap();
    }

    #[test]
    fn a_damaged_frame_is_an_error_or_another_frame(ticks in ticks(), at: usize, bit in 0..8u8) {
        let mut decoder = Decoder::new();
        for mut frame in encode(&ticks) {
            let at = at % frame.len();
            frame[at] ^= 1 << bit;
            let _ = decoder.decode(&frame, &mut Seen::default());
        }
    }

    #[test]
    fn rollups_come_back(
        raw in prop::collection::btree_map((0..40u64, any::<u32>()), prop::array::uniform13(any::<u64>()), 0..20),
        cut: prop::sample::Index,
    ) {
        let agg = |n: &[u64]| Aggregate { count: n[0], sum: n[1], min: n[2], max: n[3] };
        let rollups: Vec<_> = raw.iter().map(|((minute, slot), n)| (*minute, *slot, Rollup {
            samples: n[0], throttled_usec: n[1], oom_kills: n[2],
            cpu_micro: agg(&n[3..7]), memory_bytes: agg(&n[7..11]),
            time_usec: n[11], starved_usec: n[12],
        })).collect();
        let (mut out, mut seen) = (Vec::new(), Seen::default());
        let header = encode_folded(&rollups, &mut out).unwrap();
        prop_assert_eq!(Decoder::new().decode(&out, &mut seen).unwrap(), header);
        prop_assert_eq!(seen.rollups, rollups);
        let end = cut.index(out.len());
        prop_assert!(Decoder::new().decode(&out[..end], &mut ()).is_err());
    }
}

fn synth_ticks(seed: u64, containers: u32, load: Load, seconds: usize) -> Vec<Tick> {
    let mut synth = Synth::new(seed, containers, load);
    (0..seconds)
        .map(|i| {
            let (time, base, samples) = synth.tick();
            (i % KEY_EVERY as usize == 0, time, base, samples.to_vec())
        })
        .collect()
}

#[test]
fn a_cut_at_every_byte_is_noticed_and_the_next_key_frame_heals() {
    let ticks = synth_ticks(1, 5, Load::Busy, 3);
    let frames = encode(&ticks);
    for n in 0..3 {
        for end in 0..frames[n].len() {
            let mut decoder = Decoder::new();
            for frame in &frames[..n] {
                decoder.decode(frame, &mut ()).unwrap();
            }
            decoder.decode(&frames[n][..end], &mut ()).unwrap_err();
            assert_eq!(decoder.snapshot(), None);
            let lost = decoder.decode(&frames[2], &mut ());
            assert!(matches!(lost, Err(FrameError::NoKey { index: 2 })));
            decoder.decode(&frames[0], &mut ()).unwrap();
        }
        let mut longer = frames[n].clone();
        longer.push(0);
        let mut decoder = Decoder::new();
        for frame in &frames[..n] {
            decoder.decode(frame, &mut ()).unwrap();
        }
        assert!(matches!(decoder.decode(&longer, &mut ()), Err(FrameError::Trailing { .. })));
    }
    let snapshot = {
        let mut decoder = Decoder::new();
        decoder.decode(&frames[0], &mut ()).unwrap();
        decoder.snapshot().unwrap()
    };
    for end in 0..snapshot.len() {
        Decoder::new().decode(&snapshot[..end], &mut ()).unwrap_err();
    }
}

#[test]
fn refused_input_is_named() {
    let mut encoder = Encoder::new();
    let twice = [(2, Sample::default()), (2, Sample::default())];
    let error = encoder.encode_seconds(true, 0, 0, &twice, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "slot 2 is out of order; slots must ascend and appear once");
    assert_eq!(peek(&[9, 0]), Err(FrameError::Version(9)));
    let mut huge = vec![VERSION, SECONDS_KEY, 0, 0, 0];
    put_varint(&mut huge, 100_001);
    let error = peek(&huge).unwrap_err();
    assert_eq!(error.to_string(), "100001 samples are over the limit of 100000 per frame");
}

/// Bytes per sample of `minutes` minutes on the socket: protobuf, gRPC (5) and HTTP/2 (9) framing included.
fn bytes_per_sample(load: Load, minutes: usize) -> f64 {
    let ticks = synth_ticks(20_260_101, 1000, load, minutes * 60);
    let frames = encode(&ticks);
    let sent: usize = frames
        .into_iter()
        .enumerate()
        .map(|(i, samples)| {
            let samples_crc32c = crc32c::crc32c(&samples);
            let frame = v1::Frame {
                sequence: 1_000_000 + i as u64,
                samples: samples.into(),
                samples_crc32c,
                ..Default::default()
            };
            let frames = v1::Frames { frames: vec![frame] };
            let message = Some(v1::stream_request::Message::Frames(frames));
            v1::StreamRequest { message }.encoded_len() + 5 + 9
        })
        .sum();
    sent as f64 / (ticks.len() * 1000) as f64
}

#[test]
fn a_busy_sample_takes_at_most_16_bytes_and_an_idle_one_4() {
    let (busy, idle) = (bytes_per_sample(Load::Busy, 3), bytes_per_sample(Load::Idle, 3));
    assert!(busy <= 16.0, "{busy} bytes a busy sample");
    assert!(idle <= 4.0, "{idle} bytes an idle sample");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes of version 1 as the first release wrote them. They must be read for ever; a change of the format gets
/// another version.
#[test]
fn version_1_is_what_it_was() {
    let mut ticks = synth_ticks(42, 2, Load::Busy, 3);
    ticks[2].3.remove(0);
    let frames = encode(&ticks);
    let mut folder = Folder::new();
    for frame in &frames {
        folder.add(frame).unwrap();
    }
    let mut folded = Vec::new();
    folder.finish(&mut folded).unwrap();
    let mut decoder = Decoder::new();
    decoder.decode(&frames[0], &mut ()).unwrap();
    let state = decoder.snapshot().unwrap();
    let all: Vec<String> = frames.iter().chain([&folded, &state]).map(|bytes| hex(bytes)).collect();
    assert_eq!(all, GOLDEN);
}

/// A folded frame as releases wrote it that counted CPU in thousandths, and no time.
#[test]
fn folded_frames_of_before_are_read() {
    let bytes = unhex(concat!(
        "010280a6b4b7c1c482030200020102f3b40c0001f11900000081c0d98c0380a03a80a03a0003c0b51200018202070700",
        "81c0abee0980a00c80c012",
    ));
    let mut seen = Seen::default();
    Decoder::new().decode(&bytes, &mut seen).unwrap();
    let cpu: Vec<(u32, u64, u64)> = seen
        .rollups
        .iter()
        .map(|(_, slot, rollup)| (*slot, rollup.samples, rollup.cpu_micro.max % 1000))
        .collect();
    assert_eq!(cpu, [(1, 2, 0), (2, 3, 0)]);
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

const GOLDEN: [&str; 5] = [
    concat!(
        "0101e783b6c1c1c48203e7833d000240c0d419f4ff9f31c618638c31c61863cc9962e552d0ac4c7012e5cd07a273380a",
        "e35269089159c6682402722e5a9b9619fafdfe9802c060403b7e40c126c7a0ffff8c31c618638c31c61863ca41cc5f52",
        "681196e995032e2181c5019e611235e9f4cd1d2963520480bc9cbb235ef0d020f71fd4f14445051827",
    ),
    concat!(
        "0100838bf3c1c1c482039c873d0102c2f8ffb7503f4a14e7ff5f32a7f167ff497f10e8ff3f3279f9ffdf98faffff873f",
        "0e1028f9ff97d0bc4761feff25dcc8fa0a8b28ffff926a16ffff8e2df5ffef68160001",
    ),
    "0100b88fb0c2c1c48203b5843d02018100c010feff251413308803d9e00a95e19fcffd7f54fc33110000",
    concat!(
        "010480a6b4b7c1c482030200020102e58a7af3b40cc8873d0001c295ca0100000081c0d98c0380a03a80a03a00039b8f",
        "b701c0b5128d8c7a0001dddd0f9d379d370081c0abee0980a00c80c012",
    ),
    concat!(
        "0103e783b6c1c1c48203e7833d0002800c019d833dff3f0101a9acb9a9d019a6f0a401def941cec3a3e17880a0e99004",
        "80c0d98c0380e0c8880280e079d6cd96b368bfff988508c181dae31f002c00000000000000000000000000800c800c80",
        "0c800c800c800c800c800c800c800c800c800c800c800c800c800c028e833dff3f010183b1fea58a0684cbe9038ef092",
        "01c0c583f88c0280c0a8930d80e0b7ee0980a0c6c90680804097e7dda3bc03878de4fd1fbabca2c51a00670000000000",
        "0000000000000000800c800c800c800c800c800c800c800c800c800c800c800c800c800c800c800c",
    ),
];
