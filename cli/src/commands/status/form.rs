//! The pinned form of an agent's status, and making it from the wire's.

use evenkeel_proto::v1::{
    ContainerStatus, DaemonStatus, GetStatusResponse, KnobValue, PartStatus, StreamStatus, WorkloadsCapStatus,
};
use serde::Serialize;

use super::cluster::Recommender;
use super::pressure::{Hold, Pressure};
use crate::wire::{self, Classes, Dropped, known};

/// Everything an agent says of itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentStatus {
    pub(super) cluster: String,
    pub(super) node: String,
    pub(super) version: String,
    pub(super) mode: String,
    pub(super) rules: String,
    pub(super) panic: bool,
    pub(super) capabilities: Vec<String>,
    /// Processes of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<ProcessStatus>,
    pub(super) knobs: Vec<Knob>,
    pub(super) wake: Option<Wake>,
    pub(super) sources: Vec<SourceStatus>,
    pub(super) stream: Option<RecommenderStream>,
    /// Where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) streams: Vec<RecommenderStream>,
    pub(super) pressure: Option<Pressure>,
    pub(super) holds: Vec<Hold>,
    pub(super) daemons: Vec<Daemon>,
    pub(super) workloads_cap: Option<CapStatus>,
    /// Absent where recommended requests are not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) overlay: Option<Overlay>,
    /// Absent where nothing was told of the node's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pods: Option<Pods>,
    /// Absent where it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recommender: Option<Recommender>,
    pub(super) containers: Vec<ContainerRow>,
}

/// Whether a knob can be written on this node.
#[derive(Serialize)]
pub(super) struct Knob {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) why: Option<String>,
    pub(super) remedy: Option<String>,
}

/// A process of the agent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessStatus {
    pub(super) name: String,
    /// Absent while there is none.
    pub(super) pid: Option<u32>,
    pub(super) uid: u32,
    pub(super) capabilities: Vec<String>,
    pub(super) no_new_privs: bool,
    pub(super) seccomp: bool,
    pub(super) restarts: u64,
    /// Why it ended last.
    pub(super) ended: Option<String>,
}

/// How soon a new process is noticed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wake {
    pub(super) process_events: bool,
    pub(super) cgroup_events: bool,
    pub(super) audit_period_seconds: f64,
    pub(super) why: Option<String>,
}

/// Where containers are found.
#[derive(Serialize)]
pub(super) struct SourceStatus {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) healthy: bool,
    pub(super) containers: u32,
    pub(super) why: Option<String>,
    pub(super) remedy: Option<String>,
}

/// The stream to the recommender.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecommenderStream {
    pub(super) address: String,
    pub(super) connected: bool,
    pub(super) epoch: String,
    pub(super) frames_written: u64,
    pub(super) frames_sent: u64,
    pub(super) last_acknowledged: u64,
    pub(super) spool_bytes: u64,
    pub(super) frames_folded: u64,
    pub(super) frames_dropped: u64,
    pub(super) last_error: Option<String>,
    pub(super) dropped: Vec<Dropped>,
    pub(super) leads: bool,
}

impl From<StreamStatus> for RecommenderStream {
    fn from(s: StreamStatus) -> Self {
        Self {
            address: s.address,
            connected: s.connected,
            epoch: format!("{:016x}", s.epoch),
            frames_written: s.frames_written,
            frames_sent: s.frames_sent,
            last_acknowledged: s.last_acknowledged,
            spool_bytes: s.spool_bytes,
            frames_folded: s.frames_folded,
            frames_dropped: s.frames_dropped,
            last_error: some(s.last_error),
            dropped: s.dropped.into_iter().map(Dropped::from).collect(),
            leads: s.leads,
        }
    }
}

/// A daemon the node cannot live without.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Daemon {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) found_by: String,
    pub(super) cgroup: Option<String>,
    pub(super) oom_score_adj: ScoreStatus,
    pub(super) state: String,
    pub(super) why: Option<String>,
}

/// A score wished and there.
#[derive(Serialize)]
pub(super) struct ScoreStatus {
    pub(super) wanted: i32,
    pub(super) actual: Option<i32>,
}

/// What the recommender last said the node's containers should request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overlay {
    pub(super) made: Option<String>,
    pub(super) offered: u32,
    pub(super) in_force: u32,
    pub(super) panic: Option<String>,
    pub(super) panic_revert: bool,
    pub(super) refused: Vec<OverlayRefusal>,
    pub(super) refused_count: u32,
}

