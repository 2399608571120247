//! Owns what is told by second of counters that only grow: parts of the time throttled and stalled, and new OOM kills.

use std::collections::HashMap;

use super::super::frame::{Frame, TopRow};

/// Thousandths of the time between two seconds, and kills in it; absent where one of the two does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rates {
    pub(super) throttled: Option<u64>,
    pub(super) cpu_stall: Option<u64>,
    pub(super) memory_stall: Option<u64>,
    pub(super) io_stall: Option<u64>,
    pub(super) oom_kills: Option<u64>,
}

impl Rates {
    /// The worst of its stalls and its throttling.
    pub(super) fn worst(&self) -> Option<u64> {
        self.throttled.max(self.cpu_stall).max(self.memory_stall).max(self.io_stall)
    }
}

/// The counters of a second.
type Counters = [Option<u64>; 5];

fn counters(row: &TopRow) -> Counters {
    [row.throttled_usec, row.cpu_pressure_usec, row.memory_pressure_usec, row.io_pressure_usec, row.oom_kills]
}

/// Who a row is of.
pub(super) fn key(row: &TopRow) -> String {
    format!("{}\u{0}{}\u{0}{}", row.node.as_deref().unwrap_or_default(), row.id, row.pod)
}

/// The second before, as far as rates need it.
#[derive(Debug, Default)]
pub(super) struct Before {
    time_usec: u64,
    counters: HashMap<String, Counters>,
}

impl Before {
    pub(super) fn of(frame: &Frame) -> Self {
        let counters = frame.containers.iter().map(|row| (key(row), counters(row))).collect();
        Self { time_usec: frame.time_usec, counters }
    }

    /// What a row comes to since then.
    pub(super) fn rates(&self, row: &TopRow, time_usec: u64) -> Rates {
        let Some(before) = self.counters.get(&key(row)) else { return Rates::default() };
        // Of all nodes a container's own interval is the time between its seconds.
        let span = match time_usec.saturating_sub(self.time_usec) {
            0 => u64::from(row.interval_usec),
            span => span,
        };
        let now = counters(row);
        let grown = |at: usize| {
            let (now, before) = (now.get(at).copied().flatten()?, before.get(at).copied().flatten()?);
            now.checked_sub(before)
        };
        let part = |at: usize| grown(at).and_then(|usec| usec.saturating_mul(1000).checked_div(span));
        Rates {
            throttled: part(0),
            cpu_stall: part(1),
            memory_stall: part(2),
            io_stall: part(3),
            oom_kills: grown(4),
        }
    }
}
