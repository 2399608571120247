//! Owns the rules that requirements must keep, and how a broken one is told: field, value, reason, remedy.

use std::fmt;

use super::{Requirements, ResourceList};
use crate::name::{NATIVE_DOMAIN, ResourceName};
use crate::quantity::Quantity;
use crate::resource_type::ResourceTypes;

/// A requirement that breaks a rule of the resource model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} = {value}: {reason}; {}", .reason.remedy())]
pub struct RequirementError {
    /// Where it stands, such as `spec.containers[web].resources.requests.cpu`.
    pub path: String,
    /// The offending amount.
    pub value: Quantity,
    /// Which rule it breaks.
    pub reason: RequirementReason,
}

/// Which rule of the resource model is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequirementReason {
    /// An amount below zero.
    Negative,
    /// A request above the limit of the same resource.
    RequestAboveLimit {
        /// That limit.
        limit: Quantity,
    },
    /// A pod's request below the sum of its containers' requests, explicit or defaulted.
    PodRequestBelowContainers {
        /// What the containers ask for.
        sum: Quantity,
    },
    /// A pod's limit below what its containers request together.
    PodLimitBelowContainers {
        /// What the containers ask for.
        sum: Quantity,
    },
    /// A pod's limit below that of one of its containers.
    PodLimitBelowContainer {
        /// What that container is allowed.
        limit: Quantity,
    },
    /// Huge pages whose request is not their limit.
    HugePagesOvercommitted,
    /// Part of a huge page.
    HugePagesDivided,
    /// Huge pages and neither CPU nor memory.
    HugePagesAlone,
    /// A resource that cannot be set for the pod as a whole.
    NotPodLevel,
    /// A type that Kubernetes does not define, in its namespace or without any.
    Reserved,
    /// The requests of all pods of a node together exceed what it has.
    AboveTotal {
        /// What the node has.
        total: Quantity,
    },
    /// A sum beyond the range of a quantity.
    SumOutOfRange,
}

impl RequirementReason {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Negative => "write an amount of zero or more",
            Self::RequestAboveLimit { .. } => "lower the request or raise the limit",
            Self::PodRequestBelowContainers { .. } => {
                "raise the pod's request or lower those of its containers"
            }
            Self::PodLimitBelowContainers { .. } => {
                "raise the pod's limit or lower the requests of its containers"
            }
            Self::PodLimitBelowContainer { .. } => "raise the pod's limit or lower that of the container",
            Self::HugePagesOvercommitted => {
                "write the same limit and request: huge pages are not overcommitted"
            }
            Self::HugePagesDivided => "write a multiple of the size of a page",
            Self::HugePagesAlone => "request CPU or memory, too",
            Self::Reserved => "put a type of your own under a domain of your own, such as example.com/",
            Self::NotPodLevel => "set it on the containers: a pod takes cpu, memory and hugepages-* only",
            Self::AboveTotal { .. } => "place fewer pods on the node or lower their requests",
            Self::SumOutOfRange => "write smaller amounts",
        }
    }
}

impl fmt::Display for RequirementReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negative => f.write_str("the amount is negative"),
            Self::RequestAboveLimit { limit } => write!(f, "the request is above the limit {limit}"),
            Self::PodRequestBelowContainers { sum } => {
                write!(f, "the pod's request is below the {sum} its containers request together")
            }
            Self::PodLimitBelowContainers { sum } => {
                write!(f, "the pod's limit is below the {sum} its containers request together")
            }
            Self::PodLimitBelowContainer { limit } => {
                write!(f, "the pod's limit is below the {limit} that one of its containers is allowed")
            }
            Self::HugePagesOvercommitted => f.write_str("the request of huge pages is not their limit"),
            Self::HugePagesDivided => f.write_str("the amount is no whole number of pages"),
            Self::HugePagesAlone => f.write_str("huge pages are requested without CPU and memory"),
            Self::Reserved => f.write_str("Kubernetes defines no such type, and its namespace is reserved"),
            Self::NotPodLevel => f.write_str("this resource cannot be set for the pod as a whole"),
            Self::AboveTotal { total } => {
                write!(f, "the pods together request more than the node's total {total}")
            }
            Self::SumOutOfRange => f.write_str("the sum is beyond what a quantity can hold"),
        }
    }
}

