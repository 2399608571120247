//! Parameters of the rule, each with its reason.

use serde::{Deserialize, Serialize};

/// When requests change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeFrequency {
    /// Whenever asked, usually once a day: one request for every hour of it.
    #[default]
    Day,
    /// Asked every hour: as by the day, and raised while CPU use is above 95 % of the request for most of an hour, or memory
    /// is on its way above it, or waited for near its limit.
    Raise,
    /// By the hour: CPU requests follow the last hours and the same hour of the last seven days; memory as with `Raise`.
    Hourly,
}

/// Parameters of the rule.
///
/// The shape was chosen by replaying public traces (224 series of GWA-T-12 Bitbrains, Azure's traces of 2017 and 2019, five
/// EC2 and RDS series of the Numenta Anomaly Benchmark, six of Crane's test data, one container of Alibaba's 2018 trace),
/// judged by drawing the series anew and by halves of series and of time (docs/backtest.md); numbers are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GoalParams {
    /// CPU use above this part of the request counts as over.
    pub cpu_fill: f64,
    /// Part of the time in which CPU use may be over.
    pub cpu_over: f64,
    /// Part of the 24 h windows in which memory use may be over the request.
    pub memory_over: f64,
    /// When requests change.
    pub change: ChangeFrequency,
    /// Days of CPU history; after four half-lives a day hardly counts.
    pub cpu_days: u64,
    /// Days after which a day's CPU use counts half. On the public traces 5, 7 and 10 days differ by a tenth of a point of
    /// slack; a week has every weekday in it.
    pub cpu_half_life_days: f64,
    /// What an objective's worth of time over costs, in requests: 0.2 pays up to 20 % of a request to avoid 1 % of the time
    /// over. Less (0.15) breaks the objective on some public sets, more (0.25) costs 2 points of slack.
    pub cpu_price: f64,
    /// Days of memory history through which the spread of daily peaks is measured: three weeks.
    pub memory_days: u64,
    /// Part added to memory: an eighth. With 12 % of the public traces' days 1.28 % have a moment above the request, with
    /// 13 % 1.17 %; with 15 % the slack is 0.3 points more.
    pub memory_margin: f64,
    /// Days after which history is as good as it gets: every weekday was seen.
    pub mature_days: f64,
    /// Part that a present request may be too high before it is lowered.
    pub settle: f64,
    /// Part by which a memory answer may be above the new one before it is lowered. It is raised at once.
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

impl Default for GoalParams {
    fn default() -> Self {
        Self {
            cpu_fill: 0.95,
            cpu_over: 0.01,
            memory_over: 0.01,
            change: ChangeFrequency::Day,
            cpu_days: 28,
            cpu_half_life_days: 7.0,
            cpu_price: 0.2,
            memory_days: 21,
            memory_margin: 0.125,
            mature_days: 7.0,
            settle: 0.02,
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
