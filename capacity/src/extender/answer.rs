//! What extenders answer, read as Go reads it: fields whatever their case, nothing for what is not there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// `ExtenderFilterResult`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filtered {
    pub(super) nodes: Option<NodeList>,
    pub(super) nodenames: Option<Vec<String>>,
    pub(super) failednodes: Option<BTreeMap<String, String>>,
    pub(super) failedandunresolvablenodes: Option<BTreeMap<String, String>>,
    pub(super) error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeList {
    items: Option<Vec<NamedObject>>,
}

impl NodeList {
    pub(super) fn names(self) -> Vec<String> {
        self.items.unwrap_or_default().into_iter().map(|node| node.metadata.name).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedObject {
    metadata: NameMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NameMetadata {
    name: String,
}

/// `HostPriority`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HostPriority {
    pub(super) host: String,
    pub(super) score: i64,
}

/// `ExtenderPreemptionResult`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Preempted {
    pub(super) nodenametometavictims: Option<BTreeMap<String, Option<MetaVictims>>>,
}

/// `MetaVictims`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetaVictims {
    pub(super) pods: Option<Vec<MetaPod>>,
    pub(super) numpdbviolations: i64,
}

/// `MetaPod`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetaPod {
    pub(super) uid: String,
}

/// The keys of objects in lower case, but for those that are names of nodes.
pub(super) fn lowered(value: Value) -> Value {
    let of_nodes =
        |key: &str| matches!(key, "failednodes" | "failedandunresolvablenodes" | "nodenametometavictims");
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| {
                let key = key.to_ascii_lowercase();
                let value = match value {
                    Value::Object(nodes) if of_nodes(&key) => {
                        nodes.into_iter().map(|(node, value)| (node, lowered(value))).collect()
                    }
                    value => lowered(value),
                };
                (key, value)
            })
            .collect(),
        Value::Array(all) => all.into_iter().map(lowered).collect(),
        other => other,
    }
}
