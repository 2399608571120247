//! The first replica with another size: whether it became worse.

use evenkeel_rightsizing::Resource;

use crate::facts::{Health, Size, Watched, place};
use crate::note::Note;

/// A part of time that grew by less than that is no change: what two halves of the same hour differ by.
const SHARE: f64 = 0.02;
/// Nor is growth by less than this factor.
const GROWTH: f64 = 1.2;

/// Less of the time than that being measured, nothing is known: percent.
const MEASURED_PERCENT: u64 = 50;

/// Why a canary became worse by what its note says; nothing where it did not. Only what got less can have made it worse: to take away again
/// what was given helps nobody.
pub(crate) fn worse(note: &Note, watched: &Watched) -> Option<String> {
    let lost = |resource: Resource| {
        let at = place(resource);
        note.target
            .iter()
            .any(|(name, new)| note.before.get(name).is_some_and(|old| is_less(old[at], new[at])))
    };
    grew(watched, lost(Resource::Cpu), lost(Resource::Memory))
}

fn is_less(old: Size, new: Size) -> bool {
    new.request < old.request || new.limit.is_some_and(|limit| old.limit.is_none_or(|old| limit < old))
}

/// What grew of what less CPU, or less memory, may have made grow.
fn grew(watched: &Watched, less_cpu: bool, less_memory: bool) -> Option<String> {
    let Watched { before, after } = watched;
    if after.seconds == 0 {
        return None;
    }
    let kills = |one: &Health, other: &Health| u128::from(one.oom_kills) * u128::from(other.seconds.max(1));
    if less_memory && after.oom_kills > 0 && kills(after, before) > kills(before, after) {
        return Some(format!(
            "{} OOM kills in {} s, {} in the {} s before",
            after.oom_kills, after.seconds, before.oom_kills, before.seconds
        ));
    }
    let shares = [
        ("throttled", before.throttled_usec, after.throttled_usec),
        ("starved", before.starved_usec, after.starved_usec),
    ];
    shares.into_iter().filter(|_| less_cpu).find_map(|(word, was, is)| {
        let (was, is) = (share(was, before.seconds), share(is, after.seconds));
        let grew = is > was + SHARE && is > was * GROWTH;
        grew.then(|| format!("{word} for {:.1} % of the time, {:.1} % before", is * 100.0, was * 100.0))
    })
}

/// Whether so much of a time was measured that it says something.
pub(crate) fn is_measured(after: &Health, seconds: u64) -> bool {
    after.seconds.saturating_mul(100) >= seconds.saturating_mul(MEASURED_PERCENT)
}

fn share(usec: u64, seconds: u64) -> f64 {
    if seconds == 0 { 0.0 } else { usec as f64 / 1e6 / seconds as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_is_worse_and_what_was_there_before_is_not() {
        let health = |seconds, oom_kills, throttled: u64, starved: u64| Health {
            seconds,
            oom_kills,
            throttled_usec: throttled * 1_000_000,
            starved_usec: starved * 1_000_000,
        };
        for (before, after, want) in [
            (health(600, 0, 0, 0), health(600, 0, 0, 0), None),
            (health(600, 0, 0, 0), health(600, 1, 0, 0), Some("OOM")),
            (health(600, 2, 0, 0), health(600, 2, 0, 0), None),
            (health(600, 2, 0, 0), health(60, 1, 0, 0), Some("OOM")),
            (health(0, 0, 0, 0), health(60, 1, 0, 0), Some("OOM")),
            (health(600, 0, 6, 0), health(600, 0, 12, 0), None),
            (health(600, 0, 6, 0), health(600, 0, 60, 0), Some("throttled")),
            (health(600, 0, 300, 0), health(600, 0, 330, 0), None),
            (health(600, 0, 0, 0), health(600, 0, 0, 60), Some("starved")),
            (health(600, 0, 0, 0), health(0, 9, 0, 0), None),
        ] {
            let watched = Watched { before, after };
            let told = grew(&watched, true, true);
            assert_eq!(grew(&watched, false, false), None);
            assert_eq!(told.is_some(), want.is_some(), "{before:?} {after:?}: {told:?}");
            assert!(want.is_none_or(|word| told.unwrap().contains(word)));
        }
        assert!(is_measured(&health(300, 0, 0, 0), 600) && !is_measured(&health(299, 0, 0, 0), 600));
    }
}
