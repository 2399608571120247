//! What an answer rests on, and which of several tiers rests on enough.

use crate::units::DAY_MS;

/// Seconds of a day.
const DAY_SECONDS: u64 = DAY_MS / 1_000;

/// History that is enough to answer from: the daily peak was seen twice. What rests on less is young: its savings and
/// risks are marked and left out of sums.
pub const ENOUGH_SECONDS: u64 = 2 * DAY_SECONDS;

/// A minute measured is worth at most so many minutes of span: an hour of a container that runs now and then, seen over
/// days, is enough; two glimpses of a minute with days between them are minutes still.
const WORTH: u64 = 48;

/// How much was known of those who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// From the first to the end of the last sample, seconds.
    pub span_seconds: u64,
    /// Minutes measured in it.
    pub minutes: u64,
}

impl Evidence {
    /// The time it is worth, seconds: its span, unless next to nothing of that was measured.
    pub const fn seconds(self) -> u64 {
        let measured = self.minutes.saturating_mul(60 * WORTH);
        if measured < self.span_seconds { measured } else { self.span_seconds }
    }

    /// The same in days.
    pub fn days(self) -> f64 {
        self.seconds() as f64 / DAY_SECONDS as f64
    }

    /// Whether an answer may rest on it alone.
    pub const fn is_enough(self) -> bool {
        self.seconds() >= ENOUGH_SECONDS
    }
}

/// Of candidates from the specific to the general the first that rests on enough; where none does, the one that rests on
/// the most, of equals the more specific. Candidates behind the first with enough are not looked at.
pub(crate) fn best<T>(candidates: impl Iterator<Item = (Evidence, T)>) -> Option<T> {
    let mut best: Option<(Evidence, T)> = None;
    for (evidence, candidate) in candidates {
        let is_more = best.as_ref().is_none_or(|(most, _)| evidence.seconds() > most.seconds());
        if is_more {
            best = Some((evidence, candidate));
        }
        if evidence.is_enough() {
            break;
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn known(hours: u64, minutes: u64) -> Evidence {
        Evidence { span_seconds: hours * 3_600, minutes }
    }

    #[test]
    fn a_span_is_worth_what_was_measured_in_it() {
        for (evidence, seconds, is_enough) in [
            (known(0, 0), 0, false),
            (known(47, 47 * 60), 47 * 3_600, false),
            (known(48, 48 * 60), ENOUGH_SECONDS, true),
            // Ten minutes, and as many ten days before.
            (known(240, 20), 16 * 3_600, false),
            // Five minutes every night for two weeks.
            (known(14 * 24, 70), 56 * 3_600, true),
        ] {
            assert_eq!((evidence.seconds(), evidence.is_enough()), (seconds, is_enough), "{evidence:?}");
        }
    }

    #[test]
    fn the_first_with_enough_answers_or_else_the_one_with_most() {
        let minutes = known(1, 60);
        let (day, days, month) = (known(24, 1_440), known(48, 2_880), known(720, 43_200));
        for (tiers, want) in [
            (vec![], None),
            (vec![minutes], Some(0)),
            (vec![minutes, day], Some(1)),
            (vec![day, minutes], Some(0)),
            (vec![minutes, day, month], Some(2)),
            (vec![days, month], Some(0)),
            (vec![minutes, days, month], Some(1)),
            (vec![day, day], Some(0)),
        ] {
            let found = best(tiers.iter().copied().zip(0..));
            assert_eq!(found, want, "{tiers:?}");
        }
    }
}
