//! Owns which decisions have been counted that may be sent again.
//!
//! An agent sends kills and rulings until it knows that they arrived, also in frames of a later run, and so perhaps
//! twice. It keeps a bounded number of them; remembering as many of each node is enough to count each once.

use crate::key::NodeKey;
use std::collections::{BTreeMap, VecDeque};

/// As many as an agent keeps.
const REMEMBERED: usize = 1024;

/// A decision of a node: the epoch of the run that made it, and its number.
pub(crate) type Id = (u64, u64);

/// What is remembered, by node, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Repeats {
    nodes: BTreeMap<NodeKey, VecDeque<Id>>,
}

impl Repeats {
    /// Whether a decision is seen for the first time.
    pub(crate) fn is_first(&mut self, node: &NodeKey, epoch: u64, seq: u64) -> bool {
        let known = self.nodes.entry(node.clone()).or_default();
        // The newest are the likeliest to come again.
        if known.iter().rev().any(|id| *id == (epoch, seq)) {
            return false;
        }
        if known.len() >= REMEMBERED {
            known.pop_front();
        }
        known.push_back((epoch, seq));
        true
    }

    /// A node is no more.
    pub(crate) fn forget(&mut self, node: &NodeKey) {
        self.nodes.remove(node);
    }

    /// Everything remembered.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&NodeKey, &VecDeque<Id>)> {
        self.nodes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_first_once_and_memory_is_bounded() {
        let mut repeats = Repeats::default();
        let (a, b) = (
            NodeKey { cluster: "c".into(), node: "a".into() },
            NodeKey { cluster: "c".into(), node: "b".into() },
        );
        for (node, epoch, seq, first) in [
            (&a, 1, 1, true),
            (&a, 1, 1, false),
            (&a, 2, 1, true),
            (&b, 1, 1, true),
            (&a, 1, 2, true),
            (&a, 2, 1, false),
        ] {
            assert_eq!(repeats.is_first(node, epoch, seq), first, "{epoch} {seq}");
        }
        (0..5000).for_each(|seq| assert!(repeats.is_first(&b, 9, seq)));
        assert_eq!(repeats.all().map(|(_, ids)| ids.len()).collect::<Vec<_>>(), [3, REMEMBERED]);
        assert!(!repeats.is_first(&b, 9, 4999));
        repeats.forget(&b);
        assert!(repeats.is_first(&b, 9, 4999));
    }
}
