//! Dynamic scores: `oom_score_adj` of burstable containers by what they use, an option beside the document's
//! formula.
//!
//! The kernel kills the process with the highest sum of `oom_score_adj` and memory in thousandths of the machine
//! (`oom_badness`, since 5.9 without bounds). With the document's formula a burstable container over its request
//! may exceed an idle best-effort one, and one made of many small processes stays below one within its request.
//! Here the sum itself is aimed at: best-effort from 1000, burstable over its request 900 to 999 ranked by use
//! over request and then by priority, burstable within its request below 900 and never above the formula.
//!
//! Owned here: ranking, the score, hysteresis and the bound on writes per round. Not owned: measuring, writing.
//! Scores stay within the band of burstable ones (2 or 3 to 999), so classes never mix.

use std::collections::BTreeMap;

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, OomScoreAdj};
use serde::{Deserialize, Serialize};

use crate::plan::Wish;
use crate::rules::RuleSet;
use crate::score::{KUBELET_CEILING, KUBELET_FLOOR, PROPOSAL_FLOOR, ScoreInput, container_score};
use crate::why::Why;

/// Highest sum of score and memory aimed at: one below that of an idle best-effort container.
const TOP: i64 = 999;
/// Lowest sum aimed at for a container over its request.
const OVER_LEAST: i64 = 900;
/// Step in which use over request is ranked, percent of the request: within one, priority decides.
const RANK_STEP_PERCENT: u128 = 10;

/// How eagerly scores follow use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DynamicRule {
    /// The rule set, for the band and the formula.
    pub rules: RuleSet,
    /// Scores written in one round at most.
    pub writes_per_round: usize,
    /// A score is written again when it differs by at least this.
    pub least_change: i16,
    /// A container over its request counts as within it again once its use is below this percent of it.
    pub back_percent: u8,
}

impl DynamicRule {
    /// 20 writes a round, differences of 10, back below 95 %: bounded cost, and a container that hovers around
    /// its request is not rewritten at every breath.
    pub const fn new(rules: RuleSet) -> Self {
        Self { rules, writes_per_round: 20, least_change: 10, back_percent: 95 }
    }
}

/// One burstable container, freshly measured. Node-critical ones and infrastructure keep their fixed scores and
/// are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreCandidate {
    /// The workload's id.
    pub id: String,
    /// Its memory request.
    pub request: Bytes,
    /// What it uses (working set).
    pub usage: Bytes,
    /// Resident memory of its largest process; its whole use where that is not known.
    pub largest: Option<Bytes>,
    /// Priority of its pod; 0 where it has none.
    pub priority: i32,
}

/// Everything one score is made from; fields are named as decisions name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicInput {
    /// The rule set.
    pub rules: RuleSet,
    /// Memory of the machine.
    #[serde(rename = "memory_capacity")]
    pub capacity: Bytes,
    /// Its memory request.
    #[serde(rename = "memory_request")]
    pub request: Bytes,
    /// What it uses.
    #[serde(rename = "memory_usage")]
    pub usage: Bytes,
    /// Resident memory of its largest process.
    #[serde(rename = "largest_process")]
    pub largest: Bytes,
    /// Priority of its pod, by which it was ranked.
    #[serde(default)]
    pub priority: i32,
    /// `None` within its request.
    #[serde(flatten)]
    pub rank: Option<Rank>,
}

/// Place among those over their request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// The worst is 0.
    pub rank: u64,
    /// How many they are.
    #[serde(rename = "over_request")]
    pub count: u64,
}

impl DynamicInput {
    pub(crate) fn text(&self) -> String {
        let (usage, request) = (self.usage.get(), self.request.get());
        match self.rank {
            Some(Rank { rank, count }) => format!(
                "Burstable over its request, place {} of {count}: uses {usage} of {request}",
                u128::from(rank) + 1
            ),
            None => format!("Burstable within its request: uses {usage} of {request}"),
        }
    }

    pub(crate) fn again(&self) -> String {
        score(self).to_string()
    }
}

/// The score: what is missing from the largest process's memory to the sum aimed at, within the band.
pub fn score(input: &DynamicInput) -> OomScoreAdj {
    let permille = u128::from(input.largest.get()) * 1000;
    let memory = permille.checked_div(u128::from(input.capacity.get())).unwrap_or(0);
    let memory = i64::try_from(memory).unwrap_or(i64::MAX);
    let wanted = match input.rank {
        Some(Rank { rank, count }) => {
            let span = i128::from(TOP - OVER_LEAST) * i128::from(rank);
            let below = span.checked_div(i128::from(count.saturating_sub(1))).unwrap_or(0);
            let below = i64::try_from(below).unwrap_or(i64::MAX).min(TOP - OVER_LEAST);
            (TOP - below).saturating_sub(memory)
        }
        None => by_formula(input).min((OVER_LEAST - 1).saturating_sub(memory)),
    };
    let floor = match input.rules {
        RuleSet::Proposal => PROPOSAL_FLOOR,
        RuleSet::Kubelet => KUBELET_FLOOR,
    };
    OomScoreAdj::clamped(wanted.clamp(floor, KUBELET_CEILING))
}

