//! The `goal` rule: requests from the objectives themselves.
//!
//! CPU: use is over 95 % of the request in less than 1 % of the time. Memory: use is over the request in less than 1 %
//! of 24 h windows (objectives of the design document "Vertical Pod Autoscaler"). The future differs from the past, so
//! that meeting an objective for what was seen breaks it for what comes; how much is added depends on how restless the
//! past was.
//!
//! - CPU (`cpu`): the request at which a little more would cost more than the time that it covers, of the time expected
//!   above each height of use (`curve`): days of four weeks, halved with every week. Time in which the container was
//!   starved of CPU counts as over: while it is more than the objective allows, the request grows by half of what was
//!   used then.
//! - Memory (`memory`): the geometric mean of the greatest use of two weeks and of the 99 % point of a log-normal through
//!   the daily peaks of three weeks. OOM kills stand outside of it: the request is at least what was used then and a
//!   fifth, doubling with each repetition.
//! - Little history (`tiers`): what containers of the same command, image and tag, or image used, until the container has
//!   two days of its own; and wider margins until it has a week.
//!
//! - Requests may change within the day (`change`): raised while use is above them for most of an hour (`raise`), or set every
//!   hour from the last hours and the same hour of other days; memory that grows by the second is met on its way (`rising`).
//! - What was answered before (`keep`) is answered again where a change is not worth it.
//!
//! Four weeks see every weekday more than once, so that a quiet weekend does not shrink Monday. Owned here: request and bounds for
//! one container. Not owned: caps by policy and LimitRange, and predefined values where nothing is known.

mod cpu;
mod curve;
mod keep;
mod memory;
mod oom;
mod params;
mod profile;
mod raise;
mod rising;
mod tiers;

#[cfg(test)]
mod tests;

use crate::Resource;
use crate::history::{History, Scope};
use crate::rule::{Answer, Question, Rule};
use crate::units::{DAY_MS, HOUR_MS, rounded};
use profile::Profile;

pub use params::{ChangeFrequency, GoalParams};

/// Request and bounds before they are whole numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Estimate {
    request: f64,
    lower: f64,
    upper: f64,
}

impl Rule for GoalParams {
    fn name(&self) -> &'static str {
        "goal"
    }

    fn asks_for_minutes(&self) -> bool {
        false
    }

    fn looks_at_seconds(&self) -> bool {
        self.change != ChangeFrequency::Day
    }

    fn recommend(&self, question: &Question, history: &dyn History) -> Answer {
        let own = Profile::of_hours(self, question, history);
        let mut notes = Vec::new();
        let Some((estimate, tier)) = tiers::estimate(self, question, &own, history, &mut notes) else {
            return self.of_events_alone(question, history);
        };
        let profile = tier.profile(&own);
        let mut least = self.least(question.resource) as f64;
        if question.resource == Resource::Memory {
            least = least.max(oom::least(self, question, own.peak(), history, &mut notes));
        }
        let request = rounded(estimate.request.max(least));
        let kept = keep::previous(self, question, request, profile).map(|kept| kept.max(rounded(least)));
        let request = kept.unwrap_or_else(|| keep::current(self, question, request));
        let request = raise::raised(self, profile, request, &mut notes);
        let request = rising::raised(self, question, history, request, &mut notes);
        if question.resource == Resource::Cpu {
            notes.extend(cpu::explanation(self, profile, request));
        }
        let risk = |request: u64| tier.mixed(&own, |profile| self.risk(question.resource, profile, request));
        Answer {
            request: Some(request),
            lower: Some(rounded(estimate.lower).min(request)),
            upper: Some(rounded(estimate.upper).max(request)),
            tier: tier.name().into(),
            samples: profile.minutes(),
            span_seconds: profile.span_ms / 1_000,
            confidence: tier.confidence(&own, self),
            risk_now: question.current.and_then(risk),
            risk_then: risk(request),
            notes,
        }
    }
}

impl GoalParams {
    /// Nobody was measured, but the container was killed for want of memory: a request follows from that alone.
    fn of_events_alone(&self, question: &Question, history: &dyn History) -> Answer {
        let mut notes = Vec::new();
        let least = match question.resource {
            Resource::Cpu => 0.0,
            Resource::Memory => oom::least(self, question, None, history, &mut notes),
        };
        if least <= 0.0 {
            return Answer::none();
        }
        Answer { request: Some(rounded(least)), tier: "own".into(), notes, ..Answer::none() }
    }

    /// How much of the time that it takes to see every weekday has passed, 0 to 1: all of it within the last day of it.
    fn mature(&self, days: f64) -> f64 {
        (days - (self.mature_days - 1.0)).clamp(0.0, 1.0)
    }

    /// How much the first week counts: 1 over the days known, and nothing once every weekday was seen.
    fn young(&self, days: f64) -> f64 {
        (1.0 - self.mature(days)) / days.max(0.25)
    }

    fn least(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.min_cpu_micro,
            Resource::Memory => self.min_memory_bytes,
        }
    }

    fn estimate(&self, resource: Resource, profile: &Profile) -> Option<Estimate> {
        match resource {
            Resource::Cpu => cpu::estimate(self, profile),
            Resource::Memory => memory::estimate(self, profile),
        }
    }

    /// Expected part of time or of days over a request. CPU: by the curve, and the time starved. Memory: by how far it is above
    /// the greatest of the last days, and how long ago that was.
    fn risk(&self, resource: Resource, profile: &Profile, request: u64) -> Option<f64> {
        match resource {
            Resource::Cpu => {
                let starved = profile.starved_ms as f64 / profile.measured_ms().max(1) as f64;
                let over = profile.curve().risk(request as f64 * self.cpu_fill);
                (!profile.is_empty()).then(|| (over + starved).min(1.0))
            }
            Resource::Memory => memory::risk(profile, request),
        }
    }
}

/// Hours of the container's own history that are looked at.
fn first_hour(now_ms: u64, days: u64) -> u64 {
    now_ms.saturating_sub(days * DAY_MS) / HOUR_MS
}

/// Scopes that stand in for a container's own history, from the specific to the general.
const WIDER: [(Scope, &str); 3] =
    [(Scope::Command, "command"), (Scope::ImageTag, "image:tag"), (Scope::Image, "image")];
