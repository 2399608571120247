//! What a pod is to have: which requests are far enough from the recommended ones, what becomes of limits, and which class it would have.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::ContainerResources;
use evenkeel_qos::rules::{PodShape, pod_class};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::LimitsMode;

use crate::facts::{RunningContainer, RunningPod, Size, Sizes, TargetRequest, Two, Workload, place};
use crate::plan::Reason;

/// A limit of memory stays so much above what was used lately, percent of that: an OOM kill costs more than a resize.
const MEMORY_ROOM_PERCENT: u64 = 110;

/// What a pod is to have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TargetSizes {
    /// Containers that change, whole.
    pub(crate) sizes: Sizes,
    /// Some request rises.
    pub(crate) rises: bool,
    /// How far the request that is furthest off is, as part of itself.
    pub(crate) distance: f64,
    /// A container restarts by it.
    pub(crate) restarts: bool,
    /// The class the pod would have.
    pub(crate) class: Option<QosClass>,
    /// What was left as it is, and why.
    pub(crate) left: Vec<(Reason, String)>,
}

impl TargetSizes {
    /// Whether anything changes.
    pub(crate) fn is_change(&self) -> bool {
        !self.sizes.is_empty()
    }
}

/// Class of a pod with these containers (Kubernetes' rule).
pub fn class(sizes: &Sizes) -> QosClass {
    let of = |two: &Two<Size>| {
        let (cpu, memory) = (two[place(Resource::Cpu)], two[place(Resource::Memory)]);
        ContainerResources {
            cpu_request: cpu.request.map(MilliCpu::new),
            cpu_limit: cpu.limit.map(MilliCpu::new),
            memory_request: memory.request.map(Bytes::new),
            memory_limit: memory.limit.map(Bytes::new),
        }
    };
    let all: Vec<ContainerResources> = sizes.values().map(of).collect();
    pod_class(PodShape::Containers(&all))
}

/// The sizes of a pod with others in their place.
pub(crate) fn with(before: &Sizes, change: &Sizes) -> Sizes {
    let mut after = before.clone();
    after.extend(change.iter().map(|(name, two)| (name.clone(), *two)));
    after
}

/// Whether a pod has these.
pub(crate) fn has(pod: &RunningPod, sizes: &Sizes) -> bool {
    sizes.iter().all(|(name, two)| pod.sizes.get(name) == Some(two))
}

/// The containers of these names as they are.
pub(crate) fn of(sizes: &Sizes, names: &Sizes) -> Sizes {
    let named = sizes.iter().filter(|(name, _)| names.contains_key(*name));
    named.map(|(name, two)| (name.clone(), *two)).collect()
}

/// Whether a container would have more memory than before.
pub(crate) fn has_more_memory(after: &Sizes, before: &Sizes) -> bool {
    let at = place(Resource::Memory);
    after.iter().any(|(name, two)| {
        let before = before.get(name).map(|two| two[at]).unwrap_or_default();
        two[at].request > before.request || before.limit.is_some() && two[at].limit > before.limit
    })
}

/// What a pod of a workload is to have.
pub(crate) fn wanted(workload: &Workload, pod: &RunningPod) -> TargetSizes {
    let mut wanted = TargetSizes::default();
    for (name, targets) in &workload.targets {
        let (Some(container), Some(before)) = (pod.containers.get(name), pod.sizes.get(name)) else {
            continue;
        };
        let mut after = *before;
        for resource in Resource::ALL {
            let at = place(resource);
            let Some(target) = targets[at] else { continue };
            let Some(change) = change(workload, before[at], target) else { continue };
            if let Some(scaler) = &workload.scaled_by[at] {
                let why = format!("{scaler} scales by {} of its requests", resource.as_str());
                wanted.left.push((Reason::ScaledByHpa, format!("{name}: {why}")));
                continue;
            }
            let new = sized(workload.limits, pod.class, before[at], target);
            if let Err(why) = allowed(resource, container, before[at], new) {
                wanted.left.push((Reason::MemoryInUse, format!("{name}: {why}")));
                continue;
            }
            if new == before[at] {
                continue;
            }
            after[at] = new;
            wanted.rises |= change > 0.0;
            wanted.distance = wanted.distance.max(change.abs());
            wanted.restarts |= container.restarts[at];
        }
        if after != *before {
            wanted.sizes.insert(name.clone(), after);
        }
    }
    keep_class(pod, &mut wanted);
    wanted
}

