//! The section `[capacity]`: limits of questions, what is taken off nodes, and questions asked again and again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Size, Span};

/// How many more pods fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySection {
    /// Threads that answer; questions never take more of the machine than these.
    pub workers: usize,
    /// Questions that may wait for a thread; one more is refused with 429 (HTTP) or `RESOURCE_EXHAUSTED`.
    pub queue: usize,
    /// A question that takes longer, waiting and reading included, is given up.
    pub timeout: Span,
    /// Largest question, its snapshot included.
    pub max_snapshot: Size,
    /// Pods a node known only from its agent takes.
    pub node_pods: u64,
    /// CPU of such a node that is not for pods, thousandths of a core.
    pub reserve_cpu_milli: u64,
    /// Memory of such a node that is not for pods, besides `eviction_memory`.
    pub reserve_memory: Size,
    /// Memory a kubelet keeps available: not for pods, and with less the node is under pressure.
    pub eviction_memory: Size,
    /// Processes and threads of a node's containers above which its kubelet would report PID pressure: the limit of
    /// processes less `pid.available` of its thresholds. Without it there is no such pressure.
    pub most_processes: Option<u64>,
    /// The former name of `objects`.
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub objects: Vec<PathBuf>,
    /// Answers kept of each watched question; the oldest goes when there are more.
    pub points: usize,
    /// How far back the trend looks.
    pub trend_window: Span,
    /// Questions asked again and again.
    pub watch: Vec<WatchSection>,
}

/// A question asked again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchSection {
    /// Name, as metrics show it.
    pub name: String,
    /// File with the pod (or what makes pods), read again each time.
    pub pod: PathBuf,
    /// Time between two answers.
    pub interval: Span,
}

impl Default for CapacitySection {
    fn default() -> Self {
        Self {
            // The least machine this runs on has two cores; ingest keeps one.
            workers: 1,
            queue: 4,
            timeout: Span::from_secs(60),
            // 5,000 nodes and 150,000 pods are some hundred MB of JSON.
            max_snapshot: Size::from_mib(1024),
            // kubelet's default of maxPods.
            node_pods: 110,
            reserve_cpu_milli: 0,
            reserve_memory: Size::from_bytes(0),
            // kubelet's default of evictionHard, memory.available < 100Mi.
            eviction_memory: Size::from_mib(100),
            // kubelet's default of evictionHard has no pid.available.
            most_processes: None,
            objects: Vec::new(),
            // A week of one answer in five minutes.
            points: 2016,
            trend_window: Span::from_days(7),
            watch: Vec::new(),
        }
    }
}

impl CapacitySection {
    /// What contradicts itself or lies outside what works.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        const WATCHES: usize = 100;
        let names: BTreeSet<&str> = self.watch.iter().map(|watch| watch.name.as_str()).collect();
        let table = [
            ((1..=64).contains(&self.workers), "capacity.workers", "must be 1 to 64"),
            (self.queue <= 1000, "capacity.queue", "must be at most 1000"),
            (self.timeout.get().as_millis() > 0, "capacity.timeout", "must not be 0"),
            (self.max_snapshot.get() >= 1 << 16, "capacity.max_snapshot", "must be at least 64Ki"),
            ((3..=100_000).contains(&self.points), "capacity.points", "must be 3 to 100000"),
            (self.watch.len() <= WATCHES, "capacity.watch", "must be at most 100 questions"),
            (names.len() == self.watch.len(), "capacity.watch", "names a question twice"),
            (
                names.iter().all(|name| is_name(name)),
                "capacity.watch",
                "names must be 1 to 63 of a-z, 0-9 and -",
            ),
            (
                self.watch.iter().all(|watch| watch.interval.get().as_secs() > 0),
                "capacity.watch",
                "intervals must be at least 1s",
            ),
        ];
        table.into_iter().filter(|(ok, _, _)| !ok).map(|(_, key, what)| (key, what.to_owned())).collect()
    }
}

fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
