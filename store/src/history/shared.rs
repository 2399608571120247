//! Owns what was read of scopes that many containers belong to, so that it is read once and not for each of them: an image
//! of thousands of workloads is otherwise gone through for every one, and its answers take the square of their number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{Day, Minute, Scope};

/// Series of an image from which on its scopes are shared; fewer are read as fast as they are found here.
pub(super) const CROWD: usize = 16;

/// Scopes kept, some tens of KiB each: a month of days. When there are more, stale ones go first, then all.
const KEPT: usize = 512;

/// Whose past it is: the names that the scope has, the others empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) scope: Scope,
    pub(super) resource: Resource,
    /// Starts are left out.
    pub(super) is_running: bool,
    /// Days, or minutes from this one on.
    pub(super) minutes_from: Option<u64>,
    pub(super) cluster: Option<String>,
    pub(super) namespace: String,
    pub(super) container: String,
    pub(super) image: String,
    pub(super) tag: String,
    pub(super) command: Option<u64>,
}

/// What is known of a scope.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ScopeHistory {
    pub(super) days: Vec<Day>,
    pub(super) minutes: Vec<Minute>,
    /// When it was first heard of, milliseconds since 1970.
    pub(super) since_ms: Option<u64>,
}

impl ScopeHistory {
    /// For how long it may be given again: a sixtieth of the time it reaches back, 1 to 60 seconds.
    fn holds_usec(&self, now_usec: u64) -> u64 {
        let days = self.days.first().map(|day| day.day * 86_400_000);
        let first = days.max(self.since_ms).or(self.minutes.first().map(|m| m.minute * 60_000));
        let span_ms = first.map_or(0, |first| (now_usec / 1000).saturating_sub(first));
        (span_ms / 60).clamp(1_000, 60_000) * 1000
    }
}

/// Scopes that were read, each with the time (microseconds since 1970) until which it is given again.
#[derive(Debug, Default)]
pub struct SharedScopes {
    kept: Mutex<HashMap<Key, (u64, Arc<ScopeHistory>)>>,
    read: AtomicU64,
}

impl SharedScopes {
    /// Scopes that had to be read, since the start.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// What is known of a scope; `read` goes through its containers.
    pub(super) fn known(
        &self,
        key: Key,
        now_usec: u64,
        read: impl FnOnce() -> ScopeHistory,
    ) -> Arc<ScopeHistory> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |until: u64| now_usec < until;
        if let Some((_, known)) = lock().get(&key).filter(|(until, _)| is_fresh(*until)) {
            return Arc::clone(known);
        }
        // Nobody waits for the lock meanwhile; two that read the same at once find the same.
        let known = Arc::new(read());
        self.read.fetch_add(1, Ordering::Relaxed);
        let until = now_usec.saturating_add(known.holds_usec(now_usec));
        let mut kept = lock();
        if kept.len() >= KEPT {
            kept.retain(|_, (until, _)| is_fresh(*until));
            if kept.len() >= KEPT {
                kept.clear();
            }
        }
        kept.insert(key, (until, Arc::clone(&known)));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key {
            scope: Scope::Image,
            resource: Resource::Cpu,
            is_running: false,
            minutes_from: None,
            cluster: None,
            namespace: String::new(),
            container: String::new(),
            image: format!("image-{number}"),
            tag: String::new(),
            command: None,
        }
    }

    #[test]
    fn a_scope_is_read_again_after_a_sixtieth_of_its_past() {
        const SECOND: u64 = 1_000_000;
        let shared = SharedScopes::default();
        let now = 20_000 * 86_400 * SECOND + 600 * SECOND;
        let day = Day { day: 20_000, ..Day::default() };
        let ask = |now_usec| {
            shared.known(key(0), now_usec, || ScopeHistory {
                days: vec![day.clone()],
                ..ScopeHistory::default()
            })
        };
        for (seconds, read) in [(0, 1), (9, 1), (10, 2), (19, 2), (21, 3)] {
            ask(now + seconds * SECOND);
            assert_eq!(shared.read(), read, "after {seconds} s");
        }
    }

    #[test]
    fn as_many_as_fit_are_kept() {
        let shared = SharedScopes::default();
        for number in 0..3 * KEPT {
            shared.known(key(number), 5, ScopeHistory::default);
            assert!(shared.kept.lock().unwrap().len() <= KEPT);
        }
    }
}
