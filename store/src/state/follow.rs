//! Owns the beginning and the end of a container in the state, and what is remembered of its end.

use std::sync::Arc;

use evenkeel_model::key::ContainerKey;
use evenkeel_model::rollup::Rollup;
use evenkeel_proto::v1;
use evenkeel_rightsizing::history::{Cause, Event as PastEvent};

use super::belief::Reason;
use super::buffer::Buffer;
use super::history::{History, Requested};
use super::kills::{KilledContainer, Seen};
use super::seconds::Seconds;
use super::slots::{StreamContainer, memory_of};
use super::start::Start;
use super::{Limits, StoreState, absorb_hour, bounds, minute_of};
use crate::history::past::Subjects;
use crate::history::peers::Caps;
use crate::history::replica::Replica;
use crate::key::{Image, NodeKey, SeriesId, SeriesKey, StreamKey, Subject};

/// Stands for the containers of an earlier release's minutes, and for those that are still to be read; no stream has this number.
pub(crate) const IMPORTED: (u64, u32) = (u64::MAX, 0);

impl StoreState {
    pub(super) fn announce(
        &mut self,
        id: u64,
        key: &StreamKey,
        received_usec: u64,
        announcement: v1::Announcement,
        workload: &str,
        start: Start,
    ) {
        let Some(mut identity) = announcement.identity else { return };
        let reported = self.name_by(id, announcement.slot, workload, &mut identity);
        self.counters.dropped_labels += u64::from(bounds::cut_labels(&mut identity));
        self.counters.dropped_requests += u64::from(bounds::cut_requests(&mut identity));
        let known = self.streams.get(&id).is_some_and(|s| s.slots.get(announcement.slot).is_some());
        let too_long = !bounds::is_nameable(&identity) || !self.has_room_for(&identity);
        if too_long || (!known && !self.has_room(id, key)) {
            return self.refuse_container(key, Reason::Containers);
        }
        let Some(series) = self.name(key, &identity) else {
            // Its number must not go on as somebody else's.
            self.end_slot(id, announcement.slot);
            return self.refuse_container(key, Reason::Names);
        };
        let now = self.clock.now().min(minute_of(received_usec));
        if let Some(entry) = self.history.get_mut(series) {
            entry.newest = entry.newest.max(now);
            entry.requested = identity.requested.as_ref().map_or(Requested::default(), |r| Requested {
                cpu_milli: r.cpu_request_milli,
                memory_bytes: r.memory_request_bytes,
            });
        }
        let subjects = self.subjects(key, &identity);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(slot) = stream.slots.get_mut(announcement.slot)
            && slot.series == series
            && slot.subjects == subjects
        {
            // The same container announced again, perhaps with other requests: its minute goes on.
            self.identity_bytes = self.identity_bytes.saturating_sub(bounds::identity_bytes(&slot.identity));
            self.identity_bytes += bounds::identity_bytes(&identity);
            if !is_same_run(&slot.identity, &identity) {
                slot.start = start;
            }
            (slot.identity, slot.reported) = (Arc::new(identity), reported);
            return;
        }
        // One that is called something else now goes on with its start.
        let before =
            stream.slots.get(announcement.slot).filter(|slot| is_same_run(&slot.identity, &identity));
        let start = before.map_or(start, |slot| slot.start);
        // The one that had the number ends first: its minutes lie under the same number.
        self.end_slot(id, announcement.slot);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.identity_bytes += bounds::identity_bytes(&identity);
        let slot = StreamContainer::new(announcement.slot, Arc::new(identity), series, subjects);
        stream.slots.insert(StreamContainer { reported, start, ..slot });
        let is_first = stream.held() == 1 && !stream.counts;
        self.slots_changed(id, 1, 0);
        if is_first {
            self.keep_slots(&NodeKey::of(key), id);
        }
        self.follow(id, announcement.slot, series, &subjects);
        let caps = self.past.caps(subjects[0], key.node_number(), id);
        if let Some(slot) =
            self.streams.get_mut(&id).and_then(|stream| stream.slots.get_mut(announcement.slot))
        {
            slot.caps = caps;
        }
    }

    pub(super) fn refuse_container(&mut self, key: &StreamKey, reason: Reason) {
        self.counters.refused_containers += 1;
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        node.refused += 1;
        node.dropped.add(reason, 1);
    }

    /// The series of a container; nothing where its name is new and its node brought too many.
    fn name(&mut self, key: &StreamKey, identity: &v1::ContainerIdentity) -> Option<SeriesId> {
        let name = series_key(key, identity);
        if let Some(id) = self.history.find(&name) {
            return Some(id);
        }
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        let Limits { per_node, names_per_minute, .. } = self.limits;
        if !node.names.take(self.clock.now(), per_node, names_per_minute) {
            return None;
        }
        self.history.admit(&name, key.node_number())
    }

