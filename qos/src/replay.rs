//! Replay: a recorded decision made again from its own inputs, offline.
//!
//! Owned here: whether the rule of a decision comes to the same outcome today. Not owned: reading logs, printing. A
//! decision names its rule in the input `formula` and carries every number the rule used ([`Why`]), so nothing else is
//! needed: no node, no clock, no configuration. A decision without a number it needs is told to be incomplete, never
//! guessed.

use evenkeel_model::decision::{Decision, DecisionKind};

use crate::why::{Unreadable, Why};

/// What came of replaying a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// The rule comes to what was recorded.
    Same,
    /// It comes to something else.
    Differs {
        /// What was recorded.
        recorded: String,
        /// What the rule makes of the same inputs now.
        now: String,
    },
    /// Nothing to decide again: an observation, or a decision that does not carry what is needed; with the reason.
    NotADecision(String),
}

/// Decides again from a decision's inputs and compares.
pub fn replay(decision: &Decision) -> Replayed {
    if let Some(why) = observation(decision.kind) {
        return Replayed::NotADecision(why.to_owned());
    }
    match again(decision) {
        Ok((recorded, now)) if recorded == now => Replayed::Same,
        Ok((recorded, now)) => Replayed::Differs { recorded: recorded.to_owned(), now },
        Err(why) => Replayed::NotADecision(why.to_string()),
    }
}

/// Why decisions of a kind have nothing to be made again: they tell what was seen, not what was chosen.
const fn observation(kind: DecisionKind) -> Option<&'static str> {
    Some(match kind {
        DecisionKind::Found | DecisionKind::Gone => "tells that a container came or went",
        DecisionKind::Converged => "tells that processes were verified",
        DecisionKind::OomKill => "tells what the kernel did",
        DecisionKind::Source => "tells of a source",
        DecisionKind::Agent => "tells of the agent itself",
        _ => return None,
    })
}

/// What was decided, and what its rule comes to now.
fn again(decision: &Decision) -> Result<(&str, String), Unreadable> {
    let why = Why::read(decision)?;
    let now = outcome(&why, decision.knob.as_deref().unwrap_or(""))?;
    let recorded = recorded(decision, &why)?;
    // A container that starves is reported; where nobody is left to be squeezed, it goes to the eviction policy.
    let evicts = matches!(why, Why::Starves(_)) && recorded == "evict" && now == "starving";
    Ok((recorded, if evicts { "evict".to_owned() } else { now }))
}

fn recorded<'a>(decision: &'a Decision, why: &Why) -> Result<&'a str, Unreadable> {
    let (found, lacks) = match (decision.kind, why) {
        // The kind itself is what a ruling decided.
        (DecisionKind::Evict, Why::Ruling(_)) => (Some("evict"), ""),
        (_, Why::Ruling(_)) => (Some("restart"), ""),
        // What is decided is not the value but who takes its effect away.
        (DecisionKind::Ineffective, _) => {
            (decision.inputs.get("by").map(String::as_str), "its inputs lack by")
        }
        _ => (decision.new.as_deref(), "records no value that was decided"),
    };
    found.ok_or_else(|| Unreadable::new(lacks))
}

/// What a rule comes to, as the text a decision about `knob` records.
fn outcome(why: &Why, knob: &str) -> Result<String, Unreadable> {
    Ok(match why {
        Why::Class(rule) => rule.again(),
        Why::Score(rule) => rule.again(),
        Why::Infrastructure(rule) => rule.again(),
        Why::DynamicScore(rule) => rule.again(),
        Why::Shares(rule) => rule.again(),
        Why::Weight(rule) => rule.again(knob),
        Why::ScaledWeight(rule) => rule.again(knob),
        Why::Fair(rule) => rule.again(knob),
        Why::Quota(rule) => rule.again(knob)?,
        Why::Burst(rule) => rule.again(),
        Why::Idle(rule) => rule.again(),
        Why::ExclusiveCores(rule) => rule.again()?,
        Why::SharedPool(rule) => rule.again(),
        Why::Protection(rule) => rule.again(knob),
        Why::SumOfChildren(rule) => rule.again(),
        Why::High(rule) => rule.again()?,
        Why::Limit(rule) => rule.again(knob),
        Why::OomGroup(rule) => rule.again(),
        Why::Swap(rule) => rule.again(knob),
        Why::WorkloadsCap(rule) => rule.cap().get().to_string(),
        Why::EffectiveProtection(rule) => rule.again(),
        Why::EffectiveWeight(rule) => rule.again(),
        Why::PressureStep(rule) => rule.again(),
        Why::PressureRelease(rule) => rule.again(),
        Why::Thrash(rule) => rule.again(),
        Why::OverlayStep(rule) => rule.again(),
        Why::Starves(rule) => rule.again(),
        Why::Squeeze(rule) => rule.again(),
        Why::Ruling(rule) => rule.remedy().as_str().to_owned(),
        Why::SqueezeRelease(_) => return Err(Unreadable::new("tells that nobody starves any more")),
        Why::Unclassified(_) | Why::Controller(_) => {
            return Err(Unreadable::new("names no rule in its inputs"));
        }
    })
}
