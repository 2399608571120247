//! Owns the CPU that containers request while they start (`startupBoost` of a policy): above what is recommended to them, within what bounds a
//! request, and never of another class, or it could not be given back in place.

use evenkeel_model::name::ResourceName;
use evenkeel_model::pod::Pod;
use evenkeel_model::quantity::Quantity;
use evenkeel_qos::pod::qos_class;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::LimitsMode;

use super::caps::scaled;
use super::limits::Limits;
use super::pod::{ContainerAdvice, name_of, quantity, with};
use crate::policy::Governing;

/// Puts down what containers of a pod that is made request while they start; nothing where the pod as a whole would have too much.
pub(super) fn boost(
    limits: &Limits,
    pod: &Pod,
    governing: Option<Governing<'_>>,
    largest: Option<u64>,
    containers: &mut [ContainerAdvice],
) {
    let Some(policy) = governing.map(|governing| governing.policy) else { return };
    let Some(boost) = policy.startup.filter(|_| pod.node_name.is_none()) else { return };
    let allowed = limits.of(None, &pod.metadata.namespace, Resource::Cpu);
    let cpu = |container: &ContainerAdvice| {
        let resources = &container.resources;
        resources.requests.cpu().or(resources.limits.cpu()).and_then(Quantity::milli_u64)
    };
    let startup = |container: &ContainerAdvice| {
        let mut known = container.recommendations.iter().filter(|one| one.resource == "cpu");
        let known = known.find(|one| one.request.is_some())?;
        let request = cpu(container)?;
        // A limit that keeps its ratio goes up with it, within the greatest one.
        let stays = container.resources.limits.cpu().and_then(Quantity::milli_u64);
        let (follows, stays) = match policy.limits {
            LimitsMode::Ratio => (stays, None),
            LimitsMode::Keep | LimitsMode::None => (None, stays),
        };
        let of_limits = allowed.max.into_iter().chain(allowed.limits_left).min();
        let follows = follows.zip(of_limits).map(|(limit, most)| scaled(most, request, limit, false));
        let most =
            allowed.max.into_iter().chain(allowed.pod_max).chain(largest).chain(stays).chain(follows).min();
        let boosted = boost.of(request, known.start).min(most.unwrap_or(u64::MAX));
        (boosted > request).then_some(boosted)
    };
    let all: Vec<Option<u64>> = containers.iter().map(startup).collect();
    let total = containers.iter().zip(&all).filter_map(|(container, boosted)| boosted.or(cpu(container)));
    let total = total.fold(0, u64::saturating_add);
    let most = allowed.pod_max.into_iter().chain(allowed.requests_left).chain(largest).min();
    if most.is_some_and(|most| total > most) || is_another_class(pod, containers, &all) {
        return;
    }
    containers.iter_mut().zip(all).for_each(|(container, boosted)| container.startup = boosted);
}

/// Whether the pod has another class while it starts.
fn is_another_class(pod: &Pod, containers: &[ContainerAdvice], all: &[Option<u64>]) -> bool {
    let mut starting = containers.to_vec();
    for (container, boosted) in starting.iter_mut().zip(all) {
        let name: ResourceName = name_of(Resource::Cpu);
        if let Some(boosted) = boosted {
            container.resources.requests.set(name, quantity(Resource::Cpu, *boosted));
        }
    }
    qos_class(&with(pod, containers)) != qos_class(&with(pod, &starting))
}
