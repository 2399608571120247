//! Parameters of the rule, each with its reason.

use serde::{Deserialize, Serialize};

/// Parameters of the rule.
///
/// The shape was chosen among some thousand by replaying public traces (GWA-T-12 Bitbrains, five EC2 and RDS series of the
/// Numenta Anomaly Benchmark, six of Crane's test data, one container of Alibaba's 2018 trace, totals of Azure's 2019
/// trace), leaving one set out at a time; numbers are rounded, none is fitted to a single set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    /// CPU use above this part of the request counts as over.
    pub cpu_fill: f64,
    /// Part of the time in which CPU use may be over.
    pub cpu_over: f64,
    /// Part of the 24 h windows in which memory use may be over the request.
    pub memory_over: f64,
    /// Days of CPU history: two weeks see each weekday twice; a third one adds slack, one alone forgets too early.
    pub cpu_days: u64,
    /// Days of memory history through which the spread of daily peaks is measured: three weeks.
    pub memory_days: u64,
    /// Added to CPU for a future unlike the past: on the public traces the least, in round numbers, with which four of five
    /// sets keep within the objective.
    pub cpu_margin: f64,
    /// Part of the distance from percentile to peak that is added. Restless series break out by more; calm ones have next to
    /// no distance and pay nothing.
    pub cpu_reach: f64,
    /// The most that the distance adds, as a part of the percentile: a peak far beyond is a rare burst that the 1 % covers.
    pub cpu_reach_limit: f64,
    /// Part added to memory.
    pub memory_margin: f64,
    /// Days after which history is as good as it gets: every weekday was seen.
    pub mature_days: f64,
    /// Part that a present request may be too high before it is lowered.
    pub settle: f64,
    /// Part by which a new answer for CPU may be above or below the one before while that is kept. From a half to the
    /// double, on every public set the changes are at most 5 % a day and the risk is the same; the least of these.
    pub cpu_keep: f64,
    /// The same for memory, where too much is rarely given back: a half would keep more than the objective needs.
    pub memory_keep: f64,
    /// Least CPU request, millionths of a core: below 10 m the shares that follow from a request hardly differ.
    pub min_cpu_micro: u64,
    /// Least memory request, bytes: what a small static program and its stack need.
    pub min_memory_bytes: u64,
    /// Part added to what was used when an OOM kill struck; doubles with each repetition within a day.
    pub oom_margin: f64,
    /// Least addition after an OOM kill, bytes.
    pub oom_min_bytes: u64,
    /// Days for which an OOM kill is remembered.
    pub oom_days: u64,
    /// Factor on what was used while starved of CPU: the true demand is unknown, and half more each time finds it in few
    /// steps.
    pub starved_factor: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            cpu_fill: 0.95,
            cpu_over: 0.01,
            memory_over: 0.01,
            cpu_days: 14,
            memory_days: 21,
            cpu_margin: 0.15,
            cpu_reach: 0.8,
            cpu_reach_limit: 1.3,
            memory_margin: 0.15,
            mature_days: 7.0,
            settle: 0.05,
            cpu_keep: 0.5,
            memory_keep: 0.25,
            min_cpu_micro: 10_000,
            min_memory_bytes: 10 << 20,
            oom_margin: 0.2,
            oom_min_bytes: 100 << 20,
            oom_days: 14,
            starved_factor: 1.5,
        }
    }
}
