//! Owns label selectors and node selectors as Kubernetes writes them. Whether labels fulfil them is decided in
//! `requirement.rs` alone; selectors as people type them on a command line are read in `text.rs`.
//!
//! Not owned: the words in which the API server refuses one, and what each selector selects.

mod requirement;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use requirement::{LabelCondition, Requirement, Selector, SelectorError, equalities};

use crate::null::null_is_default;

/// A requirement of one label (or field), as written.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorRequirement {
    /// Key of the label.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`; for nodes also `Gt` and `Lt`.
    #[serde(deserialize_with = "null_is_default")]
    pub operator: String,
    /// Values; none for `Exists` and `DoesNotExist`.
    #[serde(deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

/// Selects objects by label; all parts must hold, and an empty one selects everything.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must be equal.
    #[serde(deserialize_with = "null_is_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(deserialize_with = "null_is_default")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// Selects nodes: any term may hold.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Alternatives; none selects nothing.
    #[serde(deserialize_with = "null_is_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All requirements of a term must hold; a term without any selects nothing.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// By label.
    #[serde(deserialize_with = "null_is_default")]
    pub match_expressions: Vec<SelectorRequirement>,
    /// By field; only `metadata.name`.
    #[serde(deserialize_with = "null_is_default")]
    pub match_fields: Vec<SelectorRequirement>,
}

/// A preference among nodes.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredTerm {
    /// 1 to 100.
    pub weight: i64,
    /// Which nodes.
    pub preference: NodeSelectorTerm,
}
