//! A choice with all that it rests on, so that anybody can make it again: one workload as it was seen, what was remembered of it, what the
//! simulator answered, and what came of it.

use serde::{Deserialize, Serialize};

use crate::facts::{Now, Sizes, UpdateRules, Workload};
use crate::kept::{Remembered, UpdaterMemory};
use crate::plan::{Plan, PlanAnswer, PodAction, again};

/// Version of the text.
const VERSION: u32 = 1;

/// A step of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayStep {
    /// The pod.
    pub pod: String,
    /// `resize`, `evict` or `note`.
    pub deed: String,
    /// What containers are to have.
    #[serde(default, skip_serializing_if = "Sizes::is_empty")]
    pub to: Sizes,
    /// Why, in a word.
    pub reason: String,
}

/// What an outcome leaves alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The pod; empty where it is about all of the workload.
    pub pod: String,
    /// Why, in a word.
    pub reason: String,
}

/// What comes of a choice. Words are none of it: another release may have better ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayOutcome {
    /// Steps, in their order.
    pub steps: Vec<ReplayStep>,
    /// What is left alone.
    pub left: Vec<Left>,
}

impl std::fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = |of: &ReplayStep| format!("{} {} ({})", of.deed, of.pod, of.reason);
        let left = |of: &Left| {
            let pod = if of.pod.is_empty() { "all" } else { &of.pod };
            format!("leave {pod} ({})", of.reason)
        };
        let all: Vec<String> = self.steps.iter().map(step).chain(self.left.iter().map(left)).collect();
        f.write_str(if all.is_empty() { "nothing" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

impl Plan {
    /// What of it is about a workload.
    pub fn outcome(&self, workload: &Workload) -> ReplayOutcome {
        let is_of = |namespace: &str, name: &str| namespace == workload.namespace && name == workload.name;
        let actions = self.actions.iter().filter(|action| is_of(&action.namespace, &action.workload));
        let steps = actions.map(|action| ReplayStep {
            pod: action.pod.clone(),
            deed: action.deed.as_str().to_owned(),
            to: match &action.deed {
                PodAction::Resize { to, .. } | PodAction::Evict { to } => to.clone(),
                PodAction::Note => Sizes::new(),
            },
            reason: action.reason.as_str().to_owned(),
        });
        let refusals = self.refusals.iter().filter(|of| is_of(&of.namespace, &of.workload));
        let left = refusals.map(|of| Left { pod: of.pod.clone(), reason: of.reason.as_str().to_owned() });
        ReplayOutcome { steps: steps.collect(), left: left.collect() }
    }
}

/// A choice with all that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayCase {
    version: u32,
    rules: UpdateRules,
    now: Now,
    remembered: Remembered,
    /// What was answered, in this order.
    answers: Vec<PlanAnswer>,
    workload: Workload,
    outcome: ReplayOutcome,
}

impl ReplayCase {
    pub(crate) fn new(
        rules: UpdateRules,
        now: Now,
        workload: Workload,
        remembered: Remembered,
        answers: Vec<PlanAnswer>,
        outcome: ReplayOutcome,
    ) -> Self {
        Self { version: VERSION, rules, now, remembered, answers, workload, outcome }
    }

    /// Its text, JSON.
    pub fn text(&self) -> String {
        // Maps with keys that are text can be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From its text.
    ///
    /// # Errors
    /// What cannot be read of it, or that a later release wrote it.
    pub fn read(text: &str) -> Result<Self, String> {
        let case: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match case.version {
            VERSION => Ok(case),
            other => Err(format!("it is of version {other}, and {VERSION} is known: use a later release")),
        }
    }

    /// When it was chosen, seconds since 1970.
    pub fn seconds(&self) -> u64 {
        self.now.seconds
    }

    /// Namespace and name of the workload.
    pub fn about(&self) -> (&str, &str) {
        (&self.workload.namespace, &self.workload.name)
    }

    /// What came of it.
    pub fn outcome(&self) -> &ReplayOutcome {
        &self.outcome
    }

    /// What comes of it by this release.
    pub fn again(&self) -> ReplayOutcome {
        let mut kept = UpdaterMemory::only(&self.workload, self.remembered.clone());
        let plan = again(&self.workload, &mut kept, &self.rules, &self.now, self.answers.clone());
        plan.outcome(&self.workload)
    }
}
