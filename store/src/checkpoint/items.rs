//! Owns the translation of a checkpoint's items to and from the state.

use std::collections::BTreeMap;

use evenkeel_model::key::ContainerKey;
use evenkeel_model::panic::reason;
use evenkeel_model::rollup::{Aggregate, Rollup};

use super::TooLarge;
use super::messages::{
    AsideItem, ClockItem, ColumnItem, EventItem, ItemKind, KillItem, MetaItem, NodeItem, OpenHourItem,
    RepeatsItem, RollupItem, SeriesItem, SlotItem, StreamItem, SubjectItem,
};
use crate::history::codec::{decode_minutes, decode_parts, encode_minutes, encode_parts};
use crate::history::item::{Items, put_subject};
use crate::history::past::SubjectPast;
use crate::history::peers::{NO_CAPS, Peers};
use crate::history::replica::Replica;
use crate::history::sealed::{OpenDay, OpenHour};
use crate::history::starts::{DayStart, InStart};
use crate::key::{Image, NodeKey, SeriesId, SeriesKey, StreamKey};
use crate::state::belief::Dropped;
use crate::state::buffer::Buffer;
use crate::state::clock::{Clock, Witness};
use crate::state::follow::{IMPORTED, RestoredSlot};
use crate::state::history::{History, Requested};
use crate::state::kills::{KilledContainer, Seen};
use crate::state::minute::MinuteEntry;
use crate::state::placed::Aside;
use crate::state::seconds::Seconds;
use crate::state::slots::StreamContainer;
use crate::state::start::Start;
use crate::state::stream::{Hourly, Names, NodeState, StreamState};
use crate::state::{NodeDecision, PanicSwitch, StateCounters, StoreState};

/// Minutes for which it is kept when a subject was first heard of, where nothing of it is open.
const YOUNG: u32 = 4 * 24 * 60;

/// Calls `write` with every item of the state, in the order reading needs.
pub(super) fn export(state: &StoreState, mut write: impl FnMut(ItemKind)) {
    write(ItemKind::Meta(meta(state)));
    for (key, node) in &state.nodes {
        write(ItemKind::Node(node_item(key, node)));
    }
    for (_, series) in state.history.all() {
        let of = &series.key.of;
        write(ItemKind::Series(SeriesItem {
            cluster: of.cluster.clone(),
            namespace: of.namespace.clone(),
            workload: of.workload.clone(),
            container: of.container.clone(),
            image: series.key.image.as_ref().map(|i| i.name.clone()),
            image_tag: series.key.image.as_ref().map(|i| i.tag.clone()),
            cpu_request: series.requested.cpu_milli,
            memory_request: series.requested.memory_bytes,
            newest: series.newest,
            cpu: None,
            memory: None,
            origin: series.origin.map_or(0, |origin| u64::from(origin) + 1),
            followed: !series.live.is_empty(),
        }));
    }
    // Before the containers that name them, so that each has its node and its place back, and none takes another's.
    for (_, held) in state.past.all() {
        // Of older ones the days tell well enough.
        let is_young = held.since.is_some_and(|since| state.clock.now().saturating_sub(since) < YOUNG);
        if is_young || !(held.open_hours.is_empty() && held.open_days.is_empty()) {
            write(ItemKind::Subject(subject_item(held)));
        }
    }
    for (id, stream) in &state.streams {
        write(ItemKind::Stream(stream_item(stream, state.clock.listened)));
        for slot in stream.slots.iter() {
            let buffer = state.history.get(slot.series).and_then(|s| s.buffers.get(&(*id, slot.number)));
            write(ItemKind::Slot(slot_item(slot, buffer)));
        }
    }
    for NodeDecision { node, decision } in &state.events {
        let (cluster, node) = (node.cluster.clone(), node.node.clone());
        write(ItemKind::Event(EventItem { cluster, node, decision: decision.clone() }));
    }
    for (node, ids) in state.repeats.all() {
        let (cluster, node) = (node.cluster.clone(), node.node.clone());
        let (epochs, seqs) = ids.iter().copied().unzip();
        write(ItemKind::Repeats(RepeatsItem { cluster, node, epochs, seqs }));
    }
    for (KilledContainer(cluster, container), seen) in state.kills.all() {
        let (cluster, container) = (cluster.clone(), container.clone());
        let Seen { id, time_usec, minute, by_kubelet } = seen.clone();
        write(ItemKind::Kill(KillItem { cluster, container, id, time_usec, minute, by_kubelet }));
    }
}

