//! Owns the items of a checkpoint as they are written: a field's number keeps its meaning for good.

use crate::key::StreamKey;
use evenkeel_proto::v1;
use prost::Message;

/// One item; a checkpoint is a sequence of them. A slot belongs to the stream before it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Item {
    #[prost(oneof = "ItemKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
    pub(super) kind: Option<ItemKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ItemKind {
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
    #[prost(message, tag = "8")]
    Files(FilesItem),
    #[prost(message, tag = "9")]
    Subject(SubjectItem),
    #[prost(message, tag = "10")]
    Kill(KillItem),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetaItem {
    /// Last record of the log in the checkpoint.
    #[prost(uint64, tag = "1")]
    pub(super) applied: u64,
    #[prost(bool, tag = "2")]
    pub(super) panic_on: bool,
    #[prost(string, tag = "3")]
    pub(super) panic_reason: String,
    #[prost(uint64, tag = "4")]
    pub(super) panic_since_usec: u64,
    /// In the order of the fields of `Counters`, then what the history dropped: entries, series.
    #[prost(uint64, repeated, tag = "5")]
    pub(super) counters: Vec<u64>,
    /// What time it is, minutes since 1970; of earlier releases the latest reception.
    #[prost(uint32, tag = "6")]
    pub(super) clock_minute: u32,
    /// What is believed of it; absent in earlier releases.
    #[prost(message, optional, tag = "7")]
    pub(super) clock: Option<ClockItem>,
    /// With the panic switch on: running containers get back what was asked for; absent in earlier releases.
    #[prost(bool, tag = "8")]
    pub(super) panic_revert: bool,
    /// OOM kills that were counted until this minute since 1970 may be forgotten.
    #[prost(uint32, tag = "9")]
    pub(super) kills_forgotten: u32,
}

/// How far the clock is believed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ClockItem {
    /// The time by which history expires, minutes since 1970.
    #[prost(uint32, tag = "1")]
    pub(super) settled_minute: u32,
    /// For how long the time has been ahead of that.
    #[prost(uint64, tag = "2")]
    pub(super) lasted_usec: u64,
    /// Own clock at the last record.
    #[prost(uint64, tag = "3")]
    pub(super) received_usec: u64,
    /// Nodes heard last: number, reception, sample, whether it catches up (1) and is steady (2); four for each.
    #[prost(uint64, repeated, tag = "4")]
    pub(super) panel: Vec<u64>,
    /// Minutes in which records came.
    #[prost(uint32, tag = "5")]
    pub(super) listened: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeItem {
    #[prost(string, tag = "1")]
    pub(super) cluster: String,
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(string, tag = "3")]
    pub(super) version: String,
    #[prost(message, optional, tag = "4")]
    pub(super) facts: Option<v1::NodeFacts>,
    #[prost(fixed64, tag = "5")]
    pub(super) epoch: u64,
    #[prost(uint64, tag = "6")]
    pub(super) newest_usec: u64,
    #[prost(uint64, tag = "7")]
    pub(super) last_seen_usec: u64,
    #[prost(uint64, tag = "8")]
    pub(super) frames: u64,
    #[prost(uint64, tag = "9")]
    pub(super) samples: u64,
    #[prost(uint64, tag = "10")]
    pub(super) gaps: u64,
    #[prost(uint64, tag = "11")]
    pub(super) refused: u64,
    #[prost(int64, tag = "12")]
    pub(super) behind_usec: i64,
    /// New names used up, and the minute of that.
    #[prost(uint32, tag = "13")]
    pub(super) names_used: u32,
    #[prost(uint32, tag = "14")]
    pub(super) names_minute: u32,
    /// Kills counted in an hour, and which.
    #[prost(uint32, tag = "15")]
    pub(super) kills: u32,
    #[prost(uint32, tag = "16")]
    pub(super) kills_hour: u32,
    /// The same of all decisions.
    #[prost(uint32, tag = "17")]
    pub(super) told: u32,
    #[prost(uint32, tag = "18")]
    pub(super) told_hour: u32,
    /// What it said and was not taken in, by reason.
    #[prost(uint64, repeated, tag = "19")]
    pub(super) dropped: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamItem {
    #[prost(message, required, tag = "1")]
    pub(super) key: StreamKey,
    #[prost(uint64, tag = "2")]
    pub(super) last: u64,
    #[prost(uint64, tag = "3")]
    pub(super) last_seen_usec: u64,
    /// Memory of the codec, absent while it waits for a key frame.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) decoder: Option<Vec<u8>>,
    /// Time of its first samples; absent in earlier releases.
    #[prost(uint64, tag = "5")]
    pub(super) began_usec: u64,
    /// For how many of the minutes in which records came it has been silent.
    #[prost(uint32, tag = "6")]
    pub(super) silent: u32,
    /// The identity that opened it; empty in earlier releases.
    #[prost(string, tag = "7")]
    pub(super) owner: String,
    /// Containers that are set aside.
    #[prost(message, repeated, tag = "8")]
    pub(super) aside: Vec<AsideItem>,
    /// Time of the newest frame with samples; absent in earlier releases.
    #[prost(uint64, tag = "9")]
    pub(super) told_usec: u64,
}

/// A container whose pod the API of its cluster does not place on its node.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AsideItem {
    #[prost(uint32, tag = "1")]
    pub(super) slot: u32,
    #[prost(message, required, tag = "2")]
    pub(super) identity: v1::ContainerIdentity,
    #[prost(uint64, tag = "3")]
    pub(super) since_usec: u64,
    #[prost(bool, tag = "4")]
    pub(super) is_elsewhere: bool,
    /// It was seen to begin; absent in earlier releases.
    #[prost(bool, tag = "5")]
    pub(super) is_new: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SlotItem {
    #[prost(uint32, tag = "1")]
    pub(super) number: u32,
    #[prost(message, required, tag = "2")]
    pub(super) identity: v1::ContainerIdentity,
    #[prost(message, optional, tag = "3")]
    pub(super) open: Option<RollupItem>,
    #[prost(uint64, tag = "4")]
    pub(super) samples: u64,
    /// The last seconds.
    #[prost(bytes = "vec", tag = "5")]
    pub(super) seconds: Vec<u8>,
    /// The unfinished hour: its number, starved milliseconds, heights of CPU and of memory.
    #[prost(bytes = "vec", tag = "6")]
    pub(super) hour: Vec<u8>,
    /// Minutes of the unfinished hour, in the order of time.
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub(super) minutes: Vec<Vec<u8>>,
    #[prost(uint32, tag = "8")]
    pub(super) minutes_hour: u32,
    /// What of its use counts, CPU and memory; nothing where it is unbounded, one number where it is no history.
    #[prost(uint64, repeated, tag = "9")]
    pub(super) caps: Vec<u64>,
    /// What its node calls the workload, where the API of the cluster calls it something else.
    #[prost(string, optional, tag = "10")]
    pub(super) reported: Option<String>,
    /// Its start: what of it was seen, since when, and milliseconds held down that were not folded; absent in earlier releases, and where
    /// it was not seen.
    #[prost(uint64, repeated, tag = "11")]
    pub(super) start: Vec<u64>,
}

/// Lengths of the history's files.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FilesItem {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) days: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) kinds: Vec<u32>,
    #[prost(uint64, repeated, tag = "3")]
    pub(super) lengths: Vec<u64>,
}

