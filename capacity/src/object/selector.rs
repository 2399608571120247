//! Selectors as written.

use serde::{Deserialize, Serialize};

use super::StringMap;

/// One requirement of labels (or fields).
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    /// Label.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`; for nodes also `Gt` and `Lt`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub operator: String,
    /// Values.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether a label of this value, or its absence, meets a requirement of labels.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|known| known == value));
        match self.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// Selects objects by label; all parts must hold.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must be equal.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub match_labels: StringMap,
    /// Further requirements.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub match_expressions: Vec<Requirement>,
}

/// Selects nodes: any term may hold.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Alternatives; none selects nothing.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All requirements of a term must hold; a term without any selects nothing.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// By label.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub match_expressions: Vec<Requirement>,
    /// By field; only `metadata.name`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub match_fields: Vec<Requirement>,
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
