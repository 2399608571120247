//! Why a container is held back, or let go: numbers and sentences.
//!
//! Amounts are bytes, times microseconds, parts hundredths of a percent.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

use super::grade::{Grade, PressureCause};
use super::machine::{PressureAction, PressureChange, Switches};
use super::release::{Giving, Restriction, let_go};
use super::step::{PressureCase, PressureStep, decide};
use crate::why::Why;

/// What was seen beside what decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureReadings {
    /// What brought the grade about.
    pub cause: Option<PressureCause>,
    /// Part of the time in which some waited.
    #[serde(rename = "pressure.some")]
    pub some: Option<u32>,
    /// Part of the time in which all waited.
    #[serde(rename = "pressure.full")]
    pub full: Option<u32>,
    /// Part of the time in which some waited at limits of their own.
    #[serde(rename = "pressure.own_limit")]
    pub own_limit: Option<u32>,
    /// Time until nothing is available.
    pub exhaustion_usec: Option<u64>,
    /// How often pressure came back within the window.
    #[serde(default)]
    pub retriggers: u32,
}

/// A container is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restricted {
    /// What it was decided by.
    #[serde(flatten)]
    pub case: PressureCase,
    /// What else was seen.
    #[serde(flatten)]
    pub look: PressureReadings,
}

/// A container is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// What it was decided by.
    #[serde(flatten)]
    pub giving: Giving,
    /// What else was seen.
    #[serde(flatten)]
    pub look: PressureReadings,
}

fn mib(bytes: Bytes) -> String {
    format!("{} MiB", bytes.get() >> 20)
}

impl Restricted {
    pub(crate) fn text(&self) -> String {
        let case = &self.case;
        let cause = match self.look.cause {
            None => "pressure",
            Some(PressureCause::Exhaustion) => "memory would be used up soon",
            Some(PressureCause::Available) => "little memory is available",
            Some(PressureCause::Full) => "everybody waits for memory",
            Some(PressureCause::Some) => "memory is waited for",
        };
        let what = match decide(case) {
            Some(PressureStep::Reclaim { amount, .. }) => format!("{} are reclaimed", mib(amount)),
            Some(PressureStep::High(at)) => format!("growth is held at {}", mib(at)),
            Some(PressureStep::SoftLimit(at)) => format!("reclaim is steered to what is above {}", mib(at)),
            Some(PressureStep::Freeze) => "it is frozen for a while".to_owned(),
            Some(PressureStep::Kill) => "it is killed, since nothing milder freed memory".to_owned(),
            None => "nothing is done".to_owned(),
        };
        format!(
            "{} pressure ({cause}, {} available): this {} container has {} and {} of it too much; {what}",
            case.grade,
            mib(case.available),
            case.class,
            mib(case.current),
            mib(case.over()),
        )
    }

    /// The step by the present rule, `none` where it would not act.
    pub(crate) fn again(&self) -> String {
        decide(&self.case).map_or_else(|| "none".to_owned(), |step| step.value())
    }
}

impl Released {
    pub(crate) fn text(&self) -> String {
        let giving = &self.giving;
        if giving.protected {
            "it is no longer a container that may be held back".to_owned()
        } else if giving.grade > Grade::Calm {
            format!("it was frozen for {} ms, which is the most", giving.held_for_usec / 1000)
        } else {
            format!(
                "no pressure, and of {} available at most {} are taken by letting go, with {} in reserve",
                mib(giving.available),
                mib(giving.may_take().min(giving.available)),
                mib(giving.reserve),
            )
        }
    }

    /// As for [`Restricted`].
    pub(crate) fn again(&self) -> String {
        let_go(&self.giving).map_or_else(|| "none".to_owned(), |letting| letting.value())
    }
}

impl PressureAction {
    /// Why, with all numbers it was decided by.
    pub fn why(&self) -> Why {
        let look = PressureReadings {
            cause: self.cause,
            some: self.signals.some,
            full: self.signals.full,
            own_limit: self.signals.own_limit,
            exhaustion_usec: self.signals.exhaustion_usec,
            retriggers: self.retriggers,
        };
        match self.deed {
            PressureChange::Restrict(_, case) => Why::PressureStep(Box::new(Restricted { case, look })),
            PressureChange::Release(_, giving) => Why::PressureRelease(Box::new(Released { giving, look })),
        }
    }

    /// Kernel file the action is about, as decisions name it.
    pub const fn knob(&self, v2: bool) -> &'static str {
        let freezer = if v2 { "cgroup.freeze" } else { "freezer.state" };
        match &self.deed {
            PressureChange::Restrict(PressureStep::Reclaim { .. }, _) => "memory.reclaim",
            PressureChange::Restrict(PressureStep::High(_), _) => "memory.high",
            PressureChange::Restrict(PressureStep::SoftLimit(_), _) => "memory.soft_limit_in_bytes",
            PressureChange::Restrict(PressureStep::Freeze, _) => freezer,
            PressureChange::Restrict(PressureStep::Kill, _) => "cgroup.kill",
            PressureChange::Release(_, giving) => match giving.held {
                Restriction::High => "memory.high",
                Restriction::SoftLimit => "memory.soft_limit_in_bytes",
                Restriction::Frozen => freezer,
            },
        }
    }

    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match &self.deed {
            PressureChange::Restrict(step, _) => step.value(),
            PressureChange::Release(letting, _) => letting.value(),
        }
    }
}

/// The names of what can be done, separated by commas.
impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            (self.reclaim, "reclaim"),
            (self.high, "high"),
            (self.soft_limit, "soft-limit"),
            (self.freeze, "freeze"),
            (self.kill, "kill"),
        ];
        let on: Vec<&str> = named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        f.write_str(&on.join(","))
    }
}

impl FromStr for Switches {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let has = |name: &str| text.split(',').any(|word| word == name);
        Ok(Self {
            reclaim: has("reclaim"),
            high: has("high"),
            soft_limit: has("soft-limit"),
            freeze: has("freeze"),
            kill: has("kill"),
        })
    }
}
