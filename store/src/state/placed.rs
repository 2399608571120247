//! Owns whose history a node may tell, where the API of its cluster says which pods are on it and what made them.
//!
//! What the API says comes with the records ([`PlacementWord`]), so that a replay gives the same state. A container whose pod the API places on another
//! node, or does not know, is set aside: it is no container of the node, what is told of it is counted and left out. It comes back by
//! a later word. Not owned: who asks the API, and when (`ingest::placing`).

use std::collections::HashMap;

use evenkeel_proto::v1;
use prost::Message;

use super::belief::Reason;
use super::start::Start;
use super::{StoreState, bounds};
use crate::key::{NodeKey, StreamKey};

/// What the API says of a container that a node announces. The numbers are those of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Placement {
    /// Nothing: the node is believed.
    AsTold = 0,
    /// Its pod is on this node.
    Placed = 1,
    /// Its pod is not known yet.
    Waits = 2,
    /// Its pod is on another node, or there is none.
    Elsewhere = 3,
}

/// The word of the API about one container.
#[derive(Clone, PartialEq, Message)]
pub struct PlacementWord {
    /// Its slot in the stream.
    #[prost(uint32, tag = "1")]
    pub(crate) slot: u32,
    /// What is said.
    #[prost(enumeration = "Placement", tag = "2")]
    pub(crate) standing: i32,
    /// The controller at the top of its pod; empty where there is none, or it is not known.
    #[prost(string, tag = "3")]
    pub(crate) workload: String,
}

impl PlacementWord {
    pub(crate) fn new(slot: u32, standing: Placement) -> Self {
        Self { slot, standing: standing.into(), workload: String::new() }
    }

    /// Its pod is on this node.
    pub(crate) fn placed(slot: u32, workload: Option<String>) -> Self {
        Self { workload: workload.unwrap_or_default(), ..Self::new(slot, Placement::Placed) }
    }
}

/// A container that is set aside.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aside {
    /// Who the node says it is.
    pub(crate) identity: v1::ContainerIdentity,
    /// Since when, microseconds since 1970.
    pub(crate) since_usec: u64,
    /// Waiting is over: what is told of it is told to be left out.
    pub(crate) is_elsewhere: bool,
    /// It was seen to begin.
    pub(crate) is_new: bool,
}

impl Aside {
    /// The start of the container that it turns out to be.
    fn start(&self) -> Start {
        if self.is_new { Start::Awaited } else { Start::Unseen }
    }
}

impl StoreState {
    /// The start of a container that a stream announces now.
    pub(super) fn start(&self, id: u64) -> Start {
        match self.streams.get(&id).filter(|_| self.limits.start_usec > 0) {
            Some(stream) => Start::announced(stream.began_usec, stream.told_usec),
            None => Start::Unseen,
        }
    }

    /// Takes in what a frame announces, with the words about it, where the API was asked; what there is no word about waits for one.
    pub(super) fn announced(
        &mut self,
        id: u64,
        key: &StreamKey,
        received_usec: u64,
        announced: Vec<v1::Announcement>,
        words: Option<&Vec<PlacementWord>>,
    ) {
        let Some(words) = words else {
            return announced.into_iter().for_each(|it| self.announce_by(id, key, received_usec, it, None));
        };
        let by_slot: HashMap<u32, &PlacementWord> = words.iter().map(|word| (word.slot, word)).collect();
        for announcement in announced {
            let word = by_slot.get(&announcement.slot).map(|word| (*word).clone());
            let word = word.unwrap_or_else(|| PlacementWord::new(announcement.slot, Placement::Waits));
            if self.stays_aside(id, &word, &announcement) {
                continue;
            }
            let word = self.goes_on(id, &word, &announcement).unwrap_or(word);
            self.announce_by(id, key, received_usec, announcement, Some(&word));
        }
    }

    /// A container that is followed and announced again goes on under its name, until a later look says that its pod is not here.
    fn goes_on(
        &self,
        id: u64,
        word: &PlacementWord,
        announcement: &v1::Announcement,
    ) -> Option<PlacementWord> {
        let slot = self.streams.get(&id)?.slots.get(announcement.slot)?;
        let is_doubted = matches!(word.standing(), Placement::Waits | Placement::Elsewhere);
        let goes_on = is_doubted && is_same(&slot.identity, announcement.identity.as_ref()?);
        goes_on.then(|| PlacementWord::placed(word.slot, Some(slot.identity.workload.clone())))
    }

    /// Without a word of the API, a container that it said is elsewhere stays so.
    fn stays_aside(&self, id: u64, word: &PlacementWord, announcement: &v1::Announcement) -> bool {
        let aside = self.streams.get(&id).and_then(|stream| stream.aside.get(&announcement.slot));
        let same = |aside: &&Aside| {
            aside.is_elsewhere && announcement.identity.as_ref().is_some_and(|i| is_same(i, &aside.identity))
        };
        word.standing() == Placement::AsTold && aside.filter(same).is_some()
    }

