//! `[eviction]`: what is ruled of a container that ran out of memory, and who carries it out.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_enforce::evict::{Acting, CarryOut};
use evenkeel_enforce::shared::micros;
use evenkeel_qos::eviction::{EvictionPolicy, MOST_RESTARTS, Remedy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Span;

/// Shorter than a container takes to start, no restart would ever count; longer, a failure of last week would.
const WINDOW: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);

/// Below, a wave of kills ends everything before anybody looks; above, nothing is helped.
const PAUSE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

section! {
    /// What is ruled of a container that was OOM-killed, and who carries it out.
    Eviction {
        /// Of a BestEffort container: its pod goes ("evict") or the container is started again ("restart"). Default: the
        /// proposal's.
        best_effort: Offer = Offer::Evict,
        /// Restarts of a Burstable container within the window before its pod goes (0 to 100; 0 = it goes at once).
        /// Default: the proposal's "a few".
        burstable_restarts: u32 = 3,
        /// The window in which restarts of a Burstable container are counted. Default: as long as a back-off of
        /// container restarts in Kubernetes lasts at least until it is reset.
        burstable_window: Span = Span::from_secs(600),
        /// Of a Guaranteed container, as for BestEffort. Default: the proposal's.
        guaranteed: Offer = Offer::Restart,
        /// "offer": whoever runs the pod is told. "act": the agent stops and restarts services through systemd, and stops
        /// pods of container runtimes that no kubelet runs; all else stays an offer, and so does the restart of one container of a
        /// runtime, which cannot start a stopped container again. "dry-run": it says what it would do.
        carry_out: CarryOut = CarryOut::Offer,
        /// Shortest time between two of these deeds. Default: the kubelet's between two evictions.
        pause: Span = Span::from_secs(10),
        /// Pods of a group (of one controller or template unit) that an eviction must leave, where the annotation
        /// evenkeel.dev/min-available of the pod's manifest says nothing.
        min_available: u32 = 0,
    }
}

/// What is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Offer {
    /// The container is started again.
    Restart,
    /// Its pod goes.
    Evict,
}

impl From<Offer> for Remedy {
    fn from(offer: Offer) -> Self {
        match offer {
            Offer::Restart => Self::Restart,
            Offer::Evict => Self::Evict,
        }
    }
}

/// Checks who carries rulings out.
pub(in super::super) fn acting(c: &mut Checker<'_>, raw: &Eviction, kubelet_rules: bool) -> Acting {
    if kubelet_rules && raw.carry_out == CarryOut::Act {
        let reason = "the kubelet ends and restarts containers where rules = \"kubelet\"".to_owned();
        c.fail("eviction.carry_out", reason, "leave it at \"offer\" beside a kubelet");
    }
    Acting {
        mode: raw.carry_out,
        pause: c.span("eviction.pause", raw.pause.get(), PAUSE),
        min_available: raw.min_available,
    }
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Eviction) -> EvictionPolicy {
    if raw.burstable_restarts > MOST_RESTARTS {
        let reason = format!("{} is more than {MOST_RESTARTS}", raw.burstable_restarts);
        c.fail("eviction.burstable_restarts", reason, "give 0 to 100");
    }
    EvictionPolicy {
        best_effort: raw.best_effort.into(),
        burstable_restarts: raw.burstable_restarts,
        burstable_window_usec: micros(c.span(
            "eviction.burstable_window",
            raw.burstable_window.get(),
            WINDOW,
        )),
        guaranteed: raw.guaranteed.into(),
    }
}
