//! What is asked of others while it is planned: the simulator, and whether this minute has a step left. Each answer is noted by workload, so
//! that the choice can be made again from what was known.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::facts::{RunningPod, Sizes, UpdateRules, Workload};
use crate::kept::{Key, UpdaterMemory, key};
use crate::plan::Room;

/// Said of a question that was not asked when the choice was made.
const NOT_ASKED: &str = "this was not asked then";

/// An answer, as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanAnswer {
    /// Whether sizes have room on the pod's node.
    InPlace(Result<(), String>),
    /// Whether they have room anywhere.
    Anywhere(Result<(), String>),
    /// Whether this minute has a step left.
    Paced(bool),
}

/// Whoever answers.
enum AnswerSource<'a> {
    /// The simulator, and the steps of this minute.
    Now(&'a mut dyn Room),
    /// What was answered when the choice was made.
    Then(VecDeque<PlanAnswer>),
}

/// Asks, and notes answers.
pub(super) struct AnswerRecorder<'a> {
    source: AnswerSource<'a>,
    /// By workload, in their order.
    given: BTreeMap<Key, Vec<PlanAnswer>>,
}

impl<'a> AnswerRecorder<'a> {
    pub(super) fn now(room: &'a mut dyn Room) -> Self {
        Self { source: AnswerSource::Now(room), given: BTreeMap::new() }
    }

    /// Of what was answered before about one workload.
    pub(super) fn then(answers: Vec<PlanAnswer>) -> Self {
        Self { source: AnswerSource::Then(answers.into()), given: BTreeMap::new() }
    }

    pub(super) fn given(self) -> BTreeMap<Key, Vec<PlanAnswer>> {
        self.given
    }

    pub(super) fn in_place(
        &mut self,
        workload: &Workload,
        pod: &RunningPod,
        sizes: &Sizes,
    ) -> Result<(), String> {
        let said = match &mut self.source {
            AnswerSource::Now(room) => room.in_place(workload, pod, sizes),
            AnswerSource::Then(answers) => match answers.pop_front() {
                Some(PlanAnswer::InPlace(said)) => said,
                _ => Err(NOT_ASKED.to_owned()),
            },
        };
        self.note(workload, PlanAnswer::InPlace(said.clone()));
        said
    }

    pub(super) fn anywhere(
        &mut self,
        workload: &Workload,
        pod: &RunningPod,
        sizes: &Sizes,
    ) -> Result<(), String> {
        let said = match &mut self.source {
            AnswerSource::Now(room) => room.anywhere(workload, pod, sizes),
            AnswerSource::Then(answers) => match answers.pop_front() {
                Some(PlanAnswer::Anywhere(said)) => said,
                _ => Err(NOT_ASKED.to_owned()),
            },
        };
        self.note(workload, PlanAnswer::Anywhere(said.clone()));
        said
    }

    /// Takes one step of this minute's, where one is left.
    pub(super) fn paced(
        &mut self,
        workload: &Workload,
        kept: &mut UpdaterMemory,
        rules: &UpdateRules,
        now: u64,
    ) -> bool {
        let may = match &mut self.source {
            AnswerSource::Now(_) => kept.may_step(rules, now),
            AnswerSource::Then(answers) => answers.pop_front() == Some(PlanAnswer::Paced(true)),
        };
        if may {
            kept.stepped(now);
        }
        self.note(workload, PlanAnswer::Paced(may));
        may
    }

    fn note(&mut self, workload: &Workload, answer: PlanAnswer) {
        self.given.entry(key(workload)).or_default().push(answer);
    }
}
