//! The cap of all workloads: memory less a reserve for system daemons.
//!
//! The proposal's "Kubelet, Kube-proxy, Docker daemon protection": one cgroup holds all workloads and is capped,
//! so that daemons never compete with them for the last page. Owned here: the reserve, which starts as
//! configured and follows what daemons were measured to use, and the cap, which is never below what workloads
//! use now, is widened at once and narrowed slowly. Not owned: measuring, writing, who owns the cgroup.

use std::collections::VecDeque;

use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::memory::to_pages;
use crate::plan::Wish;
use crate::why::Why;

/// Minutes of history the percentile is taken over: a day.
pub const HISTORY_MINUTES: usize = 24 * 60;
/// Minutes of history from which what was measured replaces what was configured.
pub const TRUSTED_MINUTES: usize = 10;
/// One minute in microseconds: history keeps each minute's highest use, and the cap narrows once a minute.
const MINUTE_USEC: u64 = 60_000_000;
/// Part of the machine's memory by which the cap narrows in a minute at most, in thousandths.
const STEP_PERMILLE: u64 = 5;

/// What an operator chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveRule {
    /// Reserve until enough was measured.
    pub configured: Bytes,
    /// Added to what was measured, percent.
    pub margin_percent: u16,
}

/// One measurement of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeUse {
    /// Machine memory.
    pub memory: Bytes,
    /// What everything outside the workloads' cgroup uses and cannot give back.
    pub daemons: Bytes,
    /// What the workloads' cgroup uses (`memory.current`).
    pub workloads: Bytes,
    /// Page size.
    pub page: Bytes,
}

/// What one cap is made from: every number of it, named as decisions name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapInput {
    /// Machine memory.
    #[serde(rename = "memory_capacity")]
    pub memory: Bytes,
    /// Reserve as configured.
    #[serde(rename = "configured_reserve")]
    pub configured: Bytes,
    /// 99th percentile of the daemons' use by minutes; `None` before anything was measured.
    pub daemons_p99: Option<Bytes>,
    /// Whether enough was measured to forget what was configured.
    #[serde(rename = "trusted")]
    pub is_trusted: bool,
    /// Percent added to what was measured.
    pub margin_percent: u16,
    /// What workloads use now.
    #[serde(rename = "workloads_use")]
    pub workloads: Bytes,
    /// `None` for the first.
    #[serde(flatten)]
    pub previous: Option<Previous>,
    /// Page size.
    pub page: Bytes,
}

/// The cap in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// What it is.
    #[serde(rename = "previous_cap")]
    pub cap: Bytes,
    /// By how much it may narrow now.
    pub step: Bytes,
}

impl CapInput {
    /// What is kept from workloads: what was measured and the margin, while that is not trusted at least what
    /// was configured; never more than half of the machine.
    pub fn reserve(&self) -> Bytes {
        let measured = self
            .daemons_p99
            .map_or(0, |p99| u128::from(p99.get()) * (100 + u128::from(self.margin_percent)) / 100);
        let measured = Bytes::new(u64::try_from(measured).unwrap_or(u64::MAX));
        let wanted = if self.is_trusted { measured } else { measured.max(self.configured) };
        wanted.min(Bytes::new(self.memory.get() / 2))
    }

    /// The cap: memory less the reserve; not below the cap in force less its step; not below current use.
    pub fn cap(&self) -> Bytes {
        let wanted = self.memory.saturating_sub(self.reserve());
        let allowed =
            self.previous.map_or(Bytes::ZERO, |previous| previous.cap.saturating_sub(previous.step));
        let cap = to_pages(wanted.max(allowed), self.page);
        // Rounded up: a cap of less than what is used makes the kernel reclaim or kill at once.
        let used =
            to_pages(self.workloads.saturating_add(self.page.saturating_sub(Bytes::new(1))), self.page);
        cap.max(used)
    }

    /// The cap with its reason.
    pub fn wish(&self) -> Wish<Bytes> {
        Why::WorkloadsCap(Box::new(*self)).wish(self.cap())
    }

    pub(crate) fn text(&self) -> String {
        let reserve = self.reserve();
        let from =
            if self.is_trusted { "what daemons were measured to use" } else { "the configured reserve" };
        let wanted = to_pages(self.memory.saturating_sub(reserve), self.page);
        if self.cap() > wanted {
            format!(
                "memory less {from} would be {wanted}; workloads use or were given more, so narrowed slowly"
            )
        } else {
            format!("memory less {from}: {} - {}", self.memory.get(), reserve.get())
        }
    }
}

/// The reserve's state on one node: bounded history and the cap in force.
#[derive(Debug, Clone)]
pub struct Reserve {
    rule: ReserveRule,
    /// Highest use of each past minute, oldest first.
    minutes: VecDeque<Bytes>,
    /// The current minute: its number and highest use so far.
    current: Option<(u64, Bytes)>,
    cap: Option<Bytes>,
    /// Minute in which the cap was last narrowed.
    narrowed: Option<u64>,
}

impl Reserve {
    /// Nothing measured yet.
    pub const fn new(rule: ReserveRule) -> Self {
        Self { rule, minutes: VecDeque::new(), current: None, cap: None, narrowed: None }
    }

    /// Takes a fresh measurement; the cap to hold from now on. `now_usec` is any clock that does not go back.
    pub fn observe(&mut self, now_usec: u64, node: NodeUse) -> Wish<Bytes> {
        let minute = now_usec / MINUTE_USEC;
        self.remember(minute, node.daemons);
        let may_narrow = self.narrowed.is_none_or(|last| minute > last);
        let step = if may_narrow { node.memory.get() / 1000 * STEP_PERMILLE } else { 0 };
        let wish = CapInput {
            memory: node.memory,
            configured: self.rule.configured,
            daemons_p99: self.p99(),
            is_trusted: self.minutes.len() >= TRUSTED_MINUTES,
            margin_percent: self.rule.margin_percent,
            workloads: node.workloads,
            previous: self.cap.map(|cap| Previous { cap, step: Bytes::new(step) }),
            page: node.page,
        }
        .wish();
        if self.cap.is_none_or(|cap| wish.value < cap) {
            self.narrowed = Some(minute);
        }
        self.cap = Some(wish.value);
        wish
    }

    fn remember(&mut self, minute: u64, daemons: Bytes) {
        match &mut self.current {
            Some((of, highest)) if *of == minute => *highest = (*highest).max(daemons),
            current => {
                if let Some((_, highest)) = current.replace((minute, daemons)) {
                    self.minutes.push_back(highest);
                    if self.minutes.len() > HISTORY_MINUTES {
                        self.minutes.pop_front();
                    }
                }
            }
        }
    }

    /// 99th percentile of the minutes' highest uses, the current one among them: the smallest that at least 99 %
    /// do not exceed.
    fn p99(&self) -> Option<Bytes> {
        let mut all: Vec<_> = self.minutes.iter().copied().chain(self.current.map(|(_, b)| b)).collect();
        let rank = (all.len() * 99).div_ceil(100).checked_sub(1)?;
        Some(*all.select_nth_unstable(rank).1)
    }
}
