//! Owns what is known of one stream and of one node.

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use evenkeel_proto::v1;

use super::slots::Slots;
use crate::ingest::record::Key;
use crate::ingest::stream_state::Position;

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey {
    /// Cluster name.
    pub cluster: String,
    /// Node name.
    pub node: String,
}

impl NodeKey {
    pub(crate) fn of(key: &Key) -> Self {
        Self { cluster: key.cluster.clone(), node: key.node.clone() }
    }
}

/// What is known of a node over all its epochs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Version its agent last named.
    pub version: String,
    /// Its size, where the agent told.
    pub facts: Option<v1::NodeFacts>,
    /// Epoch of its newest sample.
    pub epoch: u64,
    /// Time of that sample, microseconds since 1970.
    pub newest_usec: u64,
    /// When something was last received, microseconds since 1970.
    pub last_seen_usec: u64,
    /// Frames counted.
    pub frames: u64,
    /// Container seconds counted.
    pub samples: u64,
    /// Sequence numbers (seconds of the node) known to be missing.
    pub gaps: u64,
}

/// What is known of one stream.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Which it is.
    pub key: Key,
    /// How far it has been taken.
    pub position: Position,
    /// Memory of the codec.
    pub(crate) decoder: Decoder,
    /// Its containers.
    pub slots: Slots,
    /// When something was last received, microseconds since 1970.
    pub last_seen_usec: u64,
}

impl Stream {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            position: Position::default(),
            decoder: Decoder::new(),
            slots: Slots::default(),
            last_seen_usec: 0,
        }
    }

    /// Whether frames that continue the stream can be understood: the codec's memory and the containers are there.
    pub fn knows_slots(&self) -> bool {
        self.position.last > 0 && self.decoder.position().is_some() && !self.slots.is_empty()
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
