//! Pressure in metrics.

use evenkeel_enforce::pressure::view::PressureStats;
use evenkeel_qos::pressure::Rung;

use super::page::{FamilyKind, Page};

/// Everything about pressure.
pub(super) fn render(page: &mut Page, stats: &PressureStats) {
    let (counter, gauge) = (FamilyKind::Counter, FamilyKind::Gauge);
    let rows = [
        ("grade", gauge, "Memory pressure of the node: 0 calm, 1 warning, 2 high, 3 critical.", &stats.grade),
        ("glances_total", counter, "Cheap looks at the node's memory.", &stats.glances),
        ("looks_total", counter, "Looks at every container's memory.", &stats.looks),
        ("triggers_total", counter, "Pressure triggers of the kernel that fired.", &stats.triggers),
        ("releases_total", counter, "Steps undone.", &stats.releases),
        (
            "squeezes_total",
            counter,
            "Steps that took CPU from a container for a starving one.",
            &stats.squeezes,
        ),
        ("failures_total", counter, "Steps that failed.", &stats.failures),
        ("deferred_total", counter, "Steps put off because the worker was behind.", &stats.deferred),
        ("reclaimed_bytes_total", counter, "Bytes reclaimed on request.", &stats.reclaimed_bytes),
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
        let name = format!("evenkeel_agent_pressure_{name}");
        page.family(&name, kind, help);
        page.sample(&name, &[], count.get());
    }
    let name = "evenkeel_agent_pressure_steps_total";
    page.family(name, counter, "Steps taken, by rung.");
    for rung in Rung::ALL {
        page.sample(name, &[("rung", rung.as_str())], stats.steps[rung as usize].get());
    }
    page.histogram(
        "evenkeel_agent_pressure_first_write_seconds",
        "Time from a pressure trigger's poll returning to the first write completed.",
        &stats.first_write,
    );
    let name = "evenkeel_agent_pressure_first_write_last_microseconds";
    page.family(name, gauge, "The same of the last time.");
    page.sample(name, &[], stats.first_write_last_usec.get());
}
