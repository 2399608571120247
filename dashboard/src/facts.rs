//! What pages are made of. Whoever serves them fills these in; nothing here asks anything.

use crate::amount::Resource;

/// Who looks at a page, and what they may.
#[derive(Debug, Clone, Default)]
pub struct Viewer {
    /// How they are called.
    pub name: String,
    /// Whether they signed in with a token, and may sign out.
    pub signed_in: bool,
    /// May see all namespaces.
    pub everywhere: bool,
    /// May ask about capacity.
    pub simulate: bool,
    /// May change policies, somewhere at least.
    pub apply: bool,
    /// May set the panic switch.
    pub panic: bool,
    /// What every form carries, so that no page of another site can send it.
    pub csrf: String,
}

/// What the pages of a program are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// A cluster: a recommender's.
    #[default]
    Cluster,
    /// One node: its agent's own, without a recommender.
    Node,
}

/// The panic switch.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    /// Recommendations change nothing.
    pub on: bool,
    /// Running containers get back what was asked for.
    pub revert: bool,
    /// Why it was set.
    pub reason: String,
    /// Since when, milliseconds since 1970.
    pub since_ms: u64,
}

/// Sums of one resource over a cluster, namespace or node.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceTotals {
    /// What pods may request; absent for a namespace.
    pub allocatable: Option<u64>,
    /// Requested.
    pub requested: u64,
    /// Used at the latest second.
    pub used: u64,
    /// Recommended requests; the present ones where none is to be relied on.
    pub recommended: u64,
    /// Limits of containers that have one.
    pub limited: u64,
    /// Least quota on requests.
    pub quota: Option<u64>,
}

/// What containers of one place have.
#[derive(Debug, Clone, Default)]
pub struct Share {
    /// Cluster.
    pub cluster: String,
    /// Namespace or node; empty for a whole cluster.
    pub name: String,
    /// Pods.
    pub pods: u64,
    /// Containers.
    pub containers: u64,
    /// CPU, then memory.
    pub sums: [ResourceTotals; 2],
}

/// What resources cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    /// A core for an hour.
    pub core_hour: f64,
    /// A GiB for an hour.
    pub gib_hour: f64,
    /// The word behind amounts.
    pub currency: String,
}

impl Prices {
    /// Hours of a month: a twelfth of 365 days.
    const HOURS: f64 = 730.0;

    /// What so much costs a month.
    #[must_use]
    pub fn month(&self, cpu_milli: f64, memory_bytes: f64) -> f64 {
        let (cores, gib) = (cpu_milli / 1e3, memory_bytes / f64::from(1 << 30));
        (cores * self.core_hour + gib * self.gib_hour) * Self::HOURS
    }
}

/// A node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// What its containers have; `name` is the node's.
    pub share: Share,
    /// Version of its agent.
    pub version: String,
    /// Its agent is connected.
    pub connected: bool,
    /// Silent for so long that its containers do not count.
    pub gone: bool,
    /// When it was heard last, milliseconds since 1970.
    pub seen_ms: u64,
    /// Seconds known to be missing.
    pub gaps: u64,
    /// What it said and was not taken in: reason, count, remedy.
    pub dropped: Vec<(String, u64, String)>,
    /// Size: CPU, then memory.
    pub size: [u64; 2],
    /// OOM kills among the decisions kept.
    pub oom_kills: u64,
    /// Steps against pressure among the decisions kept.
    pub pressure: u64,
}

/// A container on a node.
#[derive(Debug, Clone, Default)]
pub struct NodeContainer {
    /// Namespace.
    pub namespace: String,
    /// Pod.
    pub pod: String,
    /// Container.
    pub container: String,
    /// Workload.
    pub workload: String,
    /// QoS class; empty where nothing is known.
    pub class: &'static str,
    /// Requests: CPU, then memory.
    pub requests: [Option<u64>; 2],
    /// Limits.
    pub limits: [Option<u64>; 2],
    /// Used at the latest second.
    pub used: [Option<u64>; 2],
    /// Throttled periods among all since it started.
    pub throttled: Option<f64>,
    /// OOM kills since it started.
    pub oom_kills: u64,
    /// Processes.
    pub pids: Option<u64>,
}

/// A knob: what it should hold, and what it holds.
#[derive(Debug, Clone, Default)]
pub struct Knob {
    /// Pod, `namespace/name`; empty for the node's own.
    pub pod: String,
    /// Container.
    pub container: String,
    /// The kernel's name.
    pub name: String,
    /// What it should hold.
    pub wanted: String,
    /// What it holds.
    pub actual: String,
    /// Who else writes it, or why it does not hold or has no effect; empty where it is as wanted.
    pub trouble: String,
    /// Why it should be so.
    pub why: String,
    /// What became of it, such as `set done` or `converged`.
    pub state: String,
    /// As of when, milliseconds since 1970.
    pub time_ms: u64,
}

