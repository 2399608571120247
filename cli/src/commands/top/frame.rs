//! Owns one second of all containers: in its pinned form, sorted, and as a table.

use evenkeel_proto::v1::{ContainerUsage, Traffic};
use serde::Serialize;

use super::Sort;
use crate::table::{Cell, Table};
use crate::{units, wire};

/// One second of all containers.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frame {
    /// Microseconds since 1970; 0 without containers.
    #[serde(skip)]
    pub(super) time_usec: u64,
    pub(super) time: Option<String>,
    pub(super) containers: Vec<TopRow>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopRow {
    /// Of which node, where more than one is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) id: String,
    pub(super) qos_class: Option<&'static str>,
    pub(super) interval_usec: u32,
    pub(super) cpu_milli: Option<u64>,
    pub(super) cpu_request_milli: Option<u64>,
    pub(super) memory_working_set_bytes: Option<u64>,
    pub(super) memory_current_bytes: Option<u64>,
    pub(super) memory_anon_bytes: Option<u64>,
    pub(super) memory_request_bytes: Option<u64>,
    pub(super) swap_bytes: Option<u64>,
    pub(super) throttled_usec: Option<u64>,
    pub(super) cpu_pressure_usec: Option<u64>,
    pub(super) memory_pressure_usec: Option<u64>,
    pub(super) io_pressure_usec: Option<u64>,
    pub(super) oom_kills: Option<u64>,
    pub(super) processes: Option<u64>,
    pub(super) traffic: Option<TrafficRow>,
}

/// Block I/O of a container and network of its pod, in the last look of the agent.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrafficRow {
    pub(super) span_usec: u64,
    pub(super) read_bytes: Option<u64>,
    pub(super) written_bytes: Option<u64>,
    pub(super) reads: Option<u64>,
    pub(super) writes: Option<u64>,
    pub(super) received_bytes: Option<u64>,
    pub(super) sent_bytes: Option<u64>,
    pub(super) received_packets: Option<u64>,
    pub(super) sent_packets: Option<u64>,
    pub(super) host_network: bool,
}

impl From<Traffic> for TrafficRow {
    fn from(t: Traffic) -> Self {
        Self {
            span_usec: t.span_usec,
            read_bytes: t.block.map(|io| io.read_bytes),
            written_bytes: t.block.map(|io| io.written_bytes),
            reads: t.block.map(|io| io.reads),
            writes: t.block.map(|io| io.writes),
            received_bytes: t.network.map(|io| io.received_bytes),
            sent_bytes: t.network.map(|io| io.sent_bytes),
            received_packets: t.network.map(|io| io.received_packets),
            sent_packets: t.network.map(|io| io.sent_packets),
            host_network: t.host_network,
        }
    }
}

impl TrafficRow {
    /// Bytes a second read and written.
    pub(super) fn io(&self) -> u64 {
        let bytes = self.read_bytes.unwrap_or(0).saturating_add(self.written_bytes.unwrap_or(0));
        bytes.saturating_mul(1_000_000).checked_div(self.span_usec).unwrap_or(0)
    }

    /// Bytes a second read, written, received and sent, as people read them.
    pub(super) fn cells(&self) -> [Cell; 4] {
        let rate = |bytes: Option<u64>, none: &str| {
            let per_second = |bytes: u64| (bytes.saturating_mul(1_000_000)).checked_div(self.span_usec);
            Cell::from(bytes.and_then(per_second).map_or(none.to_owned(), units::bytes))
        };
        let none = if self.host_network { "host" } else { "-" };
        [
            rate(self.read_bytes, "-"),
            rate(self.written_bytes, "-"),
            rate(self.received_bytes, none),
            rate(self.sent_bytes, none),
        ]
    }
}

impl From<ContainerUsage> for TopRow {
    fn from(usage: ContainerUsage) -> Self {
        let identity = usage.identity.unwrap_or_default();
        let sample = usage.sample.unwrap_or_default();
        Self {
            node: None,
            pod: wire::pod(&identity),
            qos_class: wire::class(identity.memory_class),
            cpu_request_milli: identity.requested.and_then(|r| r.cpu_request_milli),
            memory_request_bytes: identity.requested.and_then(|r| r.memory_request_bytes),
            container: identity.container,
            id: identity.id,
            interval_usec: sample.interval_usec,
            cpu_milli: usage.cpu_milli,
            memory_working_set_bytes: sample.memory_working_set_bytes,
            memory_current_bytes: sample.memory_current_bytes,
            memory_anon_bytes: sample.memory_anon_bytes,
            swap_bytes: sample.swap_bytes,
            throttled_usec: sample.cpu_throttled_usec,
            cpu_pressure_usec: sample.cpu_pressure_usec,
            memory_pressure_usec: sample.memory_pressure_usec,
            io_pressure_usec: sample.io_pressure_usec,
            oom_kills: sample.oom_kills,
            processes: sample.pids,
            traffic: usage.traffic.map(TrafficRow::from),
        }
    }
}

impl Frame {
    /// All containers of a second, by name.
    pub(super) fn new(containers: Vec<ContainerUsage>, with_node: bool) -> Self {
        let time = containers.iter().map(|c| c.time_usec).max();
        let row = |usage: ContainerUsage| {
            let node = with_node.then(|| usage.node.clone());
            TopRow { node, ..TopRow::from(usage) }
        };
        let mut containers: Vec<TopRow> = containers.into_iter().map(row).collect();
        containers.sort_by(|a, b| {
            (&a.node, &a.pod, &a.container, &a.id).cmp(&(&b.node, &b.pod, &b.container, &b.id))
        });
        Self { time_usec: time.unwrap_or(0), time: time.and_then(wire::time), containers }
    }

