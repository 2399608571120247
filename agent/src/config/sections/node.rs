//! `[node]`: who this node is, and what it has to give.

use evenkeel_enforce::allocatable::Allocatable;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::resource_type::{CpuConversionFactor, ResourceTypes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::{Amount, Amounts, Definitions};

section! {
    /// Who this node is, and what it has to give.
    Node {
        /// Cluster name, part of every key the recommender stores.
        cluster: String = "default".into(),
        /// Node name; empty takes the host name.
        name: String = String::new(),
        /// What pods may request in sum, by resource, for `evenkeel admit`, admission, and the recommender's answers on capacity:
        /// extended resources such as "nvidia.com/gpu" = 2, or another amount of cpu, memory, ephemeral-storage, pods and hugepages
        /// than the machine has (pods: 110, the kubelet's default).
        allocatable: Amounts = Amounts::default(),
        /// What is kept from that for the system, by resource.
        reserve: Amounts = Amounts::default(),
        /// Speed of a core of this node over that of the canonical one, 0.1 to 10 (the resource model's cpuConversionFactor). What the
        /// recommender is told of CPU is multiplied by it, and what it recommends is divided by it; on this node a core is a core.
        cpu_conversion_factor: Amount = Amount(Quantity::from_units(1)),
    }
}

/// Checks both lists.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Node) -> Allocatable {
    for (key, list) in [("node.allocatable", raw.allocatable.list()), ("node.reserve", raw.reserve.list())] {
        for (name, amount) in list.iter().filter(|(_, amount)| amount.is_negative()) {
            c.fail(key, format!("{name} is {amount}, below zero"), "give zero or more");
        }
    }
    for (name, kept) in raw.reserve.list().iter() {
        if let Some(all) = raw.allocatable.list().get(name).filter(|all| *all < kept) {
            let reason = format!("{kept} of {name} is more than the {all} of node.allocatable");
            c.fail("node.reserve", reason, "keep less, or state more");
        }
    }
    Allocatable { stated: raw.allocatable.list().clone(), reserved: raw.reserve.list().clone() }
}

/// Checks the factor.
pub(in super::super) fn cpu_factor(c: &mut Checker<'_>, raw: &Node) -> CpuConversionFactor {
    CpuConversionFactor::new(raw.cpu_conversion_factor.0).unwrap_or_else(|error| {
        c.fail("node.cpu_conversion_factor", error.to_string(), "give a factor in this range");
        CpuConversionFactor::default()
    })
}

/// Checks the definitions.
pub(in super::super) fn types(c: &mut Checker<'_>, raw: &Definitions) -> ResourceTypes {
    ResourceTypes::with(&raw.0).unwrap_or_else(|errors| {
        for error in errors {
            c.fail("resources", error.to_string(), "correct the definition");
        }
        ResourceTypes::predefined()
    })
}
