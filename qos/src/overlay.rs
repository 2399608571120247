//! One step from what a container's request is in force towards what is recommended.
//!
//! Owned here: how far a step goes and what holds it back, and what counts as another class. A recommendation is never taken at once: it may be wrong, and a
//! step whose effect is seen before the next one costs a minute at most. Not owned: who is recommended what, when the next
//! step is due, undoing one. A step that would change a class is not made at all.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::ContainerResources;
use serde::{Deserialize, Serialize};

use crate::rules::{PodShape, cpu_class, memory_class, pod_class};

/// Changes smaller than this part of the present value are not worth a step, percent: they cost a pass over every process
/// and gain nothing anybody sees.
const LEAST_PERCENT: u64 = 2;

/// What an operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayCase {
    /// The request in force; nothing where there is none.
    pub now: Option<u64>,
    /// What is recommended.
    pub target: u64,
    /// The container's own limit, which a request must not exceed.
    pub limit: Option<u64>,
    /// What requests leave of the node.
    pub free: u64,
    /// What is allowed.
    #[serde(flatten)]
    pub clamp: Clamp,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayStep {
    /// The request after it.
    pub value: u64,
    /// What kept it from the recommended value.
    pub capped_by: Vec<&'static str>,
}

/// The next step; `None` when there is nothing worth a step.
pub fn step(case: &OverlayCase) -> Option<OverlayStep> {
    let OverlayCase { now, target, limit, free, clamp } = *case;
    let Some(now) = now else { return first_step(case) };
    let percent = |part: u64| u64::try_from(u128::from(now) * u128::from(part) / 100).unwrap_or(u64::MAX);
    let mut step = OverlayStep { value: target, capped_by: Vec::new() };
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

/// Who asked for nothing begins at the least and goes on from there: what it needs was never tried on this node.
fn first_step(case: &OverlayCase) -> Option<OverlayStep> {
    let OverlayCase { target, limit, free, clamp, .. } = *case;
    let mut step = OverlayStep { value: target, capped_by: Vec::new() };
    step.cap(clamp.least, if target < clamp.least { "band" } else { "step" });
    (step.value > 0 && step.value <= free.min(limit.unwrap_or(u64::MAX))).then_some(step)
}

impl OverlayStep {
    fn cap(&mut self, value: u64, by: &'static str) {
        if std::mem::replace(&mut self.value, value) != value {
            self.capped_by.push(by);
        }
    }
}

/// A step of a container's request, and who advised it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advised {
    /// What it was decided by.
    #[serde(flatten)]
    pub case: OverlayCase,
    /// The policy and its rule; told in the text alone.
    #[serde(skip)]
    pub by: Option<(String, String)>,
}

impl Advised {
    pub(crate) fn text(&self) -> String {
        let target = self.case.target;
        let held = step(&self.case).map_or_else(Vec::new, |step| step.capped_by);
        let held =
            if held.is_empty() { String::new() } else { format!(", held back by {}", held.join(", ")) };
        match &self.by {
            Some((policy, rule)) => format!("policy {policy} asks for {target} by rule {rule}{held}"),
            None => format!("{target} is recommended{held}"),
        }
    }

    /// The request after it; the one before where there is nothing worth a step.
    pub(crate) fn again(&self) -> String {
        let value = step(&self.case).map(|step| step.value).or(self.case.now);
        value.map_or_else(|| "none".to_owned(), |value| value.to_string())
    }
}