/// What is recommended for one resource of a workload's container.
#[derive(Debug, Clone, Default)]
pub struct ResourceAdvice {
    /// The request now.
    pub current: Option<u64>,
    /// The request that is recommended.
    pub request: Option<u64>,
    /// Bounds.
    pub lower: Option<u64>,
    /// Bounds.
    pub upper: Option<u64>,
    /// What the rule said before caps.
    pub raw: Option<u64>,
    /// What capped it, in order.
    pub capped_by: Vec<String>,
    /// Rule.
    pub rule: String,
    /// Part of the history it rests on.
    pub tier: String,
    /// Minutes it rests on.
    pub samples: u64,
    /// From the first of them to the last.
    pub span_seconds: u64,
    /// 0 to 1.
    pub confidence: Option<f64>,
    /// Expected part of time above the request now.
    pub risk_now: Option<f64>,
    /// The same with the recommended one.
    pub risk_then: Option<f64>,
    /// The limit now.
    pub current_limit: Option<u64>,
    /// The limit beside the recommended request.
    pub limit: Option<u64>,
    /// It rests on less than two days.
    pub young: bool,
    /// What moved it, for people.
    pub notes: Vec<String>,
    /// Since it was made.
    pub age_seconds: u64,
}

/// A workload's container.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Cluster.
    pub cluster: String,
    /// Namespace.
    pub namespace: String,
    /// Controller, or pod where there is none.
    pub workload: String,
    /// Container.
    pub container: String,
    /// Image.
    pub image: String,
    /// It is among the pod's init containers.
    pub init: bool,
    /// Containers running now.
    pub replicas: u64,
    /// Class now, and with what is recommended.
    pub class: [&'static str; 2],
    /// Setting it would change the class.
    pub changes_class: bool,
    /// Governing policy, `namespace/name`; empty where there is none.
    pub policy: String,
    /// What is done: off, initial, auto; empty without a policy.
    pub mode: String,
    /// CPU, then memory.
    pub advice: [ResourceAdvice; 2],
}

impl Workload {
    /// What of a resource would be requested less by all replicas, in the resource's unit; less than 0 where more.
    /// Nothing where the recommendation is not to be relied on.
    #[must_use]
    pub fn saving(&self, resource: Resource) -> i64 {
        let advice = &self.advice[resource as usize];
        match (advice.current, advice.request) {
            (Some(current), Some(request)) if !advice.young => {
                let replicas = i64::try_from(self.replicas).unwrap_or(i64::MAX);
                let [current, request] = [current, request].map(|v| i64::try_from(v).unwrap_or(i64::MAX));
                current.saturating_sub(request).saturating_mul(replicas)
            }
            _ => 0,
        }
    }

    /// The larger expected part of time above a request: now, and then.
    #[must_use]
    pub fn risk(&self) -> [f64; 2] {
        let most =
            |of: fn(&ResourceAdvice) -> Option<f64>| self.advice.iter().filter_map(of).fold(0.0, f64::max);
        [most(|advice| advice.risk_now), most(|advice| advice.risk_then)]
    }
}

/// A decision of an agent.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Node.
    pub node: String,
    /// Pod, `namespace/name`.
    pub pod: String,
    /// Container.
    pub container: String,
    /// Its kind, such as `set` or `oom-kill`.
    pub kind: String,
    /// Knob.
    pub knob: String,
    /// Value before.
    pub old: String,
    /// Value after.
    pub new: String,
    /// Why.
    pub reason: String,
    /// The numbers it was made of.
    pub inputs: Vec<(String, String)>,
    /// What came of it.
    pub result: String,
}

/// One resource's use over time.
#[derive(Debug, Clone, Default)]
pub struct UsageSeries {
    /// Milliseconds since 1970 and the amount, in the order of time.
    pub points: Vec<(u64, u64)>,
    /// From one value to the next when nothing is missing, milliseconds.
    pub step_ms: u64,
    /// Values there were before they were thinned out.
    pub of: usize,
}

/// One resource's distribution.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    /// Percentile as text, and the value.
    pub percentiles: Vec<(String, u64)>,
    /// Mean.
    pub mean: Option<u64>,
    /// Largest.
    pub max: Option<u64>,
    /// Seconds counted.
    pub count: u64,
}

/// Another rule's answer.
#[derive(Debug, Clone, Default)]
pub struct Rival {
    /// Rule.
    pub rule: String,
    /// CPU, then memory.
    pub advice: [ResourceAdvice; 2],
}

/// One replica that runs.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    /// Node.
    pub node: String,
    /// Pod.
    pub pod: String,
    /// Used at its latest second: CPU, then memory.
    pub used: [Option<u64>; 2],
}

/// A change in the audit record.
#[derive(Debug, Clone, Default)]
pub struct AuditChange {
    /// As the record has it.
    pub time: String,
    /// Who.
    pub who: String,
    /// From where.
    pub from: String,
    /// By what.
    pub method: String,
    /// What was changed.
    pub object: String,
    /// What came of it.
    pub outcome: String,
    /// Why not, where it failed.
    pub why: String,
}

/// A policy, or an object that bounds recommendations.
#[derive(Debug, Clone, Default)]
pub struct PolicyFacts {
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What is done: off, initial, auto.
    pub mode: String,
    /// Rule.
    pub rule: String,
    /// Containers it governs.
    pub containers: Option<u64>,
    /// Conditions: type, status, message.
    pub conditions: Vec<(String, String, String)>,
}
