//! `[starvation]`: what is done when a container does not get the CPU it requested.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_enforce::pressure::rules::StarvationRules;
use evenkeel_enforce::shared::micros;
use evenkeel_qos::starvation::{Evict, StarvationConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Span;
use super::pressure::percent;

section! {
    /// Containers that do not get the CPU they requested, although they want it: they are reported, and those who have
    /// more than they asked for are squeezed for a while.
    Starvation {
        /// Whether anybody looks.
        enabled: bool = true,
        /// Whether others are squeezed; off, starvation is only reported.
        act: bool = true,
        /// Who goes to the eviction policy when squeezing does not help: nobody ("off"), the "starving" container, or
        /// the worst "offender".
        evict: Who = Who::Off,
        /// How long a container starves before it counts. Default: three samples of a usual metrics pipeline (10s each).
        after: Span = Span::from_secs(30),
        /// Below this part of its request a container may starve, percent.
        below_percent: u32 = 90,
        /// Part of the time in which some of it wait for CPU, percent (cpu.pressure; v2).
        pressure_percent: u32 = 20,
        /// Part of the node's CPU that is busy, percent: below, nobody is kept from it by others. Where the kernel tells no
        /// CPU pressure per container (v1) this is what stands for it.
        busy_percent: u32 = 95,
        /// Time between two steps, and how long nobody starves before a step is undone.
        dwell: Span = Span::from_secs(10),
        /// How long everybody must be squeezed in vain before the eviction policy is asked.
        evict_after: Span = Span::from_secs(60),
        /// Thousandths of a core that a squeezed container keeps in any case.
        floor_milli: u32 = 50,
    }
}

/// Who goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Who {
    /// Nobody.
    Off,
    /// The one that starves.
    Starving,
    /// The one with most CPU beyond its request.
    Offender,
}

const AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Starvation) -> StarvationRules {
    percent(c, "starvation.below_percent", raw.below_percent);
    percent(c, "starvation.pressure_percent", raw.pressure_percent);
    percent(c, "starvation.busy_percent", raw.busy_percent);
    if raw.floor_milli == 0 {
        c.fail("starvation.floor_milli", "0 would stop a container for good".into(), "give 10 or more");
    }
    let rules = StarvationConfig {
        act: raw.act,
        evict: match raw.evict {
            Who::Off => Evict::Off,
            Who::Starving => Evict::Starving,
            Who::Offender => Evict::Offender,
        },
        after_usec: micros(c.span("starvation.after", raw.after.get(), AFTER)),
        below: raw.below_percent.saturating_mul(100),
        pressure: raw.pressure_percent.saturating_mul(100),
        busy: raw.busy_percent.saturating_mul(100),
        dwell_usec: micros(c.span("starvation.dwell", raw.dwell.get(), AFTER)),
        evict_after_usec: micros(c.span("starvation.evict_after", raw.evict_after.get(), AFTER)),
        floor_milli: u64::from(raw.floor_milli),
    };
    StarvationRules { enabled: raw.enabled, rules }
}
