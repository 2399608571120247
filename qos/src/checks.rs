//! Settings of the node that break the promises: what, why, and what to do.
//!
//! Owned here: the judgement and its sentences. Not owned: reading or changing the settings.

use evenkeel_model::units::Bytes;
use serde::Serialize;

/// Something about the node that keeps promises from holding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// Which promise it breaks, and how.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// Value of `vm.overcommit_memory` under which guarantees hold (the proposal, "Change memory overcommit mode";
/// the kubelet sets the same).
pub const OVERCOMMIT_ALWAYS: u8 = 1;

/// Judges `vm.overcommit_memory` (proc(5)): 0 refuses obvious overcommits, 1 never refuses, 2 refuses beyond the
/// commit limit. `None` when it is as it should be.
pub fn overcommit(mode: u8) -> Option<Finding> {
    let why = match mode {
        OVERCOMMIT_ALWAYS => return None,
        0 => {
            "a large allocation of a Guaranteed container may be refused for what BestEffort ones hold, instead \
             of the OOM killer taking them"
        }
        _ => {
            "allocations fail at the commit limit, for Guaranteed containers as for all others, and the OOM \
             killer that would make room is never asked"
        }
    };
    Some(Finding {
        what: format!("vm.overcommit_memory is {mode}, not {OVERCOMMIT_ALWAYS}"),
        why: why.into(),
        remedy: "run sysctl vm.overcommit_memory=1 and keep it in /etc/sysctl.d, or configure \
                 memory.overcommit = \"set\""
            .into(),
    })
}

/// Judges `vm.panic_on_oom` (proc(5)): anything but 0 takes the node down where one container should go.
pub fn panic_on_oom(mode: u8) -> Option<Finding> {
    (mode != 0).then(|| Finding {
        what: format!("vm.panic_on_oom is {mode}, not 0"),
        why:
            "when memory runs out the whole node stops, Guaranteed containers included, instead of the least \
              important container"
                .into(),
        remedy: "run sysctl vm.panic_on_oom=0 and keep it in /etc/sysctl.d".into(),
    })
}

/// Judges swap: with it a memory guarantee is one of address space, not of memory. `are_limited` tells whether
/// swap limits per class are in force, which keep Guaranteed and BestEffort containers out of it.
pub fn swap(total: Bytes, are_limited: bool) -> Option<Finding> {
    if total.is_zero() {
        return None;
    }
    let (why, remedy) = if are_limited {
        (
            "memory of Burstable containers may be swapped out within their share; daemons and containers that \
             are not managed may be swapped out without bound",
            "run swapoff -a and take swap out of /etc/fstab, if latency of Burstable containers matters",
        )
    } else {
        (
            "pages of Guaranteed containers may be swapped out, and containers at their limit go on growing into \
             swap until it is full, so requested memory is not memory",
            "run swapoff -a and take swap out of /etc/fstab, or limit it with memory.swap_limits = true and \
             knobs.memory_swap = true",
        )
    };
    Some(Finding { what: format!("swap is on: {total}"), why: why.into(), remedy: remedy.into() })
}
