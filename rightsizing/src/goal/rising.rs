//! Memory on its way above the request.
//!
//! Where requests may change within the day, the last seconds count as well. So a limit that follows the request is above
//! the use before the kernel kills:
//!
//! - A working set that has grown through the last minute is met before it arrives, with what it would be in five minutes at
//!   its pace (`ahead`).
//! - A replica that waits for memory near its limit has no pace: the kernel reclaims what it can, and growth slows as it gets
//!   there. It is given what a kill would give it, before the kill (`stalled`).
//!
//! A step that is taken within seconds cannot be met, and one that has been taken is no pace. Without a limit, or far from
//! it, waiting for memory is the node's, and the agent's to see (pressure).

use super::GoalParams;
use super::oom;
use super::params::ChangeFrequency;
use crate::Resource;
use crate::history::{History, Running};
use crate::rule::Question;
use crate::usage::UsageSecond;
use evenkeel_model::narrow::f64_to_u64;

/// Time that tells the pace, how much of it must be known, and by how many samples.
const WINDOW_MS: u64 = 60_000;
const KNOWN_MS: u64 = 45_000;
const LEAST_SAMPLES: usize = 9;
/// How far ahead a request looks: agents hear of it within seconds, and a step or two follow.
const AHEAD_MS: f64 = 300_000.0;
/// The part of its growth that use may have given back on the way: a garbage collector gives back all.
const GIVEN_BACK: f64 = 0.25;
/// The most that a pace may ask for, as a multiple of the use: it ends somewhere.
const MOST: f64 = 2.0;

/// Waiting for memory a second of the last ten, PSI's shortest window, is more than the ordinary reclaim of a busy cgroup.
const STALL_WINDOW_MS: u64 = 10_000;
const STALLED_MS: u64 = 1_000;
/// From this part of its limit on a replica waits for what the limit denies it. The working set has no inactive file pages in
/// it: who merely reads files is at its limit with much less.
const NEAR: f64 = 0.9;

/// The request, raised where a replica's use is on its way above it.
pub(super) fn raised(
    params: &GoalParams,
    question: &Question,
    history: &dyn History,
    request: u64,
    notes: &mut Vec<String>,
) -> u64 {
    if params.change == ChangeFrequency::Day || question.resource != Resource::Memory {
        return request;
    }
    let (mut paced, mut held) = (0, None);
    history.visit_running(&mut |running| {
        paced = paced.max(ahead(running.seconds, question.now_ms).unwrap_or(0));
        held = held.max(stalled(running, question.now_ms));
    });
    let wanted = held.map_or(0, |level| f64_to_u64(oom::beyond(params, level, params.oom_margin)));
    if paced.max(wanted) <= request {
        return request;
    }
    let mib = |bytes: u64| bytes >> 20;
    notes.push(match held {
        Some(level) if wanted >= paced => {
            format!("raised: it waits for memory at {} MiB, near its limit", mib(level))
        }
        _ => format!("raised: at its pace use is {} MiB in 5 minutes, above {}", mib(paced), mib(request)),
    });
    paced.max(wanted)
}

/// What a replica uses that waits for memory near its limit.
fn stalled(running: &Running<'_>, now_ms: u64) -> Option<u64> {
    let limit = running.limit?;
    let from = now_ms.saturating_sub(STALL_WINDOW_MS);
    let recent = running.seconds.iter().filter(|s| (from..=now_ms).contains(&s.time_ms));
    let (level, waited) =
        recent.fold((0, 0), |(level, waited), s| (s.value.max(level), waited + s.stalled_ms));
    (waited >= STALLED_MS && level as f64 >= NEAR * limit as f64).then_some(level)
}