    fn announce_by(
        &mut self,
        id: u64,
        key: &StreamKey,
        received_usec: u64,
        announcement: v1::Announcement,
        word: Option<&PlacementWord>,
    ) {
        let slot = announcement.slot;
        match word.map_or(Placement::AsTold, PlacementWord::standing) {
            standing @ (Placement::Waits | Placement::Elsewhere) => {
                let is_elsewhere = standing == Placement::Elsewhere;
                self.set_aside(id, key, received_usec, announcement, is_elsewhere);
            }
            Placement::AsTold | Placement::Placed => {
                let aside = self.take_back(id, slot);
                let start = aside.map_or_else(|| self.start(id), |aside| aside.start());
                let workload = word.map(|word| word.workload.as_str()).unwrap_or_default();
                self.announce(id, key, received_usec, announcement, workload, start);
            }
        }
    }

    /// Sets a container aside that a node announces.
    fn set_aside(
        &mut self,
        id: u64,
        key: &StreamKey,
        received_usec: u64,
        announcement: v1::Announcement,
        is_elsewhere: bool,
    ) {
        let v1::Announcement { slot, identity: Some(mut identity) } = announcement else { return };
        bounds::cut_labels(&mut identity);
        bounds::cut_requests(&mut identity);
        self.end_slot(id, slot);
        let before = self.take_back(id, slot).filter(|before| is_same(&before.identity, &identity));
        let held = self.streams.get(&id).map_or(usize::MAX, |stream| stream.held());
        if !bounds::is_nameable(&identity) || !self.has_room_for(&identity) || held >= self.limits.per_node {
            return self.refuse_container(key, Reason::Containers);
        }
        let since_usec = before.as_ref().map_or(received_usec, |before| before.since_usec);
        let is_new = before.map_or_else(|| self.start(id) == Start::Awaited, |before| before.is_new);
        self.identity_bytes += bounds::identity_bytes(&identity);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.aside.insert(slot, Aside { identity, since_usec, is_elsewhere, is_new });
        if held == 0 && !stream.counts {
            self.keep_slots(&NodeKey::of(key), id);
        }
    }

    /// A container is not set aside any more.
    pub(super) fn take_back(&mut self, id: u64, slot: u32) -> Option<Aside> {
        let aside = self.streams.get_mut(&id)?.aside.remove(&slot)?;
        self.identity_bytes = self.identity_bytes.saturating_sub(bounds::identity_bytes(&aside.identity));
        Some(aside)
    }

    /// None of a stream is set aside any more.
    pub(super) fn forget_aside(&mut self, id: u64) {
        let aside = self.streams.get_mut(&id).map(|stream| std::mem::take(&mut stream.aside));
        let bytes: usize =
            aside.iter().flatten().map(|(_, aside)| bounds::identity_bytes(&aside.identity)).sum();
        self.identity_bytes = self.identity_bytes.saturating_sub(bytes);
    }

    /// Puts one back that was set aside, as a checkpoint has it.
    pub(crate) fn restore_aside(&mut self, id: u64, slot: u32, mut aside: Aside) {
        bounds::cut_labels(&mut aside.identity);
        bounds::cut_requests(&mut aside.identity);
        if !bounds::is_nameable(&aside.identity) || !self.has_room_for(&aside.identity) {
            self.counters.refused_containers += 1;
            return;
        }
        self.take_back(id, slot);
        if let Some(stream) = self.streams.get_mut(&id) {
            self.identity_bytes += bounds::identity_bytes(&aside.identity);
            stream.aside.insert(slot, aside);
        }
    }

    /// Takes in later words about containers of a stream.
    pub(super) fn judged(&mut self, received_usec: u64, key: &StreamKey, words: &[PlacementWord]) {
        let Some(id) = self.by_key.get(key).copied() else { return };
        for word in words {
            let Some(stream) = self.streams.get(&id) else { return };
            let aside = stream.aside.get(&word.slot).map(|aside| aside.identity.clone());
            let followed = stream.slots.get(word.slot).map(|slot| slot.told());
            let is_news = match (word.standing(), aside.is_some()) {
                (Placement::Waits, _) | (Placement::AsTold, false) => false,
                (Placement::AsTold, true) | (Placement::Placed | Placement::Elsewhere, _) => true,
            };
            if let Some(identity) = aside.or(followed).filter(|_| is_news) {
                let announcement = v1::Announcement { slot: word.slot, identity: Some(identity) };
                self.announce_by(id, key, received_usec, announcement, Some(word));
            }
        }
    }

    /// The name a container is kept by: what the API says, and else what it said of the same container before; with what the node calls it, where
    /// that is something else.
    pub(super) fn name_by(
        &self,
        id: u64,
        slot: u32,
        workload: &str,
        identity: &mut v1::ContainerIdentity,
    ) -> Option<Box<str>> {
        let before = self.streams.get(&id).and_then(|stream| stream.slots.get(slot));
        let before = before.filter(|before| {
            before.reported.as_deref() == Some(&*identity.workload) && is_same(&before.identity, identity)
        });
        let name = match (workload, before) {
            ("", None) => return None,
            ("", Some(before)) => before.identity.workload.clone(),
            (name, _) => name.to_owned(),
        };
        let reported = std::mem::replace(&mut identity.workload, name);
        (reported != identity.workload).then(|| reported.into())
    }
}

/// Whether two are of one container.
fn is_same(one: &v1::ContainerIdentity, other: &v1::ContainerIdentity) -> bool {
    (&one.namespace, &one.pod, &one.container) == (&other.namespace, &other.pod, &other.container)
}
