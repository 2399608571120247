//! Owns what the scheduler sets aside for a pod (Kubernetes `component-helpers/resource`, `PodRequests` and
//! `PodLimits`): the larger of all ordinary containers together and the largest moment of initialisation, each with
//! the sidecars that run by then; a pod-level amount in its place where there is one; the overhead on top.

use super::{Container, Pod};
use crate::quantity::Quantity;
use crate::requirements::{Requirements, ResourceList};
use crate::resource_type::ResourceTypes;
use crate::workload::ContainerKind;

impl Pod {
    /// The pod's effective requests where types have default requests and granularities: each container's are filled in and
    /// rounded up before they are summed.
    #[must_use]
    pub fn effective_requests_of(&self, types: &ResourceTypes) -> ResourceList {
        let mut pod = self.clone();
        for container in pod.containers.iter_mut().chain(&mut pod.init_containers) {
            container.resources.requests = container.resources.effective_requests(types);
        }
        pod.effective_requests()
    }

    /// What all containers need at the busiest moment, by their requests (absent ones set to the limit).
    #[must_use]
    pub fn container_requests(&self) -> ResourceList {
        self.aggregate(|resources| resources.defaulted().requests)
    }

    /// What all containers may use at the busiest moment, by their limits. A container without a limit adds nothing, so
    /// this bounds the pod only where every container has one.
    #[must_use]
    pub fn container_limits(&self) -> ResourceList {
        self.aggregate(|resources| resources.limits.clone())
    }

    /// Requirements of the pod as a whole with the defaults filled in, where the pod has any: an absent request is the
    /// sum of its containers, or the pod's limit where they request nothing. Resources that cannot be set for
    /// a pod are left out.
    #[must_use]
    pub fn pod_level_defaulted(&self) -> Option<Requirements> {
        let written = self.resources.as_ref().filter(|resources| !resources.is_empty())?;
        let supported = |list: &ResourceList| -> ResourceList {
            list.iter().filter(|(name, _)| name.is_pod_level()).map(|(n, q)| (n.clone(), q)).collect()
        };
        let mut filled =
            Requirements { requests: supported(&written.requests), limits: supported(&written.limits) };
        for defaults in [supported(&self.container_requests()), filled.limits.clone()] {
            for (name, amount) in defaults.iter() {
                if filled.requests.get(name).is_none() {
                    filled.requests.set(name.clone(), amount);
                }
            }
        }
        Some(filled)
    }

    /// The pod's effective requests, overhead included: what the scheduler sets aside on a node.
    #[must_use]
    pub fn effective_requests(&self) -> ResourceList {
        let mut requests = self.container_requests();
        if let Some(pod_level) = self.pod_level_defaulted() {
            override_with(&mut requests, &pod_level.requests);
        }
        requests.add(&self.overhead);
        requests
    }

    /// The pod's effective limits; overhead is added to those there are.
    #[must_use]
    pub fn effective_limits(&self) -> ResourceList {
        let mut limits = self.container_limits();
        if let Some(pod_level) = self.pod_level_defaulted() {
            override_with(&mut limits, &pod_level.limits);
        }
        let with_overhead = |name, limit: Quantity| {
            // A limit of nothing stays one (`PodLimits`).
            if limit.is_zero() { limit } else { limit.saturating_add(self.overhead.get_or_zero(name)) }
        };
        limits.iter().map(|(name, limit)| (name.clone(), with_overhead(name, limit))).collect()
    }

    /// The busiest moment of the pod's life, resource by resource.
    fn aggregate(&self, of: impl Fn(&Requirements) -> ResourceList) -> ResourceList {
        let mut running = ResourceList::new();
        for container in &self.containers {
            running.add(&of(&container.resources));
        }
        let mut sidecars = ResourceList::new();
        let mut init_peak = ResourceList::new();
        for container in &self.init_containers {
            let own = of(&container.resources);
            if is_sidecar(container) {
                running.add(&own);
                sidecars.add(&own);
                init_peak.raise_to(&sidecars);
            } else {
                let mut moment = sidecars.clone();
                moment.add(&own);
                init_peak.raise_to(&moment);
            }
        }
        running.raise_to(&init_peak);
        running
    }
}

fn is_sidecar(container: &Container) -> bool {
    container.kind == ContainerKind::Sidecar
}

fn override_with(list: &mut ResourceList, by: &ResourceList) {
    for (name, amount) in by.iter() {
        list.set(name.clone(), amount);
    }
}
