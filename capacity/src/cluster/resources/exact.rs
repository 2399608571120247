//! Sums of quantities without rounding.

use evenkeel_model::requirements::ResourceSum;

use super::{CPU, MEMORY, ResourceIndex, rounded};

/// Sums in thousand-millionths, as exact as quantities are: they are rounded once, at the end, as the scheduler does.
#[derive(Clone, Default)]
pub(super) struct ExactSum(Vec<Option<i128>>);

impl ExactSum {
    fn get(&self, index: ResourceIndex) -> Option<i128> {
        self.0.get(index).copied().flatten()
    }

    pub(super) fn at(&self, index: ResourceIndex) -> i64 {
        rounded(index, self.get(index).unwrap_or(0))
    }

    pub(super) fn positive(&self) -> Box<[(ResourceIndex, i64)]> {
        let all = (0..self.0.len()).map(|index| (index, self.at(index)));
        all.filter(|(_, amount)| *amount > 0).collect()
    }

    pub(super) fn slot(&mut self, index: ResourceIndex) -> &mut Option<i128> {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        &mut self.0[index]
    }

    /// Of another sum's amounts, each with the own one where there is one.
    fn merge(&mut self, other: &Self, merged: impl Fn(Option<i128>, i128) -> i128) {
        for (index, amount) in other.0.iter().enumerate() {
            let Some(amount) = amount else { continue };
            let slot = self.slot(index);
            *slot = Some(merged(*slot, *amount));
        }
    }

    pub(super) fn cpu_and_memory(&self) -> Self {
        Self([CPU, MEMORY].map(|index| self.get(index)).into())
    }
}

impl ResourceSum for ExactSum {
    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn add(&mut self, other: &Self) {
        self.merge(other, |own, amount| own.unwrap_or(0).saturating_add(amount));
    }

    fn raise_to(&mut self, other: &Self) {
        self.merge(other, |own, amount| own.map_or(amount, |own| own.max(amount)));
    }

    fn fill_from(&mut self, other: &Self) {
        self.merge(other, |own, amount| own.unwrap_or(amount));
    }

    fn add_to_nonzero(&mut self, other: &Self) {
        for (index, slot) in self.0.iter_mut().enumerate() {
            if let Some(own) = slot.as_mut().filter(|own| **own != 0) {
                *own = own.saturating_add(other.get(index).unwrap_or(0));
            }
        }
    }
}
