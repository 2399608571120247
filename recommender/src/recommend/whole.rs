//! Owns what a namespace allows a pod as a whole, where its containers together would ask for more: a request that the API server
//! refuses is worse than a small one.

use evenkeel_model::pod::Pod;
use evenkeel_model::requirements::Requirements;
use evenkeel_rightsizing::Resource;

use super::limits::Limits;
use super::pod::{ContainerAdvice, name_of, quantity};

/// What bounds it, as it is told.
const POD: &str = "LimitRange or ResourceQuota of the pod";

/// Lowers requests that were set until the pod fits, each by its part; where that is not enough, they are as they were.
pub(super) fn fit(limits: &Limits, pod: &Pod, advice: &mut [ContainerAdvice]) {
    for resource in Resource::ALL {
        let of = |resources: &Requirements| {
            let name = name_of(resource);
            let asked = resources.requests.get(&name).or(resources.limits.get(&name))?;
            match resource {
                Resource::Cpu => asked.milli_u64(),
                Resource::Memory => asked.to_u64(),
            }
        };
        let before: Vec<Option<u64>> =
            pod.counted_containers().map(|container| of(&container.resources)).collect();
        let after: Vec<Option<u64>> = advice.iter().map(|container| of(&container.resources)).collect();
        let allowed = limits.of(None, &pod.metadata.namespace, resource);
        // What a pod on a node asks for is used of the quota already.
        let has = if pod.node_name.is_some() { before.iter().flatten().sum() } else { 0_u64 };
        let left = allowed.requests_left.map(|left| left.saturating_add(has));
        let Some(most) = allowed.pod_max.into_iter().chain(left).min() else { continue };
        let Some(fitting) = lowered(most, &before, &after) else { continue };
        let originals = pod.counted_containers().map(|container| &container.resources);
        for ((container, original), (request, was)) in
            advice.iter_mut().zip(originals).zip(fitting.iter().zip(&after))
        {
            if request == was {
                continue;
            }
            let name = name_of(resource);
            match request {
                Some(request) => container.resources.requests.set(name, quantity(resource, *request)),
                None => put_back(&mut container.resources, original, resource),
            }
            let mut told = container.recommendations.iter_mut();
            if let Some(told) = told.find(|one| one.resource == resource.as_str()) {
                told.request = *request;
                told.capped_by.push(POD.to_owned());
            }
        }
    }
}

fn put_back(resources: &mut Requirements, original: &Requirements, resource: Resource) {
    let name = name_of(resource);
    let both = [(&mut resources.requests, &original.requests), (&mut resources.limits, &original.limits)];
    for (list, was) in both {
        match was.get(&name) {
            Some(was) => list.set(name.clone(), was),
            None => {
                list.remove(&name);
            }
        }
    }
}

/// The requests that fit together, where those after do not: `None` for one that is as it was before. Nothing where all fit, and where what
/// was asked for before is too much by itself, which is for the API server to refuse.
fn lowered(most: u64, before: &[Option<u64>], after: &[Option<u64>]) -> Option<Vec<Option<u64>>> {
    let total = |all: &[Option<u64>]| all.iter().flatten().fold(0_u64, |sum, one| sum.saturating_add(*one));
    let over = total(after).checked_sub(most).filter(|over| *over > 0)?;
    let is_set = |at: usize| after[at].is_some() && after[at] != before[at];
    let set: Vec<Option<u64>> = (0..after.len()).map(|at| after[at].filter(|_| is_set(at))).collect();
    let of_set = total(&set);
    let lower = |request: u64| {
        let less = (u128::from(request) * u128::from(over)).div_ceil(u128::from(of_set.max(1)));
        u64::try_from(u128::from(request).saturating_sub(less)).ok().filter(|request| *request > 0)
    };
    let fitting = (0..after.len()).map(|at| set[at].map_or(after[at], lower));
    (of_set > 0).then(|| fitting.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_lowered_until_the_pod_fits() {
        for (most, before, after, want) in [
            (600, vec![None, None], vec![Some(500), Some(100)], None),
            (600, vec![None, None], vec![Some(500), Some(500)], Some(vec![Some(300), Some(300)])),
            // What somebody set stays.
            (600, vec![Some(200), None], vec![Some(200), Some(500)], Some(vec![Some(200), Some(400)])),
            (600, vec![Some(700), None], vec![Some(700), Some(500)], Some(vec![Some(700), None])),
            (600, vec![Some(700)], vec![Some(700)], None),
            (0, vec![None], vec![Some(5)], Some(vec![None])),
        ] {
            assert_eq!(lowered(most, &before, &after), want, "{most} {before:?} {after:?}");
            let fitting: u64 = want.iter().flatten().flatten().sum();
            assert!(fitting <= most.max(700), "{fitting}");
        }
    }
}
