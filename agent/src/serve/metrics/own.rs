//! What the agent itself costs, under the names every Prometheus client library uses. Read at a scrape only.

use procfs::process::Process;

use evenkeel_enforce::shared::lock;

use super::page::{FamilyKind, Page, seconds};
use crate::parts::keeper::PartsView;

/// Writes the `process_*` families; one that /proc does not tell is left out.
pub(super) fn process(page: &mut Page) {
    let Ok(own) = Process::myself() else { return };
    if let Ok(stat) = own.stat() {
        let usec = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second().max(1);
        page.family("process_cpu_seconds_total", FamilyKind::Counter, "CPU time the agent used.");
        page.sample("process_cpu_seconds_total", &[], seconds(usec));
        page.family("process_resident_memory_bytes", FamilyKind::Gauge, "Memory the agent has resident.");
        page.sample("process_resident_memory_bytes", &[], stat.rss * procfs::page_size());
    }
    if let Ok(count) = own.fd_count() {
        page.family("process_open_fds", FamilyKind::Gauge, "Descriptors the agent has open.");
        page.sample("process_open_fds", &[], count);
    }
}

/// What the agent's other processes cost, where there are any, and how often each was started again.
pub(super) fn parts(page: &mut Page, view: &PartsView) {
    let parts = lock(view).clone();
    if parts.is_empty() {
        return;
    }
    let stats: Vec<_> = parts
        .iter()
        .filter_map(|(part, state)| {
            let process = Process::new(i32::try_from(state.pid?).ok()?).ok()?;
            Some((part.name(), process.stat().ok()?))
        })
        .collect();
    let (cpu, memory) =
        ("evenkeel_agent_part_cpu_seconds_total", "evenkeel_agent_part_resident_memory_bytes");
    page.family(
        cpu,
        FamilyKind::Counter,
        "CPU time that another process of the agent used since it was started.",
    );
    for (part, stat) in &stats {
        let usec = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second().max(1);
        page.sample(cpu, &[("part", *part)], seconds(usec));
    }
    page.family(memory, FamilyKind::Gauge, "Memory that another process of the agent has resident.");
    for (part, stat) in &stats {
        page.sample(memory, &[("part", *part)], stat.rss * procfs::page_size());
    }
    let restarts = "evenkeel_agent_part_restarts_total";
    page.family(restarts, FamilyKind::Counter, "How often another process of the agent was started again.");
    for (part, state) in &parts {
        page.sample(restarts, &[("part", part.name())], state.restarts);
    }
}
