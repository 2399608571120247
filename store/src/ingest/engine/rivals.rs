//! Owns the question who speaks for a node when two connections want to: the one that was there first, while it lives.
//!
//! The older one is asked (Ping). Anything it says within [`PATIENCE`] shows that it lives, and the newer one is refused;
//! otherwise the newer one takes its place. Not owned: what is said on the connections.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use evenkeel_proto::v1;
use tokio::sync::mpsc;

use super::{ConnectionId, Reply};
use crate::key::NodeKey;

/// How long an older connection may take to show that it lives: several times a long round trip and a pause of the agent.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A greeting.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) from: ConnectionId,
    pub(super) hello: v1::Hello,
    pub(super) owner: String,
    pub(super) replies: mpsc::UnboundedSender<Reply>,
}

/// Who speaks for which node, and who would like to. One holder and one rival a node: bounded as connections are.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    holders: HashMap<NodeKey, ConnectionId>,
    nodes: HashMap<ConnectionId, NodeKey>,
    waiting: HashMap<NodeKey, (Instant, Greeted)>,
}

impl Rivals {
    /// The connection that speaks for a node.
    pub(super) fn holder(&self, node: &NodeKey) -> Option<ConnectionId> {
        self.holders.get(node).copied()
    }

    /// A connection speaks for a node from now on.
    pub(super) fn hold(&mut self, node: NodeKey, connection: ConnectionId) {
        if let Some(before) = self.nodes.insert(connection, node.clone())
            && before != node
            && self.holders.get(&before) == Some(&connection)
        {
            self.holders.remove(&before);
        }
        self.holders.insert(node, connection);
    }

    /// Puts a newer connection down until the older has answered; gives it back where another waits already.
    pub(super) fn wait(&mut self, node: &NodeKey, greeted: Greeted) -> Option<Greeted> {
        if self.waiting.get(node).is_some_and(|(_, other)| other.from != greeted.from) {
            return Some(greeted);
        }
        self.waiting.insert(node.clone(), (Instant::now(), greeted));
        None
    }

    /// A connection lives: the rival of its node, who is to be refused.
    pub(super) fn lives(&mut self, connection: ConnectionId) -> Option<(NodeKey, Greeted)> {
        if self.waiting.is_empty() {
            return None;
        }
        let node = self.nodes.get(&connection)?;
        if self.holders.get(node) != Some(&connection) {
            return None;
        }
        let (_, greeted) = self.waiting.remove(node)?;
        Some((node.clone(), greeted))
    }

    /// Rivals whose time has come at `now`: the older one has not answered.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(NodeKey, Greeted)> {
        let due = |(_, (since, _)): &(&NodeKey, &(Instant, Greeted))| now.duration_since(*since) >= PATIENCE;
        let due: Vec<NodeKey> = self.waiting.iter().filter(due).map(|(node, _)| node.clone()).collect();
        let take = |node: NodeKey| self.waiting.remove(&node).map(|(_, greeted)| (node, greeted));
        due.into_iter().filter_map(take).collect()
    }

    /// A connection has ended; the rival whose way is free.
    pub(super) fn closed(&mut self, connection: ConnectionId) -> Option<Greeted> {
        self.waiting.retain(|_, (_, greeted)| greeted.from != connection);
        let node = self.nodes.remove(&connection)?;
        if self.holders.get(&node) != Some(&connection) {
            return None;
        }
        self.holders.remove(&node);
        self.waiting.remove(&node).map(|(_, greeted)| greeted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted(from: u64) -> Greeted {
        let (replies, _) = mpsc::unbounded_channel();
        Greeted { from: ConnectionId(from), hello: v1::Hello::default(), owner: String::new(), replies }
    }

    fn node() -> NodeKey {
        NodeKey { cluster: "c".into(), node: "n".into() }
    }

    #[test]
    fn the_older_stays_while_it_lives_and_the_newer_follows_when_it_does_not() {
        let mut rivals = Rivals::default();
        let now = Instant::now();
        rivals.hold(node(), ConnectionId(1));
        assert!(rivals.wait(&node(), greeted(2)).is_none());
        assert_eq!(rivals.wait(&node(), greeted(3)).map(|g| g.from), Some(ConnectionId(3)), "one waits");
        assert!(rivals.lives(ConnectionId(2)).is_none(), "who waits does not speak for the node");
        assert_eq!(rivals.lives(ConnectionId(1)).map(|(_, g)| g.from), Some(ConnectionId(2)));
        assert!(rivals.due(now + 2 * PATIENCE).is_empty());

        assert!(rivals.wait(&node(), greeted(4)).is_none());
        assert!(rivals.due(now).is_empty());
        let due = rivals.due(Instant::now() + PATIENCE);
        assert_eq!(due.first().map(|(_, g)| g.from), Some(ConnectionId(4)));
        rivals.hold(node(), ConnectionId(4));
        assert!(rivals.closed(ConnectionId(1)).is_none(), "it does not speak for the node any more");

        assert!(rivals.wait(&node(), greeted(5)).is_none());
        assert_eq!(rivals.closed(ConnectionId(4)).map(|g| g.from), Some(ConnectionId(5)));
        assert_eq!(rivals.holder(&node()), None);
    }
}
