//! What is asked of others while it is planned: the simulator, and whether this minute has a step left. Each answer is noted by workload, so
//! that the choice can be made again from what was known.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::facts::{Pod, Rules, Sizes, Workload};
use crate::kept::{Kept, Key, key};
use crate::plan::Room;

/// Said of a question that was not asked when the choice was made.
const NOT_ASKED: &str = "this was not asked then";

/// An answer, as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Whether sizes have room on the pod's node.
    InPlace(Result<(), String>),
    /// Whether they have room anywhere.
    Anywhere(Result<(), String>),
    /// Whether this minute has a step left.
    Paced(bool),
}

/// Whoever answers.
enum Source<'a> {
    /// The simulator, and the steps of this minute.
    Now(&'a mut dyn Room),
    /// What was answered when the choice was made.
    Then(VecDeque<Answer>),
}

/// Asks, and notes answers.
pub(super) struct Asked<'a> {
    source: Source<'a>,
    /// By workload, in their order.
    given: BTreeMap<Key, Vec<Answer>>,
}

impl<'a> Asked<'a> {
    pub(super) fn now(room: &'a mut dyn Room) -> Self {
        Self { source: Source::Now(room), given: BTreeMap::new() }
    }

    /// Of what was answered before about one workload.
    pub(super) fn then(answers: Vec<Answer>) -> Self {
        Self { source: Source::Then(answers.into()), given: BTreeMap::new() }
    }

    pub(super) fn given(self) -> BTreeMap<Key, Vec<Answer>> {
        self.given
    }

    pub(super) fn in_place(&mut self, workload: &Workload, pod: &Pod, sizes: &Sizes) -> Result<(), String> {
        let said = match &mut self.source {
            Source::Now(room) => room.in_place(workload, pod, sizes),
            Source::Then(answers) => match answers.pop_front() {
                Some(Answer::InPlace(said)) => said,
                _ => Err(NOT_ASKED.to_owned()),
            },
        };
        self.note(workload, Answer::InPlace(said.clone()));
        said
    }

    pub(super) fn anywhere(&mut self, workload: &Workload, pod: &Pod, sizes: &Sizes) -> Result<(), String> {
        let said = match &mut self.source {
            Source::Now(room) => room.anywhere(workload, pod, sizes),
            Source::Then(answers) => match answers.pop_front() {
                Some(Answer::Anywhere(said)) => said,
                _ => Err(NOT_ASKED.to_owned()),
            },
        };
        self.note(workload, Answer::Anywhere(said.clone()));
        said
    }

    /// Takes one step of this minute's, where one is left.
    pub(super) fn paced(&mut self, workload: &Workload, kept: &mut Kept, rules: &Rules, now: u64) -> bool {
        let may = match &mut self.source {
            Source::Now(_) => kept.may_step(rules, now),
            Source::Then(answers) => answers.pop_front() == Some(Answer::Paced(true)),
        };
        if may {
            kept.stepped(now);
        }
        self.note(workload, Answer::Paced(may));
        may
    }

    fn note(&mut self, workload: &Workload, answer: Answer) {
        self.given.entry(key(workload)).or_default().push(answer);
    }
}
