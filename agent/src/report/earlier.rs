//! What containers used in the minute before this run of the agent, so that a kill right after a start is told with it.
//!
//! Owned here: which container of the run before is which of this one. Not owned: the ring it is read from (`ring`).

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_enforce::shared::Tracked;
use evenkeel_model::sample::Sample;
use evenkeel_proto::v1::ContainerIdentity;

use super::recent::Recent;

/// Time of which it is asked for at most, microseconds.
pub(super) const ASKED: u64 = 60_000_000;

/// The last minute of each container that the run before sampled; 1.3 KiB each, for a minute.
#[derive(Debug)]
pub(crate) struct Earlier {
    until_usec: u64,
    /// By id and inode of the cgroup: one that was made anew starts anew.
    of: BTreeMap<(String, u64), Recent>,
}

impl Earlier {
    /// Of the time before a moment, microseconds since 1970; nothing yet.
    pub(super) const fn until(until_usec: u64) -> Self {
        Self { until_usec, of: BTreeMap::new() }
    }

    /// Takes in a second of one container.
    pub(super) fn take(
        &mut self,
        identity: &ContainerIdentity,
        time_usec: u64,
        sample: &Sample,
        cpu: Option<u64>,
    ) {
        let key = (identity.id.clone(), identity.cgroup_inode);
        self.of.entry(key).or_insert_with(Recent::new).take(time_usec, sample, cpu);
    }

    /// Whether nobody asks for any of it any more; also where the clock was set.
    pub(super) const fn is_over(&self, time_usec: u64) -> bool {
        self.until_usec.abs_diff(time_usec) > ASKED
    }

    /// What a container used in the last `span` before a moment; nothing where it was not sampled then.
    pub(super) fn text(&self, of: &Tracked, time_usec: u64, span: Duration) -> Option<String> {
        let key = (of.workload.id.clone(), of.inode);
        let text = self.of.get(&key)?.text(time_usec, span);
        (!text.is_empty()).then_some(text)
    }
}
