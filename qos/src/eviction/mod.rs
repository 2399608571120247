//! What becomes of a container that ran out of memory: started again, or its pod goes.
//!
//! Owned here: the policy per class ([`Policy`]), one ruling from a class and a count ([`rule`]), and the counts
//! themselves, bounded ([`Failures`]). Not owned: noticing the failure, carrying a ruling out, the clock.
//!
//! The proposal (resource-qos.md, "OOM Assignment Races"): best-effort pods are evicted at once if OOM-killed, burstable
//! ones are given a few retries.

mod failures;

use std::collections::BTreeMap;

use evenkeel_model::qos_class::QosClass;
use serde::{Deserialize, Serialize};

pub use failures::{ContainerKey, Failure, Failures, PodKey};

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
pub struct Policy {
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

impl Default for Policy {
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

/// What should become of a container, with the numbers that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    /// What is offered.
    pub remedy: Remedy,
    /// Class it was ruled by.
    pub class: QosClass,
    /// Restarts already granted within the window.
    pub restarts: u32,
    /// Restarts the policy allows; `None` where the class is not counted.
    pub allowed: Option<u32>,
    /// Length of the window, microseconds.
    pub window_usec: u64,
}

/// Rules on a container of a class that was granted `restarts` within the policy's window so far.
#[must_use]
pub fn rule(policy: &Policy, class: QosClass, restarts: u32) -> Ruling {
    let allowed = policy.burstable_restarts;
    let (remedy, allowed) = match class {
        QosClass::BestEffort => (policy.best_effort, None),
        QosClass::Burstable if restarts < allowed => (Remedy::Restart, Some(allowed)),
        QosClass::Burstable => (Remedy::Evict, Some(allowed)),
        QosClass::Guaranteed => (policy.guaranteed, None),
    };
    Ruling { remedy, class, restarts, allowed, window_usec: policy.burstable_window_usec }
}

impl Ruling {
    /// Why, in a sentence that begins with what happened, such as "was OOM-killed".
    pub fn reason(&self, what: &str) -> String {
        let Self { class, restarts, .. } = self;
        let window = span(self.window_usec);
        match (self.remedy, self.allowed) {
            (Remedy::Evict, None) => format!("a {class} container {what}: its pod should go at once"),
            (Remedy::Restart, None) => format!(
                "a {class} container {what}: it is always started again ({restarts} restarts in the last {window} before)"
            ),
            (Remedy::Restart, Some(allowed)) => format!(
                "a {class} container {what}: restart {} of {allowed} in {window}",
                u64::from(*restarts) + 1
            ),
            (Remedy::Evict, Some(allowed)) => format!(
                "a {class} container {what} after {restarts} of {allowed} restarts in {window}: its pod should go"
            ),
        }
    }

    /// The numbers of the ruling by name, from which [`replayed`] rules again.
    pub fn inputs(&self) -> BTreeMap<String, String> {
        let numbers = [
            ("class", self.class.to_string()),
            ("restarts", self.restarts.to_string()),
            ("window_usec", self.window_usec.to_string()),
            // What the policy says of the class where it is not counted.
            (
                "restarts_allowed",
                self.allowed.map_or_else(|| self.remedy.as_str().to_owned(), |n| n.to_string()),
            ),
        ];
        numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Rules once more on what [`Ruling::inputs`] recorded; `None` where these are not the numbers of a ruling.
pub fn replayed(inputs: &BTreeMap<String, String>) -> Option<Remedy> {
    let text = |name: &str| inputs.get(name).map(String::as_str);
    let class = match text("class")? {
        "BestEffort" => QosClass::BestEffort,
        "Burstable" => QosClass::Burstable,
        "Guaranteed" => QosClass::Guaranteed,
        _ => return None,
    };
    let restarts = text("restarts")?.parse().ok()?;
    let burstable_window_usec = text("window_usec")?.parse().ok()?;
    let allowed = text("restarts_allowed")?;
    let policy = match (class, Remedy::of(allowed)) {
        (QosClass::Burstable, None) => {
            Policy { burstable_restarts: allowed.parse().ok()?, burstable_window_usec, ..Policy::default() }
        }
        (QosClass::Burstable, Some(_)) | (_, None) => return None,
        (_, Some(remedy)) => {
            Policy { best_effort: remedy, guaranteed: remedy, burstable_window_usec, ..Policy::default() }
        }
    };
    Some(rule(&policy, class, restarts).remedy)
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
