//! Owns what an explicit null means in Kubernetes' objects: the same as an absent field.

use serde::{Deserialize, Deserializer};

/// Reads null as the default, as Kubernetes does; for `#[serde(deserialize_with)]`.
///
/// # Errors
/// Those of the value's own type.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
