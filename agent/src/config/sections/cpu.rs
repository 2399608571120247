//! `[cpu]`: how CPU is given: weight, excess, burst, idle, exclusive cores.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_enforce::converge::rules::{CpuRules, Excess};
use evenkeel_enforce::shared::micros;
use evenkeel_qos::config::{BurstPercent, CpuPeriod};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Span;

/// Periods the kernel takes (sched-bwc.rst: 1 ms to 1 s).
const PERIOD: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);
/// Shorter, a container that sleeps between requests would come and go each time; longer, excess would be kept for
/// nobody.
const IDLE_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

section! {
    /// How CPU is given.
    Cpu {
        /// "auto" takes what the node's runtime uses, read from containers it made; otherwise "linear" (runc before
        /// 1.3.2, crun before 1.23), "quadratic" (since then) or "systemd".
        weight_conversion: Conversion = Conversion::Auto,
        /// Who gets CPU that nobody requested: "proportional" to requests, or "fair": an equal part for each active
        /// container on top of its request. Default: what weights from requests do by themselves.
        excess: Excess = Excess::Proportional,
        /// CPU time a container may save up for a burst, in percent of its quota (0 to 100); 0 = no burst. Default:
        /// one period, the most that the kernel takes.
        burst_percent: u16 = 100,
        /// BestEffort containers run only when nobody else wants the CPU (cpu.idle, cgroup v2 since Linux 5.15).
        idle_best_effort: bool = false,
        /// Guaranteed containers that request whole cores get cores of their own. Off beside a kubelet with the static
        /// CPU manager, which owns cpusets.
        exclusive_cores: bool = false,
        /// Where the kubelet keeps the state of its CPU manager, if there is one.
        kubelet_dir: PathBuf = "/var/lib/kubelet".into(),
        /// Length of a quota's period. Default: the kernel's and the kubelet's.
        period: Span = Span::from_millis(100),
        /// Fair mode: a container that uses more than this many thousandths of a core is active. Default: a hundredth
        /// of a core, more than a server uses that waits.
        fair_active_above_milli: u32 = 10,
        /// Fair mode: a container that used less for so long is idle. Default: long enough not to follow every pause.
        fair_idle_after: Span = Span::from_secs(10),
    }
}

/// Conversion of shares into weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Conversion {
    /// Detected.
    Auto,
    /// The straight line; also called "old".
    #[serde(alias = "old")]
    Linear,
    /// The curve; also called "new".
    #[serde(alias = "new")]
    Quadratic,
    /// systemd's.
    Systemd,
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Cpu) -> CpuRules {
    if raw.burst_percent > 100 {
        let reason = format!("{} is more than the kernel lets a cgroup save up", raw.burst_percent);
        c.fail("cpu.burst_percent", reason, "give 0 to 100");
    }
    let period = c.span("cpu.period", raw.period.get(), PERIOD);
    CpuRules {
        excess: raw.excess,
        burst: BurstPercent::new(raw.burst_percent).ok(),
        idle_best_effort: raw.idle_best_effort,
        exclusive_cores: raw.exclusive_cores,
        kubelet_dir: c.absolute("cpu.kubelet_dir", &raw.kubelet_dir),
        // Checked above; the default stands in where the check has failed anyway.
        period: CpuPeriod::new(micros(period)).unwrap_or_default(),
        fair_active_above_milli: raw.fair_active_above_milli,
        fair_idle_after: c.span("cpu.fair_idle_after", raw.fair_idle_after.get(), IDLE_AFTER),
    }
}