    /// Leaves only rows that have a text in them, and sorts these.
    pub(super) fn arrange(&mut self, sort: Sort, filter: &str) {
        if !filter.is_empty() {
            self.containers.retain(|row| row.has(filter));
        }
        // The sort is stable, so that equal rows keep the order of their names.
        let rows = &mut self.containers;
        match sort {
            Sort::Name => {}
            Sort::Cpu => rows.sort_by_key(|r| std::cmp::Reverse(r.cpu_milli)),
            Sort::Memory => rows.sort_by_key(|r| std::cmp::Reverse(memory(r))),
            Sort::Over => rows.sort_by_key(|r| std::cmp::Reverse(over(r))),
            Sort::Throttling => rows.sort_by_key(|r| std::cmp::Reverse(r.throttled_usec)),
            Sort::Stall => rows.sort_by_key(|r| std::cmp::Reverse(r.memory_pressure_usec)),
            Sort::Io => rows.sort_by_key(|r| std::cmp::Reverse(r.traffic.as_ref().map(TrafficRow::io))),
            Sort::Oom => rows.sort_by_key(|r| std::cmp::Reverse(r.oom_kills)),
        }
    }
}

impl TopRow {
    /// Whether node, pod, container or class has a text in it, in any case.
    pub(super) fn has(&self, filter: &str) -> bool {
        let filter = filter.to_lowercase();
        let words = [self.node.as_deref(), Some(&self.pod), Some(&self.container), self.qos_class];
        words.into_iter().flatten().any(|word| word.to_lowercase().contains(&filter))
    }
}

pub(super) fn memory(row: &TopRow) -> Option<u64> {
    row.memory_working_set_bytes.or(row.memory_current_bytes)
}

/// Use in percent of the request, of the resource that is nearer to it or further above it; `None` where nothing is requested.
pub(super) fn over(row: &TopRow) -> Option<u64> {
    let of = |used: Option<u64>, request: Option<u64>| used?.saturating_mul(100).checked_div(request?);
    of(row.cpu_milli, row.cpu_request_milli).max(of(memory(row), row.memory_request_bytes))
}

pub(super) fn table(frame: &Frame, wide: bool) -> Table {
    let has_nodes = frame.containers.iter().any(|row| row.node.is_some());
    let mut titles = if has_nodes { vec!["NODE"] } else { Vec::new() };
    titles.extend(["POD", "CONTAINER", "CLASS", "CPU", "CPU-REQUEST", "MEMORY", "MEM-REQUEST", "PIDS"]);
    if wide {
        titles.extend(["ANON", "SWAP", "THROTTLED", "CPU-STALL", "MEM-STALL", "IO-STALL", "OOM-KILLS"]);
        titles.extend(["READ/S", "WRITTEN/S", "RECEIVED/S", "SENT/S"]);
    }
    let mut table = Table::new(&titles);
    for r in &frame.containers {
        let or_dash = |value: Option<u64>, f: fn(u64) -> String| Cell::from(value.map_or("-".to_owned(), f));
        let mut row: Vec<Cell> =
            if has_nodes { vec![r.node.as_deref().unwrap_or("-").into()] } else { Vec::new() };
        row.extend([
            r.pod.as_str().into(),
            r.container.as_str().into(),
            r.qos_class.unwrap_or("-").into(),
            or_dash(r.cpu_milli, units::cpu),
            or_dash(r.cpu_request_milli, units::cpu),
            or_dash(memory(r), units::bytes),
            or_dash(r.memory_request_bytes, units::bytes),
            or_dash(r.processes, |n| n.to_string()),
        ]);
        if wide {
            row.extend([
                or_dash(r.memory_anon_bytes, units::bytes),
                or_dash(r.swap_bytes, units::bytes),
                or_dash(r.throttled_usec, units::seconds),
                or_dash(r.cpu_pressure_usec, units::seconds),
                or_dash(r.memory_pressure_usec, units::seconds),
                or_dash(r.io_pressure_usec, units::seconds),
                or_dash(r.oom_kills, |n| n.to_string()),
            ]);
            let unknown = || ["-"; 4].map(Cell::from);
            row.extend(r.traffic.as_ref().map_or_else(unknown, TrafficRow::cells));
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proto::v1::{ContainerIdentity, Sample};

    fn usage(pod: &str, cpu: Option<u64>, memory: u64) -> ContainerUsage {
        ContainerUsage {
            identity: Some(ContainerIdentity {
                pod: pod.into(),
                namespace: "n".into(),
                ..Default::default()
            }),
            sample: Some(Sample { memory_current_bytes: Some(memory), ..Default::default() }),
            cpu_milli: cpu,
            time_usec: 1_000_000,
            ..Default::default()
        }
    }

    #[test]
    fn rows_are_sorted_with_the_unknown_last() {
        let all = || {
            vec![usage("c", None, 9), usage("b", Some(5), 1), usage("a", Some(5), 2), usage("d", Some(7), 0)]
        };
        let order = |sort| {
            let mut frame = Frame::new(all(), false);
            frame.arrange(sort, "");
            frame.containers.iter().map(|r| r.pod.clone()).collect::<Vec<_>>()
        };
        assert_eq!(order(Sort::Cpu), ["n/d", "n/a", "n/b", "n/c"]);
        assert_eq!(order(Sort::Memory), ["n/c", "n/a", "n/b", "n/d"]);
        assert_eq!(order(Sort::Name), ["n/a", "n/b", "n/c", "n/d"]);
        assert_eq!(Frame::new(all(), false).time.unwrap(), "1970-01-01T00:00:01Z");
        assert!(Frame::new(Vec::new(), false).time.is_none());
    }
}
