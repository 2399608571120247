//! All knobs of one container at one turn: which are looked at and written.
//!
//! Owned here: spreading reads over audits, putting originals back where a wish is no more. Not owned: the order of
//! writes ([`super::diff`]), one knob ([`super::knob`]).

use std::sync::Arc;

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::{Outcome, Target};

use super::diff::{ObservedKnob, diff, rank};
use super::env::Env;
use super::knob::{KnobEvent, KnobLoop, KnobObservation};
use crate::restore::{Back, put_back};

/// Settled knobs read at one audit: with eight knobs each is seen at every eighth, and at once when its file was
/// written by somebody and the kernel tells.
const READ_AT_AUDIT: usize = 1;

/// The knobs of one container.
#[derive(Debug, Default)]
pub(super) struct Knobs {
    pub(super) all: Vec<KnobLoop>,
    /// Knobs written once and no longer wished.
    pub(super) withdrawn: Vec<(Arc<Target>, Knob)>,
    /// The settled knob that is read next.
    cursor: usize,
}

/// What came of one knob.
pub(super) struct Done {
    /// Which, among all.
    pub(super) index: usize,
    /// What is to be told.
    pub(super) event: Option<KnobEvent>,
    /// What was tried.
    pub(super) outcome: Option<Outcome>,
}

impl Knobs {
    /// These knobs, none looked at yet.
    pub(super) fn new(all: Vec<KnobLoop>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Takes another set of wishes: known loops keep what they know, and what is no longer wished is put back.
    pub(super) fn replace(&mut self, fresh: Vec<KnobLoop>) {
        let mut had = std::mem::take(&mut self.all);
        self.all = fresh.into_iter().map(|wish| wish.or_kept(&mut had)).collect();
        self.withdrawn.extend(had.into_iter().map(|gone| (Arc::clone(&gone.target), gone.knob())));
        let all = &self.all;
        self.withdrawn.retain(|(at, knob)| !all.iter().any(|k| k.knob() == *knob && k.target == *at));
    }

    /// Every knob that is wished, and those that are being put back.
    pub(super) fn wished(&self) -> impl Iterator<Item = (&Target, Knob)> {
        let wished = self.all.iter().map(|knob| (&*knob.target, knob.knob()));
        wished.chain(self.withdrawn.iter().map(|(target, knob)| (&**target, *knob)))
    }

    /// Looks at everything that is not settled, and at all (`whole`) or some of what is; writes what differs.
    pub(super) fn turn(&mut self, env: &mut Env<'_>, whole: bool) -> Vec<Done> {
        let mut done = Vec::new();
        let mut seen: Vec<ObservedKnob> = self.all.iter().map(KnobLoop::settled).collect();
        for index in self.due(whole) {
            let Some((knob, seen)) = self.all.get_mut(index).zip(seen.get_mut(index)) else { continue };
            match knob.look(env) {
                KnobObservation::Settled(None) => {}
                KnobObservation::Settled(event) => done.push(Done { index, event, outcome: None }),
                KnobObservation::Differs(observed) => {
                    *seen = ObservedKnob { observed, is_ours: true, ..knob.settled() }
                }
            }
        }
        for write in diff(&seen) {
            let is_of = |knob: &KnobLoop| *knob.target == write.target && knob.knob() == write.knob();
            let Some(index) = self.all.iter().position(is_of) else { continue };
            if let Some(knob) = self.all.get_mut(index) {
                let (event, outcome) = knob.write(env, &write);
                done.push(Done { index, event, outcome });
            }
        }
        done
    }

    fn due(&mut self, whole: bool) -> Vec<usize> {
        let count = self.all.len();
        if whole || count <= READ_AT_AUDIT {
            return (0..count).collect();
        }
        let cursor = self.cursor;
        self.cursor = (cursor + READ_AT_AUDIT) % count;
        let turn = |index: usize| (index + count - cursor) % count < READ_AT_AUDIT;
        (0..count)
            .filter(|&index| turn(index) || self.all.get(index).is_some_and(|k| !k.is_settled()))
            .collect()
    }

    /// Puts originals back of what is no longer wished; what somebody else changed since is left.
    pub(super) fn put_back(&mut self, env: &mut Env<'_>) -> Vec<(Knob, Setting, Setting, Outcome)> {
        let mut told = Vec::new();
        let mut left = Vec::new();
        let mut originals: Vec<_> = std::mem::take(&mut self.withdrawn)
            .into_iter()
            .filter_map(|(target, knob)| env.journal.original(&target, knob).cloned())
            .collect();
        originals.sort_by_key(|original| rank(Some(original.new), original.old, true));
        for original in originals {
            let knob = original.old.knob();
            match put_back(env.reader, env.writer, &original) {
                Back::Tried(outcome) => {
                    let again = matches!(&outcome, Outcome::Failed { error, .. } if !error.is_gone());
                    told.push((knob, original.new, original.old, outcome));
                    if again {
                        left.push((Arc::new(original.target), knob));
                        continue;
                    }
                }
                Back::Left(_) => {}
                Back::Later(_) => {
                    left.push((Arc::new(original.target), knob));
                    continue;
                }
            }
            env.journal.forget(&original.target, knob);
        }
        self.withdrawn = left;
        told
    }
}
