//! What is read of the metadata of an object that is written to.

use evenkeel_model::null::null_is_default;
use serde::Deserialize;

/// What identifies an object, and one version of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Tells it from a later one of its name.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// Counts the changes of its spec.
    #[serde(deserialize_with = "null_is_default")]
    pub generation: i64,
    /// When it was made, RFC 3339.
    pub creation_timestamp: Option<String>,
    /// Set while it is being deleted.
    pub deletion_timestamp: Option<String>,
}
