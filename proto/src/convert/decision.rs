//! Decisions; kind and result are texts on the wire, the same as in JSON.

use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};

use super::ConvertError;
use crate::v1;

const KINDS: [(DecisionKind, &str); 20] = [
    (DecisionKind::Found, "found"),
    (DecisionKind::Gone, "gone"),
    (DecisionKind::Classified, "classified"),
    (DecisionKind::Set, "set"),
    (DecisionKind::Converged, "converged"),
    (DecisionKind::Denied, "denied"),
    (DecisionKind::Contended, "contended"),
    (DecisionKind::Ineffective, "ineffective"),
    (DecisionKind::OomKill, "oom-kill"),
    (DecisionKind::Relieve, "relieve"),
    (DecisionKind::Release, "release"),
    (DecisionKind::Starved, "starved"),
    (DecisionKind::Thrash, "thrash"),
    (DecisionKind::Kill, "kill"),
    (DecisionKind::Evict, "evict"),
    (DecisionKind::Restart, "restart"),
    (DecisionKind::Resize, "resize"),
    (DecisionKind::Node, "node"),
    (DecisionKind::Source, "source"),
    (DecisionKind::Agent, "agent"),
];

const RESULTS: [(DecisionResult, &str); 8] = [
    (DecisionResult::Done, "done"),
    (DecisionResult::WouldDo, "would-do"),
    (DecisionResult::Unchanged, "unchanged"),
    (DecisionResult::Denied, "denied"),
    (DecisionResult::Unsupported, "unsupported"),
    (DecisionResult::Rejected, "rejected"),
    (DecisionResult::Gone, "gone"),
    (DecisionResult::Failed, "failed"),
];

/// Every kind as it is written on the wire and in JSON.
pub fn decision_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(_, text)| *text)
}

fn text_of<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    // A member missing from its table would show as empty; a test walks all of them.
    table.iter().find(|(member, _)| member == value).map_or("", |(_, text)| text)
}

fn member_of<T: Copy>(
    table: &[(T, &'static str)],
    field: &'static str,
    text: &str,
) -> Result<T, ConvertError> {
    let found = table.iter().find(|(_, known)| *known == text);
    found.map(|(member, _)| *member).ok_or_else(|| ConvertError::unknown(field, text))
}

impl From<Decision> for v1::Decision {
    fn from(decision: Decision) -> Self {
        Self {
            time_usec: decision.time_usec,
            seq: decision.seq,
            pod: decision.pod,
            container: decision.container,
            kind: text_of(&KINDS, &decision.kind).to_owned(),
            knob: decision.knob,
            old: decision.old,
            new: decision.new,
            reason: decision.reason,
            inputs: decision.inputs,
            result: text_of(&RESULTS, &decision.result).to_owned(),
            node: String::new(),
            epoch: 0,
        }
    }
}

impl TryFrom<v1::Decision> for Decision {
    type Error = ConvertError;

    fn try_from(wire: v1::Decision) -> Result<Self, ConvertError> {
        Ok(Self {
            kind: member_of(&KINDS, "kind", &wire.kind)?,
            result: member_of(&RESULTS, "result", &wire.result)?,
            time_usec: wire.time_usec,
            seq: wire.seq,
            pod: wire.pod,
            container: wire.container,
            knob: wire.knob,
            old: wire.old,
            new: wire.new,
            reason: wire.reason,
            inputs: wire.inputs,
        })
    }
}
