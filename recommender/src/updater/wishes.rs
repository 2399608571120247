//! What is recommended to which workloads of the followed cluster, and in which namespaces it differs from what pods ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_kubernetes::ClusterView;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::Policy;
use evenkeel_updater::{TargetRequest, Two};

use super::offers::Offers;
use crate::acting::is_meant;
use crate::api::Context;

/// What one workload's pods should request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkloadTarget {
    pub(super) policy: Arc<Policy>,
    pub(super) targets: BTreeMap<String, Two<Option<TargetRequest>>>,
}

/// By namespace and workload.
pub(super) type Wishes = BTreeMap<String, BTreeMap<String, WorkloadTarget>>;

/// What is recommended to the workloads of policies in mode `auto`; on a revert to those of every policy, since what was changed by one is given
/// back whatever its mode is by now. To those that an offer is about nothing has to be recommended.
pub(super) fn wishes(context: &Context, cluster: &str, is_revert: bool, offers: &Offers) -> Wishes {
    let config = context.config.now();
    let (set, kept) = (context.policies.set(), context.stored.kept());
    let mut wishes = Wishes::new();
    for r in kept.all().filter(|r| r.cluster == cluster) {
        let is_meant = is_revert || is_meant(r, &config.acting);
        if !(is_meant || r.mode == "auto" && offers.is_about(&r.namespace, &r.workload)) {
            continue;
        }
        if config.kubernetes.updater.exclude_namespaces.contains(&r.namespace) {
            continue;
        }
        let Some((namespace, name)) = r.policy.split_once('/') else { continue };
        let Some(policy) = set.find(namespace, name).and_then(|at| set.all().get(at)) else { continue };
        let of_namespace = wishes.entry(r.namespace.clone()).or_default();
        let wish = of_namespace.entry(r.workload.clone()).or_insert_with(|| WorkloadTarget {
            policy: Arc::clone(&policy.policy),
            targets: BTreeMap::new(),
        });
        let at = usize::from(r.resource != Resource::Cpu.as_str());
        if let Some(request) = r.request.filter(|_| is_meant) {
            wish.targets.entry(r.container.clone()).or_default()[at] =
                Some(TargetRequest { request, limit: limit(r) });
        }
    }
    wishes
}

const fn limit(r: &v1::Recommendation) -> Option<u64> {
    r.limit
}

/// Namespaces with a pod that asks for something else than is recommended to it, by more than its policy tolerates.
pub(super) fn differing(view: &ClusterView, wishes: &Wishes) -> BTreeSet<String> {
    let differs = |(namespace, of): &(&String, &BTreeMap<String, WorkloadTarget>)| {
        view.asked(namespace).iter().any(|(workload, pod)| {
            let Some(wish) = of.get(workload) else { return false };
            let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
            pod.spec.containers.iter().chain(sidecars).any(|container| {
                let requests = &container.resources.requests;
                let cpu = requests.get("cpu").and_then(|amount| amount.milli_u64());
                let memory = requests.get("memory").and_then(|amount| amount.to_u64());
                let Some(targets) = wish.targets.get(&container.name) else { return false };
                targets.iter().zip([cpu, memory]).any(|(target, now)| is_far(wish, *target, now))
            })
        })
    };
    wishes.iter().filter(differs).map(|(namespace, _)| namespace.clone()).collect()
}

fn is_far(wish: &WorkloadTarget, target: Option<TargetRequest>, now: Option<u64>) -> bool {
    let (Some(target), updates) = (target, &wish.policy.updates) else { return false };
    let Some(now) = now.filter(|now| *now > 0) else { return true };
    let part = (target.request as f64 - now as f64) / now as f64;
    part > updates.tolerance_up || -part > updates.tolerance_down
}
