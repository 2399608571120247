//! Names of the rules behind values: the input `formula` of every reason, by which `replay` finds the rule again.

/// The class of a container.
pub(crate) const CLASS: &str = "class";
/// `cpu.shares` from a request.
pub(crate) const SHARES: &str = "shares";
/// `cpu.weight` from a request by way of shares.
pub(crate) const WEIGHT: &str = "weight";
/// `cpu.weight` in an owned subtree, in proportion to the request.
pub(crate) const SCALED: &str = "scaled-weight";
/// Shares or weight of the fair mode.
pub(crate) const FAIR: &str = "fair";
/// CPU quota from a limit.
pub(crate) const QUOTA: &str = "quota";
/// CPUs of one's own.
pub(crate) const EXCLUSIVE: &str = "exclusive-cores";
/// CPUs that are nobody's own.
pub(crate) const SHARED_POOL: &str = "shared-pool";
/// Burst from a quota.
pub(crate) const BURST: &str = "burst";
/// `cpu.idle` by class.
pub(crate) const IDLE: &str = "idle";
/// `oom_score_adj` of a container.
pub(crate) const SCORE: &str = "score";
/// `oom_score_adj` of infrastructure.
pub(crate) const INFRASTRUCTURE: &str = "infrastructure";
/// `oom_score_adj` by use, within the burstable band.
pub(crate) const DYNAMIC: &str = "dynamic-score";
/// Memory protection from a request.
pub(crate) const PROTECTION: &str = "protection";
/// Protection of an inner cgroup.
pub(crate) const SUM: &str = "sum-of-children";
/// `memory.high` between request and limit.
pub(crate) const HIGH: &str = "high";
/// `memory.max` from a limit.
pub(crate) const LIMIT: &str = "limit";
/// `memory.oom.group` as asked for.
pub(crate) const OOM_GROUP: &str = "oom-group";
/// Swap limit by class.
pub(crate) const SWAP: &str = "swap";
/// What a protection comes to along its path.
pub(crate) const EFFECTIVE_PROTECTION: &str = "effective-protection";
/// Where a weight competes.
pub(crate) const EFFECTIVE_WEIGHT: &str = "effective-weight";
/// The limit of a container that thrashes at its own.
pub(crate) const THRASH: &str = "thrash";
/// The cap of all workloads.
pub(crate) const CAP: &str = "workloads-cap";
/// One step of a request towards what is recommended.
pub(crate) const OVERLAY_STEP: &str = "overlay-step";
