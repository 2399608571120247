//! Owns the items of a checkpoint and their translation to and from the state.

use evenkeel_model::rollup::{Aggregate, Rollup};
use evenkeel_proto::v1;
use prost::Message;

use crate::ingest::record::Key;
use crate::state::history::{History, Requested, SeriesKey};
use crate::state::image::Image;
use crate::state::minute::Entry;
use crate::state::slots::Slot;
use crate::state::stream::{Node, NodeKey, Stream};
use crate::state::{Counters, Event, PanicSwitch, RestoredSlot, State};

/// One item; a checkpoint is a sequence of them. A slot belongs to the stream before it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Item {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Meta(MetaItem),
    #[prost(message, tag = "2")]
    Node(NodeItem),
    #[prost(message, tag = "3")]
    Stream(StreamItem),
    #[prost(message, tag = "4")]
    Slot(SlotItem),
    #[prost(message, tag = "5")]
    Series(SeriesItem),
    #[prost(message, tag = "6")]
    Event(EventItem),
    #[prost(message, tag = "7")]
    Repeats(RepeatsItem),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetaItem {
    /// Last record of the log in the checkpoint.
    #[prost(uint64, tag = "1")]
    applied: u64,
    #[prost(bool, tag = "2")]
    panic_on: bool,
    #[prost(string, tag = "3")]
    panic_reason: String,
    #[prost(uint64, tag = "4")]
    panic_since_usec: u64,
    /// In the order of the fields of `Counters`, then what the history dropped: entries, series.
    #[prost(uint64, repeated, tag = "5")]
    counters: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeItem {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(string, tag = "2")]
    node: String,
    #[prost(string, tag = "3")]
    version: String,
    #[prost(message, optional, tag = "4")]
    facts: Option<v1::NodeFacts>,
    #[prost(fixed64, tag = "5")]
    epoch: u64,
    #[prost(uint64, tag = "6")]
    newest_usec: u64,
    #[prost(uint64, tag = "7")]
    last_seen_usec: u64,
    #[prost(uint64, tag = "8")]
    frames: u64,
    #[prost(uint64, tag = "9")]
    samples: u64,
    #[prost(uint64, tag = "10")]
    gaps: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamItem {
    #[prost(message, required, tag = "1")]
    key: Key,
    #[prost(uint64, tag = "2")]
    last: u64,
    #[prost(uint64, tag = "3")]
    last_seen_usec: u64,
    /// Memory of the codec, absent while it waits for a key frame.
    #[prost(bytes = "vec", optional, tag = "4")]
    decoder: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SlotItem {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(message, required, tag = "2")]
    identity: v1::ContainerIdentity,
    #[prost(message, optional, tag = "3")]
    open: Option<RollupItem>,
    #[prost(uint64, tag = "4")]
    samples: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RollupItem {
    #[prost(uint32, tag = "1")]
    minute: u32,
    #[prost(uint64, tag = "2")]
    samples: u64,
    /// Count, sum, least, greatest; as earlier releases wrote them, in thousandths of a core.
    #[prost(uint64, repeated, tag = "3")]
    cpu_milli: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    memory: Vec<u64>,
    #[prost(uint64, tag = "5")]
    throttled_usec: u64,
    #[prost(uint64, tag = "6")]
    oom_kills: u64,
    /// The same as `cpu_milli` in millionths of a core, which earlier releases did not know.
    #[prost(uint64, repeated, tag = "7")]
    cpu_micro: Vec<u64>,
    #[prost(uint64, tag = "8")]
    time_usec: u64,
    #[prost(uint64, tag = "9")]
    starved_usec: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SeriesItem {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    workload: String,
    #[prost(string, tag = "4")]
    container: String,
    #[prost(string, optional, tag = "5")]
    image: Option<String>,
    #[prost(string, optional, tag = "6")]
    image_tag: Option<String>,
    #[prost(uint64, optional, tag = "7")]
    cpu_request: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    memory_request: Option<u64>,
    #[prost(uint32, tag = "9")]
    newest: u32,
    #[prost(message, required, tag = "10")]
    cpu: ColumnItem,
    #[prost(message, required, tag = "11")]
    memory: ColumnItem,
}

/// Entries column by column: changes of the minute, counts, means, and the distances of least and greatest from the mean.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ColumnItem {
    #[prost(sint64, repeated, tag = "1")]
    minutes: Vec<i64>,
    #[prost(uint32, repeated, tag = "2")]
    counts: Vec<u32>,
    #[prost(uint64, repeated, tag = "3")]
    means: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    below: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    above: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventItem {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(string, tag = "2")]
    node: String,
    #[prost(message, required, tag = "3")]
    decision: v1::Decision,
}

/// Decisions of a node that may be sent again: epoch and number in turn.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RepeatsItem {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(string, tag = "2")]
    node: String,
    #[prost(fixed64, repeated, tag = "3")]
    epochs: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    seqs: Vec<u64>,
}

/// Calls `write` with every item of the state, in the order reading needs.
pub(super) fn export(state: &State, mut write: impl FnMut(Kind)) {
    write(Kind::Meta(meta(state)));
    for (key, node) in &state.nodes {
        write(Kind::Node(node_item(key, node)));
    }
    for (_, series) in state.history.all() {
        write(Kind::Series(SeriesItem {
            cluster: series.key.cluster.clone(),
            namespace: series.key.namespace.clone(),
            workload: series.key.workload.clone(),
            container: series.key.container.clone(),
            image: series.key.image.as_ref().map(|i| i.name.clone()),
            image_tag: series.key.image.as_ref().map(|i| i.tag.clone()),
            cpu_request: series.requested.cpu_milli,
            memory_request: series.requested.memory_bytes,
            newest: series.newest,
            cpu: ColumnItem::of(series.cpu.iter()),
            memory: ColumnItem::of(series.memory.iter()),
        }));
    }
    for stream in state.streams.values() {
        write(Kind::Stream(stream_item(stream)));
        for slot in stream.slots.iter() {
            write(Kind::Slot(slot_item(slot)));
        }
    }
    for Event { node, decision } in &state.events {
        let (cluster, node) = (node.cluster.clone(), node.node.clone());
        write(Kind::Event(EventItem { cluster, node, decision: decision.clone() }));
    }
    for (node, ids) in state.repeats.all() {
        let (cluster, node) = (node.cluster.clone(), node.node.clone());
        let (epochs, seqs) = ids.iter().copied().unzip();
        write(Kind::Repeats(RepeatsItem { cluster, node, epochs, seqs }));
    }
}

fn meta(state: &State) -> MetaItem {
    let c = &state.counters;
    let (_, dropped, dropped_series) = state.history.counts();
    MetaItem {
        applied: state.applied,
        panic_on: state.panic.on,
        panic_reason: state.panic.reason.clone(),
        panic_since_usec: state.panic.since_usec,
        counters: vec![
            c.frames,
            c.samples,
            c.unreadable,
            c.unannounced,
            c.misdated,
            c.lost,
            c.refused_containers,
            c.forgotten,
            dropped,
            dropped_series,
        ],
    }
}

fn node_item(key: &NodeKey, node: &Node) -> NodeItem {
    NodeItem {
        cluster: key.cluster.clone(),
        node: key.node.clone(),
        version: node.version.clone(),
        facts: node.facts,
        epoch: node.epoch,
        newest_usec: node.newest_usec,
        last_seen_usec: node.last_seen_usec,
        frames: node.frames,
        samples: node.samples,
        gaps: node.gaps,
    }
}

fn stream_item(stream: &Stream) -> StreamItem {
    StreamItem {
        key: stream.key.clone(),
        last: stream.position.last,
        last_seen_usec: stream.last_seen_usec,
        decoder: stream.decoder.snapshot(),
    }
}

fn slot_item(slot: &Slot) -> SlotItem {
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
    SlotItem { number: slot.number, identity: (*slot.identity).clone(), open, samples: slot.samples }
}

/// Puts items back into an empty state.
pub(super) struct Importer<'a> {
    state: &'a mut State,
    stream: Option<(u64, Key)>,
}