impl Requirements {
    /// All broken rules of these requirements by themselves: no negative amount, no request above its limit.
    /// `path` is put before each field, such as `spec.containers[web].resources`.
    #[must_use]
    pub fn check(&self, path: &str) -> Vec<RequirementError> {
        let mut errors = Vec::new();
        check_not_negative(&self.requests, &format!("{path}.requests"), &mut errors);
        check_not_negative(&self.limits, &format!("{path}.limits"), &mut errors);
        check_names(&self.requests, &format!("{path}.requests"), &mut errors);
        check_names(&self.limits, &format!("{path}.limits"), &mut errors);
        for (name, value) in self.requests.iter().filter(|(name, _)| !name.is_hugepages()) {
            if let Some(limit) = self.limits.get(name).filter(|limit| value > *limit) {
                let reason = RequirementReason::RequestAboveLimit { limit };
                errors.push(RequirementError { path: format!("{path}.requests.{name}"), value, reason });
            }
        }
        check_hugepages(self, path, &mut errors);
        errors
    }
}

/// Adds an error for each type in the reserved namespace that is none of those defined there. Types below it, such as
/// `attachable.storage.kubernetes.io/`, are Kubernetes' own affair.
fn check_names(list: &ResourceList, path: &str, errors: &mut Vec<RequirementError>) {
    let is_unknown = |name: &ResourceName| {
        name.domain() == NATIVE_DOMAIN && !name.is_hugepages() && !ResourceTypes::predefined().has(name)
    };
    for (name, value) in list.iter().filter(|(name, _)| is_unknown(name)) {
        errors.push(RequirementError {
            path: format!("{path}.{name}"),
            value,
            reason: RequirementReason::Reserved,
        });
    }
}

/// Adds an error for each amount of huge pages that Kubernetes would not take.
fn check_hugepages(resources: &Requirements, path: &str, errors: &mut Vec<RequirementError>) {
    let has_others = || {
        let mut names = [&resources.requests, &resources.limits].into_iter().flat_map(ResourceList::iter);
        names.any(|(name, _)| [ResourceName::CPU, ResourceName::MEMORY].contains(name))
    };
    for (list, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, value) in amounts.iter().filter(|(name, _)| name.is_hugepages()) {
            let size = name.hugepage_size().map_or(0, Quantity::nano);
            let reason = if size == 0 || value.nano() % size != 0 {
                RequirementReason::HugePagesDivided
            } else if list == "requests" && resources.limits.get(name) != Some(value) {
                RequirementReason::HugePagesOvercommitted
            } else if !has_others() {
                RequirementReason::HugePagesAlone
            } else {
                continue;
            };
            errors.push(RequirementError { path: format!("{path}.{list}.{name}"), value, reason });
        }
    }
}

/// Adds an error for each amount below zero.
pub(crate) fn check_not_negative(list: &ResourceList, path: &str, errors: &mut Vec<RequirementError>) {
    for (name, value) in list.iter().filter(|(_, value)| value.is_negative()) {
        let reason = RequirementReason::Negative;
        errors.push(RequirementError { path: format!("{path}.{name}"), value, reason });
    }
}

/// Checks that the requests placed on one node stay within its `total`. A resource that `total` does not name is
/// not there: any request of it above zero is an error. `path` names the node, such as `nodes[n1].total`.
#[must_use]
pub fn check_total<'a>(
    path: &str,
    total: &ResourceList,
    requests: impl IntoIterator<Item = &'a ResourceList>,
) -> Vec<RequirementError> {
    let mut sums = ResourceList::new();
    let mut overflown: Vec<ResourceName> = Vec::new();
    for list in requests {
        for (name, amount) in list.iter() {
            match sums.get_or_zero(name).checked_add(amount) {
                Some(sum) => sums.set(name.clone(), sum),
                None => overflown.push(name.clone()),
            }
        }
    }
    let mut errors = Vec::new();
    check_not_negative(total, path, &mut errors);
    for (name, value) in sums.iter() {
        let total = total.get_or_zero(name);
        if overflown.contains(name) {
            let reason = RequirementReason::SumOutOfRange;
            errors.push(RequirementError { path: format!("{path}.{name}"), value: Quantity::MAX, reason });
        } else if value > total {
            let reason = RequirementReason::AboveTotal { total };
            errors.push(RequirementError { path: format!("{path}.{name}"), value, reason });
        }
    }
    errors
}
