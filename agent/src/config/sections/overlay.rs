//! `[overlay]`: whether recommended requests take the place of those that were asked for, and how far.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_enforce::converge::overlay::rules::OverlayRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Span;

section! {
    /// Requests that the recommender gives to containers whose policy says `auto`. They never reach the container's own
    /// files: they take the place of its requests when this agent plans scores, shares and protection, step by step, and
    /// end when the recommender says nothing for too long or no policy asks for them any more. While the panic switch is
    /// on nothing changes: those in force stay in force, also over a restart of the agent and without a word of the
    /// recommender, or go back step by step where that was said (`evenkeel policy panic on --revert`). Limits are never
    /// changed, nor is a class.
    Overlay {
        /// Whether they are taken at all. Beside a kubelet (rules = "kubelet") they never are: there requests belong to
        /// the pod.
        accept: bool = false,
        /// A step raises a request to at most this percentage of what it is.
        up_percent: u32 = 150,
        /// A step lowers a request to at least this percentage of what it is. Lowering is the dangerous direction.
        down_percent: u32 = 80,
        /// No CPU request is brought below this, thousandths of a core.
        cpu_least_milli: u32 = 10,
        /// No memory request is brought below this, MiB.
        memory_least_mib: u32 = 16,
        /// No request is brought above this part of the node, percent.
        most_percent: u32 = 80,
        /// Time between the proof that a step took effect and the next one, on the whole node.
        pause: Span = Span::from_secs(10),
        /// How long a step may take until every process is verified; then it is undone.
        patience: Span = Span::from_secs(60),
        /// How long a container rests after a step that was undone.
        rest: Span = Span::from_secs(600),
        /// What arrived longer ago than this ends, whatever the recommender said, and what was in force longer ago than
        /// this when the agent starts again; not while the panic switch is on.
        oldest: Span = Span::from_secs(300),
    }
}

const STEP: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Overlay, kubelet_rules: bool) -> OverlayRules {
    if raw.accept && kubelet_rules {
        let why = "requests belong to the pod where rules = \"kubelet\"";
        c.fail("overlay.accept", why.into(), "leave it off beside a kubelet");
    }
    if !(101..=1000).contains(&raw.up_percent) {
        c.fail("overlay.up_percent", format!("{} is not from 101 to 1000", raw.up_percent), "give 150");
    }
    if !(1..=99).contains(&raw.down_percent) {
        c.fail("overlay.down_percent", format!("{} is not from 1 to 99", raw.down_percent), "give 80");
    }
    if !(1..=100).contains(&raw.most_percent) {
        c.fail("overlay.most_percent", format!("{} is not from 1 to 100", raw.most_percent), "give 80");
    }
    if raw.cpu_least_milli == 0 {
        let why = "0 would make a container best-effort".to_owned();
        c.fail("overlay.cpu_least_milli", why, "give 10 or more");
    }
    if raw.memory_least_mib == 0 {
        let why = "0 would make a container best-effort".to_owned();
        c.fail("overlay.memory_least_mib", why, "give 16 or more");
    }
    OverlayRules {
        accept: raw.accept,
        up_percent: raw.up_percent.into(),
        down_percent: raw.down_percent.into(),
        cpu_least_milli: raw.cpu_least_milli.into(),
        memory_least_bytes: u64::from(raw.memory_least_mib) << 20,
        most_percent: raw.most_percent.into(),
        pause: c.span("overlay.pause", raw.pause.get(), STEP),
        patience: c.span("overlay.patience", raw.patience.get(), STEP),
        rest: c.span("overlay.rest", raw.rest.get(), STEP),
        oldest: c.span("overlay.oldest", raw.oldest.get(), STEP),
    }
}