fn meta(state: &StoreState) -> MetaItem {
    let c = &state.counters;
    let (_, _, dropped_series) = state.history.counts();
    MetaItem {
        applied: state.applied,
        panic_on: state.panic.on,
        panic_revert: state.panic.revert,
        panic_reason: state.panic.reason.clone(),
        panic_since_usec: state.panic.since_usec,
        clock_minute: state.clock.now,
        clock: Some(clock_item(&state.clock)),
        kills_forgotten: state.kills.forgotten,
        counters: vec![
            c.frames,
            c.samples,
            c.unreadable,
            c.unannounced,
            c.misdated,
            c.lost,
            c.refused_containers,
            c.forgotten,
            // What earlier releases counted here is not counted any more.
            0,
            dropped_series,
            c.late,
            c.ancient,
            c.resets,
            c.refused_kills,
            c.clock_doubts,
            c.dropped_labels,
            c.cut_decisions,
            c.dropped_requests,
            c.misplaced,
        ],
    }
}

fn clock_item(clock: &Clock) -> ClockItem {
    let flags = |w: &Witness| u64::from(w.is_catching_up) | u64::from(w.is_steady) << 1;
    let numbers = |w: &Witness| [u64::from(w.node), w.received_usec, w.sample_usec, flags(w)];
    ClockItem {
        settled_minute: clock.settled,
        lasted_usec: clock.lasted_usec,
        received_usec: clock.received_usec,
        panel: clock.panel.iter().flat_map(numbers).collect(),
        listened: clock.listened,
    }
}

fn clock_of(now: u32, item: Option<ClockItem>) -> Clock {
    let Some(item) = item else { return Clock::of_minute(now) };
    let (witnesses, _) = item.panel.as_chunks::<4>();
    let witness = |[node, received_usec, sample_usec, flags]: &[u64; 4]| Witness {
        node: u32::try_from(*node).unwrap_or(u32::MAX),
        received_usec: *received_usec,
        sample_usec: *sample_usec,
        is_catching_up: flags & 1 != 0,
        is_steady: flags & 2 != 0,
    };
    Clock {
        now,
        settled: item.settled_minute,
        lasted_usec: item.lasted_usec,
        received_usec: item.received_usec,
        panel: witnesses.iter().map(witness).collect(),
        listened: item.listened,
    }
}

fn node_item(key: &NodeKey, node: &NodeState) -> NodeItem {
    NodeItem {
        cluster: key.cluster.clone(),
        node: key.node.clone(),
        version: node.version.clone(),
        facts: node.facts.clone(),
        epoch: node.epoch,
        newest_usec: node.newest_usec,
        last_seen_usec: node.last_seen_usec,
        frames: node.frames,
        samples: node.samples,
        gaps: node.gaps,
        refused: node.refused,
        behind_usec: node.behind_usec,
        names_used: node.names.used,
        names_minute: node.names.minute,
        kills: node.kills.count,
        kills_hour: node.kills.hour,
        told: node.told.count,
        told_hour: node.told.hour,
        dropped: node.dropped.numbers(),
    }
}

fn stream_item(stream: &StreamState, listened: u32) -> StreamItem {
    StreamItem {
        key: stream.key.clone(),
        last: stream.position.last,
        last_seen_usec: stream.last_seen_usec,
        decoder: stream.decoder.snapshot(),
        began_usec: stream.began_usec,
        silent: listened.saturating_sub(stream.heard),
        owner: stream.owner.clone(),
        aside: stream.aside.iter().map(|(slot, aside)| aside_item(*slot, aside)).collect(),
        told_usec: stream.told_usec,
    }
}

fn aside_item(slot: u32, aside: &Aside) -> AsideItem {
    let Aside { identity, since_usec, is_elsewhere, is_new } = aside.clone();
    AsideItem { slot, identity, since_usec, is_elsewhere, is_new }
}

fn replica_bytes(replica: &Replica) -> Vec<u8> {
    let [cpu, memory] = &replica.heights;
    let numbers = [u64::from(replica.hour), u64::from(replica.pod), replica.starved_ms];
    InStart::put(replica.start.as_deref(), encode_parts(&numbers, &[Some(cpu), Some(memory)]))
}

