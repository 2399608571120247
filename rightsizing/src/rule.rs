//! A rule and what it answers.

use serde::{Deserialize, Serialize};

use crate::Resource;
use crate::evidence::Evidence;
use crate::history::History;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Which resource.
    pub resource: Resource,
    /// The present, milliseconds since 1970. Only what lies before it may be used.
    pub now_ms: u64,
    /// What is requested now, unit of the resource.
    pub current: Option<u64>,
    /// What was answered the last time, unit of the resource: a rule may keep to it while it still serves.
    pub previous: Option<u64>,
}

/// What a rule says. Values are in the unit of the resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The value to request; `None` with tier `none`: nothing is known and nothing should be set.
    pub request: Option<u64>,
    /// A request below this should be raised; `None` where the rule has no bounds.
    pub lower: Option<u64>,
    /// A request above this should be lowered; `None` where the rule has no bounds.
    pub upper: Option<u64>,
    /// Name of the tier that answered, `none` without data.
    pub tier: String,
    /// Minutes of samples used.
    pub samples: u64,
    /// From the first to the end of the last sample used, seconds.
    pub span_seconds: u64,
    /// How sure the rule is, 0 to 1.
    pub confidence: f64,
    /// Expected part of time (CPU) or of days (memory) above the present request, if there is one.
    pub risk_now: Option<f64>,
    /// Expected part of time (CPU) or of days (memory) above the recommended request.
    pub risk_then: Option<f64>,
    /// What moved the value beyond the percentiles, for people: `oom kills: 2`, `starved: 14 % of the time`.
    pub notes: Vec<String>,
}

impl Answer {
    /// Nothing is known.
    pub fn none() -> Self {
        Self {
            request: None,
            lower: None,
            upper: None,
            tier: "none".into(),
            samples: 0,
            span_seconds: 0,
            confidence: 0.0,
            risk_now: None,
            risk_then: None,
            notes: Vec::new(),
        }
    }

    /// What it rests on.
    pub const fn evidence(&self) -> Evidence {
        Evidence { span_seconds: self.span_seconds, minutes: self.samples }
    }
}

/// A rule with its parameters. Pure: the same question and the same history give the same answer.
pub trait Rule {
    /// Its name, as answers show it.
    fn name(&self) -> &'static str;
    /// Whether it asks for minutes, which a store may have to read from files: then an answer may take its time.
    fn asks_for_minutes(&self) -> bool {
        true
    }
    /// Whether it looks at the last seconds: then an answer is old within seconds.
    fn looks_at_seconds(&self) -> bool {
        false
    }
    /// What to request.
    fn recommend(&self, question: &Question, history: &dyn History) -> Answer;
}