/// What the API server says of the node's pods.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pods {
    pub(super) known: u32,
    pub(super) generation: u64,
    pub(super) changed: Option<String>,
    /// Containers whose requirements follow it.
    pub(super) followed: u32,
    /// Nothing was told since the agent started.
    pub(super) kept: bool,
    pub(super) refused: Vec<String>,
    /// What the kubelet says, where it is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kubelet: Option<Kubelet>,
}

/// What the kubelet says of the node's pods.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kubelet {
    pub(super) pods: u32,
    pub(super) read: Option<String>,
    /// Why it was not read the last time; empty = it was.
    pub(super) trouble: String,
}

/// A container that is not given what was recommended.
#[derive(Serialize)]
pub(super) struct OverlayRefusal {
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) why: String,
}

/// The limit of the cgroup that holds all workloads.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CapStatus {
    pub(super) cgroup: String,
    pub(super) state: String,
    pub(super) why: Option<String>,
    pub(super) remedy: Option<String>,
    pub(super) cap_bytes: Option<u64>,
    pub(super) reserve_bytes: u64,
    pub(super) inside_bytes: u64,
    pub(super) outside_bytes: u64,
    pub(super) rewrites: u32,
    pub(super) since: Option<String>,
}

/// How far a CPU limit held a container back.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Throttling {
    pub(super) window_seconds: u32,
    pub(super) periods: u64,
    pub(super) throttled_periods: u64,
    pub(super) throttled_usec: u64,
}

/// One container of the agent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerRow {
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) kind: Option<&'static str>,
    pub(super) id: String,
    pub(super) inode: u64,
    pub(super) cgroup: Option<String>,
    pub(super) source: String,
    pub(super) classes: Classes,
    pub(super) estimated: bool,
    /// Who says what it requires; absent where nobody does.
    pub(super) required_by: Option<String>,
    pub(super) managed: bool,
    pub(super) state: &'static str,
    pub(super) why: Option<String>,
    pub(super) generation: u64,
    pub(super) verified_at: Option<String>,
    pub(super) processes: u32,
    pub(super) throttling: Option<Throttling>,
    pub(super) knobs: Vec<ContainerKnob>,
}

/// One knob of one container.
#[derive(Serialize)]
pub(super) struct ContainerKnob {
    pub(super) name: String,
    pub(super) wanted: Option<String>,
    pub(super) actual: Option<String>,
    pub(super) state: &'static str,
    pub(super) reason: String,
    /// How often it was seen contended or without effect; `None` = neither.
    pub(super) count: Option<u32>,
    pub(super) since: Option<String>,
    pub(super) by: Option<String>,
    pub(super) remedy: Option<String>,
}

impl ContainerRow {
    /// `namespace/pod` and name.
    pub(crate) fn is_named(&self, pod: &str, container: Option<&str>) -> bool {
        let pod_name = self.pod.split_once('/').map_or(self.pod.as_str(), |(_, name)| name);
        (self.pod == pod || pod_name == pod) && container.is_none_or(|c| c == self.container)
    }

    /// Whether a decision is about it.
    pub(crate) fn is_of(&self, event: &wire::DecisionEvent) -> bool {
        event.pod.as_deref() == Some(&*self.pod) && event.container.as_deref() == Some(&*self.container)
    }
}

