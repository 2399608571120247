//! Inversion of a container runtime's record, where nobody stated what a container asked for.
//!
//! A runtime keeps what it was told to write (shares, quota, score), not what was requested. Owned here: the way
//! back, bounded by what is certain: the limits, and the class of the pod that the kubelet's cgroup path names. The
//! result is always marked as an estimate. A memory limit alone is never taken as a request.
//!
//! What no record tells: under the kubelet the score 999 stands for every memory request from nothing to below two
//! thousandths of the machine, and shares of 2 for every CPU request up to 2m. The lower end is taken, so that an
//! estimate protects too little rather than too much, unless a limit or the pod's class proves that something was
//! requested.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, CpuShares, MilliCpu};
use evenkeel_model::workload::{ContainerResources, Estimate, Requested};

use crate::cpu::{CpuQuota, milli_from_shares, shares_from_milli};
use crate::rules::{defaulted, memory_class};

/// Name of the cgroup in which the kubelet keeps pods, with the cgroupfs driver; with systemd's, a slice of this name.
const KUBEPODS: &str = "kubepods";

/// What a runtime was told about one container; `None` where it was told nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuntimeRecord {
    /// `cpu.shares` as requested.
    pub cpu_shares: Option<CpuShares>,
    /// CPU bandwidth as requested.
    pub cpu_quota: Option<CpuQuota>,
    /// `oom_score_adj` as requested of the runtime, not as processes have it now.
    pub oom_score_adj: Option<i64>,
    /// Memory limit as requested.
    pub memory_limit: Option<Bytes>,
    /// Class of the pod by the kubelet's cgroup path ([`kubelet_tier`]); `None` where no kubelet runs the pod.
    pub tier: Option<QosClass>,
}

impl RuntimeRecord {
    /// True when the score is that of a Guaranteed container and the pod is none: the kubelet gives it to critical
    /// pods of the node.
    pub fn is_node_critical(&self) -> bool {
        self.tier.is_some_and(|tier| tier != QosClass::Guaranteed) && self.has_guaranteed_score()
    }

    /// True when the score is one that Guaranteed containers and critical pods of the node have.
    pub fn has_guaranteed_score(&self) -> bool {
        self.oom_score_adj.is_some_and(is_guaranteed)
    }

    /// Class of the pod: that of its tier, else the one whose score the kubelet asked for; `None` where neither is known.
    pub fn class_of_pod(&self) -> Option<QosClass> {
        self.tier.or_else(|| {
            Some(match self.oom_score_adj? {
                adj if is_guaranteed(adj) => QosClass::Guaranteed,
                1000 => QosClass::BestEffort,
                _ => QosClass::Burstable,
            })
        })
    }

    fn memory_limit(&self) -> Option<Bytes> {
        self.memory_limit.filter(|limit| !limit.is_zero())
    }

    fn cpu_limit(&self) -> Option<MilliCpu> {
        self.cpu_quota.and_then(CpuQuota::limit).filter(|limit| !limit.is_zero())
    }
}

/// Class of the pod that a container's cgroup path names where a kubelet made it, with either driver and below any
/// cgroup root: `/kubepods/burstable/podUID/ID`,
/// `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice/cri-containerd-ID.scope`. A pod
/// directly below `kubepods` is Guaranteed.
pub fn kubelet_tier(path: &str) -> Option<QosClass> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let root = parts.find(|part| {
        let name = part.strip_suffix(".slice").unwrap_or(part);
        name == KUBEPODS || (name.len() < part.len() && name.ends_with("-kubepods"))
    })?;
    let below = parts.next()?;
    // Something must be below the pod, or the path is that of the pod or tier itself.
    let inner = parts.next()?;
    let name = match root.strip_suffix(".slice") {
        Some(root) => below.strip_suffix(".slice")?.strip_prefix(root)?.strip_prefix('-')?,
        None => below,
    };
    match name {
        "burstable" => inner.contains("pod").then_some(QosClass::Burstable),
        "besteffort" => inner.contains("pod").then_some(QosClass::BestEffort),
        pod => pod.starts_with("pod").then_some(QosClass::Guaranteed),
    }
}

