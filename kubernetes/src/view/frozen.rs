//! Namespaces in which nothing is to be changed, because they say so.

use std::collections::BTreeSet;

use super::{ClusterObjects, ClusterView};

/// Annotation of a namespace that freezes what is in it, with any value but `false`.
pub const PANIC: &str = "evenkeel.dev/panic";
/// The kind.
const NAMESPACE: &str = "Namespace";

impl ClusterObjects {
    /// Takes in whether a namespace says so.
    pub(super) fn freeze(&mut self, kind: &str, name: &str, says: bool) {
        if kind != NAMESPACE || says == self.frozen.contains(name) {
            return;
        }
        self.frozen_changes += 1;
        if says {
            self.frozen.insert(name.into());
        } else {
            self.frozen.remove(name);
        }
    }

    /// A list of a kind is whole: what was not in it says nothing any more.
    pub(super) fn frozen_listed(&mut self, kind: &str) {
        if kind != NAMESPACE {
            return;
        }
        let there = self.kinds.get(NAMESPACE).and_then(|kept| kept.objects.get(""));
        let before = self.frozen.len();
        self.frozen.retain(|name| there.is_some_and(|names| names.contains_key(name)));
        self.frozen_changes += u64::from(self.frozen.len() != before);
    }
}

impl ClusterView {
    /// Whether a namespace has the annotation [`PANIC`], as far as is known.
    #[must_use]
    pub fn is_frozen(&self, namespace: &str) -> bool {
        self.read().frozen.contains(namespace)
    }

    /// All that have it.
    #[must_use]
    pub fn frozen(&self) -> BTreeSet<String> {
        self.read().frozen.iter().map(|name| name.to_string()).collect()
    }

    /// How often that changed of any namespace.
    #[must_use]
    pub fn frozen_changes(&self) -> u64 {
        self.read().frozen_changes
    }
}
