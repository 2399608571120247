//! Columns of the table.

use super::super::app::Shown;
use super::Column;

/// How a cell is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Look,
    Bad,
}

pub(super) fn or_dash(value: Option<u64>, text: impl Fn(u64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

pub(super) fn percent(value: Option<u64>) -> String {
    or_dash(value, |value| format!("{value}%"))
}

pub(super) fn of_request(used: Option<u64>, request: Option<u64>) -> Option<u64> {
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

pub(super) const fn column(title: &'static str, width: u16, from: u16, text: fn(&Shown) -> String) -> Column {
    Column { title, width, from, text, tone: |_| Tone::Plain }
}

impl Column {
    pub(super) const fn toned(self, tone: fn(&Shown) -> Tone) -> Self {
        Self { tone, ..self }
    }
}
