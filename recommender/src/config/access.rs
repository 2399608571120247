//! Who may ask.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may ask. Root and the recommender's own user may everything over the Unix socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSection {
    /// Group of this machine whose users may see and simulate over the socket; empty = none. A group that does not exist has
    /// no users.
    pub read_group: String,
    /// Group of this machine whose users may also apply policies and set the panic switch over the socket; empty = none.
    pub change_group: String,
    /// File of tokens, by their hashes (`evenkeel-recommender token add`); read again when it changes. What is not there is
    /// no error.
    pub tokens: PathBuf,
}

impl Default for AccessSection {
    fn default() -> Self {
        Self {
            read_group: "evenkeel".to_owned(),
            change_group: "evenkeel-admin".to_owned(),
            tokens: PathBuf::from("/etc/evenkeel/tokens.toml"),
        }
    }
}
