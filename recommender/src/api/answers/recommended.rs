//! What is recommended, and what was used.

use std::collections::BTreeMap;

use evenkeel_model::requirements::ResourceList;
use evenkeel_model::usage::UsageRecord;
use evenkeel_proto::v1;
use evenkeel_store::state::slots::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use super::{filled, time};
use crate::recommend::mode;
use crate::recommend::pod::{ContainerAdvice, PodAdvice};
use crate::recommend::usage::Usage;

/// CPU in thousandths of a core, memory in bytes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Recommendation)]
pub(crate) struct RecommendationAnswer {
    namespace: String,
    /// Controller, or pod where there is none.
    workload: String,
    container: String,
    /// `cpu` or `memory`.
    resource: String,
    /// The present request.
    current: Option<u64>,
    /// null with tier `none`: nothing is known, nothing should be set.
    request: Option<u64>,
    lower: Option<u64>,
    upper: Option<u64>,
    /// Before anything capped it.
    raw: Option<u64>,
    /// What capped it, in order.
    capped_by: Vec<String>,
    rule: String,
    /// Whose history it rests on.
    tier: String,
    samples: u64,
    span_seconds: u64,
    confidence: Option<f64>,
    risk: RiskAnswer,
    /// Since it was made; 0 when it was made for this question.
    age_seconds: u64,
    image: String,
    /// Beside the recommended request.
    limit: Option<u64>,
    current_limit: Option<u64>,
    /// The policy that governs the container, `namespace/name`.
    policy: Option<String>,
    /// What that policy does with it: `off`, `initial` or `auto`.
    mode: Option<String>,
    /// Containers that run now.
    replicas: u32,
    qos_class: ClassAnswer,
    /// Never set in place then.
    changes_class: bool,
    /// What moved the value beyond the rule's percentiles.
    notes: Vec<String>,
    /// Rests on less than two days of history: leave it out of sums.
    young: bool,
    /// CPU: what the container could use while it starts, from the starts that were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    /// Seconds of starts that this rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_seconds: Option<u64>,
}

/// Expected part of time over the value.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Risk)]
struct RiskAnswer {
    /// At the present request.
    now: Option<f64>,
    /// At the recommended one.
    then: Option<f64>,
}

/// QoS class as it is, and with what is recommended: `BestEffort`, `Burstable` or `Guaranteed`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClassChange)]
struct ClassAnswer {
    before: Option<&'static str>,
    after: Option<&'static str>,
}

fn class(class: v1::QosClass) -> Option<&'static str> {
    match class {
        v1::QosClass::BestEffort => Some("BestEffort"),
        v1::QosClass::Burstable => Some("Burstable"),
        v1::QosClass::Guaranteed => Some("Guaranteed"),
        v1::QosClass::Unspecified => None,
    }
}

impl From<v1::Recommendation> for RecommendationAnswer {
    fn from(r: v1::Recommendation) -> Self {
        Self {
            qos_class: ClassAnswer { before: class(r.qos_class_before()), after: class(r.qos_class_after()) },
            namespace: r.namespace,
            workload: r.workload,
            container: r.container,
            resource: r.resource,
            current: r.current,
            request: r.request,
            lower: r.lower,
            upper: r.upper,
            raw: r.raw,
            capped_by: r.capped_by,
            rule: r.rule,
            tier: r.tier,
            samples: r.samples,
            span_seconds: r.span_seconds,
            confidence: r.confidence,
            risk: RiskAnswer { now: r.risk_now, then: r.risk_then },
            age_seconds: r.age_seconds,
            image: r.image,
            limit: r.limit,
            current_limit: r.current_limit,
            policy: filled(r.policy),
            mode: filled(r.mode),
            replicas: r.replicas,
            changes_class: r.changes_class,
            notes: r.notes,
            young: r.young,
            start: r.start,
            start_seconds: r.start.map(|_| r.start_seconds),
        }
    }
}

/// Requests as recommended; those, and the limits, that nothing is known about as they were.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PodResources)]
pub(crate) struct PodAnswer {
    containers: Vec<ContainerAnswer>,
    evenkeel: PodReasons,
}

/// What led to it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PodAdvice)]
struct PodReasons {
    /// The policy that governs the pod, `namespace/name`.
    policy: Option<String>,
    /// What it does with recommendations: `off`, `initial` or `auto`.
    mode: Option<&'static str>,
    /// Policies that select the pod and are overruled.
    conflicts: Vec<String>,
    qos_class: ClassAnswer,
    changes_class: bool,
    /// Whether a running pod may be given the resources in place.
    in_place: bool,
    /// The switch is on: resources are as asked for.
    panic: bool,
    /// History is being read back: these are answers of the run before.
    loading: bool,
    /// A fresh answer would have come too late: these were kept, and each says its age.
    cached: bool,
}

/// One container.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ContainerAdvice)]
struct ContainerAnswer {
    name: String,
    resources: ResourcesAnswer,
    /// The recommendation behind each resource.
    evenkeel: BTreeMap<String, RecommendationAnswer>,
}