/// The class that other requirements would put a container into: what it is, and what it would become. Nothing where it
/// stays what it is.
///
/// It is the class by memory (the proposal's), and that of Kubernetes by both resources. By CPU alone a container may come
/// to a request that it never had, as long as it is Burstable by both: nothing is taken from it. What is Guaranteed by CPU
/// stays so.
pub fn changed_class(
    before: &ContainerResources,
    after: &ContainerResources,
) -> Option<(QosClass, QosClass)> {
    let kubernetes = |r: &ContainerResources| pod_class(PodShape::Containers(&[*r]));
    let cpu = |r: &ContainerResources| match cpu_class(r) {
        QosClass::Guaranteed => QosClass::Guaranteed,
        QosClass::Burstable | QosClass::BestEffort => QosClass::Burstable,
    };
    let pairs = [
        (memory_class(before), memory_class(after)),
        (kubernetes(before), kubernetes(after)),
        (cpu(before), cpu(after)),
    ];
    pairs.into_iter().find(|(before, after)| before != after)
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
            let got = step(&OverlayCase { now: Some(now), target, limit, free, clamp: CLAMP });
            let want = want.map(|(value, by)| OverlayStep { value, capped_by: by.to_vec() });
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn who_asked_for_nothing_begins_at_the_least() {
        type Wanted<'a> = Option<(u64, &'a [&'static str])>;
        let table: [(&str, u64, Option<u64>, u64, Wanted<'_>); 6] = [
            ("far from what it needs", 500, None, 9000, Some((10, &["step"]))),
            ("it needs less", 3, None, 9000, Some((10, &["band"]))),
            ("just what it needs", 10, None, 9000, Some((10, &[]))),
            ("room for just that", 500, Some(10), 10, Some((10, &["step"]))),
            ("no room", 500, None, 9, None),
            ("a limit below", 500, Some(9), 9000, None),
        ];
        for (name, target, limit, free, want) in table {
            let case = OverlayCase { now: None, target, limit, free, clamp: CLAMP };
            let want = want.map(|(value, by)| OverlayStep { value, capped_by: by.to_vec() });
            assert_eq!(step(&case), want, "{name}");
            let again = want.map_or_else(|| "none".to_owned(), |step| step.value.to_string());
            assert_eq!(Advised { case, by: None }.again(), again, "{name}");
        }
    }

    #[test]
    fn a_class_is_that_of_memory_and_that_of_both() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        // Request and limit of CPU, then of memory; 0 is none.
        let of = |[cpu, cpu_limit, memory, memory_limit]: [u64; 4]| ContainerResources {
            cpu_request: (cpu > 0).then(|| MilliCpu::new(cpu)),
            cpu_limit: (cpu_limit > 0).then(|| MilliCpu::new(cpu_limit)),
            memory_request: (memory > 0).then(|| Bytes::new(memory)),
            memory_limit: (memory_limit > 0).then(|| Bytes::new(memory_limit)),
        };
        let table = [
            ("more of both", [100, 0, 50, 100], [900, 0, 99, 100], None),
            ("memory up to its limit", [100, 0, 50, 100], [100, 0, 100, 100], Some((Burstable, Guaranteed))),
            ("a first CPU request", [0, 0, 50, 0], [10, 0, 50, 0], None),
            ("and back", [10, 0, 50, 0], [0, 0, 50, 0], None),
            ("a first memory request", [100, 0, 0, 0], [100, 0, 16, 0], Some((BestEffort, Burstable))),
            ("a first request of all", [0, 0, 0, 0], [10, 0, 0, 0], Some((BestEffort, Burstable))),
            ("CPU below its limit", [100, 100, 50, 100], [90, 100, 50, 100], Some((Guaranteed, Burstable))),
            ("CPU up to its limit", [90, 100, 50, 100], [100, 100, 50, 100], Some((Burstable, Guaranteed))),
            ("both were equal", [100, 100, 50, 50], [100, 100, 40, 50], Some((Guaranteed, Burstable))),
        ];
        for (name, before, after, want) in table {
            assert_eq!(changed_class(&of(before), &of(after)), want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn steps_arrive_and_never_pass_what_is_allowed(
            now in 10u64..4000, target in 0u64..100_000, limit in prop::option::of(4000u64..9000), free in 0u64..5000,
        ) {
            let mut at = now;
            let mut free = free;
            for _ in 0..200 {
                let case = OverlayCase { now: Some(at), target, limit, free, clamp: CLAMP };
                let again = Advised { case, by: None }.again();
                prop_assert_eq!(again, step(&case).map_or(at, |s| s.value).to_string());
                let Some(OverlayStep { value, .. }) = step(&case) else { break };
                prop_assert!((10..=4000).contains(&value));
                prop_assert!(value * 100 <= at * 150 + 100 && value * 100 + 100 >= at * 80);
                prop_assert!(value <= at || value - at <= free);
                free = (free + at).saturating_sub(value);
                at = value;
            }
            let last = step(&OverlayCase { now: Some(at), target, limit, free, clamp: CLAMP });
            prop_assert_eq!(last, None);
        }
    }
}