fn replica_of(bytes: &[u8]) -> Option<Replica> {
    let ([hour, pod, starved_ms], [cpu, memory]) = decode_parts::<3, 2>(bytes)?;
    let (hour, pod) = (u32::try_from(hour).ok()?, u32::try_from(pod).ok()?);
    let start = InStart::behind::<3, 2>(bytes).map(Box::new);
    Some(Replica { hour, pod, starved_ms, heights: [cpu?, memory?], start })
}

fn subject_item(held: &SubjectPast) -> SubjectItem {
    let mut key = Vec::new();
    put_subject(&mut key, &held.key);
    let hours = held.open_hours.iter().map(|open| {
        let numbers = [u64::from(open.hour), u64::from(open.touched), open.peaks[0], open.peaks[1]];
        OpenHourItem {
            open: encode_parts(&numbers, &[Some(&open.all[0]), Some(&open.all[1])]),
            start: open.start.as_deref().map(|start| encode_parts(&[], &[Some(start)])).unwrap_or_default(),
            replicas: open.replicas.iter().map(replica_bytes).collect(),
        }
    });
    let days = held.open_days.iter().map(|open| {
        let numbers = [u64::from(open.day), u64::from(open.touched), open.peaks[0], open.peaks[1]];
        let [all, minutes] = [&open.all, &open.minutes];
        let all = [Some(&all[0]), Some(&all[1]), Some(&minutes[0]), Some(&minutes[1])];
        DayStart::put(open.start.as_deref(), encode_parts(&numbers, &all))
    });
    let origin = held.origin.map_or(0, |origin| u64::from(origin) + 1);
    let peers = held.peers.as_ref().map(|peers| peers.numbers()).unwrap_or_default();
    SubjectItem { key, hours: hours.collect(), days: days.collect(), since: held.since, origin, peers }
}

fn open_hour(item: &OpenHourItem) -> Option<OpenHour> {
    let ([hour, touched, cpu_peak, memory_peak], [cpu, memory]) = decode_parts::<4, 2>(&item.open)?;
    Some(OpenHour {
        hour: u32::try_from(hour).ok()?,
        touched: u32::try_from(touched).ok()?,
        all: [cpu?, memory?],
        peaks: [cpu_peak, memory_peak],
        replicas: item.replicas.iter().map(|bytes| replica_of(bytes)).collect::<Option<_>>()?,
        start: match item.start.as_slice() {
            [] => None,
            bytes => Some(Box::new(decode_parts::<0, 1>(bytes)?.1[0].take()?)),
        },
    })
}

fn open_day(bytes: &[u8]) -> Option<OpenDay> {
    let ([day, touched, cpu_peak, memory_peak], [cpu, memory, cpu_minutes, memory_minutes]) =
        decode_parts::<4, 4>(bytes)?;
    Some(OpenDay {
        day: u32::try_from(day).ok()?,
        touched: u32::try_from(touched).ok()?,
        all: [cpu?, memory?],
        minutes: [cpu_minutes?, memory_minutes?],
        peaks: [cpu_peak, memory_peak],
        start: DayStart::behind::<4, 4>(bytes).map(Box::new),
    })
}

fn slot_item(slot: &StreamContainer, buffer: Option<&Buffer>) -> SlotItem {
    let numbers = |a: &Aggregate| vec![a.count, a.sum, a.min, a.max];
    let open = slot.open.as_ref().map(|(minute, r)| RollupItem {
        minute: *minute,
        samples: r.samples,
        cpu_micro: numbers(&r.cpu_micro),
        memory: numbers(&r.memory_bytes),
        throttled_usec: r.throttled_usec,
        oom_kills: r.oom_kills,
        time_usec: r.time_usec,
        starved_usec: r.starved_usec,
        ..RollupItem::default()
    });
    let mut minutes = Vec::new();
    if let Some(buffer) = buffer {
        minutes.clone_from(&buffer.chunks);
        minutes.push(encode_minutes(&buffer.plain));
    }
    SlotItem {
        number: slot.number,
        identity: (*slot.identity).clone(),
        open,
        samples: slot.samples,
        caps: match slot.caps {
            None => vec![0],
            Some(NO_CAPS) => Vec::new(),
            Some(caps) => caps.to_vec(),
        },
        seconds: slot.seconds.encode(),
        hour: slot.hour.as_deref().map(replica_bytes).unwrap_or_default(),
        minutes,
        minutes_hour: buffer.map_or(0, |b| b.hour),
        reported: slot.reported.as_deref().map(str::to_owned),
        start: match slot.start {
            Start::Unseen => Vec::new(),
            start => start.numbers().into_iter().chain([slot.start_starved_ms]).collect(),
        },
    }
}

