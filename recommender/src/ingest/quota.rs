//! Owns how many bytes of one connection are read in a minute: what is sent beyond waits at the node, in its own connection
//! and then in its spool, and nothing is lost. A node has one connection that counts.

use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// What may be read yet of a minute.
#[derive(Debug)]
pub(super) struct Quota {
    per_minute: u64,
    left: u64,
    since: Instant,
}

impl Quota {
    /// So many bytes a minute.
    pub(super) fn new(per_minute: u64) -> Self {
        Self { per_minute, left: per_minute, since: Instant::now() }
    }

    /// Whether more may be read.
    pub(super) fn is_open(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= MINUTE {
            (self.left, self.since) = (self.per_minute, now);
        }
        self.left > 0
    }

    /// So many bytes were read; whether they used it up.
    pub(super) fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let was_open = self.is_open(now);
        self.left = self.left.saturating_sub(bytes);
        was_open && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_comes_back_with_the_next_minute() {
        let mut quota = Quota::new(100);
        let start = quota.since;
        assert!(!quota.take(60, start) && quota.is_open(start));
        assert!(quota.take(60, start), "the message that exceeds it is taken whole");
        assert!(!quota.is_open(start + MINUTE - Duration::from_secs(1)));
        assert!(!quota.take(5, start), "told once");
        assert!(quota.is_open(start + MINUTE));
    }
}