    pub(super) fn end_slot(&mut self, id: u64, number: u32) {
        let before = self.streams.get_mut(&id).and_then(|stream| stream.slots.take(number));
        if let Some(before) = before {
            self.slots_changed(id, 0, 1);
            self.finish(id, before);
        }
    }

    /// Whether one more identity is within the bound of all of them.
    pub(super) fn has_room_for(&self, identity: &v1::ContainerIdentity) -> bool {
        let most = self.limits.containers.saturating_mul(bounds::IDENTITY_BYTES_EACH);
        self.identity_bytes + bounds::identity_bytes(identity) <= most
    }

    /// A container is followed from now on.
    fn follow(&mut self, id: u64, slot: u32, series: SeriesId, subjects: &Subjects) {
        self.history.follow(series, (id, slot));
        self.past.follow(subjects, (id, slot));
    }

    /// The subjects a container belongs to.
    fn subjects(&mut self, key: &StreamKey, identity: &v1::ContainerIdentity) -> Subjects {
        let names = series_key(key, identity);
        let (origin, minute) = (Some(key.node_number()), self.clock.now());
        Subject::all(&names, identity.command_hash)
            .map(|subject| subject.and_then(|subject| self.past.subject(subject, origin, minute)))
    }

    /// Remembers a kill or an eviction of a container that is followed.
    ///
    /// `told_usec` is the time of the frame that tells it: of a container without a sample it is all that is known.
    pub(super) fn remember(&mut self, id: u64, node: &NodeKey, told_usec: u64, decision: &v1::Decision) {
        let cause = match decision.kind.as_str() {
            "oom-kill" => Cause::OomKill,
            "evict" if decision.result == "done" => Cause::Eviction,
            _ => return,
        };
        let (Some(pod), container) = (&decision.pod, decision.container.as_deref()) else { return };
        // Before anything is looked for: a search costs as much as the node has containers.
        let now = self.clock.now() / 60;
        let most = self.limits.kills_per_hour;
        let known = self.nodes.entry(node.clone()).or_default();
        if !known.kills.take(now, most) {
            known.dropped.add(Reason::Kills, 1);
            self.counters.refused_kills += 1;
            return;
        }
        let is_pod = |i: &v1::ContainerIdentity| {
            i.pod == *pod
                || pod.split_once('/').is_some_and(|(space, name)| space == i.namespace && name == i.pod)
        };
        let slots = self.streams.get(&id).into_iter().flat_map(|stream| stream.slots.iter());
        let hit = slots.filter(|slot| {
            slot.ran_at(decision.time_usec, told_usec)
                && is_pod(&slot.identity)
                && container.is_none_or(|name| name == slot.identity.container)
        });
        let hit: Vec<_> = hit
            .filter_map(|slot| {
                let requested = slot.identity.requested.as_ref();
                let event = PastEvent {
                    time_ms: decision.time_usec / 1000,
                    cause,
                    usage: slot.latest.as_ref().and_then(|(_, sample)| memory_of(sample)),
                    request: requested.and_then(|r| r.memory_request_bytes),
                    limit: requested.and_then(|r| r.memory_limit_bytes),
                    age_ms: None,
                };
                let identity = &slot.identity;
                let of = KilledContainer::of(
                    &node.cluster,
                    &identity.namespace,
                    &identity.pod,
                    &identity.container,
                );
                let minute = self.clock.now();
                let id = identity.id.clone();
                let seen = Seen { id, time_usec: decision.time_usec, minute, by_kubelet: false };
                Some((slot.subjects[0]?, event, (of, seen)))
            })
            .collect();
        let aside = self.streams.get(&id).into_iter().flat_map(|stream| stream.aside.values());
        let is_aside = aside.into_iter().any(|aside| is_pod(&aside.identity));
        let known = self.nodes.entry(node.clone()).or_default();
        if hit.is_empty() {
            known.dropped.add(if is_aside { Reason::Placement } else { Reason::NoSuchKill }, 1);
            self.past.counts.unplaced_events += 1;
        }
        for (own, event, (container, seen)) in hit {
            if cause == Cause::OomKill && !self.kills.told_by_agent(container, seen) {
                continue;
            }
            if !self.past.event(own, event) {
                known.dropped.add(Reason::Kills, 1);
                self.counters.refused_kills += 1;
            }
        }
    }

