//! How many kills of each container were told, so that every one is told once whoever saw it.
//!
//! Three witnesses look at the same kills: the watch (the kernel's counter, the subtree's on v2 and v1 alike), the
//! sampler (the cgroup's own counter, once a second) and the kernel's log. Counters only grow, so a kill is new when
//! a counter exceeds what was told. Pure.

/// What of one container's life was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// The highest count told, of the watch's counter or the sampler's.
    counted: u64,
    /// Kills told that no counter showed.
    uncounted: u64,
}

impl Ledger {
    /// The ledger of a container of which `counted` kills are old news.
    pub(super) const fn from(counted: u64) -> Self {
        Self { counted, uncounted: 0 }
    }

    /// A counter shows `count`; returns how many of them are news.
    pub(super) fn counter(&mut self, count: u64) -> u64 {
        let news = count.saturating_sub(self.counted);
        self.counted += news;
        news
    }

    /// As [`counter`](Self::counter), of a counter read before its cgroup went: what was told without it is in it.
    pub(super) fn last_counter(&mut self, count: u64) -> u64 {
        let news = count.saturating_sub(self.total());
        self.counted += news;
        news
    }

    /// Kills are told that no counter shows any more.
    pub(super) fn without_counter(&mut self, kills: u64) {
        self.uncounted += kills;
    }

    /// The count that was told, for the next run.
    pub(super) const fn counted(&self) -> u64 {
        self.counted
    }

    /// All kills told.
    pub(super) const fn total(&self) -> u64 {
        self.counted + self.uncounted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kill_is_news_once_whoever_sees_it() {
        let mut ledger = Ledger::from(2);
        for (count, news) in [(2, 0), (3, 1), (3, 0), (2, 0), (5, 2)] {
            assert_eq!(ledger.counter(count), news, "at {count}");
        }
        // Its cgroup is gone, and the log knows of one more; then the sampler's last tick arrives.
        ledger.without_counter(1);
        assert_eq!((ledger.total(), ledger.last_counter(6), ledger.last_counter(7)), (6, 0, 1));
        assert_eq!((ledger.counted(), ledger.total()), (6, 7));
    }

    proptest! {
        #[test]
        fn what_is_told_is_what_the_highest_counter_shows(
            first in 0..50u64, looks in prop::collection::vec(0..100u64, 0..40)
        ) {
            let mut ledger = Ledger::from(first);
            let told: u64 = looks.iter().map(|count| ledger.counter(*count)).sum();
            let highest = looks.into_iter().max().unwrap_or(0).max(first);
            prop_assert_eq!(first + told, highest);
        }
    }
}
