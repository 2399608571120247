//! Owns the sections of the configuration that say what is kept and what agents may send: their values, defaults (each in one
//! place, with unit and origin) and checks; the engines outside in `engine.rs`. Not owned: where the values come from.

mod engine;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use engine::{EngineKind, EngineSection, HeaderValue, SecretFrom};
pub use evenkeel_settings::{Size, Span};

/// What a store is opened with.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Directory of everything kept.
    pub state_dir: PathBuf,
    /// The ingest log and its checkpoints.
    pub log: LogSection,
    /// What agents may send.
    pub ingest: Ingest,
    /// How many things are known at once.
    pub history: HistorySection,
    /// How long the past is kept, and in how much room.
    pub retention: Retention,
}

/// The ingest log and its checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// Size of a segment, the grain of trimming.
    pub segment_bytes: Size,
    /// Bound on the whole log. When it is reached, nothing is acknowledged until a checkpoint frees space.
    pub max_bytes: Size,
    /// Longest time between data written and its fdatasync begun; at most 200ms, so that no acknowledgement waits
    /// longer.
    pub sync_interval: Span,
    /// A checkpoint is written at least this often while data arrives.
    pub checkpoint_interval: Span,
    /// A checkpoint is written when the log has grown this much since the last one; bounds the replay at start.
    pub checkpoint_bytes: Size,
}

/// What agents may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ingest {
    /// Frames a client may have unacknowledged.
    pub credits: u32,
    /// Largest gRPC message; a frame must fit into one.
    pub max_message: Size,
    /// Open ingest connections; one more is refused.
    pub max_streams: usize,
    /// Known (cluster, node, epoch) streams; when one more appears, the one idle longest is forgotten.
    pub max_epochs: usize,
    /// Containers that run at once over all nodes; announcements beyond are counted and not followed.
    pub max_containers: usize,
    /// Containers of one node at once; announcements beyond are counted (`refused_containers`) and not followed. Also the
    /// series a node may bring before its new names only take the places of its own.
    pub max_containers_per_node: usize,
    /// Names of workloads' containers, never seen before, that a node may bring in a minute beyond as many as it may have
    /// containers at once; further ones are counted (`refused_containers`) and not followed.
    pub max_names_per_minute: u32,
    /// Kills and evictions of one node's containers that are history in an hour; further ones are counted and told.
    pub max_kills_per_hour: u32,
    /// What is durable is acknowledged once it is counted as well, or after so long where very much is to be counted, as at
    /// the turn of an hour.
    pub count_within: Span,
    /// Bytes of frames of one node that are read in a minute; what it sends beyond waits at the node (`held_streams`).
    pub max_bytes_per_minute: Size,
    /// A node that has been silent this long while others were heard is gone: its containers are no replicas, in no sum
    /// and do not count towards `max_containers`, until it is heard again. Its history stays. Capacity questions that are
    /// watched wait at most so long after a start for the nodes known before.
    pub gone_after: Span,
    /// Containers and codec state of a stream that has been silent this long are dropped; its position is kept, so that
    /// a late repetition is still recognised.
    pub forget_after: Span,
}

/// How long the past is kept, and in how much room. Whole days are dropped, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Minutes of containers and hours of workloads, in whole days.
    pub hours: Span,
    /// Days of workloads, commands and images, in whole days.
    pub days: Span,
    /// Bytes of all of it on disk; beyond it the oldest day goes before its time. The newest day always stays.
    pub bytes: Size,
}

/// How many things are known at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistorySection {
    /// Workload containers (by image) known at once; those silent longest are dropped beyond it.
    pub max_series: usize,
    /// Decisions kept.
    pub max_events: usize,
    /// How long a container starts: what it uses of the CPU in this time after it began is known apart, and does not count where its policy
    /// gives starts more (`startupBoost`). 0s tells nothing apart.
    pub start: Span,
    /// Engines outside that keep the history too, and give back what is missing here.
    #[serde(default)]
    pub engines: Vec<EngineSection>,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            segment_bytes: Size::from_mib(32),
            max_bytes: Size::from_mib(2048),
            // With the time of the sync itself, this keeps the whole wait below 200 ms on an ordinary disk.
            sync_interval: Span::from_millis(150),
            checkpoint_interval: Span::from_secs(60),
            checkpoint_bytes: Size::from_mib(128),
        }
    }
}

