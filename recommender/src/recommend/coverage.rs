//! Owns how much of a window was seen: seconds for which a sample arrived, and seconds between them for which none did.

use std::collections::BTreeMap;

use evenkeel_rightsizing::usage::UsageSecond;
use evenkeel_store::history::minute::StoredMinute;

/// Samples of a minute from which on they tell how far they are apart.
const TELLING: u32 = 10;

/// What was seen of a window. Of several containers all their seconds count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coverage {
    /// First second, since 1970.
    pub(super) start: u64,
    /// The second after the last.
    pub(super) end: u64,
    /// Seconds for which a sample arrived.
    pub(super) seen: u64,
    /// Seconds for which none did, although the container ran before and after.
    pub(super) dropped: u64,
}

/// A minute of all containers together.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    /// Containers of which there is anything in it.
    containers: u64,
    seen_ms: u64,
}

/// Of container-minutes in any order. Minutes at the ends of a container are incomplete by nature: of each minute those
/// containers are expected to be seen in whole that are there in the minutes around it, and one where there is none.
pub(super) fn of_minutes(minutes: &[StoredMinute]) -> Option<Coverage> {
    let interval_ms = interval_ms(minutes);
    let mut by_minute: BTreeMap<u32, Minute> = BTreeMap::new();
    for kept in minutes.iter().filter(|kept| kept.samples > 0) {
        let minute = by_minute.entry(kept.minute).or_default();
        minute.containers += 1;
        minute.seen_ms += (u64::from(kept.samples) * interval_ms).min(60_000);
    }
    let (first, last) = (*by_minute.first_key_value()?.0, *by_minute.last_key_value()?.0);
    let of = |minute: u32| by_minute.get(&minute).copied().unwrap_or_default();
    let dropped_ms = |minute: u32| {
        let around = [minute - 1, minute, minute + 1].map(|minute| of(minute).containers.max(1));
        let expected = around.into_iter().min().unwrap_or(1) * 60_000;
        expected.saturating_sub(of(minute).seen_ms)
    };
    let mut dropped = 0;
    let mut before = first;
    for minute in by_minute.keys().copied().skip(1) {
        // Minutes without anything are not gone through one by one: there may be a month of them.
        dropped += u64::from(minute - before - 1) * 60_000;
        if minute < last {
            dropped += dropped_ms(minute);
        }
        before = minute;
    }
    let alone = |minute: u32| of(minute).seen_ms.min(60_000) / 1000;
    let start = match first == last {
        true => u64::from(first) * 60,
        false => (u64::from(first) + 1) * 60 - alone(first),
    };
    let seen = by_minute.values().map(|minute| minute.seen_ms).sum::<u64>() / 1000;
    Some(Coverage { start, end: u64::from(last) * 60 + alone(last), seen, dropped: dropped / 1000 })
}

/// How far samples are apart: the least of minutes with enough of them, in whole seconds, since some may be missing in
/// others.
fn interval_ms(minutes: &[StoredMinute]) -> u64 {
    let telling = minutes.iter().any(|kept| kept.samples >= TELLING);
    let of = |kept: &StoredMinute| (kept.weight_ms / u64::from(kept.samples) + 500) / 1000 * 1000;
    let counted = minutes.iter().filter(|kept| kept.samples >= if telling { TELLING } else { 1 });
    counted.map(of).min().unwrap_or(0).max(1000)
}

/// Of the last seconds of each of some containers.
pub(super) fn of_seconds(containers: impl Iterator<Item = Vec<UsageSecond>>) -> Option<Coverage> {
    let mut all: Option<Coverage> = None;
    for seconds in containers {
        let times = || seconds.iter().map(|second| second.time_ms);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { continue };
        let weights = seconds.iter().map(|second| (second.weight_ms + 500) / 1000);
        let interval = weights.filter(|seconds| *seconds > 0).min().unwrap_or(1);
        let seen = (seconds.len() as u64).saturating_mul(interval);
        // Samples come a little early or late.
        let expected = (last - first + interval * 500) / (interval * 1000) * interval + interval;
        let dropped = expected.saturating_sub(seen);
        let (start, end) = (first / 1000, last / 1000 + interval);
        all = Some(match all {
            None => Coverage { start, end, seen, dropped },
            Some(all) => Coverage {
                start: all.start.min(start),
                end: all.end.max(end),
                seen: all.seen + seen,
                dropped: all.dropped + dropped,
            },
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(minute: u32, samples: u32, interval_ms: u64) -> StoredMinute {
        StoredMinute {
            minute,
            samples,
            weight_ms: u64::from(samples) * interval_ms,
            ..StoredMinute::default()
        }
    }

    #[test]
    fn what_is_missing_between_the_ends_was_dropped() {
        let second = |minute, samples| kept(minute, samples, 1000);
        let table = [
            ("whole", vec![second(7, 60), second(8, 60)], (420, 540, 120, 0)),
            ("began and ended within", vec![second(7, 20), second(8, 60), second(9, 5)], (460, 545, 85, 0)),
            ("a minute that goes on", vec![second(7, 20)], (420, 440, 20, 0)),
            ("ten seconds", vec![second(7, 60), second(8, 50), second(9, 60)], (420, 600, 170, 10)),
            ("two minutes", vec![second(7, 60), second(10, 60)], (420, 660, 120, 120)),
            (
                "one of two containers",
                (7..10).flat_map(|m| [second(m, 60), second(m, if m == 8 { 30 } else { 60 })]).collect(),
                (420, 600, 330, 30),
            ),
            (
                "a second container from the middle on",
                vec![second(7, 60), second(8, 60), second(8, 25), second(9, 60), second(9, 60)],
                (420, 600, 265, 0),
            ),
            (
                "started again after five seconds",
                vec![second(7, 60), second(8, 30), second(8, 25), second(9, 60)],
                (420, 600, 175, 5),
            ),
            // Twelve samples are a minute of one every five seconds; of the last minute one is missing, of the first none.
            (
                "every five seconds",
                (7..10).map(|m| kept(m, if m == 8 { 11 } else { 12 }, 5000)).collect(),
                (420, 600, 175, 5),
            ),
        ];
        for (name, minutes, (start, end, seen, dropped)) in table {
            let want = Some(Coverage { start, end, seen, dropped });
            assert_eq!(of_minutes(&minutes), want, "{name}");
        }
        assert_eq!(of_minutes(&[]), None);
    }

    #[test]
    fn seconds_that_never_came_are_missing_too() {
        let at = |second: u64| UsageSecond {
            time_ms: second * 1000 + 300,
            weight_ms: 1000,
            value: 1,
            stalled_ms: 0,
        };
        let seconds: Vec<UsageSecond> = (41..=100).filter(|s| !(60..70).contains(s)).map(at).collect();
        let want = Coverage { start: 41, end: 101, seen: 50, dropped: 10 };
        assert_eq!(of_seconds([seconds.clone(), Vec::new()].into_iter()), Some(want));
        let both = of_seconds([seconds, (90..=110).map(at).collect()].into_iter());
        assert_eq!(both, Some(Coverage { start: 41, end: 111, seen: 71, dropped: 10 }));
    }
}