/// What the container must have asked for on a machine with `capacity` memory; [`Requested::Unknown`] when the
/// record says nothing of CPU requests nor of the score.
pub fn invert(record: &RuntimeRecord, capacity: Bytes) -> Requested {
    let cpu_request = cpu_request(record);
    let memory = memory(record, capacity);
    if cpu_request.is_none() && memory.is_none() && record.tier != Some(QosClass::BestEffort) {
        return Requested::Unknown;
    }
    Requested::Estimated(Estimate {
        resources: ContainerResources {
            cpu_request,
            cpu_limit: record.cpu_limit(),
            memory_request: memory.and_then(|m| m.request),
            memory_limit: record.memory_limit(),
        },
        memory_class: memory.and_then(|m| m.class),
    })
}

/// What a container engine (Docker, Podman) was told of one container by whoever started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineRecord {
    /// `--cpus`, or quota over period.
    pub cpu_limit: Option<MilliCpu>,
    /// `--cpu-shares`.
    pub cpu_shares: Option<CpuShares>,
    /// `--memory`.
    pub memory_limit: Option<Bytes>,
    /// `--memory-reservation`.
    pub memory_reservation: Option<Bytes>,
}

/// What a container of an engine asks for on a machine with `capacity` memory. Unlike a kubelet's record this one is in
/// the words of a person, so that a limit without a request is the request, as in Kubernetes; the reservation is the
/// request for memory. About memory nothing is said where nothing was told: a container that was given processors alone
/// has not offered itself to the OOM killer. More memory than the machine has is none.
pub fn of_engine(record: &EngineRecord, capacity: Bytes) -> Requested {
    let within = |bytes: Option<Bytes>| bytes.filter(|bytes| !bytes.is_zero() && *bytes <= capacity);
    let (limit, reservation) = (within(record.memory_limit), within(record.memory_reservation));
    let cpu_request = record.cpu_shares.map(|shares| request_of_shares(shares, record.cpu_limit));
    let resources = ContainerResources {
        cpu_request: cpu_request.or(record.cpu_limit),
        cpu_limit: record.cpu_limit,
        memory_request: reservation
            .map(|request| limit.map_or(request, |limit| request.min(limit)))
            .or(limit),
        memory_limit: limit,
    };
    if resources == ContainerResources::default() {
        return Requested::Unknown;
    }
    let memory_class = resources.memory_request.map(|_| memory_class(&resources));
    Requested::Estimated(Estimate { resources, memory_class })
}

/// Estimates of the containers of one pod, once all of them are known: a Burstable pod in which no CPU is requested
/// and nothing is limited requests memory, however little, or it would be BestEffort.
pub fn settle_pod<'a>(
    tier: Option<QosClass>,
    containers: impl Iterator<Item = &'a mut Requested>,
    capacity: Bytes,
) {
    let mut small = Vec::new();
    for requested in containers {
        let Requested::Estimated(estimate) = requested else { return };
        let r = &estimate.resources;
        let nothing = r.cpu_request.is_none_or(MilliCpu::is_zero)
            && r.memory_request.is_some_and(Bytes::is_zero)
            && r.cpu_limit.is_none()
            && r.memory_limit.is_none();
        if !nothing {
            return;
        }
        small.push(estimate);
    }
    if tier != Some(QosClass::Burstable) {
        return;
    }
    for estimate in small {
        estimate.resources.memory_request = Some(bytes_of_steps(1, capacity));
        estimate.memory_class = Some(QosClass::Burstable);
    }
}

/// What the runtime or the API server says, lowered to what somebody without rights of their own states; and whether they stated more
/// than that, which is not taken. Limits stay as the runtime has them.
pub fn lowered(runtime: Requested, stated: ContainerResources) -> (Requested, bool) {
    let stated = defaulted(stated);
    let mut estimate = match runtime {
        Requested::Estimated(estimate) => estimate,
        Requested::Stated(known) => {
            let more = stated.cpu_request > known.cpu_request
                || stated.memory_request > known.memory_request
                || memory_class(&stated) > memory_class(&known);
            let resources = ContainerResources {
                cpu_request: known
                    .cpu_request
                    .map(|cpu| stated.cpu_request.map_or(cpu, |less| cpu.min(less))),
                memory_request: known
                    .memory_request
                    .map(|bytes| stated.memory_request.map_or(bytes, |less| bytes.min(less))),
                ..known
            };
            return (Requested::Stated(resources), more);
        }
        Requested::Unknown => return (runtime, stated != ContainerResources::default()),
    };
    let r = &mut estimate.resources;
    let mut more = stated.cpu_request > r.cpu_request || stated.memory_request > r.memory_request;
    if let (Some(known), Some(less)) = (r.cpu_request, stated.cpu_request) {
        r.cpu_request = Some(known.min(less));
    }
    if let (Some(known), Some(less)) = (r.memory_request, stated.memory_request) {
        r.memory_request = Some(known.min(less));
        let of_less = memory_class(&ContainerResources { memory_request: Some(known.min(less)), ..*r });
        more |= memory_class(&stated) > estimate.memory_class.unwrap_or(QosClass::Guaranteed);
        estimate.memory_class = estimate.memory_class.map(|class| class.min(of_less));
    }
    (Requested::Estimated(estimate), more)
}

