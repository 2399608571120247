//! What kubelets say went wrong with pods (OOM kills, evictions), beside what agents told of the same: either completes the other, and nothing counts
//! twice.

use std::collections::BTreeMap;

use evenkeel_kubernetes::Failed;
use evenkeel_proto::v1;
use evenkeel_store::state::kills::SAME_USEC;

use crate::api::Context;
use crate::followed::{FAILURES, usec};

/// When agents told of a kill or an eviction, microseconds, by pod (`namespace/name`) and container.
type Told = BTreeMap<(String, String), Vec<u64>>;

/// Whether an agent told of it; of an eviction without a time, whether it told of any.
fn is_told(told: &Told, failed: &Failed) -> bool {
    let Failed { namespace, pod, failure, .. } = failed;
    let at = usec(&failure.at);
    let is_same = |told: u64| at.is_none_or(|at| told.abs_diff(at) <= SAME_USEC);
    let pod = format!("{namespace}/{pod}");
    let of = |(key, times): (&(String, String), &Vec<u64>)| {
        let is_container = failure.container.is_empty() || *key.1 == *failure.container;
        is_container && times.iter().any(|told| is_same(*told))
    };
    let from = (pod.clone(), String::new());
    told.range(from..).take_while(|(key, _)| key.0 == pod).any(of)
}

/// What went wrong with pods of a namespace, or of all where it is empty.
pub(super) fn list(context: &Context, namespace: &str, pod: &str) -> Vec<v1::PodFailure> {
    let Some(followed) = context.readiness.followed() else { return Vec::new() };
    let failed = followed.view().failures(namespace, FAILURES);
    if failed.is_empty() {
        return Vec::new();
    }
    let mut told = Told::new();
    let state = context.engine.state().study();
    for event in state.events().filter(|event| followed.is_meant(&event.node.cluster)) {
        let decision = &event.decision;
        if let (Some(pod), "oom-kill" | "evict") = (&decision.pod, decision.kind.as_str()) {
            let key = (pod.clone(), decision.container.clone().unwrap_or_default());
            told.entry(key).or_default().push(decision.time_usec);
        }
    }
    drop(state);
    let meant = failed.into_iter().filter(|failed| pod.is_empty() || failed.pod == pod);
    meant.map(|failed| message(is_told(&told, &failed), failed)).collect()
}

fn message(
    told_by_agent: bool,
    Failed { namespace, pod, node, workload, failure }: Failed,
) -> v1::PodFailure {
    v1::PodFailure {
        namespace,
        pod,
        workload: workload.unwrap_or_default(),
        node,
        container: failure.container.into(),
        reason: failure.reason.to_owned(),
        message: failure.message.into(),
        time: failure.at.into(),
        told_by_agent,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_kubernetes::PodFailure;

    use super::*;

    #[test]
    fn what_an_agent_told_of_is_not_told_twice() {
        let at = 1_795_225_427_000_000_u64;
        let told: Told = [
            (("shop/web".to_owned(), "main".to_owned()), vec![at]),
            (("shop/web-2".to_owned(), "main".to_owned()), vec![at]),
        ]
        .into();
        let failed = |pod: &str, container: &str, reason: &'static str, at: &str| Failed {
            namespace: "shop".into(),
            pod: pod.into(),
            node: "n".into(),
            workload: None,
            failure: PodFailure {
                reason,
                container: container.into(),
                at: at.into(),
                ..PodFailure::default()
            },
        };
        for (failed, want) in [
            (failed("web", "main", "OOMKilled", "2026-11-21T01:43:47Z"), true),
            (failed("web", "main", "OOMKilled", "2026-11-21T01:44:47Z"), true),
            (failed("web", "main", "OOMKilled", "2026-11-21T01:44:48Z"), false),
            (failed("web", "other", "OOMKilled", "2026-11-21T01:43:47Z"), false),
            (failed("web-3", "main", "OOMKilled", "2026-11-21T01:43:47Z"), false),
            (failed("web", "", "Evicted", "2026-11-21T01:43:50Z"), true),
            (failed("web-2", "", "Evicted", ""), true),
            (failed("we", "", "Evicted", ""), false),
        ] {
            assert_eq!(is_told(&told, &failed), want, "{failed:?}");
        }
    }
}
