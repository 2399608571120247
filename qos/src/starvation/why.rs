//! Why a container is squeezed, or reported to starve.

use serde::{Deserialize, Serialize};

use super::machine::{StarvationAction, StarvationChange};
use super::rule::{Squeeze, StarvationCase, Starving, squeeze, starves};
use crate::why::Why;

/// A container starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starved {
    /// What says so.
    #[serde(flatten)]
    pub case: Starving,
    /// For how long, microseconds.
    #[serde(default)]
    pub for_usec: u64,
    /// Nobody is left to be squeezed, and one goes to the eviction policy; told in the text alone.
    #[serde(skip)]
    pub in_vain: bool,
}

/// A container is squeezed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Squeezed {
    /// What it was decided by.
    #[serde(flatten)]
    pub case: StarvationCase,
    /// For how long another one has starved, microseconds.
    #[serde(default)]
    pub for_usec: u64,
}

/// A squeeze is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsqueezed {
    /// What is undone, by the name its decision had.
    pub step: String,
    /// For how long nobody has starved, microseconds.
    #[serde(default)]
    pub for_usec: u64,
}

const fn seconds(usec: u64) -> u64 {
    usec / 1_000_000
}

impl Starved {
    pub(crate) fn text(&self) -> String {
        let (case, seconds) = (&self.case, seconds(self.for_usec));
        if self.in_vain {
            return format!("a container has starved for {seconds} s, and nobody is left to be squeezed");
        }
        let (usage, request) = (case.usage_milli, case.request_milli);
        format!("it uses {usage}m of {request}m requested although it waits for CPU, for {seconds} s")
    }

    pub(crate) fn again(&self) -> String {
        if starves(&self.case) { "starving" } else { "none" }.to_owned()
    }
}

impl Squeezed {
    pub(crate) fn text(&self) -> String {
        let (case, seconds) = (&self.case, seconds(self.for_usec));
        let what = match squeeze(case) {
            Some(Squeeze::Weight) => "it gets the least weight".to_owned(),
            Some(Squeeze::Idle) => "it runs when nobody else wants to".to_owned(),
            Some(Squeeze::Quota(milli)) => format!("it gets {milli}m at most"),
            None => "nothing is done".to_owned(),
        };
        format!(
            "another container has not got the CPU it requested for {seconds} s; this {} one uses {}m, {}m too much: {what}",
            case.class,
            case.usage_milli,
            case.over()
        )
    }

    pub(crate) fn again(&self) -> String {
        squeeze(&self.case).map_or_else(|| "none".to_owned(), |step| step.value())
    }
}

impl Unsqueezed {
    pub(crate) fn text(&self) -> String {
        format!("nobody has starved for {} s", seconds(self.for_usec))
    }
}

impl StarvationAction {
    /// Why, with all numbers it was decided by.
    pub fn why(&self) -> Why {
        let for_usec = self.for_usec;
        match self.deed {
            StarvationChange::Report(case) => {
                Why::Starves(Box::new(Starved { case, for_usec, in_vain: false }))
            }
            StarvationChange::Evict(case) => {
                Why::Starves(Box::new(Starved { case, for_usec, in_vain: true }))
            }
            StarvationChange::Squeeze(_, case, _) => Why::Squeeze(Box::new(Squeezed { case, for_usec })),
            StarvationChange::Release(step) => {
                Why::SqueezeRelease(Unsqueezed { step: step.value(), for_usec })
            }
        }
    }

    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match &self.deed {
            StarvationChange::Report(_) => "starving".to_owned(),
            StarvationChange::Squeeze(step, ..) => step.value(),
            StarvationChange::Release(_) => "released".to_owned(),
            StarvationChange::Evict(_) => "evict".to_owned(),
        }
    }
}
