//! Owns a list of amounts by resource type, in which no type occurs twice.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::name::ResourceName;
use crate::quantity::Quantity;

/// Amounts by resource type, in the order of the qualified names. No type occurs twice: reading a list that names one
/// twice (`cpu` and `kubernetes.io/cpu` are the same) is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ResourceList(pub(super) BTreeMap<ResourceName, Quantity>);

/// A resource type named twice in one list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource {name} is named more than once; keep one of {first} and {second}")]
pub struct DuplicateResource {
    /// The type.
    pub name: ResourceName,
    /// The amount named first.
    pub first: Quantity,
    /// The amount named again.
    pub second: Quantity,
}

impl ResourceList {
    /// A list without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The amount of a type, if it is in the list.
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// The amount of a type, zero when it is not in the list.
    #[must_use]
    pub fn get_or_zero(&self, name: &ResourceName) -> Quantity {
        self.get(name).unwrap_or_default()
    }

    /// The amount of CPU, in cores.
    #[must_use]
    pub fn cpu(&self) -> Option<Quantity> {
        self.get(&ResourceName::CPU)
    }

    /// The amount of memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> Option<Quantity> {
        self.get(&ResourceName::MEMORY)
    }

    /// Adds an entry for a type that is not in the list.
    ///
    /// # Errors
    /// [`DuplicateResource`] when it is; the list is unchanged then.
    pub fn insert(&mut self, name: ResourceName, amount: Quantity) -> Result<(), DuplicateResource> {
        if let Some(first) = self.get(&name) {
            return Err(DuplicateResource { name, first, second: amount });
        }
        self.0.insert(name, amount);
        Ok(())
    }

    /// Sets the amount of a type, whether or not it is in the list.
    pub fn set(&mut self, name: ResourceName, amount: Quantity) {
        self.0.insert(name, amount);
    }

    /// Takes a type out of the list.
    pub fn remove(&mut self, name: &ResourceName) -> Option<Quantity> {
        self.0.remove(name)
    }

    /// All entries in the order of the qualified names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Later entries replace earlier ones of the same type.
impl FromIterator<(ResourceName, Quantity)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Quantity)>>(entries: I) -> Self {
        // Few, so that collecting them, which sorts, has nothing to gain.
        let mut list = Self::default();
        list.0.extend(entries);
        list
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = ResourceList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from resource names to quantities")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceList, A::Error> {
        let mut list = ResourceList::new();
        while let Some((name, amount)) = map.next_entry()? {
            list.insert(name, amount).map_err(A::Error::custom)?;
        }
        Ok(list)
    }
}
