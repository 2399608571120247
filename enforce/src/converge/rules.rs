//! What is chosen of converging: which knobs are written, how CPU is given, how processes are brought to their score.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_model::workload::ScorePolicy;
use evenkeel_qos::config::{BurstPercent, CpuPeriod};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How processes are brought to their score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converge {
    /// Every container is looked at once in this time.
    pub audit_period: Duration,
    /// When a container is frozen for one pass.
    pub freeze: FreezeWhen,
    /// Longest time a cgroup is held frozen.
    pub freeze_max: Duration,
    /// Policy for processes that raised their own score, where the container does not say.
    pub score: ScorePolicy,
    /// Rewrites by somebody else after which a knob counts as contended.
    pub contended_after: u32,
    /// How long a source has to tell of another wish, once a knob was found rewritten, until it is written again.
    pub answer_within: Duration,
}

/// When a container whose scores are wrong is frozen for one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeWhen {
    /// As soon as its processes are seen forking, and after `FreezeWhen::DEFAULT_PASSES` dirty passes anyway.
    Forking,
    /// After so many passes that found wrong scores.
    AfterPasses(u32),
    /// Never: a container whose forks outrun the passes stays `converging`.
    Never,
}

impl FreezeWhen {
    /// Dirty passes after which passes alone are given up: most containers need one or two.
    pub(crate) const DEFAULT_PASSES: u32 = 3;

    /// Reads `when-forking`, `after-N-passes` (N from 1 to 1000) or `never`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "when-forking" => Some(Self::Forking),
            "never" => Some(Self::Never),
            _ => {
                let passes = text.strip_prefix("after-")?.strip_suffix("-passes")?.parse().ok()?;
                (1..=1000).contains(&passes).then_some(Self::AfterPasses(passes))
            }
        }
    }
}

/// The switches, any of which may be anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// `oom_score_adj`.
    pub oom_score_adj: bool,
    /// `cpu.shares` (v1).
    pub cpu_shares: bool,
    /// `cpu.weight` (v2).
    pub cpu_weight: bool,
    /// CPU bandwidth.
    pub cpu_quota: bool,
    /// CPU burst.
    pub cpu_burst: bool,
    /// Memory protection.
    pub memory_protection: bool,
    /// Memory limits.
    pub memory_max: bool,
    /// Whole-container kills.
    pub memory_oom_group: bool,
    /// Swap limits.
    pub memory_swap: bool,
}

/// Who gets excess CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Excess {
    /// In proportion to requests.
    Proportional,
    /// Equal parts for active containers.
    Fair,
}

/// How CPU is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuRules {
    /// Who gets excess CPU.
    pub excess: Excess,
    /// Part of the quota that may be saved up; `None` = no burst.
    pub burst: Option<BurstPercent>,
    /// BestEffort containers are idle to the scheduler.
    pub idle_best_effort: bool,
    /// Whole-core Guaranteed containers get cores of their own.
    pub exclusive_cores: bool,
    /// Where the kubelet keeps the state of its CPU manager.
    pub kubelet_dir: PathBuf,
    /// Length of a quota's period.
    pub period: CpuPeriod,
    /// Fair mode: thousandths of a core above which a container is active.
    pub fair_active_above_milli: u32,
    /// Fair mode: time below that after which it is idle.
    pub fair_idle_after: Duration,
}
