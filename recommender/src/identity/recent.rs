//! A map with a bound: when it is full, what was touched longest ago makes way. Whoever fills it with names of their own
//! pushes out strangers of the past, and nothing is ever forgotten all at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

/// Values by key, each with when it was last touched.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    values: HashMap<K, (Instant, V)>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// Holds at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, values: HashMap::new() }
    }

    /// A value, without touching it.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }

    /// A value, touched; nothing where there is none.
    pub(super) fn seen(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let (at, value) = self.values.get_mut(key)?;
        *at = now;
        Some(value)
    }

    /// Forgets a value.
    pub(super) fn remove(&mut self, key: &K) {
        self.values.remove(key);
    }

    /// A value, touched, and made where there is none.
    pub(super) fn touch(&mut self, key: &K, now: Instant, make: impl FnOnce() -> V) -> &mut V {
        self.make_room(key);
        let (at, value) = self.values.entry(key.clone()).or_insert_with(|| (now, make()));
        *at = now;
        value
    }

    /// Sets a value, touched.
    pub(super) fn put(&mut self, key: &K, now: Instant, value: V) {
        self.make_room(key);
        self.values.insert(key.clone(), (now, value));
    }

    fn make_room(&mut self, key: &K) {
        if self.values.len() >= self.most && !self.values.contains_key(key) {
            let oldest = self.values.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.values.remove(&oldest));
        }
    }

    /// Keeps what a test wishes.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.values.retain(|key, (_, value)| keep(key, value));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_too_many_takes_the_place_of_the_one_touched_longest_ago() {
        let (mut recent, start) = (Recent::new(3), Instant::now());
        for second in 0..3 {
            *recent.touch(&second, start + Duration::from_secs(second), || 0) = second;
        }
        recent.touch(&0, start + Duration::from_secs(3), || 9);
        recent.touch(&7, start + Duration::from_secs(4), || 7);
        assert_eq!(
            (recent.len(), recent.get(&0), recent.get(&1), recent.get(&7)),
            (3, Some(&0), None, Some(&7))
        );
    }
}
