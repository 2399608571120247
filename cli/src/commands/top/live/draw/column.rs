//! Columns of the table, and which each view has.

use super::super::super::frame::memory;
use super::super::app::Shown;
use crate::units;

/// Use of this much of a request, in percent, is worth a look, and this much is above it.
const NEAR: u64 = 90;
const ABOVE: u64 = 100;
/// Thousandths of the time stalled or throttled that are worth a look, and that hurt.
pub(super) const FELT: u64 = 50;
pub(super) const HURTS: u64 = 200;

/// How a cell is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Look,
    Bad,
}

/// A column: title, width, from which width of the screen on it is shown, and its text.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: u16,
    pub(super) from: u16,
    pub(super) text: fn(&Shown) -> String,
    pub(super) tone: fn(&Shown) -> Tone,
}

const CLASS: Column = column("CLASS", 10, 70, |s| s.row.qos_class.unwrap_or("-").to_owned());
const CPU: Column = column("CPU", 6, 0, |s| or_dash(s.row.cpu_milli, units::cpu));
const CPU_OF: Column =
    column("CPU%", 5, 48, |s| percent(of_request(s.row.cpu_milli, s.row.cpu_request_milli)))
        .toned(|s| above(of_request(s.row.cpu_milli, s.row.cpu_request_milli), NEAR, ABOVE));
const MEMORY: Column = column("MEM", 7, 0, |s| or_dash(memory(&s.row), units::bytes));
const MEMORY_OF: Column =
    column("MEM%", 5, 0, |s| percent(of_request(memory(&s.row), s.row.memory_request_bytes)))
        .toned(|s| above(of_request(memory(&s.row), s.row.memory_request_bytes), NEAR, ABOVE));
const THROTTLED: Column =
    column("THR", 6, 60, |s| part(s.rates.throttled)).toned(|s| above(s.rates.throttled, FELT, HURTS));
const CPU_STALL: Column =
    column("CPU-ST", 6, 90, |s| part(s.rates.cpu_stall)).toned(|s| above(s.rates.cpu_stall, FELT, HURTS));
const MEMORY_STALL: Column = column("MEM-ST", 6, 80, |s| part(s.rates.memory_stall))
    .toned(|s| above(s.rates.memory_stall, FELT, HURTS));
const IO_STALL: Column =
    column("IO-ST", 6, 100, |s| part(s.rates.io_stall)).toned(|s| above(s.rates.io_stall, FELT, HURTS));
const IO: Column = column("IO/s", 7, 112, |s| or_dash(s.row.traffic.as_ref().map(|t| t.io()), units::bytes));
const OOM: Column = column("OOM", 4, 74, |s| or_dash(s.row.oom_kills, |n| n.to_string()))
    .toned(|s| if s.rates.oom_kills > Some(0) { Tone::Bad } else { Tone::Plain });
const PIDS: Column = column("PIDS", 5, 120, |s| or_dash(s.row.processes, |n| n.to_string()));

pub(super) const CONTAINERS: [Column; 12] =
    [CLASS, CPU, CPU_OF, MEMORY, MEMORY_OF, THROTTLED, CPU_STALL, MEMORY_STALL, IO_STALL, IO, OOM, PIDS];
/// Stalls first; the least important are the amounts.
pub(super) const PRESSURE: [Column; 9] = [
    Column { from: 0, ..MEMORY_STALL },
    Column { from: 0, ..CPU_STALL },
    Column { from: 50, ..IO_STALL },
    Column { from: 58, ..THROTTLED },
    Column { from: 66, ..OOM },
    Column { from: 74, ..IO },
    Column { from: 84, ..CPU },
    Column { from: 92, ..MEMORY },
    Column { from: 104, ..CLASS },
];

pub(super) fn or_dash(value: Option<u64>, text: impl Fn(u64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

pub(super) fn percent(value: Option<u64>) -> String {
    or_dash(value, |value| format!("{value}%"))
}

fn of_request(used: Option<u64>, request: Option<u64>) -> Option<u64> {
    used?.saturating_mul(100).checked_div(request?)
}

/// Thousandths of the time as percent.
pub(super) fn part(value: Option<u64>) -> String {
    or_dash(value, |value| {
        if value < 100 { format!("{}.{}%", value / 10, value % 10) } else { format!("{}%", value / 10) }
    })
}

pub(super) const fn above(value: Option<u64>, look: u64, bad: u64) -> Tone {
    match value {
        Some(value) if value > bad => Tone::Bad,
        Some(value) if value >= look => Tone::Look,
        _ => Tone::Plain,
    }
}

const fn column(title: &'static str, width: u16, from: u16, text: fn(&Shown) -> String) -> Column {
    Column { title, width, from, text, tone: |_| Tone::Plain }
}

impl Column {
    const fn toned(self, tone: fn(&Shown) -> Tone) -> Self {
        Self { tone, ..self }
    }
}
