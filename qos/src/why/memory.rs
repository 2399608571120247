//! Protection, limits and swap.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_model::workload::OomKill;
use serde::{Deserialize, Serialize};

use super::flat::Unreadable;
use crate::config::MemoryHighFactor;
use crate::effective::ProtectionKnob;
use crate::memory::{self, Protection};

/// A limit as the knob's file has it: v1 writes -1 where v2 writes max.
fn limit_text(limit: Limit<Bytes>, knob: &str) -> String {
    match limit {
        Limit::Value(bytes) => bytes.get().to_string(),
        Limit::Max if knob.ends_with("_in_bytes") => "-1".to_owned(),
        Limit::Max => "max".to_owned(),
    }
}

/// Memory protection from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryProtection {
    /// The class.
    pub class: QosClass,
    /// The request.
    pub memory_request: Bytes,
    /// Page size.
    pub page: Bytes,
}

impl MemoryProtection {
    /// Which protection it is; `None` where it has none.
    pub fn made(&self) -> Option<Protection> {
        memory::protection(self.class, self.memory_request, self.page)
    }

    pub(super) fn text(&self) -> String {
        let how = if self.class == QosClass::Guaranteed { "never reclaimed" } else { "reclaimed last" };
        format!("{}: the memory request is {how}, in whole pages", self.class)
    }

    /// The one value of the class; on v1 it is the soft limit, whichever kind it is.
    pub(crate) fn again(&self, knob: &str) -> String {
        let value = match (knob, self.made()) {
            ("memory.low", Some(Protection::Min(_)))
            | ("memory.min", Some(Protection::Low(_)))
            | (_, None) => Bytes::ZERO,
            (_, Some(Protection::Min(bytes) | Protection::Low(bytes))) => bytes,
        };
        value.get().to_string()
    }
}

/// Protection of an inner cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerProtection {
    /// Containers below it.
    pub leaves: u64,
    /// What they are promised.
    pub children_sum: Bytes,
    /// Which protection; told in the text alone.
    #[serde(skip)]
    pub of: ProtectionKnob,
}

impl InnerProtection {
    pub(super) fn text(&self) -> String {
        format!("{} of the containers below it, added up, or theirs would not hold", self.of.name())
    }

    pub(crate) fn again(&self) -> String {
        self.children_sum.get().to_string()
    }
}

/// `memory.high` between request and limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct High {
    /// The request.
    pub memory_request: Bytes,
    /// The limit.
    pub memory_limit: Option<Bytes>,
    /// Memory of the machine, which stands for a limit.
    pub memory_capacity: Bytes,
    /// How far from request to limit.
    pub factor_permille: u16,
    /// Page size.
    pub page: Bytes,
}

impl High {
    /// The value; `None` where it is not written.
    pub fn value(&self, factor: MemoryHighFactor) -> Option<Bytes> {
        memory::high(self.memory_request, self.memory_limit, self.memory_capacity, factor, self.page)
    }

    pub(super) fn text(&self) -> String {
        let upper = if self.memory_limit.is_some() { "limit" } else { "machine's memory" };
        format!("{} thousandths of the way from request to {upper}", self.factor_permille)
    }

    pub(crate) fn again(&self) -> Result<String, Unreadable> {
        let factor =
            MemoryHighFactor::new(self.factor_permille).map_err(|e| Unreadable::new(e.to_string()))?;
        Ok(self.value(factor).map_or_else(|| "max".to_owned(), |bytes| bytes.get().to_string()))
    }
}

/// `memory.max` from a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The limit.
    pub memory_limit: Option<Bytes>,
    /// Page size.
    pub page: Bytes,
    /// The limit is that of its pod; told in the text alone.
    #[serde(skip)]
    pub of_pod: bool,
}

impl MemoryLimit {
    pub(super) fn text(&self) -> String {
        let text = match self.memory_limit {
            Some(_) if self.of_pod => "memory limit of the pod, in whole pages",
            Some(_) => "memory limit, in whole pages",
            None => "no memory limit",
        };
        text.to_owned()
    }

    pub(crate) fn again(&self, knob: &str) -> String {
        limit_text(memory::max(self.memory_limit, self.page), knob)
    }
}

/// `memory.oom.group` as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomGroup {
    /// What an OOM kill takes.
    pub oom_kill: OomKill,
    /// Its pod asked for it, not the node's configuration; told in the text alone.
    #[serde(skip)]
    pub by_pod: bool,
}

impl OomGroup {
    pub(super) fn text(&self) -> String {
        let who = if self.by_pod { "asked for by its pod" } else { "the node's default" };
        match self.oom_kill {
            OomKill::Container => format!("an OOM kill takes the whole container: {who}"),
            OomKill::Process => format!("an OOM kill takes one process: {who}"),
        }
    }

    pub(crate) fn again(&self) -> String {
        u8::from(self.oom_kill == OomKill::Container).to_string()
    }
}

/// Swap limit by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The class.
    pub class: QosClass,
    /// The request.
    pub memory_request: Bytes,
    /// The limit.
    pub memory_limit: Option<Bytes>,
    /// Memory of the machine.
    pub memory_capacity: Bytes,
    /// Swap of the machine.
    pub swap_total: Bytes,
    /// Page size.
    pub page: Bytes,
}

impl Swap {
    /// Swap it may use.
    pub fn value(&self) -> Bytes {
        let Self { class, memory_request, memory_limit, memory_capacity, swap_total, page } = *self;
        memory::swap(class, memory_request, memory_limit, memory_capacity, swap_total, page)
    }

    pub(super) fn text(&self) -> String {
        if self.value().is_zero() {
            return format!("{}: no swap, so that its memory is memory", self.class);
        }
        let (request, capacity) = (self.memory_request.get(), self.memory_capacity.get());
        format!("Burstable: swap x {request} / {capacity}, in whole pages")
    }

    /// Swap alone on v2; on v1 memory and swap together.
    pub(crate) fn again(&self, knob: &str) -> String {
        let swap = match knob {
            "memory.memsw.limit_in_bytes" => {
                memory::with_swap(memory::max(self.memory_limit, self.page), self.value())
            }
            _ => Limit::Value(self.value()),
        };
        limit_text(swap, knob)
    }
}
