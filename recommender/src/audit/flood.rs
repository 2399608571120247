//! How many attempts are kept: so many a minute of one caller and of all, the rest is counted. They cost the disk's time, and
//! whoever makes them has shown no right to it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Attempts of one caller kept in a minute.
const OF_ONE: u32 = 10;
/// Attempts of all.
const OF_ALL: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// The minute that runs.
#[derive(Debug, Default)]
pub(super) struct Flood {
    since: Option<Instant>,
    all: u32,
    /// Has at most [`OF_ALL`] callers.
    by_caller: HashMap<String, u32>,
    left_out: u64,
}

impl Flood {
    /// Whether an attempt is kept; with the number of those that were not since the one before.
    pub(super) fn take(&mut self, caller: &str, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= MINUTE) {
            (self.since, self.all) = (Some(now), 0);
            self.by_caller.clear();
        }
        let of_caller = self.by_caller.get(caller).copied().unwrap_or(0);
        if self.all >= OF_ALL || of_caller >= OF_ONE {
            self.left_out += 1;
            return None;
        }
        self.all += 1;
        self.by_caller.insert(caller.to_owned(), of_caller + 1);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_bounded_by_caller_and_in_all_and_the_rest_is_counted() {
        let (mut flood, start) = (Flood::default(), Instant::now());
        assert_eq!((0..1000).filter(|_| flood.take("a", start).is_some()).count(), 10);
        assert_eq!(
            flood.take("b", start),
            Some(990),
            "others have theirs, and what was left out is told once"
        );
        let kept = (0..1000).filter(|n| flood.take(&n.to_string(), start).is_some()).count();
        assert_eq!(kept, 49);
        assert_eq!(flood.take("a", start + MINUTE), Some(951));
        assert_eq!(flood.take("a", start + MINUTE), Some(0));
        assert_eq!(flood.by_caller.len(), 1);
    }
}