/// Puts items back into an empty state.
pub(super) struct Importer<'a> {
    state: &'a mut StoreState,
    stream: Option<(u64, StreamKey)>,
    files: Vec<(u32, u32, u64)>,
    /// Series whose containers are still to be read.
    followed: Vec<SeriesId>,
    /// What the writer of the checkpoint had counted.
    counted: StateCounters,
    dropped_series: u64,
}

impl<'a> Importer<'a> {
    pub(super) fn new(state: &'a mut StoreState) -> Self {
        let (files, followed) = (Vec::new(), Vec::new());
        Self { state, stream: None, files, followed, counted: StateCounters::default(), dropped_series: 0 }
    }

    /// Day, kind and length of the history's files, and what was too large to be taken in.
    pub(super) fn finish(self) -> (Vec<(u32, u32, u64)>, TooLarge) {
        self.state.measure_nodes();
        self.followed.iter().for_each(|id| self.state.history.leave(*id, IMPORTED));
        let (now, before) = (self.state.counters, self.counted);
        let too_large = TooLarge {
            labels: now.dropped_labels - before.dropped_labels,
            decisions: now.cut_decisions - before.cut_decisions,
            containers: now.refused_containers - before.refused_containers,
            series: self.state.history.dropped() - self.dropped_series,
            subjects: self.state.past.counts.refused_subjects,
        };
        (self.files, too_large)
    }

