//! What is remembered of a container's processes, and the rule for those that raised their own score.
//!
//! The kernel copies a score at fork and keeps it over exec, so a process whose score is above the target either
//! came with it (it was moved in, or forked before its parent was set right) or it, or the parent it was forked
//! from, raised it afterwards. Only the latter is a choice to respect. It is told apart like this:
//!
//! - a process that was seen right before, and is above the target now, raised itself;
//! - a process that began after its parent (a member of the same container) was seen right, and is above the
//!   target when first seen, raised itself, or inherited a value its parent chose;
//! - any other is set to the target once; from then on it counts as seen right.
//!
//! A score below the target is never a choice: lowering takes a capability, and the wish is the target.

use std::collections::HashMap;

use evenkeel_host::snapshot::ProcessFacts;
use evenkeel_host::write::ProcessId;
use evenkeel_model::units::OomScoreAdj;
use evenkeel_model::workload::ScorePolicy;

/// What a container's processes should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// The score.
    pub score: OomScoreAdj,
    /// What happens to processes that raised their own.
    pub policy: ScorePolicy,
}

/// How one process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessVerdict {
    /// At the target.
    Right,
    /// Above the target by its own choice.
    Respected,
    /// To be written.
    Wrong,
    /// Neither right nor wrong: a zombie or a kernel thread.
    Skipped,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    start_time: u64,
    /// Clock ticks since boot at which it was first seen right.
    right_at: u64,
    /// The score it chose.
    chosen: Option<OomScoreAdj>,
}

/// Processes of one container that were seen right.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_pid: HashMap<u32, Member>,
}

impl Members {
    /// How a process stands against the target.
    pub(super) fn judge(&self, facts: &ProcessFacts, target: Target) -> ProcessVerdict {
        if facts.zombie || facts.kernel_thread {
            ProcessVerdict::Skipped
        } else if facts.score == target.score {
            ProcessVerdict::Right
        } else if facts.score > target.score && target.policy == ScorePolicy::Respect && self.chose(facts) {
            ProcessVerdict::Respected
        } else {
            ProcessVerdict::Wrong
        }
    }

    fn chose(&self, facts: &ProcessFacts) -> bool {
        if self.member(facts.id).is_some() {
            return true;
        }
        let parent = self.by_pid.get(&facts.parent);
        // Ticks are coarse: one that began in the tick in which its parent was seen right may have been forked
        // just before.
        parent.is_some_and(|parent| facts.id.start_time > parent.right_at)
    }

    fn member(&self, id: ProcessId) -> Option<&Member> {
        self.by_pid.get(&id.pid).filter(|member| member.start_time == id.start_time)
    }

    /// True when a score read without identity is what this pid was last seen with.
    pub(super) fn is_as_seen(&self, pid: u32, score: OomScoreAdj, target: Target) -> bool {
        score == target.score || self.by_pid.get(&pid).is_some_and(|member| member.chosen == Some(score))
    }

    /// True when the process was seen right before: who changed it since was somebody else.
    pub(super) fn knows(&self, id: ProcessId) -> bool {
        self.member(id).is_some()
    }

    /// Remembers a process that is right, or respected with the score it chose.
    pub(super) fn remember(&mut self, id: ProcessId, now_ticks: u64, chosen: Option<OomScoreAdj>) {
        let right_at = self.member(id).map_or(now_ticks, |member| member.right_at);
        self.by_pid.insert(id.pid, Member { start_time: id.start_time, right_at, chosen });
    }

    /// Forgets everybody who is not among `pids` (sorted).
    pub(super) fn keep_only(&mut self, pids: &[u32]) {
        self.by_pid.retain(|pid, _| pids.binary_search(pid).is_ok());
        if self.by_pid.capacity() > 64 && self.by_pid.capacity() > 4 * self.by_pid.len() {
            self.by_pid.shrink_to_fit();
        }
    }

    /// Pids of everybody remembered.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.by_pid.keys().copied()
    }

    /// Forgets everybody: the target changed, so nobody has been seen right.
    pub(super) fn clear(&mut self) {
        self.by_pid.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pid: u32, parent: u32, start_time: u64, score: i64) -> ProcessFacts {
        let score = OomScoreAdj::clamped(score);
        ProcessFacts { id: ProcessId { pid, start_time }, parent, zombie: false, kernel_thread: false, score }
    }

    #[test]
    fn only_a_choice_is_respected() {
        let target = Target { score: OomScoreAdj::clamped(500), policy: ScorePolicy::Respect };
        let pin = Target { policy: ScorePolicy::Pin, ..target };
        let mut members = Members::default();
        members.remember(ProcessId { pid: 10, start_time: 100 }, 200, None);
        let table = [
            ("at the target", facts(10, 1, 100, 500), ProcessVerdict::Right, ProcessVerdict::Right),
            (
                "seen right, raised since",
                facts(10, 1, 100, 900),
                ProcessVerdict::Respected,
                ProcessVerdict::Wrong,
            ),
            ("seen right, lowered since", facts(10, 1, 100, 0), ProcessVerdict::Wrong, ProcessVerdict::Wrong),
            (
                "the pid is another process now",
                facts(10, 1, 300, 900),
                ProcessVerdict::Wrong,
                ProcessVerdict::Wrong,
            ),
            (
                "child begun after its parent was right",
                facts(11, 10, 201, 900),
                ProcessVerdict::Respected,
                ProcessVerdict::Wrong,
            ),
            (
                "child begun in the same tick",
                facts(11, 10, 200, 900),
                ProcessVerdict::Wrong,
                ProcessVerdict::Wrong,
            ),
            ("child begun before", facts(11, 10, 150, 900), ProcessVerdict::Wrong, ProcessVerdict::Wrong),
            ("moved in from outside", facts(12, 1, 300, 900), ProcessVerdict::Wrong, ProcessVerdict::Wrong),
            ("child below the target", facts(11, 10, 201, 499), ProcessVerdict::Wrong, ProcessVerdict::Wrong),
        ];
        for (case, facts, respect, pinned) in table {
            assert_eq!(members.judge(&facts, target), respect, "{case}");
            assert_eq!(members.judge(&facts, pin), pinned, "{case}, pinned");
        }
        let zombie = ProcessFacts { zombie: true, ..facts(10, 1, 100, 0) };
        assert_eq!(members.judge(&zombie, target), ProcessVerdict::Skipped);
    }

    #[test]
    fn the_dead_are_forgotten() {
        let mut members = Members::default();
        members.remember(ProcessId { pid: 10, start_time: 1 }, 1, None);
        members.keep_only(&[9, 11]);
        assert!(!members.knows(ProcessId { pid: 10, start_time: 1 }));
    }
}
