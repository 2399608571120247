//! Values of the wire as people and scripts read them.

use evenkeel_proto::v1::{self, ContainerIdentity, ContainerKind, ConvergeState, Decision, QosClass};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

use crate::table::{Cell, Tone, clean};

/// Name of a class, `None` where nothing is known.
pub(crate) fn class(class: i32) -> Option<&'static str> {
    match QosClass::try_from(class) {
        Ok(QosClass::BestEffort) => Some("BestEffort"),
        Ok(QosClass::Burstable) => Some("Burstable"),
        Ok(QosClass::Guaranteed) => Some("Guaranteed"),
        Ok(QosClass::Unspecified) | Err(_) => None,
    }
}

/// A class as it is and as it will be.
#[derive(Debug, Serialize)]
pub(crate) struct ClassChange {
    before: Option<&'static str>,
    after: Option<&'static str>,
}

impl ClassChange {
    /// From the numbers of a message.
    pub(crate) fn new(before: i32, after: i32) -> Self {
        Self { before: class(before), after: class(after) }
    }

    /// Both names.
    pub(crate) fn words(&self) -> [&'static str; 2] {
        [self.before, self.after].map(|class| class.unwrap_or("-"))
    }
}

/// One name where the class stays, both where it changes.
impl std::fmt::Display for ClassChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.before, self.after) {
            (Some(before), Some(after)) if before != after => write!(f, "{before} -> {after}"),
            (_, Some(class)) | (Some(class), None) => f.write_str(class),
            (None, None) => f.write_str("-"),
        }
    }
}

/// Name of a part of a pod.
pub(crate) fn kind(kind: i32) -> Option<&'static str> {
    match ContainerKind::try_from(kind) {
        Ok(ContainerKind::Regular) => Some("regular"),
        Ok(ContainerKind::Init) => Some("init"),
        Ok(ContainerKind::Sidecar) => Some("sidecar"),
        Ok(ContainerKind::Infrastructure) => Some("infrastructure"),
        Ok(ContainerKind::Unspecified) | Err(_) => None,
    }
}

/// Name of a state.
pub(crate) fn state(state: i32) -> &'static str {
    match ConvergeState::try_from(state) {
        Ok(ConvergeState::Dirty) => "dirty",
        Ok(ConvergeState::Converging) => "converging",
        Ok(ConvergeState::Converged) => "converged",
        Ok(ConvergeState::Denied) => "denied",
        Ok(ConvergeState::Contended) => "contended",
        Ok(ConvergeState::Ineffective) => "ineffective",
        Ok(ConvergeState::Unclassified) => "unclassified",
        Ok(ConvergeState::Unspecified) | Err(_) => "unknown",
    }
}

/// A cell in the colour of its state.
pub(crate) fn toned(state: &str) -> Cell {
    let tone = match state {
        "converged" | "ok" | "done" | "connected" | "protected" => Tone::Good,
        "dirty" | "converging" | "contended" | "ineffective" | "warn" | "would-do" | "would-set"
        | "would-protect" | "waiting" => Tone::Warn,
        "denied" | "unsupported" | "fail" | "failed" | "rejected" | "refused" | "disconnected" => Tone::Bad,
        _ => Tone::Faint,
    };
    Cell::toned(state, tone)
}

/// A moment in RFC 3339, UTC; `None` for 0, which is never.
pub(crate) fn time(usec: u64) -> Option<String> {
    let usec = i64::try_from(usec).ok().filter(|u| *u > 0)?;
    Timestamp::from_microsecond(usec).ok().map(|t| t.to_string())
}

/// Text, or nothing for the wire's empty text.
pub(crate) fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// `namespace/pod` of a container.
pub(crate) fn pod(identity: &ContainerIdentity) -> String {
    format!("{}/{}", identity.namespace, identity.pod)
}

/// Classes by resource.
#[derive(Debug, Serialize)]
pub(crate) struct Classes {
    pub(crate) memory: Option<&'static str>,
    pub(crate) cpu: Option<&'static str>,
}

impl Classes {
    pub(crate) fn of(identity: &ContainerIdentity) -> Self {
        Self { memory: class(identity.memory_class), cpu: class(identity.cpu_class) }
    }
}

/// A decision in its pinned form.
#[derive(Debug, Serialize)]
pub(crate) struct DecisionEvent {
    pub(crate) time: Option<String>,
    pub(crate) seq: u64,
    pub(crate) node: Option<String>,
    pub(crate) pod: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) kind: String,
    pub(crate) knob: Option<String>,
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
    pub(crate) reason: String,
    pub(crate) inputs: BTreeMap<String, String>,
    pub(crate) result: String,
}

impl DecisionEvent {
    /// The decision of `node`, unless it names its own.
    pub(crate) fn of(decision: Decision, node: &str) -> Self {
        let own = known(&decision.node).map(str::to_owned);
        Self {
            time: time(decision.time_usec),
            seq: decision.seq,
            node: own.or_else(|| known(node).map(str::to_owned)),
            pod: decision.pod,
            container: decision.container,
            kind: decision.kind,
            knob: decision.knob,
            old: decision.old,
            new: decision.new,
            reason: decision.reason,
            inputs: decision.inputs,
            result: decision.result,
        }
    }
}

/// What a recommender did not take in of what a node said.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dropped {
    pub(crate) reason: String,
    pub(crate) count: u64,
    pub(crate) remedy: String,
}

impl From<v1::Dropped> for Dropped {
    fn from(d: v1::Dropped) -> Self {
        Self { reason: d.reason, count: d.count, remedy: d.remedy }
    }
}

/// The same in a cell.
pub(crate) fn dropped(all: &[Dropped]) -> String {
    let each: Vec<String> = all.iter().map(|d| format!("{} {}", clean(&d.reason), d.count)).collect();
    if each.is_empty() { "-".to_owned() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_zero_is_never() {
        assert_eq!(time(0), None);
        assert_eq!(time(1_000_000).unwrap(), "1970-01-01T00:00:01Z");
        assert_eq!(time(1_700_000_000_123_456).unwrap(), "2023-11-14T22:13:20.123456Z");
        assert_eq!(time(u64::MAX), None);
    }
}
