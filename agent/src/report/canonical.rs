//! CPU as the recommender is told of it: in canonical cores, so that unequal machines compare.
//!
//! Owned here: use, requests and size of this node times its `cpuConversionFactor`. On the node itself, and in its ring, a core is a core.

use evenkeel_model::name::ResourceName;
use evenkeel_model::node::NodeFacts;
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::resource_type::CpuConversionFactor;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::convert::amounts_to_wire;
use evenkeel_proto::frame::{self, Encoder, FrameError};
use evenkeel_proto::v1;

use crate::shared::Tick;

/// Makes frames in canonical cores of frames in physical ones.
#[derive(Debug)]
pub(super) struct Canonical {
    factor: CpuConversionFactor,
    encoder: Encoder,
    samples: Vec<(u32, Sample)>,
}

impl Canonical {
    /// `None` where they are the same.
    pub(super) fn new(factor: CpuConversionFactor) -> Option<Self> {
        (!factor.is_one()).then(|| Self { factor, encoder: Encoder::new(), samples: Vec::new() })
    }

    /// The frame of a tick, of which `plain` is the one in physical cores.
    ///
    /// # Errors
    /// Samples the codec refuses; the tick is lost, and the next frame must be a key frame.
    pub(super) fn frame(&mut self, tick: &Tick, plain: v1::Frame) -> Result<v1::Frame, FrameError> {
        let header = frame::peek(&plain.samples)?;
        self.samples.clear();
        self.samples.extend(tick.samples.iter().map(|(slot, sample)| (*slot, scaled(sample, self.factor))));
        let mut samples = Vec::with_capacity(plain.samples.len() + 64);
        let (time_usec, base) = (header.time_usec, header.base_interval_usec);
        self.encoder.encode_seconds(header.key, time_usec, base, &self.samples, &mut samples)?;
        let announced = plain.announced.into_iter().map(|announcement| self.announcement(announcement));
        Ok(v1::Frame {
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced: announced.collect(),
            ..plain
        })
    }

    fn announcement(&self, mut announcement: v1::Announcement) -> v1::Announcement {
        if let Some(requested) = announcement.identity.as_mut().and_then(|of| of.requested.as_mut()) {
            for milli in [&mut requested.cpu_request_milli, &mut requested.cpu_limit_milli] {
                *milli = milli.map(|milli| self.factor.canonical(milli));
            }
        }
        announcement
    }
}

/// The size of this node, with its factor and what its configuration says it has to give.
pub(super) fn facts(
    facts: &NodeFacts,
    factor: CpuConversionFactor,
    mut stated: ResourceList,
) -> v1::NodeFacts {
    let cpu_milli = factor.canonical(facts.cpu_milli.get());
    let cpu_conversion_milli = u32::try_from(factor.milli()).unwrap_or(1000);
    if let Some(canonical) = stated.cpu().and_then(|cpu| factor.to_canonical(cpu)) {
        stated.set(ResourceName::CPU, canonical);
    }
    v1::NodeFacts { cpu_milli, cpu_conversion_milli, allocatable: amounts_to_wire(&stated), ..facts.into() }
}

fn scaled(sample: &Sample, factor: CpuConversionFactor) -> Sample {
    let mut scaled = *sample;
    if let Some(usec) = sample.get(Field::CpuUsageUsec) {
        scaled.set(Field::CpuUsageUsec, factor.canonical(usec));
    }
    scaled
}

#[cfg(test)]
mod tests {
    use evenkeel_model::quantity::Quantity;
    use evenkeel_model::rollup::Rollup;
    use evenkeel_model::units::{Bytes, MilliCpu};
    use evenkeel_proto::frame::{Decoder, Visitor};

    use super::super::frames::Framer;
    use super::super::test_support::{first_tick, tick};
    use super::*;

    /// CPU use of the sample decoded last, thousandths of a core.
    #[derive(Default)]
    struct Cpu(Option<u64>);

    impl Visitor for Cpu {
        fn sample(&mut self, _: u32, _: u64, sample: &Sample, previous: Option<&Sample>) {
            self.0 = previous.and_then(|previous| sample.cpu_milli(previous));
        }

        fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
    }

    #[test]
    fn the_recommender_hears_canonical_cores() {
        let factor = CpuConversionFactor::new(Quantity::parse("1.5").unwrap()).unwrap();
        let (mut framer, mut canonical) = (Framer::default(), Canonical::new(factor).unwrap());
        assert!(Canonical::new(CpuConversionFactor::default()).is_none());
        let (mut decoder, mut cpu) = (Decoder::new(), Cpu::default());
        for second in 1..200 {
            // Container 200 uses 200m of a physical core.
            let tick = if second == 1 { first_tick(second, 200..201) } else { tick(second, 200..201) };
            let plain = framer.frame(&tick, &[], Vec::new()).unwrap();
            let told = canonical.frame(&tick, plain).unwrap();
            assert_eq!(told.samples_crc32c, crc32c::crc32c(&told.samples));
            decoder.decode(&told.samples, &mut cpu).unwrap();
            assert_eq!(cpu.0, (second > 1).then_some(300), "{second}");
            if second == 1 {
                let requested = told.announced[0].identity.as_ref().unwrap().requested.unwrap();
                assert_eq!(requested.cpu_request_milli, Some(750), "half a physical core");
            }
        }
        let node = NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(4000));
        let stated = [("cpu", "2"), ("memory", "512Mi"), ("example.com/x", "4")];
        let stated = stated
            .map(|(name, amount)| (ResourceName::parse(name).unwrap(), Quantity::parse(amount).unwrap()));
        let told = facts(&node, factor, stated.into_iter().collect());
        assert_eq!((told.cpu_milli, told.cpu_conversion_milli, told.memory_bytes), (6000, 1500, 1 << 30));
        let allocatable: Vec<(&str, &str)> = told.allocatable.iter().map(|(n, a)| (&**n, &**a)).collect();
        assert_eq!(allocatable, [("cpu", "3"), ("example.com/x", "4"), ("memory", "512Mi")]);
    }
}
