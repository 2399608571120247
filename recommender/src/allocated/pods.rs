//! Requests of a pod's containers together, as the scheduler counts them.

use evenkeel_proto::v1;

use super::{Pair, Running};

/// What the containers of one pod ask for of one resource.
#[derive(Clone, Copy, Default)]
pub(super) struct PodRequestSums {
    running: u64,
    sidecars: u64,
    init: u64,
}

impl PodRequestSums {
    fn add(&mut self, kind: v1::ContainerKind, amount: u64) {
        match kind {
            v1::ContainerKind::Init => self.init = self.init.max(amount),
            v1::ContainerKind::Sidecar => self.sidecars = self.sidecars.saturating_add(amount),
            _ => self.running = self.running.saturating_add(amount),
        }
    }

    fn effective(self) -> u64 {
        self.sidecars.saturating_add(self.running.max(self.init))
    }
}

/// What one pod has of one resource.
#[derive(Clone, Copy, Default)]
pub(super) struct OfPod {
    requested: PodRequestSums,
    limited: PodRequestSums,
    recommended: PodRequestSums,
    unlimited: u32,
    recommended_containers: u32,
    used: u64,
}

impl OfPod {
    pub(super) fn add_to(self, sum: &mut v1::AllocatedResource) {
        sum.requested = sum.requested.saturating_add(self.requested.effective());
        sum.limited = sum.limited.saturating_add(self.limited.effective());
        sum.recommended = sum.recommended.saturating_add(self.recommended.effective());
        sum.unlimited = sum.unlimited.saturating_add(self.unlimited);
        sum.recommended_containers = sum.recommended_containers.saturating_add(self.recommended_containers);
        sum.used = sum.used.saturating_add(self.used);
    }
}

pub(super) fn add_container(pod: &mut Pair<OfPod>, running: &Running, wish: Pair<Option<u64>>) {
    let (identity, asked) = (&running.identity, running.identity.requested.unwrap_or_default());
    let limits = [asked.cpu_limit_milli, asked.memory_limit_bytes];
    let requests = [asked.cpu_request_milli, asked.memory_request_bytes];
    for (at, of) in pod.iter_mut().enumerate() {
        of.used = of.used.saturating_add(running.used[at]);
        if identity.kind() == v1::ContainerKind::Infrastructure {
            continue;
        }
        let request = requests[at].or(limits[at]).unwrap_or(0);
        of.requested.add(identity.kind(), request);
        of.limited.add(identity.kind(), limits[at].unwrap_or(0));
        of.recommended.add(identity.kind(), wish[at].unwrap_or(request));
        of.unlimited += u32::from(limits[at].is_none());
        of.recommended_containers += u32::from(wish[at].is_some());
    }
}
