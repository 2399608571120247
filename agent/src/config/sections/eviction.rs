//! `[eviction]`: what is offered for a container that ran out of memory.

use std::time::Duration;

use evenkeel_qos::eviction::{MOST_RESTARTS, Policy, Remedy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Span;
use crate::shared::micros;

/// Shorter than a container takes to start, no restart would ever count; longer, a failure of last week would.
const WINDOW: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 3600));

section! {
    /// What is offered for a container that was OOM-killed, to whoever runs its pod.
    Eviction {
        /// Of a BestEffort container: its pod goes ("evict") or the container is started again ("restart"). Default: the
        /// proposal's.
        best_effort: Offer = Offer::Evict,
        /// Restarts of a Burstable container within the window before its pod goes (0 to 100; 0 = it goes at once).
        /// Default: the proposal's "a few".
        burstable_restarts: u32 = 3,
        /// The window in which restarts of a Burstable container are counted. Default: as long as a back-off of
        /// container restarts in Kubernetes lasts at least until it is reset.
        burstable_window: Span = Span::seconds(600),
        /// Of a Guaranteed container, as for BestEffort. Default: the proposal's.
        guaranteed: Offer = Offer::Restart,
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

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Eviction) -> Policy {
    if raw.burstable_restarts > MOST_RESTARTS {
        let reason = format!("{} is more than {MOST_RESTARTS}", raw.burstable_restarts);
        c.fail("eviction.burstable_restarts", reason, "give 0 to 100");
    }
    Policy {
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
