//! Prints the size of a sample and the speed of the frame codec on this machine, for busy and idle containers.

use std::time::Instant;

use evenkeel_model::{rollup::Rollup, sample::Sample};
use evenkeel_proto::frame::{Decoder, Encoder, FrameError, KEY_EVERY, Visitor, synth};

/// Time, base interval and samples of one second.
type Tick = (u64, u32, Vec<(u32, Sample)>);

#[derive(Default)]
struct Sum {
    samples: u64,
    cpu_milli: u64,
}

impl Visitor for Sum {
    fn sample(&mut self, _: u32, _: u64, sample: &Sample, previous: Option<&Sample>) {
        self.samples += 1;
        self.cpu_milli += previous.and_then(|p| sample.cpu_milli(p)).unwrap_or(0);
    }
    fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
}

fn main() -> Result<(), FrameError> {
    const CONTAINERS: u32 = 1000;
    const SECONDS: u32 = 300;
    for load in [synth::Load::Busy, synth::Load::Idle] {
        let mut synth = synth::Synth::new(1, CONTAINERS, load);
        let ticks: Vec<Tick> = (0..SECONDS)
            .map(|_| {
                let (time, base, samples) = synth.tick();
                (time, base, samples.to_vec())
            })
            .collect();
        let total = f64::from(CONTAINERS) * f64::from(SECONDS);

        let mut encoder = Encoder::new();
        let mut frames = Vec::with_capacity(ticks.len());
        let started = Instant::now();
        for (i, (time, base, samples)) in (0u32..).zip(&ticks) {
            let mut out = Vec::with_capacity(20_000);
            encoder.encode_seconds(i % KEY_EVERY == 0, *time, *base, samples, &mut out)?;
            frames.push(out);
        }
        let encoded = started.elapsed();

        let (mut decoder, mut sum) = (Decoder::new(), Sum::default());
        let started = Instant::now();
        for frame in &frames {
            decoder.decode(frame, &mut sum)?;
        }
        let decoded = started.elapsed();

        let size = |frames: &mut dyn Iterator<Item = &Vec<u8>>| frames.map(Vec::len).sum::<usize>() as f64;
        let keys = frames.len().div_ceil(KEY_EVERY as usize) as f64 * f64::from(CONTAINERS);
        println!(
            "{load:?}: {:.2} bytes a sample ({:.1} in key frames), encode {:.2} M/s, decode {:.2} M/s, sum {}",
            size(&mut frames.iter()) / total,
            size(&mut frames.iter().step_by(KEY_EVERY as usize)) / keys,
            total / encoded.as_secs_f64() / 1e6,
            total / decoded.as_secs_f64() / 1e6,
            sum.cpu_milli / sum.samples,
        );
    }
    Ok(())
}
