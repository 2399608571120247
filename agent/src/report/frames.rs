//! Ticks to frames: the codec's encoder, when to start anew, announcements and decisions.

use std::sync::Arc;

use evenkeel_enforce::shared::{TrackChange, Tracked};
use evenkeel_model::decision::Decision;
use evenkeel_proto::convert::Identity;
use evenkeel_proto::frame::{Encoder, FrameError, KEY_EVERY};
use evenkeel_proto::v1;

use crate::shared::Tick;

/// Interval expected where no sample tells one, microseconds.
const SECOND_USEC: u32 = 1_000_000;

/// Makes one frame of each tick.
#[derive(Debug, Default)]
pub(super) struct Framer {
    encoder: Encoder,
    /// Frames since the last key frame, that one included.
    since_key: u32,
    /// The next frame must be a key frame: the reader lost the ones before.
    must_key: bool,
}

impl Framer {
    /// Makes the next frame a key frame.
    pub(super) fn start_anew(&mut self) {
        self.must_key = true;
    }

    /// The frame of a tick, without its sequence number. `kept` are decisions that must arrive.
    ///
    /// # Errors
    /// Samples the codec refuses; the tick is lost.
    pub(super) fn frame(
        &mut self,
        tick: &Tick,
        decisions: &[Arc<Decision>],
        kept: Vec<v1::Decision>,
    ) -> Result<v1::Frame, FrameError> {
        let key = self.must_key || self.since_key == 0 || self.since_key >= KEY_EVERY;
        let middle = tick.samples.get(tick.samples.len() / 2).map_or(0, |(_, s)| s.interval_usec());
        let base = if middle == 0 { SECOND_USEC } else { middle };
        let mut samples = Vec::with_capacity(64 + tick.samples.len() * if key { 80 } else { 16 });
        let header = self.encoder.encode_seconds(key, tick.time_usec, base, &tick.samples, &mut samples)?;
        self.since_key = header.index + 1;
        self.must_key = false;
        Ok(v1::Frame {
            sequence: 0,
            replaces_first: 0,
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced: announced(&tick.changes),
            gone: gone(&tick.changes),
            traffic: tick.traffic.iter().map(|(slot, traffic)| v1::Traffic::of(*slot, traffic)).collect(),
            decisions: kept.into_iter().chain(decisions.iter().map(|d| Decision::clone(d).into())).collect(),
        })
    }
}

fn announced(changes: &[TrackChange]) -> Vec<v1::Announcement> {
    changes
        .iter()
        .filter_map(|change| match change {
            TrackChange::Added(tracked) => Some(announcement(tracked)),
            TrackChange::Removed { .. } => None,
        })
        .collect()
}

/// Who a container is.
pub(super) fn announcement(tracked: &Tracked) -> v1::Announcement {
    let classes = &tracked.classes;
    let identity = Identity::of(&tracked.workload, classes.memory, classes.cpu, tracked.inode);
    v1::Announcement { slot: tracked.slot, identity: Some(identity.into()) }
}

fn gone(changes: &[TrackChange]) -> Vec<u32> {
    changes
        .iter()
        .filter_map(|change| match change {
            TrackChange::Removed { slot } => Some(*slot),
            TrackChange::Added(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::frame::peek;

    use super::*;
    use crate::report::test_support::{first_tick, tick};

    #[test]
    fn key_frames_come_every_minute_and_when_asked_for() {
        let mut framer = Framer::default();
        let mut keys = Vec::new();
        for second in 1..=200 {
            if second == 70 {
                framer.start_anew();
            }
            let frame = framer.frame(&tick(second, 1..3), &[], Vec::new()).unwrap();
            if peek(&frame.samples).unwrap().key {
                keys.push(second);
            }
        }
        assert_eq!(keys, [1, 61, 70, 130, 190]);
    }

    #[test]
    fn changes_travel_with_their_tick() {
        let mut tick = first_tick(1, 1..3);
        tick.changes.push(TrackChange::Removed { slot: 9 });
        let frame = Framer::default().frame(&tick, &[], Vec::new()).unwrap();
        let names: Vec<_> =
            frame.announced.iter().map(|a| a.identity.as_ref().unwrap().pod.as_str()).collect();
        assert_eq!((names, frame.gone), (vec!["pod-1", "pod-2"], vec![9]));
    }
}
