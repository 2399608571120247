//! What the agent itself costs, under the names every Prometheus client library uses. Read at a scrape only.

use procfs::process::Process;

use super::page::{Kind, Page, seconds};

/// Writes the `process_*` families; one that /proc does not tell is left out.
pub(super) fn process(page: &mut Page) {
    let Ok(own) = Process::myself() else { return };
    if let Ok(stat) = own.stat() {
        let usec = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second().max(1);
        page.family("process_cpu_seconds_total", Kind::Counter, "CPU time the agent used.");
        page.sample("process_cpu_seconds_total", &[], seconds(usec));
        page.family("process_resident_memory_bytes", Kind::Gauge, "Memory the agent has resident.");
        page.sample("process_resident_memory_bytes", &[], stat.rss * procfs::page_size());
    }
    if let Ok(count) = own.fd_count() {
        page.family("process_open_fds", Kind::Gauge, "Descriptors the agent has open.");
        page.sample("process_open_fds", &[], count);
    }
}
