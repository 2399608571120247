//! Replay: a recorded decision made again from its own inputs, offline.
//!
//! Owned here: which rule made a decision, and whether it comes to the same outcome today. Not owned: reading logs,
//! printing. A decision names its rule in the input `formula` and carries every number the rule used, so nothing
//! else is needed: no node, no clock, no configuration.
//!
//! Whoever adds a rule that decides something adds its line to `RULES` and, in one of the modules below, the
//! function that makes the new value, in the kernel's text, from the inputs. The names of a rule's inputs are those
//! its wish or action writes; a decision without one it needs is told to be incomplete, never guessed.

mod class;
mod cores;
mod cpu;
mod inputs;
mod memory;
mod score;

use evenkeel_model::decision::{Decision, DecisionKind};

use crate::{effective, eviction, formula, overlay, pressure, starvation};
use inputs::{Case, Unreplayable};

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

/// Makes the new value from the inputs.
type Rule = fn(&Case<'_>) -> Result<String, Unreplayable>;

/// Every rule by the name decisions know it by.
const RULES: &[(&str, Rule)] = &[
    (formula::CLASS, class::class),
    (formula::SCORE, score::container),
    (formula::INFRASTRUCTURE, score::infrastructure),
    (formula::DYNAMIC, score::dynamic),
    (formula::SHARES, cpu::shares),
    (formula::WEIGHT, cpu::weight),
    (formula::SCALED, cpu::scaled),
    (formula::FAIR, cpu::fair),
    (formula::QUOTA, cpu::quota),
    (formula::BURST, cpu::burst),
    (formula::IDLE, cpu::idle),
    (formula::EXCLUSIVE, cores::exclusive),
    (formula::SHARED_POOL, cores::shared),
    (formula::PROTECTION, memory::protection),
    (formula::SUM, memory::sum),
    (formula::HIGH, memory::high),
    (formula::LIMIT, memory::limit),
    (formula::OOM_GROUP, memory::oom_group),
    (formula::SWAP, memory::swap),
    (formula::CAP, memory::cap),
    (formula::EFFECTIVE_PROTECTION, |case| case.by(effective::replay_protection)),
    (formula::EFFECTIVE_WEIGHT, |case| case.by(effective::replay_weight)),
    ("pressure-step", |case| case.by(pressure::replay_relieve)),
    ("pressure-release", |case| case.by(pressure::replay_release)),
    (formula::THRASH, |case| case.by(pressure::replay_thrash)),
    (formula::OVERLAY_STEP, |case| case.by(overlay::replay)),
    ("starves", starves),
    ("squeeze", |case| case.by(starvation::replay_squeeze)),
];

/// Decides again from a decision's inputs and compares.
pub fn replay(decision: &Decision) -> Replayed {
    if let Some(why) = observation(decision.kind) {
        return Replayed::NotADecision(why.to_owned());
    }
    let case = Case::of(decision);
    let outcome = match decision.kind {
        DecisionKind::Evict | DecisionKind::Restart if case.text("formula").is_err() => evicted(&case),
        // What is decided is not the value but who takes its effect away.
        DecisionKind::Ineffective => by_formula(&case).and_then(|now| Ok((case.text("by")?.to_owned(), now))),
        _ => by_formula(&case).and_then(|now| Ok((case.recorded()?.to_owned(), now))),
    };
    match outcome {
        Ok((recorded, now)) if recorded == now => Replayed::Same,
        Ok((recorded, now)) => Replayed::Differs { recorded, now },
        Err(Unreplayable(why)) => Replayed::NotADecision(why),
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

fn by_formula(case: &Case<'_>) -> Result<String, Unreplayable> {
    let name = case.text("formula").map_err(|_| Unreplayable(without_rule(case.kind()).to_owned()))?;
    let rule = RULES.iter().find(|(known, _)| *known == name);
    let (_, rule) = rule.ok_or_else(|| Unreplayable(format!("its rule {name} is not known here")))?;
    rule(case)
}

/// Why a decision of a kind may name no rule.
const fn without_rule(kind: DecisionKind) -> &'static str {
    match kind {
        DecisionKind::Denied => "tells that the kernel or the configuration refused",
        DecisionKind::Ineffective => "tells that a knob has its effect again",
        DecisionKind::Contended => "tells that somebody else rewrites a knob",
        DecisionKind::Resize => "tells that a request is kept or went back to what was asked for",
        _ => "names no rule in its inputs",
    }
}

/// A container that starves is reported; where nobody is left to be squeezed, somebody goes to the eviction policy.
fn starves(case: &Case<'_>) -> Result<String, Unreplayable> {
    let now = case.by(starvation::replay_starved)?;
    let is_evicted = case.recorded()? == "evict" && now == "starving";
    Ok(if is_evicted { "evict".to_owned() } else { now })
}

/// The kind itself is what an eviction decided.
fn evicted(case: &Case<'_>) -> Result<(String, String), Unreplayable> {
    let recorded = if case.kind() == DecisionKind::Evict { "evict" } else { "restart" };
    let now = case.by(|inputs| eviction::replayed(inputs).map(|remedy| remedy.as_str().to_owned()))?;
    Ok((recorded.to_owned(), now))
}
