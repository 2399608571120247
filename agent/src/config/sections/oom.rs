//! `[oom]`: what is told of OOM kills. What dies with a process is `memory.oom_kill`, the kernel's log is
//! `features.kernel_log`.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_enforce::oom::OomRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Span;

/// The sampler keeps a minute.
const HISTORY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

section! {
    /// What is told of OOM kills.
    Oom {
        /// Length of the samples told with a kill and with each step against pressure, at most 60s; "0s" tells none. Default: what
        /// the agent has in memory, enough to see whether memory grew slowly or at once.
        history: Span = Span::from_secs(60),
    }
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Oom) -> OomRules {
    OomRules { history: c.span("oom.history", raw.history.get(), HISTORY) }
}