impl From<GetStatusResponse> for AgentStatus {
    fn from(r: GetStatusResponse) -> Self {
        Self {
            cluster: r.cluster,
            node: r.node,
            version: r.version,
            mode: r.mode,
            rules: r.rules,
            panic: r.panic,
            capabilities: r.capabilities,
            parts: r.parts.into_iter().map(ProcessStatus::from).collect(),
            knobs: r
                .knobs
                .into_iter()
                .map(|k| Knob { name: k.name, state: k.state, why: some(k.why), remedy: some(k.remedy) })
                .collect(),
            wake: r.wake.map(|w| Wake {
                process_events: w.process_events,
                cgroup_events: w.cgroup_events,
                audit_period_seconds: w.audit_period_usec as f64 / 1e6,
                why: some(w.why),
            }),
            sources: r
                .sources
                .into_iter()
                .map(|s| SourceStatus {
                    name: s.name,
                    address: s.address,
                    healthy: s.healthy,
                    containers: s.containers,
                    why: some(s.why),
                    remedy: some(s.remedy),
                })
                .collect(),
            stream: r.stream.map(RecommenderStream::from),
            streams: r.streams.into_iter().map(RecommenderStream::from).collect(),
            pressure: r.pressure.map(Pressure::from),
            holds: r.holds.into_iter().map(Hold::from).collect(),
            daemons: r.daemons.into_iter().map(Daemon::from).collect(),
            workloads_cap: r.workloads_cap.map(CapStatus::from),
            overlay: r.overlay.map(|o| Overlay {
                made: wire::time(o.made_usec),
                offered: o.offered,
                in_force: o.in_force,
                panic: some(o.panic),
                panic_revert: o.panic_revert,
                refused_count: o.refused_count,
                refused: o
                    .refused
                    .into_iter()
                    .map(|r| OverlayRefusal { pod: r.pod, container: r.container, why: r.why })
                    .collect(),
            }),
            pods: r.pods.map(|p| Pods {
                known: p.pods,
                generation: p.generation,
                changed: wire::time(p.changed_usec),
                followed: p.followed,
                kept: p.kept,
                refused: p.refused,
                kubelet: p.kubelet.map(|k| Kubelet {
                    pods: k.pods,
                    read: wire::time(k.read_usec),
                    trouble: k.trouble,
                }),
            }),
            recommender: None,
            containers: r.containers.into_iter().map(ContainerRow::from).collect(),
        }
    }
}

impl From<PartStatus> for ProcessStatus {
    fn from(p: PartStatus) -> Self {
        Self {
            name: p.name,
            pid: Some(p.pid).filter(|pid| *pid > 0),
            uid: p.uid,
            capabilities: p.capabilities,
            no_new_privs: p.no_new_privs,
            seccomp: p.seccomp,
            restarts: p.restarts,
            ended: some(p.ended),
        }
    }
}

impl From<DaemonStatus> for Daemon {
    fn from(d: DaemonStatus) -> Self {
        Self {
            name: d.name,
            pid: d.pid,
            found_by: d.found_by,
            cgroup: some(d.cgroup),
            oom_score_adj: ScoreStatus { wanted: d.wanted, actual: d.actual },
            state: d.state,
            why: some(d.why),
        }
    }
}

impl From<WorkloadsCapStatus> for CapStatus {
    fn from(c: WorkloadsCapStatus) -> Self {
        Self {
            cgroup: c.cgroup,
            state: c.state,
            why: some(c.why),
            remedy: some(c.remedy),
            cap_bytes: c.cap_bytes,
            reserve_bytes: c.reserve_bytes,
            inside_bytes: c.inside_bytes,
            outside_bytes: c.outside_bytes,
            rewrites: c.rewrites,
            since: wire::time(c.since_usec),
        }
    }
}

impl From<ContainerStatus> for ContainerRow {
    fn from(c: ContainerStatus) -> Self {
        let identity = c.identity.unwrap_or_default();
        Self {
            pod: wire::pod(&identity),
            kind: wire::kind(identity.kind),
            classes: Classes::of(&identity),
            estimated: identity.estimated,
            required_by: some(c.required_by),
            inode: identity.cgroup_inode,
            container: identity.container,
            id: identity.id,
            cgroup: some(c.cgroup),
            source: c.source,
            managed: c.managed,
            state: wire::state(c.state),
            why: some(c.why),
            generation: c.generation,
            verified_at: wire::time(c.verified_at_usec),
            processes: c.processes,
            throttling: c.throttling.map(|t| Throttling {
                window_seconds: t.window_seconds,
                periods: t.periods,
                throttled_periods: t.throttled_periods,
                throttled_usec: t.throttled_usec,
            }),
            knobs: c.knobs.into_iter().map(ContainerKnob::from).collect(),
        }
    }
}

impl From<KnobValue> for ContainerKnob {
    fn from(k: KnobValue) -> Self {
        Self {
            name: k.name,
            wanted: k.wanted,
            actual: k.actual,
            state: wire::state(k.state),
            reason: k.reason,
            count: (k.count > 0).then_some(k.count),
            since: wire::time(k.since_usec),
            by: some(k.by),
            remedy: some(k.remedy),
        }
    }
}

fn some(text: String) -> Option<String> {
    known(&text).is_some().then_some(text)
}
