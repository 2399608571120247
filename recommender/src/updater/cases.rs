//! The last choices with all that they rest on, so that they can be made again (`evenkeel updates --replay`): of each step, and of each change of
//! why something is left alone. Bounded in bytes; the oldest goes first.

use std::collections::VecDeque;

use evenkeel_proto::v1;
use evenkeel_updater::ReplayCase;
use evenkeel_updater::replay::ReplayOutcome;

/// All of them, and one, bytes. Less than a message of gRPC holds.
const MOST_BYTES: usize = 2 << 20;
const MOST_OF_ONE: usize = 256 << 10;

#[derive(Debug)]
struct StoredCase {
    outcome: ReplayOutcome,
    told: v1::UpdateCase,
}

/// The last choices.
#[derive(Debug, Default)]
pub(super) struct Cases {
    all: VecDeque<StoredCase>,
    bytes: usize,
    /// Choices about so many pods that they are not kept.
    too_large: u64,
}

impl Cases {
    /// Keeps a choice, where the last one about its workload had another outcome.
    pub(super) fn keep(&mut self, case: &ReplayCase) {
        let (namespace, workload) = case.about();
        let is_of = |kept: &&StoredCase| kept.told.namespace == namespace && kept.told.workload == workload;
        if self.all.iter().rev().find(is_of).is_some_and(|last| last.outcome == *case.outcome()) {
            return;
        }
        let text = case.text();
        if text.len() > MOST_OF_ONE {
            self.too_large += 1;
            return;
        }
        self.bytes += text.len();
        let told = v1::UpdateCase {
            time_usec: case.seconds().saturating_mul(1_000_000),
            namespace: namespace.to_owned(),
            workload: workload.to_owned(),
            text,
        };
        self.all.push_back(StoredCase { outcome: case.outcome().clone(), told });
        while self.bytes > MOST_BYTES {
            let Some(oldest) = self.all.pop_front() else { break };
            self.bytes -= oldest.told.text.len();
        }
    }

    /// Those of a namespace, or of all where it is empty; oldest first.
    pub(super) fn list(&self, namespace: &str) -> Vec<v1::UpdateCase> {
        let all = self.all.iter().map(|kept| &kept.told);
        all.filter(|told| namespace.is_empty() || told.namespace == namespace).cloned().collect()
    }

    /// Choices that were too large to be kept.
    pub(super) fn too_large(&self) -> u64 {
        self.too_large
    }
}
