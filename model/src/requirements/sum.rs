//! Owns the arithmetic of amounts by resource, however they are kept: by name and exact for people, or by index for
//! snapshots of very many pods.

use std::collections::BTreeMap;

use super::ResourceList;
use crate::quantity::Quantity;

/// Amounts by resource, of which none occurs twice.
pub trait ResourceSum: Clone + Default {
    /// Whether no resource is named.
    fn is_empty(&self) -> bool;

    /// Adds another list, resource by resource.
    fn add(&mut self, other: &Self);

    /// Raises each amount to that of another list where that is larger.
    fn raise_to(&mut self, other: &Self);

    /// Takes over another list's amounts of resources that this one does not name.
    fn fill_from(&mut self, other: &Self);

    /// Adds another list's amounts to those of this one that are not zero.
    fn add_to_nonzero(&mut self, other: &Self);
}

impl<K: Ord + Clone> ResourceSum for BTreeMap<K, Quantity> {
    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    fn add(&mut self, other: &Self) {
        for (name, amount) in other {
            let sum = |own: &mut Quantity| *own = own.saturating_add(*amount);
            self.entry(name.clone()).and_modify(sum).or_insert(*amount);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other {
            let own = self.entry(name.clone()).or_insert(*amount);
            if *own < *amount {
                *own = *amount;
            }
        }
    }

    fn fill_from(&mut self, other: &Self) {
        for (name, amount) in other {
            self.entry(name.clone()).or_insert(*amount);
        }
    }

    fn add_to_nonzero(&mut self, other: &Self) {
        for (name, own) in self.iter_mut().filter(|(_, own)| !own.is_zero()) {
            *own = own.saturating_add(other.get(name).copied().unwrap_or_default());
        }
    }
}

impl ResourceSum for ResourceList {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
    }

    fn raise_to(&mut self, other: &Self) {
        self.0.raise_to(&other.0);
    }

    fn fill_from(&mut self, other: &Self) {
        self.0.fill_from(&other.0);
    }

    fn add_to_nonzero(&mut self, other: &Self) {
        self.0.add_to_nonzero(&other.0);
    }
}
