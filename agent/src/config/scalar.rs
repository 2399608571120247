//! Amounts and resource types as people write them; durations and sizes are `evenkeel-settings`'.

use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::resource_type::Definition;
pub(crate) use evenkeel_settings::{Size, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Addresses: one as a text, or several as a list; an empty text is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an address, or a list of addresses")]
pub(crate) enum Addresses {
    /// One, or none.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Addresses {
    /// All of them.
    pub(crate) fn list(&self) -> Vec<String> {
        match self {
            Self::One(address) if address.is_empty() => Vec::new(),
            Self::One(address) => vec![address.clone()],
            Self::Several(addresses) => addresses.clone(),
        }
    }
}

impl JsonSchema for Addresses {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Addresses".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

/// Amounts by resource name, each a quantity: `cpu = "500m"`, `"nvidia.com/gpu" = 2`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Amounts(ResourceList);

impl Amounts {
    /// The list.
    pub(crate) const fn list(&self) -> &ResourceList {
        &self.0
    }
}

impl JsonSchema for Amounts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amounts".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": { "type": ["string", "number"] } })
    }
}

/// One amount: a quantity, such as 1.25.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Amount(pub Quantity);

impl JsonSchema for Amount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number"] })
    }
}

/// Resource types by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Definitions(pub BTreeMap<String, Definition>);

impl JsonSchema for Definitions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ResourceTypes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": { "type": "object", "properties": {
            "units": { "type": "string" },
            "internalScaleExponent": { "type": "integer", "minimum": 0, "maximum": 9 },
            "isCompressible": { "type": "boolean" },
            "defaultRequest": { "type": ["string", "number"] },
            "quantization": { "type": ["string", "number"] },
        }, "additionalProperties": false } })
    }
}
