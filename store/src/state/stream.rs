//! Owns what is known of one stream and of one node.

use std::collections::BTreeMap;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use evenkeel_proto::v1;

use super::belief::Dropped;
use super::placed::Aside;
use super::slots::StreamContainers;
use crate::ingest::stream_state::Position;
use crate::key::StreamKey;

/// What is known of a node over all its epochs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeState {
    /// Version its agent last named.
    pub version: String,
    /// Its size, where the agent told.
    pub facts: Option<v1::NodeFacts>,
    /// Its newest epoch that has delivered samples: that whose containers run.
    pub epoch: u64,
    /// Time of the newest sample of that epoch's last frame, microseconds since 1970.
    pub newest_usec: u64,
    /// When something was last received, microseconds since 1970.
    pub last_seen_usec: u64,
    /// Frames counted.
    pub frames: u64,
    /// Container seconds counted.
    pub samples: u64,
    /// Sequence numbers (seconds of the node) known to be missing.
    pub gaps: u64,
    /// Containers it announced that are not followed, for lack of room or because they were too many.
    pub refused: u64,
    /// By how much its clock is behind the recommender's at its last frame, microseconds; negative: ahead. A node that
    /// delivers what it kept is behind until it has caught up.
    pub behind_usec: i64,
    /// What it said and was not taken in.
    pub dropped: Dropped,
    /// Streams of other epochs than the newest whose slots are kept, oldest first.
    pub(crate) earlier: Vec<u64>,
    /// New names it may bring.
    pub(crate) names: Names,
    /// Kills counted of it.
    pub(crate) kills: Hourly,
    /// Decisions it told.
    pub(crate) told: Hourly,
}

/// New names (of workloads' containers) a node may bring: as many as it may have containers at once, then some a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Used up of the first; given back with time.
    pub(crate) used: u32,
    /// Minute they were last looked at.
    pub(crate) minute: u32,
}

impl Names {
    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: u32, at_once: usize, a_minute: u32) -> bool {
        let back = now.saturating_sub(self.minute).saturating_mul(a_minute);
        self.used = self.used.saturating_sub(back);
        self.minute = self.minute.max(now);
        let is_left = (self.used as usize) < at_once;
        self.used += u32::from(is_left);
        is_left
    }
}

/// A count that begins anew with every hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hourly {
    pub(crate) hour: u32,
    pub(crate) count: u32,
}

impl Hourly {
    /// Counts one of an hour, unless there were as many already.
    pub(crate) fn take(&mut self, hour: u32, most: u32) -> bool {
        if hour != self.hour {
            *self = Self { hour, count: 0 };
        }
        let is_left = self.count < most;
        self.count += u32::from(is_left);
        is_left
    }
}

/// What is known of one stream.
#[derive(Debug, Clone)]
pub struct StreamState {
    /// Which it is.
    pub key: StreamKey,
    /// How far it has been taken.
    pub position: Position,
    /// Memory of the codec.
    pub(crate) decoder: Decoder,
    /// Its containers.
    pub slots: StreamContainers,
    /// Containers that are set aside, by slot.
    pub(crate) aside: BTreeMap<u32, Aside>,
    /// When something was last received, microseconds since 1970 by the clock of that moment.
    pub last_seen_usec: u64,
    /// The same in minutes in which the recommender listened.
    pub(crate) heard: u32,
    /// Time of its first samples, or of their reception where that is earlier; 0 = none yet.
    pub(crate) began_usec: u64,
    /// Time of its latest frame with samples; 0 = none yet.
    pub(crate) told_usec: u64,
    /// Its containers run: it is the newest epoch of a node that is not gone.
    pub counts: bool,
    /// The identity that opened it; empty where an earlier release did not note it.
    pub(crate) owner: String,
}

impl StreamState {
    pub(crate) fn new(key: StreamKey) -> Self {
        Self {
            key,
            position: Position::default(),
            decoder: Decoder::new(),
            slots: StreamContainers::default(),
            aside: BTreeMap::new(),
            last_seen_usec: 0,
            heard: 0,
            began_usec: 0,
            told_usec: 0,
            counts: false,
            owner: String::new(),
        }
    }

    /// Whether frames that continue the stream can be understood: the codec's memory and the containers are there.
    pub fn knows_slots(&self) -> bool {
        self.position.last > 0 && self.decoder.position().is_some() && self.held() > 0
    }

    /// Containers that are kept of it, those that are set aside included.
    pub(crate) fn held(&self) -> usize {
        self.slots.len() + self.aside.len()
    }
}

/// What a frame holds, put down until all of it has turned out readable: a frame counts whole or not at all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Staging {
    pub(crate) seconds: Vec<(u32, u64, Sample, Option<Sample>)>,
    pub(crate) minutes: Vec<(u32, u64, Rollup)>,
}

impl Staging {
    pub(crate) fn clear(&mut self) {
        self.seconds.clear();
        self.minutes.clear();
    }
}

impl Visitor for Staging {
    fn sample(&mut self, slot: u32, time_usec: u64, sample: &Sample, previous: Option<&Sample>) {
        self.seconds.push((slot, time_usec, *sample, previous.copied()));
    }

    fn rollup(&mut self, slot: u32, minute: u64, rollup: &Rollup) {
        self.minutes.push((slot, minute, *rollup));
    }
}
