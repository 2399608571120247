//! Inversion of a container runtime's record, where nobody stated what a container asked for.
//!
//! A runtime keeps what it was told to write (shares, quota, score), not what was requested. Owned here: the way
//! back. The result is always marked as an estimate. A memory limit alone is never taken as a request.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, CpuShares, MilliCpu};
use evenkeel_model::workload::{ContainerResources, Estimate, Requested};

use crate::cpu::{CpuQuota, milli_from_shares};

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
}

/// What the container must have asked for on a machine with `capacity` memory; [`Requested::Unknown`] when the
/// record says nothing of CPU requests nor of the score.
pub fn invert(record: &RuntimeRecord, capacity: Bytes) -> Requested {
    let cpu_request = record.cpu_shares.map(cpu_request);
    let memory = record.oom_score_adj.map(|adj| memory_from_score(adj, capacity, record.memory_limit));
    if cpu_request.is_none() && memory.is_none() {
        return Requested::Unknown;
    }
    Requested::Estimated(Estimate {
        resources: ContainerResources {
            cpu_request,
            cpu_limit: record.cpu_quota.and_then(CpuQuota::limit),
            memory_request: memory.and_then(|m| m.request),
            memory_limit: record.memory_limit.filter(|l| !l.is_zero()),
        },
        memory_class: memory.map(|m| m.class),
    })
}

/// The smallest shares are what a container without a request is given.
fn cpu_request(shares: CpuShares) -> MilliCpu {
    if shares == CpuShares::MIN { MilliCpu::ZERO } else { milli_from_shares(shares) }
}

#[derive(Debug, Clone, Copy)]
struct MemoryGuess {
    class: QosClass,
    request: Option<Bytes>,
}

/// -999 to -997 is what guaranteed containers have had, 1000 best-effort; any other score is the burstable
/// formula's, turned around and rounded up, so that the formula gives the same score again.
fn memory_from_score(adj: i64, capacity: Bytes, limit: Option<Bytes>) -> MemoryGuess {
    match adj {
        // A guaranteed container's limit equals its request, so here (and only here) the limit tells it.
        -999..=-997 => MemoryGuess { class: QosClass::Guaranteed, request: limit.filter(|l| !l.is_zero()) },
        1000 => MemoryGuess { class: QosClass::BestEffort, request: Some(Bytes::ZERO) },
        _ => {
            let permille = u128::try_from(1000_i64.saturating_sub(adj)).unwrap_or(0);
            let bytes = (u128::from(capacity.get()) * permille).div_ceil(1000);
            let request = Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX));
            MemoryGuess { class: QosClass::Burstable, request: Some(request) }
        }
    }
}
