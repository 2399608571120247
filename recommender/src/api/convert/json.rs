//! Answers as JSON.

use evenkeel_proto::v1;
use serde_json::{Map, Value, json};

use crate::recommend::mode;
use crate::recommend::pod::{ContainerAdvice, PodAdvice};
use crate::recommend::usage::Usage;

/// Time as RFC 3339 in UTC; `null` for 0, which stands for never.
pub(crate) fn time(usec: u64) -> Value {
    let at = i64::try_from(usec).ok().and_then(|usec| jiff::Timestamp::from_microsecond(usec).ok());
    at.filter(|_| usec > 0).map_or(Value::Null, |at| at.to_string().into())
}

/// A recommendation in its pinned form.
pub(crate) fn recommendation(r: &v1::Recommendation) -> Value {
    let mut told = json!({
        "namespace": r.namespace,
        "workload": r.workload,
        "container": r.container,
        "resource": r.resource,
        "current": r.current,
        "request": r.request,
        "lower": r.lower,
        "upper": r.upper,
        "raw": r.raw,
        "cappedBy": r.capped_by,
        "rule": r.rule,
        "tier": r.tier,
        "samples": r.samples,
        "spanSeconds": r.span_seconds,
        "confidence": r.confidence,
        "risk": { "now": r.risk_now, "then": r.risk_then },
        "ageSeconds": r.age_seconds,
        "image": r.image,
        "limit": r.limit,
        "currentLimit": r.current_limit,
        "policy": filled(&r.policy),
        "mode": filled(&r.mode),
        "replicas": r.replicas,
        "qosClass": { "before": class(r.qos_class_before()), "after": class(r.qos_class_after()) },
        "changesClass": r.changes_class,
        "notes": r.notes,
        "young": r.young,
    });
    if let Some(start) = r.start {
        (told["start"], told["startSeconds"]) = (start.into(), r.start_seconds.into());
    }
    told
}

pub(super) fn class(class: v1::QosClass) -> Option<&'static str> {
    match class {
        v1::QosClass::BestEffort => Some("BestEffort"),
        v1::QosClass::Burstable => Some("Burstable"),
        v1::QosClass::Guaranteed => Some("Guaranteed"),
        v1::QosClass::Unspecified => None,
    }
}