fn by_formula(input: &DynamicInput) -> i64 {
    let of = ScoreInput {
        class: QosClass::Burstable,
        memory_request: input.request,
        capacity: input.capacity,
        node_critical: false,
        share: Bytes::ZERO,
        sidecar_of: None,
    };
    i64::from(container_score(input.rules, &of).value.get())
}

#[derive(Debug, Clone, Default)]
struct ScoreState {
    is_over: bool,
    /// The score in force, and whether it was made for a container over its request.
    score: Option<(bool, Wish<OomScoreAdj>)>,
}

/// The scores in force on one node. Grows with the containers it was last told of, no further.
#[derive(Debug, Clone)]
pub struct Dynamic {
    rule: DynamicRule,
    held: BTreeMap<String, ScoreState>,
}

impl Dynamic {
    /// No score yet: everybody has the formula's.
    pub const fn new(rule: DynamicRule) -> Self {
        Self { rule, held: BTreeMap::new() }
    }

    /// The score in force for a container, where it has a dynamic one.
    pub fn wish(&self, id: &str) -> Option<&Wish<OomScoreAdj>> {
        self.held.get(id)?.score.as_ref().map(|(_, wish)| wish)
    }

    /// Takes fresh measurements of all burstable containers of a machine with `capacity` memory; the ids whose
    /// score changed, at most as many as the rule allows, the largest changes first. The rest follow in later
    /// rounds.
    pub fn observe(&mut self, capacity: Bytes, candidates: &[ScoreCandidate]) -> Vec<String> {
        let by_id: BTreeMap<&str, &ScoreCandidate> = candidates.iter().map(|c| (c.id.as_str(), c)).collect();
        self.held.retain(|id, _| by_id.contains_key(id.as_str()));
        for (id, c) in &by_id {
            let held = self.held.entry((*id).to_owned()).or_default();
            held.is_over = is_over(c, held.is_over, self.rule.back_percent);
        }
        let is_over = |id: &str| self.held.get(id).is_some_and(|h| h.is_over);
        let (mut over, within): (Vec<_>, Vec<_>) = by_id.into_values().partition(|c| is_over(&c.id));
        over.sort_unstable_by(|a, b| worse_first(a, b));
        let count = over.len() as u64;
        let ranked = over.into_iter().zip(0_u64..).map(|(c, rank)| (c, Some(Rank { rank, count })));
        let wanted: Vec<_> = ranked
            .chain(within.into_iter().map(|c| (c, None)))
            .map(|(c, rank)| (c, self.input(capacity, c, rank)))
            .collect();
        self.write(&wanted)
    }

    fn input(&self, capacity: Bytes, c: &ScoreCandidate, rank: Option<Rank>) -> DynamicInput {
        DynamicInput {
            rules: self.rule.rules,
            capacity,
            request: c.request,
            usage: c.usage,
            largest: c.largest.unwrap_or(c.usage),
            priority: c.priority,
            rank,
        }
    }

    /// Puts the largest changes in force, as many as the rule allows.
    fn write(&mut self, wanted: &[(&ScoreCandidate, DynamicInput)]) -> Vec<String> {
        let mut changes: Vec<_> = wanted
            .iter()
            .filter_map(|(c, input)| {
                let value = score(input);
                let by = self.change(&c.id, input.rank.is_some(), value)?;
                Some((by, *c, input, value))
            })
            .collect();
        changes.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
        changes.truncate(self.rule.writes_per_round);
        for (_, c, input, value) in &changes {
            if let Some(held) = self.held.get_mut(&c.id) {
                let wish = Why::DynamicScore(Box::new(**input)).wish(*value);
                held.score = Some((input.rank.is_some(), wish));
            }
        }
        changes.into_iter().map(|(_, c, _, _)| c.id.clone()).collect()
    }

    /// By how much a score differs from the one in force; `None` where that is not worth a write. A first score
    /// counts most; one made on the other side of the request is always worth it.
    fn change(&self, id: &str, is_over: bool, value: OomScoreAdj) -> Option<i32> {
        let Some((was_over, held)) = self.held.get(id)?.score.as_ref() else { return Some(i32::MAX) };
        let by = (i32::from(held.value.get()) - i32::from(value.get())).abs();
        let least = if *was_over == is_over { i32::from(self.rule.least_change).max(1) } else { 1 };
        (by >= least).then_some(by)
    }
}

fn is_over(c: &ScoreCandidate, was: bool, back_percent: u8) -> bool {
    let used = u128::from(c.usage.get()) * 100;
    let request = u128::from(c.request.get());
    if was { used >= request * u128::from(back_percent) } else { used > request * 100 }
}

/// By use over request in steps, then the less important pod, then the larger excess, then by id.
fn worse_first(a: &ScoreCandidate, b: &ScoreCandidate) -> std::cmp::Ordering {
    let step = |c: &ScoreCandidate| {
        let percent = u128::from(c.usage.get()) * 100;
        percent.checked_div(u128::from(c.request.get())).unwrap_or(u128::MAX) / RANK_STEP_PERCENT
    };
    let excess = |c: &ScoreCandidate| c.usage.saturating_sub(c.request);
    (step(b).cmp(&step(a)))
        .then(a.priority.cmp(&b.priority))
        .then(excess(b).cmp(&excess(a)))
        .then(a.id.cmp(&b.id))
}
