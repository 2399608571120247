//! One step from what a container's request is in force towards what is recommended.
//!
//! Owned here: how far a step goes and what holds it back. A recommendation is never taken at once: it may be wrong, and a
//! step whose effect is seen before the next one costs a minute at most. Not owned: who is recommended what, when the next
//! step is due, undoing one ([`crate::rules`] says whether a step changes a class; then it is not made at all).

use std::collections::BTreeMap;

use evenkeel_model::workload::ContainerResources;

use crate::formula;
use crate::rules::{cpu_class, memory_class};

/// Changes smaller than this part of the present value are not worth a step, percent: they cost a pass over every process
/// and gain nothing anybody sees.
const LEAST_PERCENT: u64 = 2;

/// What an operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clamp {
    /// A step raises a request to at most this percentage of what it is.
    pub up_percent: u64,
    /// A step lowers a request to at least this percentage of what it is.
    pub down_percent: u64,
    /// No request is brought below this, in the resource's unit.
    pub least: u64,
    /// No request is brought above this.
    pub most: u64,
}

/// Everything a step is decided by, in the resource's unit: thousandths of a core, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The request in force.
    pub now: u64,
    /// What is recommended.
    pub target: u64,
    /// The container's own limit, which a request must not exceed.
    pub limit: Option<u64>,
    /// What requests leave of the node.
    pub free: u64,
    /// What is allowed.
    pub clamp: Clamp,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The request after it.
    pub value: u64,
    /// What kept it from the recommended value.
    pub capped_by: Vec<&'static str>,
}

/// The next step; `None` when there is nothing worth a step.
pub fn step(case: &Case) -> Option<Step> {
    let Case { now, target, limit, free, clamp } = *case;
    let percent = |part: u64| u64::try_from(u128::from(now) * u128::from(part) / 100).unwrap_or(u64::MAX);
    let mut step = Step { value: target, capped_by: Vec::new() };
    step.cap(target.clamp(clamp.least, clamp.most.max(clamp.least)), "band");
    step.cap(step.value.min(limit.unwrap_or(u64::MAX)), "limit");
    if step.value > now {
        // Rounding must not stop a small request for good.
        step.cap(step.value.min(percent(clamp.up_percent).max(now + 1)), "step");
        step.cap(step.value.min(now.saturating_add(free)), "node");
    } else {
        step.cap(step.value.max(percent(clamp.down_percent)), "step");
    }
    let change = step.value.abs_diff(now);
    let seen = u128::from(change) * 100 >= u128::from(now) * u128::from(LEAST_PERCENT);
    (change > 0 && seen).then_some(step)
}

impl Step {
    fn cap(&mut self, value: u64, by: &'static str) {
        if std::mem::replace(&mut self.value, value) != value {
            self.capped_by.push(by);
        }
    }
}

impl Case {
    /// All numbers of the decision.
    pub fn inputs(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([("formula".to_owned(), formula::OVERLAY_STEP.to_owned())]);
        let mut put = |name: &str, value: u64| all.insert(name.to_owned(), value.to_string());
        put("now", self.now);
        put("target", self.target);
        put("free", self.free);
        put("up_percent", self.clamp.up_percent);
        put("down_percent", self.clamp.down_percent);
        put("least", self.clamp.least);
        put("most", self.clamp.most);
        if let Some(limit) = self.limit {
            put("limit", limit);
        }
        all
    }
}

/// The value a recorded step comes to by the present rule; `None` when these are not its inputs.
pub(crate) fn replay(all: &BTreeMap<String, String>) -> Option<String> {
    let get = |name: &str| all.get(name).and_then(|text| text.parse().ok());
    let limit = match all.get("limit") {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    let case = Case {
        now: get("now")?,
        target: get("target")?,
        limit,
        free: get("free")?,
        clamp: Clamp {
            up_percent: get("up_percent")?,
            down_percent: get("down_percent")?,
            least: get("least")?,
            most: get("most")?,
        },
    };
    Some(step(&case).map_or(case.now, |step| step.value).to_string())
}

/// Whether other requirements would put a container into another class, by memory or by CPU.
pub fn changes_class(before: &ContainerResources, after: &ContainerResources) -> bool {
    memory_class(before) != memory_class(after) || cpu_class(before) != cpu_class(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::units::{Bytes, MilliCpu};
    use proptest::prelude::*;

    const CLAMP: Clamp = Clamp { up_percent: 150, down_percent: 80, least: 10, most: 4000 };

    #[test]
    fn a_step_is_held_back_by_the_narrowest() {
        type Wanted<'a> = Option<(u64, &'a [&'static str])>;
        type Row<'a> = (&'a str, u64, u64, Option<u64>, u64, Wanted<'a>);
        let table: [Row<'_>; 11] = [
            ("near enough is taken at once", 500, 600, None, 9000, Some((600, &[]))),
            ("far up is half as much again", 500, 2000, None, 9000, Some((750, &["step"]))),
            ("far down is a fifth less", 500, 100, None, 9000, Some((400, &["step"]))),
            ("the node has little left", 500, 700, None, 50, Some((550, &["node"]))),
            ("the node has nothing left", 500, 700, None, 0, None),
            ("lowering needs no room", 500, 450, None, 0, Some((450, &[]))),
            ("the limit", 500, 2000, Some(600), 9000, Some((600, &["limit"]))),
            ("the band below", 12, 1, None, 9000, Some((10, &["band"]))),
            ("the band above", 3900, 9000, None, 9000, Some((4000, &["band"]))),
            ("as it is", 500, 500, None, 9000, None),
            ("a change nobody sees", 500, 505, None, 9000, None),
        ];
        for (name, now, target, limit, free, want) in table {
            let got = step(&Case { now, target, limit, free, clamp: CLAMP });
            let want = want.map(|(value, by)| Step { value, capped_by: by.to_vec() });
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn a_class_is_decided_by_both_resources() {
        let of = |cpu, memory, limit: u64| ContainerResources {
            cpu_request: Some(MilliCpu::new(cpu)),
            cpu_limit: None,
            memory_request: Some(Bytes::new(memory)),
            memory_limit: Some(Bytes::new(limit)),
        };
        assert!(!changes_class(&of(100, 50, 100), &of(900, 99, 100)));
        assert!(changes_class(&of(100, 50, 100), &of(100, 100, 100)));
        assert!(changes_class(&of(100, 50, 100), &of(0, 50, 100)));
    }

    proptest! {
        #[test]
        fn steps_arrive_and_never_pass_what_is_allowed(
            now in 10u64..4000, target in 0u64..100_000, limit in prop::option::of(4000u64..9000), free in 0u64..5000,
        ) {
            let mut at = now;
            let mut free = free;
            for _ in 0..200 {
                let case = Case { now: at, target, limit, free, clamp: CLAMP };
                prop_assert_eq!(
                    replay(&case.inputs()),
                    Some(step(&case).map_or(at, |s| s.value).to_string())
                );
                let Some(Step { value, .. }) = step(&case) else { break };
                prop_assert!((10..=4000).contains(&value));
                prop_assert!(value * 100 <= at * 150 + 100 && value * 100 + 100 >= at * 80);
                prop_assert!(value <= at || value - at <= free);
                free = (free + at).saturating_sub(value);
                at = value;
            }
            let last = step(&Case { now: at, target, limit, free, clamp: CLAMP });
            prop_assert_eq!(last, None);
        }
    }
}
