//! The audit record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Size;

/// The record of changes: who made them, from where, before and after (`evenkeel audit`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSection {
    /// Bound on the record; beyond it the oldest entries go. A quarter of it is for refused attempts, and one for certificates
    /// that nodes renew: neither takes room from changes.
    pub max_bytes: Size,
}

impl Default for AuditSection {
    fn default() -> Self {
        // At 2 KiB a change, with the object before and after, some 16,000 changes; at 0.5 KiB a renewal, four days of 5,000
        // nodes, and two months of 300.
        Self { max_bytes: Size::from_mib(64) }
    }
}

impl AuditSection {
    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let fits = (8 << 20..=64 << 30).contains(&self.max_bytes.get());
        if fits { Vec::new() } else { vec![("audit.max_bytes", "must be 8Mi to 64Gi".to_owned())] }
    }
}
