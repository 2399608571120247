//! What status and metrics show of pressure and starvation.

use std::sync::Mutex;

use evenkeel_model::units::Bytes;
use evenkeel_qos::pressure::{Grade, Signals};

use crate::shared::lock;
use crate::stats::{Count, Histogram};

/// The last step that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastStep {
    /// When, microseconds since 1970.
    pub time_usec: u64,
    /// Pod and container.
    pub container: String,
    /// Kernel file.
    pub knob: String,
    /// What it was set to, or what was done.
    pub value: String,
    /// Why.
    pub why: String,
}

/// The node or one owned subtree, as status shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainView {
    /// Path of the subtree; empty for the node.
    pub cgroup: String,
    /// How bad it is.
    pub grade: Grade,
    /// What brought the grade about; empty when calm.
    pub cause: &'static str,
    /// Since when, microseconds since 1970.
    pub since_usec: u64,
    /// What it is judged by.
    pub signals: Signals,
    /// Its memory.
    pub total: Bytes,
    /// How a change is noticed: `trigger`, `v1-event`, `poll`.
    pub wake: &'static str,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Whether anything is done about memory.
    pub enabled: bool,
    /// The node first, then owned subtrees.
    pub domains: Vec<DomainView>,
    /// Containers that do not get the CPU they requested.
    pub starving: usize,
    /// What was done last.
    pub last: Option<LastStep>,
}

/// Shared with whoever serves it.
#[derive(Debug, Default)]
pub struct View {
    shown: Mutex<Shown>,
}

impl View {
    /// What is shown now.
    pub fn shown(&self) -> Shown {
        lock(&self.shown).clone()
    }

    pub(super) fn show(&self, enabled: bool, domains: Vec<DomainView>, starving: usize) {
        let mut shown = lock(&self.shown);
        (shown.enabled, shown.domains, shown.starving) = (enabled, domains, starving);
    }

    pub(super) fn last(&self, step: LastStep) {
        lock(&self.shown).last = Some(step);
    }
}

/// Counters, shown at `/metrics` under `evenkeel_agent_pressure_*`.
#[derive(Debug, Default)]
pub struct PressureStats {
    /// Grade of the node: 0 calm to 3 critical.
    pub grade: Count,
    /// Cheap looks.
    pub glances: Count,
    /// Looks at every container.
    pub looks: Count,
    /// Triggers of the kernel that fired.
    pub triggers: Count,
    /// Steps by rung: reclaim, high, freeze, kill.
    pub steps: [Count; 4],
    /// Steps undone.
    pub releases: Count,
    /// Squeezes of CPU.
    pub squeezes: Count,
    /// Steps that failed.
    pub failures: Count,
    /// Steps put off because the worker was behind.
    pub deferred: Count,
    /// Bytes reclaimed.
    pub reclaimed_bytes: Count,
    /// Settings held now.
    pub held: Count,
    /// Containers that thrash at their own limits now.
    pub thrashing: Count,
    /// Containers that starve now.
    pub starving: Count,
    /// From a trigger's poll returning to the first write completed.
    pub first_write: Histogram,
    /// The same of the last time, microseconds.
    pub first_write_last_usec: Count,
}
