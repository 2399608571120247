//! Owns when it is worth an alarm that two connections wanted to speak for one node: once is a restart, again and again is
//! two agents with one name, or a network that breaks.

use crate::key::NodeKey;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Contests within [`SPAN`] that are an alarm.
const ALARM: u32 = 3;
/// An alarm ends so long after the last contest.
const SPAN: Duration = Duration::from_secs(600);
/// Nodes remembered; those contested longest ago go first.
const MOST: usize = 1024;

/// Nodes that were contested lately: how often, and when last.
#[derive(Debug, Default)]
pub(super) struct Contests(HashMap<NodeKey, (u32, Instant)>);

impl Contests {
    /// One more; whether that is an alarm which was none before.
    pub(super) fn add(&mut self, node: &NodeKey, now: Instant) -> bool {
        self.0.retain(|_, (_, last)| now.duration_since(*last) < SPAN);
        if self.0.len() >= MOST && !self.0.contains_key(node) {
            let oldest = self.0.iter().min_by_key(|(_, (_, last))| *last).map(|(node, _)| node.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let (times, last) = self.0.entry(node.clone()).or_insert((0, now));
        (*times, *last) = (times.saturating_add(1), now);
        *times == ALARM
    }

    /// Nodes with an alarm.
    pub(super) fn now(&self, now: Instant) -> Vec<NodeKey> {
        let loud = |(times, last): &(u32, Instant)| *times >= ALARM && now.duration_since(*last) < SPAN;
        let mut nodes: Vec<_> =
            self.0.iter().filter(|(_, of)| loud(of)).map(|(node, _)| node.clone()).collect();
        nodes.sort_unstable();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_time_is_an_alarm_once_and_it_ends() {
        let node = |i: usize| NodeKey { cluster: "c".into(), node: format!("n{i}") };
        let (mut contests, now) = (Contests::default(), Instant::now());
        let told: Vec<bool> = (0..5).map(|_| contests.add(&node(1), now)).collect();
        assert_eq!(told, [false, false, true, false, false]);
        assert_eq!(contests.now(now), [node(1)]);
        assert!(contests.now(now + SPAN).is_empty());
        for i in 0..3000 {
            contests.add(&node(i), now + SPAN);
        }
        assert!(contests.0.len() <= MOST);
        assert!(!contests.add(&node(1), now + 3 * SPAN), "it is forgotten");
    }
}
