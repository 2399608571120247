//! Which knob of the kernel is which property of a unit (org.freedesktop.systemd1(5), systemd.resource-control(5)).
//!
//! Pure. A knob without a property here is written directly: `oom_score_adj` belongs to processes, burst is unknown to
//! systemd, `memory.oom.group` follows OOMPolicy=, which cannot be changed while a unit runs.

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_model::units::{Bytes, Limit};

/// First release whose `CPUWeight=` takes `idle` (its NEWS).
const IDLE_SINCE: u32 = 252;
/// `CPUWeight=idle` on the bus.
const IDLE: u64 = 0;
/// "Not set" or "no limit", as the property has it.
const UNSET: u64 = u64::MAX;
/// The kernel's weight for cgroups nobody gave one (cgroup-v2.rst, "CPU Interface Files").
const DEFAULT_WEIGHT: u32 = 100;
const SECOND_USEC: u128 = 1_000_000;

/// A property of a unit with its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Name on the bus.
    pub name: &'static str,
    /// Name in a unit file, and of the drop-in systemd keeps it in.
    pub directive: &'static str,
    /// Value.
    pub value: PropertyValue,
}

/// A property's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    /// A number; `u64::MAX` is "not set" or "no limit".
    Number(u64),
    /// A set, one bit each, lowest first.
    Bits(Vec<u8>),
}

/// What to set so that the kernel holds the setting, or `None` when systemd does not know the knob.
pub(crate) fn properties(setting: &Setting, version: Option<u32>) -> Option<Vec<Property>> {
    let one = |directive, value| Some(vec![number(directive, directive, value)]);
    match setting {
        Setting::CpuWeight(weight) => one("CPUWeight", u64::from(weight.get())),
        Setting::CpuIdle(true) if version >= Some(IDLE_SINCE) => one("CPUWeight", IDLE),
        // A weight ends it too; without one the unit has none, which is the kernel's default.
        Setting::CpuIdle(false) if version >= Some(IDLE_SINCE) => one("CPUWeight", UNSET),
        Setting::CpuMax { quota, period } => Some(vec![
            number("CPUQuotaPeriodUSec", "CPUQuotaPeriodSec", period.get()),
            number(
                "CPUQuotaPerSecUSec",
                "CPUQuota",
                per_second(quota.value().map(|q| q.get()), period.get()),
            ),
        ]),
        Setting::MemoryMin(limit) => one("MemoryMin", bytes(limit)),
        Setting::MemoryLow(limit) => one("MemoryLow", bytes(limit)),
        Setting::MemoryHigh(limit) => one("MemoryHigh", bytes(limit)),
        Setting::MemoryMax(limit) => one("MemoryMax", bytes(limit)),
        Setting::MemorySwapMax(limit) => one("MemorySwapMax", bytes(limit)),
        Setting::CpusetCpus(cpus) => Some(vec![Property {
            name: "AllowedCPUs",
            directive: "AllowedCPUs",
            value: PropertyValue::Bits(bits(cpus.iter())),
        }]),
        _ => None,
    }
}

fn number(name: &'static str, directive: &'static str, value: u64) -> Property {
    Property { name, directive, value: PropertyValue::Number(value) }
}

fn bytes(limit: &Limit<Bytes>) -> u64 {
    match limit {
        Limit::Value(bytes) => bytes.get(),
        Limit::Max => UNSET,
    }
}

/// systemd counts a quota in microseconds for each second, whatever the period. In its drop-in it keeps whole percents
/// of a processor, so a finer quota is a little smaller after a daemon-reload, until the next audit.
fn per_second(quota: Option<u64>, period: u64) -> u64 {
    let Some(quota) = quota else { return UNSET };
    let scaled = u128::from(quota) * SECOND_USEC / u128::from(period.max(1));
    u64::try_from(scaled).unwrap_or(UNSET)
}

fn bits(cpus: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut bits = Vec::new();
    for cpu in cpus {
        if bits.len() <= cpu / 8 {
            bits.resize(cpu / 8 + 1, 0u8);
        }
        bits[cpu / 8] |= 1 << (cpu % 8);
    }
    bits
}

/// The properties of a setting that is the kernel's own default, each not set: what a unit has about which nobody said
/// anything. `None` when it is no default.
pub(crate) fn unset(setting: &Setting) -> Option<Vec<Property>> {
    let one = |directive, value| Some(vec![number(directive, directive, value)]);
    match setting {
        Setting::CpuWeight(weight) if weight.get() == DEFAULT_WEIGHT => one("CPUWeight", UNSET),
        Setting::CpuMax { quota: Limit::Max, .. } => Some(vec![
            number("CPUQuotaPeriodUSec", "CPUQuotaPeriodSec", UNSET),
            number("CPUQuotaPerSecUSec", "CPUQuota", UNSET),
        ]),
        Setting::MemoryMin(limit) if bytes(limit) == 0 => one("MemoryMin", 0),
        Setting::MemoryLow(limit) if bytes(limit) == 0 => one("MemoryLow", 0),
        Setting::MemoryHigh(Limit::Max) => one("MemoryHigh", UNSET),
        Setting::MemoryMax(Limit::Max) => one("MemoryMax", UNSET),
        Setting::MemorySwapMax(Limit::Max) => one("MemorySwapMax", UNSET),
        Setting::CpusetCpus(cpus) if cpus.is_empty() => Some(vec![Property {
            name: "AllowedCPUs",
            directive: "AllowedCPUs",
            value: PropertyValue::Bits(Vec::new()),
        }]),
        _ => None,
    }
}