/// Quantities by resource.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Resources)]
struct ResourcesAnswer {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
}

impl From<PodAdvice> for PodAnswer {
    fn from(advice: PodAdvice) -> Self {
        let evenkeel = PodReasons {
            mode: advice.mode.map(mode),
            qos_class: ClassAnswer {
                before: Some(advice.qos_before.as_str()),
                after: Some(advice.qos_after.as_str()),
            },
            changes_class: advice.qos_before != advice.qos_after,
            in_place: advice.in_place(),
            panic: advice.panic,
            loading: advice.loading,
            cached: advice.cached,
            policy: advice.policy,
            conflicts: advice.conflicts,
        };
        Self { containers: advice.containers.into_iter().map(Into::into).collect(), evenkeel }
    }
}

impl From<ContainerAdvice> for ContainerAnswer {
    fn from(container: ContainerAdvice) -> Self {
        let quantities = |list: &ResourceList| {
            list.iter().map(|(name, amount)| (name.short().to_owned(), amount.canonical())).collect()
        };
        let resources = ResourcesAnswer {
            requests: quantities(&container.resources.requests),
            limits: quantities(&container.resources.limits),
        };
        let reasons = container.recommendations.into_iter().map(|r| (r.resource.clone(), r.into()));
        Self { name: container.name, resources, evenkeel: reasons.collect() }
    }
}

/// What was used, and is expected.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageAnswer {
    namespace: String,
    workload: String,
    container: String,
    #[serde(flatten)]
    #[schema(value_type = RecordShape)]
    record: UsageRecord,
    /// The last seconds of its containers that run now.
    live: Vec<LiveAnswer>,
}

/// The JSON form of [`UsageRecord`].
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageRecord)]
#[expect(dead_code, reason = "the form of a type of the model, which knows no documents")]
struct RecordShape {
    /// The seconds of the window, by resource.
    usage: BTreeMap<String, StatsShape>,
    /// The largest second of each of the window's parts.
    maxusage: BTreeMap<String, StatsShape>,
    /// What the next window is expected to be like: upper bounds, and a lower one of the minimum; count = seconds expected.
    predicted: BTreeMap<String, StatsShape>,
    /// Length of the next window.
    #[schema(required = false)]
    predicted_seconds: u64,
    /// How likely the next window keeps to each predicted value; 0 = nothing can be promised yet.
    #[schema(required = false)]
    predicted_confidence: f64,
    #[schema(required = false)]
    window_seconds: u64,
    /// Since 1970.
    #[schema(required = false)]
    window_start_seconds: i64,
    #[schema(required = false)]
    window_end_seconds: i64,
    /// How much it can be relied on.
    #[schema(required = false)]
    confidence: f64,
    /// Data points that were lost or discarded.
    dropped: u64,
}

/// The JSON form of [`Stats`](evenkeel_model::usage::Stats).
#[derive(ToSchema)]
#[schema(as = Stats)]
#[expect(dead_code, reason = "the form of a type of the model, which knows no documents")]
struct StatsShape {
    #[schema(required = false)]
    mean: u64,
    #[schema(required = false)]
    max: u64,
    #[schema(required = false)]
    min: u64,
    /// Number of values.
    #[schema(required = false)]
    count: u64,
    /// Values by percentile.
    #[schema(required = false)]
    percentiles: BTreeMap<String, u64>,
}

/// A container that runs now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LiveUsage)]
struct LiveAnswer {
    node: String,
    pod: String,
    /// Oldest first.
    seconds: Vec<SecondAnswer>,
}

/// One second of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LiveSecond)]
struct SecondAnswer {
    #[schema(format = DateTime)]
    time: Option<String>,
    cpu_milli: Option<u64>,
    memory_bytes: Option<u64>,
}

impl From<Usage> for UsageAnswer {
    fn from(usage: Usage) -> Self {
        let live = usage.live.into_iter().map(|(node, pod, moments)| {
            let second = |m: Moment| SecondAnswer {
                time: time(m.time_usec),
                cpu_milli: m.cpu_milli,
                memory_bytes: m.memory_bytes,
            };
            LiveAnswer { node, pod, seconds: moments.into_iter().map(second).collect() }
        });
        Self {
            namespace: usage.namespace,
            workload: usage.workload,
            container: usage.container,
            record: usage.record,
            live: live.collect(),
        }
    }
}

/// A line of `/api/v1/usage/series`: a value, or a gap.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesLine<'a> {
    /// namespace/workload/container, with the cluster in front where there are several; of seconds namespace/pod/container.
    pub(crate) series: &'a str,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) t: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub(crate) value: Option<SeriesValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gap: Option<SeriesGap>,
}

/// In the units of its resource.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum SeriesValue {
    Cores(f64),
    Bytes(u64),
}

/// A time of which nothing is known.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeriesGap {
    pub(crate) from_seconds: u64,
    pub(crate) to_seconds: u64,
}