pub(super) fn filled(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// The answer to `/recommendedPodResources`: the document's form, and beside it what led to it.
pub(crate) fn pod(advice: &PodAdvice) -> Value {
    json!({
        "containers": advice.containers.iter().map(self::advice).collect::<Vec<_>>(),
        "evenkeel": {
            "policy": advice.policy,
            "mode": advice.mode.map(mode),
            "conflicts": advice.conflicts,
            "qosClass": { "before": advice.qos_before.as_str(), "after": advice.qos_after.as_str() },
            "changesClass": advice.qos_before != advice.qos_after,
            "inPlace": advice.in_place(),
            "panic": advice.panic,
            "loading": advice.loading,
            "cached": advice.cached,
        },
    })
}

/// One container of the answer to `/recommendedPodResources`.
pub(crate) fn advice(container: &ContainerAdvice) -> Value {
    let list = |list: &evenkeel_model::requirements::ResourceList| -> Value {
        let pairs = list.iter().map(|(name, amount)| (name.short().to_owned(), amount.canonical().into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let why: Map<String, Value> =
        container.recommendations.iter().map(|r| (r.resource.clone(), recommendation(r))).collect();
    json!({
        "name": container.name,
        "resources": {
            "requests": list(&container.resources.requests),
            "limits": list(&container.resources.limits),
        },
        "evenkeel": why,
    })
}

/// A usage record in its pinned form.
pub(crate) fn usage(usage: &Usage) -> Value {
    let mut out = json!({
        "namespace": usage.namespace,
        "workload": usage.workload,
        "container": usage.container,
    });
    let record = serde_json::to_value(&usage.record).unwrap_or_default();
    if let (Some(out), Value::Object(record)) = (out.as_object_mut(), record) {
        out.extend(record);
        let live = usage.live.iter().map(|(node, pod, moments)| {
            let seconds = moments.iter().map(|m| {
                json!({ "time": time(m.time_usec), "cpuMilli": m.cpu_milli, "memoryBytes": m.memory_bytes })
            });
            json!({ "node": node, "pod": pod, "seconds": seconds.collect::<Vec<_>>() })
        });
        out.insert("live".to_owned(), live.collect());
    }
    out
}

/// A node.
pub(crate) fn node(node: &v1::Node) -> Value {
    json!({
        "cluster": node.cluster,
        "name": node.name,
        "version": node.version,
        "connected": node.connected,
        "lastSeen": time(node.last_seen_usec),
        "containers": node.containers,
        "memoryBytes": node.facts.as_ref().map(|f| f.memory_bytes),
        "cpuMilli": node.facts.as_ref().map(|f| f.cpu_milli),
        "frames": node.frames,
        "samples": node.samples,
        "gaps": node.gaps,
        "gone": node.gone,
        "refusedContainers": node.refused_containers,
        "clockBehindSeconds": node.clock_behind_usec as f64 / 1e6,
        "dropped": node.dropped.iter().map(dropped).collect::<Vec<_>>(),
        "allocated": node.allocated.as_ref().map(allocated),
    })
}

pub(super) fn dropped(dropped: &v1::Dropped) -> Value {
    json!({ "reason": dropped.reason, "count": dropped.count, "remedy": dropped.remedy })
}

/// A namespace, or a whole cluster.
pub(crate) fn namespace(namespace: &v1::Namespace) -> Value {
    json!({
        "cluster": namespace.cluster,
        "namespace": filled(&namespace.name),
        "allocated": namespace.allocated.as_ref().map(allocated),
    })
}

/// What was done to pods that run, and which are left alone.
pub(crate) fn updates(told: &v1::ListUpdatesResponse) -> Value {
    let step = |of: &v1::PodUpdate| {
        json!({
            "timeUsec": of.time_usec, "namespace": of.namespace, "workload": of.workload, "policy": of.policy, "pod": of.pod,
            "uid": of.uid, "node": of.node, "deed": of.deed, "reason": of.reason, "why": of.why, "outcome": of.outcome,
            "error": of.error, "inputs": of.inputs,
        })
    };
    let left = |of: &v1::PodLeftAlone| {
        json!({
            "namespace": of.namespace, "workload": of.workload, "policy": of.policy, "pod": of.pod, "reason": of.reason,
            "why": of.why, "inputs": of.inputs, "sinceUsec": of.since_usec,
        })
    };
    let failure = |of: &v1::PodFailure| {
        json!({
            "namespace": of.namespace, "pod": of.pod, "workload": of.workload, "node": of.node, "container": of.container,
            "reason": of.reason, "message": of.message, "time": of.time, "toldByAgent": of.told_by_agent,
        })
    };
    let case = |of: &v1::UpdateCase| serde_json::from_str::<Value>(&of.text).unwrap_or_default();
    json!({
        "mode": told.mode, "passes": told.passes, "steps": told.steps.iter().map(step).collect::<Vec<_>>(),
        "leftAlone": told.left_alone.iter().map(left).collect::<Vec<_>>(),
        "failures": told.failures.iter().map(failure).collect::<Vec<_>>(),
        "cases": told.cases.iter().map(case).collect::<Vec<_>>(),
    })
}

pub(super) fn allocated(sums: &v1::Allocated) -> Value {
    let resource = |sum: Option<v1::AllocatedResource>| {
        let sum = sum.unwrap_or_default();
        json!({
            "allocatable": sum.allocatable,
            "requested": sum.requested,
            "limited": sum.limited,
            "unlimited": sum.unlimited,
            "used": sum.used,
            "recommended": sum.recommended,
            "recommendedContainers": sum.recommended_containers,
            "quotaRequests": sum.quota_requests,
            "quotaLimits": sum.quota_limits,
        })
    };
    json!({
        "pods": sums.pods,
        "containers": sums.containers,
        "cpuMilli": resource(sums.cpu),
        "memoryBytes": resource(sums.memory),
        "others": sums.others.iter().map(|(name, sum)| (name.clone(), other(sum))).collect::<Map<_, _>>(),
    })
}

pub(super) fn other(sum: &v1::AllocatedAmount) -> Value {
    json!({ "allocatable": filled(&sum.allocatable), "requested": sum.requested })
}

/// A decision in its pinned form.
pub(crate) fn event(d: &v1::Decision) -> Value {
    json!({
        "time": time(d.time_usec),
        "seq": d.seq,
        "node": d.node,
        "pod": d.pod,
        "container": d.container,
        "kind": d.kind,
        "knob": d.knob,
        "old": d.old,
        "new": d.new,
        "reason": d.reason,
        "inputs": d.inputs,
        "result": d.result,
    })
}
