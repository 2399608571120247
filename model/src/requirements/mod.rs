//! Owns what a container or pod asks for: requests, limits, their defaulting and the rules they must keep.
//!
//! Lists are in `list.rs`, their sums in `sum.rs`, the rules in `check.rs`.

mod check;
mod list;
mod sum;

use serde::{Deserialize, Serialize};

pub use check::{RequirementError, RequirementReason, check_total};
pub use list::{DuplicateResource, ResourceList};
pub use sum::ResourceSum;

use crate::resource_type::ResourceTypes;

/// Requests and limits as written: what is absent was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirements {
    /// What is asked for and set aside.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub requests: ResourceList,
    /// Upper bounds; a resource without one is unbounded.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub limits: ResourceList,
}

impl Requirements {
    /// Whether nothing is said at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }

    /// The requirements with each request that is absent set to the limit, where there is one.
    #[must_use]
    pub fn defaulted(&self) -> Self {
        let mut filled = self.clone();
        filled.requests.fill_from(&self.limits);
        filled
    }

    /// The requests in force: as written, else the limit, else the type's default request; rounded up to the
    /// type's quantization.
    ///
    /// A resource that is named nowhere and has no default is absent; its implicit request is 0.
    #[must_use]
    pub fn effective_requests(&self, types: &ResourceTypes) -> ResourceList {
        let mut requests = self.defaulted().requests;
        for resource_type in types.iter() {
            if let Some(default) = resource_type.default_request()
                && requests.get(resource_type.name()).is_none()
            {
                requests.set(resource_type.name().clone(), default);
            }
        }
        requests.iter().map(|(name, amount)| (name.clone(), types.get(name).quantized(amount))).collect()
    }
}
