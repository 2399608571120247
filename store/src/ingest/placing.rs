//! Owns when the API of a cluster is asked whose history a node may tell, and how long an answer is waited for.
//!
//! A container is asked about when it is announced, and again every second while it is set aside, and now and then while it is followed: a
//! pod becomes known after its node told of it, or the API server is reached later than the node. What the API said once of a
//! container holds while it says nothing. What is set aside and why is the state's (`state::placed`).

use std::collections::HashMap;
use std::fmt::Debug;

use evenkeel_proto::v1;
use prost::Message as _;

use crate::key::StreamKey;
use crate::state::StoreState;
use crate::state::kills::Killed;
use crate::state::placed::{Aside, Placement, PlacementWord};
use crate::state::slots::StreamContainer;

/// How long a pod may be unknown, or another node's, before its node is not believed: a watch that was cut goes on after a second or so, and a
/// container ends some seconds after its pod.
const GRACE_USEC: u64 = 60_000_000;
/// Containers looked at under one lock: about half a millisecond.
const AT_ONCE: usize = 2_000;
/// Most bytes of words in one record, which has room for 256 KiB beside its frame.
const MOST_BYTES: usize = 192 << 10;
/// Bytes of one of them before its content.
const WORD_BYTES: usize = 4;
/// How many times a second: 300,000 containers are gone through in half a minute, for half a percent of a core.
const LOOKS: usize = 5;

/// What the API of a cluster says of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementAnswer {
    /// Nothing: it is not known, or not up to date.
    Nothing,
    /// Its pod is on this node; the controller at its top, where that is known.
    Here(Option<String>),
    /// Its pod is on another node.
    Elsewhere,
    /// There is no such pod.
    Unknown,
}

/// The API of a cluster, as far as it says which pods are where, and how their containers ended.
pub trait Places: Send + Sync + Debug {
    /// Whether it is that of this cluster.
    fn is_of(&self, cluster: &str) -> bool;
    /// What it says of a container that a node announces. Asked under locks: it answers at once from what it knows.
    fn say(&self, node: &str, container: &v1::ContainerIdentity) -> PlacementAnswer;
    /// The OOM kills of which its kubelets tell. Each is told as long as its pod tells of it.
    fn kills(&self) -> Killed;
}

/// What was asked so far.
#[derive(Debug, Default)]
pub(super) struct Placing {
    /// The container that is looked at next.
    next: (u64, u32),
    /// Followed containers whose pods are unknown or another node's: since when, and when that was last so, microseconds since 1970.
    missed: HashMap<(u64, u32), (u64, u64)>,
}

/// The words about what a frame announces, as far as a record has room for them; containers without one wait for the next look.
pub(super) fn words(places: &dyn Places, key: &StreamKey, frame: &v1::Frame) -> Vec<PlacementWord> {
    let (mut words, mut bytes) = (Vec::new(), 0);
    for v1::Announcement { slot, identity } in &frame.announced {
        let word = match identity.as_ref().map(|identity| places.say(&key.node, identity)) {
            Some(PlacementAnswer::Nothing) => PlacementWord::new(*slot, Placement::AsTold),
            Some(PlacementAnswer::Here(workload)) => PlacementWord::placed(*slot, workload),
            Some(PlacementAnswer::Elsewhere) => PlacementWord::new(*slot, Placement::Elsewhere),
            Some(PlacementAnswer::Unknown) => PlacementWord::new(*slot, Placement::Waits),
            None => continue,
        };
        bytes += WORD_BYTES + word.encoded_len();
        if bytes > MOST_BYTES {
            break;
        }
        words.push(word);
    }
    words
}

/// Words in parts, each of which a record has room for.
pub(super) fn parts(words: Vec<PlacementWord>) -> Vec<Vec<PlacementWord>> {
    let (mut parts, mut bytes) = (Vec::new(), MOST_BYTES);
    for word in words {
        let more = WORD_BYTES + word.encoded_len();
        if bytes + more > MOST_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.push(word);
        }
    }
    parts
}

