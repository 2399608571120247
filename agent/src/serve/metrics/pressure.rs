//! Pressure in metrics.

use evenkeel_enforce::pressure::view::PressureStats;
use evenkeel_metrics::{FamilyKind, Page};
use evenkeel_qos::pressure::Rung;

use super::buckets;

/// Everything about pressure.
pub(super) fn render(page: &mut Page, stats: &PressureStats) {
    let (counter, gauge) = (FamilyKind::Counter, FamilyKind::Gauge);
    let rows = [
        ("grade", gauge, "Memory pressure of the node: 0 calm, 1 warning, 2 high, 3 critical.", &stats.grade),
        ("glances", counter, "Cheap looks at the node's memory.", &stats.glances),
        ("looks", counter, "Looks at every container's memory.", &stats.looks),
        ("triggers", counter, "Pressure triggers of the kernel that fired.", &stats.triggers),
        ("releases", counter, "Steps undone.", &stats.releases),
        ("squeezes", counter, "Steps that took CPU from a container for a starving one.", &stats.squeezes),
        ("failures", counter, "Steps that failed.", &stats.failures),
        ("deferred", counter, "Steps put off because the worker was behind.", &stats.deferred),
        ("reclaimed_bytes", counter, "Bytes reclaimed on request.", &stats.reclaimed_bytes),
        ("held", gauge, "Settings in force for a while.", &stats.held),
        (
            "thrashing_containers",
            gauge,
            "Containers that thrash at their own memory limits.",
            &stats.thrashing,
        ),
        ("starving_containers", gauge, "Containers that do not get the CPU they requested.", &stats.starving),
    ];
    for (name, kind, help, count) in rows {
        page.one(kind, &format!("pressure_{name}"), help, count.get());
    }
    let steps = Rung::ALL.map(|rung| (rung.as_str(), stats.steps[rung as usize].get()));
    page.by(counter, "pressure_steps", "Steps taken, by rung.", "rung", steps);
    page.histogram(
        "pressure_first_write_seconds",
        "Time from a pressure trigger's poll returning to the first write completed.",
        buckets(&stats.first_write),
    );
    let last = stats.first_write_last_usec.get();
    page.gauge("pressure_first_write_last_microseconds", "The same of the last time.", last);
}
