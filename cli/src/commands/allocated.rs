//! What containers have of a node, namespace or cluster: forms shared by `nodes` and `namespaces`.

use std::collections::BTreeMap;

use evenkeel_proto::v1;
use serde::Serialize;

use crate::table::{Cell, Tone};
use crate::units;

/// What the containers that run in one place have.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Allocated {
    pods: u32,
    containers: u32,
    cpu_milli: ResourceTotals,
    memory_bytes: ResourceTotals,
    /// Other resources by name, as quantities.
    others: BTreeMap<String, Other>,
}

/// Sums of a resource that is neither.
#[derive(Serialize)]
struct Other {
    allocatable: Option<String>,
    requested: String,
}

/// Sums of one resource.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceTotals {
    allocatable: Option<u64>,
    requested: u64,
    limited: u64,
    unlimited: u32,
    used: u64,
    recommended: u64,
    recommended_containers: u32,
    quota_requests: Option<u64>,
    quota_limits: Option<u64>,
}

impl From<v1::AllocatedResource> for ResourceTotals {
    fn from(sum: v1::AllocatedResource) -> Self {
        Self {
            allocatable: sum.allocatable,
            requested: sum.requested,
            limited: sum.limited,
            unlimited: sum.unlimited,
            used: sum.used,
            recommended: sum.recommended,
            recommended_containers: sum.recommended_containers,
            quota_requests: sum.quota_requests,
            quota_limits: sum.quota_limits,
        }
    }
}

impl From<v1::AllocatedAmount> for Other {
    fn from(sum: v1::AllocatedAmount) -> Self {
        let allocatable = (!sum.allocatable.is_empty()).then_some(sum.allocatable);
        Self { allocatable, requested: sum.requested }
    }
}

impl From<v1::Allocated> for Allocated {
    fn from(sums: v1::Allocated) -> Self {
        Self {
            pods: sums.pods,
            containers: sums.containers,
            cpu_milli: sums.cpu.unwrap_or_default().into(),
            memory_bytes: sums.memory.unwrap_or_default().into(),
            others: sums.others.into_iter().map(|(name, sum)| (name, sum.into())).collect(),
        }
    }
}

impl Allocated {
    /// Pods and containers.
    pub(crate) fn counts(&self) -> [String; 2] {
        [self.pods.to_string(), self.containers.to_string()]
    }

    /// Other resources: what is requested of what there is.
    pub(crate) fn others(&self) -> String {
        let told = |(name, sum): (&String, &Other)| match &sum.allocatable {
            Some(all) => format!("{name} {} of {all}", sum.requested),
            None => format!("{name} {}", sum.requested),
        };
        self.others.iter().map(told).collect::<Vec<_>>().join(", ")
    }
}

/// Titles of [`cells`], for each resource.
const TITLES: [&str; 4] = ["OF", "REQUESTED", "USED", "RECOMMENDED"];
/// The same in wide tables, after them.
const WIDE_TITLES: [&str; 2] = ["LIMITED", "LIMITED-OF"];

/// Titles of both resources, such as CPU-REQUESTED.
pub(crate) fn titles(wide: bool) -> Vec<String> {
    let of = |resource: &str| {
        let wide: &[&str] = if wide { &WIDE_TITLES } else { &[] };
        TITLES.iter().chain(wide).map(|title| format!("{resource}-{title}")).collect::<Vec<_>>()
    };
    [of("CPU"), of("MEM")].concat()
}

/// Cells of both resources; of nothing where nothing is known.
pub(crate) fn cells(allocated: Option<&Allocated>, wide: bool) -> Vec<Cell> {
    let of = |sums: Option<&ResourceTotals>, text: fn(u64) -> String| {
        let Some(sums) = sums else { return vec![Cell::from("-"); if wide { 6 } else { 4 }] };
        let most = sums.allocatable.or(sums.quota_requests);
        let share = |amount: u64| with_share(amount, most, text);
        let mut cells = vec![
            most.map_or("-".into(), text).into(),
            share(sums.requested),
            share(sums.used),
            share(sums.recommended),
        ];
        if wide {
            // A plus: there are containers without a limit.
            let limited = text(sums.limited) + if sums.unlimited > 0 { "+" } else { "" };
            let most = sums.allocatable.or(sums.quota_limits);
            cells.extend([limited.into(), most.map_or("-".into(), text).into()]);
        }
        cells
    };
    let cpu = of(allocated.map(|all| &all.cpu_milli), units::cpu);
    [cpu, of(allocated.map(|all| &all.memory_bytes), units::bytes)].concat()
}

/// The cell of other resources.
pub(crate) fn others(allocated: Option<&Allocated>) -> Cell {
    let others = allocated.map(Allocated::others).unwrap_or_default();
    if others.is_empty() { "-".into() } else { others.into() }
}

/// An amount with its part of the most there is.
fn with_share(amount: u64, most: Option<u64>, text: fn(u64) -> String) -> Cell {
    let Some(most) = most.filter(|most| *most > 0) else { return text(amount).into() };
    let percent = u128::from(amount) * 100 / u128::from(most);
    let shown = format!("{} ({percent}%)", text(amount));
    if percent > 100 { Cell::toned(shown, Tone::Warn) } else { shown.into() }
}
