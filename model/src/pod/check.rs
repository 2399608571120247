//! Owns the rules between a pod and its containers.

use super::Pod;
use crate::name::ResourceName;
use crate::quantity::Quantity;
use crate::requirements::{RequirementError, RequirementReason, Requirements, ResourceList};

impl Pod {
    /// All broken rules of the pod: in each container, in the pod-level requirements, between the two, and in the
    /// overhead. Empty when the pod keeps them all.
    #[must_use]
    pub fn check(&self) -> Vec<RequirementError> {
        let mut errors = Vec::new();
        let groups = [("containers", &self.containers), ("initContainers", &self.init_containers)];
        for (group, containers) in groups {
            for container in containers {
                errors.extend(
                    container.resources.check(&format!("spec.{group}[{}].resources", container.name)),
                );
            }
        }
        if let Some(resources) = &self.resources {
            errors.extend(self.check_pod_level(resources));
        }
        let overhead = Requirements { requests: ResourceList::new(), limits: self.overhead.clone() };
        errors.extend(overhead.check("spec.overhead").into_iter().map(|error| RequirementError {
            path: error.path.replacen("spec.overhead.limits", "spec.overhead", 1),
            ..error
        }));
        errors
    }

    fn check_pod_level(&self, resources: &Requirements) -> Vec<RequirementError> {
        let mut errors = resources.check("spec.resources");
        let requested = self.container_requests();
        if !resources.limits.is_empty() && (requested.cpu().is_some() || requested.memory().is_some()) {
            // The pod requests them by default, too.
            errors.retain(|error| error.reason != RequirementReason::HugePagesAlone);
        }
        let mut error = |list: &str, name, value, reason| {
            errors.push(RequirementError { path: format!("spec.resources.{list}.{name}"), value, reason });
        };
        for (list, entries) in [("requests", &resources.requests), ("limits", &resources.limits)] {
            for (name, value) in entries.iter().filter(|(name, _)| !name.is_pod_level()) {
                error(list, name, value, RequirementReason::NotPodLevel);
            }
        }
        for (name, value) in resources.requests.iter() {
            let sum = requested.get_or_zero(name);
            if value < sum {
                error("requests", name, value, RequirementReason::PodRequestBelowContainers { sum });
            }
        }
        for (name, value) in resources.limits.iter() {
            let sum = requested.get_or_zero(name);
            let limit = self.largest_limit(name);
            if value < sum && resources.requests.get(name).is_none() {
                error("limits", name, value, RequirementReason::PodLimitBelowContainers { sum });
            } else if value < limit {
                error("limits", name, value, RequirementReason::PodLimitBelowContainer { limit });
            }
        }
        errors
    }

    /// The largest limit of an ordinary container. Together containers may be allowed more than their pod, except of huge
    /// pages, which they request.
    fn largest_limit(&self, name: &ResourceName) -> Quantity {
        self.containers
            .iter()
            .map(|container| container.resources.limits.get_or_zero(name))
            .max()
            .unwrap_or_default()
    }
}