/// What the kernel gives a unit nobody said anything about: the value before, where the unit's cgroup lacked the
/// controller and setting the property brought it.
pub(crate) fn default_of(knob: Knob) -> Option<Setting> {
    let text = match knob {
        Knob::CpuWeight => "100",
        Knob::CpuMax => "max 100000",
        Knob::MemoryMin | Knob::MemoryLow => "0",
        Knob::MemoryHigh | Knob::MemoryMax | Knob::MemorySwapMax => "max",
        _ => return None,
    };
    knob.parse(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(knob: Knob, text: &str) -> Setting {
        knob.parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn each_knob_systemd_knows_has_its_property() {
        let table = [
            (Knob::CpuWeight, "39", Some(vec![("CPUWeight", 39)])),
            (Knob::CpuIdle, "1", Some(vec![("CPUWeight", 0)])),
            (Knob::CpuIdle, "0", Some(vec![("CPUWeight", UNSET)])),
            (
                Knob::CpuMax,
                "12500 50000",
                Some(vec![("CPUQuotaPeriodUSec", 50_000), ("CPUQuotaPerSecUSec", 250_000)]),
            ),
            (
                Knob::CpuMax,
                "max 100000",
                Some(vec![("CPUQuotaPeriodUSec", 100_000), ("CPUQuotaPerSecUSec", UNSET)]),
            ),
            (Knob::MemoryMin, "4096", Some(vec![("MemoryMin", 4096)])),
            (Knob::MemoryLow, "max", Some(vec![("MemoryLow", UNSET)])),
            (Knob::MemoryHigh, "8192", Some(vec![("MemoryHigh", 8192)])),
            (Knob::MemoryMax, "max", Some(vec![("MemoryMax", UNSET)])),
            (Knob::MemorySwapMax, "0", Some(vec![("MemorySwapMax", 0)])),
            (Knob::MemoryOomGroup, "1", None),
            (Knob::OomScoreAdj, "-999", None),
            (Knob::CpuShares, "1024", None),
            (Knob::CgroupFreeze, "1", None),
            (Knob::CpuMaxBurst, "1000", None),
        ];
        for (knob, text, want) in table {
            let got = properties(&parsed(knob, text), Some(252));
            let want = want.map(|all| {
                all.into_iter().map(|(name, value)| (name, PropertyValue::Number(value))).collect::<Vec<_>>()
            });
            assert_eq!(
                got.map(|all| all.into_iter().map(|p| (p.name, p.value)).collect()),
                want,
                "{knob} {text}"
            );
        }
    }

    #[test]
    fn processors_are_bits_lowest_first() {
        let cpus = properties(&parsed(Knob::CpusetCpus, "0-1,9"), None).unwrap();
        assert_eq!(cpus[0].value, PropertyValue::Bits(vec![0b11, 0b10]));
    }

    #[test]
    fn an_old_systemd_does_not_know_idle() {
        assert_eq!(properties(&parsed(Knob::CpuIdle, "1"), Some(251)), None);
        assert_eq!(properties(&parsed(Knob::CpuIdle, "1"), None), None);
    }

    #[test]
    fn what_a_unit_is_assumed_to_have_had_is_unset_again() {
        for knob in [Knob::CpuWeight, Knob::CpuMax, Knob::MemoryLow, Knob::MemoryMax, Knob::MemorySwapMax] {
            assert!(unset(&default_of(knob).unwrap()).is_some(), "{knob}");
        }
        assert_eq!(default_of(Knob::MemoryOomGroup), None);
    }

    #[test]
    fn only_the_kernels_defaults_are_unset() {
        assert_eq!(unset(&parsed(Knob::CpuWeight, "100")).unwrap()[0].value, PropertyValue::Number(UNSET));
        assert_eq!(unset(&parsed(Knob::MemoryLow, "0")).unwrap()[0].value, PropertyValue::Number(0));
        assert_eq!(unset(&parsed(Knob::CpuMax, "max 100000")).unwrap().len(), 2);
        assert_eq!(unset(&parsed(Knob::CpuWeight, "200")), None);
        assert_eq!(unset(&parsed(Knob::MemoryMax, "4096")), None);
    }
}