impl Placing {
    /// Looks at containers again: what is to be said of those of which something else is to be said now.
    pub(super) fn look(
        &mut self,
        state: &StoreState,
        places: Option<&dyn Places>,
        now_usec: u64,
    ) -> Vec<(StreamKey, Vec<PlacementWord>)> {
        let mut found = Vec::new();
        for stream in state.streams.values().filter(|stream| !stream.aside.is_empty()) {
            let places = places.filter(|places| places.is_of(&stream.key.cluster));
            let news = |(slot, aside): (&u32, &Aside)| of_aside(places, &stream.key, *slot, aside, now_usec);
            let words: Vec<PlacementWord> = stream.aside.iter().filter_map(news).collect();
            found.push((stream.key.clone(), words));
        }
        if let Some(places) = places {
            self.look_at_followed(state, places, now_usec, &mut found);
        }
        found.retain(|(_, words)| !words.is_empty());
        found
    }

    /// Looks at some of those that are followed, from where it ended before.
    fn look_at_followed(
        &mut self,
        state: &StoreState,
        places: &dyn Places,
        now_usec: u64,
        found: &mut Vec<(StreamKey, Vec<PlacementWord>)>,
    ) {
        let (from, mut seen) = (self.next, 0);
        for (id, stream) in state.streams.range(from.0..) {
            if !stream.counts || !places.is_of(&stream.key.cluster) {
                continue;
            }
            let mut words = Vec::new();
            for slot in stream.slots.iter().filter(|slot| (*id, slot.number) >= from) {
                if seen >= AT_ONCE {
                    self.next = (*id, slot.number);
                    return found.push((stream.key.clone(), words));
                }
                seen += 1;
                words.extend(self.of_followed(places, *id, &stream.key, slot, now_usec));
            }
            found.push((stream.key.clone(), words));
        }
        // All were looked at; what was not found again has ended.
        self.next = (0, 0);
        self.missed.retain(|_, (_, last)| now_usec.saturating_sub(*last) <= 10 * GRACE_USEC);
    }

    fn of_followed(
        &mut self,
        places: &dyn Places,
        id: u64,
        key: &StreamKey,
        slot: &StreamContainer,
        now_usec: u64,
    ) -> Option<PlacementWord> {
        let at = (id, slot.number);
        match places.say(&key.node, &slot.identity) {
            PlacementAnswer::Nothing => return None,
            PlacementAnswer::Here(workload) => {
                self.missed.remove(&at);
                let workload = workload.filter(|workload| *workload != slot.identity.workload)?;
                return Some(PlacementWord::placed(slot.number, Some(workload)));
            }
            PlacementAnswer::Elsewhere | PlacementAnswer::Unknown => {}
        }
        let (since, last) = self.missed.entry(at).or_insert((now_usec, now_usec));
        *last = now_usec;
        if now_usec.saturating_sub(*since) <= GRACE_USEC {
            return None;
        }
        self.missed.remove(&at);
        Some(PlacementWord::new(slot.number, Placement::Elsewhere))
    }

    /// How many times a second it looks.
    pub(super) const fn looks() -> usize {
        LOOKS
    }

    /// Whether it begins anew.
    pub(super) const fn is_through(&self) -> bool {
        self.next.0 == 0 && self.next.1 == 0
    }
}

/// What is to be said of a container that is set aside, where it is something else.
fn of_aside(
    places: Option<&dyn Places>,
    key: &StreamKey,
    slot: u32,
    aside: &Aside,
    now_usec: u64,
) -> Option<PlacementWord> {
    let Some(places) = places else { return Some(PlacementWord::new(slot, Placement::AsTold)) };
    let is_over = now_usec.saturating_sub(aside.since_usec) > GRACE_USEC;
    match places.say(&key.node, &aside.identity) {
        PlacementAnswer::Here(workload) => Some(PlacementWord::placed(slot, workload)),
        _ if aside.is_elsewhere => None,
        PlacementAnswer::Nothing => Some(PlacementWord::new(slot, Placement::AsTold)),
        PlacementAnswer::Unknown if !is_over => None,
        PlacementAnswer::Elsewhere | PlacementAnswer::Unknown => {
            Some(PlacementWord::new(slot, Placement::Elsewhere))
        }
    }
}