    /// Ends a container: its unfinished minute becomes history.
    pub(super) fn finish(&mut self, id: u64, mut slot: StreamContainer) {
        let clock = self.clock.now();
        self.identity_bytes = self.identity_bytes.saturating_sub(bounds::identity_bytes(&slot.identity));
        if let Some((minute, rollup)) = slot.open {
            self.history.record(slot.series, (id, slot.number), &slot.identity.pod, minute, &rollup);
            let is_start = slot.start.has_minute(minute, self.limits.start_usec);
            self.past.minute(clock, &slot.subjects, minute, &rollup, is_start);
        }
        self.history.close(slot.series, (id, slot.number));
        let ended = slot.end_hour();
        absorb_hour(&mut self.past, clock, &slot.subjects, ended);
        self.past.leave(&slot.subjects, (id, slot.number));
        self.history.leave(slot.series, (id, slot.number));
    }

    /// Puts a followed container back as it was written to a checkpoint.
    pub(crate) fn restore_slot(&mut self, id: u64, key: &StreamKey, restored: RestoredSlot) {
        let RestoredSlot { number, mut identity, reported, open, samples, seconds, .. } = restored;
        let RestoredSlot { hour, buffer, caps, start, start_starved_ms, .. } = restored;
        // Earlier releases took in what is too large.
        self.counters.dropped_labels += u64::from(bounds::cut_labels(&mut identity));
        self.counters.dropped_requests += u64::from(bounds::cut_requests(&mut identity));
        if !bounds::is_nameable(&identity) || !self.has_room_for(&identity) {
            self.counters.refused_containers += 1;
            return;
        }
        let series = self.history.series(&series_key(key, &identity));
        let subjects = self.subjects(key, &identity);
        if !self.streams.contains_key(&id) {
            return;
        }
        self.follow(id, number, series, &subjects);
        if let Some(buffer) = buffer {
            self.history.restore_buffer(series, (id, number), buffer);
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let bytes = bounds::identity_bytes(&identity);
        let mut slot = StreamContainer::new(number, Arc::new(identity), series, subjects);
        (slot.open, slot.samples, slot.seconds, slot.caps) = (open, samples, seconds, caps);
        slot.reported = reported;
        slot.hour = hour.map(Box::new);
        (slot.start, slot.start_starved_ms) = (start, start_starved_ms);
        self.identity_bytes += bytes;
        match stream.slots.insert(slot) {
            None => self.slots_changed(id, 1, 0),
            Some(before) => self.identity_bytes -= bounds::identity_bytes(&before.identity),
        }
    }

    /// Takes a minute of the checkpoint of an earlier release in, which had no hours and days.
    pub(crate) fn import_minute(&mut self, key: &SeriesKey, minute: u32, rollup: &Rollup) {
        let id = self.history.series(key);
        self.history.record(id, IMPORTED, "", minute, rollup);
        let clock = self.clock.now();
        let subjects = Subject::all(key, None).map(|s| s.and_then(|s| self.past.subject(s, None, clock)));
        let mut slot = StreamContainer::new(0, Arc::default(), id, subjects);
        slot.turn_hour(minute / 60);
        if let Some(fold) = slot.fold_rollup(rollup) {
            self.past.absorb(clock, &subjects, &fold);
        }
        self.past.minute(clock, &subjects, minute, rollup, false);
        absorb_hour(&mut self.past, clock, &subjects, slot.end_hour());
    }

    /// All minutes of a series have been imported.
    pub(crate) fn end_import(&mut self, id: SeriesId) {
        self.history.close(id, IMPORTED);
    }
}

/// A followed container as a checkpoint has it.
pub(crate) struct RestoredSlot {
    pub(crate) number: u32,
    pub(crate) identity: v1::ContainerIdentity,
    pub(crate) reported: Option<Box<str>>,
    pub(crate) open: Option<(u32, Rollup)>,
    pub(crate) samples: u64,
    pub(crate) seconds: Seconds,
    pub(crate) hour: Option<Replica>,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) caps: Option<Caps>,
    pub(crate) start: Start,
    pub(crate) start_starved_ms: u64,
}

/// Whether two are of one container that was not started again between them.
fn is_same_run(one: &v1::ContainerIdentity, other: &v1::ContainerIdentity) -> bool {
    (&one.id, one.cgroup_inode) == (&other.id, other.cgroup_inode)
}

fn series_key(key: &StreamKey, identity: &v1::ContainerIdentity) -> SeriesKey {
    let or = |name: &str, other: &str| if name.is_empty() { other.to_owned() } else { name.to_owned() };
    SeriesKey {
        of: ContainerKey {
            cluster: key.cluster.clone(),
            namespace: or(&identity.namespace, "default"),
            workload: or(&identity.workload, &identity.pod),
            container: identity.container.clone(),
        },
        image: Image::parse(&identity.image),
    }
}
