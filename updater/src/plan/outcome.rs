//! What a plan is: steps to take, and steps that are not taken.

use std::collections::BTreeMap;

use super::asked::PlanAnswer;
use super::reason::Reason;
use crate::facts::{Now, Sizes, UpdateRules, Workload};
use crate::kept::{Key, Remembered, key};
use crate::note::Note;
use crate::replay::ReplayCase;

/// What is done to a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum PodAction {
    /// It is resized in place.
    Resize {
        /// What these containers have.
        from: Sizes,
        /// What they are to have.
        to: Sizes,
    },
    /// It is evicted; who made it makes it anew.
    Evict {
        /// What the new one is to have; empty where that is no matter.
        to: Sizes,
    },
    /// Nothing but its note is written.
    Note,
}

impl PodAction {
    /// The word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Resize { .. } => "resize",
            Self::Evict { .. } => "evict",
            Self::Note => "note",
        }
    }
}

/// A step that is taken.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedStep {
    /// Namespace.
    pub namespace: String,
    /// The controller at the top.
    pub workload: String,
    /// The policy that governs it.
    pub policy: String,
    /// The pod.
    pub pod: String,
    /// Its identifier: another pod of the name is none of it.
    pub uid: String,
    /// Version of the object that this was decided about.
    pub version: String,
    /// Its node.
    pub node: String,
    /// What is done.
    pub deed: PodAction,
    /// What is written on the pod before.
    pub note: Option<Note>,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub why: String,
    /// What it was decided by.
    pub inputs: Vec<(&'static str, String)>,
}

/// A step that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedStep {
    /// Namespace; empty where it is about all.
    pub namespace: String,
    /// The controller at the top.
    pub workload: String,
    /// The policy that governs it.
    pub policy: String,
    /// The pod; empty where it is about all of the workload.
    pub pod: String,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub why: String,
    /// What it was decided by.
    pub inputs: Vec<(&'static str, String)>,
}

/// What is done now, in this order, and what is not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Steps.
    pub actions: Vec<PlannedStep>,
    /// What is not done though it differs.
    pub refusals: Vec<SkippedStep>,
    /// What was remembered of each workload before.
    pub(super) before: BTreeMap<Key, Remembered>,
    /// What was answered about each.
    pub(super) given: BTreeMap<Key, Vec<PlanAnswer>>,
}

impl Plan {
    /// All that the choice about one of the workloads rests on.
    pub fn case(&self, workload: &Workload, rules: &UpdateRules, now: &Now) -> ReplayCase {
        let (key, outcome) = (key(workload), self.outcome(workload));
        let remembered = self.before.get(&key).cloned().unwrap_or_default();
        let answers = self.given.get(&key).cloned().unwrap_or_default();
        ReplayCase::new(*rules, now.clone(), workload.clone(), remembered, answers, outcome)
    }
}