/// Use in five minutes at the pace of the last minute, the slower of its older and its newer part; `None` where too
/// little is known, or use does not grow throughout.
fn ahead(seconds: &[UsageSecond], now_ms: u64) -> Option<u64> {
    let from = now_ms.saturating_sub(WINDOW_MS);
    let recent: Vec<&UsageSecond> = seconds.iter().filter(|s| (from..=now_ms).contains(&s.time_ms)).collect();
    let (first, last) = (recent.first()?, recent.last()?);
    if last.time_ms.saturating_sub(first.time_ms) < KNOWN_MS || recent.len() < LEAST_SAMPLES {
        return None;
    }
    let (mut top, mut given_back) = (0, 0);
    for second in &recent {
        top = second.value.max(top);
        given_back = given_back.max(top - second.value);
    }
    if given_back as f64 > GIVEN_BACK * last.value.saturating_sub(first.value) as f64 {
        return None;
    }
    // Means of thirds, at the mean of their times: single pages are noise.
    let third = |at: usize| {
        let part = &recent[at * recent.len() / 3..(at + 1) * recent.len() / 3];
        let mean = |of: &dyn Fn(&UsageSecond) -> u64| {
            part.iter().map(|second| of(second) as f64).sum::<f64>() / part.len() as f64
        };
        (mean(&|second| second.time_ms - from), mean(&|second| second.value))
    };
    let [old, middle, new] = [0, 1, 2].map(third);
    let pace = |(from, before): (f64, f64), (to, after): (f64, f64)| (after - before) / (to - from).max(1.0);
    let pace = pace(old, middle).min(pace(middle, new));
    let now = last.value as f64;
    (pace > 0.0).then(|| f64_to_u64((now + pace * AHEAD_MS).min(now * MOST)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Day, Event, Hour, Minute, Scope};
    use crate::rule::Rule;
    use crate::units::{DAY_MS, HOUR_MS};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const T0: u64 = 20_000 * DAY_MS;

    /// A fortnight at 500 MiB, the seconds so far, and the limit where it is told.
    #[derive(Default)]
    struct Live {
        seconds: Vec<UsageSecond>,
        limit: Option<u64>,
    }

    impl Live {
        fn use_of(&mut self, second: u64, value: u64, stalled_ms: u64) {
            self.seconds.push(UsageSecond {
                time_ms: T0 + second * 1_000,
                weight_ms: 1_000,
                value,
                stalled_ms,
            });
        }
    }

    impl History for Live {
        fn minutes(&self, _: Scope, _: u64) -> Vec<Minute> {
            Vec::new()
        }
        fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
            let now = T0 / HOUR_MS;
            let live = self.seconds.iter().map(|second| second.value).max().unwrap_or(0);
            let hour = |hour| {
                let peak = if hour == now { live } else { 500 * MIB };
                let mut all = crate::histogram::Histogram::new();
                all.add(peak, HOUR_MS);
                Hour { hour, all, peak, ..Hour::default() }
            };
            let hours = (now - 14 * 24).max(from)..=now;
            if scope == Scope::Own { hours.map(hour).collect() } else { Vec::new() }
        }
        fn days(&self, _: Scope, _: u64) -> Vec<Day> {
            Vec::new()
        }
        fn events(&self, _: u64) -> Vec<Event> {
            Vec::new()
        }
        fn visit_running(&self, visit: &mut dyn FnMut(&Running<'_>)) {
            visit(&Running { seconds: &self.seconds, limit: self.limit });
        }
    }

    fn ask(change: ChangeFrequency, live: &Live, second: u64, previous: Option<u64>) -> u64 {
        let now_ms = T0 + second * 1_000;
        let question = Question { resource: Resource::Memory, now_ms, current: None, previous };
        GoalParams { change, ..GoalParams::default() }.recommend(&question, live).request.unwrap()
    }

    /// Whether use comes above a limit that is the request within half an hour, and the greatest limit, MiB. It is asked as
    /// often as is said, and in force 15 s later.
    fn killed(change: ChangeFrequency, every: u64, use_mib: impl Fn(u64) -> f64) -> (bool, u64) {
        let mut live = Live::default();
        let (mut limit, mut next) = (ask(change, &live, 0, None), None);
        let mut most = limit;
        for second in 0..1_800u64 {
            if second % 15 == 0 {
                limit = next.take().unwrap_or(limit);
                next = second.is_multiple_of(every).then(|| ask(change, &live, second, None));
                most = most.max(limit);
            }
            let value = (use_mib(second) * MIB as f64) as u64;
            if value > limit {
                return (true, most / MIB);
            }
            live.use_of(second, value, 0);
        }
        (false, most / MIB)
    }

    /// What the last seconds save, by the kind of growth, over answers once a day and over as many answers without them.
    #[test]
    fn growth_is_met_before_the_limit_where_it_takes_its_time() {
        type Kind = (&'static str, fn(u64) -> f64, [bool; 3]);
        let kinds: [Kind; 9] = [
            ("level", |_| 500.0, [false; 3]),
            ("noise", |s| 480.0 + (s * 7_919 % 20) as f64, [false; 3]),
            ("collected every 40 s", |s| 440.0 + 3.0 * (s % 40) as f64, [false; 3]),
            ("collected every 4 minutes", |s| 400.0 + 0.4 * (s % 240) as f64, [false; 3]),
            ("1 MiB/s", |s| 500.0 + s as f64, [true, false, false]),
            (
                "a cache that warms up",
                |s| 1_500.0 - 1_100.0 * (-(s as f64) / 300.0).exp(),
                [true, false, false],
            ),
            ("5 MiB/s", |s| 200.0 + 5.0 * s.min(240) as f64, [true, true, false]),
            ("10 MiB/s from nothing", |s| 10.0 * s.min(150) as f64, [true; 3]),
            ("doubled in a second", |s| if s < 600 { 500.0 } else { 1_000.0 }, [true; 3]),
        ];
        for (kind, use_mib, want) in kinds {
            let modes =
                [(ChangeFrequency::Day, 86_400), (ChangeFrequency::Day, 15), (ChangeFrequency::Raise, 15)];
            let got = modes.map(|(change, every)| killed(change, every, use_mib));
            assert_eq!(got.map(|one| one.0), want, "{kind}: {got:?}");
            // What does not grow costs nothing.
            assert!(want[0] || got[2].1 == got[1].1, "{kind}: {got:?}");
        }
    }

    /// Whether use comes above a limit that is the request within half an hour, where the container waits for 0.4 s of each second
    /// in which it is near the limit, and that is told or not; and the greatest limit, MiB.
    fn killed_where_it_waits(is_told: bool, use_mib: impl Fn(u64) -> f64) -> (bool, u64) {
        let mut live = Live::default();
        let (mut limit, mut next) = (ask(ChangeFrequency::Raise, &live, 0, None), None);
        let mut most = limit;
        for second in 0..1_800u64 {
            if second % 15 == 0 {
                limit = next.take().unwrap_or(limit);
                live.limit = Some(limit);
                next = Some(ask(ChangeFrequency::Raise, &live, second, Some(limit)));
                most = most.max(limit);
            }
            let value = (use_mib(second) * MIB as f64) as u64;
            if value > limit {
                return (true, most / MIB);
            }
            let is_near = value as f64 >= NEAR * limit as f64;
            live.use_of(second, value, if is_near && is_told { 400 } else { 0 });
        }
        (false, most / MIB)
    }

    /// Use that goes up and down has no pace: without the waits it is met only where the margin above its peaks is enough.
    #[test]
    fn who_waits_for_memory_near_its_limit_is_given_more_before_it_is_killed() {
        type Kind = (&'static str, fn(u64) -> f64, [bool; 2]);
        let kinds: [Kind; 3] = [
            ("level", |_| 500.0, [false; 2]),
            ("more after each collection", |s| 450.0 + 1.6 * s as f64 + 2.5 * (s % 40) as f64, [true, false]),
            ("bursts that grow", |s| 500.0 + if s % 60 < 20 { s as f64 * 1.5 } else { 0.0 }, [true, false]),
        ];
        for (kind, use_mib, want) in kinds {
            let got = [false, true].map(|is_told| killed_where_it_waits(is_told, use_mib));
            assert_eq!(got.map(|one| one.0), want, "{kind}: {got:?}");
            assert!(want[0] || got[0].1 == got[1].1, "what is not near its limit costs nothing: {got:?}");
        }
    }

    #[test]
    fn only_long_waits_near_a_limit_raise() {
        let near = Some(520 * MIB);
        for (limit, stalled_ms, last, change, want) in [
            // As after a kill at 500 MiB: a fifth more, and 100 MiB at least.
            (near, 100, 60, ChangeFrequency::Raise, 600),
            (near, 100, 60, ChangeFrequency::Hourly, 600),
            (near, 1_000, 51, ChangeFrequency::Raise, 600),
            (near, 90, 60, ChangeFrequency::Raise, 0),
            (near, 1_000, 49, ChangeFrequency::Raise, 0),
            (near, 1_000, 60, ChangeFrequency::Day, 0),
            (Some(600 * MIB), 1_000, 60, ChangeFrequency::Raise, 0),
            (None, 1_000, 60, ChangeFrequency::Raise, 0),
        ] {
            let mut live = Live { limit, ..Live::default() };
            (41..=60).for_each(|s| live.use_of(s, 500 * MIB, if s <= last { stalled_ms } else { 0 }));
            let question =
                Question { resource: Resource::Memory, now_ms: T0 + 60_000, current: None, previous: None };
            let mut notes = Vec::new();
            let params = GoalParams { change, ..GoalParams::default() };
            let raised = raised(&params, &question, &live, 1, &mut notes);
            assert_eq!(raised / MIB, want, "{limit:?} {stalled_ms} {last} {change:?} {notes:?}");
            assert!((want > 0) == notes.iter().any(|note| note.contains("near its limit")), "{notes:?}");
        }
    }

    proptest! {
        /// However seconds lie, a raise is at least the request, at most twice the use, and nothing without growth.
        #[test]
        fn a_raise_is_bounded(values in prop::collection::vec(0u64..1 << 50, 0..80), late in 0u64..120_000) {
            let seconds: Vec<UsageSecond> = values.iter().zip(0..).map(|(value, at)| UsageSecond {
                time_ms: T0 + at * 1_000, weight_ms: 1_000, value: *value, stalled_ms: 0,
            }).collect();
            let now_ms = T0 + seconds.len() as u64 * 1_000 + late;
            if let Some(ahead) = ahead(&seconds, now_ms) {
                let last = seconds.last().unwrap().value;
                prop_assert!(ahead >= last && ahead as f64 <= MOST * last as f64 + 1.0);
                prop_assert!(late < WINDOW_MS - KNOWN_MS + 1_000);
            }
            let mut falling = seconds;
            falling.sort_by_key(|second| std::cmp::Reverse(second.value));
            falling.iter_mut().zip(0..).for_each(|(second, at)| second.time_ms = T0 + at * 1_000);
            prop_assert_eq!(ahead(&falling, now_ms), None);
        }
    }
}
