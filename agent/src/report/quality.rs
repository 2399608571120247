//! How good the requests are that recommendations set, by policy: use above them, throttling and OOM kills under them.
//!
//! Owned here: sums since the start. Not owned: what is in force (`evenkeel_enforce::overlay`), the page that shows it. A second counts
//! for a container while its requests are not those that were asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_enforce::overlay::InForce;
use evenkeel_enforce::shared::Tracked;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::workload::Requested;

/// Policies told apart; what others set is summed under [`OTHERS`].
const MOST: usize = 100;
/// Policies beyond those, and where none is known.
pub(crate) const OTHERS: &str = "";

/// What came of the requests of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestQuality {
    /// Container time under them, microseconds.
    pub usec: u64,
    /// Of it, with more CPU used than requested.
    pub cpu_over_usec: u64,
    /// Of it, with a working set above the request.
    pub memory_over_usec: u64,
    /// CPU time the limit held back, microseconds.
    pub throttled_usec: u64,
    /// Processes that the OOM killer took.
    pub oom_kills: u64,
}

/// Sums by policy.
#[derive(Debug, Default)]
pub(crate) struct Quality {
    in_force: Arc<InForce>,
    sums: BTreeMap<String, RequestQuality>,
}

impl Quality {
    /// What is in force from now on, by container.
    pub(super) fn follow(&mut self, in_force: Arc<InForce>) {
        self.in_force = in_force;
    }

    /// Takes in a sample of a container, with the one before and what it used in between.
    pub(super) fn take(&mut self, tracked: &Tracked, sample: &Sample, last: &Sample, cpu_milli: Option<u64>) {
        let Some(policy) = self.in_force.get(&tracked.workload.id) else { return };
        let Requested::Stated(requested) = tracked.workload.requested else { return };
        let policy = if self.sums.contains_key(policy) || self.sums.len() < MOST { policy } else { OTHERS };
        let sums = match self.sums.get_mut(policy) {
            Some(sums) => sums,
            None => self.sums.entry(policy.to_owned()).or_default(),
        };
        let usec = u64::from(sample.interval_usec());
        let is_over =
            |used: Option<u64>, request: Option<u64>| used > request && used.is_some() && request.is_some();
        sums.usec += usec;
        if is_over(cpu_milli, requested.cpu_request.map(|milli| milli.get())) {
            sums.cpu_over_usec += usec;
        }
        if is_over(
            sample.get(Field::MemoryWorkingSetBytes),
            requested.memory_request.map(|bytes| bytes.get()),
        ) {
            sums.memory_over_usec += usec;
        }
        sums.throttled_usec += sample.delta(last, Field::CpuThrottledUsec).unwrap_or(0);
        sums.oom_kills += sample.delta(last, Field::OomKills).unwrap_or(0);
    }

    /// Sums by policy, `namespace/name`.
    pub(crate) fn sums(&self) -> BTreeMap<String, RequestQuality> {
        self.sums.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_support::tracked;

    #[test]
    fn seconds_under_requests_of_ours_count_and_others_do_not() {
        let ours = tracked(1, "ours");
        let theirs = tracked(2, "theirs");
        let mut quality = Quality::default();
        quality.follow(Arc::new([(ours.workload.id.clone(), "shop/p".to_owned())].into()));
        let sample = |bytes: u64, throttled: u64, kills: u64| {
            let mut sample = Sample::with_interval_usec(1_000_000);
            sample.set(Field::MemoryWorkingSetBytes, bytes);
            sample.set(Field::CpuThrottledUsec, throttled);
            sample.set(Field::OomKills, kills);
            sample
        };
        let quiet = sample(1 << 20, 0, 0);
        let busy = sample(300 << 20, 250, 2);
        for tracked in [&ours, &theirs] {
            quality.take(tracked, &quiet, &quiet, Some(500));
            quality.take(tracked, &busy, &quiet, Some(501));
            quality.take(tracked, &busy, &busy, None);
        }
        let want = RequestQuality {
            usec: 3_000_000,
            cpu_over_usec: 1_000_000,
            memory_over_usec: 2_000_000,
            throttled_usec: 250,
            oom_kills: 2,
        };
        assert_eq!(quality.sums(), [("shop/p".to_owned(), want)].into());
        let many: InForce = (0..300)
            .map(|number| (ours.workload.id.clone() + &number.to_string(), number.to_string()))
            .collect();
        quality.follow(Arc::new(many));
        for number in 0..300 {
            let mut one = tracked(1, "ours");
            Arc::make_mut(&mut one.workload).id.push_str(&number.to_string());
            quality.take(&one, &quiet, &quiet, None);
        }
        assert!(quality.sums().len() <= MOST + 1, "{}", quality.sums().len());
        assert!(quality.sums()[OTHERS].usec > 0);
    }
}
