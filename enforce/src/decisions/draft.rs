//! A decision before it has its number and time.

use std::collections::BTreeMap;

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::write::Outcome;
use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::workload::Workload;

/// Builds a decision; [`super::DecisionLog::record`] numbers and dates it.
#[derive(Debug, Clone)]
pub struct Draft {
    decision: Decision,
}

impl Draft {
    /// About the node itself.
    pub fn node(kind: DecisionKind, reason: impl Into<String>) -> Self {
        let decision = Decision {
            time_usec: 0,
            seq: 0,
            pod: None,
            container: None,
            kind,
            knob: None,
            old: None,
            new: None,
            reason: reason.into(),
            inputs: BTreeMap::new(),
            result: DecisionResult::Done,
        };
        Self { decision }
    }

    /// About one container.
    pub(crate) fn of(workload: &Workload, kind: DecisionKind, reason: impl Into<String>) -> Self {
        let mut draft = Self::node(kind, reason);
        draft.decision.pod = Some(format!("{}/{}", workload.pod.namespace, workload.pod.name));
        draft.decision.container = Some(workload.container.clone());
        draft
    }

    /// Names the knob by its kernel file.
    pub(crate) fn knob(mut self, name: &str) -> Self {
        self.decision.knob = Some(name.to_owned());
        self
    }

    /// What was found and what is wished.
    pub(crate) fn values(mut self, old: Option<String>, new: Option<String>) -> Self {
        self.decision.old = old;
        self.decision.new = new;
        self
    }

    /// Adds one number the decision used.
    pub fn input(mut self, name: &str, value: impl ToString) -> Self {
        self.decision.inputs.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds the numbers a plan used.
    pub(crate) fn inputs(mut self, inputs: impl IntoIterator<Item = (impl ToString, impl ToString)>) -> Self {
        let inputs = inputs.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
        self.decision.inputs.extend(inputs);
        self
    }

    /// What came of it; done where this is not called.
    pub fn result(mut self, result: DecisionResult) -> Self {
        self.decision.result = result;
        self
    }

    /// The decision as it is.
    #[cfg(test)]
    pub(crate) fn finish_for_tests(self) -> Decision {
        self.decision
    }

    /// The decision, numbered and dated.
    pub fn finish(self, seq: u64, time_usec: u64) -> Decision {
        Decision { seq, time_usec, ..self.decision }
    }
}

/// What a write came to, in a decision's words.
pub fn result_of(outcome: &Outcome) -> DecisionResult {
    match outcome {
        Outcome::Unchanged { .. } => DecisionResult::Unchanged,
        Outcome::Written { .. } => DecisionResult::Done,
        Outcome::WouldWrite { .. } => DecisionResult::WouldDo,
        Outcome::Refused(_) => DecisionResult::Rejected,
        Outcome::Failed { error, .. } => result_of_error(error),
    }
}

/// What a failure came to, in a decision's words.
pub fn result_of_error(error: &HostError) -> DecisionResult {
    match error.category() {
        Category::Gone => DecisionResult::Gone,
        Category::Denied => DecisionResult::Denied,
        Category::Unsupported => DecisionResult::Unsupported,
        Category::Rejected => DecisionResult::Rejected,
        Category::Malformed | Category::Partial | Category::Io => DecisionResult::Failed,
    }
}
