//! Shares, weight, quota, burst, idle and processors.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Limit, MilliCpu};
use serde::{Deserialize, Serialize};

use super::flat::{Unreadable, text};
use crate::config::CpuPeriod;
use crate::cores::{CpuList, pick, read_topology};
use crate::cpu::{CpuQuota, WeightConversion, shares_from_milli};
use crate::fair::{Competitor, Level, Scale};
use crate::own::{LEAST_REQUEST, scaled_weight};

/// The knob of v1.
const SHARES: &str = "cpu.shares";

/// Where the CPU request comes from that a weight or shares follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// The container requests it.
    #[default]
    Request,
    /// Its limit is taken in place of a request.
    Limit,
    /// Its pod requests it as a whole.
    Pod,
    /// Nothing is requested.
    Nothing,
    /// A runtime's record shows it.
    Record,
}

impl Origin {
    const fn words(self) -> &'static str {
        match self {
            Self::Request => "cpu request",
            Self::Limit => "cpu limit, in place of a request",
            Self::Pod => "cpu request of the pod",
            Self::Nothing => "no cpu request: the least",
            Self::Record => "cpu request, estimated",
        }
    }
}

/// What an inner cgroup of an owned subtree adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// Containers below it.
    pub leaves: u64,
    /// Their requests.
    pub requests_sum_milli: MilliCpu,
}

const ADDED_UP: &str = "CPU requests of the containers below it, added up, so that levels compare";

/// `cpu.shares` from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// The request.
    pub cpu_request_milli: MilliCpu,
    /// For an inner cgroup, what it adds up.
    #[serde(flatten)]
    pub below: Option<Below>,
    /// Whose request it is; told in the text alone.
    #[serde(skip)]
    pub origin: Origin,
}

impl Shares {
    pub(super) fn text(&self) -> String {
        if self.below.is_some() {
            return ADDED_UP.to_owned();
        }
        let milli = self.cpu_request_milli.get();
        format!("{}: {milli}m x 1024 / 1000, within 2..262144", self.origin.words())
    }

    pub(crate) fn again(&self) -> String {
        shares_from_milli(self.cpu_request_milli).to_string()
    }
}

/// `cpu.weight` from a request by way of shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// The request.
    pub cpu_request_milli: MilliCpu,
    /// Its shares.
    pub cpu_shares: Option<u32>,
    /// How shares become a weight.
    pub conversion: WeightConversion,
    /// For an inner cgroup, what it adds up.
    #[serde(flatten)]
    pub below: Option<Below>,
    /// Whose request it is; told in the text alone.
    #[serde(skip)]
    pub origin: Origin,
}

impl Weight {
    pub(super) fn text(&self) -> String {
        if self.below.is_some() {
            return ADDED_UP.to_owned();
        }
        let shares = shares_from_milli(self.cpu_request_milli);
        format!("{}: {shares} shares by the {} conversion", self.origin.words(), self.conversion)
    }

    /// A weight of v2; on v1 the same request is shares, whatever the conversion.
    pub(crate) fn again(&self, knob: &str) -> String {
        match knob {
            SHARES => shares_from_milli(self.cpu_request_milli).to_string(),
            _ => self.conversion.weight_from_milli(self.cpu_request_milli).to_string(),
        }
    }
}

/// `cpu.weight` in an owned subtree, in proportion to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaledWeight {
    /// The request.
    pub cpu_request_milli: MilliCpu,
    /// CPU of the node, which is the largest weight.
    pub node_cpu_milli: MilliCpu,
    /// For an inner cgroup, what it adds up.
    #[serde(flatten)]
    pub below: Option<Below>,
}

impl ScaledWeight {
    pub(super) fn text(&self) -> String {
        if self.below.is_some() {
            return ADDED_UP.to_owned();
        }
        let (milli, node) = (self.cpu_request_milli.max(LEAST_REQUEST).get(), self.node_cpu_milli.get());
        format!("owned subtree: {milli}m x 10000 / {node}m, in proportion to its siblings")
    }

    /// As for [`Weight`].
    pub(crate) fn again(&self, knob: &str) -> String {
        match knob {
            SHARES => shares_from_milli(self.cpu_request_milli).to_string(),
            _ => scaled_weight(self.cpu_request_milli, self.node_cpu_milli).to_string(),
        }
    }
}

/// Shares or weight of the fair mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairPart {
    /// Its request.
    pub cpu_request_milli: MilliCpu,
    /// It takes part in the excess.
    pub active: bool,
    /// What it and its siblings share.
    #[serde(flatten)]
    pub level: Level,
    /// How a target becomes a value.
    #[serde(with = "text")]
    pub scale: Scale,
}

impl FairPart {
    pub(super) fn text(&self) -> String {
        let Self { cpu_request_milli: request, level, .. } = self;
        if !self.active {
            return format!("fair excess: idle, so its request {request} alone, at least enough to wake");
        }
        let (part, capacity) = (level.equal_part().milli(), level.capacity.milli());
        format!(
            "fair excess: request {request} and an equal part of what {} active siblings leave, {part} of {capacity}",
            level.active
        )
    }

