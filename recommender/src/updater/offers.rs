//! Offers of agents that may still hold: rulings that a pod of their node should go, which they leave to whoever runs it. An agent is believed
//! about the pods that the API server places on its node, and about no others.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_kubernetes::ClusterView;
use evenkeel_store::state::NodeDecision;
use evenkeel_updater::{EvictionOffer, OfferCause, RunningPod};

use crate::api::Context;
use crate::followed::Followed;

/// By how much a node's clock may be ahead, seconds.
const AHEAD: u64 = 60;
/// Begins what a ruling says of who should act, which is known here.
const TO_WHOM: &str = "; offered to ";

/// The newest offer of each pod, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Offers(BTreeMap<(String, String), Offered>);

#[derive(Debug)]
struct Offered {
    node: String,
    uid: String,
    workload: String,
    offer: EvictionOffer,
}

/// Offers that are younger than `holds`, both in seconds.
pub(super) fn offers(context: &Context, followed: &Followed, now: u64, holds: u64) -> Offers {
    let view = followed.view();
    let state = context.engine.state().study();
    let events = state.events().rev().filter(|event| followed.is_meant(&event.node.cluster));
    let recent: Vec<NodeDecision> = events.filter(|event| is_offer(event, now, holds)).cloned().collect();
    drop(state);
    let mut found = Offers::default();
    for event in recent {
        found.take(&event, view);
    }
    found
}

/// Whether an agent rules that a pod should go, lately. What it tells of carrying that out itself says no cause.
fn is_offer(NodeDecision { decision, .. }: &NodeDecision, now: u64, holds: u64) -> bool {
    let at = decision.time_usec / 1_000_000;
    decision.kind == "evict"
        && decision.result == "done"
        && decision.inputs.contains_key("cause")
        && at <= now.saturating_add(AHEAD)
        && now < at.saturating_add(holds)
}

impl Offers {
    /// Takes one in, the newest of a pod first.
    fn take(&mut self, NodeDecision { node, decision }: &NodeDecision, view: &ClusterView) {
        let Some((namespace, pod)) = decision.pod.as_deref().and_then(|pod| pod.split_once('/')) else {
            return;
        };
        let Some(cause) = decision.inputs.get("cause").and_then(|word| OfferCause::of(word)) else { return };
        let Some(uid) = view.uid_on(&node.node, namespace, pod) else { return };
        if decision.inputs.get("pod_uid").is_some_and(|told| *told != uid) {
            return;
        }
        let Some(workload) = view.workload(namespace, pod, &uid) else { return };
        let why = decision.reason.split(TO_WHOM).next().unwrap_or_default();
        let why = match &decision.container {
            Some(container) => format!("Container {container}: {why}"),
            None => why.to_owned(),
        };
        let offer = EvictionOffer {
            id: format!("{}/{:x}/{}", node.node, decision.epoch, decision.seq),
            cause,
            why,
            at: decision.time_usec / 1_000_000,
        };
        let offered = Offered { node: node.node.clone(), uid, workload, offer };
        self.0.entry((namespace.to_owned(), pod.to_owned())).or_insert(offered);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether one is about a pod of this workload.
    pub(super) fn is_about(&self, namespace: &str, workload: &str) -> bool {
        self.0.iter().any(|((of, _), offered)| of == namespace && offered.workload == workload)
    }

    /// Namespaces that they are about.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.0.keys().map(|(namespace, _)| namespace.clone()).collect()
    }

    /// The one about a pod as it is now; a pod that took the name of another is none of it.
    pub(super) fn of(&self, namespace: &str, pod: &RunningPod) -> Option<EvictionOffer> {
        let offered = self.0.get(&(namespace.to_owned(), pod.name.clone()))?;
        let is_this = offered.uid == pod.uid && offered.node == pod.node;
        is_this.then(|| offered.offer.clone())
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1;
    use evenkeel_store::key::NodeKey;

    use super::*;

    #[test]
    fn only_a_ruling_of_lately_is_an_offer() {
        let ruling = |at: u64, kind: &str, result: &str, cause: Option<&str>| NodeDecision {
            node: NodeKey { cluster: "c".into(), node: "n".into() },
            decision: v1::Decision {
                time_usec: at * 1_000_000,
                kind: kind.into(),
                result: result.into(),
                inputs: cause.map(|cause| ("cause".to_owned(), cause.to_owned())).into_iter().collect(),
                ..v1::Decision::default()
            },
        };
        for (event, want) in [
            (ruling(1000, "evict", "done", Some("oom-kill")), true),
            (ruling(401, "evict", "done", Some("oom-kill")), true),
            (ruling(400, "evict", "done", Some("oom-kill")), false),
            (ruling(1060, "evict", "done", Some("pressure")), true),
            // A clock that is ahead would let it hold for longer.
            (ruling(1061, "evict", "done", Some("pressure")), false),
            (ruling(1000, "restart", "done", Some("oom-kill")), false),
            (ruling(1000, "evict", "would-do", Some("oom-kill")), false),
            // What the agent tells of carrying it out.
            (ruling(1000, "evict", "done", None), false),
        ] {
            assert_eq!(is_offer(&event, 1000, 600), want, "{event:?}");
        }
    }
}