    /// Takes one item; what is wrong with it otherwise.
    pub(super) fn take(&mut self, kind: ItemKind) -> Result<(), &'static str> {
        match kind {
            ItemKind::Meta(item) => self.meta(item),
            ItemKind::Node(item) => self.node(item),
            ItemKind::Stream(item) => return self.stream(item),
            ItemKind::Slot(item) => return self.slot(item),
            ItemKind::Series(item) => return self.series(item),
            ItemKind::Subject(item) => return self.subject(&item),
            ItemKind::Files(item) => self.files = item.list(),
            ItemKind::Event(EventItem { cluster, node, decision }) => {
                self.state.keep_event(NodeDecision { node: NodeKey { cluster, node }, decision });
            }
            ItemKind::Repeats(RepeatsItem { cluster, node, epochs, seqs }) => {
                let node = NodeKey { cluster, node };
                for (epoch, seq) in epochs.into_iter().zip(seqs) {
                    self.state.repeats.is_first(&node, epoch, seq);
                }
            }
            ItemKind::Kill(KillItem { cluster, container, id, time_usec, minute, by_kubelet }) => {
                let seen = Seen { id, time_usec, minute, by_kubelet };
                self.state.kills.remember(KilledContainer(cluster, container), seen);
            }
        }
        Ok(())
    }

    fn meta(&mut self, item: MetaItem) {
        self.state.applied = item.applied;
        self.state.kills.forgotten = item.kills_forgotten;
        self.state.panic = PanicSwitch {
            on: item.panic_on,
            revert: item.panic_revert,
            reason: reason(item.panic_reason),
            since_usec: item.panic_since_usec,
        };
        let mut counters = item.counters.into_iter();
        let mut next = || counters.next().unwrap_or(0);
        self.state.counters = StateCounters {
            frames: next(),
            samples: next(),
            unreadable: next(),
            unannounced: next(),
            misdated: next(),
            lost: next(),
            refused_containers: next(),
            forgotten: next(),
            ..StateCounters::default()
        };
        let (_entries, series) = (next(), next());
        let read = &mut self.state.counters;
        (read.late, read.ancient, read.resets) = (next(), next(), next());
        (read.refused_kills, read.clock_doubts) = (next(), next());
        (read.dropped_labels, read.cut_decisions) = (next(), next());
        (read.dropped_requests, read.misplaced) = (next(), next());
        self.counted = self.state.counters;
        self.dropped_series = series;
        self.state.history.set_dropped(series);
        self.state.clock = clock_of(item.clock_minute, item.clock);
    }

    fn node(&mut self, item: NodeItem) {
        let key = NodeKey { cluster: item.cluster, node: item.node };
        let node = NodeState {
            version: item.version,
            facts: item.facts,
            epoch: item.epoch,
            newest_usec: item.newest_usec,
            last_seen_usec: item.last_seen_usec,
            frames: item.frames,
            samples: item.samples,
            gaps: item.gaps,
            refused: item.refused,
            behind_usec: item.behind_usec,
            dropped: Dropped::from_numbers(&item.dropped),
            earlier: Vec::new(),
            names: Names { used: item.names_used, minute: item.names_minute },
            kills: Hourly { hour: item.kills_hour, count: item.kills },
            told: Hourly { hour: item.told_hour, count: item.told },
        };
        self.state.nodes.insert(key, node);
    }

    fn stream(&mut self, item: StreamItem) -> Result<(), &'static str> {
        let id = self.state.stream_id(&item.key);
        let stream = self.state.streams.get_mut(&id).ok_or("a stream cannot be made")?;
        stream.position.last = item.last;
        (stream.last_seen_usec, stream.began_usec) = (item.last_seen_usec, item.began_usec);
        stream.told_usec = item.told_usec;
        stream.owner = item.owner;
        if let Some(bytes) = item.decoder {
            stream.decoder.decode(&bytes, &mut ()).map_err(|_| "a codec's memory cannot be read")?;
        }
        for AsideItem { slot, identity, since_usec, is_elsewhere, is_new } in item.aside {
            self.state.restore_aside(id, slot, Aside { identity, since_usec, is_elsewhere, is_new });
        }
        self.state.restored_stream(id, item.silent);
        self.stream = Some((id, item.key));
        Ok(())
    }

    fn slot(&mut self, item: SlotItem) -> Result<(), &'static str> {
        let (id, key) = self.stream.as_ref().ok_or("a container precedes every stream")?;
        let open = item.open.map(|r| {
            let rollup = Rollup {
                samples: r.samples,
                cpu_micro: match aggregate(&r.cpu_micro) {
                    Some(cpu) => cpu,
                    None => in_micro(aggregate(&r.cpu_milli)?),
                },
                memory_bytes: aggregate(&r.memory)?,
                time_usec: r.time_usec,
                starved_usec: r.starved_usec,
                throttled_usec: r.throttled_usec,
                oom_kills: r.oom_kills,
            };
            Some((r.minute, rollup))
        });
        let open = match open {
            Some(None) => return Err("an unfinished minute is incomplete"),
            Some(open) => open,
            None => None,
        };
        let mut minutes = item.minutes.iter().map(|bytes| decode_minutes(bytes));
        let plain = minutes.next_back().map(|plain| plain.ok_or("minutes cannot be read")).transpose()?;
        let chunks = item.minutes.len().saturating_sub(1);
        let buffer = plain.map(|plain| Buffer {
            plain,
            chunks: item.minutes[..chunks].to_vec(),
            ..Buffer::new(item.minutes_hour, &item.identity.pod)
        });
        let hour = match item.hour.as_slice() {
            [] => None,
            bytes => Some(replica_of(bytes).ok_or("an unfinished hour cannot be read")?),
        };
        let seconds = match item.seconds.as_slice() {
            [] => Seconds::default(),
            bytes => Seconds::decode(bytes).ok_or("the last seconds cannot be read")?,
        };
        let (number, identity, samples) = (item.number, item.identity, item.samples);
        let caps = match item.caps.as_slice() {
            [] => Some(NO_CAPS),
            [cpu, memory] => Some([*cpu, *memory]),
            _ => None,
        };
        let reported = item.reported.map(Into::into);
        let start = Start::of_numbers(item.start.get(..2).unwrap_or_default());
        let start_starved_ms = item.start.get(2).copied().unwrap_or(0);
        let restored = RestoredSlot {
            number,
            identity,
            reported,
            open,
            samples,
            seconds,
            hour,
            buffer,
            caps,
            start,
            start_starved_ms,
        };
        self.state.restore_slot(*id, key, restored);
        Ok(())
    }

    fn series(&mut self, item: SeriesItem) -> Result<(), &'static str> {
        let key = SeriesKey {
            of: ContainerKey {
                cluster: item.cluster,
                namespace: item.namespace,
                workload: item.workload,
                container: item.container,
            },
            image: item.image.zip(item.image_tag).map(|(name, tag)| Image { name, tag }),
        };
        let id = self.state.history.series(&key);
        self.state.history.restore_origin(id, origin_of(item.origin));
        if item.followed {
            // Where there are too many it is none of those that go.
            self.state.history.follow(id, IMPORTED);
            self.followed.push(id);
        }
        if let Some(series) = self.state.history.get_mut(id) {
            series.newest = item.newest;
            series.requested = Requested { cpu_milli: item.cpu_request, memory_bytes: item.memory_request };
        }
        let read = |column: Option<ColumnItem>| column.map_or(Ok(Vec::new()), ColumnItem::entries);
        for (minute, rollup) in earlier_minutes(read(item.cpu)?, read(item.memory)?) {
            self.state.import_minute(&key, minute, &rollup);
        }
        self.state.end_import(id);
        Ok(())
    }

    fn subject(&mut self, item: &SubjectItem) -> Result<(), &'static str> {
        let key = Items::new(&item.key).subject().ok_or("a subject's name cannot be read")?;
        let hours = item.hours.iter().map(open_hour).collect::<Option<Vec<_>>>();
        let days = item.days.iter().map(|bytes| open_day(bytes)).collect::<Option<Vec<_>>>();
        let (hours, days) = hours.zip(days).ok_or("an unfinished hour or day cannot be read")?;
        let minute = self.state.clock.now();
        if let Some(id) = self.state.past.subject(key, origin_of(item.origin), minute) {
            self.state.past.restore_open(id, hours, days);
            if let Some(held) = self.state.past.get_mut(id) {
                held.since = item.since;
                held.peers = Peers::from_numbers(&item.peers).map(Box::new);
            }
        }
        Ok(())
    }
}

