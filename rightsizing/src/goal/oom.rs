//! What kills and evictions for want of memory demand.
//!
//! They stand outside of all percentiles: one kill of one replica in a month is enough to know that the memory was too
//! little. Kills within ten minutes are one incident, because a container often loses several processes at once. Each
//! further incident within a day doubles the margin.

use super::GoalParams;
use crate::history::{Cause, Event, History};
use crate::rule::Question;
use crate::units::DAY_MS;

/// Kills closer to each other are one incident.
const INCIDENT_MS: u64 = 600_000;
/// The margin stops doubling here: 0.2 becomes 3.2.
const MOST_DOUBLINGS: i32 = 4;

/// The least request that the kills allow; 0 without any. `peak` stands in where an event does not know the use.
pub(super) fn least(
    params: &GoalParams,
    question: &Question,
    peak: Option<u64>,
    history: &dyn History,
    notes: &mut Vec<String>,
) -> f64 {
    let mut events = history.events(question.now_ms.saturating_sub(params.oom_days * DAY_MS));
    events.retain(|event| event.time_ms < question.now_ms);
    let mut least: f64 = 0.0;
    let mut incidents: Vec<u64> = Vec::new();
    for event in &events {
        if incidents.last().is_none_or(|last| event.time_ms.saturating_sub(*last) >= INCIDENT_MS) {
            incidents.push(event.time_ms);
        }
        let recent = incidents.iter().filter(|time| event.time_ms - **time < DAY_MS).count();
        let doublings = i32::try_from(recent).unwrap_or(i32::MAX).saturating_sub(1).min(MOST_DOUBLINGS);
        let margin = params.oom_margin * 2f64.powi(doublings);
        if let Some(level) = level(event).or(peak) {
            least = least.max(beyond(params, level, margin));
        }
    }
    note(&events, notes);
    least
}

/// A request for what needed more than this.
pub(super) fn beyond(params: &GoalParams, level: u64, margin: f64) -> f64 {
    let level = level as f64;
    (level * (1.0 + margin)).max(level + params.oom_min_bytes as f64)
}

/// What was wanted at least: the use at that moment, or the limit that it ran into; and what was requested, which was too
/// little.
fn level(event: &Event) -> Option<u64> {
    event.usage.or(event.limit).max(event.request)
}

fn note(events: &[Event], notes: &mut Vec<String>) {
    for (cause, name) in [(Cause::OomKill, "oom kills"), (Cause::Eviction, "evictions")] {
        let count = events.iter().filter(|event| event.cause == cause).count();
        if count > 0 {
            notes.push(format!("{name}: {count}"));
        }
    }
}