    pub(crate) fn again(&self, knob: &str) -> String {
        let one = Competitor { request: self.cpu_request_milli, is_active: self.active };
        let target = self.level.target(one);
        match knob {
            SHARES => self.scale.shares(target).to_string(),
            _ => self.scale.weight(target).to_string(),
        }
    }
}

/// CPU quota from a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Length of a period.
    pub period_usec: u64,
    /// The limit.
    pub cpu_limit_milli: Option<MilliCpu>,
    /// CPUs it has to itself, for which it has no quota.
    pub cpus: Option<CpuList>,
    /// The limit is that of its pod; told in the text alone.
    #[serde(skip)]
    pub of_pod: bool,
}

impl Quota {
    pub(super) fn text(&self) -> String {
        let whose = if self.of_pod { "cpu limit of the pod" } else { "cpu limit" };
        match (self.cpu_limit_milli, &self.cpus) {
            (_, Some(cpus)) => format!("no quota: it has cpus {cpus} to itself"),
            (Some(limit), None) => format!("{whose}: {}m of each {} us", limit.get(), self.period_usec),
            (None, None) => "no cpu limit".to_owned(),
        }
    }

    /// One rule, three files: quota and period together on v2, each alone on v1.
    pub(crate) fn again(&self, knob: &str) -> Result<String, Unreadable> {
        let period = CpuPeriod::new(self.period_usec).map_err(|e| Unreadable::new(e.to_string()))?.usec();
        let quota = CpuQuota::from_limit(self.cpu_limit_milli, period);
        Ok(match (knob, quota.quota_usec) {
            ("cpu.cfs_period_us", _) => period.to_string(),
            ("cpu.cfs_quota_us", Limit::Max) => "-1".to_owned(),
            ("cpu.cfs_quota_us", Limit::Value(usec)) => usec.to_string(),
            (_, usec) => format!("{usec} {period}"),
        })
    }
}

/// Burst from a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Part of the quota that may be saved up.
    pub burst_percent: u16,
    /// The quota.
    pub quota_usec: Option<u64>,
}

impl Burst {
    pub(super) fn text(&self) -> String {
        format!("{} % of the quota may be saved up while it is not used", self.burst_percent)
    }

    pub(crate) fn again(&self) -> String {
        let quota_usec = self.quota_usec.map_or(Limit::Max, Limit::Value);
        let quota = CpuQuota { quota_usec, period_usec: CpuPeriod::default().usec() };
        quota.burst(self.burst_percent).unwrap_or(0).to_string()
    }
}

/// `cpu.idle` by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// The class by CPU.
    pub class: QosClass,
}

impl Idle {
    pub(super) fn text(&self) -> String {
        format!("{} by cpu: runs only when nobody else wants to", self.class)
    }

    pub(crate) fn again(&self) -> String {
        u8::from(self.class == QosClass::BestEffort).to_string()
    }
}

/// CPUs of one's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusiveCores {
    /// How many.
    pub count: usize,
    /// It has had these before.
    pub kept: Option<CpuList>,
    /// CPUs that were free, where it has not.
    pub free: Option<CpuList>,
    /// Every CPU with its place in the machine, likewise.
    pub topology: Option<String>,
}

impl ExclusiveCores {
    pub(super) fn text(&self) -> String {
        match self.kept {
            Some(_) => format!("Guaranteed with whole cores: keeps its {}", self.count),
            None => format!("Guaranteed with whole cores: {} of its own", self.count),
        }
    }

    pub(crate) fn again(&self) -> Result<String, Unreadable> {
        if let Some(kept) = &self.kept {
            return Ok(kept.to_string());
        }
        let lacks = |name| Unreadable::new(format!("its inputs lack {name}"));
        let text = self.topology.as_deref().ok_or_else(|| lacks("topology"))?;
        let all = read_topology(text)
            .ok_or_else(|| Unreadable::new(format!("its input topology cannot be read: {text}")))?;
        let free = self.free.as_ref().ok_or_else(|| lacks("free"))?;
        let free: Vec<_> = all.iter().copied().filter(|cpu| free.contains(cpu.id)).collect();
        Ok(pick(self.count, &free, &all).map_or_else(|| "none".to_owned(), |cpus| cpus.to_string()))
    }
}

/// CPUs that are nobody's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPool {
    /// Every CPU.
    pub online: CpuList,
    /// Those that somebody has to itself.
    pub taken: CpuList,
    /// Why this container has none, where it asked; told in the text alone.
    #[serde(skip)]
    pub refused: Option<Box<str>>,
}

impl SharedPool {
    pub(super) fn text(&self) -> String {
        match &self.refused {
            Some(why) => format!("shared pool: {why}"),
            None => "shared pool: the cpus nobody has to itself".to_owned(),
        }
    }

    pub(crate) fn again(&self) -> String {
        self.online.without(&self.taken).to_string()
    }
}
