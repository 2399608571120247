//! Nodes, namespaces, what was decided on them, and what fits.

use std::collections::BTreeMap;

use evenkeel_proto::v1;
use serde::Serialize;
use utoipa::ToSchema;

use super::{filled, time};
use crate::capacity::watch::{MissingAnswer, WatchedQuestion};

/// A node whose agent has reported.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Node)]
pub(crate) struct NodeAnswer {
    cluster: String,
    name: String,
    /// Of its agent.
    version: String,
    connected: bool,
    #[schema(format = DateTime)]
    last_seen: Option<String>,
    containers: u32,
    memory_bytes: Option<u64>,
    cpu_milli: Option<u64>,
    frames: u64,
    samples: u64,
    /// Sequence numbers known to be missing.
    gaps: u64,
    /// Silent for ingest.gone_after while others were heard: its containers do not count.
    gone: bool,
    /// Announced and not followed: too many, or too many new names.
    refused_containers: u64,
    /// By how much its clock was behind the recommender's at its last frame; negative = ahead.
    clock_behind_seconds: f64,
    /// What it said and was not taken in.
    dropped: Vec<DroppedAnswer>,
    allocated: Option<AllocatedAnswer>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dropped)]
struct DroppedAnswer {
    reason: String,
    count: u64,
    remedy: String,
}

impl From<v1::Node> for NodeAnswer {
    fn from(node: v1::Node) -> Self {
        let dropped = node.dropped.into_iter().map(|d| DroppedAnswer {
            reason: d.reason,
            count: d.count,
            remedy: d.remedy,
        });
        Self {
            cluster: node.cluster,
            name: node.name,
            version: node.version,
            connected: node.connected,
            last_seen: time(node.last_seen_usec),
            containers: node.containers,
            memory_bytes: node.facts.as_ref().map(|f| f.memory_bytes),
            cpu_milli: node.facts.as_ref().map(|f| f.cpu_milli),
            frames: node.frames,
            samples: node.samples,
            gaps: node.gaps,
            gone: node.gone,
            refused_containers: node.refused_containers,
            clock_behind_seconds: node.clock_behind_usec as f64 / 1e6,
            dropped: dropped.collect(),
            allocated: node.allocated.map(Into::into),
        }
    }
}

/// Namespaces, and the clusters they are in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Namespaces)]
pub(crate) struct NamespacesAnswer {
    namespaces: Vec<NamespaceAnswer>,
    clusters: Vec<NamespaceAnswer>,
    /// Why quotas are not known; empty where they are.
    quota_trouble: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespace)]
struct NamespaceAnswer {
    cluster: String,
    /// null: the whole cluster.
    namespace: Option<String>,
    allocated: Option<AllocatedAnswer>,
}

impl From<v1::ListNamespacesResponse> for NamespacesAnswer {
    fn from(told: v1::ListNamespacesResponse) -> Self {
        let all = |list: Vec<v1::Namespace>| {
            let one = |of: v1::Namespace| NamespaceAnswer {
                cluster: of.cluster,
                namespace: filled(of.name),
                allocated: of.allocated.map(Into::into),
            };
            list.into_iter().map(one).collect()
        };
        Self {
            namespaces: all(told.namespaces),
            clusters: all(told.clusters),
            quota_trouble: told.quota_trouble,
        }
    }
}

/// What the containers that run in one place have.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Allocated)]
struct AllocatedAnswer {
    pods: u32,
    containers: u32,
    cpu_milli: AllocatedResource,
    memory_bytes: AllocatedResource,
    /// Other resources that nodes state or pods request, by name, as quantities.
    others: BTreeMap<String, AllocatedOther>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AllocatedResource {
    /// What pods may request on these nodes; null for a namespace.
    allocatable: Option<u64>,
    requested: u64,
    /// Limits of the containers that have one.
    limited: u64,
    /// Containers without a limit.
    unlimited: u32,
    /// At the latest second.
    used: u64,
    /// Recommended requests; where none rests on two days of history, the present request.
    recommended: u64,
    /// Containers whose recommendation is in that sum.
    recommended_containers: u32,
    quota_requests: Option<u64>,
    quota_limits: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AllocatedOther {
    allocatable: Option<String>,
    requested: String,
}

impl From<v1::Allocated> for AllocatedAnswer {
    fn from(sums: v1::Allocated) -> Self {
        let resource = |sum: Option<v1::AllocatedResource>| {
            let sum = sum.unwrap_or_default();
            AllocatedResource {
                allocatable: sum.allocatable,
                requested: sum.requested,
                limited: sum.limited,
                unlimited: sum.unlimited,
                used: sum.used,
                recommended: sum.recommended,
                recommended_containers: sum.recommended_containers,
                quota_requests: sum.quota_requests,
                quota_limits: sum.quota_limits,
            }
        };
        let other = |sum: v1::AllocatedAmount| AllocatedOther {
            allocatable: filled(sum.allocatable),
            requested: sum.requested,
        };
        Self {
            pods: sums.pods,
            containers: sums.containers,
            cpu_milli: resource(sums.cpu),
            memory_bytes: resource(sums.memory),
            others: sums.others.into_iter().map(|(name, sum)| (name, other(sum))).collect(),
        }
    }
}

/// A decision of an agent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventAnswer {
    #[schema(format = DateTime)]
    time: Option<String>,
    seq: u64,
    node: String,
    pod: Option<String>,
    container: Option<String>,
    kind: String,
    knob: Option<String>,
    old: Option<String>,
    new: Option<String>,
    reason: String,
    /// What the rule was given.
    inputs: BTreeMap<String, String>,
    result: String,
}

impl From<v1::Decision> for EventAnswer {
    fn from(d: v1::Decision) -> Self {
        Self {
            time: time(d.time_usec),
            seq: d.seq,
            node: d.node,
            pod: d.pod,
            container: d.container,
            kind: d.kind,
            knob: d.knob,
            old: d.old,
            new: d.new,
            reason: d.reason,
            inputs: d.inputs.into_iter().collect(),
            result: d.result,
        }
    }
}

/// A question of `[[capacity.watch]]`, and its answers over time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WatchedQuestion)]
pub(crate) struct WatchedAnswer {
    question: String,
    interval_seconds: u64,
    answers: Vec<CountAnswer>,
    /// How the count changes.
    per_day: Option<f64>,
    /// null when the count does not fall.
    days_until_none: Option<f64>,
    /// Why the last attempt failed.
    trouble: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WatchedAnswer)]
struct CountAnswer {
    #[schema(format = DateTime)]
    time: Option<String>,
    /// How many more pods fit.
    count: u64,
    /// The resource that ends it.
    binding: String,
}

impl From<WatchedQuestion> for WatchedAnswer {
    fn from(line: WatchedQuestion) -> Self {
        let answers = line.points.into_iter().map(|point| CountAnswer {
            time: time(point.time_usec),
            count: point.count,
            binding: point.binding,
        });
        Self {
            question: line.question,
            interval_seconds: line.interval_seconds,
            answers: answers.collect(),
            per_day: line.trend.map(|trend| trend.per_day),
            days_until_none: line.trend.and_then(|trend| trend.days_until_none),
            trouble: line.trouble.as_ref().map(MissingAnswer::why).map(str::to_owned),
        }
    }
}