fn cpu_request(record: &RuntimeRecord) -> Option<MilliCpu> {
    let limit = record.cpu_limit();
    match record.tier {
        Some(QosClass::BestEffort) => return Some(MilliCpu::ZERO),
        Some(QosClass::Guaranteed) if limit.is_some() => return limit,
        _ => {}
    }
    record.cpu_shares.map(|shares| request_of_shares(shares, limit))
}

/// The smallest shares are what a container without a request is given, and one that requests up to 2m. A limit
/// without a request becomes the request, so beside a limit they are the latter.
fn request_of_shares(shares: CpuShares, limit: Option<MilliCpu>) -> MilliCpu {
    let request = match limit {
        None if shares == CpuShares::MIN => MilliCpu::ZERO,
        _ => milli_from_shares(shares),
    };
    limit.map_or(request, |limit| request.min(limit))
}

#[derive(Debug, Clone, Copy)]
struct MemoryGuess {
    class: Option<QosClass>,
    request: Option<Bytes>,
}

impl MemoryGuess {
    const fn new(class: QosClass, request: Option<Bytes>) -> Option<Self> {
        Some(Self { class: Some(class), request })
    }
}

/// Scores that guaranteed containers have had.
fn is_guaranteed(adj: i64) -> bool {
    (-999..=-997).contains(&adj)
}

fn memory(record: &RuntimeRecord, capacity: Bytes) -> Option<MemoryGuess> {
    let limit = record.memory_limit();
    if record.is_node_critical() {
        // The score is that of the pod's priority, and says nothing of what is requested.
        return Some(MemoryGuess { class: None, request: None });
    }
    match record.tier {
        Some(QosClass::BestEffort) => MemoryGuess::new(QosClass::BestEffort, Some(Bytes::ZERO)),
        // A guaranteed container's limit equals its request, so here (and only here) the limit tells it.
        Some(QosClass::Guaranteed) => MemoryGuess::new(QosClass::Guaranteed, limit),
        Some(QosClass::Burstable) | None => match record.oom_score_adj? {
            adj if is_guaranteed(adj) => MemoryGuess::new(QosClass::Guaranteed, limit),
            1000 => MemoryGuess::new(QosClass::BestEffort, Some(Bytes::ZERO)),
            adj => burstable(record, 1000_i64.saturating_sub(adj), capacity),
        },
    }
}

/// The burstable formula turned around and rounded up, so that the formula gives the same score again, and at most
/// the limit. `steps` are the thousandths of `capacity` that the score stands for.
fn burstable(record: &RuntimeRecord, steps: i64, capacity: Bytes) -> Option<MemoryGuess> {
    // The kubelet's score of a Burstable container is at most 999, also of one that requests nothing.
    let least = record.tier == Some(QosClass::Burstable) && steps == 1;
    let request = bytes_of_steps(steps, capacity);
    match record.memory_limit() {
        None if least => MemoryGuess::new(QosClass::BestEffort, Some(Bytes::ZERO)),
        None => MemoryGuess::new(QosClass::Burstable, Some(request)),
        Some(limit) => {
            let from = if least { Bytes::ZERO } else { request };
            let fits = limit >= from && limit < bytes_of_steps(steps.saturating_add(1), capacity);
            if record.tier.is_some() && fits && cpu_is_limited_to_its_request(record) {
                return MemoryGuess::new(QosClass::Guaranteed, Some(limit));
            }
            MemoryGuess::new(QosClass::Burstable, Some(request.min(limit)))
        }
    }
}

/// Whoever limits CPU to exactly what is requested does the same with memory, where the score allows it.
fn cpu_is_limited_to_its_request(record: &RuntimeRecord) -> bool {
    record.cpu_limit().map(shares_from_milli) == record.cpu_shares && record.cpu_shares.is_some()
}

fn bytes_of_steps(steps: i64, capacity: Bytes) -> Bytes {
    let bytes = (u128::from(capacity.get()) * u128::try_from(steps).unwrap_or(0)).div_ceil(1000);
    Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
}