/// The node that brought something, as it is written plus one.
fn origin_of(written: u64) -> Option<u32> {
    written.checked_sub(1).and_then(|origin| u32::try_from(origin).ok())
}

/// Minutes of an earlier release, which kept each resource by itself and CPU in thousandths.
fn earlier_minutes(cpu: Vec<MinuteEntry>, memory: Vec<MinuteEntry>) -> Vec<(u32, Rollup)> {
    let whole = |e: &MinuteEntry, unit: u64| Aggregate {
        count: u64::from(e.count),
        sum: e.mean.saturating_mul(u64::from(e.count)).saturating_mul(unit),
        min: e.min.saturating_mul(unit),
        max: e.max.saturating_mul(unit),
    };
    let mut minutes: BTreeMap<u32, Rollup> = BTreeMap::new();
    for entry in cpu {
        minutes.entry(entry.minute).or_default().cpu_micro.merge(&whole(&entry, 1000));
    }
    for entry in memory {
        minutes.entry(entry.minute).or_default().memory_bytes.merge(&whole(&entry, 1));
    }
    for rollup in minutes.values_mut() {
        rollup.samples = rollup.cpu_micro.count.max(rollup.memory_bytes.count);
        rollup.time_usec = rollup.samples.saturating_mul(1_000_000);
    }
    minutes.into_iter().collect()
}

fn aggregate(numbers: &[u64]) -> Option<Aggregate> {
    let [count, sum, min, max] = *numbers else { return None };
    Some(Aggregate { count, sum, min, max })
}

fn in_micro(milli: Aggregate) -> Aggregate {
    if milli.count == 0 {
        return milli;
    }
    let micro = |value: u64| value.saturating_mul(1000);
    Aggregate { count: milli.count, sum: micro(milli.sum), min: micro(milli.min), max: micro(milli.max) }
}

impl ColumnItem {
    fn entries(self) -> Result<Vec<MinuteEntry>, &'static str> {
        let len = self.minutes.len();
        if [self.counts.len(), self.means.len(), self.below.len(), self.above.len()] != [len; 4] {
            return Err("the columns of a series differ in length");
        }
        let mut before = 0_i64;
        let mut entries = Vec::with_capacity(len);
        for (i, change) in self.minutes.iter().enumerate() {
            before = before.checked_add(*change).ok_or("a minute is out of range")?;
            let mean = self.means[i];
            entries.push(MinuteEntry {
                minute: u32::try_from(before).map_err(|_| "a minute is out of range")?,
                count: self.counts[i],
                mean,
                min: mean.saturating_sub(self.below[i]),
                max: mean.saturating_add(self.above[i]),
            });
        }
        Ok(entries)
    }
}