impl FilesItem {
    pub(super) fn of(files: &[(u32, u32, u64)]) -> Self {
        Self {
            days: files.iter().map(|f| f.0).collect(),
            kinds: files.iter().map(|f| f.1).collect(),
            lengths: files.iter().map(|f| f.2).collect(),
        }
    }

    /// Day, kind and length of each.
    pub(super) fn list(self) -> Vec<(u32, u32, u64)> {
        let files = self.days.into_iter().zip(self.kinds).zip(self.lengths);
        files.map(|((day, kind), length)| (day, kind, length)).collect()
    }
}

/// What is open of a subject, and since when it is known.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SubjectItem {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// Hour, touched, peaks; heights of both resources.
    #[prost(message, repeated, tag = "2")]
    pub(super) hours: Vec<OpenHourItem>,
    /// Day, touched, peaks; heights and minutes of both resources.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(super) days: Vec<Vec<u8>>,
    /// Its first minute since 1970, which earlier releases did not know.
    #[prost(uint32, optional, tag = "4")]
    pub(super) since: Option<u32>,
    /// Number of the node that brought it, plus one.
    #[prost(uint64, tag = "5")]
    pub(super) origin: u64,
    /// What nodes told of it lately; absent in earlier releases.
    #[prost(uint64, repeated, tag = "6")]
    pub(super) peers: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OpenHourItem {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) open: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(super) replicas: Vec<Vec<u8>>,
    /// Heights of CPU of starts; absent in earlier releases.
    #[prost(bytes = "vec", tag = "3")]
    pub(super) start: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RollupItem {
    #[prost(uint32, tag = "1")]
    pub(super) minute: u32,
    #[prost(uint64, tag = "2")]
    pub(super) samples: u64,
    /// Count, sum, least, greatest; as earlier releases wrote them, in thousandths of a core.
    #[prost(uint64, repeated, tag = "3")]
    pub(super) cpu_milli: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) memory: Vec<u64>,
    #[prost(uint64, tag = "5")]
    pub(super) throttled_usec: u64,
    #[prost(uint64, tag = "6")]
    pub(super) oom_kills: u64,
    /// The same as `cpu_milli` in millionths of a core, which earlier releases did not know.
    #[prost(uint64, repeated, tag = "7")]
    pub(super) cpu_micro: Vec<u64>,
    #[prost(uint64, tag = "8")]
    pub(super) time_usec: u64,
    #[prost(uint64, tag = "9")]
    pub(super) starved_usec: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SeriesItem {
    #[prost(string, tag = "1")]
    pub(super) cluster: String,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    #[prost(string, tag = "3")]
    pub(super) workload: String,
    #[prost(string, tag = "4")]
    pub(super) container: String,
    #[prost(string, optional, tag = "5")]
    pub(super) image: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) image_tag: Option<String>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) cpu_request: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) memory_request: Option<u64>,
    #[prost(uint32, tag = "9")]
    pub(super) newest: u32,
    /// Minutes, of earlier releases.
    #[prost(message, optional, tag = "10")]
    pub(super) cpu: Option<ColumnItem>,
    #[prost(message, optional, tag = "11")]
    pub(super) memory: Option<ColumnItem>,
    /// Number of the node that brought it, plus one.
    #[prost(uint64, tag = "12")]
    pub(super) origin: u64,
    /// A container of it runs; earlier releases did not say.
    #[prost(bool, tag = "13")]
    pub(super) followed: bool,
}

/// Entries column by column: changes of the minute, counts, means, and the distances of least and greatest from the mean.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ColumnItem {
    #[prost(sint64, repeated, tag = "1")]
    pub(super) minutes: Vec<i64>,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) counts: Vec<u32>,
    #[prost(uint64, repeated, tag = "3")]
    pub(super) means: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) below: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) above: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventItem {
    #[prost(string, tag = "1")]
    pub(super) cluster: String,
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(message, required, tag = "3")]
    pub(super) decision: v1::Decision,
}

/// Decisions of a node that may be sent again: epoch and number in turn.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RepeatsItem {
    #[prost(string, tag = "1")]
    pub(super) cluster: String,
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(fixed64, repeated, tag = "3")]
    pub(super) epochs: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) seqs: Vec<u64>,
}

/// An OOM kill that was counted.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KillItem {
    #[prost(string, tag = "1")]
    pub(super) cluster: String,
    /// `namespace/pod/container`.
    #[prost(string, tag = "2")]
    pub(super) container: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(uint64, tag = "4")]
    pub(super) time_usec: u64,
    #[prost(uint32, tag = "5")]
    pub(super) minute: u32,
    #[prost(bool, tag = "6")]
    pub(super) by_kubelet: bool,
}