impl<'a> Importer<'a> {
    pub(super) fn new(state: &'a mut State) -> Self {
        Self { state, stream: None }
    }

    /// Takes one item; what is wrong with it otherwise.
    pub(super) fn take(&mut self, kind: Kind) -> Result<(), &'static str> {
        match kind {
            Kind::Meta(item) => self.meta(item),
            Kind::Node(item) => self.node(item),
            Kind::Stream(item) => return self.stream(item),
            Kind::Slot(item) => return self.slot(item),
            Kind::Series(item) => return self.series(item),
            Kind::Event(EventItem { cluster, node, decision }) => {
                self.state.events.push_back(Event { node: NodeKey { cluster, node }, decision });
            }
            Kind::Repeats(RepeatsItem { cluster, node, epochs, seqs }) => {
                let node = NodeKey { cluster, node };
                for (epoch, seq) in epochs.into_iter().zip(seqs) {
                    self.state.repeats.is_first(&node, epoch, seq);
                }
            }
        }
        Ok(())
    }

    fn meta(&mut self, item: MetaItem) {
        self.state.applied = item.applied;
        self.state.panic =
            PanicSwitch { on: item.panic_on, reason: item.panic_reason, since_usec: item.panic_since_usec };
        let mut counters = item.counters.into_iter();
        let mut next = || counters.next().unwrap_or(0);
        self.state.counters = Counters {
            frames: next(),
            samples: next(),
            unreadable: next(),
            unannounced: next(),
            misdated: next(),
            lost: next(),
            refused_containers: next(),
            forgotten: next(),
        };
        let (entries, series) = (next(), next());
        self.state.history.set_dropped(entries, series);
    }

    fn node(&mut self, item: NodeItem) {
        let key = NodeKey { cluster: item.cluster, node: item.node };
        let node = Node {
            version: item.version,
            facts: item.facts,
            epoch: item.epoch,
            newest_usec: item.newest_usec,
            last_seen_usec: item.last_seen_usec,
            frames: item.frames,
            samples: item.samples,
            gaps: item.gaps,
        };
        self.state.nodes.insert(key, node);
    }

    fn stream(&mut self, item: StreamItem) -> Result<(), &'static str> {
        let id = self.state.stream_id(&item.key);
        let stream = self.state.streams.get_mut(&id).ok_or("a stream cannot be made")?;
        stream.position.last = item.last;
        stream.last_seen_usec = item.last_seen_usec;
        if let Some(bytes) = item.decoder {
            stream.decoder.decode(&bytes, &mut ()).map_err(|_| "a codec's memory cannot be read")?;
        }
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
        let restored =
            RestoredSlot { number: item.number, identity: item.identity, open, samples: item.samples };
        self.state.restore_slot(*id, key, restored);
        Ok(())
    }

    fn series(&mut self, item: SeriesItem) -> Result<(), &'static str> {
        let key = SeriesKey {
            cluster: item.cluster,
            namespace: item.namespace,
            workload: item.workload,
            container: item.container,
            image: item.image.zip(item.image_tag).map(|(name, tag)| Image { name, tag }),
        };
        let id = self.state.history.series(&key);
        let (cpu, memory) = (item.cpu.entries()?, item.memory.entries()?);
        self.state.history.restore(id, cpu, memory);
        if let Some(series) = self.state.history.get_mut(id) {
            series.newest = item.newest;
            series.requested = Requested { cpu_milli: item.cpu_request, memory_bytes: item.memory_request };
        }
        Ok(())
    }
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
    fn of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let mut column = Self::default();
        let mut before = 0;
        for entry in entries {
            let minute = i64::from(entry.minute);
            column.minutes.push(minute - before);
            before = minute;
            column.counts.push(entry.count);
            column.means.push(entry.mean);
            column.below.push(entry.mean.saturating_sub(entry.min));
            column.above.push(entry.max.saturating_sub(entry.mean));
        }
        column
    }

    fn entries(self) -> Result<Vec<Entry>, &'static str> {
        let len = self.minutes.len();
        if [self.counts.len(), self.means.len(), self.below.len(), self.above.len()] != [len; 4] {
            return Err("the columns of a series differ in length");
        }
        let mut before = 0_i64;
        let mut entries = Vec::with_capacity(len);
        for (i, change) in self.minutes.iter().enumerate() {
            before = before.checked_add(*change).ok_or("a minute is out of range")?;
            let mean = self.means[i];
            entries.push(Entry {
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
