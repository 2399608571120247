//! What the agent itself costs, under the names every Prometheus client library uses. Read at a scrape only.

use procfs::process::{Process, Stat};

use evenkeel_enforce::shared::lock;
use evenkeel_metrics::{FamilyKind, Number, Page};

use crate::parts::keeper::PartsView;

/// Writes the `process_*` families; one that /proc does not tell is left out.
pub(super) fn process(page: &mut Page) {
    let Ok(own) = Process::myself() else { return };
    // Under the names of Prometheus' own libraries, which have no program's before them.
    let mut process = Page::default();
    if let Ok(stat) = own.stat() {
        process.counter("process_cpu_seconds", "CPU time the agent used.", cpu(&stat));
        process.gauge(
            "process_resident_memory_bytes",
            "Memory the agent has resident.",
            stat.rss * procfs::page_size(),
        );
    }
    if let Ok(count) = own.fd_count() {
        process.gauge("process_open_fds", "Descriptors the agent has open.", count as u64);
    }
    page.append(&process);
}

fn cpu(stat: &Stat) -> Number {
    Number::seconds((stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second().max(1))
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
    page.by(
        FamilyKind::Counter,
        "part_cpu_seconds",
        "CPU time that another process of the agent used since it was started.",
        "part",
        stats.iter().map(|(part, stat)| (*part, cpu(stat))),
    );
    page.by(
        FamilyKind::Gauge,
        "part_resident_memory_bytes",
        "Memory that another process of the agent has resident.",
        "part",
        stats.iter().map(|(part, stat)| (*part, stat.rss * procfs::page_size())),
    );
    page.by(
        FamilyKind::Counter,
        "part_restarts",
        "How often another process of the agent was started again.",
        "part",
        parts.iter().map(|(part, state)| (part.name(), state.restarts)),
    );
}
