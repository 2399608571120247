//! Decisions that were made before, read back.

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_log::{LogError, LogReader};
use evenkeel_model::decision::{Decision, DecisionKind};

use super::REMEMBERED;

/// Decisions from one number on, oldest first: those on disk, then those of the ring that the disk lacks.
pub struct History {
    pub(super) from: u64,
    pub(super) disk: Option<LogReader>,
    pub(super) ring: VecDeque<Arc<Decision>>,
}

impl History {
    /// Up to `max` more decisions; empty at the end.
    pub fn next_chunk(&mut self, max: usize) -> Vec<Arc<Decision>> {
        let mut chunk = Vec::new();
        while chunk.len() < max {
            match self.disk.as_mut().and_then(Iterator::next) {
                Some(Ok(record)) => match serde_json::from_slice::<Decision>(&record.payload) {
                    Ok(decision) if decision.seq >= self.from => {
                        self.from = decision.seq + 1;
                        chunk.push(Arc::new(decision));
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "ignoring a stored decision that does not read"),
                },
                // Trimmed meanwhile: the reader goes on with the oldest one stored.
                Some(Err(LogError::Trimmed { .. })) => {}
                Some(Err(_)) | None => {
                    self.disk = None;
                    break;
                }
            }
        }
        while self.disk.is_none() && chunk.len() < max {
            match self.ring.pop_front() {
                Some(decision) if decision.seq >= self.from => chunk.push(decision),
                Some(_) => {}
                None => break,
            }
        }
        chunk
    }
}

/// Puts what is listed later with its like.
pub(super) fn remember(
    decision: Arc<Decision>,
    oom_kills: &mut VecDeque<Arc<Decision>>,
    rulings: &mut VecDeque<Arc<Decision>>,
) {
    match decision.kind {
        DecisionKind::OomKill => push_bounded(oom_kills, decision, REMEMBERED),
        DecisionKind::Evict | DecisionKind::Restart => push_bounded(rulings, decision, REMEMBERED),
        _ => false,
    };
}

/// Appends, dropping the oldest when full; true when one was dropped.
pub(super) fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, cap: usize) -> bool {
    let full = queue.len() >= cap;
    if full {
        queue.pop_front();
    }
    queue.push_back(item);
    full
}