impl Default for Ingest {
    fn default() -> Self {
        Self {
            // A minute of one-second frames.
            credits: 64,
            max_message: Size::from_mib(4),
            // Twice the nodes of the largest cluster Kubernetes supports (5,000).
            max_streams: 10_000,
            max_epochs: 50_000,
            // Kubernetes supports 300,000 containers in a cluster.
            max_containers: 500_000,
            // Kubernetes tests 110 pods a node and large providers allow 1,000; up to four containers each.
            max_containers_per_node: 4_000,
            // A fifth more than a node whose containers change 100 times a second, each of a workload of its own.
            max_names_per_minute: 7_200,
            // One each seven seconds: containers that are killed are started again ever more slowly.
            max_kills_per_hour: 500,
            count_within: Span::from_millis(100),
            // A node of 1,000 containers sends 5 MiB a minute, and catches up with a day within a quarter of an hour.
            max_bytes_per_minute: Size::from_mib(512),
            // A node controller waits 40 s, and pods tolerate an unreachable node for 300 s: then they are made elsewhere.
            gone_after: Span::from_secs(300),
            forget_after: Span::from_days(2),
        }
    }
}

impl Default for HistorySection {
    fn default() -> Self {
        Self {
            max_series: 200_000,
            max_events: 10_000,
            // As long as `startupBoost` lasts at most where a policy says no other time.
            start: Span::from_secs(300),
            engines: Vec::new(),
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            // The windows of `vpa` and `goal` are 8 days; a day goes as a whole, so one more.
            hours: Span::from_days(9),
            // The longest window of the `initial` rule is 30 days.
            days: Span::from_days(35),
            // A busy container-day takes at most 40 KiB: 9 days of 50,000 of them.
            bytes: Size::from_mib(16 << 10),
        }
    }
}

impl Settings {
    /// Everything by default, in this directory.
    pub fn at(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            log: LogSection::default(),
            ingest: Ingest::default(),
            history: HistorySection::default(),
            retention: Retention::default(),
        }
    }

    /// What contradicts itself or lies outside what works: key, and what is wrong with it. Empty when all is well.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |ok: bool, key, what: &str| {
            if !ok {
                found.push((key, what.to_owned()));
            }
        };
        let log = &self.log;
        check(log.segment_bytes.get() >= 1 << 16, "log.segment_bytes", "must be at least 64Ki");
        check(
            log.max_bytes.get() / 2 >= log.segment_bytes.get(),
            "log.max_bytes",
            "must be at least twice log.segment_bytes",
        );
        check(
            log.max_bytes.get() / 4 >= self.ingest.max_message.get(),
            "log.max_bytes",
            "must be at least four times ingest.max_message",
        );
        check(
            (1..=200).contains(&log.sync_interval.get().as_millis()),
            "log.sync_interval",
            "must be 1ms to 200ms: acknowledgements wait for it",
        );
        check(
            self.ingest.count_within.get().as_secs() <= 60,
            "ingest.count_within",
            "must be at most 60s: acknowledgements wait for it",
        );
        check(log.checkpoint_interval.get().as_secs() > 0, "log.checkpoint_interval", "must be at least 1s");
        check(
            log.checkpoint_bytes.get() <= log.max_bytes.get() / 2,
            "log.checkpoint_bytes",
            "must be at most half of log.max_bytes",
        );
        check((1..=100_000).contains(&self.ingest.credits), "ingest.credits", "must be 1 to 100000");
        check(
            (1 << 16..=48 << 20).contains(&self.ingest.max_message.get()),
            "ingest.max_message",
            "must be 64Ki to 48Mi",
        );
        check(self.ingest.max_streams > 0, "ingest.max_streams", "must not be 0");
        check(self.ingest.max_epochs > 0, "ingest.max_epochs", "must not be 0");
        check(self.ingest.max_containers_per_node > 0, "ingest.max_containers_per_node", "must not be 0");
        check(self.ingest.max_names_per_minute > 0, "ingest.max_names_per_minute", "must not be 0");
        check(
            self.ingest.max_bytes_per_minute.get() >= self.ingest.max_message.get(),
            "ingest.max_bytes_per_minute",
            "must be at least ingest.max_message",
        );
        check(
            self.ingest.gone_after.minutes() > 0
                && self.ingest.gone_after.get() <= self.ingest.forget_after.get(),
            "ingest.gone_after",
            "must be at least 1m and at most ingest.forget_after",
        );
        check(self.retention.hours.days() > 0, "retention.hours", "must be at least 1d");
        check(
            self.retention.days.days() >= self.retention.hours.days(),
            "retention.days",
            "must be at least retention.hours",
        );
        check(self.retention.bytes.get() >= 1 << 20, "retention.bytes", "must be at least 1Mi");
        check(self.history.max_series > 0, "history.max_series", "must not be 0");
        check(self.history.start.get().as_secs() <= 3600, "history.start", "must be at most 1h");
        found.extend(self.history.engines.iter().flat_map(EngineSection::problems));
        found
    }

    /// Directory of the ingest log.
    pub fn log_dir(&self) -> PathBuf {
        self.state_dir.join("log")
    }

    /// Directory of the sealed history.
    pub fn history_dir(&self) -> PathBuf {
        self.state_dir.join("history")
    }

    /// The checkpoint file.
    pub fn checkpoint_file(&self) -> PathBuf {
        self.state_dir.join("checkpoint")
    }
}
