//! Decisions that are to be told in Events: where reading goes on, and those that wait.

use std::collections::VecDeque;
use std::time::Instant;

use evenkeel_proto::v1;
use evenkeel_store::state::NodeDecision;

use super::{AT_ONCE, GONE, SEEN};
use crate::api::Context;

/// Where the last look ended.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// Decisions that had been kept by then; nothing before the first look, whose decisions are those of the run before.
    kept: Option<u64>,
    /// The last ones: node, epoch and number. A node that floods others makes room among its own, and then more is shown than is new.
    pub(super) seen: VecDeque<(String, u64, u64)>,
}

impl Cursor {
    pub(super) fn is_new(&mut self, decision: &v1::Decision) -> bool {
        let mark = (decision.node.clone(), decision.epoch ^ decision.time_usec, decision.seq);
        if self.seen.contains(&mark) {
            return false;
        }
        if self.seen.len() >= SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back(mark);
        true
    }

    /// What came since the last look, oldest first.
    pub(super) fn look(&mut self, context: &Context) -> Vec<NodeDecision> {
        let state = context.engine.state().study();
        let kept = state.events_kept();
        let Some(before) = self.kept.replace(kept) else { return Vec::new() };
        let newer = usize::try_from(kept.saturating_sub(before).min(AT_ONCE)).unwrap_or_default();
        let mut new: Vec<NodeDecision> = state.events().rev().take(newer).cloned().collect();
        drop(state);
        new.reverse();
        new.retain(|event| self.is_new(&event.decision));
        new
    }
}

/// What came while another one tells, in case that it is gone.
#[derive(Debug, Default)]
pub(super) struct EventBacklog(pub(super) VecDeque<(Instant, NodeDecision)>);

impl EventBacklog {
    /// What is to be told now: nothing while another one leads, and with the first that this one tells what came shortly before.
    pub(super) fn pass(&mut self, new: Vec<NodeDecision>, leads: bool, now: Instant) -> Vec<NodeDecision> {
        self.0.extend(new.into_iter().map(|event| (now, event)));
        if leads {
            return self.0.drain(..).map(|(_, event)| event).collect();
        }
        let is_old = |at: Instant| now.saturating_duration_since(at) > GONE;
        while self.0.front().is_some_and(|(at, _)| is_old(*at)) || self.0.len() as u64 > AT_ONCE {
            self.0.pop_front();
        }
        Vec::new()
    }
}
