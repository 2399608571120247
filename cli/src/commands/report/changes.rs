//! What would be changed, gathered from decisions.

use std::collections::BTreeMap;

use evenkeel_proto::v1::Decision;

use super::{FOR_A_WHILE, PendingChange};

/// What is the node's, a container's, and which knob.
pub(super) type Key = (String, Option<String>, Option<String>, String);

/// What the decisions so far come to.
#[derive(Default)]
pub(super) struct PendingChanges {
    pub(super) standing: BTreeMap<Key, PendingChange>,
    /// Nodes whose agent's start is known, with its mode.
    pub(super) started: BTreeMap<String, String>,
}

impl PendingChanges {
    pub(super) fn take(&mut self, event: Decision) {
        if let Some(mode) = starts(&event) {
            self.started.insert(event.node.clone(), mode.to_owned());
            // It looks at everything anew.
            self.standing.retain(|(node, ..), _| *node != event.node);
        } else if event.kind == "gone" {
            let is_gone = |pod: &Option<String>, container: &Option<String>| {
                *pod == event.pod && (event.container.is_none() || *container == event.container)
            };
            self.standing
                .retain(|(node, pod, container, _), _| *node != event.node || !is_gone(pod, container));
        } else if !FOR_A_WHILE.contains(&event.kind.as_str()) {
            self.set(event);
        }
    }

    /// The newest word about a knob.
    fn set(&mut self, event: Decision) {
        let Some(knob) = event.knob else { return };
        let key = (event.node.clone(), event.pod.clone(), event.container.clone(), knob.clone());
        if event.result != "would-do" {
            self.standing.remove(&key);
            return;
        }
        let Decision { node, pod, container, old: now, new: then, reason: why, .. } = event;
        self.standing.insert(key, PendingChange { node, pod, container, knob, now, then, why });
    }
}

/// The mode of an agent, where this is its first decision: the only one that names mode and rules.
pub(super) fn starts(event: &Decision) -> Option<&str> {
    let is_start = event.kind == "agent" && event.inputs.contains_key("rules");
    event.inputs.get("mode").filter(|_| is_start).map(String::as_str)
}
