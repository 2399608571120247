//! Owns who governs a pod that several policies select: the oldest, then the first by name.

use std::collections::HashMap;
use std::sync::Arc;

use super::Policy;

/// A policy and when it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Dated {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Milliseconds since 1970.
    pub created_ms: u64,
}

impl Dated {
    /// Order of precedence; the least governs.
    pub fn rank(&self) -> (u64, &str) {
        (self.created_ms, &self.policy.name)
    }
}

/// Policies, to be asked by pod. Found by namespace and one label, so that thousands in one namespace are not tried each.
#[derive(Debug, Clone, Default)]
pub struct Ranked {
    all: Vec<Dated>,
    by_label: HashMap<(String, String, String), Vec<usize>>,
    by_namespace: HashMap<String, Vec<usize>>,
}

impl Ranked {
    /// Of these policies, in any order.
    pub fn new(policies: impl IntoIterator<Item = Dated>) -> Self {
        let mut ranked = Self { all: policies.into_iter().collect(), ..Self::default() };
        ranked.all.sort_by(|a, b| {
            a.rank().cmp(&b.rank()).then_with(|| a.policy.namespace.cmp(&b.policy.namespace))
        });
        for (at, dated) in ranked.all.iter().enumerate() {
            let namespace = dated.policy.namespace.clone();
            match dated.policy.selector.one_label() {
                Some((key, value)) => {
                    let key = (namespace, key.to_owned(), value.to_owned());
                    ranked.by_label.entry(key).or_default().push(at);
                }
                None => ranked.by_namespace.entry(namespace).or_default().push(at),
            }
        }
        ranked
    }

    /// All, first by precedence.
    pub fn all(&self) -> &[Dated] {
        &self.all
    }

    /// Those that select a pod, by their places in [`Ranked::all`]; the first governs, the others are in conflict with it.
    pub fn selecting<'a>(
        &self,
        namespace: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Vec<usize> {
        let label = |key: &str| labels.clone().into_iter().find(|(k, _)| *k == key).map(|(_, value)| value);
        let mut found: Vec<usize> = self.by_namespace.get(namespace).cloned().unwrap_or_default();
        for (key, value) in labels.clone() {
            let key = (namespace.to_owned(), key.to_owned(), value.to_owned());
            found.extend(self.by_label.get(&key).into_iter().flatten());
        }
        found.retain(|at| self.all.get(*at).is_some_and(|d| d.policy.selects(namespace, label)));
        found.sort_unstable();
        found
    }
}