/// What gives a pod back what it had at first, as far as it can be.
pub(crate) fn originals(pod: &RunningPod, original: &Sizes) -> TargetSizes {
    let mut wanted = TargetSizes::default();
    for (name, two) in original {
        let (Some(container), Some(before)) = (pod.containers.get(name), pod.sizes.get(name)) else {
            continue;
        };
        let mut after = *before;
        for resource in Resource::ALL {
            let at = place(resource);
            // Neither a request nor a limit can be taken away in place.
            let new = Size {
                request: two[at].request.or(before[at].request),
                limit: two[at].limit.or(before[at].limit),
            };
            if let Err(why) = allowed(resource, container, before[at], new) {
                wanted.left.push((Reason::MemoryInUse, format!("{name}: {why}")));
                continue;
            }
            wanted.rises |= new.request > before[at].request;
            wanted.restarts |= container.restarts[at] && new != before[at];
            after[at] = new;
        }
        if after != *before {
            wanted.sizes.insert(name.clone(), after);
        }
    }
    wanted.class = Some(class(&with(&pod.sizes, &wanted.sizes)));
    wanted
}

/// How far a request is from the recommended one, as part of itself, where that is far enough.
fn change(workload: &Workload, size: Size, target: TargetRequest) -> Option<f64> {
    let Some(now) = size.request.filter(|request| *request > 0) else { return Some(f64::MAX) };
    let part = (target.request as f64 - now as f64) / now as f64;
    let is_far = part > workload.updates.tolerance_up || -part > workload.updates.tolerance_down;
    is_far.then_some(part)
}

/// The limit that has the same ratio to a request as the pod's own. What the recommender says of limits rests on what nodes told last, and while
/// a resize is on its way that is of several replicas, or half of one: with it a size that was taken back would look like another each time.
fn in_ratio(before: Size, request: u64) -> Option<u64> {
    let (was, limit) = (before.request.filter(|was| *was > 0)?, before.limit?);
    u64::try_from((u128::from(limit) * u128::from(request)).div_ceil(u128::from(was))).ok()
}

/// The new request, and the limit beside it. In place a limit is never taken away.
fn sized(mode: LimitsMode, class: QosClass, before: Size, target: TargetRequest) -> Size {
    let request = target.request;
    if class == QosClass::Guaranteed {
        return Size { request: Some(request), limit: Some(request) };
    }
    let limit = match mode {
        LimitsMode::None => before.limit.map(|limit| limit.max(request)),
        LimitsMode::Keep => before.limit,
        LimitsMode::Ratio => {
            let kept = |limit| in_ratio(before, request).or(target.limit).unwrap_or(limit).max(request);
            before.limit.map(kept)
        }
    };
    Size { request: Some(limit.map_or(request, |limit| request.min(limit))), limit }
}

/// Memory is lowered only where what was used lately allows it.
fn allowed(resource: Resource, container: &RunningContainer, before: Size, new: Size) -> Result<(), String> {
    if resource != Resource::Memory {
        return Ok(());
    }
    let lower = |new: Option<u64>, before: Option<u64>| new < before && before.is_some();
    // A limit where there was none bounds, too.
    let bounds = new.limit.is_some() && (before.limit.is_none() || new.limit < before.limit);
    if !lower(new.request, before.request) && !bounds {
        return Ok(());
    }
    let Some(peak) = container.peak_memory else {
        return Err("memory is not lowered: what it uses is not measured".to_owned());
    };
    if new.request.is_some_and(|request| request < peak) {
        return Err(format!("memory is not lowered below the {peak} bytes that it used lately"));
    }
    let room = peak.saturating_mul(MEMORY_ROOM_PERCENT) / 100;
    if bounds && new.limit.is_some_and(|limit| limit < room) {
        return Err(format!(
            "the limit of memory is not lowered below {room} bytes, a tenth above what it used lately"
        ));
    }
    Ok(())
}

/// The class that comes of it. A Burstable pod whose requests come to its limits would be Guaranteed: then it gets the least less.
fn keep_class(pod: &RunningPod, wanted: &mut TargetSizes) {
    let new = class(&with(&pod.sizes, &wanted.sizes));
    wanted.class = Some(new);
    if new != QosClass::Guaranteed || pod.class != QosClass::Burstable {
        return;
    }
    let Some((name, two)) = wanted.sizes.iter_mut().next() else { return };
    let at = place(Resource::Cpu);
    let Some(request) = two[at].request.filter(|request| *request > 1) else { return };
    two[at].request = Some(request - 1);
    let name = name.clone();
    let is_same = pod.sizes.get(&name).is_some_and(|before| Some(before) == wanted.sizes.get(&name));
    if is_same {
        wanted.sizes.remove(&name);
    }
    wanted.class = Some(class(&with(&pod.sizes, &wanted.sizes)));
}

/// Whether sizes that were tried are those that are wished for, but for what a request may move without being changed.
pub(crate) fn similar(workload: &Workload, tried: &Sizes, wished: &Sizes) -> bool {
    let most = workload.updates.tolerance_up.max(workload.updates.tolerance_down);
    let near = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => (a as f64 - b as f64).abs() <= a.max(b) as f64 * most,
        (a, b) => a == b,
    };
    wished.iter().all(|(name, two)| {
        let of = tried.get(name);
        of.is_some_and(|of| {
            (0..2).all(|at| near(of[at].request, two[at].request) && near(of[at].limit, two[at].limit))
        })
    })
}
