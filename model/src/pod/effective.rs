//! Owns what the scheduler sets aside for a pod (Kubernetes `component-helpers/resource`, `PodRequests` and
//! `PodLimits`): the larger of all ordinary containers together and the largest moment of initialisation, each with
//! the sidecars that run by then; a pod-level amount in its place where there is one; the overhead on top.
//!
//! The rules are functions of [`ResourceSum`], so that the simulator counts the numbers of a whole cluster by the same.

use super::Pod;
use crate::name::ResourceName;
use crate::requirements::{Requirements, ResourceList, ResourceSum};
use crate::resource_type::ResourceTypes;
use crate::workload::ContainerKind;

/// What a pod's containers need at the busiest moment of its life, resource by resource. Init containers run in the order
/// given, one after another, and before the ordinary ones; sidecars go on running.
pub fn busiest_moment<A: ResourceSum>(containers: impl IntoIterator<Item = (ContainerKind, A)>) -> A {
    let (mut running, mut sidecars, mut peak) = (A::default(), A::default(), A::default());
    for (kind, own) in containers {
        match kind {
            ContainerKind::Regular => running.add(&own),
            ContainerKind::Sidecar => {
                running.add(&own);
                sidecars.add(&own);
                peak.raise_to(&sidecars);
            }
            ContainerKind::Init => {
                let mut moment = sidecars.clone();
                moment.add(&own);
                peak.raise_to(&moment);
            }
            // What the sandbox needs is the pod's overhead.
            ContainerKind::Infrastructure => {}
        }
    }
    running.raise_to(&peak);
    running
}

/// Fills in the requests of a pod as a whole as the API server does (`pkg/apis/core/v1/defaults.go`,
/// `defaultPodRequests`), and only beside limits: CPU and memory are what the containers request together, where one of
/// them does; all else is the limit, since huge pages are not overcommitted.
pub fn default_pod_requests<A: ResourceSum>(requests: &mut A, limits: &A, cpu_and_memory_of_containers: &A) {
    if !limits.is_empty() {
        requests.fill_from(cpu_and_memory_of_containers);
        requests.fill_from(limits);
    }
}

/// Requests of a pod: of its containers at the busiest moment, those of the pod as a whole in their place, overhead on top.
pub fn pod_requests<A: ResourceSum>(of_containers: &A, pod_level: A, overhead: &A) -> A {
    let mut requests = pod_level;
    requests.fill_from(of_containers);
    requests.add(overhead);
    requests
}

/// Limits of a pod by the same rules; overhead is added to those there are, and a limit of nothing stays one.
pub fn pod_limits<A: ResourceSum>(of_containers: &A, pod_level: A, overhead: &A) -> A {
    let mut limits = pod_level;
    limits.fill_from(of_containers);
    limits.add_to_nonzero(overhead);
    limits
}

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

    /// Requirements of the pod as a whole with the defaults filled in, where the pod has any. Resources that cannot be
    /// set for a pod are left out.
    #[must_use]
    pub fn pod_level_defaulted(&self) -> Option<Requirements> {
        let only = |list: &ResourceList, kept: fn(&ResourceName) -> bool| -> ResourceList {
            list.iter().filter(|(name, _)| kept(name)).map(|(name, amount)| (name.clone(), amount)).collect()
        };
        let written = self.resources.as_ref()?;
        let limits = only(&written.limits, ResourceName::is_pod_level);
        let mut requests = only(&written.requests, ResourceName::is_pod_level);
        let of_containers =
            only(&self.container_requests(), |name| [ResourceName::CPU, ResourceName::MEMORY].contains(name));
        default_pod_requests(&mut requests, &limits, &of_containers);
        Some(Requirements { requests, limits }).filter(|filled| !filled.is_empty())
    }

    /// The pod's effective requests, overhead included: what the scheduler sets aside on a node.
    #[must_use]
    pub fn effective_requests(&self) -> ResourceList {
        let pod_level = self.pod_level_defaulted().unwrap_or_default();
        pod_requests(&self.container_requests(), pod_level.requests, &self.overhead)
    }

    /// The pod's effective limits; overhead is added to those there are.
    #[must_use]
    pub fn effective_limits(&self) -> ResourceList {
        let pod_level = self.pod_level_defaulted().unwrap_or_default();
        pod_limits(&self.container_limits(), pod_level.limits, &self.overhead)
    }

    fn aggregate(&self, of: impl Fn(&Requirements) -> ResourceList) -> ResourceList {
        busiest_moment(self.counted_containers().map(|container| (container.kind, of(&container.resources))))
    }
}
