//! Capabilities: which feature needs which, what is held, and giving up the rest.
//!
//! Owns the table. Does not decide which features are on.

use std::fmt;

use caps::{CapSet, Capability, CapsHashSet};

use crate::error::{Category, HostError, HostOperation};

/// A feature of the agent that some capability makes possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// `oom_score_adj` below the value a process was last set to by a privileged writer.
    LowScores,
    /// Pressure triggers with a window that is not a multiple of two seconds.
    ShortPressureWindows,
    /// Files of other users' processes and cgroups.
    OtherUsersFiles,
    /// Killing the rest of a container (v1; v2 has `cgroup.kill`).
    Kill,
    /// Being woken at fork and exec.
    ProcessEvents,
    /// Reading the kernel's log of OOM kills.
    KernelLog,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Self; 6] = [
        Self::LowScores,
        Self::ShortPressureWindows,
        Self::OtherUsersFiles,
        Self::Kill,
        Self::ProcessEvents,
        Self::KernelLog,
    ];

    /// The capability it needs (capabilities(7)).
    pub const fn needs(self) -> UsableCapability {
        match self {
            Self::LowScores | Self::ShortPressureWindows => UsableCapability::SysResource,
            Self::OtherUsersFiles => UsableCapability::DacOverride,
            Self::Kill => UsableCapability::Kill,
            Self::ProcessEvents => UsableCapability::NetAdmin,
            Self::KernelLog => UsableCapability::Syslog,
        }
    }

    /// What is lost without it, for status.
    pub const fn without(self) -> &'static str {
        match self {
            Self::LowScores => "scores below a process's floor cannot be set",
            Self::ShortPressureWindows => "pressure is watched in windows of two seconds",
            Self::OtherUsersFiles => "processes and cgroups of other users cannot be changed",
            Self::Kill => "the rest of a container that lost a process to the OOM killer cannot be ended",
            Self::ProcessEvents => "new processes are found by the audit only",
            Self::KernelLog => "OOM kills are counted but not told one by one",
        }
    }
}

/// A capability this project can make use of. Everything else is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsableCapability {
    /// CAP_SYS_RESOURCE.
    SysResource,
    /// CAP_DAC_OVERRIDE.
    DacOverride,
    /// CAP_KILL.
    Kill,
    /// CAP_NET_ADMIN.
    NetAdmin,
    /// CAP_SYSLOG.
    Syslog,
    /// CAP_SETUID: starting a part as another user.
    SetUid,
    /// CAP_SETGID: the same with its group.
    SetGid,
}

impl UsableCapability {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::SysResource,
        Self::DacOverride,
        Self::Kill,
        Self::NetAdmin,
        Self::Syslog,
        Self::SetUid,
        Self::SetGid,
    ];

    const fn capability(self) -> Capability {
        match self {
            Self::SysResource => Capability::CAP_SYS_RESOURCE,
            Self::DacOverride => Capability::CAP_DAC_OVERRIDE,
            Self::Kill => Capability::CAP_KILL,
            Self::NetAdmin => Capability::CAP_NET_ADMIN,
            Self::Syslog => Capability::CAP_SYSLOG,
            Self::SetUid => Capability::CAP_SETUID,
            Self::SetGid => Capability::CAP_SETGID,
        }
    }
}

impl UsableCapability {
    /// Names of all capabilities in a mask as /proc/PID/status shows it, also of those that are not in [`UsableCapability::ALL`].
    pub fn of_mask(mask: u64) -> Vec<String> {
        let all = caps::all();
        let mut held: Vec<Capability> = all.into_iter().filter(|one| mask & one.bitmask() != 0).collect();
        held.sort_by_key(Capability::index);
        held.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for UsableCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.capability().fmt(f)
    }
}

/// Those of [`UsableCapability::ALL`] that are effective now.
///
/// # Errors
/// `Io` when the kernel does not tell.
pub fn held() -> Result<Vec<UsableCapability>, HostError> {
    let effective = caps::read(None, CapSet::Effective).map_err(failed)?;
    Ok(UsableCapability::ALL.into_iter().filter(|h| effective.contains(&h.capability())).collect())
}

/// The capabilities a set of features needs, each once.
pub fn needed(features: impl IntoIterator<Item = Feature>) -> Vec<UsableCapability> {
    let mut needed: Vec<UsableCapability> = features.into_iter().map(Feature::needs).collect();
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// Gives up every capability but those of `keep` that are held, in all five sets, and answers what is left.
///
/// Call it before any thread starts: capabilities belong to threads, and new threads inherit. Nothing is kept
/// inheritable or ambient, so programs started by us get none (unless we are uid 0: then the bounding set is
/// what holds them back, and it is cut too where CAP_SETPCAP lets us).
///
/// # Errors
/// `Denied` when the kernel refuses; some sets may then have been cut already.
pub fn drop_all_except(keep: &[UsableCapability]) -> Result<Vec<UsableCapability>, HostError> {
    let wanted: CapsHashSet = keep.iter().map(|h| h.capability()).collect();
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let kept: CapsHashSet = permitted.intersection(&wanted).copied().collect();
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient).map_err(failed)?;
    }
    // Cutting the bounding set needs CAP_SETPCAP; an unprivileged start has nothing to lose there.
    if permitted.contains(&Capability::CAP_SETPCAP) {
        let bounding = caps::read(None, CapSet::Bounding).map_err(failed)?;
        for capability in bounding.difference(&wanted) {
            caps::drop(None, CapSet::Bounding, *capability).map_err(failed)?;
        }
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    held()
}

fn failed(error: caps::errors::CapsError) -> HostError {
    HostError::of_text(Category::Denied, HostOperation::Adjust, "capabilities", error.to_string())
        .with_remedy(
            "start the agent as root, or with CapabilityBoundingSet= and AmbientCapabilities= of its unit",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_share_capabilities() {
        assert_eq!(
            needed([Feature::ShortPressureWindows, Feature::LowScores, Feature::ProcessEvents]),
            vec![UsableCapability::SysResource, UsableCapability::NetAdmin]
        );
        assert_eq!(needed([]), vec![]);
    }

    #[test]
    fn capabilities_can_be_dropped_but_not_gained() {
        // In a thread of its own: capabilities are the thread's.
        std::thread::spawn(|| {
            let before = held().unwrap();
            let keep: Vec<UsableCapability> = before.iter().copied().take(1).collect();
            assert_eq!(drop_all_except(&keep).unwrap(), keep);
            assert_eq!(drop_all_except(&UsableCapability::ALL).unwrap(), keep);
            assert_eq!(drop_all_except(&[]).unwrap(), vec![]);
            let permitted = caps::read(None, CapSet::Permitted).unwrap();
            assert!(permitted.is_empty());
        })
        .join()
        .unwrap();
    }
}
