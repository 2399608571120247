//! What becomes of a container that ran out of memory: started again, or its pod goes.
//!
//! Owned here: the policy per class ([`EvictionPolicy`]), one ruling from a class and a count ([`rule`]), and the counts
//! themselves, bounded ([`Failures`]). Not owned: noticing the failure, carrying a ruling out, the clock.
//!
//! The proposal (resource-qos.md, "OOM Assignment Races"): best-effort pods are evicted at once if OOM-killed, burstable
//! ones are given a few retries.

mod failures;

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use evenkeel_model::qos_class::QosClass;
use serde::{Deserialize, Serialize};

use crate::why::text;

pub use failures::{ContainerFailure, ContainerKey, Failures, PodKey};

/// What a class is offered when one of its containers fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// The container is started again, always.
    Restart,
    /// Its pod goes at once.
    Evict,
}

impl Remedy {
    /// The name in configuration and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Evict => "evict",
        }
    }

    /// The remedy of this name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Restart, Self::Evict].into_iter().find(|remedy| remedy.as_str() == name)
    }
}

/// The policy of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionPolicy {
    /// BestEffort containers.
    pub best_effort: Remedy,
    /// Restarts a Burstable container gets within the window before its pod goes; 0 = it goes at once.
    pub burstable_restarts: u32,
    /// Length of the window, microseconds.
    pub burstable_window_usec: u64,
    /// Guaranteed containers.
    pub guaranteed: Remedy,
}

/// The most restarts a policy may allow, and so the most that are counted of one container.
pub const MOST_RESTARTS: u32 = 100;

impl Default for EvictionPolicy {
    /// The proposal's, with "a few retries" as three in ten minutes.
    fn default() -> Self {
        Self {
            best_effort: Remedy::Evict,
            burstable_restarts: 3,
            burstable_window_usec: 600_000_000,
            guaranteed: Remedy::Restart,
        }
    }
}

/// What should become of a container, by the numbers that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// Class it was ruled by.
    pub class: QosClass,
    /// Restarts already granted within the window.
    pub restarts: u32,
    /// What the policy says of the class.
    #[serde(rename = "restarts_allowed", with = "text")]
    pub allowed: Allowed,
    /// Length of the window, microseconds.
    pub window_usec: u64,
}

/// What a policy says of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// So many restarts, then its pod goes.
    Restarts(u32),
    /// The same each time; restarts are not counted.
    Always(Remedy),
}

impl Allowed {
    /// Restarts that are allowed; `None` where they are not counted.
    pub const fn restarts(self) -> Option<u32> {
        match self {
            Self::Restarts(count) => Some(count),
            Self::Always(_) => None,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restarts(count) => count.fmt(f),
            Self::Always(remedy) => f.write_str(remedy.as_str()),
        }
    }
}

impl FromStr for Allowed {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Remedy::of(text).map_or_else(|| text.parse().map(Self::Restarts), |remedy| Ok(Self::Always(remedy)))
    }
}

/// Rules on a container of a class that was granted `restarts` within the policy's window so far.
#[must_use]
pub const fn rule(policy: &EvictionPolicy, class: QosClass, restarts: u32) -> Ruling {
    let allowed = match class {
        QosClass::BestEffort => Allowed::Always(policy.best_effort),
        QosClass::Burstable => Allowed::Restarts(policy.burstable_restarts),
        QosClass::Guaranteed => Allowed::Always(policy.guaranteed),
    };
    Ruling { class, restarts, allowed, window_usec: policy.burstable_window_usec }
}

impl Ruling {
    /// What is offered.
    pub const fn remedy(&self) -> Remedy {
        match self.allowed {
            Allowed::Always(remedy) => remedy,
            Allowed::Restarts(allowed) if self.restarts < allowed => Remedy::Restart,
            Allowed::Restarts(_) => Remedy::Evict,
        }
    }

    /// Why, in a sentence that begins with what happened, such as "was OOM-killed".
    pub fn reason(&self, what: &str) -> String {
        let Self { class, restarts, .. } = self;
        let window = span(self.window_usec);
        match (self.remedy(), self.allowed) {
            (Remedy::Evict, Allowed::Always(_)) => {
                format!("a {class} container {what}: its pod should go at once")
            }
            (Remedy::Restart, Allowed::Always(_)) => format!(
                "a {class} container {what}: it is always started again ({restarts} restarts in the last {window} before)"
            ),
            (Remedy::Restart, Allowed::Restarts(allowed)) => format!(
                "a {class} container {what}: restart {} of {allowed} in {window}",
                u64::from(*restarts) + 1
            ),
            (Remedy::Evict, Allowed::Restarts(allowed)) => format!(
                "a {class} container {what} after {restarts} of {allowed} restarts in {window}: its pod should go"
            ),
        }
    }
}

/// A length of time in its largest whole unit.
fn span(usec: u64) -> String {
    match usec {
        0 => "0s".to_owned(),
        n if n % 3_600_000_000 == 0 => format!("{}h", n / 3_600_000_000),
        n if n % 60_000_000 == 0 => format!("{}m", n / 60_000_000),
        n if n % 1_000_000 == 0 => format!("{}s", n / 1_000_000),
        n => format!("{n}us"),
    }
}
